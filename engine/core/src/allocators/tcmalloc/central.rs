//! The central caches: an array with one entry for each size class, in a module's data.

use super::{BLOCK, MOST_CLASSES, WORD};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;

/// Offsets in a `CentralFreeList`: its size class, the heads of both lists of spans, and its slots.
const CLASS: u64 = 8;
const EMPTY: u64 = 16;
const NONEMPTY: u64 = 64;
const SLOTS: u64 = 128;
/// Offsets in a `Span`.
const NEXT: u64 = 16;
const PREV: u64 = 24;
/// An entry is padded to cache lines.
const LINE: u64 = 64;
const MOST_STRIDE: u64 = 8192;
/// The fewest size classes that are believed. Every release makes more than 40.
const FEWEST: usize = 16;
/// kMaxNumTransferEntries is 64, or 0 where tcmalloc is built for small memory.
const MOST_SLOTS: u64 = 256;

/// The array `Static::central_cache_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Central {
    /// The address of the entry of size class 0.
    pub base: u64,
    /// Bytes of an entry.
    pub stride: u64,
    /// How many size classes are in use, with class 0, which has no objects.
    pub classes: usize,
    /// How many transfer slots each entry has room for (kMaxNumTransferEntries).
    pub slots: u64,
}

impl Central {
    /// Returns where the array ends. Entries of classes that are not in use count.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.stride * MOST_CLASSES as u64)
    }

    fn entry(&self, class: usize) -> u64 {
        self.base.saturating_add(self.stride * class as u64)
    }

    /// Returns whether a thread holds the lock of the class.
    pub fn locked(&self, reader: &mut CachedReader<'_>, class: usize) -> bool {
        reader.word(self.entry(class), 4).is_some_and(|lock| lock != 0)
    }

    /// Returns up to `most` spans of the class's lists.
    pub(super) fn spans(&self, reader: &mut CachedReader<'_>, class: usize, most: usize) -> Vec<u64> {
        let mut out = Vec::new();
        for list in [NONEMPTY, EMPTY] {
            let head = self.entry(class).saturating_add(list);
            let mut at = head;
            while out.len() < most {
                match reader.word(at.wrapping_add(NEXT), WORD) {
                    Some(next) if next != head && next != 0 => at = next,
                    _ => break,
                }
                out.push(at);
            }
        }
        out
    }

    /// Returns the heads of the chains in the slots of the class that are in use, and whether their number is possible.
    pub(super) fn transfers(&self, reader: &mut CachedReader<'_>, class: usize) -> (Vec<u64>, bool) {
        let first = self.entry(class).saturating_add(SLOTS);
        let used = reader.word(first.saturating_add(self.slots * 16), 4).unwrap_or(0);
        let heads = (0..used.min(self.slots)).filter_map(|slot| reader.word(first.saturating_add(slot * 16), WORD));
        (heads.filter(|&head| head != 0).collect(), used <= self.slots)
    }
}

/// Returns the arrays of central caches in the ranges.
///
/// Both lists of size class 0 are always empty: their heads point to themselves. The entries that follow have the
/// numbers 1, 2, ..., and list heads that the first span of the list points back to.
pub fn find(image: &Image, ranges: &[(u64, u64)], control: &Control) -> Vec<Central> {
    let mut reader = CachedReader::new(image);
    let mut found: Vec<Central> = Vec::new();
    for (start, end) in userland(ranges) {
        each_word(image, start, end, BLOCK, |at, word| {
            if word.wrapping_add(NEXT) == at && word >= EMPTY {
                found.extend(central(&mut reader, word - EMPTY));
            }
            !control.cancelled()
        });
    }
    found
}

fn central(reader: &mut CachedReader<'_>, base: u64) -> Option<Central> {
    if reader.word(base + CLASS, WORD) != Some(0) {
        return None;
    }
    let alone = [EMPTY, NONEMPTY].into_iter().all(|list| {
        let head = base + list;
        [NEXT, PREV].into_iter().all(|link| reader.word(head + link, WORD) == Some(head))
    });
    if !alone {
        return None;
    }
    let stride = (1..=MOST_STRIDE / LINE).map(|lines| lines * LINE).find(|&stride| {
        let second = base + stride;
        stride > SLOTS && reader.word(second + CLASS, WORD) == Some(1) && is_linked(reader, second)
    })?;
    let is_class = |reader: &mut CachedReader<'_>, class: usize| {
        reader.word(base + stride * class as u64 + CLASS, WORD) == Some(class as u64)
    };
    let classes = (1..MOST_CLASSES).find(|&class| !is_class(reader, class)).unwrap_or(MOST_CLASSES);
    let sound = (1..classes).filter(|&class| is_linked(reader, base + stride * class as u64)).count();
    if classes < FEWEST || sound * 4 < classes * 3 {
        return None;
    }
    Some(Central { base, stride, classes, slots: slots(reader, base, stride)? })
}

fn is_linked(reader: &mut CachedReader<'_>, entry: u64) -> bool {
    [EMPTY, NONEMPTY].into_iter().all(|list| {
        let head = entry + list;
        let first = reader.word(head + NEXT, WORD).filter(|&first| first != 0);
        first.is_some_and(|first| reader.word(first.wrapping_add(PREV), WORD) == Some(head))
    })
}

/// Returns the room for slots. Behind the slots class 0 has: used slots, the present limit, and this number.
fn slots(reader: &mut CachedReader<'_>, base: u64, stride: u64) -> Option<u64> {
    let most = (stride.saturating_sub(SLOTS + 12) / 16).min(MOST_SLOTS);
    (0..=most).rev().find(|&slots| {
        let behind = base + SLOTS + slots * 16;
        reader.word(behind + 8, 4) == Some(slots) && reader.word(behind, 4).is_some_and(|used| used <= slots)
    })
}
