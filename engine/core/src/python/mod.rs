//! Objects of CPython among the blocks of a heap.
//!
//! A block holds an object if the word behind its count of references is a type, and the sizes that the type gives fit
//! into the block. Objects in free lists have no references, or a pointer in place of their count.
//!
//! * [`types`]: what a type says of its objects.
//! * [`keys`]: the tables of dictionaries; [`sizes`]: how large an object is, as `sys.getsizeof` counts.
//! * [`census`]: the objects in all blocks, by type.
//! * [`links`]: the lists of the collector.
//! * [`garbage`]: the unreachable objects that the collector would free.
//! * [`survey`]: which block has which object; [`names`]: modules, classes and their variables by name.
//! * [`unused`]: words in blocks in use that keep nothing alive.

pub mod census;
pub mod garbage;
pub mod keys;
pub mod links;
pub mod names;
pub mod sizes;
pub mod survey;
pub mod types;
pub mod unused;

use crate::cached_reader::CachedReader;

pub use census::{take, Census, Found, Row};

/// What the caller knows of the release.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// 9 for CPython 3.9.
    pub minor: u32,
}

impl Release {
    /// Returns what a word with a count of references says: the count, and whether the object lives forever.
    pub fn references(self, word: u64) -> (u64, bool) {
        let count = if self.minor >= 14 { word & 0xffff_ffff } else { word };
        (count, self.minor >= 12 && count >> 31 & 1 != 0)
    }

    /// Returns where the locals of a `_PyInterpreterFrame` begin (3.11 and later).
    pub fn locals(self) -> u64 {
        if self.minor >= 14 {
            80
        } else {
            72
        }
    }

    /// Returns where a compact str has its characters: `PyASCIIObject` and `PyCompactUnicodeObject` end there
    /// (Include/cpython/unicodeobject.h). One that is not compact has the pointer to them where the second ends.
    pub fn characters(self, ascii: bool) -> u64 {
        match (ascii, self.minor >= 12) {
            (true, true) => 40,
            (true, false) => 48,
            (false, true) => 56,
            (false, false) => 72,
        }
    }

    /// Returns where a heap type has its cached keys (`ht_cached_keys`), and the size of a heap type without them.
    pub fn cached_keys(self) -> u64 {
        match self.minor {
            ..=9 => 864,
            10..=11 => 872,
            12..=14 => 880,
            _ => 888,
        }
    }

    /// Returns where a module has its name (`PyModuleObject.md_name`, Include/internal/pycore_moduleobject.h). Until 3.14 its
    /// definition stands before its state, so that state and name lie a word further.
    pub fn module_name(self) -> u64 {
        if self.minor >= 15 {
            40
        } else {
            48
        }
    }

    /// Returns whether a generator with this `gi_frame_state` has a frame that waits or has not begun
    /// (`enum _framestate`, Include/internal/pycore_frame.h).
    pub fn waits(self, state: u8) -> bool {
        if self.minor >= 15 {
            state <= 3
        } else {
            (state as i8) < 0
        }
    }
}

/// What a str says of itself: `PyASCIIObject.state` (Include/cpython/unicodeobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrState {
    /// Bytes of a character: 1, 2 or 4. 0: a str of 3.11 or before that is not ready.
    pub width: u64,
    /// Whether the characters are in the object.
    pub compact: bool,
    /// Whether all characters are ASCII.
    pub ascii: bool,
}

impl StrState {
    /// Reads it. None: the dump lacks it.
    pub fn read(words: &mut CachedReader<'_>, at: u64) -> Option<StrState> {
        let state = words.word(at.checked_add(32)?, 4)?;
        Some(StrState { width: state >> 2 & 7, compact: state >> 5 & 1 != 0, ascii: state >> 6 & 1 != 0 })
    }
}
