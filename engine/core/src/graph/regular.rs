//! Which pointers belong to the structures of the program, and which are left over.
//!
//! malloc hands memory out again with its old words in it, and structures have bytes that nobody writes. Such a word
//! joins two owners' structures. The fields of a structure are *regular*: most blocks of a kind have, at that offset, a
//! pointer to a block of the same other kind. A word that is left over is not. So the edges that are not regular are
//! set aside: they lead on only to blocks that nothing better leads to. A rare field is not regular either, but nothing
//! competes with it. On a program of 571,798 edges, 138 such words gave 47 % of the heap to four owners together.
//!
//! The rules. The kind of a block is its size here.
//!
//! * In a kind of many small blocks (or in those that are as large, as a chunk may be 16 bytes larger than it has to
//!   be), an edge is regular if enough blocks of the kind have, at that offset, a pointer to a block of that kind (to
//!   its first byte, or into it); or if many have a pointer to the first byte of any block there. A structure may be
//!   rare among the blocks of its size: its pointers are regular if they lead to most blocks of a kind. So may an
//!   array: its pointers are regular if many of its words lead to blocks of one kind.
//! * A large block, and a block of a rare kind, is judged alone if it has many pointers: as an array, whose elements
//!   have fields. Large blocks with few pointers are judged together if many have one size: see [`super::sparse`]. The
//!   pointers of other blocks are regular: there is nothing to compare.
//! * What begins with text is bytes. Its pointers are not regular. So are those of the memory that the caller names,
//!   such as the buffers of files. But libc++ keeps short strings at the beginning of an element, and structures have
//!   names. So in a kind of many blocks only pointers are not regular where other blocks have pointers. An array is
//!   bytes if its first element is shorter than the text.
//! * Where a chunk may be larger than it has to be, it is judged by the kind that has more of its pointers as fields. A
//!   field that leads to blocks of any kind counts less than one that leads to blocks of this kind.
//!
//! Many structures may have one size. So what is regular by this is compared with blocks of the same structure as well:
//! see [`super::odd`].
//!
//! This decides whose memory a block is, never whether it leaks: marking follows all edges.

use super::edges::Edges;
use super::fields::{smaller, Counts, Field, Rare, Target, ARRAY, MANY, SMALL};
use super::kinds_of_targets::{Kinds, Waiting};
use super::numbering::HeapGraph;
use super::odd::{graded, Grades};
use super::offsets::{begins_with_text, text_length, TEXT};
use super::roots::Named;
use super::sources::{is_sampled, Source, Sources, CHECK};
use super::sparse::Sparse;
use crate::blocks::index::{each_edge, edges_of, Block, Each, Tables, EVERY};
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::cached_reader::CachedReader;
use crate::contents::{class_index, size_class, CLASSES};
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// Blocks of a kind, at least, that are judged together.
const COMMON: u32 = 64;
/// Blocks of a kind, and pointers of an array, that are looked at to learn its fields.
pub(super) const SAMPLE: usize = 4096;

/// What an edge of a common kind is judged by.
#[derive(Clone, Copy)]
struct Judged<'f> {
    field: &'f Field,
    /// The field of the kind that the block has if its chunk is larger than it has to be.
    other: Option<&'f Field>,
    kind: u16,
    offset: u16,
}

pub(super) struct Judge<'a, I: Index, const P: usize, const FAST: bool> {
    pub(super) tables: &'a Tables<I, P>,
    pub(super) kinds: Kinds<'a, I, P>,
    /// For each kind: how many blocks there are.
    counts: Vec<u32>,
    sparse: Sparse<I>,
    found: Edges,
}

/// The edges that are not regular, and what they were judged by.
pub(super) struct Irregular<'a, I: Index, const P: usize> {
    pub edges: Edges,
    pub(super) kinds: Kinds<'a, I, P>,
    /// For each kind: how many blocks in use there are.
    counts: Vec<u32>,
}

impl<I: Index, const P: usize> Irregular<'_, I, P> {
    /// Grades the edges: see [`super::odd`].
    pub fn grades(&self, control: &Control) -> Result<Grades, Stopped> {
        hw::fast_work(Grading { irregular: self, control })
    }
}

/// Returns the edges that are not regular.
pub(super) fn irregular<'a, I: Index, const P: usize>(
    graph: &'a HeapGraph<'a, I, P>,
    image: &Image,
    named: Named,
    control: &Control,
) -> Result<Irregular<'a, I, P>, Stopped> {
    hw::fast_work(Judging { graph, image, named, control })
}

/// The work of [`irregular`].
struct Judging<'a, 'i, I: Index, const P: usize> {
    graph: &'a HeapGraph<'a, I, P>,
    image: &'i Image,
    named: Named<'i>,
    control: &'i Control,
}

impl<'a, I: Index, const P: usize> hw::Work for Judging<'a, '_, I, P> {
    type Out = Result<Irregular<'a, I, P>, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Judging { graph, image, named, control } = self;
        let mut judge = Judge::<I, P, FAST>::count(graph);
        let fields = judge.learn(image, control)?;
        judge.compare(image, &fields, control)?;
        judge.alone(image, named.leaves, &fields, control)?;
        Ok(Irregular { edges: judge.found, kinds: judge.kinds, counts: judge.counts })
    }
}

/// The work of [`Irregular::grades`].
struct Grading<'i, 'a, I: Index, const P: usize> {
    irregular: &'i Irregular<'a, I, P>,
    control: &'i Control,
}

impl<I: Index, const P: usize> hw::Work for Grading<'_, '_, I, P> {
    type Out = Result<Grades, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Irregular { edges, kinds, counts } = self.irregular;
        let is_common = |kind: usize| counts[kind] >= COMMON && (kind as u64) < SMALL;
        graded(kinds, counts, (0..counts.len()).map(is_common).collect(), edges, self.control)
    }
}

/// What the blocks are counted into.
struct Counting<'a, I: Index, const P: usize> {
    kinds: Kinds<'a, I, P>,
    counts: Vec<u32>,
    sparse: Sparse<I>,
}

impl<I: Index, const P: usize> Each for Counting<'_, I, P> {
    #[inline(always)]
    fn take(&mut self, block: Block) -> bool {
        let kind = kind(block.size);
        self.kinds.set(block.granule, kind);
        self.counts[usize::from(kind)] += u32::from(!block.free);
        if !block.free {
            self.sparse.count(block.size);
        }
        true
    }
}

#[inline(always)]
pub(super) fn kind(size: u64) -> u16 {
    class_index(size_class(size).0) as u16
}

impl<'a, I: Index, const P: usize, const FAST: bool> Judge<'a, I, P, FAST> {
    /// Notes the kind of each block, and counts the blocks in use of each kind.
    #[inline(always)]
    fn count(graph: &'a HeapGraph<'a, I, P>) -> Self {
        let mut counting = Counting { kinds: Kinds::new(graph), counts: vec![0; CLASSES], sparse: Sparse::new() };
        for run in 0..graph.tables.word_map.runs.len() {
            graph.tables.each_block_to(run, EVERY, &mut counting);
        }
        let Counting { kinds, counts, sparse } = counting;
        Judge { tables: graph.tables, kinds, counts, sparse, found: Edges::default() }
    }

    /// Returns whether the block of this kind that begins at a granule is judged with the others of its kind.
    #[inline(always)]
    fn is_common(&self, kind: u16, granule: usize) -> bool {
        let size = u64::from(kind);
        // The first class of several sizes begins with the last of the small ones.
        self.counts[usize::from(kind)] >= COMMON
            && (size < SMALL || (size == SMALL && self.block(granule).size == SMALL))
    }

    /// Returns the block that begins at a granule.
    fn block(&self, granule: usize) -> Block {
        self.tables.block(self.tables.word_map.run_of_granule(granule), granule)
    }

    /// Returns the blocks in use that have pointers.
    #[inline(always)]
    fn sources<'c>(&self, control: &'c Control) -> Sources<'a, 'c, I, P> {
        Sources::new(self.tables, control)
    }

    /// Returns the fields of each common kind. It looks at a part of the blocks.
    #[inline(always)]
    fn learn(&self, image: &Image, control: &Control) -> Result<Vec<Vec<Field>>, Stopped> {
        let mut counts: Vec<Option<Box<Counts>>> = self.counts.iter().map(|_| None).collect();
        let (mut reader, mut texts, mut text_kinds) = (CachedReader::new(image), Vec::new(), Vec::new());
        let mut waiting = Waiting::new(&self.kinds, (0u16, 0u16));
        let mut settle = |(kind, offset): (u16, u16), _edge: usize, target: Option<Target>| {
            if let Some(target) = target {
                counts[usize::from(kind)].get_or_insert_with(Box::default).add(offset, target);
            }
        };
        let mut next = 0;
        for (at, (region, &free)) in self.tables.regions.iter().zip(&self.tables.free).enumerate() {
            if at % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let mut bits = region.start;
            while bits != 0 {
                let (granule, is_free) =
                    (at * REGION + bits.trailing_zeros() as usize, free & bits & bits.wrapping_neg() != 0);
                bits &= bits - 1;
                let number = next;
                next += 1;
                let kind = self.kinds.of(number);
                let is_looked_at = !is_free && is_sampled(number, self.step(usize::from(kind)));
                if !is_looked_at || !self.is_common(kind, granule) {
                    continue;
                }
                let edges = edges_of(&self.tables.regions, granule);
                let is_text = match edges.0 == edges.1 {
                    true => begins_with_text(&mut reader, &self.block(granule)),
                    false => self.is_text(granule, edges, &mut reader),
                };
                if is_text {
                    text_kinds.push(kind);
                }
                each_edge(&self.tables.regions, granule, edges, |offset, edge| {
                    waiting.push(edge, (kind, offset as u16), &mut settle);
                    if is_text {
                        texts.push((kind, offset));
                    }
                });
            }
        }
        waiting.finish(&mut settle);
        for kind in text_kinds {
            counts[usize::from(kind)].get_or_insert_with(Box::default).add_text_block();
        }
        for (kind, offset) in texts {
            counts[usize::from(kind)].get_or_insert_with(Box::default).add_text(offset);
        }
        let fields = |(kind, counts): (usize, &mut Option<Box<Counts>>)| {
            let looked_at = self.counts[kind] as usize / self.step(kind);
            counts.as_mut().map_or_else(Vec::new, |counts| counts.fields(looked_at.max(1) as u32))
        };
        Ok(counts.iter_mut().enumerate().map(fields).collect())
    }

    /// Returns whether a block with pointers begins with text. No memory is read of one that begins with a pointer.
    #[inline(always)]
    fn is_text(&self, granule: usize, edges: (usize, usize), reader: &mut CachedReader) -> bool {
        let first = self.first_offset(granule, edges);
        first.is_some_and(|at| at as u64 * (16 / P as u64) >= TEXT) && begins_with_text(reader, &self.block(granule))
    }

    /// Returns whether a pointer stands where a text of [`TEXT`] bytes would: no text has the upper bytes of an
    /// address. With words of 4 bytes, and in a block with a run of its own, the tables do not tell.
    #[inline(always)]
    fn begins_with_pointer(&self, block: &Block, edges: (usize, usize)) -> bool {
        let is_single = self.tables.word_map.runs[block.run].run.kind.is_single();
        P == 2 && !is_single && self.first_offset(block.granule, edges).is_some_and(|at| at as u64 * 8 < TEXT)
    }

    /// Returns the offset in words of a block's first pointer.
    #[inline(always)]
    fn first_offset(&self, granule: usize, edges: (usize, usize)) -> Option<usize> {
        let mut first = None;
        each_edge(&self.tables.regions, granule, (edges.0, edges.1.min(edges.0 + 1)), |at, _| first = Some(at));
        first
    }

    /// One in so many blocks of a kind is looked at.
    fn step(&self, kind: usize) -> usize {
        (self.counts[kind] as usize / SAMPLE).max(1)
    }

    /// Finds the edges of common kinds that are not regular.
    #[inline(always)]
    fn compare(&mut self, image: &Image, fields: &[Vec<Field>], control: &Control) -> Result<(), Stopped> {
        let mut found = std::mem::take(&mut self.found);
        let room = self.tables.edges.as_slice().len();
        let has_slack = P == 2 && self.tables.word_map.runs.iter().any(|placed| placed.run.kind.has_chunks());
        let smaller = |target: Target| smaller(target).filter(|_| has_slack);
        let none = Field::default();
        let judge = &*self;
        let has_texts: Vec<bool> = fields.iter().map(|fields| fields.iter().any(|field| field.not_of_text)).collect();
        let (mut reader, mut of_texts) = (CachedReader::new(image), Vec::new());
        let mut waiting = Waiting::new(&judge.kinds, Judged { field: &none, other: None, kind: 0, offset: 0 });
        let (mut rare, mut of_smaller) = (Rare::default(), Vec::new());
        let mut settle = |Judged { field, other, kind, offset }: Judged, edge: usize, target: Option<Target>| {
            let Some(target) = target else { return };
            if field.is_regular(target) {
                // A pointer of a field to blocks of any kind may be one of the smaller kind's.
                if let Some(other) = other.filter(|_| field.is_any()) {
                    let slack = smaller(target);
                    let is_other = other.is_regular_or(target, slack) && !other.is_loose(target, slack);
                    if is_other && field.is_loose(target, slack) {
                        of_smaller.push(edge);
                    }
                }
            } else {
                let slack = smaller(target);
                if field.is_regular_or(target, slack) {
                    return;
                }
                if other.is_some_and(|other| other.is_regular_or(target, slack)) {
                    return of_smaller.push(edge);
                }
                found.add(edge, room);
                rare.add(kind, offset, target);
            }
        };
        let mut sources = judge.sources(control);
        while let Some(Source { granule, number, run, edges }) = sources.read()? {
            let kind = judge.kinds.of(number);
            if !judge.is_common(kind, granule) {
                continue;
            }
            let others = judge.smaller_kind(run, u64::from(kind), fields);
            let fields = &fields[usize::from(kind)];
            let is_text = has_texts[usize::from(kind)] && judge.is_text(granule, edges, &mut reader);
            each_edge(&judge.tables.regions, granule, edges, |offset, edge| {
                let field = fields.get(offset).unwrap_or(&none);
                if is_text && field.not_of_text {
                    return of_texts.push(edge);
                }
                let other = others.and_then(|others| others.get(offset));
                waiting.push(edge, Judged { field, other, kind, offset: offset as u16 }, &mut settle);
            });
        }
        waiting.finish(&mut settle);
        of_texts.into_iter().for_each(|edge| found.add(edge, room));
        self.by_one_kind(&of_smaller, fields, |edge| found.add(edge, room));
        rare.keep_covering(&self.counts);
        if !rare.is_empty() {
            let mut sources = self.sources(control);
            while let Some(Source { granule, number, edges, .. }) = sources.read()? {
                let kind = self.kinds.of(number);
                if !self.is_common(kind, granule) {
                    continue;
                }
                each_edge(&self.tables.regions, granule, edges, |offset, edge| {
                    if !found.contains(edge) {
                        return;
                    }
                    if self.kinds.target(edge).is_some_and(|to| rare.has(kind, offset as u16, to)) {
                        found.remove(edge);
                    }
                });
            }
        }
        self.found = found;
        Ok(())
    }

    /// Finds the edges that are not regular in blocks that are judged alone, and in those that hold bytes. `leaves` are
    /// sorted addresses of such blocks.
    #[inline(always)]
    fn alone(
        &mut self,
        image: &Image,
        leaves: &[u64],
        fields: &[Vec<Field>],
        control: &Control,
    ) -> Result<(), Stopped> {
        let mut found = std::mem::take(&mut self.found);
        let room = self.tables.edges.as_slice().len();
        let mut reader = CachedReader::new(image);
        let mut sparse = std::mem::take(&mut self.sparse);
        let judge = &*self;
        let mut sources = judge.sources(control);
        while let Some(Source { granule, number, run, edges }) = sources.read()? {
            let is_few = edges.1 - edges.0 < ARRAY && leaves.is_empty();
            let is_common = judge.is_common(judge.kinds.of(number), granule);
            if is_few && is_common {
                continue;
            }
            let block = judge.tables.block(run, granule);
            let is_leaf = leaves.binary_search(&block.address).is_ok();
            if !is_leaf && is_common {
                if edges.1 - edges.0 < ARRAY {
                    continue;
                }
                let others = (edges.0..edges.1).filter(|&edge| found.contains(edge)).count();
                if others >= ARRAY && !begins_with_text(&mut reader, &block) {
                    judge.array_of_one_kind(&block, edges, &mut found);
                }
                continue;
            }
            let is_many = edges.1 - edges.0 >= MANY;
            let is_text = !judge.begins_with_pointer(&block, edges) && begins_with_text(&mut reader, &block);
            if is_leaf || (is_text && !is_many) {
                (edges.0..edges.1).for_each(|edge| found.add(edge, room));
            } else if is_many {
                let text = if is_text { text_length(&mut reader, &block) } else { 0 };
                judge.array(image, &block, edges, text, |edge| found.add(edge, room));
            } else if let Some(fields) = judge.smaller_kind(run, block.size, fields) {
                judge.like(fields, &block, edges, |edge| found.add(edge, room));
            } else if !judge.tables.word_map.runs[block.run].run.kind.is_single() {
                sparse.add(&block);
            }
        }
        sparse.judge(judge.tables, &judge.kinds, control, |edge| found.add(edge, room))?;
        self.found = found;
        Ok(())
    }
}
