//! tcmalloc's own memory: what `MetaDataAlloc` gave out, and variables that hold pointers to free objects.

use super::spans::{Span, RECORD};
use super::{BLOCK, WORD};
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::search::userland;

/// kMetadataAllocChunkSize: so much is taken from the kernel at once.
const CHUNK: u64 = 8 << 20;
const PAGE: u64 = 4096;
/// kAllocIncrement: records of one kind lie side by side in so many bytes.
const AREA: u64 = 128 << 10;

/// Returns what belongs to tcmalloc around its own `objects` (sorted ranges: records, tables, caches).
///
/// The chunk in use is known exactly: `metadata_chunk_alloc_` and `metadata_chunk_avail_` lie side by side in the data of
/// the module. Elsewhere, what lies between objects that are near each other belongs to tcmalloc.
pub(super) fn metadata(
    image: &Image,
    ranges: &[(u64, u64)],
    objects: &[(u64, u64)],
    spans: &[Span],
    control: &Control,
) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = chunk(image, ranges, objects, spans, control).into_iter().collect();
    for &(start, end) in objects {
        let apart = |last: u64| last < start && has_span(spans, last, start);
        match out.last_mut() {
            Some(last) if last.0 <= start && start <= last.1.saturating_add(AREA) && !apart(last.1) => {
                last.1 = last.1.max(end);
            }
            _ => out.push((start, end)),
        }
    }
    out.sort_unstable();
    out
}

fn has_span(spans: &[Span], start: u64, end: u64) -> bool {
    let at = spans.partition_point(|span| span.end() <= start);
    spans.get(at).is_some_and(|span| span.start < end)
}

/// Returns the chunk in use. Of several candidates the one that reaches farthest is right: the others are areas in it.
fn chunk(
    image: &Image,
    ranges: &[(u64, u64)],
    objects: &[(u64, u64)],
    spans: &[Span],
    control: &Control,
) -> Option<(u64, u64)> {
    let mut best: Option<(u64, u64)> = None;
    let mut last = (0, 0);
    for (start, end) in userland(ranges) {
        each_word(image, start, end, BLOCK, |at, word| {
            let (before, next) = last;
            last = (at, word);
            if before + WORD == at {
                // Compilers put them in either order.
                for (next, left) in [(next, word), (word, next)] {
                    let found = candidate(image, objects, spans, next, left);
                    best = found.filter(|found| best.is_none_or(|best| best.1 < found.1)).or(best);
                }
            }
            !control.cancelled()
        });
    }
    best
}

fn candidate(image: &Image, objects: &[(u64, u64)], spans: &[Span], next: u64, left: u64) -> Option<(u64, u64)> {
    if left > CHUNK || next < CHUNK {
        return None;
    }
    let to = next.checked_add(left).filter(|to| to % PAGE == 0)?;
    let from = to - CHUNK;
    let first = objects.partition_point(|object| object.1 <= from);
    let holds = objects.get(first).is_some_and(|object| from <= object.0 && object.1 <= next);
    (holds && image.covered(from, to) == [(from, to)] && !has_span(spans, from, to)).then_some((from, to))
}

/// Returns the ranges of the spans' records.
pub(super) fn records(spans: &[Span]) -> impl Iterator<Item = (u64, u64)> + '_ {
    spans.iter().map(|span| (span.record, span.record.saturating_add(RECORD)))
}
