//! The work queue of every marking: of the blocks of a process and of the slab objects of a kernel. It follows the edges of
//! what is reached. [`Marked`] decides what is reached, and says where the edges are.
//!
//! On a large heap every step is a cache miss. So targets wait in a short queue while the CPU loads their tables, and so
//! do the edge lists of marked blocks. A linked list in shuffled order allows no overlap between nodes. There
//! [`Marked::load_edges`] may guess where the edges of the next node are, so that its two misses overlap.

use super::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;

/// Targets whose tables are being loaded.
const PENDING: usize = 32;
/// Blocks whose edges are being loaded.
const READY: usize = 8;
/// With fewer targets in the ring, the edges of each are loaded before its tables are there.
const FEW: usize = 2;
/// How many edges of a block are followed at once. The rest of a long list waits, and another thread may take it.
const PIECE: usize = 1 << 12;
/// How many blocks are followed from one [`Marked::pause`] to the next.
const STEPS: u32 = 1 << 10;

/// What is marked. All methods should be `#[inline(always)]`.
pub trait Marked<I: Index> {
    /// Asks the CPU to load the tables of a target.
    fn load(&self, target: usize);
    /// Asks the CPU to load the edges of a target whose tables are not there yet, where that can be guessed.
    fn load_edges(&self, _edges: &[I], _target: usize) {}
    /// Marks what the target names. Returns the range of its edges, or None if it was marked before or must not be.
    fn reach(&mut self, target: usize) -> Option<(usize, usize)>;
    /// Looks at the ranges that wait. It is called from time to time, and may take some of them. Returns whether to stop.
    fn pause(&mut self, _waiting: &mut Vec<(I, I)>) -> bool {
        false
    }
}

/// What is still to follow.
#[derive(Default)]
pub struct Queue<I: Index> {
    /// Ranges of edges. The targets in the ring come after them.
    stack: Vec<(I, I)>,
    ring: Ring,
}

/// Targets whose tables are being loaded.
#[derive(Clone, Copy, Default)]
struct Ring {
    pending: [usize; PENDING],
    next: usize,
    waiting: usize,
}

impl Ring {
    /// Appends a target. Returns the oldest one when the ring is full.
    #[inline(always)]
    fn wait(&mut self, target: usize) -> Option<usize> {
        let oldest = std::mem::replace(&mut self.pending[self.next % PENDING], target);
        self.next = (self.next + 1) % PENDING;
        if self.waiting < PENDING {
            self.waiting += 1;
            return None;
        }
        Some(oldest)
    }

    #[inline(always)]
    fn oldest(&mut self) -> Option<usize> {
        let at = (self.next + PENDING - self.waiting) % PENDING;
        self.waiting = self.waiting.checked_sub(1)?;
        Some(self.pending[at])
    }
}

impl<I: Index> Queue<I> {
    /// Makes a queue of ranges of edges.
    pub fn of(waiting: Vec<(I, I)>) -> Self {
        Queue { stack: waiting, ring: Ring::default() }
    }

    /// Returns whether nothing is left to follow.
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty() && self.ring.waiting == 0
    }

    /// Takes a pointer to `target`. It may be followed later.
    #[inline(always)]
    pub fn meet(&mut self, marked: &mut impl Marked<I>, edges: &[I], target: usize) {
        marked.load(target);
        if let Some(range) = self.wait(target).and_then(|oldest| marked.reach(oldest)) {
            self.push(edges, range);
        }
    }

    /// Appends a target whose tables were asked for. Returns the oldest one, which is to be reached now.
    #[inline(always)]
    pub fn wait(&mut self, target: usize) -> Option<usize> {
        self.ring.wait(target)
    }

    /// Appends the edges of what was reached.
    #[inline(always)]
    pub fn push(&mut self, edges: &[I], range: (usize, usize)) {
        push(&mut self.stack, edges, range);
    }

    /// Follows everything to the end, or until `marked` stops it.
    #[inline(always)]
    pub fn follow(&mut self, marked: &mut impl Marked<I>, edges: &[I], control: &Control) -> Result<(), Stopped> {
        // Copies, which the compiler can keep in registers.
        let (mut stack, mut ring) = (std::mem::take(&mut self.stack), self.ring);
        let (mut stopped, mut enough, mut since_check) = (false, false, 0u32);
        while !stopped && !enough {
            if stack.is_empty() {
                let Some(oldest) = ring.oldest() else { break };
                if let Some(range) = marked.reach(oldest) {
                    push(&mut stack, edges, range);
                }
                continue;
            }
            // Not the newest: its edges were only just requested.
            let newest = stack.len().saturating_sub(READY);
            let (first, end) = stack.swap_remove(newest);
            let (first, mut end) = (first.get(), end.get());
            if end - first > PIECE {
                stack.push((I::new(first + PIECE), I::new(end)));
                end = first + PIECE;
            }
            for &target in &edges[first..end] {
                marked.load(target.get());
                if ring.waiting < FEW {
                    // A list in random order. Nothing else is there to do meanwhile, so both misses of a node are made one.
                    marked.load_edges(edges, target.get());
                }
                if let Some(oldest) = ring.wait(target.get()) {
                    if let Some(range) = marked.reach(oldest) {
                        push(&mut stack, edges, range);
                    }
                }
            }
            since_check += 1;
            if since_check == STEPS {
                since_check = 0;
                stopped = control.cancelled();
                enough = marked.pause(&mut stack);
            }
        }
        (self.stack, self.ring) = (stack, ring);
        if stopped {
            return Err(Stopped::Cancelled);
        }
        Ok(())
    }
}

#[inline(always)]
fn push<I: Index>(stack: &mut Vec<(I, I)>, edges: &[I], (first, end): (usize, usize)) {
    if first < end {
        hw::prefetch(edges, first);
        stack.push((I::new(first), I::new(end)));
    }
}
