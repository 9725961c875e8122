//! Which block has which object, and which objects give others a name.

use super::census::{self, given, Found};
use super::links::Links;
use super::names::{self, Holder, Reader, MOST_ENTRIES};
use super::types::{Kind, Type, Types, BORROWED};
use super::{Release, StrState};
use crate::blocks::index::Block;
use crate::blocks::model::{Heap, State};
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::graph::stream::Stream;
use crate::image::Image;
use std::collections::HashMap;

const CACHED: usize = 4096;
/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 14;
/// Bytes by which the allocators round up.
const MOST_ROUNDING: u64 = 32;
/// Sizes are rounded up to a multiple of it by pymalloc (ALIGNMENT, Objects/obmalloc.c) and by the C library.
const ROUNDING: u64 = 16;
/// Bytes of an object whose words are looked at. Of larger ones, all are noted.
const MOST_LOOKED_AT: u64 = 1024;
/// No address has more than 56 bits (of x86-64 with five levels of page tables). Text has.
const MOST_ADDRESS: u64 = 1 << 56;
/// `PyTypeObject.tp_flags`, and `Py_TPFLAGS_HEAPTYPE` in it.
const FLAGS: u64 = 168;
const HEAP_TYPE: u64 = 1 << 9;

/// What a block has of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The object.
    Whole,
    /// The items of a list.
    Items,
    /// The table of a dictionary or a set.
    Table,
    /// The values of a dictionary that shares its keys.
    Values,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Blocks, and what they have: (address, a place in `kinds`). Sorted; a block that several objects share has several.
    pub blocks: Vec<(u64, u32)>,
    /// The kinds: the address of a type, and which part of its objects.
    pub kinds: Vec<(u64, Part)>,
    /// Modules and classes, with their variables.
    pub holders: Vec<Holder>,
    /// Words that hold nothing: sorted and disjoint.
    pub borrowed: Vec<(u64, u64)>,
}

/// Looks at all blocks in use.
pub fn look(
    heap: &dyn Heap,
    image: &Image,
    release: Release,
    links: Option<&Links>,
    control: &Control,
) -> Result<Survey, Stopped> {
    let mut looking = Looking {
        heap,
        release,
        types: Types::new(CachedReader::with_slots(image, CACHED), release),
        words: CachedReader::with_slots(image, CACHED),
        numbers: HashMap::new(),
        survey: Survey::default(),
    };
    let mut holders = Vec::new();
    for each in Stream::new(heap) {
        if each.number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let (at, size) = (each.block.address, each.block.size);
        if each.state == State::Own {
            continue;
        }
        let Looking { types, words, .. } = &mut looking;
        if let Some(object) = census::object(types, words, release, links, at, size) {
            if looking.take(&each.block, &object) {
                holders.push(object);
            }
        }
    }
    looking.finish(&holders, control)
}

struct Looking<'a> {
    heap: &'a dyn Heap,
    release: Release,
    types: Types<'a>,
    words: CachedReader<'a>,
    numbers: HashMap<(u64, Part), u32>,
    survey: Survey,
}

impl Looking<'_> {
    /// Notes an object. Returns whether it holds variables.
    fn take(&mut self, block: &Block, object: &Found) -> bool {
        let Some(known) = self.types.at(object.kind) else { return false };
        self.note(block.address, object.kind, Part::Whole);
        let (at, kind) = (object.address, known.kind);
        self.take_rounding(block, object);
        if known.content != 0 {
            self.take_content(block, object, &known);
        }
        if known.without_pointers != 0 {
            self.take_all_of(at.saturating_add(known.without_pointers));
        }
        // The list of its weak references holds none of them.
        if let Some(place) = known.weak_list(at) {
            if self.word(place, 0).is_some_and(|first| first != 0) {
                self.survey.borrowed.push((place, place.saturating_add(8)));
            }
        }
        match kind {
            Kind::List => {
                self.buffer(object, 24, Part::Items);
                self.take_behind_items(at);
            }
            // Shared keys are the class's, and several dictionaries have them.
            Kind::Dict => {
                let alone = self.word(at, 32).and_then(|keys| self.word(keys, 0)) == Some(1);
                self.buffer(object, if alone { 32 } else { 40 }, if alone { Part::Table } else { Part::Values });
            }
            Kind::Set => self.buffer(object, 40, Part::Table),
            Kind::Weak => self.survey.borrowed.extend(BORROWED.map(|(from, to)| (at + from, at + to))),
            Kind::Module => return true,
            Kind::Type => {
                // Flags are an address where the heap lies below 4 GiB: that of a program that is not position-independent.
                self.survey.borrowed.push((at.saturating_add(FLAGS), at.saturating_add(FLAGS + 8)));
                return self.word(at, FLAGS).is_some_and(|flags| flags & HEAP_TYPE != 0);
            }
            _ => {}
        }
        false
    }

    /// Notes what a block has from an object's content on, if a word there looks like a pointer. The object has to fill the block:
    /// pymalloc does not move an object that loses up to a quarter of its size (pymalloc_realloc). Else it may be left over.
    fn take_content(&mut self, block: &Block, object: &Found, known: &Type) {
        let Some(start) = self.content(object.address, known) else { return };
        let end = block.address.saturating_add(block.size);
        let rest = end.saturating_sub(object.address.saturating_add(object.inside));
        if rest > MOST_ROUNDING.max(block.size / 4) {
            return;
        }
        self.take_left_over(start, end);
    }

    /// Notes what the allocator adds to the size of an object, which nobody writes.
    fn take_rounding(&mut self, block: &Block, object: &Found) {
        let end = block.address.saturating_add(block.size);
        let start = object.address.saturating_add(object.inside);
        if end.saturating_sub(start) < ROUNDING {
            self.take_left_over(start, end);
        }
    }

    /// Notes words that are no pointers, if one of them looks like one.
    fn take_left_over(&mut self, start: u64, end: u64) {
        let is_long = end.saturating_sub(start) > MOST_LOOKED_AT;
        if is_long || (start.next_multiple_of(8)..end).step_by(8).any(|at| self.looks_like_pointer(at)) {
            self.survey.borrowed.push((start, end));
        }
    }

    /// Notes what is left over behind the items of a list: list_resize() asks for more than it needs, and clears nothing
    /// (Objects/listobject.c).
    fn take_behind_items(&mut self, list: u64) {
        let (Some(count), Some(start)) = (self.word(list, 16), self.word(list, 24)) else { return };
        let Some(block) = self.given_as(start) else { return };
        let end = block.address.saturating_add(block.size);
        if count > block.size / 8 {
            return;
        }
        self.take_left_over(start.saturating_add(8 * count), end);
    }

    /// Notes that the block that a word points to has no pointers: those that seem to be there are left over.
    fn take_all_of(&mut self, place: u64) {
        if let Some(block) = self.word(place, 0).and_then(|start| self.given_as(start)) {
            self.survey.borrowed.push((block.address, block.address.saturating_add(block.size)));
        }
    }

    /// Returns the block in use that the interpreter knows by the address, or None.
    fn given_as(&mut self, start: u64) -> Option<Block> {
        let (block, ..) = self.heap.find(start).filter(|found| !found.0.free)?;
        (given(&mut self.words, block.address)? == start).then_some(block)
    }

    /// Returns where the content begins that is no pointers. Until 3.11, a str may be one that has its characters elsewhere.
    fn content(&mut self, at: u64, known: &Type) -> Option<u64> {
        let offset = match known.kind {
            Kind::Str => {
                let state = StrState::read(&mut self.words, at).filter(|state| state.compact)?;
                self.release.characters(state.ascii)
            }
            _ => known.content,
        };
        at.checked_add(offset)
    }

    fn looks_like_pointer(&mut self, at: u64) -> bool {
        self.word(at, 0).is_some_and(|value| value < MOST_ADDRESS && self.heap.find(value).is_some())
    }

    fn word(&mut self, at: u64, offset: u64) -> Option<u64> {
        self.words.word(at.checked_add(offset)?, 8)
    }

    /// Notes the block that an object points to from `offset`, unless it is the object's own.
    fn buffer(&mut self, object: &Found, offset: u64, part: Part) {
        let Some(start) = self.word(object.address, offset).filter(|&start| start != 0) else { return };
        let Some((block, ..)) = self.heap.find(start).filter(|found| !found.0.free) else { return };
        let Some(first) = given(&mut self.words, block.address) else { return };
        if start == first || (part == Part::Values && start <= first.saturating_add(64)) {
            self.note(block.address, object.kind, part);
        }
    }

    fn note(&mut self, block: u64, kind: u64, part: Part) {
        let next = self.survey.kinds.len() as u32;
        let number = *self.numbers.entry((kind, part)).or_insert(next);
        if number == next {
            self.survey.kinds.push((kind, part));
        }
        self.survey.blocks.push((block, number));
    }

    fn finish(mut self, holders: &[Found], control: &Control) -> Result<Survey, Stopped> {
        let (heap, release) = (self.heap, self.release);
        let mut reader = Reader { heap, release, types: &mut self.types, words: &mut self.words, left: MOST_ENTRIES };
        for (number, object) in holders.iter().enumerate() {
            if number % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            self.survey.holders.extend(names::holder(&mut reader, object));
        }
        self.survey.blocks.sort_unstable();
        self.survey.blocks.dedup();
        self.survey.borrowed.sort_unstable();
        // An object's content and the rounding behind it overlap. In a damaged dump, others do, too.
        self.survey.borrowed.dedup_by(|next, last| {
            let joined = next.0 <= last.1;
            if joined {
                last.1 = last.1.max(next.1);
            }
            joined
        });
        Ok(self.survey)
    }
}
