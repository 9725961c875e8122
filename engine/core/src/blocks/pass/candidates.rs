//! Candidate pointers: words whose value lies in some run.

use crate::blocks::text::is_text;
use crate::blocks::word_map::{PlacedRun, WordMap};
use crate::hw;
use crate::image::Image;
use crate::words::word;

/// Bytes read at once. A few such blocks fit in the second-level cache, and the cost of a system call is spread over many
/// bytes.
pub(super) const BLOCK: usize = 1 << 18;

/// Words that are range-tested at once.
pub(in crate::blocks) const PART: usize = 64;

/// Reads into `buffer` and fills with zeros what is not in the dump. Calls `missing` for it.
pub(super) fn fill(image: &Image, start: u64, buffer: &mut [u8], mut missing: impl FnMut(u64, u64)) {
    let mut done = image.read(start, buffer);
    while done < buffer.len() {
        let hole = start + done as u64;
        let end = start + buffer.len() as u64;
        let resume = image.covered(hole, end).iter().map(|c| c.0).find(|&c| c > hole).unwrap_or(end);
        missing(hole, resume);
        let from = (resume - start) as usize;
        buffer[done..from].fill(0);
        done = from + image.read(resume, &mut buffer[from..]);
    }
}

/// Range-tests the 64 words of part number `index` of `bytes`, which is in the run `placed` at address `at`. `allowed`
/// masks the words that can be pointers. Calls `keep` for each word that points into a run and is not text, with its
/// number and the number of the word that it names.
#[inline(always)]
pub(super) fn pointers<const P: usize>(
    word_map: &WordMap<P>,
    placed: &PlacedRun,
    at: u64,
    (bytes, index): (&[u8], usize),
    allowed: u64,
    dead: &[(u64, u64)],
    mut keep: impl FnMut(usize, usize),
) {
    let size = PART * WordMap::<P>::WORD as usize;
    let part = &bytes[index * size..(index + 1) * size];
    let mut mask = in_spans::<P>(part, &word_map.spans) & allowed;
    while mask != 0 {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let value = word::<P>(part, bit);
        let own = value.wrapping_sub(placed.lo) < placed.hi - placed.lo;
        let target = if own { Some(WordMap::<P>::word_in(placed, value)) } else { word_map.word_of(value) };
        let Some(target) = target.filter(|_| !is_text(word_map, bytes, index * PART + bit)) else { continue };
        if !dead.is_empty() {
            let here = at + bit as u64 * WordMap::<P>::WORD;
            // Sorted: every object that CPython's collector tracks has two words that are no pointers of the program.
            if dead.get(dead.partition_point(|d| d.1 <= here)).is_some_and(|d| d.0 <= here) {
                continue;
            }
        }
        keep(bit, target);
    }
}

/// Returns whether all bytes are zero. It is fast for memory in use, where a byte that is not zero comes soon.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[inline(always)]
pub(in crate::blocks) fn in_spans<const P: usize>(part: &[u8], spans: &hw::Spans) -> u64 {
    if P == 2 {
        part.try_into().map_or(0, |bytes| hw::in_spans_64(bytes, spans))
    } else {
        part.try_into().map_or(0, |bytes| hw::in_spans_32(bytes, spans))
    }
}
