//! The table of a dictionary: its indices, and entries of keys and values (Include/internal/pycore_dict.h).
//!
//! Until 3.10 it has: references, size, lookup, usable, entries; then the indices, and the entries. Since then: references;
//! the logarithms of the size and of the bytes of the indices, the kind, and the version; usable, entries.

use super::Release;
use crate::cached_reader::CachedReader;

/// `DICT_KEYS_GENERAL` and `DICT_KEYS_SPLIT`
const GENERAL: u64 = 0;
const SPLIT: u64 = 2;
/// Bytes of an entry with a hash, and of one without.
const HASHED: u64 = 24;
const PLAIN: u64 = 16;
/// More indices take more than 2^48 bytes.
const MOST_SIZE: u64 = 40;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Where it begins.
    pub start: u64,
    /// Where its entries begin. Before them are numbers, and the address of a function.
    pub entries: u64,
    /// Bytes of an entry. The value is the last word, and the key is the word before it.
    pub stride: u64,
    /// How many entries are in use, with those of keys that were deleted. A damaged table may say too much.
    pub used: u64,
    /// How many entries there is room for.
    pub room: u64,
    /// How many dictionaries and classes have the table.
    pub references: u64,
    /// Whether objects share the keys and have values of their own (since 3.11; before, no table says so).
    pub split: bool,
}

impl Keys {
    /// Reads the table at the address. None: nothing there looks like one.
    pub fn read(words: &mut CachedReader<'_>, release: Release, start: u64) -> Option<Keys> {
        let mut word = |offset: u64| words.word(start.checked_add(offset)?, 8);
        let (references, head) = (word(0)?, word(8)?);
        if release.minor >= 11 {
            let (size, index, kind) = (head & 0xff, head >> 8 & 0xff, head >> 16 & 0xff);
            if size > MOST_SIZE || index > MOST_SIZE + 3 || kind > SPLIT {
                return None;
            }
            let entries = start.checked_add(32 + (1 << index))?;
            let stride = if kind == GENERAL { HASHED } else { PLAIN };
            let (used, room, split) = (word(24)?, fraction(1 << size), kind == SPLIT);
            return Some(Keys { start, entries, stride, used, room, references, split });
        }
        if !head.is_power_of_two() || head > 1 << MOST_SIZE {
            return None;
        }
        let wide = match head {
            ..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        let entries = start.checked_add(40 + head * wide)?;
        let (used, room) = (word(32)?, fraction(head));
        Some(Keys { start, entries, stride: HASHED, used, room, references, split: false })
    }

    /// Returns its bytes (`_PyDict_KeysSize`).
    pub fn size(&self) -> u64 {
        self.entries - self.start + self.room * self.stride
    }

    /// Returns whether the first word of each entry is the hash of the key. That of an int is its value.
    pub fn hashed(&self) -> bool {
        self.stride == HASHED
    }
}

/// USABLE_FRACTION
pub fn fraction(size: u64) -> u64 {
    (size << 1) / 3
}
