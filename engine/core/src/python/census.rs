//! The objects in all blocks, by type.

use super::links::Links;
use super::sizes::Reader;
use super::types::Types;
use super::Release;
use crate::blocks::slots::Slots;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use std::collections::HashMap;

/// Blocks of 4 KiB that are kept: objects point all over the heap.
const CACHED: usize = 4096;
/// No program lies below (vm.mmap_min_addr is lower, but linkers begin here).
const LEAST_ADDRESS: u64 = 0x40_0000;
/// The places in a block where an object may begin: behind the links of the collector, and behind two more pointers.
const STARTS: [u64; 3] = [0, 16, 32];
/// Bytes that a debug hook puts before memory (Objects/obmalloc.c, `_PyMem_DebugRawAlloc`).
pub const HOOK: u64 = 16;
/// Bytes that it puts behind memory, without a serial number.
pub const HOOK_BEHIND: u64 = 8;
/// A large block has two: see [`given`].
pub const MOST_HOOKS: u64 = 2;

/// The objects of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// How many there are.
    pub count: u64,
    /// Their bytes, as `sys.getsizeof` counts.
    pub bytes: u64,
    /// How many of them the collector tracks.
    pub tracked: u64,
    /// The bytes of those.
    pub tracked_bytes: u64,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its address.
    pub address: u64,
    /// The address of its type.
    pub kind: u64,
    /// Its bytes, as `sys.getsizeof` counts.
    pub size: u64,
    /// Its bytes in its own block, from its address on.
    pub inside: u64,
    /// Whether the collector tracks it.
    pub tracked: bool,
}

/// The objects by the addresses of their types, and those of the types that were asked for.
#[derive(Debug, Default)]
pub struct Census {
    /// The sums.
    pub rows: HashMap<u64, Row>,
    /// The objects of the types that were asked for, in the order of the blocks.
    pub found: Vec<Found>,
    /// How many blocks were looked at.
    pub blocks: u64,
}

/// Looks at all blocks. `blocks` are (address, usable bytes) beside those of `slots`. Objects of the `wanted` types are
/// listed, `most` of them. `links` are the collector's.
pub fn take(
    image: &Image,
    slots: &[&Slots],
    blocks: &[(u64, u64)],
    release: Release,
    links: Option<&Links>,
    (wanted, most): (&[u64], usize),
    control: &Control,
) -> Census {
    let mut census = Census::default();
    let mut types = Types::outside(CachedReader::with_slots(image, CACHED), release, slots);
    let mut words = CachedReader::with_slots(image, CACHED);
    let mut look = |address: u64, size: u64| {
        census.blocks += 1;
        let Some(found) = object(&mut types, &mut words, release, links, address, size) else { return };
        let row = census.rows.entry(found.kind).or_default();
        row.count += 1;
        row.bytes = row.bytes.saturating_add(found.size);
        if found.tracked {
            row.tracked += 1;
            row.tracked_bytes = row.tracked_bytes.saturating_add(found.size);
        }
        if census.found.len() < most && wanted.contains(&found.kind) {
            census.found.push(found);
        }
    };
    for slots in slots {
        for span in &slots.spans {
            if control.cancelled() {
                break;
            }
            for index in (0..span.count).filter(|&index| !slots.is_free(span, index)) {
                look(span.start.saturating_add(u64::from(index).saturating_mul(span.slot)), span.slot);
            }
            control.add(span.slot.saturating_mul(u64::from(span.count)));
        }
        for single in &slots.singles {
            look(single.start, single.size);
        }
    }
    for &(address, size) in blocks {
        if control.cancelled() {
            break;
        }
        look(address, size);
    }
    census
}

/// Returns the object that the block holds, or None.
pub fn object(
    types: &mut Types<'_>,
    words: &mut CachedReader<'_>,
    release: Release,
    links: Option<&Links>,
    block: u64,
    size: u64,
) -> Option<Found> {
    let skip = given(words, block)? - block;
    for start in STARTS {
        let at = block.checked_add(start + skip)?;
        let room = size.checked_sub(start + skip).filter(|&room| room >= 16)?;
        let Some(found) = object_at(types, words, release, (at, start), room) else { continue };
        if found.tracked && links.is_some_and(|links| !links.is_node(at - 16)) {
            continue; // words that look like an object
        }
        return Some(found);
    }
    None
}

/// Returns where the memory begins that the interpreter was given of a block.
///
/// The hooks of PYTHONMALLOC=debug put 16 bytes before it: a size, a letter and 7 bytes of 0xfd (Objects/obmalloc.c,
/// _PyMem_DebugRawAlloc). A block of more than 512 bytes has them twice: pymalloc asks PyMem_RawMalloc() for it, which has
/// hooks of its own.
pub fn given(words: &mut CachedReader<'_>, block: u64) -> Option<u64> {
    let mut at = block;
    for _ in 0..MOST_HOOKS {
        if words.word(at.checked_add(8)?, 8).is_some_and(is_hook) {
            at = at.checked_add(HOOK)?;
        }
    }
    Some(at)
}

/// Returns whether the word before memory is that of a debug hook: a letter and 7 bytes of 0xfd.
pub fn is_hook(word: u64) -> bool {
    word >> 8 == 0xfd_fdfd_fdfd_fdfd
}

/// Returns the object at `at`, `start` bytes behind what its type puts before it. It has at most `room` bytes.
pub fn object_at(
    types: &mut Types<'_>,
    words: &mut CachedReader<'_>,
    release: Release,
    (at, start): (u64, u64),
    room: u64,
) -> Option<Found> {
    let kind = words.word(at.checked_add(8)?, 8)?;
    let known = types.at(kind).filter(|known| known.before == start)?;
    if !words.word(at, 8).is_some_and(|count| is_referenced(words.image(), count, release)) {
        return None;
    }
    let bytes = Reader { words, release }.size(at, &known).filter(|bytes| bytes.inside <= room)?;
    let tracked = known.gc && words.word(at - 16, 8).is_some_and(|next| next != 0);
    Some(Found { address: at, kind, size: start + bytes.inside + bytes.outside, inside: bytes.inside, tracked })
}

/// Returns whether a count of references is that of an object in use. In free lists it is 0, or a link (3.14).
fn is_referenced(image: &Image, count: u64, release: Release) -> bool {
    // The addresses of a program at a fixed place look like counts.
    if (LEAST_ADDRESS..1 << 31).contains(&count) && image.read(count, &mut [0]) == 1 {
        return false;
    }
    match release.minor {
        14.. => count as u32 != 0 && count >> 32 & 0xffff == 0,
        12 | 13 => count > 0 && count <= u64::from(u32::MAX),
        _ => count > 0 && count < 1 << 40,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x10000;

    /// Memory with `type` at BASE, a type "float" behind it, and its objects.
    fn image(words: &[(u64, u64)]) -> Image {
        let mut bytes = vec![0u8; 0x4000];
        let mut put = |at: u64, value: u64| {
            bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        };
        for (at, basic, flags, name) in [(0, 880, 1 << 31 | 1 << 14, 0x3000), (0x800, 24, 0, 0x3010)] {
            for (offset, value) in [(0, 1), (8, BASE), (24, BASE + name), (32, basic), (168, flags)] {
                put(at + offset, value);
            }
        }
        put(0x3000, u64::from_le_bytes(*b"type\0\0\0\0"));
        put(0x3010, u64::from_le_bytes(*b"float\0\0\0"));
        for &(at, value) in words {
            put(at, value);
        }
        let source = Source::Bytes(bytes.into());
        Image::new(&[], vec![Segment { start: BASE, end: BASE + 0x4000, source }]).unwrap()
    }

    fn floats(words: &[(u64, u64)], minor: u32) -> Vec<u64> {
        let memory = image(words);
        let blocks: Vec<(u64, u64)> = (0..4).map(|n| (BASE + 0x2000 + n * 32, 32)).collect();
        let census = take(&memory, &[], &blocks, Release { minor }, None, (&[BASE + 0x800], 10), &Control::default());
        census.found.iter().map(|found| found.address).collect()
    }

    #[test]
    fn objects_in_free_lists_are_none() {
        let float = BASE + 0x800;
        let words = [(0x2000, 1), (0x2008, float), (0x2020, 0), (0x2028, float), (0x2040, 3), (0x2048, BASE + 0x2000)];
        assert_eq!(floats(&words, 11), [BASE + 0x2000]);
        let linked = [(0x2000, 0x7f12_3456_7890), (0x2008, float), (0x2020, 1 | 1 << 48), (0x2028, float)];
        assert_eq!(floats(&linked, 14), [BASE + 0x2020]);
    }

    #[test]
    fn a_type_that_is_none_gives_no_object() {
        let words = [(0x2000, 1), (0x2008, BASE + 0x801), (0x2020, 1), (0x2028, u64::MAX - 7), (0x2040, 1)];
        assert!(floats(&words, 13).is_empty());
        // A type whose objects are larger than the block.
        assert!(floats(&[(0x2000, 1), (0x2008, BASE + 0x800), (0x820, 4096)], 13).is_empty());
    }
}
