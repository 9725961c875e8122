//! Runs of chunks: a block of the file is walked for its headers, then scanned for candidates, while it is in the cache.

mod walk;

use super::{fill, is_zero, pointers, RunReport, BLOCK};
use crate::heap::at_least;
use crate::heap::index::Region;
use crate::heap::space::{Kind, Placed, Space, GRANULE, REGION, REGION_BYTES};
use crate::heap::watch::Watch;
use crate::heap::window::Window;
use crate::heap::{Control, Index};
use crate::image::Image;

/// The walk and scan of one run.
pub(super) struct Scan<'a, I: Index, const P: usize> {
    image: &'a Image,
    space: &'a Space<P>,
    placed: Placed,
    regions: &'a mut [Region<I, P>],
    free: &'a mut [u64],
    edges: &'a mut [I],
    report: &'a mut RunReport,
    /// Edges written.
    count: usize,
    /// The next chunk to look at, the one before it, and the one before that (0: none).
    at: u64,
    before: u64,
    before2: u64,
    /// No more chunks follow.
    done: bool,
    /// Chunks were found behind `at`: `Region::back` must be made anew.
    went_back: bool,
    /// Headers that searches back may still look at.
    budget: u64,
    /// Whether the chunk at `before` can be free at all (a hole cannot).
    before_is_chunk: bool,
    /// Up to here the file holds nothing but a hole.
    hole_end: u64,
}

impl<'a, I: Index, const P: usize> Scan<'a, I, P> {
    const WORD: u64 = Space::<P>::WORD;

    pub(super) fn new(
        image: &'a Image,
        space: &'a Space<P>,
        index: usize,
        regions: &'a mut [Region<I, P>],
        free: &'a mut [u64],
        edges: &'a mut [I],
        report: &'a mut RunReport,
    ) -> Self {
        let placed = space.runs[index];
        Scan {
            image,
            space,
            placed,
            regions,
            free,
            edges,
            report,
            count: 0,
            at: placed.run.start,
            before: 0,
            before2: 0,
            done: false,
            went_back: false,
            budget: walk::SEARCH_BACK,
            before_is_chunk: false,
            hole_end: 0,
        }
    }

    #[inline(always)]
    pub(super) fn run(mut self, buffer: &mut Vec<u8>, dead: &[(u64, u64)], watch: &[Watch], control: &Control) {
        let run = self.placed.run;
        at_least(buffer, (run.end - run.start).saturating_add(2 * REGION_BYTES).min(BLOCK as u64) as usize);
        self.report.used_end = run.end;
        if run.kind == Kind::Mmapped {
            self.single(buffer, dead, control);
            return;
        }
        let first = dead.partition_point(|d| d.1 <= run.start);
        let dead = &dead[first..dead.partition_point(|d| d.0 < run.end).max(first)];
        let mut window = Window::new(self.image);
        // Beyond the end lies one header more: its PREV_INUSE speaks of the last chunk, its prev_size belongs to it.
        let end = run.end + GRANULE;
        let mut start = run.start;
        let mut back = self.placed.region * REGION;
        while start < end && !control.cancelled() {
            let len = (end - start).min(BLOCK as u64) as usize;
            self.fill(start, &mut buffer[..len]);
            buffer[len..len.next_multiple_of(REGION_BYTES as usize)].fill(0);
            if start >= self.hole_end && is_zero(&buffer[..len]) {
                self.hole_end = self.image.data_from(start + len as u64, end);
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
        self.finish();
    }

    /// Reads, zero-filling (and noting) what is not in the dump.
    fn fill(&mut self, start: u64, buffer: &mut [u8]) {
        if start + (buffer.len() as u64) <= self.hole_end {
            buffer.fill(0);
            return;
        }
        let (run_end, missing) = (self.placed.run.end, &mut self.report.missing);
        fill(self.image, start, buffer, |hole, resume| {
            if hole < run_end {
                match missing.last_mut() {
                    Some(last) if last.1 == hole => last.1 = resume.min(run_end),
                    _ => missing.push((hole, resume.min(run_end))),
                }
            }
        });
    }

    /// An mmapped chunk: one block, whose candidates are one list.
    fn single(&mut self, buffer: &mut [u8], dead: &[(u64, u64)], control: &Control) {
        let run = self.placed.run;
        self.regions[0].start = 1;
        self.regions[0].edge = I::new(self.placed.edge);
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
        self.regions[1].edge = I::new(self.placed.edge + self.count);
        self.regions[1].back = I::new(self.placed.region * REGION);
        self.regions[1].mark(0);
        self.free[1] = 1;
    }

    /// Range-tests the words of one region; `allowed` masks words that can be pointers at all. Returns which ones were kept.
    #[inline(always)]
    fn candidates(&mut self, at: u64, bytes: &[u8], allowed: [u64; P], dead: &[(u64, u64)]) -> [u64; P] {
        let mut kept = [0u64; P];
        let stride = 64 * Self::WORD as usize;
        for i in 0..P {
            let here = at + (i * stride) as u64;
            pointers(self.space, &self.placed, here, (bytes, i), allowed[i], dead, |bit, target| {
                kept[i] |= 1 << bit;
                self.edges[self.count] = I::new(target);
                self.count += 1;
            });
        }
        kept
    }

    #[inline(always)]
    fn keep_candidates(&mut self, at: u64, bytes: &[u8], dead: &[(u64, u64)], back: &mut usize) {
        let index = ((at - self.placed.run.start) / REGION_BYTES) as usize;
        let region = &mut self.regions[index];
        region.edge = I::new(self.placed.edge + self.count);
        region.back = I::new(*back);
        if region.start != 0 {
            *back = (self.placed.region + index) * REGION + (REGION - 1 - region.start.leading_zeros() as usize);
        }
        let region = *region;
        let allowed = std::array::from_fn(|i| !region.size_words(i));
        let kept = self.candidates(at, bytes, allowed, dead);
        for (mine, kept) in self.regions[index].ptr.iter_mut().zip(kept) {
            *mine |= kept;
        }
    }

    fn granule(&self, chunk: u64) -> usize {
        ((chunk - self.placed.run.start) / GRANULE) as usize
    }

    fn set_start(&mut self, chunk: u64) {
        let granule = self.granule(chunk);
        self.regions[granule / REGION].start |= 1 << (granule % REGION);
    }

    fn set_free(&mut self, chunk: u64) {
        let granule = self.granule(chunk);
        self.free[granule / REGION] |= 1 << (granule % REGION);
        self.regions[granule / REGION].mark(granule % REGION);
    }

    /// The sentinel behind the last granule bounds the last block.
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
            let mut back = self.placed.region * REGION;
            for (i, region) in self.regions.iter_mut().enumerate() {
                region.back = I::new(back);
                if region.start != 0 {
                    back = (self.placed.region + i) * REGION + (REGION - 1 - region.start.leading_zeros() as usize);
                }
            }
        }
    }
}
