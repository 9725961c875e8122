//! Runs the pass over all runs, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use super::chunk_scan::ChunkScan;
use super::headerless::{self, HeaderlessScan};
use super::report::{Request, RunReport};
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

/// Runs the pass over all runs. The largest come first, and one thread handles a run.
pub fn build<I: Index, const P: usize>(
    mut request: Request,
    control: &Control,
) -> Result<Built<Tables<I, P>>, Stopped> {
    let (runs, mut absurd) = believable(request.image, std::mem::take(&mut request.runs));
    let (word_map, mut dropped) = WordMap::<P>::new(runs, request.image.addresses());
    dropped.append(&mut absurd);
    let mut regions = hw::table(Region::<I, P>::default(), word_map.regions);
    let mut free = vec![0u64; word_map.regions];
    let mut edges = Edges::<I>::new(word_map.edges).map_err(Stopped::NoMemory)?;
    let chunked: Vec<usize> = (0..word_map.runs.len()).filter(|&i| word_map.runs[i].run.kind.has_chunks()).collect();
    let mut reports = vec![RunReport::default(); chunked.len()];
    let missing = Mutex::new(Vec::new());
    {
        let mut jobs = Vec::new();
        let (mut regions, mut free, mut edges) = (&mut regions[..], &mut free[..], edges.as_mut_slice());
        let mut reports = reports.iter_mut();
        let mut index = 0;
        while index < word_map.runs.len() {
            let after = headerless::batch(&word_map.runs, index);
            let (r, rest) = regions.split_at_mut(word_map.region_end(after - 1) - word_map.runs[index].region);
            regions = rest;
            let (f, rest) = free.split_at_mut(r.len());
            free = rest;
            let edge_end = word_map.runs.get(after).map_or(word_map.edges, |next| next.edge);
            let (e, rest) = edges.split_at_mut(edge_end - word_map.runs[index].edge);
            edges = rest;
            // Of small runs the edges are sparse. Clearing pages that stay empty costs more than the TLB misses.
            if word_map.runs[index].run.is_large() {
                hw::huge_pages(e);
            }
            let bytes = word_map.runs[after - 1].run.end - word_map.runs[index].run.start;
            let job = if word_map.runs[index].run.kind.has_chunks() {
                let Some(report) = reports.next() else { break };
                Job::Chunks(ChunkScan::new(request.image, &word_map, index, r, f, e, report))
            } else {
                Job::Headerless(HeaderlessScan::new(&request, &word_map, index..after, r, f, e, &missing))
            };
            jobs.push((bytes, Mutex::new(Some(job))));
            index = after;
        }
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(jobs[i].0));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = Vec::new();
            while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let job = jobs[index].1.lock().unwrap_or_else(|e| e.into_inner()).take();
                if let Some(job) = job {
                    hw::fast_work(Scanning { job, buffer: &mut buffer, request: &request, control });
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..request.threads.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
    }
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    let mut holes = Vec::new();
    let mut used_end: Vec<u64> = word_map.runs.iter().map(|placed| placed.run.end).collect();
    for (&index, report) in chunked.iter().zip(&reports) {
        let placed = &word_map.runs[index];
        used_end[index] = report.used_end;
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

/// Separates runs that are mostly not in the dump, so that the tables are in proportion to what is there, whatever a size
/// field or a program header claims. Missing memory (a truncated core, pages left out) may be 16 times as much as what is
/// there, plus 4 GiB in all.
fn believable(image: &Image, runs: Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    let mut spare = 4u64 << 30;
    runs.into_iter().partition(|run| {
        let covered: u64 = image.covered(run.start, run.end).iter().map(|c| c.1 - c.0).sum();
        let excess = run.end.saturating_sub(run.start).saturating_sub(covered.saturating_mul(16));
        let fits = excess <= spare;
        if fits {
            spare -= excess;
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
