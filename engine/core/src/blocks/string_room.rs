//! Words behind the text of a string.
//!
//! malloc does not clear memory, so behind the text of a string lies what an earlier block had there: pointers too, and
//! the NUL of the text may end in the middle of one. The string says how far its text reaches: three neighbouring words
//! are where the text begins, its length, and the bytes that it may grow to. libstdc++ has them in this order (`_M_p`,
//! `_M_string_length`, `_M_allocated_capacity`: bits/basic_string.h), libc++ in the contrary order, with a flag in the lowest bit of
//! the capacity (`__long` in `<string>`), Rust has the capacity before and the length behind the pointer (alloc::vec,
//! chosen by the compiler), and C programs have such structures in every order.
//!
//! [`Headers`] collects in the pass what looks like such words. [`empty`] keeps those whose block holds text of just that
//! length and is as large as an allocator makes a block for the capacity, and takes the pointers behind the text out. A
//! structure that begins with its name has its other members behind a text. So an address and a length alone say nothing.

use super::index::{each_edge, edges_of, Tables};
use super::number::Index;
use super::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::words::word;
use std::ops::Range;

/// Bytes of text, at least: libstdc++ keeps 15 in the string itself, libc++ 22.
const LEAST: u64 = 16;
/// Bytes of a capacity, less than.
const MOST: u64 = 1 << 15;
/// Bytes that a block may have beyond its capacity: a NUL and the alignment. Allocators without headers have no more than
/// one size in [`SIZES`] that is smaller, down to a half.
const SPARE: u64 = 16;
const SIZES: u64 = 5;
/// Headers between two looks at [`Control`].
const CHECK: usize = 1 << 12;

/// What may be the header of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Header<I> {
    /// The word that it points to.
    target: I,
    len: u16,
    /// The capacity, and [`ENDS`].
    room: u16,
    /// Bytes from the begin of the text to the header, if the header follows within 64 KiB.
    gap: u16,
}

/// A NUL ends the text. It does in all orders of the words but Rust's.
const ENDS: u16 = 1 << 15;

/// The headers that the pass met.
#[derive(Debug, Default)]
pub(super) struct Headers<I>(Vec<Header<I>>);

/// A word of memory that is being scanned: its address, and the memory around it as the scan has it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) image: &'a Image,
    pub(super) bytes: &'a [u8],
    /// The number of the word in `bytes`.
    pub(super) index: usize,
    pub(super) address: u64,
}

impl<I: Index> Headers<I> {
    /// Takes the words beside a pointer, which leads to the word `target`, if they may be a string's.
    #[inline(always)]
    pub(super) fn meet<const P: usize>(&mut self, place: Place, target: usize) {
        let size = WordMap::<P>::WORD as usize;
        let is_inside = place.index > 1 && (place.index + 3) * size <= place.bytes.len();
        // Most pointers have no length on either side.
        if !is_inside
            || is_length(word::<P>(place.bytes, place.index + 1))
            || is_length(word::<P>(place.bytes, place.index - 1))
        {
            self.look::<P>(place, target, is_inside);
        }
    }

    #[inline(never)]
    fn look<const P: usize>(&mut self, place: Place, target: usize, is_inside: bool) {
        let size = WordMap::<P>::WORD;
        let at = |offset: u64| match is_inside {
            true => word::<P>(place.bytes, place.index + offset as usize - 2),
            false => {
                let address = place.address.wrapping_add(offset * size).wrapping_sub(2 * size);
                place.image.word(address, size as usize).unwrap_or(0)
            }
        };
        let words = [at(0), at(1), at(2), at(3), at(4)];
        let gap = u16::try_from(place.address.wrapping_sub(words[2])).unwrap_or(u16::MAX);
        // In a list of addresses, each with its length, the one before is no capacity.
        let is_listed = [words[0], words[4]].iter().any(|&word| word >= MOST);
        for (a, b, ends) in [(3, 4, true), (1, 3, words[1] < words[3]), (0, 1, true)] {
            let (len, room) = (words[a].min(words[b]), words[a].max(words[b]));
            if is_length(len) && is_length(room) && !(a == 1 && is_listed) {
                let room = room as u16 | if ends { ENDS } else { 0 };
                self.0.push(Header { target: I::new(target), len: len as u16, room, gap });
            }
        }
    }

    /// Takes the headers of another part of the heap.
    pub(super) fn append(&mut self, mut more: Headers<I>) {
        self.0.append(&mut more.0);
    }
}

#[inline(always)]
fn is_length(word: u64) -> bool {
    word.wrapping_sub(LEAST) < MOST - LEAST
}

/// Lets the pointers behind the texts of strings lead nowhere.
pub(super) fn empty<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    image: &Image,
    headers: Headers<I>,
    control: &Control,
) -> Result<(), Stopped> {
    let Headers(mut headers) = headers;
    headers.sort_unstable_by_key(|header| header.target.get());
    let mut reader = CachedReader::new(image);
    for (number, header) in headers.iter().enumerate() {
        if number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        if let Some((granule, edges)) = behind(tables, &mut reader, header) {
            // No block has the size word of a chunk.
            tables.edges.as_mut_slice()[edges].fill(I::new(granule * P + 1));
        }
    }
    Ok(())
}

/// Returns the block of a string's text, and the edges that lie behind the text.
fn behind<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    reader: &mut CachedReader,
    header: &Header<I>,
) -> Option<(usize, Range<usize>)> {
    let granule = tables.chunk_of_word(header.target.get())?;
    // The sentinel behind the last block is free.
    let (first, end) = if tables.is_free(granule) { (0, 0) } else { edges_of(&tables.regions, granule) };
    if first == end {
        return None;
    }
    let run = tables.word_map.run_of_granule(granule);
    let kind = tables.word_map.runs[run].run.kind;
    let start = granule * P + if kind.has_chunks() { 2 } else { P };
    if kind.is_single() || start != header.target.get() {
        return None;
    }
    let block = tables.block(run, granule);
    let (len, room) = (u64::from(header.len), u64::from(header.room & !ENDS));
    // Where the text is part of the structure that has the header, more of that follows.
    let apart = u64::from(header.gap) >= block.size;
    let spare = if kind.has_chunks() { SPARE } else { SPARE.max(block.size / SIZES) };
    if !apart || room > block.size || block.size - room > spare {
        return None;
    }
    let mut offset = 0;
    each_edge(&tables.regions, granule, (first, first + 1), |word, _| offset = granule * P + 2 + word - start);
    let is_behind = offset >= len as usize / WordMap::<P>::WORD as usize;
    (is_behind && is_text::<P>(reader, block.address, len, header.room & ENDS != 0)).then_some((granule, first..end))
}

/// Returns whether memory has `len` bytes of text, and a NUL behind them if it must.
fn is_text<const P: usize>(reader: &mut CachedReader, address: u64, len: u64, ends: bool) -> bool {
    let size = WordMap::<P>::WORD;
    let mut bytes = Vec::new();
    reader.each_word(address, (len + 1).div_ceil(size), size, |_, word| {
        bytes.extend_from_slice(&word.to_le_bytes()[..size as usize]);
    });
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
    bytes.get(..len as usize).is_some_and(|text| text.iter().all(is_plain) && std::str::from_utf8(text).is_ok())
        && (!ends || bytes.get(len as usize) == Some(&0))
}
