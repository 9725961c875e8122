//! Runs the pass over all runs, on several threads.

use std::sync::Mutex;

use super::chunk_scan::ChunkScan;
use super::headerless::{self, HeaderlessScan};
use super::part::Part;
use super::parts;
use super::report::{Request, RunReport};
use super::share::Share;
use crate::blocks::guide::Guide;
use crate::blocks::index::{Edges, Region, Tables};
use crate::blocks::number::Index;
use crate::blocks::runs::{Run, GRANULE, REGION};
use crate::blocks::word_map::WordMap;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// The result: the tables, a report for each run of chunks, and the runs that were left out. These overlap another run,
/// or almost nothing of them is in the dump.
pub struct Built<T> {
    /// The tables.
    pub tables: T,
    /// The reports on the runs of chunks, in the order of addresses.
    pub reports: Vec<RunReport>,
    /// The runs that were left out.
    pub dropped: Vec<Run>,
    /// Parts of slabs and extents that are not in the dump.
    pub missing: Vec<(u64, u64)>,
}

/// Runs the pass over all runs. The largest come first. Several threads handle a large run of chunks, in parts
/// that have at least `part_bytes`.
pub fn build<I: Index, const P: usize>(
    mut request: Request,
    part_bytes: u64,
    control: &Control,
) -> Result<Built<Tables<I, P>>, Stopped> {
    let (runs, mut absurd) = believable::<I, P>(request.image, std::mem::take(&mut request.runs));
    let (word_map, mut dropped) = WordMap::<P>::new(runs, request.image.addresses(), I::APART);
    dropped.append(&mut absurd);
    let mut regions = hw::table(Region::<I, P>::default(), word_map.regions);
    let mut free = vec![0u64; word_map.regions];
    let mut edges = Edges::<I>::new(word_map.edges).map_err(Stopped::NoMemory)?;
    let bytes = parts::size(&word_map, request.threads, part_bytes);
    let chunked = (0..word_map.runs.len()).filter(|&index| word_map.runs[index].run.kind.has_chunks());
    let divided: Vec<(usize, Vec<Part>)> =
        chunked.map(|index| (index, parts::divide::<I, P>(&request, &word_map, index, bytes))).collect();
    let mut of_parts = vec![RunReport::default(); divided.iter().map(|(_, parts)| parts.len()).sum()];
    let missing = Mutex::new(Vec::new());
    let mut all = Share { regions: &mut regions, free: &mut free, edges: edges.as_mut_slice() };
    do_all(deal(&request, &word_map, &divided, all.again(), &mut of_parts, &missing), &request, control);
    let mut reports = Vec::with_capacity(divided.len());
    let mut left = &of_parts[..];
    for (index, parts) in &divided {
        let of_run;
        (of_run, left) = left.split_at(parts.len());
        if let [report] = of_run {
            reports.push(report.clone());
            continue;
        }
        let placed = &word_map.runs[*index];
        let mut share = share_of(&word_map, all.again(), *index);
        reports.push(parts::join(placed, parts, of_run, share.again()).unwrap_or_else(|| {
            let mut report = RunReport::default();
            let scan = ChunkScan::new(request.image, &word_map, *index, Part::whole(placed), share, &mut report);
            do_all(vec![(0, Job::Chunks(scan))], &request, control);
            report
        }));
    }
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    let mut holes = Vec::new();
    let mut used_end: Vec<u64> = word_map.runs.iter().map(|placed| placed.run.end).collect();
    for ((index, _), report) in divided.iter().zip(&reports) {
        let placed = &word_map.runs[*index];
        used_end[*index] = report.used_end;
        holes.extend(
            report.holes.iter().map(|&at| placed.region * REGION + ((at - placed.run.start) / GRANULE) as usize),
        );
    }
    holes.sort_unstable();
    let guide = Guide::new(regions.iter().map(|region| region.edge));
    let tables = Tables { word_map, regions, edges, guide, free, holes, used_end };
    let mut missing = missing.into_inner().unwrap_or_else(|e| e.into_inner());
    missing.sort_unstable();
    Ok(Built { tables, reports, dropped, missing })
}

/// Deals the tables out to jobs, each with its size in bytes: a part of a run of chunks, or headerless runs that follow
/// each other.
fn deal<'a, I: Index, const P: usize>(
    request: &Request<'a>,
    word_map: &'a WordMap<P>,
    divided: &[(usize, Vec<Part>)],
    mut all: Share<'a, I, P>,
    reports: &'a mut [RunReport],
    missing: &'a Mutex<Vec<(u64, u64)>>,
) -> Vec<(u64, Job<'a, I, P>)> {
    let mut jobs = Vec::new();
    let (mut reports, mut divided) = (reports.iter_mut(), divided.iter());
    let mut index = 0;
    while index < word_map.runs.len() {
        let placed = &word_map.runs[index];
        let after = headerless::batch(&word_map.runs, index);
        let mut share =
            all.take(word_map.region_end(after - 1) - placed.region, edges_end(word_map, after) - placed.edge);
        // Of small runs the edges are sparse. Clearing pages that stay empty costs more than the TLB misses.
        if placed.run.is_large() {
            hw::huge_pages(share.edges);
        }
        if placed.run.kind.has_chunks() {
            let parts = divided.next().map_or(&[][..], |(_, parts)| &parts[..]);
            for (number, (part, report)) in parts.iter().zip(&mut reports).enumerate() {
                let share = match parts.get(number + 1) {
                    Some(next) => {
                        share.take(next.regions_before(placed) - part.regions_before(placed), next.edge - part.edge)
                    }
                    None => std::mem::take(&mut share),
                };
                let scan = ChunkScan::new(request.image, word_map, index, *part, share, report);
                jobs.push((part.end - part.start, Job::Chunks(scan)));
            }
        } else {
            let bytes = word_map.runs[after - 1].run.end - placed.run.start;
            let scan = HeaderlessScan::new(request, word_map, index..after, share, missing);
            jobs.push((bytes, Job::Headerless(scan)));
        }
        index = after;
    }
    jobs
}

/// Returns where the edges of the run before `index` end.
fn edges_end<const P: usize>(word_map: &WordMap<P>, index: usize) -> usize {
    word_map.runs.get(index).map_or(word_map.edges, |next| next.edge)
}

/// Returns the tables of a run.
fn share_of<'a, I: Index, const P: usize>(
    word_map: &WordMap<P>,
    mut all: Share<'a, I, P>,
    index: usize,
) -> Share<'a, I, P> {
    let placed = &word_map.runs[index];
    all.take(placed.region, placed.edge);
    all.take(word_map.region_end(index) - placed.region, edges_end(word_map, index + 1) - placed.edge)
}

/// Does all jobs, on several threads. The largest come first.
fn do_all<I: Index, const P: usize>(mut jobs: Vec<(u64, Job<I, P>)>, request: &Request, control: &Control) {
    jobs.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
    let threads = request.threads.min(jobs.len());
    let jobs = Mutex::new(jobs.into_iter());
    let work = || {
        let mut buffer = Vec::new();
        loop {
            let job = jobs.lock().unwrap_or_else(|e| e.into_inner()).next();
            let Some((_, job)) = job else { return };
            hw::fast_work(Scanning { job, buffer: &mut buffer, request, control });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// Separates runs that are mostly not in the dump, so that the tables are in proportion to what is there, whatever a size
/// field or a program header claims. Missing memory (a truncated core, pages left out) may be 16 times as much as what is
/// there, plus 4 GiB in all. What there are no numbers for is left out, too.
fn believable<I: Index, const P: usize>(image: &Image, runs: Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    let (mut spare, mut room) = (4u64 << 30, I::LIMIT);
    runs.into_iter().partition(|run| {
        let covered: u64 = image.covered(run.start, run.end).iter().map(|c| c.1 - c.0).sum();
        let excess = run.end.saturating_sub(run.start).saturating_sub(covered.saturating_mul(16));
        let words = WordMap::<P>::room(run, I::APART);
        let fits = excess <= spare && words <= room;
        if fits {
            spare -= excess;
            room -= words;
        }
        fits
    })
}

/// One job of a thread.
enum Job<'a, I: Index, const P: usize> {
    Chunks(ChunkScan<'a, I, P>),
    Headerless(HeaderlessScan<'a, I, P>),
}

/// A job in progress.
struct Scanning<'j, 'a, I: Index, const P: usize> {
    job: Job<'a, I, P>,
    buffer: &'j mut Vec<u8>,
    request: &'j Request<'a>,
    control: &'j Control,
}

impl<I: Index, const P: usize> hw::Work for Scanning<'_, '_, I, P> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        match self.job {
            Job::Chunks(scan) => scan.run(self.buffer, self.request.dead, self.request.watch, self.control),
            Job::Headerless(scan) => scan.run(self.buffer, self.request.dead, self.control),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::number::Wide;
    use crate::blocks::runs::{Kind, Owner};
    use crate::image::{Segment, Source};

    #[test]
    fn runs_without_numbers_are_left_out() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(60 << 30).expect("a sparse file");
        let path = file.path().to_str().expect("a name").to_owned();
        let segment =
            Segment { start: 1 << 40, end: (1 << 40) + (60 << 30), source: Source::File { index: 0, offset: 0 } };
        let image = Image::new(&[path], vec![segment]).expect("readable");
        let run = |at: u64, size: u64| {
            Run::of_chunks((1 << 40) + (at << 30), (1 << 40) + ((at + size) << 30), Kind::Main, Owner::new(0, 0), 0)
        };
        let runs = vec![run(0, 20), run(20, 20), run(40, 10)];
        let starts = |runs: Vec<Run>| runs.iter().map(|run| (run.start - (1 << 40)) >> 30).collect::<Vec<_>>();
        let (kept, out) = believable::<u32, 2>(&image, runs.clone());
        assert_eq!((starts(kept), starts(out)), (vec![0, 40], vec![20]));
        let (kept, out) = believable::<Wide, 2>(&image, runs);
        assert_eq!((starts(kept), starts(out)), (vec![0, 20, 40], vec![]));
    }
}
