//! Runs the pass over all runs, on several threads.

use std::ops::Range;
use std::sync::Mutex;

use super::batch::{self, Batch};
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
use crate::blocks::string_room::{self, Headers};
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
    let (mut word_map, mut dropped) = WordMap::<P>::new(runs, request.image.addresses(), I::APART);
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
    let jobs = deal(&request, &word_map, &divided, bytes, all.again(), &mut of_parts, &missing);
    let mut headers = do_all(jobs, &request, control);
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
        let mut of_all = all.again();
        of_all.take(placed.region, placed.edge);
        let mut share = share_of(&word_map, &mut of_all, *index..index + 1);
        reports.push(parts::join(placed, parts, of_run, share.again()).unwrap_or_else(|| {
            let mut report = RunReport::default();
            let edges = std::mem::take(&mut share.edges);
            let scan = ChunkScan::new(request.image, &word_map, *index, Part::whole(placed), share, &mut report);
            let jobs = vec![(0, Job::Chunks(Batch::new(vec![scan], placed.edge, edges)))];
            headers.append(do_all(jobs, &request, control));
            report
        }));
    }
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    let mut holes = Vec::new();
    let mut used_end: Vec<u64> = word_map.runs.iter().map(|placed| placed.run.end).collect();
    for ((index, _), report) in divided.iter().zip(&reports) {
        let placed = &mut word_map.runs[*index];
        // A batch has moved them together.
        placed.edge = regions[placed.region].edge.get();
        used_end[*index] = report.used_end;
        holes.extend(
            report.holes.iter().map(|&at| placed.region * REGION + ((at - placed.run.start) / GRANULE) as usize),
        );
    }
    holes.sort_unstable();
    let guide = Guide::new(regions.iter().map(|region| region.edge));
    let mut tables = Tables { word_map, regions, edges, guide, free, holes, used_end };
    string_room::empty(&mut tables, request.image, headers, control)?;
    let mut missing = missing.into_inner().unwrap_or_else(|e| e.into_inner());
    missing.sort_unstable();
    Ok(Built { tables, reports, dropped, missing })
}

/// Deals the tables out to jobs, each with its size in bytes: a part of a run of chunks, or runs that follow each other. No
/// batch of runs has more than `most` bytes.
fn deal<'a, I: Index, const P: usize>(
    request: &Request<'a>,
    word_map: &'a WordMap<P>,
    mut divided: &[(usize, Vec<Part>)],
    most: u64,
    mut all: Share<'a, I, P>,
    reports: &'a mut [RunReport],
    missing: &'a Mutex<Vec<(u64, u64)>>,
) -> Vec<(u64, Job<'a, I, P>)> {
    let mut jobs = Vec::new();
    let mut reports = reports.iter_mut();
    let mut index = 0;
    while index < word_map.runs.len() {
        let placed = &word_map.runs[index];
        let has_chunks = placed.run.kind.has_chunks();
        let whole = if has_chunks { batch::count(&word_map.runs, divided, most) } else { 0 };
        let after = if has_chunks { index + whole.max(1) } else { headerless::batch(&word_map.runs, index) };
        let runs = &word_map.runs[index..after];
        let mut share = share_of(word_map, &mut all, index..after);
        // Of small runs the edges are sparse. Clearing pages that stay empty costs more than the TLB misses.
        if runs.iter().any(|placed| placed.run.is_large()) {
            hw::huge_pages(share.edges);
        }
        let bytes = runs.iter().map(|placed| placed.run.end - placed.run.start).fold(0, u64::saturating_add);
        if !has_chunks {
            let scan = HeaderlessScan::new(request, word_map, index..after, share, missing);
            jobs.push((bytes, Job::Headerless(scan)));
        } else if whole > 0 {
            let edges = std::mem::take(&mut share.edges);
            let scan = |(number, report)| {
                let share = share.take(word_map.region_end(number) - word_map.runs[number].region, 0);
                let part = Part::whole(&word_map.runs[number]);
                ChunkScan::new(request.image, word_map, number, part, share, report)
            };
            let scans = (index..after).zip(&mut reports).map(scan).collect();
            jobs.push((bytes, Job::Chunks(Batch::new(scans, placed.edge, edges))));
            divided = &divided[whole..];
        } else {
            let parts = divided.first().map_or(&[][..], |(_, parts)| &parts[..]);
            for (number, (part, report)) in parts.iter().zip(&mut reports).enumerate() {
                let mut share = match parts.get(number + 1) {
                    Some(next) => {
                        share.take(next.regions_before(placed) - part.regions_before(placed), next.edge - part.edge)
                    }
                    None => std::mem::take(&mut share),
                };
                let edges = std::mem::take(&mut share.edges);
                let scan = ChunkScan::new(request.image, word_map, index, *part, share, report);
                jobs.push((part.end - part.start, Job::Chunks(Batch::new(vec![scan], part.edge, edges))));
            }
            divided = &divided[1..];
        }
        index = after;
    }
    jobs
}

/// Takes the tables of some runs from the front of those that are left.
fn share_of<'a, I: Index, const P: usize>(
    word_map: &WordMap<P>,
    all: &mut Share<'a, I, P>,
    runs: Range<usize>,
) -> Share<'a, I, P> {
    let placed = &word_map.runs[runs.start];
    let edges_end = word_map.runs.get(runs.end).map_or(word_map.edges, |next| next.edge);
    all.take(word_map.region_end(runs.end - 1) - placed.region, edges_end - placed.edge)
}

/// Does all jobs, on several threads. The largest come first. Returns what may be headers of strings.
fn do_all<I: Index, const P: usize>(
    mut jobs: Vec<(u64, Job<I, P>)>,
    request: &Request,
    control: &Control,
) -> Headers<I> {
    jobs.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
    let threads = request.threads.min(jobs.len());
    let jobs = Mutex::new(jobs.into_iter());
    let all = Mutex::new(Headers::default());
    let work = || {
        let (mut buffer, mut headers) = (Vec::new(), Headers::default());
        loop {
            let job = jobs.lock().unwrap_or_else(|e| e.into_inner()).next();
            let Some((_, job)) = job else { break };
            hw::fast_work(Scanning { job, buffer: &mut buffer, headers: &mut headers, request, control });
        }
        all.lock().unwrap_or_else(|e| e.into_inner()).append(headers);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    all.into_inner().unwrap_or_else(|e| e.into_inner())
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
    Chunks(Batch<'a, I, P>),
    Headerless(HeaderlessScan<'a, I, P>),
}

/// A job in progress.
struct Scanning<'j, 'a, I: Index, const P: usize> {
    job: Job<'a, I, P>,
    buffer: &'j mut Vec<u8>,
    headers: &'j mut Headers<I>,
    request: &'j Request<'a>,
    control: &'j Control,
}

impl<I: Index, const P: usize> hw::Work for Scanning<'_, '_, I, P> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        match self.job {
            Job::Chunks(batch) => batch.run(self.buffer, self.headers, self.request, self.control),
            Job::Headerless(scan) => scan.run(self.buffer, self.headers, self.request.dead, self.control),
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
        let path = file.path().to_owned();
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
