//! Which pointers belong to the structures of the program, and which are left over.
//!
//! malloc hands memory out again with its old words in it, and structures have bytes that nobody writes. Such a word joins
//! two owners' structures. The fields of a structure are *regular*: most blocks of a kind have, at that offset, a pointer to
//! a block of the same other kind. A word that is left over is not. So the edges that are not regular are set aside: they
//! lead on only to blocks that nothing better leads to. A rare field is not regular either, but nothing competes with it.
//! On a program of 571,798 edges, 138 such words gave 47 % of the heap to four owners together.
//!
//! The rules. The kind of a block is its size.
//!
//! * In a kind of many small blocks (or in those that are as large, as a chunk may be 16 bytes larger than it has to be), an edge is regular if enough blocks of the kind have, at that offset, a pointer to a
//!   block of that kind (to its first byte, or into it); or if many have a pointer to the first byte of any block there.
//!   A structure may be rare among the blocks of its size: its pointers are regular if they lead to most blocks of a kind. So
//!   may an array: its pointers are regular if many of its words lead to blocks of one kind.
//! * A large block, and a block of a rare kind, is judged alone if it has many pointers: as an array, whose elements have
//!   fields. With few pointers all of them are regular: there is nothing to compare.
//! * What begins with text is bytes. Its pointers are not regular. So are those of the memory that the caller names, such
//!   as the buffers of files.
//!
//! This decides whose memory a block is, never whether it leaks: marking follows all edges.

use super::edges::{each_edge, Edges};
use super::fields::{element_of, smaller, Counts, Field, Rare, Target, MANY, SLACK, SMALL};
use super::kinds_of_targets::{Kinds, Waiting};
use super::numbering::HeapGraph;
use super::roots::Named;
use crate::blocks::index::{edges_of, Block, Tables, EVERY};
use crate::blocks::number::Index;
use crate::cached_reader::CachedReader;
use crate::contents::{class_index, size_class, CLASSES};
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::words::word_at;

/// Blocks of a kind, at least, that are judged together.
const COMMON: u32 = 64;
/// Blocks of a kind, and pointers of a block, that are looked at to learn its fields.
const SAMPLE: usize = 4096;
const SAMPLE_OF_ARRAY: usize = 1 << 16;
/// Pointers to blocks of one kind, at least, that make a block an array although its kind has no such fields. They take one
/// in `ARRAY_ONE_IN` of its words.
const ARRAY: usize = 16;
const ARRAY_ONE_IN: usize = 5;
/// Bytes of text at the start of a block that is text.
const TEXT: u64 = 16;
/// Bytes that are read at once, and of one block at most.
const WINDOW: usize = 1 << 18;
const READ: u64 = 1 << 28;
/// Blocks between two looks at [`Control`].
const CHECK: u32 = 1 << 16;

/// What an edge of a common kind is judged by.
#[derive(Clone, Copy)]
struct Judged<'f> {
    field: &'f Field,
    /// The field of the kind that the block has if its chunk is larger than it has to be.
    other: Option<&'f Field>,
    kind: u16,
    offset: u16,
}

struct Judge<'a, I: Index, const P: usize, const FAST: bool> {
    tables: &'a Tables<I, P>,
    kinds: Kinds<'a, I, P>,
    /// For each kind: how many blocks there are.
    counts: Vec<u32>,
    found: Edges,
}

/// Returns the edges that are not regular.
pub fn irregular<I: Index, const P: usize>(
    graph: &HeapGraph<I, P>,
    image: &Image,
    named: Named,
    control: &Control,
) -> Result<Edges, Stopped> {
    hw::fast_work(Judging { graph, image, named, control })
}

/// The work of [`irregular`].
struct Judging<'a, I: Index, const P: usize> {
    graph: &'a HeapGraph<'a, I, P>,
    image: &'a Image,
    named: Named<'a>,
    control: &'a Control,
}

impl<I: Index, const P: usize> hw::Work for Judging<'_, I, P> {
    type Out = Result<Edges, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Judging { graph, image, named, control } = self;
        let mut judge = Judge::<I, P, FAST>::count(graph);
        let fields = judge.learn(control)?;
        judge.compare(&fields, control)?;
        judge.alone(image, named.leaves, &fields, control)?;
        Ok(judge.found)
    }
}

#[inline(always)]
fn kind(size: u64) -> u16 {
    class_index(size_class(size).0) as u16
}

impl<'a, I: Index, const P: usize, const FAST: bool> Judge<'a, I, P, FAST> {
    /// Notes the kind of each block, and counts the blocks in use of each kind.
    #[inline(always)]
    fn count(graph: &'a HeapGraph<'a, I, P>) -> Self {
        let (mut kinds, mut counts) = (Kinds::new(graph), vec![0; CLASSES]);
        for run in 0..graph.tables.word_map.runs.len() {
            graph.tables.each_block(run, EVERY, |block| {
                let kind = kind(block.size);
                kinds.set(block.granule, kind);
                counts[usize::from(kind)] += u32::from(!block.free);
                true
            });
        }
        Judge { tables: graph.tables, kinds, counts, found: Edges::default() }
    }

    #[inline(always)]
    fn is_common(&self, block: &Block) -> bool {
        block.size <= SMALL && self.counts[usize::from(kind(block.size))] >= COMMON
    }

    /// Calls `each` for the blocks in use.
    #[inline(always)]
    fn each_in_use(&self, control: &Control, mut each: impl FnMut(Block)) -> Result<(), Stopped> {
        let mut seen = 0u32;
        for run in 0..self.tables.word_map.runs.len() {
            self.tables.each_block(run, EVERY, |block| {
                seen = seen.wrapping_add(1);
                if seen % CHECK == 0 && control.cancelled() {
                    return false;
                }
                if !block.free {
                    each(block);
                }
                true
            });
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(())
    }

    /// Calls `each` for the blocks in use that have pointers.
    #[inline(always)]
    fn each_block(&self, control: &Control, mut each: impl FnMut(Block, (usize, usize))) -> Result<(), Stopped> {
        self.each_in_use(control, |block| {
            let edges = edges_of(&self.tables.regions, block.granule);
            if edges.0 < edges.1 {
                each(block, edges);
            }
        })
    }

    /// Returns the fields of each common kind. It looks at a part of the blocks.
    #[inline(always)]
    fn learn(&self, control: &Control) -> Result<Vec<Vec<Field>>, Stopped> {
        let mut counts: Vec<Option<Box<Counts>>> = self.counts.iter().map(|_| None).collect();
        // For each kind: the blocks before the next one that is looked at.
        let mut left = vec![0usize; self.counts.len()];
        let mut waiting = Waiting::new(&self.kinds, (0u16, 0u16));
        let mut settle = |(kind, offset): (u16, u16), _edge: usize, target: Option<Target>| {
            if let Some(target) = target {
                counts[usize::from(kind)].get_or_insert_with(Box::default).add(offset, target);
            }
        };
        self.each_in_use(control, |block| {
            if !self.is_common(&block) {
                return;
            }
            let kind = kind(block.size);
            let left = &mut left[usize::from(kind)];
            if *left > 0 {
                *left -= 1;
                return;
            }
            *left = self.step(usize::from(kind)) - 1;
            let edges = edges_of(&self.tables.regions, block.granule);
            each_edge(&self.tables.regions, block.granule, edges, |offset, edge| {
                waiting.push(edge, (kind, offset as u16), &mut settle);
            });
        })?;
        waiting.finish(&mut settle);
        let fields = |(kind, counts): (usize, &Option<Box<Counts>>)| {
            let looked_at = self.counts[kind] as usize / self.step(kind);
            counts.as_ref().map_or_else(Vec::new, |counts| counts.fields(looked_at.max(1) as u32))
        };
        Ok(counts.iter().enumerate().map(fields).collect())
    }

    /// One in so many blocks of a kind is looked at.
    fn step(&self, kind: usize) -> usize {
        (self.counts[kind] as usize / SAMPLE).max(1)
    }

    /// Finds the edges of common kinds that are not regular.
    #[inline(always)]
    fn compare(&mut self, fields: &[Vec<Field>], control: &Control) -> Result<(), Stopped> {
        let mut found = std::mem::take(&mut self.found);
        let room = self.tables.edges.as_slice().len();
        let has_slack = P == 2 && self.tables.word_map.runs.iter().any(|placed| placed.run.kind.has_chunks());
        let smaller = |target: Target| smaller(target).filter(|_| has_slack);
        let none = Field::default();
        let judge = &*self;
        let mut waiting = Waiting::new(&judge.kinds, Judged { field: &none, other: None, kind: 0, offset: 0 });
        let mut rare = Rare::default();
        let mut settle = |Judged { field, other, kind, offset }: Judged, edge: usize, target: Option<Target>| {
            if let Some(target) = target.filter(|&target| !field.is_regular(target)) {
                let slack = smaller(target);
                if !field.is_regular_or(target, slack) && !other.is_some_and(|other| other.is_regular_or(target, slack))
                {
                    found.add(edge, room);
                    rare.add(kind, offset, target);
                }
            }
        };
        judge.each_block(control, |block, edges| {
            if !judge.is_common(&block) {
                return;
            }
            let others = judge.smaller_kind(&block, fields);
            let kind = kind(block.size);
            let fields = &fields[usize::from(kind)];
            each_edge(&judge.tables.regions, block.granule, edges, |offset, edge| {
                let field = fields.get(offset).unwrap_or(&none);
                let other = others.and_then(|others| others.get(offset));
                waiting.push(edge, Judged { field, other, kind, offset: offset as u16 }, &mut settle);
            });
        })?;
        waiting.finish(&mut settle);
        rare.keep_covering(&self.counts);
        if !rare.is_empty() {
            self.each_block(control, |block, edges| {
                if !self.is_common(&block) {
                    return;
                }
                each_edge(&self.tables.regions, block.granule, edges, |offset, edge| {
                    if !found.contains(edge) {
                        return;
                    }
                    if self.kinds.target(edge).is_some_and(|to| rare.has(kind(block.size), offset as u16, to)) {
                        found.remove(edge);
                    }
                });
            })?;
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
        let judge = &*self;
        judge.each_block(control, |block, edges| {
            let is_leaf = !leaves.is_empty() && leaves.binary_search(&block.address).is_ok();
            if !is_leaf && judge.is_common(&block) {
                if edges.1 - edges.0 < ARRAY {
                    return;
                }
                let others = (edges.0..edges.1).filter(|&edge| found.contains(edge)).count();
                if others >= ARRAY && !begins_with_text(&mut reader, &block) {
                    judge.array_of_one_kind(&block, edges, &mut found);
                }
                return;
            }
            if is_leaf || begins_with_text(&mut reader, &block) {
                (edges.0..edges.1).for_each(|edge| found.add(edge, room));
            } else if edges.1 - edges.0 >= MANY {
                judge.array(image, &block, edges, |edge| found.add(edge, room));
            } else if let Some(fields) = judge.smaller_kind(&block, fields) {
                judge.like(fields, &block, edges, |edge| found.add(edge, room));
            }
        })?;
        self.found = found;
        Ok(())
    }

    /// Takes the pointers of a block out of `found` that lead to blocks of one kind, if they are enough for an array.
    fn array_of_one_kind(&self, block: &Block, edges: (usize, usize), found: &mut Edges) {
        let to = |edge: usize| self.kinds.target(edge).filter(|_| found.contains(edge));
        let mut targets: Vec<(Target, usize)> = (edges.0..edges.1).filter_map(|edge| Some((to(edge)?, edge))).collect();
        targets.sort_unstable();
        let words = block.size as usize / (16 / P);
        for of_kind in targets.chunk_by(|one, other| one.0 == other.0) {
            if of_kind.len() >= ARRAY && of_kind.len() * ARRAY_ONE_IN >= words {
                of_kind.iter().for_each(|&(_, edge)| found.remove(edge));
            }
        }
    }

    /// Returns the fields of the kind that a block has if its chunk is larger than it has to be.
    fn smaller_kind<'f>(&self, block: &Block, fields: &'f [Vec<Field>]) -> Option<&'f [Field]> {
        let chunks = P == 2 && self.tables.word_map.runs[block.run].run.kind.has_chunks();
        let smaller = block.size.checked_sub(SLACK).filter(|_| chunks && block.size <= SMALL)?;
        Some(&fields[usize::from(kind(smaller))][..]).filter(|fields| !fields.is_empty())
    }

    /// Judges the pointers of one block by the fields of a kind, if most of them are such fields. Calls `take` for each edge that is
    /// not regular.
    fn like(&self, fields: &[Field], block: &Block, edges: (usize, usize), take: impl FnMut(usize)) {
        let mut others = Vec::new();
        each_edge(&self.tables.regions, block.granule, edges, |offset, edge| {
            let is = |target: Target| fields.get(offset).is_some_and(|f| f.is_regular_or(target, smaller(target)));
            if self.kinds.target(edge).is_some_and(|target| !is(target)) {
                others.push(edge);
            }
        });
        if 2 * others.len() < edges.1 - edges.0 {
            others.into_iter().for_each(take);
        }
    }

    /// Judges the pointers of one block as those of an array. Calls `take` for each edge that is not regular.
    fn array(&self, image: &Image, block: &Block, edges: (usize, usize), mut take: impl FnMut(usize)) {
        let offsets = offsets(self.tables, image, block, edges);
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return };
        let targets = self.kinds.targets(edges.0..edges.0 + offsets.len());
        let element = element_of(&offsets[..offsets.len().min(SAMPLE)]);
        let step = (offsets.len() / SAMPLE_OF_ARRAY).max(1);
        let place = |offset: usize| ((offset - first) % element) as u16;
        let mut counts = Counts::default();
        for (&target, &offset) in targets.iter().zip(&offsets).step_by(step) {
            if let Some(target) = target {
                counts.add(place(offset), target);
            }
        }
        let elements = (last - first) / element + 1;
        let fields = counts.fields(u32::try_from(elements / step).unwrap_or(u32::MAX).max(1));
        for ((edge, &target), &offset) in (edges.0..edges.1).zip(&targets).zip(&offsets) {
            let field = fields.get(usize::from(place(offset)));
            if target.is_some_and(|target| !field.is_some_and(|field| field.is_regular(target))) {
                take(edge);
            }
        }
    }
}

/// Returns the offsets in words of the pointers in a block. The tables do not have those of a block with a run of its own: its
/// memory is read again. What lies too far in is left out.
pub fn offsets<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    block: &Block,
    edges: (usize, usize),
) -> Vec<usize> {
    let mut offsets = Vec::with_capacity((edges.1 - edges.0).min(SAMPLE_OF_ARRAY));
    let word_map = &tables.word_map;
    if !word_map.runs[block.run].run.kind.is_single() {
        each_edge(&tables.regions, block.granule, edges, |offset, _| offsets.push(offset));
        return offsets;
    }
    let targets = &tables.edges.as_slice()[edges.0..edges.1];
    let size = 16 / P;
    let mut buffer = vec![0; WINDOW];
    let mut at = 0;
    let end = block.size.min(READ);
    while at < end && offsets.len() < targets.len() {
        let len = (end - at).min(WINDOW as u64) as usize;
        buffer.fill(0);
        image.read(block.address + at, &mut buffer[..len]);
        for (i, bytes) in buffer[..len].chunks_exact(size).enumerate() {
            let value = word_at::<P>(bytes, 0);
            let Some(target) = targets.get(offsets.len()).filter(|_| value != 0) else { continue };
            if word_map.word_of(value) == Some(target.get()) {
                offsets.push(at as usize / size + i);
            }
        }
        at += len as u64;
    }
    offsets
}

/// Returns whether a block begins with text.
fn begins_with_text(reader: &mut CachedReader, block: &Block) -> bool {
    let text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e);
    block.size >= TEXT
        && (0..TEXT / 8)
            .all(|i| reader.word(block.address + 8 * i, 8).is_some_and(|word| word.to_le_bytes().into_iter().all(text)))
}
