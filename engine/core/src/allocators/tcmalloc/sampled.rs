//! The blocks that tcmalloc's sampler chose, and the stacks of their allocations.
//!
//! A sampled block has a span of its own. The span has no list of objects: there it points to a `StackTrace` (common.h),
//! which has the size that was asked for, the number of return addresses, and these. All such spans form a ring with
//! `Static::sampled_objects_`, a span without pages in the data of the module (tcmalloc.cc, `DoSampledAllocation`).

use super::read::Tcmalloc;
use super::spans::Span;
use super::WORD;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::words::USER_END;
use std::collections::{BTreeMap, HashMap};

/// Bytes before the return addresses of a `StackTrace`: size and depth.
const HEADER: u64 = 16;
/// The most return addresses that are believed. Every release keeps 31 (kMaxStackDepth).
const MOST_FRAMES: u64 = 255;
/// Offsets in a `Span`.
const NEXT: u64 = 16;
const PREV: u64 = 24;
/// Blocks of the reader's cache.
const CACHED: usize = 1024;

/// A live block that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its address.
    pub address: u64,
    /// The address of its `StackTrace`.
    pub trace: u64,
    /// The bytes that were asked for.
    pub size: u64,
    /// The number of its stack in [`Samples::stacks`].
    pub stack: usize,
}

/// The sampled blocks of a tcmalloc.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The blocks, sorted by address.
    pub all: Vec<Sample>,
    /// The different stacks: return addresses, innermost first.
    pub stacks: Vec<Vec<u64>>,
    /// The address of `Static::sampled_objects_`.
    pub head: u64,
    /// How many sampled spans the list does not lead to.
    pub unlisted: u64,
    /// How many sampled spans lead to no sound stack: their blocks are not in `all`.
    pub unsound: u64,
    /// How many return addresses a `StackTrace` has room for, where two of them lie side by side.
    pub room: Option<u64>,
}

/// Returns the sampled blocks, or the check that failed. `ranges` are the data of modules.
pub fn samples(
    image: &Image,
    heap: &Tcmalloc,
    ranges: &[(u64, u64)],
    control: &Control,
) -> Result<Samples, &'static str> {
    let mut reader = CachedReader::with_slots(image, CACHED);
    let spans: Vec<&Span> = heap.spans.iter().filter(|one| one.sampled && one.in_use() && one.class == 0).collect();
    let records: HashMap<u64, (u64, u64)> = spans
        .iter()
        .filter_map(|span| {
            Some((span.record, (link(&mut reader, span.record, NEXT)?, link(&mut reader, span.record, PREV)?)))
        })
        .collect();
    let (head, listed) = head(&mut reader, &spans, &records, ranges)
        .ok_or("no list in a module's data leads to the sampled spans and back")?;
    let mut out = Samples { head, unlisted: spans.len() as u64 - listed, ..Samples::default() };
    let mut traces: Vec<u64> = spans.iter().map(|span| span.objects).collect();
    traces.sort_unstable();
    // The least distance of two is the size of a `StackTrace`: an allocator of its own lays them side by side.
    let least = traces.windows(2).map(|pair| pair[1] - pair[0]).filter(|&apart| apart > HEADER).min();
    out.room = least.map(|apart| (apart - HEADER) / WORD).filter(|&room| room <= MOST_FRAMES);
    let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
    for span in &spans {
        if control.cancelled() {
            break;
        }
        let next = traces.partition_point(|&trace| trace <= span.objects);
        let end = traces.get(next).copied().unwrap_or(USER_END);
        match trace(&mut reader, heap, span, end) {
            Some((size, stack)) => {
                let new = known.len();
                let number = *known.entry(stack).or_insert(new);
                out.all.push(Sample { address: span.start, trace: span.objects, size, stack: number });
            }
            None => out.unsound += 1,
        }
    }
    if (out.all.len() as u64) < out.unsound {
        return Err("most sampled spans do not lead to a stack of an allocation of their size");
    }
    let by_number: BTreeMap<usize, Vec<u64>> = known.into_iter().map(|(stack, number)| (number, stack)).collect();
    out.stacks = by_number.into_values().collect();
    Ok(out)
}

/// Returns the head of the list, and how many spans it leads to. Each link must lead back.
///
/// The head is no span of the page map, and lies in the ranges. A list that breaks ends there.
fn head(
    reader: &mut CachedReader<'_>,
    spans: &[&Span],
    records: &HashMap<u64, (u64, u64)>,
    ranges: &[(u64, u64)],
) -> Option<(u64, u64)> {
    let outside = |at: u64| !records.contains_key(&at) && ranges.iter().any(|part| part.0 <= at && at < part.1);
    // One span is first and one is last: where the ring is whole, both lead to the head.
    let mut candidates: Vec<u64> = spans
        .iter()
        .filter_map(|span| records.get(&span.record))
        .flat_map(|&(next, prev)| [next, prev])
        .filter(|&at| at % WORD == 0 && outside(at))
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    let mut best: Option<(u64, u64)> = None;
    let mut left = records.len() as u64 * 2; // steps for all candidates together
    for head in candidates {
        let (mut before, mut listed) = (head, 0);
        let mut at = link(reader, head, NEXT).unwrap_or(0);
        while let Some(&(next, _)) = records.get(&at).filter(|links| links.1 == before && left > 0) {
            (before, at) = (at, next);
            listed += 1;
            left -= 1;
        }
        if listed > 0 && best.is_none_or(|best| best.1 < listed) {
            best = Some((head, listed));
        }
    }
    best
}

fn link(reader: &mut CachedReader<'_>, record: u64, offset: u64) -> Option<u64> {
    reader.word(record.checked_add(offset)?, WORD)
}

/// Returns the size and the stack of a sampled span, if its `StackTrace`, which ends before `end`, is one of its size.
fn trace(reader: &mut CachedReader<'_>, heap: &Tcmalloc, span: &Span, end: u64) -> Option<(u64, Vec<u64>)> {
    let at = span.objects;
    if at == 0 || at % WORD != 0 || at >= USER_END || heap.span(at).is_some() {
        return None;
    }
    let (size, depth) = (reader.word(at, WORD)?, reader.word(at + WORD, WORD)?);
    let page = 1 << heap.map.shape.shift;
    let fits = size <= span.size && size.max(1).next_multiple_of(page) == span.size;
    if !fits || depth == 0 || depth > MOST_FRAMES || at + HEADER + WORD * depth > end {
        return None;
    }
    let stack: Option<Vec<u64>> = (0..depth).map(|number| reader.word(at + HEADER + WORD * number, WORD)).collect();
    stack.filter(|stack| stack.iter().all(|&pc| pc != 0 && pc < USER_END)).map(|stack| (size, stack))
}
