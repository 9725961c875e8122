//! What was read of one mimalloc: its pages by address, the memory that it owns, and what is wrong.

use super::page::{Fault, Links, Page, DELAYED};
use super::shape::Shape;
use crate::blocks::slots::{Single, Slots};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;

/// How many faults are described. All are counted.
const DESCRIBED: usize = 100;
/// The least id of a thread: its thread pointer. Lower ones have a meaning of their own.
const LEAST_THREAD: u64 = 4096;
/// The share of pages that must agree with themselves, in percent.
const BELIEVED: usize = 80;

/// One mimalloc of a process.
#[derive(Clone, Debug)]
pub struct Heap {
    /// The shape that holds for its pages.
    pub shape: Shape,
    /// Its pages, sorted by address of their first block.
    pub pages: Vec<Page>,
    /// Segments (2.x) or arenas (3.x): start, end, and the thread that owns it, or 0.
    pub regions: Vec<(u64, u64, u64)>,
    /// All its memory, sorted and merged after [`Heap::follow`].
    pub owned: Vec<(u64, u64)>,
    /// The first faults: what is wrong, and where.
    pub faults: Vec<(Fault, u64)>,
    /// How many faults there are.
    pub fault_count: usize,
    /// Pages whose count of blocks is off by one: a thread was inside malloc.
    pub changing: usize,
    /// Whether heaps have no list of delayed blocks that could be recognised (2.x).
    pub no_delayed: bool,
    /// Where the page map lies (3.x).
    pub map: u64,
    /// Pages that hold no bytes of the dump.
    pub absent: usize,
}

impl Heap {
    pub(super) fn new(shape: Shape) -> Heap {
        Heap {
            shape,
            pages: Vec::new(),
            regions: Vec::new(),
            owned: Vec::new(),
            faults: Vec::new(),
            fault_count: 0,
            changing: 0,
            no_delayed: false,
            map: 0,
            absent: 0,
        }
    }

    pub(super) fn fault(&mut self, fault: Fault, at: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, at));
        }
    }

    pub(super) fn own(&mut self, start: u64, end: u64) {
        if start < end {
            self.owned.push((start, end));
        }
    }

    /// Sorts the pages, drops those that overlap others, and follows their lists.
    pub(super) fn follow(&mut self, reader: &mut CachedReader<'_>, control: &Control) {
        let mut pages = std::mem::take(&mut self.pages);
        pages.sort_by_key(|page| (page.start, page.address));
        let mut reached = 0;
        for mut page in pages {
            if control.cancelled() {
                break;
            }
            if page.start < reached {
                self.fault(Fault::Overlap, page.address);
                continue;
            }
            reached = page.end();
            // Nothing is known of blocks that the dump does not have. Their number may be a lie.
            if reader.image().next(page.start).is_none_or(|at| at >= page.made().max(page.start + 1)) {
                self.absent += 1;
                continue;
            }
            match page.follow(reader) {
                Err((Fault::Count, _))
                    if u64::from(page.capacity).abs_diff(page.in_no_list() + u64::from(page.used)) == 1 =>
                {
                    self.changing += 1;
                }
                Err((fault, at)) => self.fault(fault, at),
                Ok(()) => (),
            }
            self.pages.push(page);
        }
        self.owned = merged(std::mem::take(&mut self.owned));
    }

    /// Follows the delayed list of a heap. `choices` are the keys that may encode its links.
    pub(super) fn follow_delayed(&mut self, image: &Image, owner: u64, list: u64, choices: &[Option<[u64; 2]>]) {
        if list == 0 {
            return;
        }
        let mut reader = CachedReader::new(image);
        let page_at = |pages: &[Page], at: u64| pages.partition_point(|page| page.made() <= at);
        // The keys fit if the first block leads to another one, or to the end.
        let fits = |pages: &[Page], reader: &mut CachedReader<'_>, keys| {
            let next = Links { keys, null: owner }.next(reader, list);
            next.is_some_and(|next| {
                next == 0 || pages.get(page_at(pages, next)).is_some_and(|page| page.slot(next).is_some())
            })
        };
        let keys = choices.iter().copied().find(|&keys| fits(&self.pages, &mut reader, keys));
        let links = Links { keys: keys.or_else(|| choices.first().copied()).flatten(), null: owner };
        let mut at = list;
        while at != 0 {
            let index = page_at(&self.pages, at);
            let put = self.pages.get_mut(index).map_or(Err(Fault::Link), |page| page.put(at, DELAYED));
            let next = links.next(&mut reader, at);
            match (put, next) {
                (Ok(()), Some(next)) => at = next,
                (Err(fault), _) => return self.fault(fault, at),
                (_, None) => return self.fault(Fault::Missing, at),
            }
        }
    }

    /// Returns the page whose blocks hold the address, or would hold it.
    pub fn page_at(&self, address: u64) -> Option<&Page> {
        let index = self.pages.partition_point(|page| page.end() <= address);
        self.pages.get(index).filter(|page| page.start <= address)
    }

    /// Returns the blocks of all pages. Where blocks are padded, each has the size that the program asked for.
    pub fn slots(&self, image: &Image) -> Slots {
        let mut slots = Slots::default();
        let mut reader = CachedReader::new(image);
        for page in self.pages.iter().filter(|page| page.capacity > 0) {
            if page.keys.is_none() {
                slots.add(page.start, page.block, page.capacity, page.map.iter().copied());
                continue;
            }
            for slot in (0..page.capacity as usize).filter(|&slot| !page.is_free(slot)) {
                let start = page.start + slot as u64 * page.block;
                let size = page.asked(&mut reader, start).unwrap_or(page.block).max(1);
                slots.singles.push(Single { start, size, end: start + page.block });
            }
        }
        slots
    }

    /// Returns the memory of segments and arenas in which no block was made so far: pages that are not in use, the ends of
    /// pages, and a few headers.
    pub fn free_memory(&self) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        for &(start, end, _) in &self.regions {
            let first = self.pages.partition_point(|page| page.end() <= start);
            let mut at = start;
            for page in self.pages[first..].iter().take_while(|page| page.start < end) {
                if page.start > at {
                    out.push((at, page.start));
                }
                at = at.max(page.made());
            }
            if at < end {
                out.push((at, end));
            }
        }
        out
    }

    /// Returns the blocks that mimalloc took for itself. Since 3.6 it has a heap for its threads' records. A thread that
    /// cannot be owns its pages: the id is no address of a thread's block.
    pub fn own_blocks(&self) -> Vec<u64> {
        let own = self.pages.iter().filter(|page| (1..LEAST_THREAD).contains(&page.thread));
        own.flat_map(|page| {
            let live = (0..page.capacity as usize).filter(|&slot| !page.is_free(slot));
            live.map(|slot| page.start + slot as u64 * page.block)
        })
        .collect()
    }

    /// Returns how many pages were followed, and how many of them agree with themselves.
    fn score(&self) -> (usize, usize) {
        (self.pages.len() + self.fault_count + self.absent, self.pages.len().saturating_sub(self.fault_count))
    }
}

/// Finds the best of several readings.
#[derive(Default)]
pub(super) struct Trial {
    best: Option<(usize, usize, Heap)>,
}

impl Trial {
    /// Adds a reading of the same pages. An earlier one wins where two are equal.
    pub(super) fn add(&mut self, heap: Heap) {
        let (all, sound) = heap.score();
        if self.best.as_ref().is_none_or(|&(of, best, _)| (sound * of.max(1), sound) > (best * all.max(1), best)) {
            self.best = Some((all, sound, heap));
        }
    }

    /// Returns the shape of the best reading, or what failed in it.
    pub(super) fn best(self) -> Result<Shape, String> {
        match self.best {
            Some((all, sound, heap)) if sound > 0 && sound * 100 >= all * BELIEVED => Ok(heap.shape),
            Some((all, sound, heap)) => {
                let what =
                    heap.faults.first().map_or("no page is in use".to_string(), |(fault, _)| format!("{fault:?}"));
                Err(format!("{sound} of {all} pages agree with themselves ({what})"))
            }
            None => Err("no page is in use".to_string()),
        }
    }
}

/// Returns the ranges sorted, and merged where they touch.
pub(super) fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
