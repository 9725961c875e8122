//! Which blocks are reachable.
//!
//! A block is reachable when a root holds a pointer into it, or a reachable block does: [`Marker::reach`] is the one
//! place where that is decided. Free blocks carry a mark from the start, so nothing is followed through them.
//!
//! Every step is a cache miss on a large heap, so targets wait in a short queue while the CPU fetches their tables, and
//! so do the edge lists of marked blocks. A linked list in shuffled order leaves nothing to overlap: there each node
//! costs two misses, whatever the design.

use super::find::TOP;
use super::index::Tables;
use super::pass::word;
use super::space::REGION;
use super::{Control, Index, Stopped};
use crate::hw;
use crate::image::Image;

/// Targets whose tables are on their way.
const PENDING: usize = 24;
/// Blocks whose edges are on their way.
const READY: usize = 8;
/// Bytes of roots read at once.
const BLOCK: usize = 1 << 20;

/// The marking in progress; `stack` holds ranges of edges still to be followed.
pub struct Marker<'a, I: Index, const P: usize> {
    pub tables: &'a mut Tables<I, P>,
    stack: Vec<(I, I)>,
    pending: [usize; PENDING],
    next: usize,
    waiting: usize,
    /// Blocks marked since the last `take_counts`, and, when `count_bytes`, their usable bytes.
    count: u64,
    bytes: u64,
    pub count_bytes: bool,
}

impl<'a, I: Index, const P: usize> Marker<'a, I, P> {
    pub fn new(tables: &'a mut Tables<I, P>) -> Self {
        Marker {
            tables,
            stack: Vec::new(),
            pending: [0; PENDING],
            next: 0,
            waiting: 0,
            count: 0,
            bytes: 0,
            count_bytes: false,
        }
    }

    /// A candidate pointer (as a word number) was met.
    #[inline(always)]
    pub fn meet(&mut self, target: usize) {
        hw::prefetch(&self.tables.regions, target / (REGION * P));
        let oldest = std::mem::replace(&mut self.pending[self.next], target);
        self.next = (self.next + 1) % PENDING;
        if self.waiting < PENDING {
            self.waiting += 1;
        } else {
            self.arrive(oldest);
        }
    }

    #[inline(always)]
    fn arrive(&mut self, target: usize) {
        if let Some(granule) = self.tables.chunk_of_word(target) {
            self.reach(granule);
        }
    }

    /// The block whose chunk begins at `granule` is reachable: mark it, and follow its pointers later.
    #[inline(always)]
    pub fn reach(&mut self, granule: usize) {
        let region = &mut self.tables.regions[granule / REGION];
        if region.marked(granule % REGION) {
            return;
        }
        region.mark(granule % REGION);
        self.count += 1;
        if self.count_bytes {
            let run = self.tables.space.run_of_granule(granule);
            self.bytes += self.tables.block(run, granule).size;
        }
        let (first, end) = self.tables.edges_of(granule);
        if first < end {
            hw::prefetch(self.tables.edges.as_slice(), first);
            self.stack.push((I::new(first), I::new(end)));
        }
    }

    /// Follows everything that was met, to the end.
    pub fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        hw::fast(|| self.follow(control))
    }

    #[inline(always)]
    fn follow(&mut self, control: &Control) -> Result<(), Stopped> {
        let mut since_check = 0u32;
        loop {
            while !self.stack.is_empty() {
                // Not the newest: its edges have only just been asked for.
                let (first, end) = self.stack.swap_remove(self.stack.len().saturating_sub(READY));
                for edge in first.get()..end.get() {
                    let target = self.tables.edges.as_slice()[edge];
                    self.meet(target.get());
                }
                since_check += 1;
                if since_check == 1 << 16 {
                    since_check = 0;
                    if control.cancelled() {
                        return Err(Stopped::Cancelled);
                    }
                }
            }
            if self.waiting == 0 {
                return Ok(());
            }
            let oldest = self.pending[(self.next + PENDING - self.waiting) % PENDING];
            self.waiting -= 1;
            self.arrive(oldest);
        }
    }

    /// (blocks, bytes) marked since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.count), std::mem::take(&mut self.bytes))
    }

    /// Every word of `[start, end)` is a root, where the image has it. Returns how many were candidates.
    pub fn roots(&mut self, image: &Image, start: u64, end: u64, control: &Control) -> Result<u64, Stopped> {
        let width = 16 / P as u64;
        let mut candidates = 0;
        let mut buffer = Vec::new();
        for (from, to) in image.covered(start, end.min(TOP)) {
            // Pointers are aligned in memory, whatever the range's ends are.
            let mut at = from.next_multiple_of(width);
            while at < to {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let want = (to - at).min(BLOCK as u64) as usize;
                buffer.resize(want.next_multiple_of(512), 0);
                let got = image.read(at, &mut buffer[..want]) / width as usize * width as usize;
                buffer[got..].fill(0);
                let found = self.root_words(&buffer, control)?;
                candidates += found;
                let next = at + want as u64;
                // Untouched memory is a hole in the dump: nothing to read there.
                let next = if found == 0 { image.data_from(next, to).next_multiple_of(width) } else { next };
                control.add(next - at);
                at = next;
            }
        }
        Ok(candidates)
    }

    fn root_words(&mut self, buffer: &[u8], control: &Control) -> Result<u64, Stopped> {
        let mut candidates = 0;
        let spans = self.tables.space.spans;
        for part in buffer.chunks_exact(64 * 16 / P) {
            let mut mask = super::pass::in_spans::<P>(part, &spans);
            while mask != 0 {
                let bit = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                candidates += u64::from(self.root(word::<P>(part, bit)));
            }
        }
        self.drain(control)?;
        Ok(candidates)
    }

    /// A single value (a register) is a root. Says whether it was a candidate.
    pub fn root(&mut self, value: u64) -> bool {
        match self.tables.space.word_of(value) {
            Some(target) => {
                self.meet(target);
                true
            }
            None => false,
        }
    }
}
