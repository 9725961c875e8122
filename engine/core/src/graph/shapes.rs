//! The shapes of small blocks: which of their words are pointers, and which of those lead to blocks without pointers.

use std::collections::HashMap;

use super::kinds_of_targets::Kinds;
use super::links::{Link, Links};
use super::search::Graph;
use super::sources::{is_sampled, Source};
use super::tally::Tally;
use crate::blocks::index::each_edge;
use crate::blocks::number::Index;
use crate::contents::CLASSES;
use crate::control::{Control, Stopped};
use crate::keys::Keys;

/// Blocks of a size that are looked at to learn their shapes.
pub(super) const SAMPLE: usize = 1 << 14;
/// Blocks of a sample, at least, that make a shape known.
const LEAST: u64 = 3;
/// Shapes that are told apart. The rest are few blocks.
const MOST: usize = 1 << 14;
/// The number of a shape that is not known.
pub(super) const RARE: u16 = u16::MAX;

/// What the words of a block are, as bits. The last bit stands for all words from the 64th on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Words {
    /// Those that are pointers.
    pointers: u64,
    /// Those of them that lead to blocks without pointers, such as texts.
    leaves: u64,
}

impl Words {
    /// Returns how many words differ.
    pub fn distance(self, other: Words) -> u32 {
        ((self.pointers ^ other.pointers) | (self.leaves ^ other.leaves)).count_ones()
    }
}

/// The shapes of a heap's blocks. A shape is named by a number: below [`CLASSES`] it is that of the blocks of a size
/// without pointers.
pub(super) struct Shapes {
    /// For each block: its shape. A block that is not small, or of a rare size, has the shape of its size.
    pub of: Vec<u16>,
    /// For each shape: the size class, and its words.
    known: Vec<(u16, Words)>,
    /// Blocks whose shape is not known: the number of each, and its words. They are sorted.
    rare: Vec<(u32, Words)>,
}

/// Reads the words of blocks.
struct Reader<'a, I: Index, const P: usize> {
    kinds: &'a Kinds<'a, I, P>,
    links: &'a Links,
    /// The numbers of the blocks that have pointers, as bits.
    holders: Vec<u64>,
    control: &'a Control,
}

impl<'a, I: Index, const P: usize> Reader<'a, I, P> {
    #[inline(always)]
    fn new(kinds: &'a Kinds<'a, I, P>, links: &'a Links, control: &'a Control) -> Result<Self, Stopped> {
        let mut holders = vec![0; kinds.graph.count().div_ceil(64)];
        let mut blocks = links.by_source(kinds.graph, control);
        while let Some((source, _)) = blocks.read()? {
            holders[source.number / 64] |= 1 << (source.number % 64);
        }
        Ok(Reader { kinds, links, holders, control })
    }

    /// Calls `each` with (number, size class, words) of the blocks for which `is_wanted` says so.
    #[inline(always)]
    fn each(
        &self,
        is_wanted: impl Fn(usize, u16) -> bool,
        mut each: impl FnMut(usize, u16, Words),
    ) -> Result<(), Stopped> {
        let graph = self.kinds.graph;
        let mut blocks = self.links.by_source(graph, self.control);
        while let Some((Source { granule, number, edges, .. }, links)) = blocks.read()? {
            let kind = self.kinds.of(number);
            if !is_wanted(number, kind) {
                continue;
            }
            let mut words = Words::default();
            each_edge(&graph.tables.regions, granule, edges, |offset, edge| {
                let bit = 1 << offset.min(63);
                words.pointers |= bit;
                if self.is_leaf(links[edge - edges.0]) {
                    words.leaves |= bit;
                }
            });
            each(number, kind, words);
        }
        Ok(())
    }

    #[inline(always)]
    fn is_leaf(&self, link: Link) -> bool {
        link.target().is_some_and(|target| self.holders[target / 64] >> (target % 64) & 1 == 0)
    }
}

impl Shapes {
    /// Finds the shapes. `counts` are the blocks in use of each size class; `is_common` says of a size class whether
    /// its blocks are compared.
    #[inline(always)]
    pub fn new<I: Index, const P: usize>(
        kinds: &Kinds<I, P>,
        links: &Links,
        counts: &[u32],
        is_common: impl Fn(u16) -> bool,
        control: &Control,
    ) -> Result<Shapes, Stopped> {
        let reader = Reader::new(kinds, links, control)?;
        let mut seen = Tally::default();
        let is_sampled = |number: usize, kind: u16| {
            is_common(kind) && is_sampled(number, counts[usize::from(kind)] as usize / SAMPLE + 1)
        };
        reader.each(is_sampled, |_, kind, words| seen.add((kind, words), 1))?;
        let mut found: Vec<_> = seen.finish().into_iter().filter(|&(_, count)| count >= LEAST).collect();
        found.sort_unstable_by_key(|&(shape, count)| (std::cmp::Reverse(count), shape));
        found.truncate(MOST);
        let mut known: Vec<(u16, Words)> = (0..CLASSES as u16).map(|kind| (kind, Words::default())).collect();
        known.extend(found.iter().map(|&(shape, _)| shape));
        let numbers: HashMap<(u16, Words), u16, Keys> =
            known.iter().enumerate().skip(CLASSES).map(|(number, &shape)| (shape, number as u16)).collect();
        let (mut of, mut rare) = (kinds.all().to_vec(), Vec::new());
        let mut last = ((0, Words::default()), 0);
        reader.each(
            |_, kind| is_common(kind),
            |number, kind, words| {
                if last.0 != (kind, words) {
                    last = ((kind, words), numbers.get(&(kind, words)).copied().unwrap_or(RARE));
                }
                of[number] = last.1;
                if last.1 == RARE {
                    rare.push((number as u32, words));
                }
            },
        )?;
        Ok(Shapes { of, known, rare })
    }

    /// Returns the size class of a known shape.
    #[inline(always)]
    pub fn kind(&self, shape: u16) -> u16 {
        self.known[usize::from(shape)].0
    }

    /// Returns the words of a known shape.
    pub fn words(&self, shape: u16) -> Words {
        self.known[usize::from(shape)].1
    }

    /// Returns the words of a block.
    pub fn words_of(&self, number: usize) -> Words {
        match self.of[number] {
            RARE => {
                let at = self.rare.binary_search_by_key(&(number as u32), |each| each.0);
                at.map_or_else(|_| Words::default(), |at| self.rare[at].1)
            }
            shape => self.words(shape),
        }
    }
}
