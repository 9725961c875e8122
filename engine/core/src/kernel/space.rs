//! The kernel's memory by virtual address.

use super::physical::Physical;
use super::tables::{Tables, Walker};

/// Virtual memory: a dump and the tables that say where things are in it.
pub struct Space<'p> {
    pub physical: &'p dyn Physical,
    pub walker: Walker,
}

impl<'p> Space<'p> {
    pub fn new(physical: &'p dyn Physical, tables: Tables) -> Space<'p> {
        Space { physical, walker: Walker::new(tables) }
    }

    /// Fills `buf` from `address` on; how many bytes there were before the first that is not mapped or not in the dump.
    pub fn read(&mut self, address: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        // Neighbouring pages are mostly neighbours in the dump too: one read for as many as are.
        let mut piece: Option<(u64, usize)> = None;
        while done < buf.len() {
            let (start, mut length) = match piece.take() {
                Some(piece) => piece,
                None => match self.translate(address, done, buf.len()) {
                    Some(first) => first,
                    None => return done,
                },
            };
            while done + length < buf.len() {
                match self.translate(address, done + length, buf.len()) {
                    Some((next, more)) if start.checked_add(length as u64) == Some(next) => length += more,
                    other => {
                        piece = other;
                        break;
                    }
                }
            }
            let got = self.physical.read(start, &mut buf[done..done + length]);
            done += got;
            if got < length || (piece.is_none() && done < buf.len()) {
                return done;
            }
        }
        done
    }

    /// (physical address, bytes) of what follows `done` of the `wanted` bytes from `address` on.
    fn translate(&mut self, address: u64, done: usize, wanted: usize) -> Option<(u64, usize)> {
        let at = address.checked_add(done as u64)?;
        let mapped = self.walker.translate(self.physical, at)?;
        Some((mapped.physical, usize::try_from(mapped.left).unwrap_or(usize::MAX).min(wanted - done)))
    }

    /// All of `N` bytes or nothing.
    pub fn bytes<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    pub fn word(&mut self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }

    /// `struct list_head`: (next, prev).
    pub fn links(&mut self, address: u64) -> Option<(u64, u64)> {
        let bytes: [u8; 16] = self.bytes(address)?;
        let (next, prev) = bytes.split_at(8);
        Some((u64::from_le_bytes(*next.first_chunk()?), u64::from_le_bytes(*prev.first_chunk()?)))
    }
}
