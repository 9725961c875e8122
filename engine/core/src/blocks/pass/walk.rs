//! Follows the chunks of a run from header to header, and finds them again after damage.

use super::candidates::BLOCK;
use super::chunk_scan::ChunkScan;
use super::report::{Anomaly, Fault};
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, GRANULE, REGION};
use crate::blocks::tcache::TcacheShape;
use crate::blocks::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::words::word_at;

/// This many consistent headers must follow each other before a place is believed to begin a chunk after damage.
const CHAIN: usize = 16;
/// How many more headers are tried, because stale headers in recycled memory form chains too.
const LONG_CHAIN: usize = 1024;
/// How many anomalies of each run are described. All are counted.
const DESCRIBED: usize = 100;
/// Memory is in a dump in pages of at least this size.
const PAGE: u64 = 4096;
const PREV_INUSE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const NON_MAIN_ARENA: u64 = 4;
const FLAGS: u64 = 7;

/// The meaning of a header.
enum Header {
    Chunk(u64),
    /// A fencepost: the old top of a stretch that the arena could not extend.
    Fence,
    Bad(Fault),
}

impl<I: Index, const P: usize> ChunkScan<'_, I, P> {
    /// Follows the chunks whose headers lie in `[start, start + bytes.len())`.
    #[inline(always)]
    pub(super) fn walk(&mut self, start: u64, bytes: &[u8], window: &mut CachedReader, watch: &[TcacheShape]) {
        let end = start + bytes.len() as u64;
        while !self.done && self.at < end {
            if self.at >= start {
                self.ordinary(start, bytes, watch);
                if self.at >= end {
                    return;
                }
            }
            let (prev_size, field) = if self.at >= start {
                let offset = (self.at - start) as usize;
                (word_at::<P>(bytes, offset), word_at::<P>(bytes, offset + Self::WORD as usize))
            } else {
                let read = |w: &mut CachedReader, a| w.word(a, Self::WORD).unwrap_or(0);
                (read(window, self.at), read(window, self.at + Self::WORD))
            };
            if self.at == self.placed.run.end {
                if self.judge_before(prev_size, field, window) {
                    self.done = true;
                    return;
                }
                continue;
            }
            match self.header(self.at, field, self.placed.run.end) {
                Header::Chunk(size) => {
                    if !self.judge_before(prev_size, field, window) {
                        continue;
                    }
                    self.set_start(self.at);
                    self.report.chunks += 1;
                    if watch.iter().any(|w| w.chunk == size) {
                        self.watch(size, start, bytes, watch);
                    }
                    self.advance(self.at + size, true);
                }
                Header::Fence => {
                    if self.judge_before(prev_size, field, window) {
                        self.fence(window);
                    }
                }
                Header::Bad(fault) => self.damage(fault, field, window),
            }
        }
    }

    /// The hot loop: ordinary chunks in use, one after the other. It stops at the first chunk that is different.
    #[inline(always)]
    fn ordinary(&mut self, start: u64, bytes: &[u8], watch: &[TcacheShape]) {
        let run = self.placed.run;
        let flags = if run.kind == Kind::Thread { PREV_INUSE | NON_MAIN_ARENA } else { PREV_INUSE };
        // A chunk of the size of a tcache, one that could be a fencepost, and one that reaches beyond the run are
        // different.
        let least = watch.iter().map(|w| w.chunk).min().unwrap_or(0);
        let span = watch.iter().map(|w| w.chunk).max().unwrap_or(0) - least;
        let is_watched = |size: u64| size.wrapping_sub(least) <= span && watch.iter().any(|w| w.chunk == size);
        let (mut at, mut before, mut before2) = (self.at, self.before, self.before2);
        let mut chunks = 0;
        while let Some(header) = bytes.get((at - start) as usize..(at - start) as usize + 2 * Self::WORD as usize) {
            let field = word_at::<P>(header, Self::WORD as usize);
            let size = field & !FLAGS;
            let plain = field & FLAGS == flags && size >= WordMap::<P>::MIN_CHUNK && size % GRANULE == 0;
            if !plain || size > run.end - at || at == run.end || is_watched(size) {
                break;
            }
            let granule = self.granule(at);
            self.regions[granule / REGION].start |= 1 << (granule % REGION);
            chunks += 1;
            (before2, before, at) = (before, at, at + size);
        }
        if chunks > 0 {
            self.report.chunks += chunks;
            (self.at, self.before, self.before2, self.before_is_chunk) = (at, before, before2, true);
        }
    }

    /// Looks at a chunk of the size of a tcache. It is reported only if its content fits, because such sizes are common.
    #[cold]
    fn watch(&mut self, size: u64, start: u64, bytes: &[u8], watch: &[TcacheShape]) {
        let user = self.at + WordMap::<P>::HEADER;
        let len = (size - Self::WORD) as usize;
        let mut copy = Vec::new();
        let content = match user.checked_sub(start).and_then(|offset| bytes.get(offset as usize..offset as usize + len))
        {
            Some(content) => content,
            None => {
                copy.resize(len, 0);
                let got = self.image.read(user, &mut copy);
                &copy[..got]
            }
        };
        if watch.iter().any(|w| w.chunk == size && w.fits::<P>(content, &self.word_map.spans)) {
            self.report.watched.push(self.at);
        }
    }

    fn advance(&mut self, to: u64, is_chunk: bool) {
        self.before2 = self.before;
        self.before = self.at;
        self.before_is_chunk = is_chunk;
        self.at = to;
    }

    /// Returns what the size field at `at` means, in a run (or the rest of it) that ends at `end`.
    #[inline(always)]
    fn header(&self, at: u64, field: u64, end: u64) -> Header {
        let size = field & !FLAGS;
        let thread = self.placed.run.kind == Kind::Thread;
        if size < WordMap::<P>::MIN_CHUNK {
            // sysmalloc (malloc.c) marks the end of a stretch with an in-use chunk of CHUNK_HDR_SZ. In a thread heap a
            // header of size 0 follows it, and both lie at the very end of the heap. Anywhere else such a size is
            // damage.
            let size_fits = size == WordMap::<P>::HEADER || (thread && size == 0 && field & PREV_INUSE != 0);
            let fence = size_fits && (!thread || end - at <= 3 * WordMap::<P>::HEADER);
            return if fence { Header::Fence } else { Header::Bad(Fault::Size) };
        }
        if size % GRANULE != 0 || size > end - at {
            return Header::Bad(Fault::Size);
        }
        // A free chunk of a thread arena does not carry NON_MAIN_ARENA (_int_free, malloc.c); no chunk of the main arena does.
        if field & IS_MMAPPED != 0 || (field & NON_MAIN_ARENA != 0 && !thread) {
            return Header::Bad(Fault::Flags);
        }
        if P == 2 && thread && field & NON_MAIN_ARENA == 0 && end - at == size + GRANULE && size == 2 * GRANULE {
            // An old top that is too small to be freed: one in-use chunk and a header of size 0 end the heap. (Where
            // words have 4 bytes, a top that is too small to be freed is smaller than this.)
            return Header::Fence;
        }
        Header::Chunk(size)
    }

    /// Judges the chunk before. It is free when PREV_INUSE is clear, and then prev_size is its size. Returns false when
    /// it turns out that no chunk begins here.
    #[inline(always)]
    pub(super) fn judge_before(&mut self, prev_size: u64, field: u64, window: &mut CachedReader) -> bool {
        if field & PREV_INUSE != 0 || !self.before_is_chunk {
            return true;
        }
        let size = self.at - self.before;
        if prev_size != size {
            return self.disagree(prev_size, window);
        }
        self.set_free(self.before);
        self.report.free_chunks += 1;
        self.report.free_bytes += size;
        true
    }

    /// Finds out why prev_size is wrong. Either the chunk before has a wrong size, which led to a stale header. Or an
    /// overrun has cleared the bit (a terminating NUL, for example) and there is no true prev_size: then the chunk is in
    /// use.
    #[cold]
    fn disagree(&mut self, prev_size: u64, window: &mut CachedReader) -> bool {
        match self.resync_before(self.before + WordMap::<P>::MIN_CHUNK, self.at, window) {
            Some(next) => {
                self.wrong_size(next, window);
                false
            }
            None => {
                self.note(Fault::PrevSize, self.at, prev_size, self.at);
                true
            }
        }
    }

    /// Notes that the chunk before has a wrong size. Within the bytes it claims, chunks begin again at `next`.
    fn wrong_size(&mut self, next: u64, window: &mut CachedReader) {
        let value = window.word(self.before + Self::WORD, Self::WORD).unwrap_or(0);
        let (chunk, before) = (self.before, self.before2);
        self.describe(Anomaly { fault: Fault::WrongSize, chunk, value, before, resumed: next });
        self.went_back = true;
        self.at = next;
    }

    /// Ends a stretch of chunks at `at`. In the main arena another may follow, after memory that another caller took with
    /// sbrk.
    #[cold]
    fn fence(&mut self, window: &mut CachedReader) {
        let end = self.placed.run.end;
        let after = (self.at + 2 * WordMap::<P>::HEADER).min(end);
        if self.placed.run.kind == Kind::Main && after < end {
            let second = window.word(after - Self::WORD, Self::WORD).unwrap_or(0);
            if second & !FLAGS != WordMap::<P>::HEADER {
                self.damage(Fault::Size, WordMap::<P>::HEADER, window);
                return;
            }
            if let Some(next) = self.resync(after, window) {
                self.pseudo(self.at, next);
                self.report.gaps.push((after, next));
                return;
            }
            self.report.gaps.push((after, end));
        }
        self.set_start(self.at);
        self.set_free(self.at);
        self.report.used_end = self.at;
        self.done = true;
    }

    /// Puts `[at, next)` into the tables as a free chunk, so that nothing else claims it. It is not a chunk.
    fn pseudo(&mut self, at: u64, next: u64) {
        self.set_start(at);
        self.set_free(at);
        self.report.holes.push(at);
        self.at = at;
        self.advance(next, false);
    }

    /// Handles an impossible header at `at`. Either it was overwritten, or the chunk before has a wrong size and led
    /// here.
    #[cold]
    fn damage(&mut self, fault: Fault, field: u64, window: &mut CachedReader) {
        let (at, end) = (self.at, self.placed.run.end);
        let missing = self.report.missing.iter().any(|m| m.0 < at + WordMap::<P>::HEADER && at < m.1);
        let fault = if missing { Fault::Missing } else { fault };
        let suspect = self.before_is_chunk && !missing;
        let inside = if suspect { self.resync_before(self.before + WordMap::<P>::MIN_CHUNK, at, window) } else { None };
        let shortened = suspect && self.shortened();
        let from = at + if shortened { GRANULE } else { WordMap::<P>::MIN_CHUNK };
        match inside.or_else(|| self.resync_after(from, window)) {
            Some(next) if next < at => self.wrong_size(next, window),
            Some(next) if shortened => {
                let value = window.word(self.before + Self::WORD, Self::WORD).unwrap_or(0);
                if let Some(last) = self.report.anomalies.last_mut() {
                    *last = Anomaly { fault: Fault::WrongSize, value, resumed: next, ..*last };
                }
                self.at = next;
            }
            next => {
                let resumed = next.unwrap_or(end);
                let before = if self.before_is_chunk { self.before } else { 0 };
                self.describe(Anomaly { fault, chunk: at, value: field, before, resumed });
                if next.is_none() || missing {
                    self.report.lost.push((at, resumed));
                    self.pseudo(at, resumed);
                    if next.is_none() {
                        self.report.used_end = at;
                        self.done = true;
                    }
                } else {
                    // What the header covered is one chunk, whatever its size field says now.
                    self.set_start(at);
                    self.report.chunks += 1;
                    self.advance(resumed, true);
                }
            }
        }
    }

    /// Returns whether the chunk at `before` lost its low bits, PREV_INUSE among them (a terminating NUL after the end of
    /// the block below). Then its size led to a place where no chunk is.
    fn shortened(&self) -> bool {
        self.report.anomalies.last().is_some_and(|last| last.fault == Fault::PrevSize && last.chunk == self.before)
    }

    /// Returns the first place from `from` on where a chain of consistent chunks begins. Memory that is not in the dump
    /// and holes of the file are skipped: a run may have gigabytes of them.
    fn resync(&self, from: u64, window: &mut CachedReader) -> Option<u64> {
        self.resync_below(from, self.placed.run.end.saturating_sub(WordMap::<P>::MIN_CHUNK - 1), window)
    }

    /// Does the same for places below `end`.
    pub(super) fn resync_below(&self, from: u64, end: u64, window: &mut CachedReader) -> Option<u64> {
        let (mut at, mut zeros) = (from, 0u64);
        while at < end {
            let field = window.word(at + Self::WORD, Self::WORD);
            if field.is_some() && self.chain(at, at, &mut u64::MAX.clone(), window) {
                return Some(at);
            }
            zeros = if field == Some(0) { zeros + 1 } else { 0 };
            let next = match field {
                None => self.image.next((at | (PAGE - 1)) + 1)?.saturating_sub(2 * Self::WORD),
                Some(_) if zeros > 0 && zeros % (BLOCK as u64 / GRANULE) == 0 => {
                    self.image.data_from(at, self.placed.run.end).saturating_sub(2 * Self::WORD)
                }
                Some(_) => at,
            };
            at += (next.saturating_sub(at) / GRANULE).max(1) * GRANULE;
        }
        None
    }

    /// Does the same after a damaged header. If the chain breaks off early, it may consist of stale headers in the block
    /// whose header was damaged. Then a place whose chain goes on beyond that is preferred.
    fn resync_after(&mut self, from: u64, window: &mut CachedReader) -> Option<u64> {
        let first = self.resync(from, window)?;
        let broken = self.breaks_off(first, window);
        broken.and_then(|broken| self.resync_before(first + GRANULE, broken, window)).or(Some(first))
    }

    /// Returns where the chain from `at` meets a header that is not valid, within `LONG_CHAIN` chunks.
    pub(super) fn breaks_off(&self, mut at: u64, window: &mut CachedReader) -> Option<u64> {
        let end = self.placed.run.end;
        let mut size_before = 0;
        for _ in 0..LONG_CHAIN {
            if at == end {
                return None;
            }
            let field = window.word(at + Self::WORD, Self::WORD)?;
            if size_before != 0 && field & PREV_INUSE == 0 && window.word(at, Self::WORD) != Some(size_before) {
                return Some(at);
            }
            match self.header(at, field, end) {
                Header::Chunk(size) => {
                    size_before = size;
                    at += size;
                }
                Header::Fence => return None,
                Header::Bad(_) => return Some(at),
            }
        }
        None
    }

    /// Does the same in `[from, bad)`, for a chunk whose own size led to `bad`. Recycled memory is full of stale headers,
    /// and their chain ends where the chunk that holds them ends. So only a chain that goes on beyond `bad` counts.
    fn resync_before(&mut self, from: u64, bad: u64, window: &mut CachedReader) -> Option<u64> {
        let given = self.budget.min(1 << 22);
        let mut budget = given;
        let mut found = None;
        for at in (from..bad).step_by(GRANULE as usize) {
            if budget == 0 || found.is_some() {
                break;
            }
            found = self.chain(at, bad, &mut budget, window).then_some(at);
        }
        self.budget -= given - budget;
        found
    }

    /// Returns whether at least `CHAIN` consistent headers beyond `beyond` follow each other from `at`, or they lead
    /// exactly to the run's end.
    fn chain(&self, mut at: u64, beyond: u64, budget: &mut u64, window: &mut CachedReader) -> bool {
        let end = self.placed.run.end;
        let (mut size_before, mut steps) = (0, 0);
        while steps < CHAIN && *budget > 0 {
            *budget -= 1;
            if at == end {
                return steps > 0 || at != beyond;
            }
            if at == beyond && size_before != 0 {
                return false; // it leads where the chunk in question led
            }
            let Some(field) = window.word(at + Self::WORD, Self::WORD) else { return false };
            if size_before != 0 && field & PREV_INUSE == 0 && window.word(at, Self::WORD) != Some(size_before) {
                return false;
            }
            match self.header(at, field, end) {
                Header::Chunk(size) => {
                    steps += usize::from(at >= beyond);
                    size_before = size;
                    at += size;
                }
                Header::Fence => return steps > 0,
                Header::Bad(_) => return false,
            }
        }
        steps == CHAIN
    }

    fn note(&mut self, fault: Fault, chunk: u64, value: u64, resumed: u64) {
        let before = if self.before_is_chunk { self.before } else { 0 };
        self.describe(Anomaly { fault, chunk, value, before, resumed });
    }

    fn describe(&mut self, anomaly: Anomaly) {
        self.report.anomaly_count += 1;
        if self.report.anomalies.len() < DESCRIBED {
            self.report.anomalies.push(anomaly);
        }
    }
}
