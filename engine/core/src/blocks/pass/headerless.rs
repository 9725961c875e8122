//! The pass over blocks without headers. The blocks and their states are known before. The pass keeps the candidate
//! pointers of the live ones.

use super::candidates::{fill, is_zero, pointers, Window, BLOCK};
use super::report::Request;
use super::share::Share;
use crate::blocks::index::Region;
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, REGION};
use crate::blocks::string_room::Headers;
use crate::blocks::word_map::{PlacedRun, WordMap};
use crate::control::Control;
use crate::image::Image;
use crate::words::grow_to;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes that a thread gets at once, because slabs are small.
const BATCH: u64 = 4 << 20;

/// Returns where the batch that begins with run `first` ends. A run of chunks is a batch by itself.
pub(super) fn batch(runs: &[PlacedRun], first: usize) -> usize {
    let headerless = |placed: &PlacedRun| !placed.run.kind.has_chunks();
    let start = runs[first].run.start;
    let more = runs[first + 1..].iter().take_while(|next| headerless(next) && next.run.end - start <= BATCH);
    first + 1 + if headerless(&runs[first]) { more.count() } else { 0 }
}

/// The scan of slabs and extents that follow each other.
pub(super) struct HeaderlessScan<'a, I: Index, const P: usize> {
    image: &'a Image,
    maps: &'a [u64],
    word_map: &'a WordMap<P>,
    runs: Range<usize>,
    regions: &'a mut [Region<I, P>],
    free: &'a mut [u64],
    edges: &'a mut [I],
    missing: &'a Mutex<Vec<(u64, u64)>>,
}

impl<'a, I: Index, const P: usize> HeaderlessScan<'a, I, P> {
    const PART: usize = 64 * WordMap::<P>::WORD as usize;

    pub(super) fn new(
        request: &Request<'a>,
        word_map: &'a WordMap<P>,
        runs: Range<usize>,
        share: Share<'a, I, P>,
        missing: &'a Mutex<Vec<(u64, u64)>>,
    ) -> Self {
        let Share { regions, free, edges } = share;
        HeaderlessScan { image: request.image, maps: request.maps, word_map, runs, regions, free, edges, missing }
    }

    #[inline(always)]
    pub(super) fn run(
        mut self,
        buffer: &mut Vec<u8>,
        headers: &mut Headers<I>,
        dead: &[(u64, u64)],
        control: &Control,
    ) {
        for index in self.runs.clone() {
            if control.cancelled() {
                return;
            }
            let placed = self.word_map.runs[index];
            let first = dead.partition_point(|d| d.1 <= placed.run.start);
            let dead = &dead[first..dead.partition_point(|d| d.0 < placed.run.end).max(first)];
            match placed.run.kind {
                Kind::Slab => self.slab(buffer, headers, &placed, dead),
                _ => self.extent(buffer, headers, &placed, dead, control),
            }
            control.add(placed.run.end - placed.run.start);
        }
    }

    fn fill(&self, start: u64, buffer: &mut [u8]) {
        fill(self.image, start, buffer, |hole, resume| {
            let mut missing = self.missing.lock().unwrap_or_else(|e| e.into_inner());
            match missing.last_mut() {
                Some(last) if last.1 == hole => last.1 = resume,
                _ => missing.push((hole, resume)),
            }
        });
    }

    /// Returns the index among this batch's tables of a granule of the run, and its bit there.
    fn place(&self, placed: &PlacedRun, granule: usize) -> (usize, usize) {
        let region = placed.region - self.word_map.runs[self.runs.start].region;
        (region + granule / REGION, granule % REGION)
    }

    /// Begins a block at a granule, counted from the run's first. A free block and the sentinel are marked from the
    /// start.
    fn begin(&mut self, placed: &PlacedRun, granule: usize, free: bool) {
        let (region, bit) = self.place(placed, granule);
        self.regions[region].start |= 1 << bit;
        if free {
            self.free[region] |= 1 << bit;
            self.regions[region].mark(bit);
        }
    }

    #[inline(always)]
    fn slab(&mut self, buffer: &mut Vec<u8>, headers: &mut Headers<I>, placed: &PlacedRun, dead: &[(u64, u64)]) {
        let (slots, stride, size) = (placed.run.slots(), placed.run.stride(), placed.run.usable as usize);
        let map = self.maps.get(placed.run.map as usize..).unwrap_or_default();
        let is_free = |slot: usize| map.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0);
        for slot in 0..slots {
            self.begin(placed, slot * stride, is_free(slot));
        }
        self.begin(placed, slots * stride, true);
        let len = slots * size;
        let whole = len.next_multiple_of(Self::PART);
        grow_to(buffer, whole);
        self.fill(placed.run.start, &mut buffer[..len]);
        buffer[len..whole].fill(0);
        let (base, _) = self.place(placed, 0);
        let regions = &mut self.regions[base..][..placed.run.granules() / REGION + 1];
        let edges = &mut self.edges[placed.edge - self.word_map.runs[self.runs.start].edge..];
        let (mut count, mut region) = (0, 0);
        regions[0].edge = I::new(placed.edge);
        let window = Window { image: self.image, start: placed.run.start, bytes: &buffer[..whole], together: whole };
        for i in 0..whole / Self::PART {
            pointers(self.word_map, placed, (window, i), headers, u64::MAX, dead, |bit, target| {
                let offset = i * Self::PART + bit * WordMap::<P>::WORD as usize;
                let (slot, within) = (offset / size, offset % size);
                if slot >= slots || is_free(slot) {
                    return;
                }
                let word = (slot * stride + 1) * P + within / WordMap::<P>::WORD as usize;
                let here = word / (REGION * P);
                while region < here {
                    region += 1;
                    regions[region].edge = I::new(placed.edge + count);
                }
                let bit = word % (REGION * P);
                *regions[here].bits_mut(bit / 64) |= 1 << (bit % 64);
                edges[count] = I::new(target);
                count += 1;
            });
        }
        for region in &mut regions[region + 1..] {
            region.edge = I::new(placed.edge + count);
        }
        let mut back = placed.region * REGION;
        for (i, region) in regions.iter_mut().enumerate() {
            region.set_back(placed.region + i, back);
            if region.start != 0 {
                back = (placed.region + i) * REGION + (REGION - 1 - region.start.leading_zeros() as usize);
            }
        }
    }

    #[inline(always)]
    fn extent(
        &mut self,
        buffer: &mut Vec<u8>,
        headers: &mut Headers<I>,
        placed: &PlacedRun,
        dead: &[(u64, u64)],
        control: &Control,
    ) {
        self.begin(placed, 0, false);
        self.begin(placed, REGION, true);
        let base = placed.edge - self.word_map.runs[self.runs.start].edge;
        let mut count = 0;
        let (mut at, end) = (placed.lo, placed.hi.min(placed.run.end));
        grow_to(buffer, end.saturating_sub(at).min(BLOCK as u64) as usize + Self::PART);
        while at < end && !control.cancelled() {
            let len = (end - at).min(BLOCK as u64) as usize;
            self.fill(at, &mut buffer[..len]);
            let whole = len.next_multiple_of(Self::PART);
            buffer[len..whole].fill(0);
            if is_zero(&buffer[..len]) {
                at = self.image.data_from(at + len as u64, end);
                continue;
            }
            let window = Window { image: self.image, start: at, bytes: &buffer[..whole], together: whole };
            for i in 0..whole / Self::PART {
                pointers(self.word_map, placed, (window, i), headers, u64::MAX, dead, |_, target| {
                    self.edges[base + count] = I::new(target);
                    count += 1;
                });
            }
            at += len as u64;
        }
        let (region, _) = self.place(placed, 0);
        self.regions[region].edge = I::new(placed.edge);
        self.regions[region + 1].edge = I::new(placed.edge + count);
        self.regions[region + 1].set_back(placed.region + 1, placed.region * REGION);
    }
}
