//! What the search for odd pointers needs, and what it has read. The tables have none of these pointers.

use crate::image::Image;

/// Which odd pointers are followed.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Those that begin at any byte, as in packed structures.
    pub unaligned: bool,
    /// Words with a tag in the upper bits, as in lists without locks and in values of interpreters. A user's address of
    /// x86-64 has 47 bits, and one of AArch64 has 48.
    pub tagged: bool,
    /// Memory inside blocks whose bytes are not pointers, sorted.
    pub dead: Vec<(u64, u64)>,
}

/// What is needed to find them.
pub struct Odd<'a> {
    pub(super) image: &'a Image,
    pub(super) kinds: &'a Kinds,
    /// Blocks reached whose bytes are still to be read.
    unread: Vec<usize>,
    /// Bytes read last, and where they begin.
    pub(super) window: Vec<u8>,
    window_start: u64,
}

impl<'a> Odd<'a> {
    /// Nothing is reached yet.
    pub fn new(image: &'a Image, kinds: &'a Kinds) -> Self {
        Odd { image, kinds, unread: Vec::new(), window: Vec::new(), window_start: 0 }
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
