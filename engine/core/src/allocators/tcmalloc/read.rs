//! Finds every tcmalloc of a process and reads it whole.

use super::caches::{self, Cache};
use super::central::{self, Central};
use super::free::{self, Free, Kind, List, Problem};
use super::owned;
use super::page_map::{self, PageMap, Sample};
use super::sizes::{self, SizeMap};
use super::spans::{self, Fault, Span, Spans};
use super::{MOST_CLASSES, WORD};
use crate::blocks::slots::{Single, Slots};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;

/// How many spans of each class's lists must lead to the page map.
const SAMPLES: usize = 2;

/// A tcmalloc and its blocks.
pub struct Tcmalloc {
    /// The central caches.
    pub central: Central,
    /// The size classes.
    pub sizes: SizeMap,
    /// The page map.
    pub map: PageMap,
    /// The spans, sorted by address.
    pub spans: Vec<Span>,
    /// The first faults of the page map, as (what is wrong, the record, the address of the page).
    pub faults: Vec<(Fault, u64, u64)>,
    /// How many faults there are.
    pub fault_count: u64,
    /// The caches of threads, by address.
    pub caches: Vec<Cache>,
    /// For each span where its bits begin in `maps`. A set bit is a free object.
    pub first: Vec<u32>,
    /// The bits.
    pub maps: Vec<u64>,
    /// The first problems of lists.
    pub problems: Vec<Problem>,
    /// How many problems there are.
    pub problem_count: u64,
    /// Bytes of free objects: in spans, in transfer slots, in threads' caches.
    pub free: [u64; 3],
    /// Memory that belongs to tcmalloc, spans included: (start, end), sorted.
    pub owned: Vec<(u64, u64)>,
}

/// Why central caches that were found are not read: the check that failed, and their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The central caches.
    pub central: Central,
    /// The check that failed.
    pub check: &'static str,
}

/// Returns the tcmallocs whose variables lie in the ranges (the data of modules). `threads` is thread-local memory.
pub fn find(
    image: &Image,
    ranges: &[(u64, u64)],
    threads: &[(u64, u64)],
    control: &Control,
) -> Vec<Result<Tcmalloc, Refused>> {
    let found = central::find(image, ranges, control);
    found.into_iter().map(|central| read(image, ranges, threads, central, control)).collect()
}

fn read(
    image: &Image,
    ranges: &[(u64, u64)],
    threads: &[(u64, u64)],
    central: Central,
    control: &Control,
) -> Result<Tcmalloc, Refused> {
    let refused = |check| Refused { central, check };
    let mut reader = CachedReader::new(image);
    let mut samples: Vec<Sample> = Vec::new();
    for class in 1..central.classes {
        for record in central.spans(&mut reader, class, SAMPLES) {
            if let Some([start, pages, _, _, objects, bits]) = reader.words(record, WORD) {
                if bits >> 16 & 0xFF == class as u64 && pages != 0 {
                    samples.push((record, start, pages, objects));
                }
            }
        }
    }
    if samples.is_empty() {
        return Err(refused("no list of the central caches leads to a span of its size class"));
    }
    let map = page_map::find(image, ranges, &samples, control)
        .ok_or(refused("no page map of two or three levels leads to the spans of the central caches"))?;
    let shift = map.shape.shift;
    let sizes = sizes::find(image, ranges, central.classes, central.base, shift, control)
        .ok_or(refused("no table of size classes has as many classes as there are central caches"))?;
    walk(image, ranges, threads, (central, map, sizes), control)
}

/// Reads the spans, the caches and the free lists of a tcmalloc of which the rest is known.
pub fn walk(
    image: &Image,
    ranges: &[(u64, u64)],
    threads: &[(u64, u64)],
    (central, map, sizes): (Central, PageMap, SizeMap),
    control: &Control,
) -> Result<Tcmalloc, Refused> {
    let refused = |check| Refused { central, check };
    let Spans { all, faults, fault_count, tables } = spans::collect(image, &map, &sizes, control);
    if (all.len() as u64) < fault_count {
        return Err(refused("most spans are not where the page map says, or not as long as their size class demands"));
    }
    let places: Vec<(u64, u64)> = ranges.iter().chain(threads).copied().collect();
    let caches = caches::find(image, &places, &sizes, control);
    let mut own = tables;
    own.extend(owned::records(&all));
    own.extend(caches.iter().map(|cache| (cache.address, cache.address.saturating_add(caches::size(&sizes)))));
    own.sort_unstable();
    let mut owned = owned::metadata(image, ranges, &own, &all, control);
    owned.push((central.base, central.end()));
    owned.push((map.root, map.root.saturating_add(map.shape.table(0))));
    owned.extend(all.iter().map(|span| (span.start, span.end())));
    let owned = merged(owned);
    let mut free = Free::new(&all, &sizes);
    let bytes = release(image, &central, &caches, &mut free, control);
    let Free { first, maps, problems, problem_count, .. } = free;
    let free = bytes;
    Ok(Tcmalloc {
        central,
        map,
        faults,
        fault_count,
        caches,
        first,
        maps,
        problems,
        problem_count,
        free,
        owned,
        sizes,
        spans: all,
    })
}

/// Sets all free objects free. Returns the bytes in spans, in transfer slots and in caches.
fn release(image: &Image, central: &Central, caches: &[Cache], free: &mut Free<'_>, control: &Control) -> [u64; 3] {
    let mut reader = free::reader(image);
    let mut locked = [false; MOST_CLASSES];
    for (class, locked) in locked.iter_mut().enumerate().take(central.classes) {
        *locked = central.locked(&mut reader, class);
    }
    let (spans, sizes) = (free.spans, free.sizes);
    let mut bytes = [0; 3];
    for span in spans.iter().filter(|span| span.class != 0 && span.in_use()) {
        let (list, size) = (List::Span(span.record), sizes.bytes[usize::from(span.class)]);
        let (count, whole) = free.release(&mut reader, list, span.class, span.objects);
        bytes[0] += count * size;
        let counted = free::slots(span, sizes).saturating_sub(span.refcount);
        if whole && count != counted && !locked[usize::from(span.class)] {
            free.problem(Kind::Count, list, span.class, counted, count);
        }
        if control.cancelled() {
            return bytes;
        }
    }
    for (class, &locked) in locked.iter().enumerate().take(central.classes).skip(1) {
        let (heads, sound) = central.transfers(&mut reader, class);
        let list = List::Transfer(class as u8);
        if !sound && !locked {
            free.problem(Kind::Slots, list, class as u8, 0, 0);
        }
        for head in heads {
            bytes[1] += free.release(&mut reader, list, class as u8, head).0 * sizes.bytes[class];
        }
    }
    for cache in caches {
        for &(class, head, length) in &cache.lists {
            let list = List::Cache(cache.address);
            let (count, whole) = free.release(&mut reader, list, class, head);
            bytes[2] += count * sizes.bytes[usize::from(class)];
            if whole && count != length {
                free.problem(Kind::Count, list, class, length, count);
            }
        }
    }
    bytes
}

impl Tcmalloc {
    /// Returns the span that holds the address.
    pub fn span(&self, address: u64) -> Option<&Span> {
        let at = self.spans.partition_point(|span| span.end() <= address);
        self.spans.get(at).filter(|span| span.start <= address)
    }

    /// Returns the blocks: a span of slots for each span of a size class, and a single block for each other span.
    pub fn slots(&self) -> Slots {
        let mut out = Slots::default();
        for (span, &first) in self.spans.iter().zip(&self.first).filter(|(span, _)| span.in_use()) {
            let (size, count) = self.objects(span);
            if span.class == 0 {
                out.singles.push(Single { start: span.start, size, end: span.end() });
            } else {
                let map = self.maps.get(first as usize..).unwrap_or_default();
                out.add(span.start, size, count.min(u64::from(u32::MAX)) as u32, map.iter().copied());
            }
        }
        out
    }

    /// Returns the size and the number of the objects of the span; (0, 0) for a span that is not in use.
    pub fn objects(&self, span: &Span) -> (u64, u64) {
        match (span.in_use(), span.class) {
            (false, _) => (0, 0),
            (true, 0) => (span.size, 1),
            (true, class) => (self.sizes.bytes[usize::from(class)], free::slots(span, &self.sizes)),
        }
    }

    /// Returns the list that holds the free object at the address.
    pub fn holder(&self, image: &Image, address: u64, control: &Control) -> Option<List> {
        let (span, _) = free::object(&self.spans, &self.sizes, address)?;
        let span = &self.spans[span];
        let mut reader = CachedReader::new(image);
        let transfers = self.central.transfers(&mut reader, usize::from(span.class)).0;
        let cached = self.caches.iter().flat_map(|cache| {
            let of_class = cache.lists.iter().filter(|list| list.0 == span.class);
            of_class.map(|list| (List::Cache(cache.address), list.0, list.1))
        });
        let lists = std::iter::once((List::Span(span.record), span.class, span.objects))
            .chain(transfers.into_iter().map(|head| (List::Transfer(span.class), span.class, head)))
            .chain(cached);
        let most = self.maps.len() as u64 * 64;
        free::holder(image, lists, most, address, control)
    }
}

fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
