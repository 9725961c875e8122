//! What the search for pointers at every byte needs, and what it has read.

use crate::image::Image;

/// What is needed to find them.
pub struct Unaligned<'a> {
    pub(super) image: &'a Image,
    /// Memory inside blocks whose bytes are not pointers, sorted.
    pub(super) dead: &'a [(u64, u64)],
    /// Blocks reached whose bytes are still to be read.
    unread: Vec<usize>,
    /// Bytes read last, and where they begin.
    pub(super) window: Vec<u8>,
    window_start: u64,
}

impl<'a> Unaligned<'a> {
    /// Nothing is reached yet. `dead` is sorted.
    pub fn new(image: &'a Image, dead: &'a [(u64, u64)]) -> Self {
        Unaligned { image, dead, unread: Vec::new(), window: Vec::new(), window_start: 0 }
    }

    /// Notes a block that was reached.
    #[inline(always)]
    pub(super) fn reached(&mut self, granule: usize) {
        self.unread.push(granule);
    }

    /// Returns the blocks that are still to be read, in address order. They count as read.
    pub(super) fn take_unread(&mut self) -> Vec<usize> {
        let mut blocks = std::mem::take(&mut self.unread);
        blocks.sort_unstable();
        blocks
    }

    /// Returns where `[start, end)` lies in the window, which is filled if need be. None where it does not fit, or a byte
    /// is missing.
    pub(super) fn place(&mut self, start: u64, end: u64, ahead: usize) -> Option<std::ops::Range<usize>> {
        let size = usize::try_from(end.checked_sub(start)?).ok().filter(|&size| size <= ahead)?;
        let inside = start
            .checked_sub(self.window_start)
            .is_some_and(|skip| skip.checked_add(size as u64).is_some_and(|last| last <= self.window.len() as u64));
        if !inside {
            self.window.resize(ahead, 0);
            let got = self.image.read(start, &mut self.window);
            self.window.truncate(got);
            self.window_start = start;
        }
        let first = (start - self.window_start) as usize;
        (first + size <= self.window.len()).then_some(first..first + size)
    }
}
