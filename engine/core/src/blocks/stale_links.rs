//! Links of free lists in blocks that nobody wrote to since they were given out.
//!
//! tcmalloc and mimalloc link free blocks by their first word, and malloc() does not clear it. In a block that is zero but
//! for such a link, nothing says who wrote the word: the allocator, or a program that links nodes.

use super::slot_blocks::Blocks;
use super::slots::{Slots, Span};
use crate::control::Control;
use crate::image::Image;

const WORD: usize = 8;
/// Bytes read at once.
const PIECE: usize = 1 << 16;

/// Returns the first words of blocks in use that are zero but for this word, where it leads to the beginning of a block
/// of the same size. The ranges are sorted and disjoint.
pub fn find(image: &Image, slots: &Slots, control: &Control) -> Vec<(u64, u64)> {
    let all = [slots];
    let blocks = Blocks::new(&all);
    let mut found = Vec::new();
    let mut buffer = vec![0u8; PIECE];
    for span in slots.spans.iter().filter(|span| span.slot >= WORD as u64) {
        if control.cancelled() {
            return Vec::new();
        }
        if span.slot > PIECE as u64 / 2 {
            for index in (0..span.count).filter(|&index| !slots.is_free(span, index)) {
                let at = start(span, index);
                let link = image.word(at, WORD).filter(|&link| leads(&blocks, link, span.slot));
                if link.is_some() && is_zero(image, at + WORD as u64, at + span.slot, &mut buffer) {
                    found.push((at, at + WORD as u64));
                }
            }
            control.add(u64::from(span.count) * span.slot);
            continue;
        }
        let step = (PIECE as u64 / span.slot) as u32;
        for first in (0..span.count).step_by(step as usize) {
            let last = first.saturating_add(step).min(span.count);
            let want = (u64::from(last - first) * span.slot) as usize;
            let got = image.read(start(span, first), &mut buffer[..want]);
            for (index, block) in (first..last).zip(buffer[..got].chunks_exact(span.slot as usize)) {
                let (head, rest) = block.split_at(WORD);
                let link = u64::from_le_bytes(head.try_into().unwrap_or_default());
                if link != 0
                    && rest.iter().all(|&byte| byte == 0)
                    && !slots.is_free(span, index)
                    && leads(&blocks, link, span.slot)
                {
                    found.push((start(span, index), start(span, index) + WORD as u64));
                }
            }
            control.add(want as u64);
        }
    }
    found.sort_unstable();
    found
}

fn start(span: &Span, index: u32) -> u64 {
    span.start.saturating_add(span.slot.saturating_mul(u64::from(index)))
}

fn leads(blocks: &Blocks<'_>, link: u64, size: u64) -> bool {
    blocks.at(link).is_some_and(|block| block.0 == link && block.1 - block.0 == size)
}

fn is_zero(image: &Image, start: u64, end: u64, buffer: &mut [u8]) -> bool {
    let mut at = start;
    while at < end {
        let want = (end - at).min(buffer.len() as u64) as usize;
        let got = image.read(at, &mut buffer[..want]);
        if got < want || buffer[..got].iter().any(|&byte| byte != 0) {
            return false;
        }
        at = image.data_from(at + want as u64, end);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    #[test]
    fn only_blocks_that_are_zero_but_for_a_link_have_one() {
        let (base, slot) = (0x10000u64, 32u64);
        let mut bytes = vec![0u8; 0x1000];
        let mut put = |at: u64, value: u64| {
            bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(0, base + slot); // a link
        put(slot, base + 2 * slot + 8); // into a block
        put(2 * slot, base + 3 * slot);
        put(2 * slot + 24, 1); // somebody wrote to the block
        put(3 * slot, base + 4 * slot); // to a free block
        put(5 * slot, base); // a free one
        let source = Source::Bytes(bytes.into());
        let image = Image::new(&[], vec![Segment { start: base, end: base + 0x1000, source }]).unwrap();
        let mut slots = Slots::default();
        slots.add(base, slot, 6, [0b11_0000]);
        assert_eq!(find(&image, &slots, &Control::default()), [(base, base + 8)]);
    }

    #[test]
    fn large_blocks_are_read_in_pieces() {
        let (base, slot) = (0x10_0000u64, 1u64 << 18);
        let mut bytes = vec![0u8; 3 << 18];
        for (at, next) in [(0, 1), (1, 2)] {
            bytes[at << 18..(at << 18) + 8].copy_from_slice(&(base + next * slot).to_le_bytes());
        }
        bytes[(2 << 18) - 1] = 1;
        let source = Source::Bytes(bytes.into());
        let image = Image::new(&[], vec![Segment { start: base, end: base + 3 * slot, source }]).unwrap();
        let mut slots = Slots::default();
        slots.add(base, slot, 3, [0]);
        assert_eq!(find(&image, &slots, &Control::default()), [(base, base + 8)]);
    }
}
