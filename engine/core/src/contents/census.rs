//! The census: the pass over all blocks, on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

use super::pass::{Pass, Step};
use super::places::Place;
use super::sums::Entry;
use super::table::Table;
use super::targets::Hints;
use crate::blocks::index::Tables;
use crate::blocks::model::Heap;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::blocks::states::States;
use crate::blocks::widths::by_width;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::keys::Keys;

/// Granules that one step looks at.
const STEP: usize = 1 << 16;
/// The heap is looked at in so many parts, on however many threads there are. Where a size class has too many
/// signatures, which of them are told apart depends on the parts. So the parts must not depend on the machine.
const PARTS: usize = 4;
/// A part has at least so many regions, or so many blocks of a list.
const LEAST_REGIONS: usize = 1 << 6;
const LEAST_BLOCKS: usize = 1 << 8;

/// The signatures of all blocks in use of one heap.
#[derive(Debug, Default)]
pub struct Census {
    /// Each signature once, in the order of its first block.
    pub entries: Vec<Entry>,
    /// For each block in use, in address order: the index of its entry.
    pub of_block: Vec<u32>,
    /// Blocks whose first words are not in the dump.
    pub missing: u64,
    /// Whether only direct leaks were looked at.
    pub direct: bool,
}

impl Census {
    /// Takes the signatures of all blocks in use of a heap, or of direct leaks only. Find the leaks before.
    pub fn take(
        heap: &dyn Heap,
        image: &Image,
        places: &[Place],
        direct: bool,
        threads: usize,
        control: &Control,
    ) -> Result<Census, Stopped> {
        by_width!(Widths, heap.widths(), heap => {
            let list = direct.then(|| heap.direct());
            census(heap.tables(), heap.states(), list, image, places, threads, control)
        })
    }
}

/// Takes the signatures of all blocks in use; with `direct`, only of the blocks that begin at these granules (sorted).
/// `states` says which blocks have leaked, and which are the allocator's own.
fn census<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    states: States<I>,
    direct: Option<&[I]>,
    image: &Image,
    places: &[Place],
    threads: usize,
    control: &Control,
) -> Result<Census, Stopped> {
    let mut sorted: Vec<Place> = places.iter().filter(|p| p.start < p.end).copied().collect();
    sorted.sort_by_key(|p| p.start);
    let keys = Keys::default();
    let parts = |amount: usize, least: usize| (amount / least).clamp(1, PARTS);
    let shares: Vec<Vec<Step<I>>> = match direct {
        Some(list) => list.chunks(list.len().div_ceil(parts(list.len(), LEAST_BLOCKS)).max(1)).map(listed).collect(),
        None => shares(tables, parts(tables.word_map.regions, LEAST_REGIONS)),
    };
    let hints = Hints::new(tables);
    let stopped = AtomicBool::new(false);
    let work = |share: &[Step<I>]| {
        let mut pass = Pass::new(tables, &hints, states, image, &sorted, &keys);
        for step in share {
            if control.cancelled() {
                stopped.store(true, Ordering::Relaxed);
                break;
            }
            hw::fast_work(Looking { pass: &mut pass, step });
        }
        pass.drain();
        (pass.table, pass.of_block, pass.missing)
    };
    let done = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let one_thread = || loop {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        let Some(share) = shares.get(nth) else { return };
        let part = work(share);
        done.lock().unwrap_or_else(|e| e.into_inner()).push((nth, part));
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(shares.len()) {
            scope.spawn(one_thread);
        }
        one_thread();
    });
    let mut parts = done.into_inner().unwrap_or_else(|e| e.into_inner());
    if stopped.load(Ordering::Relaxed) || parts.len() < shares.len() {
        return Err(Stopped::Cancelled);
    }
    parts.sort_by_key(|&(nth, _)| nth);
    let parts = parts.into_iter().map(|(_, part)| part).collect();
    Ok(Census { direct: direct.is_some(), ..joined(parts) })
}

/// One step of a pass.
struct Looking<'s, 'a, I: Index, const P: usize> {
    pass: &'s mut Pass<'a, I, P>,
    step: &'s Step<'a, I>,
}

impl<I: Index, const P: usize> hw::Work for Looking<'_, '_, I, P> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        self.pass.step(self.step);
    }
}

/// Puts the parts of the threads together, in address order. The first has the numbers that it would get in an empty table.
fn joined(parts: Vec<(Table, Vec<u32>, u64)>) -> Census {
    let count: usize = parts.iter().map(|part| part.1.len()).sum();
    let mut parts = parts.into_iter();
    let Some((mut table, mut of_block, mut missing)) = parts.next() else { return Census::default() };
    of_block.reserve_exact(count - of_block.len());
    for (other, more, lacking) in parts {
        let renumbered = table.join(&other);
        of_block.extend(more.into_iter().map(|index| renumbered[index as usize]));
        missing += lacking;
    }
    Census { entries: table.into_entries(), of_block, missing, direct: false }
}

/// Returns the steps for a list of granules.
fn listed<I>(list: &[I]) -> Vec<Step<'_, I>> {
    list.chunks(STEP).map(Step::List).collect()
}

/// Cuts the heap into parts: adjacent memory to each.
fn shares<'a, I: Index, const P: usize>(tables: &Tables<I, P>, parts: usize) -> Vec<Vec<Step<'a, I>>> {
    let runs = &tables.word_map.runs;
    let each = tables.word_map.regions.max(1).div_ceil(parts) * REGION;
    let mut out: Vec<Vec<Step<I>>> = (0..parts).map(|_| Vec::new()).collect();
    for (run, placed) in runs.iter().enumerate() {
        let (mut from, last) = (placed.region * REGION, tables.word_map.region_end(run) * REGION);
        while from < last {
            let end = last.min(from + STEP);
            out[(from / each).min(parts - 1)].push(Step::Range { run, from, end });
            from = end;
        }
    }
    out
}
