//! Which structure each small block is: structures of one size are told apart.
//!
//! The size of a block says little where many structures have one size: a word that is left over in one of them may
//! stand where another has a field. Two more things say what a block is: which of its words are pointers, and of those
//! which lead to blocks without pointers (its shape), and the field that leads to it. A word that is left over changes
//! the shape of its block, but few of the blocks that a field leads to have such a word at one place. So the structure
//! of a block is the shape, frequent among the blocks that a field leads to, which is nearest to its own. Where several
//! fields lead to a block, the one that leads to more blocks of such a shape decides: a word that is left over leads to
//! it as well.
//!
//! That is done in rounds. First a field is named by the size of its block and its offset, then by the structure and
//! the offset: where two structures of one size have their link at one offset, the shapes tell them apart, and then the
//! links do. A block that looks like another structure, for all that is left over in it, misleads about those that it
//! leads to: the next round knows better.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::edges::Edges;
use super::kinds_of_targets::Kinds;
use super::links::{Link, Links};
use super::numbering::HeapGraph;
use super::shapes::{Shapes, RARE, SAMPLE};
use super::sources::Source;
use super::tally::Tally;
use crate::blocks::number::Index;
use crate::contents::CLASSES;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::keys::Keys;

/// A shape is frequent among the blocks that a field leads to from one in so many on, and from so many on.
const ONE_IN: u64 = 50;
const LEAST: u64 = 16;
/// In the second round, a shape with one word more or less is no other structure if it is so many times rarer. In the
/// first one, structures of one size may differ so.
pub(super) const FEWER: u64 = 8;
/// No structure is named by a field that fewer than one in so many blocks have.
const FIELD: u64 = 50;
/// Shapes that are kept of a field.
const SHAPES: usize = 64;
/// Structures that are told apart.
const MOST: usize = 60_000;
/// The shape of a block differs by so many words, at most, from that of its structure.
const FARTHEST: u32 = 8;

/// A pointer that is not regular among the blocks of its size is worse evidence than all others: as if the shape were
/// so far.
const IRREGULAR: u64 = 128;

/// Blocks that evidence can count.
const MOST_COUNTED: u64 = (1 << 40) - 1;

/// A place in a structure: 0 and 1 are any word of an array; after them, two for each offset in words. The odd ones
/// hold pointers to the first byte of a block.
pub(super) type Place = u16;
/// Places from this one on are those of structures.
pub(super) const FIRST: Place = 2;

#[inline(always)]
pub(super) fn place(offset: Option<usize>, link: Link) -> Place {
    offset.map_or(0, |offset| 2 * (offset as u16 + 1)) | u16::from(link.is_start())
}

/// What all steps look at.
pub(super) struct Heap<'a, I: Index, const P: usize> {
    pub graph: &'a HeapGraph<'a, I, P>,
    /// The size classes of the blocks.
    pub kinds: &'a Kinds<'a, I, P>,
    /// For each size class: whether its blocks are compared.
    pub is_common: Vec<bool>,
    pub links: Links,
    pub shapes: Shapes,
    /// The pointers that are not regular among the blocks of their size.
    pub irregular: &'a Edges,
    pub control: &'a Control,
}

/// The structures. One is named by a number. Below [`CLASSES`] it is a size class: that of the blocks whose structure
/// is not known.
pub(super) struct Structures {
    /// For each block: its structure.
    pub of: Vec<u16>,
    /// For each structure: the size class.
    pub kinds: Vec<u16>,
    /// For each structure: the field that leads to its blocks, as (structure of the round before, place).
    pub fields: Vec<(u16, Place)>,
}

impl Structures {
    /// All blocks have the structures of their sizes, which `of` are.
    pub fn of_sizes(of: Vec<u16>) -> Self {
        let kinds = (0..CLASSES as u16).collect();
        Structures { of, kinds, fields: vec![(0, 0); CLASSES] }
    }

    /// Returns how many blocks each structure has.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.kinds.len()];
        self.of.iter().for_each(|&structure| counts[usize::from(structure)] += 1);
        counts
    }
}

/// A shape among the blocks that a field leads to.
#[derive(Clone, Copy)]
struct Entry {
    shape: u16,
    /// The structure, with how good the evidence is in the upper bits: see [`evidence`].
    said: u64,
}

/// Packs a structure with how good the evidence is: the shape's distance, then how many blocks there are.
fn evidence(distance: u32, count: u64, structure: u16) -> u64 {
    u64::from(255 - distance) << 56 | count.min(MOST_COUNTED) << 16 | u64::from(structure)
}

/// The shapes that fields lead to.
#[derive(Default)]
struct Fields {
    /// For each structure: where its fields begin in `places`.
    first: Vec<u32>,
    /// The place of each field, and where its shapes begin in `entries`. They end where those of the next one begin.
    places: Vec<(Place, u32)>,
    entries: Vec<Entry>,
}

impl Fields {
    #[inline(always)]
    fn of(&self, structure: u16, place: Place) -> &[Entry] {
        let [from, end] = [0, 1].map(|next| self.first[usize::from(structure) + next] as usize);
        match self.places[from..end].binary_search_by_key(&place, |each| each.0) {
            Ok(nth) => {
                let [from, end] = [0, 1].map(|next| self.places[from + nth + next].1 as usize);
                &self.entries[from..end]
            }
            Err(_) => &[],
        }
    }
}

impl<I: Index, const P: usize> Heap<'_, I, P> {
    /// Calls `each` with (source, offset in words, edge, pointer) for every pointer. A pointer in an array has no
    /// offset. Before, it calls `load` with the number of a block that will be met soon.
    #[inline(always)]
    pub fn each(
        &self,
        load: impl Fn(usize),
        each: impl FnMut(&Source, Option<usize>, usize, Link),
    ) -> Result<(), Stopped> {
        let is_small = |number: usize| self.is_common[usize::from(self.kinds.of(number))];
        self.links.each(self.graph, self.control, is_small, load, each)
    }

    /// Calls `each` with (structure, place, pointer, weight) for a part of the pointers, of which each stands for
    /// `weight`. Before, it calls `load` with the number of a block that will be met soon.
    #[inline(always)]
    pub fn sample(
        &self,
        structures: &Structures,
        load: impl Fn(usize),
        mut each: impl FnMut(u16, Place, Link, u64),
    ) -> Result<(), Stopped> {
        let steps: Vec<usize> = structures.counts().into_iter().map(|count| count as usize / SAMPLE + 1).collect();
        let step = |source: &Source| {
            let is_small = self.is_common[usize::from(self.kinds.of(source.number))];
            is_small.then(|| steps[usize::from(structures.of[source.number])])
        };
        self.links.sample(self.graph, self.control, step, SAMPLE, load, |source, offset, link, weight| {
            // A pointer of a block into itself does not hold it.
            if link.target() != Some(source.number) {
                each(structures.of[source.number], place(offset, link), link, weight);
            }
        })
    }

    #[inline(always)]
    fn load(&self, target: usize) {
        hw::prefetch(&self.shapes.of, target);
    }

    /// Finds the structures by the fields of those of the round before. A shape with one word more or less is no other
    /// structure if it is `fewer` times rarer.
    #[inline(always)]
    pub fn round(&self, before: &Structures, fewer: u64) -> Result<Structures, Stopped> {
        let mut seen = Tally::default();
        let load = |target: usize| self.load(target);
        self.sample(before, load, |structure, place, link, weight| {
            let shape = link.target().map_or(RARE, |target| self.shapes.of[target]);
            if shape != RARE && self.is_common[usize::from(self.shapes.kind(shape))] {
                let key = u64::from(structure) << 32 | u64::from(place) << 16 | u64::from(shape);
                seen.add(key, weight);
            }
        })?;
        let (fields, mut found) = self.fields(seen.finish(), &before.counts(), fewer);
        let best = vec![Cell::new(0u64); before.of.len()];
        hw::huge_pages(&best);
        let mut last = (usize::MAX, 0);
        let load = |target: usize| {
            self.load(target);
            hw::prefetch(&best, target);
        };
        self.each(load, |source, offset, edge, link| {
            let Some(target) = link.target().filter(|&target| target != source.number) else { return };
            if last.0 != source.number {
                last = (source.number, before.of[source.number]);
            }
            let entries = fields.of(last.1, place(offset, link));
            if entries.is_empty() {
                return;
            }
            let shape = self.shapes.of[target];
            let mut said = 0;
            for entry in entries {
                if entry.shape == shape {
                    said = entry.said;
                    break;
                }
            }
            if said == 0 {
                said = self.nearest(entries, target);
            }
            if said != 0 && self.irregular.contains(edge) {
                said -= IRREGULAR << 56;
            }
            best[target].set(best[target].get().max(said));
        })?;
        found.of = best
            .into_iter()
            .zip(self.kinds.all())
            .map(|(said, &kind)| if said.get() == 0 { kind } else { said.get() as u16 })
            .collect();
        Ok(found)
    }

    /// Returns what the nearest shape says of a block.
    #[inline(never)]
    fn nearest(&self, entries: &[Entry], target: usize) -> u64 {
        let (kind, words) = (self.kinds.of(target), self.shapes.words_of(target));
        let of_size = entries.iter().filter(|entry| self.shapes.kind(entry.shape) == kind);
        let far = |entry: &Entry| {
            let distance = self.shapes.words(entry.shape).distance(words);
            (distance <= FARTHEST).then(|| entry.said - (u64::from(distance) << 56))
        };
        of_size.filter_map(far).max().unwrap_or(0)
    }

    /// Returns the frequent shapes of each field, and the structures that they make.
    fn fields(&self, mut seen: Vec<(u64, u64)>, blocks: &[u32], fewer: u64) -> (Fields, Structures) {
        let of_field = |key: u64| (key >> 16, self.shapes.kind(key as u16));
        seen.sort_unstable_by_key(|&(key, count)| (of_field(key), Reverse(count), key));
        // For each place in a structure: how many pointers there are.
        let mut at_place: HashMap<u64, u64, Keys> = HashMap::default();
        seen.iter().for_each(|&(key, count)| *at_place.entry(key >> 16).or_default() += count);
        let of_blocks = |key: u64| match (key >> 16) as Place {
            FIRST.. if key >> 32 >= CLASSES as u64 => u64::from(blocks[(key >> 32) as usize]),
            _ => 0,
        };
        seen.retain(|&(key, _)| at_place[&(key >> 16)] * FIELD >= of_blocks(key));
        let mut frequent = Vec::new();
        for of_size in seen.chunk_by(|one, other| of_field(one.0) == of_field(other.0)) {
            let all: u64 = of_size.iter().map(|each| each.1).sum();
            frequent.extend(of_size.iter().filter(|each| each.1 >= LEAST && each.1 * ONE_IN >= all));
        }
        frequent.sort_unstable_by_key(|&(key, count)| (Reverse(count), key));
        frequent.truncate(MOST);
        frequent.sort_unstable_by_key(|&(key, count)| (key >> 16, Reverse(count), key));
        let mut fields = Fields { first: vec![0; blocks.len() + 1], ..Fields::default() };
        let mut found = Structures::of_sizes(Vec::new());
        // What a shape says that differs in one word from one that many more of the blocks have.
        let near = |entries: &[Entry], shape: u16, count: u64| {
            let (kind, words) = (self.shapes.kind(shape), self.shapes.words(shape));
            let of_size = entries.iter().filter(|entry| self.shapes.kind(entry.shape) == kind);
            let near = of_size.filter(|entry| self.shapes.words(entry.shape).distance(words) == 1);
            near.map(|entry| entry.said).filter(|&said| count.saturating_mul(fewer) < said >> 16 & MOST_COUNTED).max()
        };
        let mut next = 0;
        for of_structure in frequent.chunk_by(|one, other| one.0 >> 32 == other.0 >> 32) {
            let structure = (of_structure[0].0 >> 32) as usize;
            fields.first[next..=structure].fill(fields.places.len() as u32);
            next = structure + 1;
            for of_place in of_structure.chunk_by(|one, other| one.0 >> 16 == other.0 >> 16) {
                let place = (of_place[0].0 >> 16) as Place;
                let from = fields.entries.len() as u32;
                for &(key, count) in of_place.iter().take(SHAPES) {
                    let shape = key as u16;
                    let said = near(&fields.entries[from as usize..], shape, count).unwrap_or_else(|| {
                        found.kinds.push(self.shapes.kind(shape));
                        found.fields.push((structure as u16, place));
                        evidence(0, count, (found.kinds.len() - 1) as u16)
                    });
                    fields.entries.push(Entry { shape, said });
                }
                fields.places.push((place, from));
            }
        }
        fields.first[next..].fill(fields.places.len() as u32);
        // What follows the last field.
        fields.places.push((Place::MAX, fields.entries.len() as u32));
        (fields, found)
    }
}
