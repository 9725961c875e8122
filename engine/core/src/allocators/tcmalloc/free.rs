//! Follows the lists of free objects. Each object's first word points to the next one.

use super::sizes::SizeMap;
use super::spans::Span;
use super::WORD;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;

/// How many problems are described. All are counted.
const DESCRIBED: usize = 100;
const CACHED: usize = 4096;
/// The most words of the bits: those of 2^34 objects.
const MOST_WORDS: u64 = 1 << 28;

/// What a list belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The span with the record at that address.
    Span(u64),
    /// A slot of the central cache of that size class.
    Transfer(u8),
    /// The cache at that address, of a thread.
    Cache(u64),
}

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A link leads to no object of the size class.
    NotAnObject,
    /// A link leads to an object that is free already: a double free, a cycle, or an object on two lists.
    AlreadyFree,
    /// A link is not in the dump.
    Missing,
    /// The list has fewer objects or more than its owner counts.
    Count,
    /// The central cache claims more slots than it has.
    Slots,
}

/// A problem of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub kind: Kind,
    /// The list.
    pub list: List,
    /// Its size class.
    pub class: u8,
    /// The object whose link is bad, or 0 for the head of the list. For `Count`: how many objects the owner counts.
    pub from: u64,
    /// Where the link leads. For `Count`: how many objects the list has.
    pub to: u64,
}

/// The free objects, as a bit for each object of each span.
pub(super) struct Free<'a> {
    pub spans: &'a [Span],
    pub sizes: &'a SizeMap,
    /// Where the bits of each span begin in `maps`. Spans without objects have none.
    pub first: Vec<u32>,
    pub maps: Vec<u64>,
    pub problems: Vec<Problem>,
    pub problem_count: u64,
}

impl<'a> Free<'a> {
    pub(super) fn new(spans: &'a [Span], sizes: &'a SizeMap) -> Self {
        let mut words = 0u64;
        let mut first = Vec::with_capacity(spans.len());
        for span in spans {
            first.push(words as u32);
            words = (words + slots(span, sizes).div_ceil(64)).min(MOST_WORDS);
        }
        Free { spans, sizes, first, maps: vec![0; words as usize], problems: Vec::new(), problem_count: 0 }
    }

    pub(super) fn problem(&mut self, kind: Kind, list: List, class: u8, from: u64, to: u64) {
        self.problem_count += 1;
        if self.problems.len() < DESCRIBED {
            self.problems.push(Problem { kind, list, class, from, to });
        }
    }

    /// Sets free all objects of the list, and returns how many. A bad link ends the list.
    pub(super) fn release(&mut self, reader: &mut CachedReader<'_>, list: List, class: u8, head: u64) -> (u64, bool) {
        let (mut from, mut at, mut count) = (0, head, 0);
        while at != 0 {
            let Some((span, slot)) =
                object(self.spans, self.sizes, at).filter(|&(span, _)| self.fits(span, list, class))
            else {
                self.problem(Kind::NotAnObject, list, class, from, at);
                return (count, false);
            };
            let Some(word) = self.maps.get_mut(self.first[span] as usize + slot as usize / 64) else {
                return (count, false);
            };
            if *word >> (slot % 64) & 1 != 0 {
                self.problem(Kind::AlreadyFree, list, class, from, at);
                return (count, false);
            }
            *word |= 1 << (slot % 64);
            count += 1;
            let Some(next) = reader.word(at, WORD) else {
                self.problem(Kind::Missing, list, class, at, 0);
                return (count, false);
            };
            (from, at) = (at, next);
        }
        (count, true)
    }

    fn fits(&self, span: usize, list: List, class: u8) -> bool {
        let span = &self.spans[span];
        span.class == class && !matches!(list, List::Span(record) if record != span.record)
    }
}

/// Returns how many objects of a size class the span has room for; 0 for other spans.
pub(super) fn slots(span: &Span, sizes: &SizeMap) -> u64 {
    match sizes.bytes.get(usize::from(span.class)) {
        Some(&size) if size > 0 && span.in_use() => span.size / size,
        _ => 0,
    }
}

/// Returns the span and the number of the object that begins at the address.
pub(super) fn object(spans: &[Span], sizes: &SizeMap, address: u64) -> Option<(usize, u64)> {
    let at = spans.partition_point(|span| span.end() <= address);
    let span = spans.get(at).filter(|span| span.start <= address && span.class != 0)?;
    let size = *sizes.bytes.get(usize::from(span.class))?;
    let offset = address - span.start;
    (offset % size == 0 && offset / size < slots(span, sizes)).then_some((at, offset / size))
}

/// Returns the first list with the object, in the order of the lists, which are given as (list, class, head).
pub(super) fn holder(
    image: &Image,
    lists: impl Iterator<Item = (List, u8, u64)>,
    most: u64,
    address: u64,
    control: &Control,
) -> Option<List> {
    let mut reader = CachedReader::with_slots(image, CACHED);
    let mut steps = 0;
    for (list, _, head) in lists {
        let mut at = head;
        while at != 0 && steps < most && !control.cancelled() {
            if at == address {
                return Some(list);
            }
            steps += 1;
            at = reader.word(at, WORD).unwrap_or(0);
        }
    }
    None
}

/// Makes a reader for links all over the heap.
pub(super) fn reader(image: &Image) -> CachedReader<'_> {
    CachedReader::with_slots(image, CACHED)
}
