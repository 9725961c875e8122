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

    /// Returns where a compact str has its characters (Include/cpython/unicodeobject.h, `PyASCIIObject` and
    /// `PyCompactUnicodeObject`).
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
            _ => 880,
        }
    }
}
