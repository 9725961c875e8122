//! Segments of mimalloc 2.x: 32 or 64 MiB, aligned to their size, with an array of slices (`mi_segment_t`).
//!
//! The offset of the array is not known. Each offset is tried: the fields before it, the array's first entry and the
//! cookie must agree. The cookie is the segment's address XOR a secret of the process, which lies in the data of
//! mimalloc's module.

use super::page::{self, Fault, Page};
use super::shape::{in_segments, Shape, SLICE};
use super::walked::{Heap, Trial};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::words::USER_END;
use std::collections::{HashMap, HashSet};

/// `MI_SEGMENT_ALIGN` of 2.0.9 and later. That of earlier releases is twice as much.
const ALIGN: u64 = 32 << 20;
/// How many slices a segment has, unless it is one huge page.
const COUNTS: [u64; 2] = [512, 1024];
/// Bytes of a segment's header before its slices.
const HEADER: usize = 2048;
/// The segments that a trial of a shape reads.
const TRIED: usize = 64;
/// How many possible segments are looked at.
const MOST: usize = 1 << 20;
const BLOCK: usize = 1 << 18;

/// The fields of a segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    /// Where the slices begin.
    slices: u64,
    /// How many slices it has, and how many of them hold the header.
    count: u64,
    info: u64,
    /// How many entries of the array are used.
    entries: u64,
    thread: u64,
    /// The place of the cookie, counted back from the slices.
    back: u64,
    secret: u64,
    /// How many pages are in use.
    used: u64,
}

impl Segment {
    /// Returns whether there is a cookie at all.
    fn has_cookie(&self) -> bool {
        self.secret != self.address
    }
}

/// Reads all mimallocs 2.x of a process. `memory` is where segments may lie, `data` the data of modules. The second
/// value names the check that failed, if something looked like one.
pub(super) fn find(
    image: &Image,
    data: &[(u64, u64)],
    memory: &[(u64, u64)],
    control: &Control,
) -> (Vec<Heap>, Option<String>) {
    let possible = candidates(image, memory, control);
    if possible.is_empty() {
        return (Vec::new(), None);
    }
    let wanted: HashSet<u64> = possible.iter().filter(|one| one.has_cookie()).map(|one| one.secret).collect();
    let mut known: HashSet<u64> = HashSet::new();
    for &(start, end) in data {
        each_word(image, start, end, BLOCK, |_, word| {
            if wanted.contains(&word) {
                known.insert(word);
            }
            !control.cancelled()
        });
    }
    // Without the module's data, two segments with the same secret prove each other.
    let mut shared: HashMap<(u64, u64, u64), HashSet<u64>> = HashMap::new();
    for one in possible.iter().filter(|one| one.has_cookie()) {
        shared.entry((one.secret, one.slices, one.back)).or_default().insert(one.address);
    }
    let mut kinds: Vec<_> = shared
        .iter()
        .filter(|((secret, _, _), addresses)| known.contains(secret) || addresses.len() > 1)
        .map(|(&kind, addresses)| (std::cmp::Reverse(addresses.len()), kind))
        .collect();
    kinds.sort_unstable();
    let confirmed: HashSet<u64> = kinds.iter().map(|&(_, (secret, _, _))| secret).collect();
    if kinds.is_empty() {
        // One block of a program that looks like a segment is not worth a note; the caller knows what must be there.
        return (Vec::new(), Some("no segment's cookie is confirmed".to_string()));
    }
    let (mut read_of, mut refused) = (Vec::new(), None);
    let mut taken: HashSet<u64> = HashSet::new();
    for (_, (secret, slices, back)) in kinds {
        let fits = |one: &&Segment| one.slices == slices && one.back == back;
        let mut own: Vec<Segment> = possible.iter().filter(fits).filter(|one| one.secret == secret).copied().collect();
        own.retain(|one| !taken.contains(&one.address));
        if own.is_empty() {
            continue;
        }
        match choose(image, &own) {
            Ok(shape) => {
                taken.extend(own.iter().map(|one| one.address));
                read_of.push((shape, own));
            }
            Err(why) => refused = Some(why),
        }
    }
    let read = |(shape, own): (Shape, Vec<Segment>)| {
        let others = possible.iter().filter(|one| !taken.contains(&one.address) && !confirmed.contains(&one.secret));
        let spoiled = spoiled(image, &shape, &own, others);
        read(image, &shape, own, spoiled, control)
    };
    (read_of.into_iter().map(read).collect(), refused)
}

/// Returns the segments whose cookie was overwritten: all else is as in the segments that are known.
fn spoiled<'a>(
    image: &Image,
    shape: &Shape,
    known: &[Segment],
    others: impl Iterator<Item = &'a Segment>,
) -> Vec<Segment> {
    let Some(first) = known.first() else { return Vec::new() };
    let threads: HashSet<u64> = known.iter().map(|one| one.thread).chain([0]).collect();
    let mut reader = CachedReader::new(image);
    let alike = |one: &&Segment| one.slices == first.slices && one.back == first.back && threads.contains(&one.thread);
    let mut is_sound = |one: &&Segment| {
        let mut heap = Heap::new(*shape);
        slices(&mut reader, shape, one, &mut heap);
        heap.fault_count == 0 && heap.pages.len() as u64 == one.used
    };
    others.filter(alike).filter(|one| is_sound(one)).copied().collect()
}

/// Returns every reading of an aligned address as a segment.
fn candidates(image: &Image, memory: &[(u64, u64)], control: &Control) -> Vec<Segment> {
    let mut out = Vec::new();
    for &(start, end) in memory {
        for (from, to) in image.covered(start, end.min(USER_END)) {
            let mut at = from.next_multiple_of(ALIGN);
            while at < to && out.len() < MOST && !control.cancelled() {
                header(image, at, &mut out);
                at = match at.checked_add(ALIGN) {
                    Some(next) => image.data_from(next, to).next_multiple_of(ALIGN),
                    None => return out,
                };
            }
        }
    }
    out
}

/// Adds the readings of one header.
fn header(image: &Image, address: u64, out: &mut Vec<Segment>) {
    let mut bytes = [0; HEADER];
    let words = image.read(address, &mut bytes) / 8;
    let word = |at: usize| bytes[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes);
    for slices in 12..words {
        let (first, info) = (word(slices), word(slices - 4));
        // slices[0] is the header itself: slice_count, then slice_offset 0.
        if info == 0 || info > 8 || first != info {
            continue;
        }
        let (count, kind) = (word(slices - 5), word(slices - 3) & 0xffff_ffff);
        let (a, b) = (word(slices - 1), word(slices - 2));
        // thread_id and slice_entries changed places in 2.0.9.
        // A secure build does not use the last slice.
        let is_entries = |n: u64| COUNTS.iter().any(|&most| matches!(count.min(most).checked_sub(n), Some(0 | 1)));
        let (entries, thread) = match (is_entries(b), is_entries(a)) {
            (true, _) => (b, a),
            (_, true) => (a, b),
            _ => continue,
        };
        let sized = if kind == 0 { COUNTS.contains(&count) } else { count > info && count < 1 << 30 };
        if kind > 1 || !sized {
            continue;
        }
        for back in 6..9 {
            let (cookie, used) = (word(slices - back), word(slices - back - 1));
            if used > count {
                continue;
            }
            let secret = cookie ^ address;
            let (slices, back) = (8 * slices as u64, 8 * back as u64);
            out.push(Segment { address, slices, count, entries, info, thread, back, secret, used });
        }
    }
}

/// Returns the shape in which the most pages agree with themselves, or what failed.
fn choose(image: &Image, segments: &[Segment]) -> Result<Shape, String> {
    let mut trial = Trial::default();
    let mut reader = CachedReader::new(image);
    for shape in in_segments() {
        let mut heap = Heap::new(*shape);
        for segment in segments.iter().filter(|one| one.used > 0).take(TRIED) {
            slices(&mut reader, shape, segment, &mut heap);
        }
        heap.follow(&mut reader, &Control::default());
        trial.add(heap);
    }
    trial.best()
}

/// Reads all segments. Those that are `spoiled` have another cookie than their address demands.
fn read(image: &Image, shape: &Shape, own: Vec<Segment>, spoiled: Vec<Segment>, control: &Control) -> Heap {
    let mut segments: Vec<(Segment, bool)> = own.into_iter().map(|one| (one, false)).collect();
    segments.extend(spoiled.into_iter().map(|one| (one, true)));
    segments.sort_by_key(|(one, _)| one.address);
    let (mut heap, mut reader) = (Heap::new(*shape), CachedReader::new(image));
    let mut reached = 0;
    for (segment, spoiled) in &segments {
        // What looks like a segment within another one is its content.
        if segment.address < reached || control.cancelled() {
            continue;
        }
        let end = segment.address.saturating_add(segment.count.saturating_mul(SLICE));
        if segment.used > 0 {
            reached = end;
        }
        if *spoiled {
            heap.fault(Fault::Cookie, segment.address);
        }
        heap.own(segment.address, end);
        heap.regions.push((segment.address, end, segment.thread));
        slices(&mut reader, shape, segment, &mut heap);
    }
    heap.follow(&mut reader, control);
    delayed(image, &mut heap);
    heap
}

/// Reads the pages of a segment.
fn slices(reader: &mut CachedReader<'_>, shape: &Shape, segment: &Segment, heap: &mut Heap) {
    let at = |i: u64| segment.address + segment.slices + i * shape.stride;
    let mut i = segment.info;
    while i < segment.entries {
        let Some(word) = reader.word(at(i), 8) else {
            heap.fault(Fault::Missing, at(i));
            return;
        };
        let (count, offset) = (word & 0xffff_ffff, word >> 32);
        if count == 0 || offset != 0 || i + count > segment.count {
            heap.fault(Fault::Slices, at(i));
            return;
        }
        let size = reader.word(at(i) + (shape.block.0 as u64 & !7), 8).unwrap_or(0);
        let size = if shape.block.1 == 4 { size >> 32 } else { size };
        // A span that is free has the block size 0, or 1 if it is in no queue.
        let free = size == 0 || size == 1 && page::is_cleared(reader.image(), shape, at(i));
        if !free {
            let from = segment.address + i * SLICE;
            match Page::read(reader.image(), shape, at(i), (from, from + count * SLICE)) {
                Some(page) => heap.pages.push(Page { thread: segment.thread, ..page }),
                None => heap.fault(Fault::Page, at(i)),
            }
        }
        i += count;
    }
}

/// Bytes of a `mi_heap_t` that are searched for its list.
const HEAP_WORDS: usize = 640;

/// Marks the blocks in the delayed lists of heaps. `thread_delayed_free` stands before `thread_id` in every release.
fn delayed(image: &Image, heap: &mut Heap) {
    let mut owners: Vec<(u64, u64)> = heap.pages.iter().map(|page| (page.heap, page.thread)).collect();
    owners.sort_unstable();
    owners.dedup();
    owners.retain(|&(address, thread)| address != 0 && thread != 0);
    let mut reader = CachedReader::new(image);
    let mut places: HashMap<usize, usize> = HashMap::new();
    for &(address, thread) in owners.iter().take(TRIED) {
        let mut word = |i: usize| reader.word(address.saturating_add(8 * i as u64), 8);
        if let Some(place) = (2..HEAP_WORDS).find(|&i| word(i) == Some(thread)) {
            *places.entry(place).or_default() += 1;
        }
    }
    let Some((&place, _)) = places.iter().max_by_key(|&(place, votes)| (*votes, std::cmp::Reverse(*place))) else {
        heap.no_delayed = !owners.is_empty();
        return;
    };
    for (address, thread) in owners {
        let at = |i: usize| address.saturating_add(8 * i as u64);
        let (Some(list), Some(own)) = (reader.word(at(place - 1), 8), reader.word(at(place), 8)) else {
            heap.fault(Fault::Missing, at(place));
            continue;
        };
        if own != thread {
            heap.fault(Fault::Page, at(place));
        } else {
            // arena_id came between thread_id and the keys in 2.0.9.
            let keys = |i: usize, reader: &mut CachedReader<'_>| reader.words::<2>(at(i), 8);
            let choices = match heap.shape.coded {
                false => vec![None],
                true => vec![keys(place + 3, &mut reader), keys(place + 2, &mut reader)],
            };
            heap.follow_delayed(image, address, list, &choices);
        }
    }
}
