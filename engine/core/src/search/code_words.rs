//! Finds the pointers in machine code that a program made at run time.
//!
//! An instruction of x86 holds a pointer at any byte: `mov r64, imm64` has it two bytes after its start.

use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::search::each_block;

/// The most that a crafted dump can make this module collect.
const MOST: usize = 1 << 20;

/// Returns (address, value) of the values at unaligned bytes of `ranges` that lie in one of the `wanted` ranges. Those must
/// be in order and must not overlap. Words at a multiple of their size are not among them.
pub fn code_words(
    image: &Image,
    ranges: &[(u64, u64)],
    word: usize,
    wanted: &[(u64, u64)],
    control: &Control,
) -> Result<Vec<(u64, u64)>, Stopped> {
    let (Some(&(low, _)), Some(&(_, high))) = (wanted.first(), wanted.last()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    each_block(image, ranges, word as u64 - 1, control, |start, bytes| {
        for (offset, window) in bytes.windows(word).enumerate() {
            let value = window.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            if value < low || value >= high || (start + offset as u64) % word as u64 == 0 {
                continue;
            }
            let inside = wanted.partition_point(|&(lo, _)| lo <= value).checked_sub(1);
            if inside.is_some_and(|place| value < wanted[place].1) && found.len() < MOST {
                found.push((start + offset as u64, value));
            }
        }
        found.len() < MOST
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x7f00_0000_0000;
    const BLOCK: usize = 1 << 18;

    #[test]
    fn finds_pointers_at_every_unaligned_byte_also_across_blocks() {
        let wanted = [(0x5500_0000_1000, 0x5500_0000_2000), (0x5500_0000_8000, 0x5500_0000_9000)];
        let mut bytes = vec![0x90; 2 * BLOCK];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(1, 0x5500_0000_1008);
        put(16, 0x5500_0000_1010); // aligned: the search for words finds it
        put(BLOCK - 3, 0x5500_0000_8fff);
        put(BLOCK + 101, 0x5500_0000_3000); // between the two
        put(2 * BLOCK - 9, 0x5500_0000_1ff8);
        let end = BASE + bytes.len() as u64;
        let segment = Segment { start: BASE, end, source: Source::Bytes(bytes.into()) };
        let image = Image::new(&[], vec![segment]).expect("no files");
        let ranges = [(BASE, BASE + 2 * BLOCK as u64)];
        let found = code_words(&image, &ranges, 8, &wanted, &Control::default()).unwrap();
        let expected = [(1, 0x5500_0000_1008), (BLOCK - 3, 0x5500_0000_8fff), (2 * BLOCK - 9, 0x5500_0000_1ff8)];
        assert_eq!(found, expected.map(|(at, value)| (BASE + at as u64, value)));
        assert!(code_words(&image, &ranges, 8, &[], &Control::default()).unwrap().is_empty());
    }
}
