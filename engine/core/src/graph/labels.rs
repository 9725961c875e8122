//! Labels of single blocks: what something else than a block's own content says of its type.
//!
//! The holder of a block often says what the block is. A `std::function` has a pointer to a function of its functor's
//! type beside the pointer to the functor, and a Rust trait object has a pointer to a vtable beside the pointer to the
//! value. The caller knows the addresses of these functions and vtables. Here they are looked for in all memory in use.

use std::collections::HashMap;

use super::sums::View;
use crate::blocks::index::Block;
use crate::blocks::model::{Heap, State};
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::keys::Keys;
use crate::search::each_block;

/// Labels that a dump can make this module collect, at most.
const MOST: usize = 1 << 23;
/// Bits that tell most values apart from those that are looked for.
const FILTER: usize = 1 << 16;
/// Marks that lie no further apart are in one span.
const APART: u64 = 1 << 28;
/// Spans that are told apart: the program's, its libraries'.
const SPANS: usize = 2;
/// Words that are looked at together.
const TOGETHER: usize = 8;
/// Address ranges.
type Ranges<'a> = &'a [(u64, u64)];
/// Words behind the vtable pointer of a std::streambuf that have its locale and its places in the buffer.
const PLACES: i8 = 7;
/// Bytes that an allocator may give more than a small buffer asked for: glibc's rounding, and a rest in a chunk.
const SLACK: u64 = 48;
/// A count of references is smaller.
const MOST_REFERENCES: u64 = 1 << 31;

/// A value that says what a block is, where it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The value.
    pub value: u64,
    /// What the block is: the caller's number.
    pub label: u32,
    /// How many words from the value a pointer to the block stands. 0: the value is the second word of the block itself.
    pub pointer: i8,
    /// How many words from the value `beside` stands. 0: nothing is known.
    pub beside_at: i8,
    /// A value. Zero is as good where the value is in the block itself.
    pub beside: u64,
    /// How many words from the value the room of a buffer stands, which the block is. 0: it is no buffer.
    pub room: i8,
    /// Bytes of one of the elements that the room counts.
    pub width: u8,
}

/// A block with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The block's address.
    pub address: u64,
    /// What it is.
    pub label: u32,
    /// Its usable bytes.
    pub size: u64,
    /// Whether its first two words may be counts of references.
    pub counted: bool,
    /// The kind that its content alone gives it: see [`Labels::take_kinds`].
    pub kind: u32,
}

/// What distinguishes labels: (label, usable bytes, counted, kind).
pub type Key = (u32, u64, bool, u32);

/// The labels of a heap, by address. A block has one label at most.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The labels.
    pub rows: Vec<Label>,
    /// Blocks with two labels that differ. They are not in `rows`.
    pub conflicts: u64,
    /// Whether there were more labels than are kept.
    pub cut: bool,
}

impl Labels {
    /// Sorts the labels, and takes out blocks with several.
    pub fn new(mut rows: Vec<Label>, cut: bool) -> Labels {
        rows.sort_unstable();
        rows.dedup_by_key(|row| (row.address, row.label));
        let mut labels = Labels { rows: Vec::with_capacity(rows.len()), conflicts: 0, cut };
        for same in rows.chunk_by(|a, b| a.address == b.address) {
            match same {
                [one] => labels.rows.push(*one),
                _ => labels.conflicts += 1,
            }
        }
        labels
    }

    /// Sets the kind of each label's block.
    pub fn take_kinds(&mut self, view: &View, control: &Control) -> Result<(), Stopped> {
        let asked: Vec<u64> = self.rows.iter().map(|row| row.address).collect();
        for (row, kind) in self.rows.iter_mut().zip(view.kinds_at(&asked, control)?) {
            row.kind = kind.unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Returns how many blocks have each key, in order.
    pub fn sizes(&self) -> Vec<(Key, u64)> {
        let mut counts: HashMap<Key, u64> = HashMap::new();
        for row in &self.rows {
            *counts.entry((row.label, row.size, row.counted, row.kind)).or_default() += 1;
        }
        let mut sizes: Vec<_> = counts.into_iter().collect();
        sizes.sort_unstable();
        sizes
    }
}

/// Returns a little-endian word.
#[inline(always)]
fn load<const WORD: usize>(bytes: &[u8]) -> u64 {
    match WORD {
        4 => bytes.try_into().map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes))),
        _ => bytes.try_into().map_or(0, u64::from_le_bytes),
    }
}

/// The marks by their values.
struct Wanted<'a> {
    /// (first value, last value minus the first): most words lie outside, which takes no table to see.
    spans: [(u64, u64); SPANS],
    bits: Vec<u64>,
    marks: HashMap<u64, &'a Mark, Keys>,
}

impl<'a> Wanted<'a> {
    fn new(marks: &'a [Mark]) -> Self {
        let spans = spans(marks);
        let mut wanted = Wanted { spans, bits: vec![0; FILTER / 64], marks: HashMap::default() };
        for mark in marks.iter().filter(|mark| mark.value != 0) {
            let bit = Self::bit(mark.value);
            wanted.bits[bit / 64] |= 1 << (bit % 64);
            wanted.marks.insert(mark.value, mark);
        }
        wanted
    }

    /// Vtables are aligned, functions mostly are: the bits above tell more.
    #[inline(always)]
    fn bit(value: u64) -> usize {
        ((value >> 4 ^ value >> 20 ^ value << 12) as usize) % FILTER
    }

    /// Calls `each` with the number of each word that may be a mark.
    #[inline(always)]
    fn each<const WORD: usize>(&self, bytes: &[u8], mut each: impl FnMut(usize, &'a Mark)) {
        let [first, second] = self.spans;
        let mut look = |start: usize, part: &[u8]| {
            for (i, value) in part.chunks_exact(WORD).enumerate() {
                if let Some(mark) = self.get(load::<WORD>(value)) {
                    each(start + i, mark);
                }
            }
        };
        let parts = bytes.chunks_exact(TOGETHER * WORD);
        let rest = parts.remainder();
        for (number, part) in parts.enumerate() {
            let mut some = false;
            for value in part.chunks_exact(WORD) {
                let value = load::<WORD>(value);
                some |= value.wrapping_sub(first.0) <= first.1;
                some |= value.wrapping_sub(second.0) <= second.1;
            }
            if some {
                look(number * TOGETHER, part);
            }
        }
        look(bytes.len() / (TOGETHER * WORD) * TOGETHER, rest);
    }

    #[inline(always)]
    fn get(&self, value: u64) -> Option<&'a Mark> {
        let bit = Self::bit(value);
        if self.bits[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        self.marks.get(&value).copied()
    }
}

/// Returns the spans that hold all marks.
fn spans(marks: &[Mark]) -> [(u64, u64); SPANS] {
    let mut values: Vec<u64> = marks.iter().map(|mark| mark.value).filter(|&value| value != 0).collect();
    values.sort_unstable();
    let mut found: Vec<(u64, u64)> = values
        .chunk_by(|a, b| b - a < APART)
        .filter_map(|same| Some((*same.first()?, same.last()? - same.first()?)))
        .collect();
    while found.len() > SPANS {
        let (start, length) = found.pop().unwrap_or_default();
        if let Some(last) = found.last_mut() {
            last.1 = start + length - last.0;
        }
    }
    found.resize(SPANS, found.first().copied().unwrap_or((u64::MAX, 0)));
    [found[0], found[1]]
}

/// Finds the blocks that marks name. `inside` is the memory of the heap, `outside` that of the roots. With `direct`, only
/// direct leaks are looked at, and only for marks in a block itself.
pub fn find(
    heap: &dyn Heap,
    image: &Image,
    word: u64,
    (inside, outside): (Ranges, Ranges),
    marks: &[Mark],
    direct: bool,
    control: &Control,
) -> Result<Labels, Stopped> {
    let wanted = Wanted::new(marks);
    let mut search = Search { heap, reader: CachedReader::new(image), word, found: Vec::new() };
    if wanted.marks.is_empty() {
        return Ok(Labels::default());
    }
    if direct {
        for leak in super::stream::Stream::direct_leaks(heap) {
            let at = leak.block.address + word;
            let mark = search.reader.word(at, word).and_then(|value| wanted.get(value));
            if let Some(mark) = mark.filter(|mark| mark.pointer == 0) {
                search.meet(at, mark, true);
            }
            if leak.number % MOST == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        return Ok(Labels::new(search.found, false));
    }
    for (ranges, is_inside) in [(inside, true), (outside, false)] {
        each_block(image, ranges, 0, control, |start, bytes| {
            hw::fast(|| match word {
                4 => wanted.each::<4>(bytes, |i, mark| search.meet(start + i as u64 * word, mark, is_inside)),
                _ => wanted.each::<8>(bytes, |i, mark| search.meet(start + i as u64 * word, mark, is_inside)),
            });
            search.found.len() < MOST
        })?;
    }
    let cut = search.found.len() >= MOST;
    Ok(Labels::new(search.found, cut))
}

struct Search<'a> {
    heap: &'a dyn Heap,
    reader: CachedReader<'a>,
    word: u64,
    found: Vec<Label>,
}

impl Search<'_> {
    /// Looks at a word that has the value of a mark.
    #[cold]
    fn meet(&mut self, at: u64, mark: &Mark, inside: bool) {
        let holder = self.in_use(at);
        // A free block has what was there before. So may a header, or a part of the heap that holds no block.
        if inside && holder.is_none() {
            return;
        }
        let own = mark.pointer == 0;
        if mark.beside_at != 0 {
            let beside = self.beside(at, mark.beside_at);
            if beside != Some(mark.beside) && !(own && beside == Some(0)) {
                return;
            }
        }
        let block = match (own, holder) {
            (true, Some(holder)) if holder.address + self.word == at => holder,
            (true, _) => return,
            (false, _) => {
                let Some(address) = self.beside(at, mark.pointer) else { return };
                match self.in_use(address) {
                    Some(block) if block.address == address && holder.map(|h| h.address) != Some(address) => block,
                    _ => return,
                }
            }
        };
        if mark.room != 0 && !self.is_buffer(at, mark, block) {
            return;
        }
        let mut count = |place: u64| {
            let value = block.address.checked_add(place * self.word).and_then(|at| self.reader.word(at, self.word));
            value.is_some_and(|value| (1..MOST_REFERENCES).contains(&value))
        };
        let counted = count(0) && count(1);
        self.found.push(Label { address: block.address, label: mark.label, size: block.size, counted, kind: 0 });
    }

    /// Returns whether a block is the buffer of the std::streambuf at `at`: one of its places is the start of the block, and
    /// the block has the room that is told. (libstdc++ counts without the 0 at the end; libc++ with it, and has a flag in
    /// the lowest bit.)
    fn is_buffer(&mut self, at: u64, mark: &Mark, block: Block) -> bool {
        let Some(room) = self.beside(at, mark.room) else { return false };
        let Some(bytes) = (room & !1).checked_mul(u64::from(mark.width)) else { return false };
        let fits = bytes > 0 && bytes <= block.size && block.size - bytes <= bytes / 4 + SLACK;
        fits && (1..=PLACES).any(|place| self.beside(at, place) == Some(block.address))
    }

    fn beside(&mut self, at: u64, words: i8) -> Option<u64> {
        let at = at.checked_add_signed(i64::from(words) * self.word as i64)?;
        self.reader.word(at, self.word)
    }

    fn in_use(&self, address: u64) -> Option<Block> {
        let (block, state, ..) = self.heap.find(address)?;
        (!matches!(state, State::Free | State::Own)).then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_two_labels_has_none() {
        let row = |address, label| Label { address, label, size: 24, counted: false, kind: 0 };
        let labels = Labels::new(vec![row(64, 1), row(32, 2), row(64, 1), row(96, 1), row(96, 2)], false);
        assert_eq!(labels.rows, [row(32, 2), row(64, 1)]);
        assert_eq!(labels.conflicts, 1);
        assert_eq!(labels.sizes(), [((1, 24, false, 0), 1), ((2, 24, false, 0), 1)]);
    }

    #[test]
    fn the_filter_lets_every_mark_through() {
        let mark = |value| Mark { value, label: 0, pointer: -1, beside_at: 0, beside: 0, room: 0, width: 0 };
        let marks: Vec<Mark> = (1..2000u64).map(|i| mark(i * 0x1_2345_6789)).collect();
        let wanted = Wanted::new(&marks);
        let bytes: Vec<u8> = marks.iter().flat_map(|each| each.value.to_le_bytes()).collect();
        let mut met = Vec::new();
        wanted.each::<8>(&bytes[..8 * 1003], |i, mark| met.push((i, mark.value)));
        assert_eq!(met, (0..1003).map(|i| (i, marks[i].value)).collect::<Vec<_>>());
        assert!(marks.iter().all(|each| wanted.get(each.value) == Some(each)));
        assert!(wanted.get(0).is_none());
    }
}
