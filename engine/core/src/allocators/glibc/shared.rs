//! Divides the main arena where another allocator took memory from the program's break, too.
//!
//! Where `sbrk` returns memory that does not follow the old top, malloc closes the stretch of chunks with two fenceposts
//! and begins another stretch at the new memory (malloc.c, `sysmalloc`: "foreign sbrk", unchanged from 2.3 to 2.43). What
//! lies between is no chunk. It is another allocator's if that one proved it.

use crate::blocks::runs::GRANULE;
use crate::cached_reader::CachedReader;
use crate::image::Image;
use crate::search::userland;
use crate::words::USER_END;
use std::iter::Peekable;

const PREV_INUSE: u64 = 1;
/// `IS_MMAPPED` and `NON_MAIN_ARENA`: no chunk of the main arena has them.
const ELSEWHERE: u64 = 6;
const FLAGS: u64 = 7;
/// A stretch begins where so many headers in turn are consistent.
const CHAIN: usize = 16;
const PAGE: u64 = 4096;

/// Where a chain of chunks ends.
enum End {
    /// At the top chunk.
    Top,
    /// At two fenceposts: the address behind them.
    Fence(u64),
    /// At a header that is not valid, or not in the dump: the chunk before, whose size may be wrong, and the header.
    Broken(u64, u64),
}

/// Returns the parts of the main arena's memory `[start, top)` that have its chunks, without `foreign`: the memory of other
/// allocators, sorted. Foreign memory that lies within a chunk stays: that allocator has it from malloc.
///
/// A part begins with a chunk. It ends at `top`, or where foreign memory begins: fenceposts stand before that.
pub fn parts(image: &Image, (start, top): (u64, u64), foreign: &[(u64, u64)], word: u64) -> Vec<(u64, u64)> {
    if top > USER_END {
        return vec![(start, top)];
    }
    let mut chunks = Chunks { image, window: CachedReader::new(image), top, word };
    let foreign = userland(foreign).filter(|&(from, to)| start < to && from < top);
    let mut foreign = foreign.peekable();
    let (mut out, mut begin, mut at) = (Vec::new(), start, start);
    loop {
        let (proven, seen) = match chunks.follow(at) {
            End::Top => break,
            End::Fence(end) => (end, end),
            End::Broken(last, end) => (last, end),
        };
        while foreign.next_if(|&(from, _)| from < proven).is_some() {}
        let limit = foreign.peek().map_or(top, |&(from, _)| from);
        if let Some(next) = chunks.begin(seen, limit) {
            at = next;
            continue;
        }
        if foreign.peek().is_none() {
            break;
        }
        out.push((begin, limit));
        let Some(next) = chunks.begin_behind(&mut foreign) else { return out };
        (begin, at) = (next, next);
    }
    out.push((begin, top));
    out
}

struct Chunks<'a> {
    image: &'a Image,
    window: CachedReader<'a>,
    top: u64,
    word: u64,
}

impl Chunks<'_> {
    /// Follows the chunks from `at` to the end of their chain.
    fn follow(&mut self, at: u64) -> End {
        let mut walked = Walked { at, before: 0 };
        loop {
            if let Some(end) = self.step(&mut walked) {
                return end;
            }
        }
    }

    /// Goes to the next chunk. Returns the end of the chain if there is no other.
    fn step(&mut self, walked: &mut Walked) -> Option<End> {
        let Walked { at, before } = *walked;
        if at == self.top {
            return Some(End::Top);
        }
        let broken = Some(End::Broken(at - before, at));
        let Some([prev_size, field]) = self.header(at) else { return broken };
        let size = field & !FLAGS;
        if before != 0 && field & PREV_INUSE == 0 && prev_size != before {
            return broken;
        }
        if size == 2 * self.word {
            return self.fence(at).map(End::Fence).or(broken);
        }
        let fits = size >= 4 * self.word && size % GRANULE == 0 && size <= self.top.saturating_sub(at);
        if !fits || field & ELSEWHERE != 0 {
            return broken;
        }
        *walked = Walked { at: at + size, before: size };
        None
    }

    /// Returns the end of the fenceposts at `at`. There must be two.
    fn fence(&mut self, at: u64) -> Option<u64> {
        let mut end = at;
        while end < self.top && self.header(end).is_some_and(|[_, field]| field & !FLAGS == 2 * self.word) {
            end += 2 * self.word;
        }
        (end - at >= 4 * self.word).then_some(end)
    }

    fn header(&mut self, at: u64) -> Option<[u64; 2]> {
        self.window.words::<2>(at, self.word)
    }

    /// Returns the first place in `[from, end)` where a chain of chunks begins.
    fn begin(&mut self, from: u64, end: u64) -> Option<u64> {
        let mut at = self.aligned(from);
        while at < end {
            let Some([prev_size, field]) = self.header(at) else {
                at = self.aligned(self.image.next((at | (PAGE - 1)) + 1)?);
                continue;
            };
            if field != 0 && self.is_chain(at) {
                return Some(at);
            }
            let next = at + GRANULE;
            at = match (prev_size, field) {
                // A sparse file may have a hole of terabytes.
                (0, 0) if next % PAGE < GRANULE => self.aligned(self.image.data_from(next, end).max(next)),
                _ => next,
            };
        }
        None
    }

    /// Returns the place where a chain of chunks begins behind the first of the foreign ranges, or behind a later one.
    /// Takes the ranges before it.
    fn begin_behind(&mut self, foreign: &mut Peekable<impl Iterator<Item = (u64, u64)>>) -> Option<u64> {
        while let Some((_, behind)) = foreign.next() {
            let limit = foreign.peek().map_or(self.top, |&(from, _)| from);
            let exact = self.aligned(behind);
            // Damage may break the chain early.
            if self.is_first(exact, limit) {
                return Some(exact);
            }
            if let Some(found) = self.begin(behind, limit) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the first address from `from` on whose user memory is aligned.
    fn aligned(&self, from: u64) -> u64 {
        from.saturating_add(2 * self.word).saturating_add(GRANULE - 1) / GRANULE * GRANULE - 2 * self.word
    }

    /// Returns whether the header at `at` is one of a first chunk that ends below `limit`.
    fn is_first(&mut self, at: u64, limit: u64) -> bool {
        let in_use = self.header(at).is_some_and(|[_, field]| field & PREV_INUSE != 0);
        let mut walked = Walked { at, before: 0 };
        in_use && self.step(&mut walked).is_none() && walked.at < limit
    }

    fn is_chain(&mut self, at: u64) -> bool {
        let mut walked = Walked { at, before: 0 };
        for steps in 0..CHAIN {
            match self.step(&mut walked) {
                None => (),
                Some(End::Top | End::Fence(_)) => return steps > 0,
                Some(End::Broken(..)) => return false,
            }
        }
        true
    }
}

/// The next chunk of a chain, and the size of the one before; 0: it is the first.
struct Walked {
    at: u64,
    before: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x5555_0000_0000;
    const CHUNKS: u64 = 20;

    /// Memory of 64 pages in which another allocator has written words that are no headers.
    struct Made {
        bytes: Vec<u8>,
        word: u64,
    }

    impl Made {
        fn new(word: u64) -> Made {
            Made { bytes: vec![0x5a; 64 * PAGE as usize], word }
        }

        fn put(&mut self, at: u64, value: u64) {
            let (at, word) = ((at - BASE) as usize, self.word as usize);
            self.bytes[at..at + word].copy_from_slice(&value.to_le_bytes()[..word]);
        }

        /// Where the chunks of a stretch begin that has the memory from that page on.
        fn first(&self, page: u64) -> u64 {
            BASE + page * PAGE + if self.word == 4 { 8 } else { 0 }
        }

        /// Returns a chunk of a stretch, or its fenceposts, which follow the last chunk.
        fn chunk(&self, (start, end): (u64, u64), number: u64) -> u64 {
            let fence = end - 4 * self.word - if self.word == 4 { 8 } else { 0 };
            let size = (fence - start) / CHUNKS / GRANULE * GRANULE;
            if number == CHUNKS {
                fence
            } else {
                start + number * size
            }
        }

        /// Puts equal chunks into the pages, and two fenceposts at the end. Returns (first chunk, end of the pages).
        fn stretch(&mut self, from: u64, to: u64) -> (u64, u64) {
            let (start, end) = (self.first(from), BASE + to * PAGE);
            for number in 0..CHUNKS {
                let at = self.chunk((start, end), number);
                self.put(at + self.word, (self.chunk((start, end), number + 1) - at) | PREV_INUSE);
            }
            let fence = self.chunk((start, end), CHUNKS);
            self.put(fence + self.word, (2 * self.word) | PREV_INUSE);
            self.put(fence + 3 * self.word, (2 * self.word) | PREV_INUSE);
            (start, end)
        }

        fn parts(&self, top: u64, foreign: &[(u64, u64)]) -> Vec<(u64, u64)> {
            let end = BASE + self.bytes.len() as u64;
            let segment = Segment { start: BASE, end, source: Source::Bytes(self.bytes.clone().into()) };
            let image = Image::new(&[], vec![segment]).expect("no files");
            parts(&image, (self.first(0), top), foreign, self.word)
        }
    }

    fn pages(from: u64, to: u64) -> (u64, u64) {
        (BASE + from * PAGE, BASE + to * PAGE)
    }

    #[test]
    fn foreign_memory_behind_fenceposts_is_cut_out() {
        for word in [8, 4] {
            let mut made = Made::new(word);
            let stretches = [made.stretch(0, 4), made.stretch(10, 14), made.stretch(20, 24), made.stretch(40, 60)];
            // Between two stretches there may be several parts, and memory that nobody owns.
            let foreign = [pages(4, 10), pages(14, 19), pages(24, 30), pages(33, 38)];
            let top = made.chunk(stretches[3], 10);
            let wanted = [stretches[0], stretches[1], stretches[2], (stretches[3].0, top)];
            assert_eq!(made.parts(top, &foreign), wanted, "words of {word} bytes");
        }
    }

    #[test]
    fn foreign_memory_within_a_chunk_stays() {
        let mut made = Made::new(8);
        let (start, end) = made.stretch(0, 64);
        let (top, inside) = (made.chunk((start, end), 19), made.chunk((start, end), 1) + 64);
        assert_eq!(made.parts(top, &[(inside, inside + 1024)]), [(start, top)]);
    }

    #[test]
    fn a_damaged_header_ends_no_part() {
        let mut made = Made::new(8);
        let (first, second) = (made.stretch(0, 4), made.stretch(10, 30));
        let (top, foreign) = (made.chunk(second, 19), [pages(4, 10), pages(30, 40)]);
        // The second header, and one near the end.
        for number in [1, 17] {
            made.put(made.chunk(second, number) + 8, 0x4141_4141_4141_4141);
            assert_eq!(made.parts(top, &foreign), [first, (second.0, top)], "chunk {number}");
        }
        // A size that leads beyond the foreign memory.
        let chunk = made.chunk(first, 5);
        made.put(chunk + 8, (made.chunk(second, 3) + 32 - chunk) | PREV_INUSE);
        assert_eq!(made.parts(top, &foreign), [first, (second.0, top)]);
    }
}
