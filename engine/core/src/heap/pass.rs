//! The one pass over the bytes of each run: walk the chunks, and keep which words hold candidate pointers.
//!
//! While a block of the file is in the cache the chunk headers are followed and every word is range-tested; after that
//! only the tables are touched. A run's bytes are read with `pread` into a buffer that is reused: no page-fault storm,
//! no SIGBUS on a truncated file, and the core need not be resident.

mod bare;
mod chunks;

use super::index::{Edges, Region, Tables};
use super::space::{Placed, Run, Space, GRANULE, REGION};
use super::text::is_text;
use super::watch::Watch;
use super::{Control, Index, Stopped};
use crate::hw;
use crate::image::Image;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// Bytes read at once: a few fit in the second-level cache, and a system call is spread over many.
const BLOCK: usize = 1 << 18;

/// Words that are range-tested at once.
pub(super) const PART: usize = 64;

/// What is wrong with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The size field is impossible: not a multiple of 16, below MINSIZE, or beyond the run.
    Size,
    /// The arena or mmapped bit contradicts the run.
    Flags,
    /// PREV_INUSE is clear but prev_size is not the size of the chunk before.
    PrevSize,
    /// The header is not in the dump.
    Missing,
    /// The size field is possible but leads nowhere: the chunks after it were found again at `resumed`.
    WrongSize,
}

/// One bad chunk.
#[derive(Clone, Copy, Debug)]
pub struct Anomaly {
    pub fault: Fault,
    /// The chunk whose header is bad.
    pub chunk: u64,
    /// What its size field (or prev_size, for `PrevSize`) holds.
    pub value: u64,
    /// The chunk before it: the likely culprit, by writing beyond its end. 0 where there is none.
    pub before: u64,
    /// Where chunks make sense again; the run's end when nowhere.
    pub resumed: u64,
}

/// What the pass says of one run.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    pub anomalies: Vec<Anomaly>,
    pub anomaly_count: u64,
    /// Chunks (free ones too) and, of them, those that the arena holds free in bins.
    pub chunks: u64,
    pub free_chunks: u64,
    pub free_bytes: u64,
    /// Parts of the run that are not in the dump.
    pub missing: Vec<(u64, u64)>,
    /// Memory between two stretches of chunks (a foreign sbrk): not malloc's, so its pointers count as roots.
    pub gaps: Vec<(u64, u64)>,
    /// Stretches where no chunk could be made out after damage: their pointers count as roots, lest a block be called leaked wrongly.
    pub lost: Vec<(u64, u64)>,
    /// Chunks that look like one of the watched structures.
    pub watched: Vec<u64>,
    /// Where the last block ends.
    pub used_end: u64,
    holes: Vec<u64>,
}

/// What the pass needs to know beside the runs.
pub struct Request<'a> {
    pub image: &'a Image,
    pub runs: Vec<Run>,
    /// Memory inside runs that is dead (a stack below its SP): its words are no pointers. Sorted.
    pub dead: &'a [(u64, u64)],
    /// Chunks to report (`RunReport::watched`).
    pub watch: &'a [Watch],
    /// For slabs (`Run::map`): which of their blocks are free, one bit each.
    pub maps: &'a [u64],
    pub threads: usize,
}

/// The outcome: the tables, a report for each run of chunks, and the runs that were left out: they overlap another, or hardly anything of
/// them is in the dump.
pub struct Built<T> {
    pub tables: T,
    pub reports: Vec<RunReport>,
    pub dropped: Vec<Run>,
    /// Parts of slabs and extents that are not in the dump.
    pub missing: Vec<(u64, u64)>,
}

/// The pass over all runs. Runs are dealt out largest first; one thread handles a run.
pub fn build<I: Index, const P: usize>(
    mut request: Request,
    control: &Control,
) -> Result<Built<Tables<I, P>>, Stopped> {
    let (runs, mut absurd) = believable(request.image, std::mem::take(&mut request.runs));
    let (space, mut dropped) = Space::<P>::new(runs);
    dropped.append(&mut absurd);
    let mut regions = vec![Region::<I, P>::default(); space.regions];
    // Not the edges: they are sparse, and clearing pages that stay empty costs more than the misses.
    hw::huge_pages(&regions);
    let mut free = vec![0u64; space.regions];
    let mut edges = Edges::<I>::new(space.edges).map_err(Stopped::NoMemory)?;
    let chunked: Vec<usize> = (0..space.runs.len()).filter(|&i| space.runs[i].run.kind.has_chunks()).collect();
    let mut reports = vec![RunReport::default(); chunked.len()];
    let missing = Mutex::new(Vec::new());
    {
        let mut jobs = Vec::new();
        let (mut regions, mut free, mut edges) = (&mut regions[..], &mut free[..], edges.as_mut_slice());
        let mut reports = reports.iter_mut();
        let mut index = 0;
        while index < space.runs.len() {
            let after = bare::batch(&space.runs, index);
            let (r, rest) = regions.split_at_mut(space.region_end(after - 1) - space.runs[index].region);
            regions = rest;
            let (f, rest) = free.split_at_mut(r.len());
            free = rest;
            let edge_end = space.runs.get(after).map_or(space.edges, |next| next.edge);
            let (e, rest) = edges.split_at_mut(edge_end - space.runs[index].edge);
            edges = rest;
            let bytes = space.runs[after - 1].run.end - space.runs[index].run.start;
            let job = if space.runs[index].run.kind.has_chunks() {
                let Some(report) = reports.next() else { break };
                Job::Chunks(chunks::Scan::new(request.image, &space, index, r, f, e, report))
            } else {
                Job::Bare(bare::Bare::new(&request, &space, index..after, r, f, e, &missing))
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
                match job {
                    Some(Job::Chunks(scan)) => {
                        hw::fast(|| scan.run(&mut buffer, request.dead, request.watch, control));
                    }
                    Some(Job::Bare(bare)) => hw::fast(|| bare.run(&mut buffer, request.dead, control)),
                    None => {}
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
    let mut used_end: Vec<u64> = space.runs.iter().map(|placed| placed.run.end).collect();
    for (&index, report) in chunked.iter().zip(&reports) {
        let placed = &space.runs[index];
        used_end[index] = report.used_end;
        holes.extend(
            report.holes.iter().map(|&at| placed.region * REGION + ((at - placed.run.start) / GRANULE) as usize),
        );
    }
    holes.sort_unstable();
    let tables = Tables { space, regions, edges, free, holes, used_end };
    let mut missing = missing.into_inner().unwrap_or_else(|e| e.into_inner());
    missing.sort_unstable();
    Ok(Built { tables, reports, dropped, missing })
}

/// Splits off runs that are mostly not in the dump: tables are in proportion to what is there, whatever a size field or a program header
/// claims. What is cut off (a truncated core, pages left out) may be many times as much, and 4 GiB in all are free.
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

/// What a thread does at once.
enum Job<'a, I: Index, const P: usize> {
    Chunks(chunks::Scan<'a, I, P>),
    Bare(bare::Bare<'a, I, P>),
}

/// Reads, zero-filling what is not in the dump; `missing` is told of it.
fn fill(image: &Image, start: u64, buffer: &mut [u8], mut missing: impl FnMut(u64, u64)) {
    let mut done = image.read(start, buffer);
    while done < buffer.len() {
        let hole = start + done as u64;
        let end = start + buffer.len() as u64;
        let resume = image.covered(hole, end).iter().map(|c| c.0).find(|&c| c > hole).unwrap_or(end);
        missing(hole, resume);
        let from = (resume - start) as usize;
        buffer[done..from].fill(0);
        done = from + image.read(resume, &mut buffer[from..]);
    }
}

/// Range-tests the 64 words of part number `index` of `bytes`, which is in the run `placed` at address `at`; `allowed` masks those that can
/// be pointers at all. Calls `keep` with the number of each that points into a run, and is no text, and of the word that it names.
#[inline(always)]
fn pointers<const P: usize>(
    space: &Space<P>,
    placed: &Placed,
    at: u64,
    (bytes, index): (&[u8], usize),
    allowed: u64,
    dead: &[(u64, u64)],
    mut keep: impl FnMut(usize, usize),
) {
    let size = PART * Space::<P>::WORD as usize;
    let part = &bytes[index * size..(index + 1) * size];
    let mut mask = in_spans::<P>(part, &space.spans) & allowed;
    while mask != 0 {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let value = word::<P>(part, bit);
        let own = value.wrapping_sub(placed.lo) < placed.hi - placed.lo;
        let target = if own { Some(Space::<P>::word_in(placed, value)) } else { space.word_of(value) };
        let Some(target) = target.filter(|_| !is_text(space, bytes, index * PART + bit)) else { continue };
        if !dead.is_empty() {
            let here = at + bit as u64 * Space::<P>::WORD;
            if dead.iter().any(|d| d.0 <= here && here < d.1) {
                continue;
            }
        }
        keep(bit, target);
    }
}

/// Cheap where it matters: memory in use shows a byte soon.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[inline(always)]
pub(super) fn in_spans<const P: usize>(part: &[u8], spans: &hw::Spans) -> u64 {
    if P == 2 {
        part.try_into().map_or(0, |bytes| hw::in_spans_64(bytes, spans))
    } else {
        part.try_into().map_or(0, |bytes| hw::in_spans_32(bytes, spans))
    }
}

/// Word `index` of `bytes`.
#[inline(always)]
pub(super) fn word<const P: usize>(bytes: &[u8], index: usize) -> u64 {
    word_at::<P>(bytes, index * (16 / P))
}

#[inline(always)]
fn word_at<const P: usize>(bytes: &[u8], offset: usize) -> u64 {
    if P == 2 {
        bytes[offset..offset + 8].try_into().map_or(0, u64::from_le_bytes)
    } else {
        bytes[offset..offset + 4].try_into().map_or(0, |b| u64::from(u32::from_le_bytes(b)))
    }
}
