//! All spans of a page map.

use super::page_map::PageMap;
use super::sizes::SizeMap;
use super::{BLOCK, WORD};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::words::USER_END;
use std::collections::BTreeMap;

/// How many faults are described. All are counted.
const DESCRIBED: usize = 100;
/// Bytes of a `Span`.
pub(super) const RECORD: u64 = 48;
/// Blocks of the reader's cache: records lie side by side, but not in the order of their pages.
const CACHED: usize = 1024;
/// The most tables of a map. A process with 128 TiB of memory has so many leaves.
const MOST_TABLES: usize = 1 << 17;

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of its record.
    pub record: u64,
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The first of its free objects, or 0. For a sampled object, its stack.
    pub objects: u64,
    /// How many of its objects are not in the list `objects`.
    pub refcount: u64,
    /// Its size class; 0 for a span with one object.
    pub class: u8,
    /// 0: in use. 1: free. 2: free, and given back to the kernel.
    pub location: u8,
    /// Whether its one object was sampled.
    pub sampled: bool,
}

impl Span {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Returns whether the program may have blocks there.
    pub fn in_use(&self) -> bool {
        self.location == 0
    }
}

/// What is wrong with an entry of the page map, or with the span that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The record is not in the dump.
    Missing,
    /// The record does not name the page, or the span is too long.
    Pages,
    /// The location or the size class is not valid.
    Bits,
    /// The map does not lead to the record at the span's last page.
    End,
    /// The span is not as long as its size class demands.
    Size,
    /// The map is too large, or a table lies within another.
    Table,
}

/// The spans, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// The spans.
    pub all: Vec<Span>,
    /// The first faults, as (what is wrong, the record, the address of the page).
    pub faults: Vec<(Fault, u64, u64)>,
    /// How many faults there are.
    pub fault_count: u64,
    /// The map's tables without the root: (start, end).
    pub tables: Vec<(u64, u64)>,
}

impl Spans {
    fn fault(&mut self, fault: Fault, record: u64, at: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, record, at));
        }
    }
}

/// Returns all spans that the map leads to. A span is believed if its record names the page that led to it, and the map
/// leads from its last page to the same record. Entries within a believed span are stale, or the span's own.
pub(super) fn collect(image: &Image, map: &PageMap, sizes: &SizeMap, control: &Control) -> Spans {
    let mut out = Spans::default();
    let mut tables: Vec<(u64, u64)> = vec![(map.root, 0)]; // (address, first page)
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    let levels = map.shape.levels.len();
    for level in 0..levels - 1 {
        let mut below = Vec::new();
        for &(table, first) in &tables {
            each_word(image, table, table.saturating_add(map.shape.table(level)), BLOCK, |at, word| {
                let page = first + (at - table) / WORD * map.shape.covers(level);
                let end = word.saturating_add(map.shape.table(level + 1));
                let overlaps = taken.range(..end).next_back().is_some_and(|(_, &stop)| stop > word);
                if word % WORD != 0 || end >= USER_END || overlaps || taken.len() >= MOST_TABLES {
                    out.fault(Fault::Table, word, page << map.shape.shift);
                } else {
                    taken.insert(word, end);
                    below.push((word, page));
                }
                !control.cancelled()
            });
        }
        tables = below;
    }
    let mut reader = CachedReader::with_slots(image, CACHED);
    let mut next = 0;
    for (table, first) in tables {
        each_word(image, table, table.saturating_add(map.shape.table(levels - 1)), BLOCK, |at, record| {
            let page = first + (at - table) / WORD;
            if page >= next {
                match span(&mut reader, map, sizes, record, page) {
                    Ok((span, pages)) => {
                        next = page + pages;
                        out.all.push(span);
                    }
                    Err(fault) => out.fault(fault, record, page << map.shape.shift),
                }
            }
            !control.cancelled()
        });
    }
    out.tables = taken.into_iter().collect();
    out
}

/// Returns the span and its number of pages.
fn span(
    reader: &mut CachedReader<'_>,
    map: &PageMap,
    sizes: &SizeMap,
    record: u64,
    page: u64,
) -> Result<(Span, u64), Fault> {
    let [start, pages, _next, _prev, objects, bits] = reader.words(record, WORD).ok_or(Fault::Missing)?;
    let shift = map.shape.shift;
    if start != page || pages == 0 || pages > USER_END >> shift || page + pages > USER_END >> shift {
        return Err(Fault::Pages);
    }
    let (class, location) = ((bits >> 16) as u8, (bits >> 24 & 3) as u8);
    if location > 2 || usize::from(class) >= sizes.bytes.len() || class != 0 && location != 0 {
        return Err(Fault::Bits);
    }
    if pages > 1 && map.get(reader, page + pages - 1) != Some(record) {
        return Err(Fault::End);
    }
    if class != 0 && pages != sizes.pages[usize::from(class)] {
        return Err(Fault::Size);
    }
    let (start, size, sampled) = (page << shift, pages << shift, bits >> 26 & 1 != 0);
    Ok((Span { record, start, size, objects, refcount: bits & 0xFFFF, class, location, sampled }, pages))
}
