//! The states of blocks that are asked for in address order. A look-up for each block would search the lists again.

use super::index::Block;
use super::leaks::Leaks;
use super::number::Index;
use super::runs::REGION;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// In use and reachable, or not yet decided.
    Live,
    /// Free.
    Free,
    /// Leaked, and no other leaked block leads to it.
    LeakedDirectly,
    /// Leaked, and another leaked block leads to it.
    LeakedIndirectly,
    /// The allocator's own.
    Own,
}

/// What is left of the lists of blocks that are not live.
#[derive(Clone, Copy)]
pub struct States<'a, I: Index> {
    /// Regions with leaked blocks, in order, each with one bit a granule: begins a leaked block.
    leaked: &'a [(I, u64)],
    /// The granules of the direct leaks, sorted.
    direct: &'a [I],
    /// The granules of the allocator's own blocks, sorted.
    own: &'a [usize],
}

impl<'a, I: Index> States<'a, I> {
    /// Makes the states. Before the leaks are known, no block has leaked. `own` is sorted.
    pub fn new(leaks: Option<&'a Leaks<I>>, own: &'a [usize]) -> Self {
        let (leaked, direct) = leaks.map_or((&[][..], &[][..]), |leaks| (&leaks.leaked, &leaks.direct));
        States { leaked, direct, own }
    }

    /// Drops what lies before a granule. No block before it is asked for again.
    pub fn from(mut self, granule: usize) -> Self {
        self.leaked = &self.leaked[self.leaked.partition_point(|(region, _)| region.get() < granule / REGION)..];
        self.direct = &self.direct[self.direct.partition_point(|direct| direct.get() < granule)..];
        self.own = &self.own[self.own.partition_point(|&own| own < granule)..];
        self
    }

    /// Returns the state of a block. Blocks are asked for in address order: what lies before them is dropped.
    #[inline(always)]
    pub fn of(&mut self, block: &Block) -> State {
        let (granule, region) = (block.granule, block.granule / REGION);
        if block.free {
            return State::Free;
        }
        while self.own.first().is_some_and(|&first| first < granule) {
            self.own = &self.own[1..];
        }
        if self.own.first() == Some(&granule) {
            return State::Own;
        }
        while self.leaked.first().is_some_and(|&(first, _)| first.get() < region) {
            self.leaked = &self.leaked[1..];
        }
        match self.leaked.first() {
            Some(&(first, mask)) if first.get() == region && mask >> (granule % REGION) & 1 != 0 => {
                self.leaked(granule)
            }
            _ => State::Live,
        }
    }

    fn leaked(&mut self, granule: usize) -> State {
        while self.direct.first().is_some_and(|first| first.get() < granule) {
            self.direct = &self.direct[1..];
        }
        match self.direct.first() {
            Some(first) if first.get() == granule => State::LeakedDirectly,
            _ => State::LeakedIndirectly,
        }
    }
}
