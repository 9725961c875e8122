//! What is known of the process, and what every rule uses.

use crate::blocks::slot_blocks::Blocks;
use crate::blocks::slots::Slots;
use crate::cached_reader::CachedReader;
use crate::image::Image;
use crate::python::census::{given, is_hook, HOOK, MOST_HOOKS};
use crate::python::links::Links;
use crate::python::sizes::Reader;
use crate::python::types::{Type, Types};
use crate::python::Release;
use std::collections::HashMap;

/// Links of all deques that are followed.
const MOST_LINKS: u64 = 1 << 24;
/// Bytes of the smallest entry, one of a set.
const LEAST_ENTRY: u64 = 16;
/// Blocks of 4 KiB that are kept.
const CACHED: usize = 4096;

/// `IS_MMAPPED` (malloc/malloc.c): a chunk has a mapping of its own.
pub(super) const MAPPED: u64 = 2;

/// What is known of the process.
pub struct Process<'a> {
    /// pymalloc's blocks.
    pub slots: &'a [&'a Slots],
    /// The release.
    pub release: Release,
    /// The collector's lists.
    pub links: Option<&'a Links>,
    /// The interpreter's own file in memory: its types are the built-in ones.
    pub interpreter: &'a [(u64, u64)],
    /// The interpreter's data and the states of interpreters, without those of threads: free lists begin there.
    pub heads: &'a [(u64, u64)],
    /// Stacks in use. An object that a thread is about to free is no part of a free list.
    pub stacks: &'a [(u64, u64)],
    /// The states of threads. Objects that wait to be freed are linked there.
    pub threads: &'a [(u64, u64)],
    /// The registers of all threads.
    pub registers: &'a [u64],
    /// The frames of all threads that are objects (until 3.10).
    pub frames: &'a [u64],
    /// glibc's chunks: stretches of memory that consist of them.
    pub chunks: &'a [(u64, u64)],
}

impl Process<'_> {
    /// Makes one of which nothing but the release is known.
    pub fn of(release: Release) -> Self {
        Process {
            slots: &[],
            release,
            links: None,
            interpreter: &[],
            heads: &[],
            stacks: &[],
            threads: &[],
            registers: &[],
            frames: &[],
            chunks: &[],
        }
    }
}

/// What every rule uses.
pub struct Search<'a, 'p> {
    pub(super) process: &'p Process<'a>,
    pub(super) image: &'a Image,
    pub(super) blocks: Blocks<'p>,
    pub(super) types: Types<'a>,
    pub(super) words: CachedReader<'a>,
    pub(super) found: Vec<(u64, u64)>,
    /// The links of tracked objects.
    pub(super) nodes: Nodes<'a>,
    /// How many links of deques may still be followed: damaged ones may lead to each other.
    pub(super) links: u64,
    /// How many entries of tables may still be read: in a damaged dump many objects may have one table.
    pub(super) entries: u64,
    /// Whether each type is a built-in one, and the first of its family.
    pub(super) builtins: HashMap<u64, bool>,
}

impl<'a, 'p> Search<'a, 'p> {
    /// Begins.
    pub(super) fn new(image: &'a Image, process: &'p Process<'a>) -> Self {
        Search {
            process,
            image,
            blocks: Blocks::new(process.slots),
            types: Types::outside(CachedReader::with_slots(image, CACHED), process.release, process.slots),
            words: CachedReader::with_slots(image, CACHED),
            found: Vec::new(),
            nodes: Nodes { sorted: process.links.map_or(&[], |links| &links.nodes), place: 0 },
            links: MOST_LINKS,
            // Each has memory of its own.
            entries: image.size() / LEAST_ENTRY,
            builtins: HashMap::new(),
        }
    }

    /// Adds the words that begin in `[start, end)`.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.found.push((start, end));
        }
    }

    pub(super) fn word(&mut self, at: u64, offset: u64) -> Option<u64> {
        self.words.word(at.checked_add(offset)?, 8)
    }

    /// Returns where the memory begins that the interpreter was given of a block.
    pub(super) fn given(&mut self, block: u64) -> Option<u64> {
        given(&mut self.words, block)
    }

    pub(super) fn size(&mut self, at: u64, kind: &Type) -> Option<u64> {
        Reader { words: &mut self.words, release: self.process.release }.size(at, kind).map(|size| size.inside)
    }

    /// Returns the bytes of the buffers that an object owns.
    pub(super) fn outside(&mut self, at: u64, kind: &Type) -> Option<u64> {
        Reader { words: &mut self.words, release: self.process.release }.size(at, kind).map(|size| size.outside)
    }

    /// Returns the block in use that the interpreter knows by the address: where its own part begins, and the end. None where
    /// no allocator tells.
    ///
    /// With debug hooks the block begins before the address (see [`given`]).
    pub(super) fn block(&mut self, start: u64) -> Option<(u64, u64)> {
        let mut first = start;
        for _ in 0..=MOST_HOOKS {
            if let Some((_, end)) = self.block_from(first) {
                return (self.given(first)? == start).then_some((start, end));
            }
            first = first.checked_sub(HOOK)?;
            self.word(first, 8).filter(|&word| is_hook(word))?;
        }
        None
    }

    /// Returns the block in use that begins at the address: its start and end.
    ///
    /// glibc's header stands before a block: its size with three flags, of which the lowest says whether the chunk before
    /// it is in use (malloc/malloc.c). Behind the last chunk of a stretch is the header of what is free at the top. A mapped
    /// chunk is a stretch of its own.
    fn block_from(&mut self, start: u64) -> Option<(u64, u64)> {
        if let Some(block) = self.blocks.at(start) {
            return Some(block).filter(|block| block.0 == start);
        }
        let next = self.process.chunks.partition_point(|part| part.0 <= start);
        let part = self.process.chunks.get(next.checked_sub(1)?).filter(|part| start < part.1)?;
        let chunk = start.checked_sub(16)?;
        let field = self.word(chunk, 8)?;
        if field & MAPPED != 0 {
            return (part.0 == chunk).then_some((start, part.1));
        }
        let end = chunk.checked_add(field & !7).filter(|&next| next <= part.1)?.checked_add(8)?;
        let proper = start % 16 == 0 && end >= start + 24 && end % 16 == 8;
        (proper && self.word(end, 0)? & 1 == 1).then_some((start, end))
    }

    /// Returns whether a code object lies at the address.
    pub(super) fn is_code(&mut self, at: u64) -> bool {
        at % 8 == 0 && self.word(at, 8).is_some_and(|kind| self.builtin(kind).is_some())
    }

    /// Returns the type at the address if it is a built-in one: no subclass that a program or a module made.
    pub(super) fn builtin(&mut self, kind: u64) -> Option<Type> {
        let ours = self.is_inside(kind);
        self.types.at(kind).filter(|known| ours && known.flags & HEAP_TYPE == 0)
    }

    /// Returns whether the address is in the interpreter's file.
    pub(super) fn is_inside(&self, address: u64) -> bool {
        self.process.interpreter.iter().any(|part| part.0 <= address && address < part.1)
    }
}

/// `Py_TPFLAGS_HEAPTYPE`
pub(super) const HEAP_TYPE: u64 = 1 << 9;

/// Sorted addresses that are asked for nearly in their order.
pub struct Nodes<'a> {
    sorted: &'a [u64],
    place: usize,
}

/// How many addresses are looked at before the place is searched for.
const NEAR: usize = 4;

impl Nodes<'_> {
    /// Returns whether the address is one of them.
    pub(super) fn next_is(&mut self, address: u64) -> bool {
        let here = &self.sorted[self.place..];
        let near = here.iter().take(NEAR).position(|&node| node >= address);
        let first = self.place > 0 && self.sorted[self.place - 1] >= address;
        self.place = match near.filter(|_| !first) {
            Some(near) => self.place + near,
            None => self.sorted.partition_point(|&node| node < address),
        };
        self.sorted.get(self.place) == Some(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x10000;

    /// glibc's chunks of 64 bytes each, all in use, and words in them: (address, value).
    fn chunks(words: &[(u64, u64)]) -> Image {
        let mut bytes = vec![0u8; 0x400];
        let mut put = |at: u64, value: u64| bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        (0..0x400).step_by(64).for_each(|at| put(at + 8, 64 | 1));
        words.iter().for_each(|&(at, value)| put(at, value));
        let source = Source::Bytes(bytes.into());
        Image::new(&[], vec![Segment { start: BASE, end: BASE + 0x400, source }]).unwrap()
    }

    #[test]
    fn a_block_with_hooks_begins_behind_them() {
        const HOOKED: u64 = u64::from_le_bytes(*b"m\xfd\xfd\xfd\xfd\xfd\xfd\xfd");
        // The first block has none, the second has one, and the third has two.
        let image = chunks(&[(0x58, HOOKED), (0x98, HOOKED), (0xa8, HOOKED)]);
        let parts = [(BASE, BASE + 0x400)];
        let process = Process { chunks: &parts, ..Process::of(Release { minor: 13 }) };
        let mut search = Search::new(&image, &process);
        let found: Vec<u64> = (0x10..0xd0).step_by(8).filter(|&at| search.block(BASE + at).is_some()).collect();
        assert_eq!(found, [0x10, 0x60, 0xb0]);
        assert_eq!(search.block(BASE + 0x60), Some((BASE + 0x60, BASE + 0x88)));
    }

    #[test]
    fn nodes_are_found_in_any_order() {
        let sorted: Vec<u64> = (1..100).map(|n| n * 32).collect();
        let mut nodes = Nodes { sorted: &sorted, place: 0 };
        for at in [32, 64, 65, 96, 3168, 3169, 16, 0, 1600, 1616, 1632, 32, 9999, 3168] {
            assert_eq!(nodes.next_is(at), sorted.contains(&at), "{at}");
        }
        assert!(!Nodes { sorted: &[], place: 0 }.next_is(7));
    }
}
