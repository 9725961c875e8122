//! What a word means that does not point into the heap.

use std::collections::HashMap;

use super::signature::{of, word_kind as k, WORDS};
use super::text::text;
use crate::cached_reader::CachedReader;
use crate::hw;
use crate::image::Image;
use crate::keys::Keys;

/// Values that point into modules whose target is remembered.
const REMEMBERED: usize = 1 << 18;
/// Those of them that are found without a search.
const AT_HAND: usize = 1 << 8;
/// Stretches of addresses that are tested before a place is searched.
const STRETCHES: usize = 4;
/// The distance from an object's vtable pointer to the object's start that is believed.
const MOST_TO_TOP: i64 = 1 << 20;
/// Bytes of a mangled name that are looked at.
const MOST_NAME: usize = 256;
/// The least length of the mangled name of a class. Fundamental types have one letter (Itanium C++ ABI, 5.1.5.2).
const LEAST_CLASS: usize = 2;

/// What a part of a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Executable.
    Code,
    /// Read-only.
    ReadOnly,
    /// Writable.
    Data,
    /// Not a module: another mapping.
    Elsewhere,
}

/// Memory outside the heap.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// What it is.
    pub section: Section,
    /// The caller's number of the module.
    pub module: u16,
    /// What is subtracted from an address to get the offset in the module.
    pub bias: u64,
}

/// Returns the stretches that the widest gaps between the sorted places leave.
fn stretches(sorted: &[Place]) -> [(u64, u64); STRETCHES] {
    let mut ends = Vec::with_capacity(sorted.len()); // of all places up to each
    for place in sorted {
        ends.push(place.end.max(ends.last().copied().unwrap_or(0)));
    }
    let mut gaps: Vec<usize> = (1..sorted.len()).collect();
    gaps.sort_by_key(|&next| std::cmp::Reverse(sorted[next].start.saturating_sub(ends[next - 1])));
    gaps.truncate(STRETCHES - 1);
    gaps.sort_unstable();
    let mut found = [(0, 0); STRETCHES];
    let mut from = 0;
    for (slot, next) in found.iter_mut().zip(gaps.into_iter().chain(sorted.len().checked_sub(1).map(|last| last + 1))) {
        *slot = (sorted[from].start, ends[next - 1].saturating_sub(sorted[from].start));
        from = next;
    }
    found
}

/// The memory outside the heap, and what was found there.
pub(super) struct Places<'a, const P: usize> {
    image: &'a Image,
    sorted: &'a [Place],
    /// Stretches of addresses as (start, length). Outside them there is no place. The last ones may be empty.
    stretches: hw::Stretches<STRETCHES>,
    known: HashMap<u64, (u64, i64), Keys>,
    /// Values that were met of late, with what is known of them.
    at_hand: Vec<(u64, (u64, i64))>,
    reader: CachedReader<'a>,
    last: usize,
}

impl<'a, const P: usize> Places<'a, P> {
    const WORD: usize = 16 / P;

    /// `sorted` is sorted by address.
    pub fn new(image: &'a Image, sorted: &'a [Place], keys: &Keys) -> Self {
        let known = HashMap::with_hasher(keys.clone());
        let at_hand = vec![(0, (0, 0)); AT_HAND]; // 0 is in no module
        Places {
            image,
            sorted,
            stretches: hw::Stretches::new(stretches(sorted)),
            known,
            at_hand,
            reader: CachedReader::new(image),
            last: 0,
        }
    }

    /// Returns what the eight words are, where no text goes on before them. Those that are special need
    /// [`Places::classify`].
    #[inline(always)]
    pub fn special(&self, words: &[u64; WORDS]) -> hw::Eight {
        hw::eight(words, &self.stretches)
    }

    /// Returns the word of the signature for the type_info of any type, or None where there is no type_info.
    pub fn type_info(&mut self, info: u64) -> Option<u64> {
        let place = self.place_of(info)?;
        self.is_type_info(info, 1).then(|| of(k::VTABLE, detail(&self.sorted[place], info)))
    }

    /// Returns the word of the signature for a value that does not point into the heap. For a vtable also the offset to
    /// top.
    #[inline(always)]
    pub fn classify(&mut self, value: u64, in_text: &mut bool) -> (u64, i64) {
        if value == 0 {
            *in_text = false;
            return (0, 1);
        }
        let low = value >> 32 == 0;
        let goes_on = std::mem::take(in_text);
        // Up to four letters may be a number, and a low address of a program without PIE.
        if low && Self::WORD == 8 {
            if let Some(more) = text(value, Self::WORD, goes_on) {
                *in_text = more;
                return (of(if goes_on { k::TEXT } else { k::SHORT }, 0), 1);
            }
        }
        if value < 1 << 16 {
            return (of(k::SMALL, 0), 1);
        }
        if let Some(place) = self.place_of(value) {
            return self.pointer(place, value);
        }
        if let Some(more) = text(value, Self::WORD, goes_on) {
            *in_text = more;
            return (of(k::TEXT, 0), 1);
        }
        (of(k::NUMBER, 0), 1)
    }

    #[inline(always)]
    fn place_of(&mut self, value: u64) -> Option<usize> {
        let inside = |place: &Place| place.start <= value && value < place.end;
        if self.sorted.get(self.last).is_some_and(inside) {
            return Some(self.last);
        }
        // Most values are numbers. The program, the libraries and the kernel's page lie far from each other.
        if !self.stretches.contain(value) {
            return None;
        }
        let index = self.sorted.partition_point(|place| place.end <= value);
        self.sorted.get(index).is_some_and(inside).then(|| {
            self.last = index;
            index
        })
    }

    /// Returns the word for a pointer to a place outside the heap.
    #[inline(always)]
    fn pointer(&mut self, place: usize, value: u64) -> (u64, i64) {
        let found = self.sorted[place];
        match found.section {
            Section::Elsewhere => (of(k::ELSEWHERE, 0), 1),
            Section::Code => (of(k::CODE, detail(&found, value)), 1),
            Section::ReadOnly | Section::Data => {
                // Tables are aligned to 8 or more.
                let slot = (value >> 3 ^ value >> 11) as usize % AT_HAND;
                let (last, known) = self.at_hand[slot];
                if last == value {
                    return known;
                }
                let known = self.search(&found, value);
                self.at_hand[slot] = (value, known);
                known
            }
        }
    }

    #[inline(never)]
    fn search(&mut self, place: &Place, value: u64) -> (u64, i64) {
        if let Some(&known) = self.known.get(&value) {
            return known;
        }
        let word = self.table_at(place, value);
        if self.known.len() < REMEMBERED {
            self.known.insert(value, word);
        }
        word
    }

    /// Tells what a pointer into a module's data points to: a vtable, a table of functions, or other data.
    fn table_at(&mut self, place: &Place, value: u64) -> (u64, i64) {
        let plain = if place.section == Section::Data { k::DATA } else { k::READ_ONLY };
        let size = Self::WORD as u64;
        if value % size != 0 || value < 2 * size {
            return (of(plain, 0), 1);
        }
        if let Some([to_top, info]) = self.reader.words::<2>(value - 2 * size, size) {
            let to_top = if size == 4 { i64::from(to_top as u32 as i32) } else { to_top as i64 };
            if to_top <= 0 && to_top > -MOST_TO_TOP && self.is_type_info(info, LEAST_CLASS) {
                return (of(k::VTABLE, detail(place, value)), to_top);
            }
        }
        let first = self.reader.word(value, size).unwrap_or(0);
        let code = self.place_of(first).is_some_and(|at| self.sorted[at].section == Section::Code);
        (if code { of(k::TABLE, detail(place, value)) } else { of(plain, 0) }, 1)
    }

    /// Returns whether a type_info may be at an address. Itanium C++ ABI, 2.9.5: it is an object with a vtable, and its
    /// second word points to the mangled name, which has `least` bytes or more.
    fn is_type_info(&mut self, info: u64, least: usize) -> bool {
        let size = Self::WORD as u64;
        let in_module = |places: &mut Self, value: u64| {
            places.place_of(value).is_some_and(|at| places.sorted[at].section != Section::Elsewhere)
        };
        if info % size != 0 || !in_module(self, info) {
            return false;
        }
        let Some([vtable, name]) = self.reader.words::<2>(info, size) else { return false };
        // On AArch64 the top bit may say that names are compared by address. A word of four bytes is all address.
        let name = name & (u64::MAX >> u32::from(size == 8));
        if !in_module(self, vtable) || !in_module(self, name) {
            return false;
        }
        let mut bytes = [0; MOST_NAME];
        let got = self.image.read(name, &mut bytes);
        let length = bytes[..got].iter().position(|&byte| byte == 0).unwrap_or(got);
        length >= least
            && bytes[..length].iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$' | b'*'))
    }
}

/// Returns the detail of a pointer into a module: its number and the offset in it. It is the same in every process that
/// the caller gives the same number for the module.
fn detail(place: &Place, value: u64) -> u64 {
    u64::from(place.module) << 40 | (value.wrapping_sub(place.bias) & ((1 << 40) - 1))
}
