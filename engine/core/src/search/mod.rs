//! Searches in the memory of a process, for any word that leads to given places.
//!
//! * [`code_words`]: finds pointers in code that the program made at run time.

mod code_words;

pub use code_words::code_words;

use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::words::{grow_to, USER_END};

/// Finds pointers to many places in one pass. For each of the `wanted` ranges `[lo, hi)`, returns the addresses of at
/// most `most` words whose value lies in it. The ranges must be in order and must not overlap.
pub fn pointers(
    image: &Image,
    ranges: &[(u64, u64)],
    word: u64,
    wanted: &[(u64, u64)],
    most: usize,
    control: &Control,
) -> Result<Vec<Vec<u64>>, Stopped> {
    let mut found = vec![Vec::new(); wanted.len()];
    let mut unfilled = if most == 0 { 0 } else { wanted.len() };
    let (Some(&(low, _)), Some(&(_, high))) = (wanted.first(), wanted.last()) else { return Ok(found) };
    each_block(image, ranges, 0, control, |start, bytes| {
        for (i, value) in bytes.chunks_exact(word as usize).enumerate() {
            let value = <[u8; 8]>::try_from(value).map_or_else(|_| little(value), u64::from_le_bytes);
            if value < low || value >= high {
                continue;
            }
            let Some(place) = wanted.partition_point(|&(lo, _)| lo <= value).checked_sub(1) else { continue };
            if value < wanted[place].1 && found[place].len() < most {
                found[place].push(start + i as u64 * word);
                unfilled -= usize::from(found[place].len() == most);
            }
        }
        unfilled > 0
    })?;
    Ok(found)
}

/// Hands out the readable bytes of the ranges in blocks of 1 MiB, each with the first `overlap` bytes of the next, until
/// `each` returns false.
pub(crate) fn each_block(
    image: &Image,
    ranges: &[(u64, u64)],
    overlap: u64,
    control: &Control,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), Stopped> {
    const BLOCK: u64 = 1 << 20;
    let mut buffer = Vec::new();
    for &(start, end) in ranges {
        for (from, to) in image.usable(start, end) {
            let mut at = from.next_multiple_of(8);
            while at < to {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let want = (to - at).min(BLOCK + overlap) as usize;
                grow_to(&mut buffer, want);
                let got = image.read(at, &mut buffer[..want]);
                if !each(at, &buffer[..got]) {
                    return Ok(());
                }
                // Skip holes. Whole pages keep the blocks aligned.
                let step = BLOCK.max(image.data_from(at + BLOCK, to).saturating_sub(at) & !0xfff);
                control.add(step.min(to - at));
                at += step;
            }
        }
    }
    Ok(())
}

/// Returns the parts of the ranges in the lower half of the address space, where processes live. Sums of such addresses
/// do not overflow.
pub(crate) fn userland(ranges: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> + '_ {
    ranges.iter().map(|&(start, end)| (start, end.min(USER_END))).filter(|(start, end)| start < end)
}

/// Returns the number of up to eight bytes, the lowest first.
pub(crate) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
