//! The shapes of small blocks: which of their words are pointers.

use std::collections::HashMap;

use super::edges::each_edge;
use super::kinds_of_targets::Kinds;
use super::sources::{is_sampled, Source, Sources};
use super::tally::Tally;
use crate::blocks::index::Tables;
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

/// The shapes of a heap's blocks. A shape is named by a number: below [`CLASSES`] it is that of the blocks of a size
/// without pointers.
pub(super) struct Shapes {
    /// For each block: its shape. A block that is not small, or of a rare size, has the shape of its size.
    pub of: Vec<u16>,
    /// For each shape: the size class, and the words that are pointers, as bits.
    known: Vec<(u16, u64)>,
    /// Blocks whose shape is not known: the number of each, and its pointers. They are sorted.
    rare: Vec<(u32, u64)>,
}

/// Returns the pointers of a block as bits. The last bit stands for all words from the 64th on.
#[inline(always)]
fn pointers<I: Index, const P: usize>(tables: &Tables<I, P>, granule: usize, edges: (usize, usize)) -> u64 {
    let mut bits = 0;
    each_edge(&tables.regions, granule, edges, |offset, _| bits |= 1 << offset.min(63));
    bits
}

impl Shapes {
    /// Finds the shapes. `counts` are the blocks in use of each size class; `is_common` says of a size class whether
    /// its blocks are compared.
    #[inline(always)]
    pub fn new<I: Index, const P: usize>(
        tables: &Tables<I, P>,
        kinds: &Kinds<I, P>,
        counts: &[u32],
        is_common: impl Fn(u16) -> bool,
        control: &Control,
    ) -> Result<Shapes, Stopped> {
        let mut seen = Tally::default();
        let mut sources = Sources::new(tables, control);
        while let Some(Source { granule, number, edges, .. }) = sources.read()? {
            let kind = kinds.of(number);
            let step = counts[usize::from(kind)] as usize / SAMPLE + 1;
            if !is_common(kind) || !is_sampled(number, step) {
                continue;
            }
            seen.add((kind, pointers(tables, granule, edges)), 1);
        }
        let mut found: Vec<_> = seen.finish().into_iter().filter(|&(_, count)| count >= LEAST).collect();
        found.sort_unstable_by_key(|&(shape, count)| (std::cmp::Reverse(count), shape));
        found.truncate(MOST);
        let mut known: Vec<(u16, u64)> = (0..CLASSES as u16).map(|kind| (kind, 0)).collect();
        known.extend(found.iter().map(|&(shape, _)| shape));
        let numbers: HashMap<(u16, u64), u16, Keys> =
            known.iter().enumerate().skip(CLASSES).map(|(number, &shape)| (shape, number as u16)).collect();
        let (mut of, mut rare) = (kinds.all().to_vec(), Vec::new());
        let mut sources = Sources::new(tables, control);
        let mut last = ((0, 0), 0);
        while let Some(Source { granule, number, edges, .. }) = sources.read()? {
            let kind = kinds.of(number);
            if !is_common(kind) {
                continue;
            }
            let shape = (kind, pointers(tables, granule, edges));
            if last.0 != shape {
                last = (shape, numbers.get(&shape).copied().unwrap_or(RARE));
            }
            of[number] = last.1;
            if last.1 == RARE {
                rare.push((number as u32, shape.1));
            }
        }
        Ok(Shapes { of, known, rare })
    }

    /// Returns the size class of a known shape.
    #[inline(always)]
    pub fn kind(&self, shape: u16) -> u16 {
        self.known[usize::from(shape)].0
    }

    /// Returns the pointers of a known shape as bits.
    pub fn pointers(&self, shape: u16) -> u64 {
        self.known[usize::from(shape)].1
    }

    /// Returns the pointers of a block as bits.
    pub fn pointers_of(&self, number: usize) -> u64 {
        match self.of[number] {
            RARE => self.rare.binary_search_by_key(&(number as u32), |each| each.0).map_or(0, |at| self.rare[at].1),
            shape => self.known[usize::from(shape)].1,
        }
    }

    /// Returns how many words are pointers either in a known shape or in `pointers`, and not in both.
    pub fn distance(&self, shape: u16, pointers: u64) -> u32 {
        (self.known[usize::from(shape)].1 ^ pointers).count_ones()
    }
}
