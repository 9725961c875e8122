//! Searches in the memory of a process, for any word that leads to given places.
//!
//! * [`code_words`]: finds pointers in code that the program made at run time.

mod code_words;

pub use code_words::code_words;

use crate::control::{Control, Stopped};
use crate::hw;
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
    let mut found = Found::new(wanted, most);
    let (Some(&(low, _)), Some(&(_, high))) = (wanted.first(), wanted.last()) else { return Ok(found.places) };
    if found.is_filled() {
        return Ok(found.places);
    }
    let span = hw::Spans { lo: [low, 0], len: [high.saturating_sub(low), 0] };
    each_block(image, ranges, 0, control, |start, bytes| {
        hw::fast_work(Testing { start, bytes, word: word as usize, span: &span, found: &mut found });
        !found.is_filled()
    })?;
    Ok(found.places)
}

/// The words that were found for each of the wanted ranges.
pub(crate) struct Found<'w> {
    wanted: &'w [(u64, u64)],
    most: usize,
    /// Their addresses.
    pub places: Vec<Vec<u64>>,
    /// How many of the ranges may have more.
    unfilled: usize,
}

impl<'w> Found<'w> {
    /// Begins with none. The ranges are in order and do not overlap; of each at most `most` words are taken.
    pub fn new(wanted: &'w [(u64, u64)], most: usize) -> Self {
        let unfilled = if most == 0 { 0 } else { wanted.len() };
        Found { wanted, most, places: vec![Vec::new(); wanted.len()], unfilled }
    }

    /// Returns whether no more words are taken.
    pub fn is_filled(&self) -> bool {
        self.unfilled == 0
    }

    /// Takes a word, if its value lies in one of the ranges.
    pub fn take(&mut self, at: u64, value: u64) {
        let Some(range) = self.wanted.partition_point(|&(lo, _)| lo <= value).checked_sub(1) else { return };
        let place = &mut self.places[range];
        if value < self.wanted[range].1 && place.len() < self.most {
            place.push(at);
            self.unfilled -= usize::from(place.len() == self.most);
        }
    }
}

/// The words of a block of memory are range-tested, 64 at once where a word has 8 bytes.
struct Testing<'b, 'w> {
    start: u64,
    bytes: &'b [u8],
    word: usize,
    span: &'b hw::Spans,
    found: &'b mut Found<'w>,
}

impl hw::Work for Testing<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        let Testing { start, bytes, word, span, found } = self;
        let mut rest = 0;
        if word == 8 {
            for (part, bytes) in bytes.chunks_exact(512).enumerate() {
                let mut mask = bytes.try_into().map_or(0, |bytes| hw::in_spans_64(bytes, span));
                while mask != 0 {
                    let offset = mask.trailing_zeros() as usize * 8;
                    mask &= mask - 1;
                    found.take(start + (part * 512 + offset) as u64, little(&bytes[offset..offset + 8]));
                }
            }
            rest = bytes.len() / 512 * 512;
        }
        for (i, bytes) in bytes[rest..].chunks_exact(word).enumerate() {
            let value = little(bytes);
            if span.contains(value) {
                found.take(start + (rest + i * word) as u64, value);
            }
        }
    }
}

/// Hands out the readable bytes of the ranges in blocks of 256 KiB, each with the first `overlap` bytes of the next, until
/// `each` returns false.
pub(crate) fn each_block(
    image: &Image,
    ranges: &[(u64, u64)],
    overlap: u64,
    control: &Control,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), Stopped> {
    const BLOCK: u64 = 1 << 18; // a few such blocks fit in the second-level cache
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
