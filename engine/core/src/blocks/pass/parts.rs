//! A large run of chunks in parts, which several threads walk and scan.
//!
//! Chunks are found by their headers, one after the other. A part begins at a place from which a long chain of consistent
//! headers leads on. That is a guess, because stale headers inside a block form chains too. It is proven when the walk of
//! the part before arrives exactly there. If it does not, or if anything else in the run is unusual, one thread does the
//! whole run again. So the answer does not depend on the number of threads.

use super::chunk_scan::ChunkScan;
use super::part::Part;
use super::report::{Request, RunReport};
use super::share::Share;
use crate::blocks::index::Region;
use crate::blocks::number::Index;
use crate::blocks::runs::{Kind, REGION, REGION_BYTES};
use crate::blocks::word_map::{PlacedRun, WordMap};
use crate::cached_reader::CachedReader;
use crate::hw;

/// How many parts each thread gets of a heap that is one run, so that all end at about the same time.
const EACH: u64 = 4;
/// How far from its start the first chunk of a part is looked for.
const SEARCHED: u64 = 1 << 20;

/// Returns how many bytes a part should have. Runs that are no larger are enough parts by themselves.
pub(super) fn size<const P: usize>(word_map: &WordMap<P>, threads: usize, least: u64) -> u64 {
    let bytes = word_map.runs.iter().map(|placed| placed.run.end - placed.run.start).fold(0, u64::saturating_add);
    (bytes / (threads as u64).saturating_mul(EACH).max(1)).max(least).next_multiple_of(REGION_BYTES)
}

/// Divides a run for several threads, in parts of `bytes` or more. They are in order and cover the run.
pub(super) fn divide<I: Index, const P: usize>(
    request: &Request,
    word_map: &WordMap<P>,
    index: usize,
    bytes: u64,
) -> Vec<Part> {
    let placed = &word_map.runs[index];
    let run = placed.run;
    let mut parts = vec![Part::whole(placed)];
    let chunked = matches!(run.kind, Kind::Main | Kind::Thread);
    let count = (run.end - run.start) / bytes;
    if request.threads < 2
        || count < 2
        || !chunked
        || request.image.covered(run.start, run.end) != [(run.start, run.end)]
    {
        return parts;
    }
    let mut nothing = RunReport::default();
    let scan = ChunkScan::<I, P>::new(request.image, word_map, index, parts[0], Share::default(), &mut nothing);
    let mut window = CachedReader::new(request.image);
    for number in 1..count {
        let start = run.start + number * bytes;
        if let Some(chunk) = scan.likely_chunk(start, start + bytes.min(SEARCHED), &mut window) {
            let edge = placed.edge + ((start - run.start) / WordMap::<P>::WORD) as usize;
            if let Some(last) = parts.last_mut() {
                (last.end, last.next) = (start, Some(chunk));
            }
            parts.push(Part { start, end: run.end, chunk, next: None, edge });
        }
    }
    parts
}

impl<I: Index, const P: usize> ChunkScan<'_, I, P> {
    /// Returns a place in `[from, end)` from which a long chain of consistent chunks begins.
    fn likely_chunk(&self, from: u64, end: u64, window: &mut CachedReader) -> Option<u64> {
        self.resync_below(from, end, window).filter(|&at| self.breaks_off(at, window).is_none())
    }

    /// Ends a part that another one follows. The chunks must lead to where that begins, and its first header says whether
    /// the last of them is free.
    pub(super) fn arrive(&mut self, next: u64, window: &mut CachedReader) {
        let (prev_size, field) = (window.word(next, Self::WORD), window.word(next + Self::WORD, Self::WORD));
        let arrived = !self.done && self.at == next;
        self.report.strayed = match (prev_size, field) {
            (Some(prev_size), Some(field)) if arrived => !self.judge_before(prev_size, field, window),
            _ => true,
        };
    }
}

/// Joins the tables of a run's parts, which are the run's share. Returns the report on the run. If it must be done again in
/// one part, the tables are emptied.
pub(super) fn join<I: Index, const P: usize>(
    placed: &PlacedRun,
    parts: &[Part],
    reports: &[RunReport],
    share: Share<I, P>,
) -> Option<RunReport> {
    let Share { regions, free, edges } = share;
    let parts_and_reports = parts.iter().zip(reports);
    if !reports.iter().all(is_usual) {
        regions.fill(Region::default());
        free.fill(0);
        for (part, report) in parts_and_reports {
            hw::clear(&mut edges[part.edge - placed.edge..][..report.edges]);
        }
        return None;
    }
    let mut whole = RunReport::default();
    for (number, (part, report)) in parts_and_reports.enumerate() {
        let (from, here) = (part.edge - placed.edge, whole.edges);
        edges.copy_within(from..from + report.edges, here);
        hw::clear(&mut edges[from.max(here + report.edges)..from + report.edges]);
        let before = part.regions_before(placed);
        let until = parts.get(number + 1).map_or(regions.len(), |next| next.regions_before(placed));
        for region in &mut regions[before..until] {
            region.edge = I::new(region.edge.get().saturating_sub(from - here));
        }
        set_back(placed.region, regions, before);
        whole.edges += report.edges;
        whole.chunks += report.chunks;
        whole.free_chunks += report.free_chunks;
        whole.free_bytes += report.free_bytes;
        whole.watched.extend(&report.watched);
        whole.used_end = report.used_end;
    }
    Some(whole)
}

/// Whether nothing is wrong in a part, or foreign, or not in the dump.
fn is_usual(report: &RunReport) -> bool {
    let lists = [&report.missing, &report.gaps, &report.lost];
    !report.strayed && report.anomaly_count == 0 && report.holes.is_empty() && lists.iter().all(|list| list.is_empty())
}

/// Says to the first regions of a part, from `first` on, which chunk is the last before them. The first part knows.
fn set_back<I: Index, const P: usize>(number: usize, regions: &mut [Region<I, P>], first: usize) {
    let (before, after) = regions.split_at_mut(first);
    let Some(last) = before.iter().rposition(|region| region.start != 0) else { return };
    let back = (number + last) * REGION + (REGION - 1 - before[last].start.leading_zeros() as usize);
    for (i, region) in after.iter_mut().enumerate() {
        region.set_back(number + first + i, back);
        if region.start != 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::runs::{Owner, Run};
    use crate::image::{Image, Segment, Source, PROCESS};

    const START: u64 = 0x10_0000;

    #[test]
    fn parts_begin_with_their_first_chunk() {
        let chunk = [0, 48 | 1, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
        let mut bytes = chunk.repeat(340);
        bytes.extend([0, 1].map(u64::to_le_bytes).concat());
        let end = START + bytes.len() as u64;
        let segment = Segment { start: START, end, source: Source::Bytes(bytes.into()) };
        let image = Image::new(&[], vec![segment]).expect("no files");
        let run = Run::of_chunks(START, end - 16, Kind::Main, Owner::new(0, 0), 0);
        let (word_map, _) = WordMap::<2>::new(vec![run], PROCESS, 1);
        let request = Request { image: &image, runs: Vec::new(), dead: &[], watch: &[], maps: &[], threads: 64 };
        let parts = divide::<u32, 2>(&request, &word_map, 0, 2048);
        assert_eq!(parts.len(), 340 * 48 / 2048);
        for (before, part) in parts.iter().zip(&parts[1..]) {
            assert_eq!((before.end, before.next), (part.start, Some(part.chunk)));
            assert_eq!((part.start - START) % 2048, 0);
            assert_eq!(part.chunk - START, (part.start - START).next_multiple_of(48));
        }
    }
}
