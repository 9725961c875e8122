//! All blocks in use of a heap, in address order, a batch at a time.

use crate::heap::index::Block;
use crate::heap::model::{Heap, State};

const BATCH: usize = 1 << 15;
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
    /// The number of the block among the blocks in use: the index in `Census::of_block`.
    pub number: usize,
}

/// Reads the blocks in use one after the other.
pub struct Stream<'a> {
    heap: &'a dyn Heap,
    batch: std::vec::IntoIter<(Block, State, u64, u64)>,
    from: Option<u64>,
    number: usize,
    direct: bool,
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

    /// Begins with the block of this number, which lies at this address.
    pub fn from(heap: &'a dyn Heap, (number, address): (usize, u64)) -> Self {
        Stream { heap, batch: Vec::new().into_iter(), from: Some(address), number, direct: false }
    }
}

impl Iterator for Stream<'_> {
    type Item = InUse;

    #[inline]
    fn next(&mut self) -> Option<InUse> {
        loop {
            if let Some((block, state, count, bytes)) = self.batch.next() {
                self.number += 1;
                return Some(InUse { block, state, kept: (count, bytes), number: self.number - 1 });
            }
            let from = self.from?;
            let batch = match self.direct {
                true => self.heap.direct_leaks(self.number, BATCH),
                false => self.heap.blocks(&IN_USE, from, BATCH),
            };
            self.from = match batch.last() {
                Some(last) if batch.len() == BATCH => last.0.address.checked_add(1),
                _ => None,
            };
            self.batch = batch.into_iter();
        }
    }
}
