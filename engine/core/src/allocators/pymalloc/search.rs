//! Finds pools in memory, and the arrays of `arena_object` that they belong to.

use super::pool::{self, Header};
use super::{Sizes, ARENA_OBJECT, HEADER};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::words::USER_END;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Bytes read at once.
const BLOCK: usize = 1 << 18;
/// How many pools of each index prove arrays, and how many of one arena: a process with several interpreters has several
/// arenas of an index.
const WITNESSES: usize = 4096;
const NEAR: usize = 2;
/// How many indices are tried for an array.
const INDICES: usize = 64;
/// How many arrays there may be: one for each interpreter (3.12 and later).
const MOST_ARRAYS: usize = 1000;

/// An arena as its `arena_object` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the arena begins.
    pub address: u64,
    /// Where the part begins that was never cut into pools.
    pub uncut: u64,
    /// How many pools are free or were never cut.
    pub free: u32,
    /// How many pools the arena has.
    pub pools: u32,
    /// The first of the list of free pools.
    pub first_free: u64,
}

impl Entry {
    /// Returns the entry in `bytes`. None: it cannot be an arena. An entry without an arena has the address 0.
    pub fn parse(bytes: &[u8; ARENA_OBJECT as usize], sizes: Sizes) -> Option<Entry> {
        let word = |at: usize| {
            let part: [u8; 8] = bytes[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(part)
        };
        let address = word(0);
        let (uncut, counts, first_free) = (word(8), word(16), word(24));
        let entry = Entry { address, uncut, free: counts as u32, pools: (counts >> 32) as u32, first_free };
        if address == 0 {
            return Some(entry);
        }
        let end = address.checked_add(sizes.arena).filter(|&end| end <= USER_END)?;
        let most = (sizes.arena / sizes.pool) as u32;
        let fits = address % 4096 == 0
            && (address..=end).contains(&uncut)
            && uncut % sizes.pool == 0
            && entry.free <= entry.pools
            && entry.pools == most - u32::from(address % sizes.pool != 0)
            && (first_free == 0 || (address..end).contains(&first_free));
        fits.then_some(entry)
    }
}

/// Returns the pools in the ranges, by the arena's index: some for each.
pub fn pools(image: &Image, ranges: &[(u64, u64)], sizes: Sizes, control: &Control) -> BTreeMap<u32, Vec<u64>> {
    let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut bytes = [0u8; HEADER as usize];
    let mut whole = vec![0u8; sizes.pool as usize];
    for &(start, end) in ranges {
        let mut at = start.next_multiple_of(sizes.pool);
        while at < end && end - at >= sizes.pool && !control.cancelled() {
            let data = image.data_from(at, end);
            if data - at >= sizes.pool {
                at = data / sizes.pool * sizes.pool;
                continue;
            }
            if image.read(at, &mut bytes) == bytes.len() {
                if let Some(header) = Header::parse(&bytes, sizes) {
                    let list = found.entry(header.arena).or_default();
                    let near = list.iter().rev().take(NEAR).filter(|&&pool| at.abs_diff(pool) < sizes.arena).count();
                    if list.len() < WITNESSES
                        && near < NEAR
                        && image.read(at, &mut whole) == whole.len()
                        && pool::free_map(at, &whole, &header, sizes).is_some()
                    {
                        list.push(at);
                    }
                }
            }
            at += sizes.pool;
        }
    }
    found.retain(|_, list| !list.is_empty());
    found
}

/// Returns where arrays of arenas begin to which words in the ranges point. `pools` are the witnesses.
///
/// An array is believed if it has, at the index that a pool says, an arena with that pool.
pub fn arrays(
    image: &Image,
    ranges: &[(u64, u64)],
    pools: &BTreeMap<u32, Vec<u64>>,
    sizes: Sizes,
    control: &Control,
) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut reader = CachedReader::new(image);
    let mut buffer = vec![0u8; BLOCK];
    for &(start, end) in ranges {
        let mut at = start.next_multiple_of(8);
        while at < end && found.len() < MOST_ARRAYS && !control.cancelled() {
            let want = (end - at).min(BLOCK as u64) as usize;
            let got = image.read(at, &mut buffer[..want]);
            for part in buffer[..got].chunks_exact(8) {
                let value = u64::from_le_bytes(part.try_into().unwrap_or_default());
                let likely = value % 16 == 0 && (4096..USER_END).contains(&value);
                if likely && seen.insert(value) && is_array(&mut reader, value, pools, sizes) {
                    found.insert(value);
                }
            }
            at += if got < want { (got as u64 + 8).next_multiple_of(4096).max(8) } else { want as u64 };
        }
    }
    found
}

fn is_array(reader: &mut CachedReader<'_>, at: u64, pools: &BTreeMap<u32, Vec<u64>>, sizes: Sizes) -> bool {
    pools.iter().take(INDICES).any(|(&index, witnesses)| {
        entry(reader, at, index, sizes).is_some_and(|entry| {
            entry.address != 0 && witnesses.iter().any(|pool| (entry.address..entry.uncut).contains(pool))
        })
    })
}

/// Returns entry `index` of the array at `at`.
pub fn entry(reader: &mut CachedReader<'_>, at: u64, index: u32, sizes: Sizes) -> Option<Entry> {
    let from = u64::from(index).checked_mul(ARENA_OBJECT).and_then(|offset| at.checked_add(offset))?;
    let mut bytes = [0u8; ARENA_OBJECT as usize];
    for (number, part) in bytes.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&reader.word(from.checked_add(number as u64 * 8)?, 8)?.to_le_bytes());
    }
    Entry::parse(&bytes, sizes)
}
