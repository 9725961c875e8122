//! The pointers of all blocks in use, as the numbers of the blocks that they lead to.
//!
//! Several passes look at the same pointers. Here each is looked up in the tables once.

use super::numbering::{is_start, HeapGraph};
use super::search::Graph;
use super::sources::{is_sampled, Source, Sources};
use crate::blocks::index::each_edge;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};

/// Edges ahead whose regions are loaded.
const AHEAD: usize = 24;
/// Edges ahead whose targets are loaded by [`Links::each`], and those that wait for theirs in [`Links::sample`].
const NEAR: usize = 16;

/// A pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    const NOWHERE: u32 = u32::MAX;

    /// A pointer to the block of a number, which is below 2^31: see `Numbering`.
    #[inline(always)]
    pub fn to(number: usize, is_start: bool) -> Self {
        Link((number as u32) << 1 | u32::from(is_start))
    }

    /// Returns the number of the block that the pointer leads to.
    #[inline(always)]
    pub fn target(self) -> Option<usize> {
        (self.0 != Self::NOWHERE).then_some((self.0 >> 1) as usize)
    }

    /// Returns whether it leads to the first byte of the block.
    #[inline(always)]
    pub fn is_start(self) -> bool {
        self.0 & 1 != 0
    }
}

/// All of them, in the order of [`Sources`].
pub(super) struct Links {
    links: Vec<Link>,
}

impl Links {
    /// Looks up all pointers.
    #[inline(always)]
    pub fn new<I: Index, const P: usize>(graph: &HeapGraph<I, P>, control: &Control) -> Result<Links, Stopped> {
        let tables = graph.tables;
        let mut links = Vec::new();
        let mut sources = Sources::new(tables, control);
        while let Some(Source { edges, .. }) = sources.read()? {
            for edge in edges.0..edges.1 {
                graph.prefetch(edge + AHEAD);
                let word = tables.edges.as_slice()[edge].get();
                links.push(match tables.chunk_of_word(word) {
                    Some(node) => Link::to(graph.number(node), is_start::<P>(word, node)),
                    None => Link(Link::NOWHERE),
                });
            }
        }
        Ok(Links { links })
    }

    /// Returns the blocks with their pointers, one after the other.
    #[inline(always)]
    pub fn by_source<'a, I: Index, const P: usize>(
        &'a self,
        graph: &HeapGraph<'a, I, P>,
        control: &'a Control,
    ) -> BySource<'a, I, P> {
        BySource { sources: Sources::new(graph.tables, control), links: &self.links }
    }

    /// Calls `each` with (source, offset in words, edge, pointer) for every pointer. It calls `load` before, with the
    /// number of a block that will be met soon. In a block that is not small, the offset is not looked up: it is None.
    #[inline(always)]
    pub fn each<I: Index, const P: usize>(
        &self,
        graph: &HeapGraph<I, P>,
        control: &Control,
        is_small: impl Fn(usize) -> bool,
        load: impl Fn(usize),
        mut each: impl FnMut(&Source, Option<usize>, usize, Link),
    ) -> Result<(), Stopped> {
        let regions = &graph.tables.regions;
        let mut sources = Sources::new(graph.tables, control);
        let mut nth = 0;
        while let Some(source) = sources.read()? {
            let first = source.edges.0;
            let mut meet = |offset, edge: usize| {
                let at = nth + (edge - first);
                if let Some(target) = self.links.get(at + NEAR).and_then(|link| link.target()) {
                    load(target);
                }
                each(&source, offset, edge, self.links[at]);
            };
            if is_small(source.number) {
                each_edge(regions, source.granule, source.edges, |offset, edge| meet(Some(offset), edge));
            } else {
                (source.edges.0..source.edges.1).for_each(|edge| meet(None, edge));
            }
            nth += source.edges.1 - first;
        }
        Ok(())
    }

    /// Calls `each` with (source, offset in words, pointer, weight) for a part of the pointers, of which each stands for
    /// `weight`. `step` says of a small block that one in so many of its kind is looked at. Of any other block it is
    /// None: about `most` of its pointers are. `load` is as in [`Links::each`].
    #[inline(always)]
    pub fn sample<I: Index, const P: usize>(
        &self,
        graph: &HeapGraph<I, P>,
        control: &Control,
        step: impl Fn(&Source) -> Option<usize>,
        most: usize,
        load: impl Fn(usize),
        mut each: impl FnMut(&Source, Option<usize>, Link, u64),
    ) -> Result<(), Stopped> {
        // The oldest is at `met % NEAR`.
        let mut waiting = [None; NEAR];
        let mut met = 0usize;
        let mut settle = |waiting: Option<(Source, Option<usize>, Link, u64)>| {
            if let Some((source, offset, link, weight)) = waiting {
                each(&source, offset, link, weight);
            }
        };
        let mut blocks = self.by_source(graph, control);
        while let Some((source, links)) = blocks.read()? {
            let mut meet = |offset, link: Link, step: usize| {
                if let Some(target) = link.target() {
                    load(target);
                }
                settle(waiting[met % NEAR].replace((source, offset, link, step as u64)));
                met = met.wrapping_add(1);
            };
            match step(&source) {
                Some(step) if is_sampled(source.number, step) => {
                    each_edge(&graph.tables.regions, source.granule, source.edges, |offset, edge| {
                        meet(Some(offset), links[edge - source.edges.0], step);
                    });
                }
                Some(_) => {}
                None => {
                    let step = links.len() / most + 1;
                    links.iter().skip(step - 1).step_by(step).for_each(|&link| meet(None, link, step));
                }
            }
        }
        (0..NEAR).for_each(|nth| settle(waiting[(met + nth) % NEAR]));
        Ok(())
    }
}

/// Reads these blocks one after the other, by address.
pub(super) struct BySource<'a, I: Index, const P: usize> {
    sources: Sources<'a, 'a, I, P>,
    /// The pointers of those that have not been read.
    links: &'a [Link],
}

impl<'a, I: Index, const P: usize> BySource<'a, I, P> {
    /// Returns the next block with its pointers.
    #[inline(always)]
    pub fn read(&mut self) -> Result<Option<(Source, &'a [Link])>, Stopped> {
        let Some(source) = self.sources.read()? else { return Ok(None) };
        let links;
        (links, self.links) = self.links.split_at(source.edges.1 - source.edges.0);
        Ok(Some((source, links)))
    }
}
