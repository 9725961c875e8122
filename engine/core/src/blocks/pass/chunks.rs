//! Runs of chunks. While a block of the file is in the cache, its headers are walked and its words are range-tested.

use super::candidates::{fill, is_zero, pointers, Window, BLOCK};
use super::chunk_scan::ChunkScan;
use super::report::Request;
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, GRANULE, REGION, REGION_BYTES};
use crate::blocks::string_room::Headers;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::words::grow_to;

impl<'a, I: Index, const P: usize> ChunkScan<'a, I, P> {
    #[inline(always)]
    pub(super) fn run(&mut self, buffer: &mut Vec<u8>, headers: &mut Headers<I>, request: &Request, control: &Control) {
        let dead = request.dead;
        let run = self.placed.run;
        grow_to(buffer, (run.end - run.start).saturating_add(2 * REGION_BYTES).min(BLOCK as u64) as usize);
        self.report.used_end = run.end;
        if run.kind == Kind::Mmapped {
            self.single(buffer, headers, dead, control);
            return;
        }
        // One more header lies beyond the run's end: its PREV_INUSE belongs to the last chunk, and so does its prev_size.
        let end = self.part.next.map_or(run.end + GRANULE, |_| self.part.end);
        let first = dead.partition_point(|d| d.1 <= self.part.start);
        let dead = &dead[first..dead.partition_point(|d| d.0 < end).max(first)];
        let mut reader = CachedReader::new(self.image);
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
            self.walk(start, &buffer[..len], &mut reader, request.watch);
            let window = self.window(start, &buffer[..len.next_multiple_of(REGION_BYTES as usize)]);
            for region in 0..window.bytes.len() / REGION_BYTES as usize {
                self.keep_candidates(window, region, headers, dead, &mut back);
            }
            start += len as u64;
            control.add(len as u64);
        }
        match self.part.next {
            Some(next) => self.arrive(next, &mut reader),
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
    fn single(&mut self, buffer: &mut [u8], headers: &mut Headers<I>, dead: &[(u64, u64)], control: &Control) {
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
            let window = self.window(start, &buffer[..whole]);
            for region in 0..whole / REGION_BYTES as usize {
                self.candidates(window, region, headers, [u64::MAX; P], dead);
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

    fn window<'w>(&self, start: u64, bytes: &'w [u8]) -> Window<'w>
    where
        'a: 'w,
    {
        Window { image: self.image, start, bytes, together: REGION_BYTES as usize }
    }

    /// Range-tests the words of one region of a window. `allowed` masks the words that can be pointers. Returns which ones
    /// were kept.
    #[inline(always)]
    fn candidates(
        &mut self,
        window: Window,
        region: usize,
        headers: &mut Headers<I>,
        allowed: [u64; P],
        dead: &[(u64, u64)],
    ) -> [u64; P] {
        let mut kept = [0u64; P];
        for i in 0..P {
            let part = (window, region * P + i);
            pointers(self.word_map, &self.placed, part, headers, allowed[i], dead, |bit, target| {
                kept[i] |= 1 << bit;
                self.edges[self.count] = I::new(target);
                self.count += 1;
            });
        }
        kept
    }

    #[inline(always)]
    fn keep_candidates(
        &mut self,
        window: Window,
        region: usize,
        headers: &mut Headers<I>,
        dead: &[(u64, u64)],
        back: &mut usize,
    ) {
        let index = ((window.start - self.part.start) / REGION_BYTES) as usize + region;
        let number = self.number(index);
        let edge = self.part.edge + self.count;
        let entry = &mut self.regions[index];
        entry.edge = I::new(edge);
        entry.set_back(number, *back);
        if entry.start != 0 {
            *back = number * REGION + (REGION - 1 - entry.start.leading_zeros() as usize);
        }
        // A closure would not be compiled for this CPU's instructions.
        let mut allowed = [0; P];
        for (i, allowed) in allowed.iter_mut().enumerate() {
            *allowed = !entry.size_words(i);
        }
        let kept = self.candidates(window, region, headers, allowed, dead);
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
