//! A machine's memory by physical address, whatever the dump's format.

use crate::image::Image;

/// The bytes of a dump by physical address. Read-only.
pub trait Physical: Send + Sync {
    /// Fills `buf` from `address` on. Returns how many bytes come before the first one that is not in the dump.
    fn read(&self, address: u64, buf: &mut [u8]) -> usize;

    /// Returns how many bytes are best read at once. It is a small number where bytes are expensive (decompressed).
    fn granule(&self) -> usize;

    /// Returns how many of the `most` bytes from `address` on are known to be a hole of a sparse file, which reads as
    /// zeros.
    fn hole(&self, _address: u64, _most: u64) -> u64 {
        0
    }
}

/// Fills `buf` from `address`, which begins a page, on. Pages that the dump lacks become zeros, and `lost` gets the number
/// of each, counted from the first.
pub fn read_pages(physical: &dyn Physical, address: u64, bits: u32, buf: &mut [u8], mut lost: impl FnMut(usize)) {
    let mut at = 0;
    while at < buf.len() {
        at += physical.read(address.wrapping_add(at as u64), &mut buf[at..]);
        if at < buf.len() {
            let next = (((at >> bits) + 1) << bits).min(buf.len());
            buf[at >> bits << bits..next].fill(0);
            lost(at >> bits);
            at = next;
        }
    }
}

/// An ELF dump: its image's segments lie at physical addresses (p_paddr).
impl Physical for Image {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        Image::read(self, address, buf)
    }

    /// The bytes should still be in the CPU's second-level cache when they are used.
    fn granule(&self) -> usize {
        256 << 10
    }

    fn hole(&self, address: u64, most: u64) -> u64 {
        self.data_from(address, address.saturating_add(most)) - address
    }
}

/// Memory that a debugger reads. A call is slow, so the blocks are large.
pub struct Foreign<F>(pub F);

impl<F: Fn(u64, &mut [u8]) -> usize + Send + Sync> Physical for Foreign<F> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        (self.0)(address, buf)
    }

    fn granule(&self) -> usize {
        2 << 20
    }
}
