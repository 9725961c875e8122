//! The kernel's memory by virtual address.

use super::page_tables::{Tables, Walker};
use super::physical::Physical;

/// Virtual memory: a dump, and the page tables that translate its addresses.
pub struct VirtualMemory<'p> {
    /// The dump.
    pub physical: &'p dyn Physical,
    /// Translates addresses.
    pub walker: Walker,
    near: Near,
}

/// Blocks of physical memory that were read last. Structures from one slab lie together, and reading a few bytes costs
/// almost as much as reading a block.
///
/// The memory for them is taken with the first block: most virtual memory is made for a single read of a page.
struct Near {
    /// (address, how many bytes of it there are), by number modulo the count.
    blocks: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    /// Bytes of a block.
    size: usize,
}

/// Half of a large slab. Where bytes are expensive, no more than one read returns.
const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 256;

impl Near {
    fn new(physical: &dyn Physical) -> Near {
        let size = BLOCK.min(physical.granule());
        Near { blocks: Vec::new(), bytes: Vec::new(), size }
    }

    /// Returns the bytes from `address` on, to the end of its block.
    fn read(&mut self, physical: &dyn Physical, address: u64) -> &[u8] {
        if self.blocks.is_empty() {
            self.blocks = vec![(u64::MAX, 0); BLOCKS];
            self.bytes = vec![0; self.size * BLOCKS];
        }
        let (number, offset) = (address / self.size as u64, (address % self.size as u64) as usize);
        let place = (number % BLOCKS as u64) as usize;
        let bytes = &mut self.bytes[place * self.size..(place + 1) * self.size];
        let block = number * self.size as u64;
        if self.blocks[place].0 != block {
            self.blocks[place] = (block, physical.read(block, bytes));
        }
        bytes[..self.blocks[place].1].get(offset..).unwrap_or_default()
    }
}

impl<'p> VirtualMemory<'p> {
    /// Makes virtual memory from a dump and page tables.
    pub fn new(physical: &'p dyn Physical, tables: Tables) -> VirtualMemory<'p> {
        VirtualMemory { physical, walker: Walker::new(tables), near: Near::new(physical) }
    }

    /// Fills `buf` from `address` on. Returns how many bytes come before the first one that is not mapped or not in the
    /// dump.
    pub fn read(&mut self, address: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        // Neighbouring pages are mostly neighbours in the dump too. One read gets as many as possible.
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

    /// Returns (physical address, bytes) of what follows `done` of the `wanted` bytes from `address` on.
    fn translate(&mut self, address: u64, done: usize, wanted: usize) -> Option<(u64, usize)> {
        let at = address.checked_add(done as u64)?;
        let mapped = self.walker.translate(self.physical, at)?;
        Some((mapped.physical, usize::try_from(mapped.left).unwrap_or(usize::MAX).min(wanted - done)))
    }

    /// Returns all of `N` (few) bytes, or None.
    pub fn bytes<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut done = 0;
        while done < N {
            let mapped = self.walker.translate(self.physical, address.checked_add(done as u64)?)?;
            let most = (N - done).min(usize::try_from(mapped.left).unwrap_or(N));
            let there = self.near.read(self.physical, mapped.physical);
            let length = there.len().min(most);
            bytes[done..done + length].copy_from_slice(&there[..length]);
            // A block ends where something in it is missing. What follows is read separately.
            let rest = &mut bytes[done + length..done + most];
            let more = if there.is_empty() { self.physical.read(mapped.physical, rest) } else { 0 };
            if length + more == 0 {
                return None;
            }
            done += length + more;
        }
        Some(bytes)
    }

    /// Returns whether the page tables map an address. The dump may lack the page.
    pub fn is_mapped(&mut self, address: u64) -> bool {
        self.walker.translate(self.physical, address).is_some()
    }

    /// Returns a word of 8 bytes.
    pub fn word(&mut self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }

    /// Returns (next, prev) of a `struct list_head`.
    pub fn links(&mut self, address: u64) -> Option<(u64, u64)> {
        let bytes: [u8; 16] = self.bytes(address)?;
        let (next, prev) = bytes.split_at(8);
        Some((u64::from_le_bytes(*next.first_chunk()?), u64::from_le_bytes(*prev.first_chunk()?)))
    }
}
