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

const PREV_INUSE: u64 = 1;
/// `IS_MMAPPED` and `NON_MAIN_ARENA`: no chunk of the main arena has them.
const ELSEWHERE: u64 = 6;
const FLAGS: u64 = 7;
/// So many consistent headers must follow each other where a stretch is believed to begin.
const CHAIN: usize = 16;
const PAGE: u64 = 4096;

/// Where a chain of chunks ends.
enum End {
    /// At the top chunk.
    Top,
    /// At two fenceposts: the address behind them.
    Fence(u64),
    /// At a header that is not valid, or not in the dump.
    Broken(u64),
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
        let seen = match chunks.follow(at) {
            End::Top => break,
            End::Fence(end) | End::Broken(end) => end,
        };
        while foreign.next_if(|&(from, _)| from < seen).is_some() {}
        let limit = foreign.peek().map_or(top, |&(from, _)| from);
        if let Some(next) = chunks.begin(seen, limit) {
            at = next;
            continue;
        }
        if foreign.peek().is_none() {
            break;
        }
        out.push((begin, limit));
        // The next stretch begins behind this memory, or behind more of it.
        let mut found = None;
        while let (None, Some((_, behind))) = (found, foreign.next()) {
            let limit = foreign.peek().map_or(top, |&(from, _)| from);
            found = chunks.begin(behind, limit);
        }
        let Some(next) = found else { return out };
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
        let at = walked.at;
        if at == self.top {
            return Some(End::Top);
        }
        let Some([prev_size, field]) = self.header(at) else { return Some(End::Broken(at)) };
        let size = field & !FLAGS;
        if walked.before != 0 && field & PREV_INUSE == 0 && prev_size != walked.before {
            return Some(End::Broken(at));
        }
        if size == 2 * self.word {
            return Some(self.fence(at));
        }
        let fits = size >= 4 * self.word && size % GRANULE == 0 && size <= self.top.saturating_sub(at);
        if !fits || field & ELSEWHERE != 0 {
            return Some(End::Broken(at));
        }
        *walked = Walked { at: at + size, before: size };
        None
    }

    /// Returns what the fencepost at `at` ends. A second one must follow.
    fn fence(&mut self, at: u64) -> End {
        let mut end = at;
        while end < self.top && self.header(end).is_some_and(|[_, field]| field & !FLAGS == 2 * self.word) {
            end += 2 * self.word;
        }
        if end - at >= 4 * self.word {
            End::Fence(end)
        } else {
            End::Broken(at)
        }
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
            let page = at + GRANULE;
            at = match (prev_size, field) {
                // A sparse file may have a hole of terabytes.
                (0, 0) if page % PAGE < GRANULE => self.aligned(self.image.data_from(page, end).max(page)),
                _ => page,
            };
        }
        None
    }

    /// Returns the first address from `from` on whose user memory is aligned.
    fn aligned(&self, from: u64) -> u64 {
        from.saturating_add(2 * self.word).saturating_add(GRANULE - 1) / GRANULE * GRANULE - 2 * self.word
    }

    fn is_chain(&mut self, at: u64) -> bool {
        let mut walked = Walked { at, before: 0 };
        for steps in 0..CHAIN {
            match self.step(&mut walked) {
                None => (),
                Some(End::Top | End::Fence(_)) => return steps > 0,
                Some(End::Broken(_)) => return false,
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
