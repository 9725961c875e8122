//! The blocks of an allocator that dmods cannot walk, from the records of a recorder alone.
//!
//! Every recorded block is a single block. The memory between the blocks is unknown: it may be free, or be the
//! allocator's own, or hold a block that was not recorded. The caller decides what counts as a root there.

use super::Records;
use crate::blocks::slots::{Single, Slots};
use crate::image::Image;
use std::sync::Arc;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Bytes of a word. Only 64-bit programs have records.
const WORD: u64 = 8;
/// Every allocator gives a multiple of this from 16 bytes on: malloc's alignment.
const ALIGNMENT: u64 = 16;
/// The auditor asks an allocator other than glibc's for so many bytes at least (docs/AUDIT.md).
const LEAST: u64 = 32;
/// A page of tcmalloc; mimalloc's are smaller or rounded up to more by a class.
const PAGE: u64 = 8192;

/// The recorded blocks that lie in the allowed memory, sorted and disjoint.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The blocks: the bytes that were asked for, and the end of what the allocator may have given. Another block, or
    /// memory that is no block, begins there.
    pub slots: Arc<Slots>,
    /// How many records were left out: the block is not in the allowed memory.
    pub strays: u64,
    /// How many blocks were cut, because another begins inside.
    pub cut: u64,
}

impl Recorded {
    /// Takes the records. `inside` is the memory that may hold blocks: sorted, disjoint ranges.
    ///
    /// `classes` are the size classes of the allocator, sorted. The program may use all that its allocator gave. Without
    /// classes it does not know how much that is.
    pub fn new(records: &Records, inside: &[(u64, u64)], classes: &[u64]) -> Recorded {
        let mut found = Recorded::default();
        let mut singles = Vec::new();
        let all = records.all();
        for (index, record) in all.iter().enumerate() {
            let (start, size) = (record.address, record.size.max(1));
            let place = inside.partition_point(|range| range.1 <= start);
            let limit = inside.get(place).filter(|range| range.0 <= start).map_or(0, |range| range.1);
            if start.checked_add(size).is_none_or(|end| end > limit) {
                found.strays += 1;
                continue;
            }
            let next = all.get(index + 1).map_or(u64::MAX, |next| next.address);
            found.cut += u64::from(next < start + size);
            let end = start.saturating_add(given(size, classes)).min(limit).min(next);
            singles.push(Single { start, size: size.min(end - start), end });
        }
        found.slots = Arc::new(Slots { singles, ..Slots::default() });
        found
    }

    /// Returns the pages that hold a part of a block, adjacent ones merged. `page` is a power of two.
    pub fn areas(&self, page: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for &Single { start, end, .. } in &self.slots.singles {
            let (start, end) = (start & !(page - 1), end.checked_next_multiple_of(page).unwrap_or(end));
            match out.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => out.push((start, end)),
            }
        }
        out
    }

    /// Returns the parts of `areas` that are in no block and hold a word that points into a block.
    ///
    /// With `every`, words are not looked at: all parts are returned.
    pub fn gaps(&self, image: &Image, areas: &[(u64, u64)], every: bool) -> Vec<(u64, u64)> {
        let (mut out, mut buffer, blocks) = (Vec::new(), Vec::new(), &self.slots.singles);
        for &(start, end) in areas {
            let first = blocks.partition_point(|block| block.end <= start);
            let mut at = start;
            for block in blocks[first..].iter().take_while(|block| block.start < end) {
                self.gap(image, (at, block.start), every, &mut buffer, &mut out);
                // A word that only a part of the block covers is not among the block's words.
                at = block.end & !(WORD - 1);
            }
            self.gap(image, (at, end), every, &mut buffer, &mut out);
        }
        out
    }

    fn gap(
        &self,
        image: &Image,
        (start, end): (u64, u64),
        every: bool,
        buffer: &mut Vec<u8>,
        out: &mut Vec<(u64, u64)>,
    ) {
        if start >= end {
            return;
        }
        if every {
            return out.push((start, end));
        }
        let mut hits: Option<(u64, u64)> = None;
        let mut at = start.next_multiple_of(WORD);
        while at < end {
            let len = (end - at).min(PIECE as u64) as usize;
            buffer.clear();
            buffer.resize(len, 0);
            let read = image.read(at, buffer);
            for (index, word) in buffer[..read].chunks_exact(WORD as usize).enumerate() {
                let Ok(word) = word.try_into() else { continue };
                if self.holds(u64::from_le_bytes(word)) {
                    let here = at + index as u64 * WORD;
                    hits = Some((hits.map_or(here, |hits| hits.0), here + WORD));
                }
            }
            let stop = at + read as u64;
            at += len as u64;
            if read < len {
                // Where a file is shorter than its segment claims, the segment says nothing about what follows.
                at = image.next(stop).filter(|&next| next > stop).map_or(at, |next| next.next_multiple_of(WORD));
            }
        }
        out.extend(hits);
    }

    fn holds(&self, value: u64) -> bool {
        let blocks = &self.slots.singles;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return false };
        if value < first.start || value >= last.end {
            return false;
        }
        let place = blocks.partition_point(|block| block.end <= value);
        blocks.get(place).is_some_and(|block| block.start <= value)
    }
}

/// Returns the bytes that an allocator gave where `size` were asked for. Large blocks are rounded up to its pages.
fn given(size: u64, classes: &[u64]) -> u64 {
    if classes.is_empty() {
        return size.checked_next_multiple_of(ALIGNMENT).unwrap_or(size);
    }
    let asked = size.max(LEAST);
    let class = classes.get(classes.partition_point(|&class| class < asked));
    class.copied().or(asked.checked_next_multiple_of(PAGE)).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::super::stacks::Stacks;
    use super::super::Record;
    use super::*;
    use crate::blocks::runs::Owner;
    use crate::image::{Segment, Source};

    fn records(blocks: &[(u64, u64)]) -> Records {
        let all = blocks.iter().map(|&(address, size)| Record { address, size, ..Record::default() }).collect();
        Records::new(all, Stacks::default(), Log::default(), 0)
    }

    #[test]
    fn blocks_outside_are_left_out_and_overlapping_ones_are_cut() {
        let all =
            records(&[(0x500, 8), (0x1000, 0x40), (0x1020, 0), (0x1ff0, 0x20), (0x3000, u64::MAX), (0x3100, 0x101)]);
        let inside = [(0x1000, 0x2000), (0x3000, 0x4000)];
        let found = Recorded::new(&all, &inside, &[]);
        let block = |start, size, end| Single { start, size, end };
        let first = [block(0x1000, 0x20, 0x1020), block(0x1020, 1, 0x1030)];
        assert_eq!(found.slots.singles, [first[0], first[1], block(0x3100, 0x101, 0x3210)]);
        let wider = [first[0], block(0x1020, 1, 0x1050), block(0x3100, 0x101, 0x3240)];
        assert_eq!(Recorded::new(&all, &inside, &[48, 320]).slots.singles, wider);
        assert_eq!((found.strays, found.cut, found.slots.bytes()), (3, 1, 0x122));
        assert_eq!(found.areas(0x1000), inside);
        assert_eq!(found.slots.runs(Owner::new(1, 7), 0)[1].usable, 1);
        assert!(Recorded::new(&all, &[], &[]).slots.is_empty());
    }

    #[test]
    fn gaps_are_what_points_to_a_block_and_is_in_none() {
        let mut memory = vec![0u8; 0x1000];
        for (at, value) in [(0x0, 0x1010u64), (0x10, 0x1020), (0x40, 0x102f), (0x60, 0x1030), (0x800, 0x1010)] {
            memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let segment = Segment { start: 0x1000, end: 0x2000, source: Source::Bytes(memory.into()) };
        let image = Image::new(&[], vec![segment]).unwrap();
        let found = Recorded::new(&records(&[(0x1010, 8), (0x1020, 8)]), &[(0x1000, 0x3000)], &[]);
        let areas = found.areas(0x1000);
        assert_eq!(found.gaps(&image, &areas, false), [(0x1000, 0x1008), (0x1040, 0x1808)]);
        assert_eq!(found.gaps(&image, &areas, true), [(0x1000, 0x1010), (0x1030, 0x2000)]);
    }
}
