//! The table of size classes (`Static::sizemap_`), in a module's data.

use super::{BLOCK, MOST_CLASSES, WORD};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;

/// The size of the least class: kAlignment, or kMinAlign.
const LEAST: [u64; 2] = [8, 16];
/// What the largest class may be: kMaxSize is 256 KiB, and 32 KiB in the build for small memory.
const LARGEST: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 22;
const MOST_PAGES: u64 = 1 << 12;
/// The most objects of a span: pages of 256 KiB with objects of 8 bytes.
const MOST_OBJECTS: u64 = 1 << 15;

/// Sizes of objects, and of the spans that hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeMap {
    /// The address of `class_to_size_`.
    pub address: u64,
    /// Bytes of an object, by size class. Class 0 has none.
    pub bytes: Vec<u64>,
    /// Pages of a span, by size class.
    pub pages: Vec<u64>,
}

/// Returns the table with so many classes that is nearest to `near`. Pages have `1 << shift` bytes.
pub fn find(
    image: &Image,
    ranges: &[(u64, u64)],
    classes: usize,
    near: u64,
    shift: u32,
    control: &Control,
) -> Option<SizeMap> {
    let mut reader = CachedReader::new(image);
    let mut best: Option<SizeMap> = None;
    for (start, end) in userland(ranges) {
        each_word(image, start, end, BLOCK, |at, word| {
            for half in [0, 4] {
                // class_to_size_ is an array of int32, and class 1 is its second entry.
                if LEAST.contains(&(word >> (8 * half) & 0xFFFF_FFFF)) && at + half >= 4 {
                    if let Some(found) = table(&mut reader, at + half - 4, classes, shift) {
                        if best.as_ref().is_none_or(|b| b.address.abs_diff(near) > found.address.abs_diff(near)) {
                            best = Some(found);
                        }
                    }
                }
            }
            !control.cancelled()
        });
    }
    best
}

/// Returns the table at the address. Sizes ascend. Behind the classes in use all is zero, up to the first class's pages.
fn table(reader: &mut CachedReader<'_>, address: u64, classes: usize, shift: u32) -> Option<SizeMap> {
    let mut bytes = Vec::with_capacity(classes);
    for class in 0..classes as u64 {
        let size = reader.word(address + 4 * class, 4)?;
        if class == 0 && size != 0 || bytes.last().is_some_and(|&last| size <= last) {
            return None;
        }
        bytes.push(size);
    }
    if !LARGEST.contains(bytes.last()?) {
        return None;
    }
    let behind = address + 4 * classes as u64;
    let last = address + 4 * MOST_CLASSES as u64;
    let first = (behind.next_multiple_of(WORD)..=last.next_multiple_of(WORD))
        .step_by(WORD as usize)
        .find(|&at| reader.word(at + WORD, WORD) != Some(0))?;
    let mut pages = Vec::with_capacity(classes);
    for (class, &size) in bytes.iter().enumerate() {
        let length = reader.word(first + WORD * class as u64, WORD)?;
        if (class == 0) != (length == 0) || length > MOST_PAGES {
            return None;
        }
        // The last object of a span may not reach beyond it, and even the least size leaves a bounded number of objects.
        let span = length << shift;
        if class != 0 && (span < size || span / size > MOST_OBJECTS) {
            return None;
        }
        pages.push(length);
    }
    Some(SizeMap { address, bytes, pages })
}
