//! A share of the tables that the pass fills.

use crate::blocks::index::Region;
use crate::blocks::number::Index;

/// The share of the tables that belongs to some runs, or to a part of a run. Each job of a thread has its own.
#[derive(Default)]
pub(super) struct Share<'a, I: Index, const P: usize> {
    /// The regions.
    pub(super) regions: &'a mut [Region<I, P>],
    /// For each region, which granules begin a chunk that is not a live block.
    pub(super) free: &'a mut [u64],
    /// Room for the edges.
    pub(super) edges: &'a mut [I],
}

impl<'a, I: Index, const P: usize> Share<'a, I, P> {
    /// Takes so many regions and edges from the front.
    pub(super) fn take(&mut self, regions: usize, edges: usize) -> Share<'a, I, P> {
        Share {
            regions: take(&mut self.regions, regions),
            free: take(&mut self.free, regions),
            edges: take(&mut self.edges, edges),
        }
    }

    /// Borrows it for a while.
    pub(super) fn again(&mut self) -> Share<'_, I, P> {
        Share { regions: self.regions, free: self.free, edges: self.edges }
    }
}

fn take<'a, T>(from: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (first, rest) = std::mem::take(from).split_at_mut(count);
    *from = rest;
    first
}
