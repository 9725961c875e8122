//! Reads a stack: a few words at a time, close together. Two small cached blocks save almost every system call.

use crate::image::Image;

const WINDOW: u64 = 8192;

pub struct Memory<'a> {
    pub image: &'a Image,
    windows: [(u64, Vec<u8>); 2],
    next: usize,
}

impl<'a> Memory<'a> {
    pub fn new(image: &'a Image) -> Memory<'a> {
        Memory { image, windows: [(0, Vec::new()), (0, Vec::new())], next: 0 }
    }

    /// Fills all of `buf`, or returns None.
    pub fn read(&mut self, address: u64, buf: &mut [u8]) -> Option<()> {
        for (start, bytes) in &self.windows {
            if let Some(found) = slice(*start, bytes, address, buf.len()) {
                buf.copy_from_slice(found);
                return Some(());
            }
        }
        let start = address & !(WINDOW / 2 - 1);
        let (window_start, bytes) = &mut self.windows[self.next];
        bytes.resize(WINDOW as usize, 0);
        let n = self.image.read(start, bytes);
        bytes.truncate(n);
        *window_start = start;
        self.next = (self.next + 1) % 2;
        match slice(start, bytes, address, buf.len()) {
            Some(found) => {
                buf.copy_from_slice(found);
                Some(())
            }
            // The memory may begin inside the block.
            None => self.image.read_exact(address, buf),
        }
    }

    /// Returns a little-endian word of `size` bytes, at most 8.
    pub fn word(&mut self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0u8; 8];
        self.read(address, bytes.get_mut(..size)?)?;
        Some(u64::from_le_bytes(bytes))
    }
}

fn slice(start: u64, bytes: &[u8], address: u64, size: usize) -> Option<&[u8]> {
    let from = usize::try_from(address.checked_sub(start)?).ok()?;
    bytes.get(from..from.checked_add(size)?)
}
