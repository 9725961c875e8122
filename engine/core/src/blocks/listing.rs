//! Lists of blocks with their states.

use super::index::{Block, Tables};
use super::leaks::{KeptInOrder, Leaks};
use super::number::Index;
use super::states::{State, States};
use crate::hw;

/// The states of leaked blocks, as bits.
const LEAKED: u32 = 1 << State::LeakedDirectly as u32 | 1 << State::LeakedIndirectly as u32;

/// Blocks that a listing makes room for at once.
const MOST_AHEAD: usize = 1 << 12;

/// What the lists are made of.
pub(super) struct Listing<'a, I: Index, const P: usize> {
    pub tables: &'a Tables<I, P>,
    pub leaks: Option<&'a Leaks<I>>,
    /// The granules of the allocator's own blocks, sorted.
    pub own: &'a [usize],
}

/// The work of [`Listing::blocks`].
struct Listed<'l, 'a, I: Index, const P: usize, F> {
    listing: &'l Listing<'a, I, P>,
    from: u64,
    take: F,
}

impl<I: Index, const P: usize, F: FnMut(Block, State) -> bool> hw::Work for Listed<'_, '_, I, P, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        self.listing.each_from::<FAST>(self.from, self.take);
    }
}

impl<I: Index, const P: usize> Listing<'_, I, P> {
    fn states(&self) -> States<'_, I> {
        States::new(self.leaks, self.own)
    }

    /// Calls `each` with every block from address `from` on and its state, in address order, until it returns false.
    #[inline(always)]
    fn each_from<const FAST: bool>(&self, from: u64, mut each: impl FnMut(Block, State) -> bool) {
        let runs = &self.tables.word_map.runs;
        let begin = runs.partition_point(|p| p.run.end <= from);
        let first = |index: usize| self.tables.word_map.granule_near(index, from.max(runs[index].run.start));
        let mut states = self.states();
        if begin < runs.len() {
            states = states.from(first(begin));
        }
        for index in begin..runs.len() {
            let more = self.tables.each_block(index, (first(index), usize::MAX), |block| {
                let state = states.of(&block);
                block.address < from || each(block, state)
            });
            if !more {
                return;
            }
        }
    }

    /// Does the same for the leaked blocks alone: there are few.
    fn each_leaked_from(&self, from: u64, mut each: impl FnMut(Block, State) -> bool) {
        let Some(leaks) = self.leaks else { return };
        let runs = &self.tables.word_map.runs;
        let Some(first) = (runs.partition_point(|p| p.run.end <= from)..runs.len()).next() else { return };
        let granule = self.tables.word_map.granule_near(first, from.max(runs[first].run.start));
        let mut states = self.states().from(granule);
        for granule in leaks.from(granule) {
            let block = self.tables.block(self.tables.word_map.run_of_granule(granule), granule);
            let state = states.of(&block);
            if block.address >= from && !each(block, state) {
                return;
            }
        }
    }

    /// Returns up to `most` blocks in one of `states` from address `from` on, with what a direct leak keeps alive.
    pub fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<(Block, State, u64, u64)> {
        let mut out = Vec::with_capacity(most.min(MOST_AHEAD));
        let wanted = states.iter().fold(0u32, |wanted, &state| wanted | 1 << state as u32);
        let mut kept = self.leaks.map(Leaks::in_order);
        let take = |block: Block, state| {
            if wanted >> state as u32 & 1 != 0 {
                out.push(row(block, state, kept.as_mut()));
            }
            out.len() < most
        };
        if wanted & !LEAKED == 0 {
            self.each_leaked_from(from, take);
        } else {
            hw::fast_work(Listed { listing: self, from, take });
        }
        out
    }

    /// Returns only the addresses of up to `most` blocks in `from..end`.
    pub fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64> {
        let mut out = Vec::new();
        self.each_from::<false>(from, |block, state| {
            if block.address < end && states.contains(&state) {
                out.push(block.address);
            }
            block.address < end && out.len() < most
        });
        out
    }

    /// Returns the block that `address` points into.
    pub fn find(&self, address: u64) -> Option<(Block, State, u64, u64)> {
        let block = self.tables.find(address)?;
        let state = self.states().from(block.granule).of(&block);
        Some(row(block, state, self.leaks.map(Leaks::in_order).as_mut()))
    }

    /// Returns up to `most` direct leaks, from number `from` on.
    pub fn direct_leaks(&self, from: usize, most: usize) -> Vec<(Block, State, u64, u64)> {
        let Some(leaks) = self.leaks else { return Vec::new() };
        let wanted = leaks.direct.iter().skip(from).take(most).map(|granule| granule.get());
        let mut kept = leaks.in_order();
        let found = wanted.map(|granule| {
            let block = self.tables.block(self.tables.word_map.run_of_granule(granule), granule);
            row(block, State::LeakedDirectly, Some(&mut kept))
        });
        found.collect()
    }
}

/// Returns a block with its state, and the blocks and bytes that a direct leak keeps alive.
#[inline(always)]
fn row(block: Block, state: State, kept: Option<&mut KeptInOrder<'_>>) -> (Block, State, u64, u64) {
    match (state, kept) {
        (State::LeakedDirectly, Some(kept)) => {
            let kept = kept.of(block.granule);
            (block, state, kept.count, kept.bytes)
        }
        _ => (block, state, 0, 0),
    }
}
