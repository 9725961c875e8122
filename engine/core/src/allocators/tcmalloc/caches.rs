//! The caches of threads (`ThreadCache`). They are linked with each other, also those of threads that a fork left behind.

use super::sizes::SizeMap;
use super::{BLOCK, MOST_CLASSES, WORD};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;
use std::collections::{BTreeSet, HashSet};

/// Bytes of a `FreeList`: list, length, three more counts, and the size of its objects.
const LIST: u64 = 32;
const LENGTH: u64 = 8;
const SIZE: u64 = 24;
/// Behind the lists: sizes, the sampler, the thread, and the links to the next cache and the previous one.
const BEHIND: u64 = 256;
const MOST: usize = 1 << 20;

/// A cache of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its address.
    pub address: u64,
    /// The first object and the length of each list that is not empty, by size class.
    pub lists: Vec<(u8, u64, u64)>,
}

/// Returns the bytes that a cache takes at least.
pub(super) fn size(sizes: &SizeMap) -> u64 {
    LIST * sizes.bytes.len() as u64
}

/// Returns the caches that the words of the ranges point to, and those that hang together with them.
pub(super) fn find(image: &Image, ranges: &[(u64, u64)], sizes: &SizeMap, control: &Control) -> Vec<Cache> {
    let mut reader = CachedReader::with_slots(image, 256);
    let mut found: BTreeSet<u64> = BTreeSet::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut pending = Vec::new();
    for (start, end) in userland(ranges) {
        each_word(image, start, end, BLOCK, |_, word| {
            if word % WORD == 0 && seen.insert(word) && is_cache(&mut reader, sizes, word) && found.insert(word) {
                pending.push(word);
            }
            !control.cancelled()
        });
    }
    while let Some(cache) = pending.pop() {
        let from = cache.saturating_add(size(sizes));
        let to = cache.saturating_add(LIST * MOST_CLASSES as u64 + BEHIND);
        for at in (from..to).step_by(WORD as usize) {
            let Some(word) = reader.word(at, WORD) else { break };
            let new = word % WORD == 0 && word > WORD && !found.contains(&word) && found.len() < MOST;
            if new && is_cache(&mut reader, sizes, word) {
                found.insert(word);
                pending.push(word);
            }
        }
    }
    found.into_iter().map(|address| cache(&mut reader, sizes, address)).collect()
}

/// Returns whether the lists at the address have the sizes of the classes.
fn is_cache(reader: &mut CachedReader<'_>, sizes: &SizeMap, address: u64) -> bool {
    (1..sizes.bytes.len()).all(|class| {
        let at = address.checked_add(LIST * class as u64 + SIZE);
        at.and_then(|at| reader.word(at, 4)) == Some(sizes.bytes[class])
    })
}

fn cache(reader: &mut CachedReader<'_>, sizes: &SizeMap, address: u64) -> Cache {
    let lists = (1..sizes.bytes.len()).filter_map(|class| {
        let at = address + LIST * class as u64;
        let (first, length) = (reader.word(at, WORD)?, reader.word(at + LENGTH, 4)?);
        (first != 0 || length != 0).then_some((class as u8, first, length))
    });
    Cache { address, lists: lists.collect() }
}
