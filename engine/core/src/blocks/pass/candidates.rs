//! Candidate pointers: words whose value lies in some run.

use crate::blocks::number::Index;
use crate::blocks::string_room::{Headers, Place};
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

/// Bytes of a run as a scan has read them.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) image: &'a Image,
    /// Where they begin.
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
    /// How many of them may be parts of one text.
    pub(super) together: usize,
}

/// Range-tests the 64 words of part number `index` of a window, which is in the run `placed`. `allowed` masks the words
/// that can be pointers. Calls `keep` for each word that points into a run and is not text, with its number and the number
/// of the word that it names. Keeps what may be the header of a string.
#[inline(always)]
pub(super) fn pointers<I: Index, const P: usize>(
    word_map: &WordMap<P>,
    placed: &PlacedRun,
    (window, index): (Window, usize),
    headers: &mut Headers<I>,
    allowed: u64,
    dead: &[(u64, u64)],
    mut keep: impl FnMut(usize, usize),
) {
    let size = PART * WordMap::<P>::WORD as usize;
    let part = &window.bytes[index * size..(index + 1) * size];
    let first = index * size / window.together * window.together;
    let text = &window.bytes[first..(first + window.together).min(window.bytes.len())];
    let at = window.start + (index * size) as u64;
    let mut mask = in_spans::<P>(part, &word_map.spans) & allowed;
    while mask != 0 {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let value = word::<P>(part, bit);
        let own = value.wrapping_sub(placed.lo) < placed.hi - placed.lo;
        let target = if own { Some(WordMap::<P>::word_in(placed, value)) } else { word_map.word_of(value) };
        let in_text = |_: &usize| !is_text(word_map, text, (index * size - first) / size * PART + bit);
        let Some(target) = target.filter(in_text) else { continue };
        let here = at + bit as u64 * WordMap::<P>::WORD;
        if !dead.is_empty() {
            // Sorted: every object that CPython's collector tracks has two words that are no pointers of the program.
            if dead.get(dead.partition_point(|d| d.1 <= here)).is_some_and(|d| d.0 <= here) {
                continue;
            }
        }
        let place =
            Place { image: window.image, placed, bytes: window.bytes, index: index * PART + bit, address: here };
        headers.meet::<P>(place, target);
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
