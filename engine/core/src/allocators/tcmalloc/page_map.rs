//! The page map: a radix tree from page number to `Span` with two or three levels. Its root is in a module's data.

use super::{BLOCK, WORD};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;
use std::collections::HashMap;

/// kPageShift: 13 by default. Configured pages have 4 KiB to 256 KiB.
const SHIFTS: [u32; 7] = [13, 12, 14, 15, 16, 17, 18];
/// kAddressBits of x86-64 and AArch64; elsewhere an address has 64 bits.
const ADDRESS_BITS: [u32; 2] = [48, 64];

/// The size of a page, and how many bits of a page number each level distinguishes, from the root down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// kPageShift.
    pub shift: u32,
    /// Bits of each level.
    pub levels: Vec<u32>,
}

impl Shape {
    /// Returns the shapes of all builds with that size of a page. (`MapSelector` in page_heap.h.)
    fn all(shift: u32) -> Vec<Shape> {
        let mut out = Vec::new();
        for address in ADDRESS_BITS {
            let bits = address - shift;
            if address == 48 {
                out.push(Shape { shift, levels: vec![bits - bits.div_ceil(2), bits.div_ceil(2)] });
            }
            let inner = bits.div_ceil(3);
            out.push(Shape { shift, levels: vec![inner, inner, bits - 2 * inner] });
        }
        out
    }

    fn below(&self, level: usize) -> u32 {
        self.levels[level + 1..].iter().sum()
    }

    fn index(&self, page: u64, level: usize) -> u64 {
        page >> self.below(level) & ((1 << self.levels[level]) - 1)
    }

    /// Returns the bytes of a table of that level.
    pub(super) fn table(&self, level: usize) -> u64 {
        WORD << self.levels[level]
    }

    /// Returns how many pages one entry of that level covers.
    pub(super) fn covers(&self, level: usize) -> u64 {
        1 << self.below(level)
    }
}

/// A page map that was found.
#[derive(Clone, Debug)]
pub struct PageMap {
    /// The address of the root table.
    pub root: u64,
    /// Its shape.
    pub shape: Shape,
}

impl PageMap {
    /// Returns what the map has for a page.
    pub fn get(&self, reader: &mut CachedReader<'_>, page: u64) -> Option<u64> {
        if page >> self.shape.below(0) >> self.shape.levels[0] != 0 {
            return None;
        }
        let mut table = self.root;
        for level in 0..self.shape.levels.len() {
            let entry = table.checked_add(WORD * self.shape.index(page, level))?;
            table = reader.word(entry, WORD).filter(|&table| table != 0)?;
        }
        Some(table)
    }
}

/// A span of the central caches' lists: its record, its first page, its pages, and a free object of it or 0.
pub(super) type Sample = (u64, u64, u64, u64);

/// Returns the page map that leads to the samples, or None.
pub(super) fn find(image: &Image, ranges: &[(u64, u64)], samples: &[Sample], control: &Control) -> Option<PageMap> {
    let mut reader = CachedReader::new(image);
    let inside = |shift: u32| {
        let with = samples.iter().filter(|s| s.3 != 0);
        let (mut right, mut all) = (0, 0);
        for sample in with {
            all += 1;
            right += usize::from((sample.3 >> shift).wrapping_sub(sample.1) < sample.2);
        }
        right * 4 >= all * 3
    };
    for shape in SHIFTS.into_iter().filter(|&shift| inside(shift)).flat_map(Shape::all) {
        // A damaged record leads nowhere: another one may be sound.
        for sample in samples.iter().take(4) {
            for root in roots(&mut reader, ranges, &shape, sample, control) {
                let map = PageMap { root, shape: shape.clone() };
                let leads = samples.iter().filter(|s| map.get(&mut reader, s.1) == Some(s.0)).count();
                if leads * 4 >= samples.len() * 3 {
                    return Some(map);
                }
            }
        }
        if control.cancelled() {
            return None;
        }
    }
    None
}

/// Returns where a root may be whose tables lead to the sample. Every word of the ranges may be its entry.
fn roots(
    reader: &mut CachedReader<'_>,
    ranges: &[(u64, u64)],
    shape: &Shape,
    &(record, page, ..): &Sample,
    control: &Control,
) -> Vec<u64> {
    let image = reader.image();
    let mut tried: HashMap<u64, bool> = HashMap::new();
    let mut out = Vec::new();
    for (start, end) in userland(ranges) {
        each_word(image, start, end, BLOCK, |at, word| {
            if word % WORD == 0 {
                let leads = *tried.entry(word).or_insert_with(|| {
                    let mut table = Some(word);
                    for level in 1..shape.levels.len() {
                        let entry = table.and_then(|table| table.checked_add(WORD * shape.index(page, level)));
                        table = entry.and_then(|entry| reader.word(entry, WORD)).filter(|&table| table != 0);
                    }
                    table == Some(record)
                });
                if leads {
                    out.extend(at.checked_sub(WORD * shape.index(page, 0)));
                }
            }
            !control.cancelled()
        });
    }
    out
}
