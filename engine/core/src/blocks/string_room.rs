//! Words behind the text of a string.
//!
//! malloc does not clear memory, so behind the text of a string lies what an earlier block had there: pointers too, and
//! the NUL of the text may end in the middle of one. The string says how far its text reaches. Three neighbouring words
//! are the address of the text, its length, and the bytes that it may grow to:
//!
//! * libstdc++ has them in this order (`_M_p`, `_M_string_length`, `_M_allocated_capacity`: bits/basic_string.h).
//! * libc++ has them in the contrary order, with a flag in the lowest bit of the capacity (`__long` in `<string>`).
//! * Rust has the capacity, the address and the length (as rustc 1.95 orders the fields of alloc::vec::Vec).
//! * C programs have such structures in every order.
//!
//! [`Headers`] collects in the pass what looks like such words. [`empty`] keeps those whose block holds text of just that
//! length and is as large as an allocator makes a block for the capacity, and takes the pointers behind the text out. A
//! structure that begins with its name has its other members behind a text. So an address and a length alone say nothing.

use super::index::{each_edge, edges_of, Tables};
use super::number::Index;
use super::runs::Kind;
use super::word_map::{PlacedRun, WordMap};
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::words::word;
use std::ops::Range;

/// Bytes of text, at least: libstdc++ keeps 15 in the string itself, libc++ 22.
const LEAST: u64 = 16;
/// Bytes of a capacity, less than.
const MOST: u64 = 1 << 15;
/// Bytes that a block may have beyond its capacity: a NUL and the alignment.
const SPARE: u64 = 16;
/// Where blocks have no headers, one in so many bytes may be beyond it: their sizes are as far apart.
const SIZES: u64 = 5;
/// Headers between two looks at [`Control`].
const CHECK: usize = 1 << 12;

/// What may be the header of a string.
#[derive(Clone, Copy, Debug)]
struct Header<I> {
    /// The word that it points to, and the one that has this address.
    target: I,
    word: I,
    /// The length and the capacity, below the two bits of an [`Order`].
    len: u16,
    room: u16,
}

/// The order of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The numbers follow the address.
    Behind,
    /// The numbers stand before the address.
    Before,
    /// The length stands before the address, the capacity behind it.
    Around,
    /// The capacity stands before the address, the length behind it. No NUL needs to end the text: so it is in Rust.
    Rust,
}

/// The bit above a length.
const FLAG: u16 = 1 << 15;

impl Order {
    const ALL: [Order; 4] = [Order::Behind, Order::Before, Order::Around, Order::Rust];

    /// Returns where the numbers stand, in words from the address.
    fn places(self) -> [i64; 2] {
        match self {
            Order::Behind => [1, 2],
            Order::Before => [-2, -1],
            Order::Around | Order::Rust => [-1, 1],
        }
    }
}

impl<I: Index> Header<I> {
    fn new(target: usize, word: usize, (len, room): (u64, u64), order: Order) -> Self {
        let flag = |bit: usize| if order as usize & bit != 0 { FLAG } else { 0 };
        Header { target: I::new(target), word: I::new(word), len: len as u16 | flag(1), room: room as u16 | flag(2) }
    }

    fn order(&self) -> Order {
        Order::ALL[usize::from(self.len & FLAG != 0) | usize::from(self.room & FLAG != 0) << 1]
    }

    /// Returns the length and the capacity.
    fn numbers(&self) -> (u64, u64) {
        (u64::from(self.len & !FLAG), u64::from(self.room & !FLAG))
    }
}

/// The headers that the pass met.
#[derive(Debug, Default)]
pub(super) struct Headers<I>(Vec<Header<I>>);

/// A word of a run that is being scanned: its address, and the memory around it as the scan has it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) image: &'a Image,
    pub(super) placed: &'a PlacedRun,
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
        // Most pointers have no two lengths beside them. Where blocks begin with a pointer, their size stands before it.
        let may_be = |index: usize| u8::from(is_length(word::<P>(place.bytes, index)));
        let is_header = || {
            let at = place.index;
            let (first, second, third, fourth) = (may_be(at - 2), may_be(at - 1), may_be(at + 1), may_be(at + 2));
            first & second | second & third | third & fourth != 0
        };
        if !is_inside || is_header() {
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
        // In a list of addresses, each with its length, the one before is no capacity.
        let is_listed = [words[0], words[4]].iter().any(|&word| word >= MOST);
        let around = if words[1] < words[3] { Order::Around } else { Order::Rust };
        for order in [Order::Behind, Order::Before, around] {
            let [a, b] = order.places().map(|place| words[(place + 2) as usize]);
            if is_length(a) && is_length(b) && (order != around || !is_listed) {
                let word = WordMap::<P>::word_in(place.placed, place.address);
                self.0.push(Header::new(target, word, (a.min(b), a.max(b)), order));
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
    let (granule, place) = block_of(tables, header.target.get())?;
    let (first, end) = edges_of(&tables.regions, granule);
    let run = tables.word_map.run_of_granule(granule);
    let kind = tables.word_map.runs[run].run.kind;
    if first == end || place != 0 || kind.is_single() {
        return None;
    }
    let (block, (len, room)) = (tables.block(run, granule), header.numbers());
    let spare = if kind.has_chunks() { SPARE } else { SPARE.max(block.size / SIZES) };
    if room > block.size || block.size - room > spare || !is_apart(tables, header, granule) {
        return None;
    }
    let mut offset = 0;
    let skip = start::<P>(kind) - 2; // `each_edge` counts from where a chunk's first word would be
    each_edge(&tables.regions, granule, (first, first + 1), |word, _| offset = word - skip);
    let is_behind = offset >= len as usize / WordMap::<P>::WORD as usize;
    let ends = header.order() != Order::Rust;
    (is_behind && is_text::<P>(reader, block.address, len, ends)).then_some((granule, first..end))
}

/// Returns whether the three words lie in one block in use, and that is not the one at `granule`: where a structure holds
/// its own text, more of it follows. In a heap of chunks, the word beside a block's first or last one is a size.
fn is_apart<I: Index, const P: usize>(tables: &Tables<I, P>, header: &Header<I>, granule: usize) -> bool {
    let Some((holder, place)) = block_of(tables, header.word.get()) else { return false };
    let run = tables.word_map.run_of_granule(holder);
    let words = (tables.block(run, holder).size / WordMap::<P>::WORD) as i64;
    let is_inside = |number: i64| (0..words).contains(&(place as i64 + number));
    // The tables do not say where a word of a block with a run of its own stands. Such blocks are large.
    let is_whole = tables.word_map.runs[run].run.kind.is_single() || header.order().places().into_iter().all(is_inside);
    holder != granule && is_whole
}

/// Returns the block in use that has a word, and the number of the word in the block.
fn block_of<I: Index, const P: usize>(tables: &Tables<I, P>, word: usize) -> Option<(usize, usize)> {
    // The sentinel behind the last block is free.
    let granule = tables.chunk_of_word(word).filter(|&granule| !tables.is_free(granule))?;
    let kind = tables.word_map.runs[tables.word_map.run_of_granule(granule)].run.kind;
    Some((granule, word.checked_sub(granule * P + start::<P>(kind))?))
}

/// Returns how many words of the numbering come before a block's first one.
fn start<const P: usize>(kind: Kind) -> usize {
    if kind.has_chunks() {
        2
    } else {
        P
    }
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
