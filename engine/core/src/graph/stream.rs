//! All blocks in use of a heap, in address order, a batch at a time.

use crate::blocks::index::Block;
use crate::blocks::model::{Heap, State};

/// Blocks that are read at once. Those of two heaps fit in the second-level cache.
const BATCH: usize = 1 << 10;
const LEAKED: [State; 2] = [State::LeakedDirectly, State::LeakedIndirectly];
const IN_USE: [State; 4] = [State::Live, State::LeakedDirectly, State::LeakedIndirectly, State::Own];

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub struct InUse {
    /// The block.
    pub block: Block,
    /// Its state.
    pub state: State,
    /// For a direct leak: the blocks and the bytes that it keeps alive.
    pub kept: (u64, u64),
    /// The number of the block among the blocks that are read. Among all in use, it is the index in `Census::of_block`.
    pub number: usize,
}

/// Reads the blocks in use one after the other.
pub struct Stream<'a> {
    heap: &'a dyn Heap,
    batch: Vec<(Block, State, u64, u64)>,
    /// How many of the batch have been read.
    at: usize,
    from: Option<u64>,
    number: usize,
    direct: bool,
    states: &'static [State],
}

impl<'a> Stream<'a> {
    /// Begins with the first block.
    pub fn new(heap: &'a dyn Heap) -> Self {
        Stream::from(heap, (0, 0))
    }

    /// Reads only the direct leaks.
    pub fn direct_leaks(heap: &'a dyn Heap) -> Self {
        Stream { direct: true, ..Stream::new(heap) }
    }

    /// Reads only the leaked blocks: in a heap that has few, few are looked at.
    pub fn leaked(heap: &'a dyn Heap) -> Self {
        Stream { states: &LEAKED, ..Stream::new(heap) }
    }

    /// Begins with the block of this number, which lies at this address.
    pub fn from(heap: &'a dyn Heap, (number, address): (usize, u64)) -> Self {
        Stream { heap, batch: Vec::new(), at: 0, from: Some(address), number, direct: false, states: &IN_USE }
    }

    /// Reads the next batch. Returns false at the end.
    #[inline(never)]
    fn refill(&mut self) -> bool {
        let Some(from) = self.from else { return false };
        self.batch = match self.direct {
            true => self.heap.direct_leaks(self.number, BATCH),
            false => self.heap.blocks(self.states, from, BATCH),
        };
        self.at = 0;
        self.from = match self.batch.last() {
            Some(last) if self.batch.len() == BATCH => last.0.address.checked_add(1),
            _ => None,
        };
        !self.batch.is_empty()
    }

    /// Returns the next block, and does not go on.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<InUse> {
        if self.at == self.batch.len() && !self.refill() {
            return None;
        }
        let (block, state, count, bytes) = self.batch[self.at];
        Some(InUse { block, state, kept: (count, bytes), number: self.number })
    }

    /// Goes on behind the block that [`Stream::peek`] has returned.
    #[inline(always)]
    pub fn pass(&mut self) {
        self.at += 1;
        self.number += 1;
    }

    /// Returns the address of the next block.
    #[inline(always)]
    pub fn next_address(&mut self) -> Option<u64> {
        if self.at == self.batch.len() && !self.refill() {
            return None;
        }
        Some(self.batch[self.at].0.address)
    }
}

impl Iterator for Stream<'_> {
    type Item = InUse;

    #[inline(always)]
    fn next(&mut self) -> Option<InUse> {
        let found = self.peek()?;
        self.pass();
        Some(found)
    }
}
