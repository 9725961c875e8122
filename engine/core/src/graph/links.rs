//! The pointers of all blocks in use, as the numbers of the blocks that they lead to.
//!
//! Several passes look at the same pointers. Here each is looked up in the tables once.

use super::edges::each_edge;
use super::numbering::{is_start, HeapGraph};
use super::search::Graph;
use super::sources::{Source, Sources};
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};

/// Edges ahead whose regions are loaded.
const AHEAD: usize = 24;
/// Edges ahead whose targets are loaded by [`Links::each`].
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
}
