//! The kinds of the blocks that edges lead to.
//!
//! They are looked up at random: in the tables, then in the numbering, then in a table of kinds. So edges wait while the
//! CPU loads the first two, and again while it loads the third.

use std::ops::Range;

use super::fields::{target_of, Target};
use super::numbering::{is_start, HeapGraph};
use super::search::Graph;
use crate::blocks::number::Index;
use crate::hw;

/// Edges that wait, and how many of them have been met since their blocks were looked up.
const WAITING: usize = 32;
const FOUND: usize = 16;
/// What stands for the block where an edge leads nowhere.
const NOWHERE: u32 = u32::MAX;

/// For each block: its kind.
pub(super) struct Kinds<'a, I: Index, const P: usize> {
    pub(super) graph: &'a HeapGraph<'a, I, P>,
    /// By the block's number.
    of: Vec<u16>,
}

impl<'a, I: Index, const P: usize> Kinds<'a, I, P> {
    /// All kinds are 0.
    pub fn new(graph: &'a HeapGraph<'a, I, P>) -> Self {
        let of = vec![0; graph.count()];
        hw::huge_pages(&of);
        Kinds { graph, of }
    }

    /// Sets the kind of the block whose chunk begins at a granule.
    #[inline(always)]
    pub fn set(&mut self, granule: usize, kind: u16) {
        let number = self.graph.number(granule);
        self.of[number] = kind;
    }

    /// Returns the kinds of all blocks, by number.
    pub fn all(&self) -> &[u16] {
        &self.of
    }

    /// Returns the kind of the block with this number.
    #[inline(always)]
    pub fn of(&self, number: usize) -> u16 {
        self.of[number]
    }

    /// Returns where an edge leads.
    #[inline(always)]
    pub fn target(&self, edge: usize) -> Option<Target> {
        self.of_block(self.block(edge))
    }

    /// Returns where the edges lead.
    pub fn targets(&self, edges: Range<usize>) -> Vec<Option<Target>> {
        hw::fast_work(Finding { kinds: self, edges })
    }

    /// Returns the number of the block that an edge leads to, or [`NOWHERE`], and whether it leads to the first byte.
    #[inline(always)]
    fn block(&self, edge: usize) -> (u32, bool) {
        let tables = self.graph.tables;
        let word = tables.edges.as_slice()[edge].get();
        match tables.chunk_of_word(word) {
            Some(node) => (self.graph.number(node) as u32, is_start::<P>(word, node)),
            None => (NOWHERE, false),
        }
    }

    #[inline(always)]
    fn of_block(&self, (number, start): (u32, bool)) -> Option<Target> {
        (number != NOWHERE).then(|| target_of(self.of[number as usize], start))
    }
}

/// The work of [`Kinds::targets`].
struct Finding<'k, 'a, I: Index, const P: usize> {
    kinds: &'k Kinds<'a, I, P>,
    edges: Range<usize>,
}

impl<I: Index, const P: usize> hw::Work for Finding<'_, '_, I, P> {
    type Out = Vec<Option<Target>>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let mut found = Vec::with_capacity(self.edges.len());
        let mut waiting = Waiting::new(self.kinds, ());
        let mut take = |(), _edge: usize, target: Option<Target>| found.push(target);
        for edge in self.edges {
            waiting.push(edge, (), &mut take);
        }
        waiting.finish(&mut take);
        found
    }
}

/// Edges that wait, each with what its caller keeps for it. They leave in the order in which they came.
pub(super) struct Waiting<'k, 'a, T, I: Index, const P: usize> {
    kinds: &'k Kinds<'a, I, P>,
    /// As a ring: the edge, what is kept for it, and its block.
    edges: [(usize, T, (u32, bool)); WAITING],
    /// How many edges have come.
    count: usize,
}

impl<'k, 'a, T: Copy, I: Index, const P: usize> Waiting<'k, 'a, T, I, P> {
    /// No edge waits. `none` stands where no edge is.
    pub fn new(kinds: &'k Kinds<'a, I, P>, none: T) -> Self {
        Waiting { kinds, edges: [(0, none, (NOWHERE, false)); WAITING], count: 0 }
    }

    /// Adds an edge. Calls `take` with the oldest one if there are too many: what was kept, the edge, and where it leads.
    #[inline(always)]
    pub fn push(&mut self, edge: usize, kept: T, take: &mut impl FnMut(T, usize, Option<Target>)) {
        self.kinds.graph.prefetch(edge);
        let place = self.count % WAITING;
        if self.count >= WAITING {
            self.settle(place, take);
        }
        (self.edges[place].0, self.edges[place].1) = (edge, kept);
        self.count += 1;
        if self.count > FOUND {
            self.find((self.count - 1 - FOUND) % WAITING);
        }
    }

    #[inline(always)]
    fn find(&mut self, place: usize) {
        let block = self.kinds.block(self.edges[place].0);
        hw::prefetch(&self.kinds.of, block.0 as usize);
        self.edges[place].2 = block;
    }

    #[inline(always)]
    fn settle(&self, place: usize, take: &mut impl FnMut(T, usize, Option<Target>)) {
        let (edge, kept, block) = self.edges[place];
        take(kept, edge, self.kinds.of_block(block));
    }

    /// Calls `take` with all edges that wait.
    pub fn finish(mut self, take: &mut impl FnMut(T, usize, Option<Target>)) {
        let count = self.count;
        for nth in count.saturating_sub(FOUND)..count {
            self.find(nth % WAITING);
        }
        for nth in count.saturating_sub(WAITING)..count {
            self.settle(nth % WAITING, take);
        }
    }
}
