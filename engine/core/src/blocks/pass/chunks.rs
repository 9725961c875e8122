//! Runs of chunks. While a block of the file is in the cache, its headers are walked and its words are range-tested.

use super::candidates::{fill, is_zero, pointers, BLOCK};
use super::chunk_scan::ChunkScan;
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, GRANULE, REGION, REGION_BYTES};
use crate::blocks::tcache::TcacheShape;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::words::grow_to;

impl<I: Index, const P: usize> ChunkScan<'_, I, P> {
    #[inline(always)]
    pub(super) fn run(&mut self, buffer: &mut Vec<u8>, dead: &[(u64, u64)], watch: &[TcacheShape], control: &Control) {
        let run = self.placed.run;
        grow_to(buffer, (run.end - run.start).saturating_add(2 * REGION_BYTES).min(BLOCK as u64) as usize);
        self.report.used_end = run.end;
        if run.kind == Kind::Mmapped {
            self.single(buffer, dead, control);
            return;
        }
        // One more header lies beyond the run's end: its PREV_INUSE belongs to the last chunk, and so does its prev_size.
        let end = self.part.next.map_or(run.end + GRANULE, |_| self.part.end);
        let first = dead.partition_point(|d| d.1 <= self.part.start);
        let dead = &dead[first..dead.partition_point(|d| d.0 < end).max(first)];
        let mut window = CachedReader::new(self.image);
        let mut start = self.part.start;
        let mut back = self.number(0) * REGION;
        while start < end && !control.cancelled() {
            let len = (end - start).min(BLOCK as u64) as usize;
            self.fill(start, &mut buffer[..len]);
            buffer[len..len.next_multiple_of(REGION_BYTES as usize)].fill(0);
            if start >= self.hole_end && is_zero(&buffer[..len]) {
                self.hole_end = self.image.data_from(start + len as u64, end);
                self.note_missing(start + len as u64, self.hole_end);
            }
            self.walk(start, &buffer[..len], &mut window, watch);
            for (i, bytes) in
                buffer[..len.next_multiple_of(REGION_BYTES as usize)].chunks_exact(REGION_BYTES as usize).enumerate()
            {
                let at = start + i as u64 * REGION_BYTES;
                self.keep_candidates(at, bytes, dead, &mut back);
            }
            start += len as u64;
            control.add(len as u64);
        }
        match self.part.next {
            Some(next) => self.arrive(next, &mut window),
            None => self.finish(),
        }
        self.report.edges = self.count;
    }

    /// Reads into `buffer`, fills with zeros what is not in the dump, and notes it.
    fn fill(&mut self, start: u64, buffer: &mut [u8]) {
        if start + (buffer.len() as u64) <= self.hole_end {
            buffer.fill(0);
            return;
        }
        let (run_end, missing) = (self.placed.run.end, &mut self.report.missing);
        fill(self.image, start, buffer, |hole, resume| {
            if hole < run_end {
                match missing.last_mut() {
                    Some(last) if last.1 >= hole => last.1 = last.1.max(resume.min(run_end)),
                    _ => missing.push((hole, resume.min(run_end))),
                }
            }
        });
    }

    /// Notes what is not in the dump between two addresses. A hole of a sparse file is: its bytes are zeros.
    #[cold]
    fn note_missing(&mut self, start: u64, end: u64) {
        let end = end.min(self.placed.run.end);
        let mut at = start;
        for (from, to) in self.image.covered(start, end.max(start)) {
            if at < from {
                self.report.missing.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            self.report.missing.push((at, end));
        }
    }

    /// Scans an mmapped chunk: one block, whose candidates are one list.
    fn single(&mut self, buffer: &mut [u8], dead: &[(u64, u64)], control: &Control) {
        let run = self.placed.run;
        self.regions[0].start = 1;
        self.regions[0].edge = I::new(self.part.edge);
        self.report.chunks = 1;
        let end = (self.placed.lo + run.usable).min(run.end);
        let mut start = self.placed.lo;
        while start < end && !control.cancelled() {
            let len = (end - start).min(BLOCK as u64) as usize;
            self.fill(start, &mut buffer[..len]);
            let whole = len.next_multiple_of(REGION_BYTES as usize);
            buffer[len..whole].fill(0);
            if is_zero(&buffer[..len]) {
                let data = self.image.data_from(start + len as u64, end);
                self.note_missing(start + len as u64, data);
                control.add(data - start);
                start = data;
                continue;
            }
            for (i, bytes) in buffer[..whole].chunks_exact(REGION_BYTES as usize).enumerate() {
                self.candidates(start + i as u64 * REGION_BYTES, bytes, [u64::MAX; P], dead);
            }
            start += len as u64;
            control.add(len as u64);
        }
        self.regions[1].start = 1;
        self.regions[1].edge = I::new(self.part.edge + self.count);
        self.regions[1].set_back(self.placed.region + 1, self.placed.region * REGION);
        self.regions[1].mark(0);
        self.free[1] = 1;
    }

    /// Range-tests the words of one region. `allowed` masks the words that can be pointers. Returns which ones were kept.
    #[inline(always)]
    fn candidates(&mut self, at: u64, bytes: &[u8], allowed: [u64; P], dead: &[(u64, u64)]) -> [u64; P] {
        let mut kept = [0u64; P];
        let stride = 64 * Self::WORD as usize;
        for i in 0..P {
            let here = at + (i * stride) as u64;
            pointers(self.word_map, &self.placed, here, (bytes, i), allowed[i], dead, |bit, target| {
                kept[i] |= 1 << bit;
                self.edges[self.count] = I::new(target);
                self.count += 1;
            });
        }
        kept
    }

    #[inline(always)]
    fn keep_candidates(&mut self, at: u64, bytes: &[u8], dead: &[(u64, u64)], back: &mut usize) {
        let index = ((at - self.part.start) / REGION_BYTES) as usize;
        let number = self.number(index);
        let edge = self.part.edge + self.count;
        let region = &mut self.regions[index];
        region.edge = I::new(edge);
        region.set_back(number, *back);
        if region.start != 0 {
            *back = number * REGION + (REGION - 1 - region.start.leading_zeros() as usize);
        }
        // A closure would not be compiled for this CPU's instructions.
        let mut allowed = [0; P];
        for (i, allowed) in allowed.iter_mut().enumerate() {
            *allowed = !region.size_words(i);
        }
        let kept = self.candidates(at, bytes, allowed, dead);
        for (i, kept) in kept.into_iter().enumerate() {
            *self.regions[index].bits_mut(i) |= kept;
        }
    }

    /// Sets the sentinel after the last granule. It bounds the last block.
    fn finish(&mut self) {
        let end = self.placed.run.end;
        if !self.done && self.at < end {
            // Cancelled, or the walk stopped for lack of bytes: nothing is known from here on.
            self.report.lost.push((self.at, end));
            self.report.used_end = self.at;
        }
        self.set_start(end);
        self.set_free(end);
        if self.went_back {
            let number = self.number(0);
            let mut back = number * REGION;
            for (i, region) in self.regions.iter_mut().enumerate() {
                region.set_back(number + i, back);
                if region.start != 0 {
                    back = (number + i) * REGION + (REGION - 1 - region.start.leading_zeros() as usize);
                }
            }
        }
    }
}
