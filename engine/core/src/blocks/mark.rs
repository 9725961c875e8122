//! Finds the reachable blocks.
//!
//! A block is reachable when a root or a reachable block holds a pointer into it. [`reach`] is the one place that
//! decides. Free blocks are marked from the start, so nothing is followed through them.
//!
//! On a large heap every step is a cache miss. So targets wait in a short queue while the CPU loads their tables, and so
//! do the edge lists of marked blocks. A linked list in shuffled order allows no overlap between nodes. There [`Guide`] says
//! where the edges of the next node are, about, so that its two misses overlap.

use super::ends;
#[cfg(doc)]
use super::guide::Guide;
use super::index::{chunk_of_word, edges_of, size_of, Region, Tables};
use super::number::Index;
use super::root_reader::RootReader;
use super::runs::REGION;
use super::unaligned::Unaligned;
use super::word_map::WordMap;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// Targets whose tables are being loaded.
const PENDING: usize = 32;
/// Blocks whose edges are being loaded.
const READY: usize = 8;
/// With fewer targets in the ring, the edges of each are loaded before its tables are there.
const FEW: usize = 2;
/// How far from the guess the edges are loaded too.
const AROUND: usize = 5;
/// The marking in progress.
pub struct Marker<'a, I: Index, const P: usize> {
    /// The tables that are marked.
    pub tables: &'a mut Tables<I, P>,
    /// What is still to follow: ranges of edges, then the targets in the ring.
    stack: Vec<(I, I)>,
    ring: Ring,
    /// Blocks marked since the last `take_counts` and, with `count_bytes`, their usable bytes.
    count: u64,
    bytes: u64,
    /// Whether bytes are counted too.
    pub count_bytes: bool,
    /// If present, it records the blocks reached.
    pub journal: Option<Vec<usize>>,
    /// If present, a pointer may begin at any byte.
    pub unaligned: Option<Unaligned<'a>>,
    /// If present, ends of blocks in roots are left out, and noted here: the words that they lead to.
    pub ends: Option<Vec<usize>>,
    /// If present, marking ends as soon as all of these blocks are reached. The list shrinks meanwhile.
    pub goals: Option<Vec<usize>>,
}

/// Targets whose tables are being loaded.
#[derive(Clone, Copy)]
struct Ring {
    pending: [usize; PENDING],
    next: usize,
    waiting: usize,
}

impl Ring {
    /// Appends a target. Returns the oldest one when the ring is full.
    #[inline(always)]
    fn wait(&mut self, target: usize) -> Option<usize> {
        let oldest = std::mem::replace(&mut self.pending[self.next % PENDING], target);
        self.next = (self.next + 1) % PENDING;
        if self.waiting < PENDING {
            self.waiting += 1;
            return None;
        }
        Some(oldest)
    }

    #[inline(always)]
    fn oldest(&mut self) -> Option<usize> {
        let at = (self.next + PENDING - self.waiting) % PENDING;
        self.waiting = self.waiting.checked_sub(1)?;
        Some(self.pending[at])
    }
}

impl<'a, I: Index, const P: usize> Marker<'a, I, P> {
    /// Begins marking.
    pub fn new(tables: &'a mut Tables<I, P>) -> Self {
        let ring = Ring { pending: [0; PENDING], next: 0, waiting: 0 };
        Marker {
            tables,
            stack: Vec::new(),
            ring,
            count: 0,
            bytes: 0,
            count_bytes: false,
            journal: None,
            unaligned: None,
            ends: None,
            goals: None,
        }
    }

    /// Takes a candidate pointer, given as a word number.
    pub fn meet(&mut self, target: usize) {
        hw::prefetch(&self.tables.regions, target / (REGION * P));
        if let Some(oldest) = self.ring.wait(target) {
            if let Some(granule) = self.tables.chunk_of_word(oldest) {
                self.reach(granule);
            }
        }
    }

    /// Marks the block whose chunk begins at `granule`. `drain` follows its pointers.
    pub fn reach(&mut self, granule: usize) {
        if reach(&mut self.tables.regions, self.tables.edges.as_slice(), &mut self.stack, granule) {
            self.count += 1;
            self.add_bytes(granule);
            self.note(granule);
        }
    }

    /// Writes down a block that was reached, where that is asked for.
    fn note(&mut self, granule: usize) {
        if let Some(journal) = &mut self.journal {
            journal.push(granule);
        }
        if let Some(unaligned) = &mut self.unaligned {
            unaligned.reached(granule);
        }
    }

    fn add_bytes(&mut self, granule: usize) {
        if self.count_bytes {
            let run = self.tables.word_map.run_of_granule(granule);
            self.bytes += self.tables.block(run, granule).size;
        }
    }

    /// Returns whether all goals are reached. Without goals, marking goes to the end.
    pub fn is_enough(&mut self) -> bool {
        let Some(goals) = &mut self.goals else { return false };
        while goals.last().is_some_and(|&goal| self.tables.is_marked(goal)) {
            goals.pop();
        }
        goals.is_empty()
    }

    /// Follows everything that is queued, to the end.
    pub fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        if self.is_enough() {
            return Ok(());
        }
        if !self.count_bytes && self.journal.is_none() && self.unaligned.is_none() {
            return hw::fast_work(Following::<I, P, false> { marker: self, control });
        }
        loop {
            hw::fast_work(Following::<I, P, true> { marker: self, control })?;
            let Some(unaligned) = &mut self.unaligned else { return Ok(()) };
            let unread = unaligned.take_unread();
            if unread.is_empty() {
                return Ok(());
            }
            self.read_blocks(unread, control)?;
        }
    }

    /// `ACCOUNT` counts bytes and notes the blocks.
    #[inline(always)]
    fn follow<const ACCOUNT: bool>(&mut self, control: &Control) -> Result<(), Stopped> {
        // Borrowed once, so that the compiler sees that a store to the tables does not change their addresses.
        let Marker { tables, journal, unaligned, goals, .. } = self;
        let Tables { word_map, regions, edges, guide, used_end, .. } = &mut **tables;
        // Copies, which the compiler can keep in registers.
        let (mut stack, mut ring) = (std::mem::take(&mut self.stack), self.ring);
        let (regions, edges) = (&mut regions[..], edges.as_slice());
        let mut account = Account { count: 0, bytes: 0, word_map, used_end, journal, unaligned };
        let (mut stopped, mut enough, mut since_check) = (false, false, 0u32);
        while !stopped && !enough {
            if stack.is_empty() {
                let Some(oldest) = ring.oldest() else { break };
                account.take::<I, ACCOUNT>(regions, edges, &mut stack, oldest);
                continue;
            }
            // Not the newest: its edges were only just requested.
            let newest = stack.len().saturating_sub(READY);
            let (first, end) = stack.swap_remove(newest);
            for &target in &edges[first.get()..end.get()] {
                hw::prefetch(regions, target.get() / (REGION * P));
                if ring.waiting < FEW {
                    // A list in random order. Nothing else is there to do meanwhile, so both misses of a node are made one.
                    let edge = guide.guess::<P>(target.get());
                    hw::prefetch(edges, edge.saturating_sub(AROUND));
                    hw::prefetch(edges, edge.wrapping_add(AROUND));
                }
                if let Some(oldest) = ring.wait(target.get()) {
                    account.take::<I, ACCOUNT>(regions, edges, &mut stack, oldest);
                }
            }
            since_check += 1;
            if since_check == 1 << 16 {
                since_check = 0;
                stopped = control.cancelled();
                if let Some(goals) = goals {
                    let marked = |goal: usize| regions[goal / REGION].marked(goal % REGION);
                    while goals.last().is_some_and(|&goal| marked(goal)) {
                        goals.pop();
                    }
                    enough = goals.is_empty();
                }
            }
        }
        let (count, bytes) = (account.count, account.bytes);
        (self.stack, self.ring) = (stack, ring);
        self.count += count;
        self.bytes += bytes;
        if stopped {
            return Err(Stopped::Cancelled);
        }
        Ok(())
    }

    /// Returns (blocks, bytes) marked since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.count), std::mem::take(&mut self.bytes))
    }

    /// Takes every word of `[start, end)` as a root, where the image has it. Returns how many were candidates.
    pub fn roots(&mut self, image: &Image, start: u64, end: u64, control: &Control) -> Result<u64, Stopped> {
        let mut candidates = 0;
        let mut reader = RootReader::new(image, start, end);
        while reader.read(image, &self.tables.word_map, control)? {
            self.meet_roots(&reader.found);
            candidates += reader.found.len() as u64;
            self.drain(control)?;
            if self.is_enough() {
                return Ok(candidates);
            }
        }
        candidates += self.unaligned_words(start, end, control)?;
        self.drain(control)?;
        Ok(candidates)
    }

    fn meet_roots(&mut self, found: &[(u64, usize)]) {
        let Some(mut noted) = self.ends.take() else {
            for &(_, target) in found {
                self.meet(target);
            }
            return;
        };
        let ends = ends::in_roots(self.tables, found);
        let mut next = ends.iter().copied().peekable();
        for (at, &(_, target)) in found.iter().enumerate() {
            if next.next_if_eq(&at).is_some() {
                noted.push(target);
            } else {
                self.meet(target);
            }
        }
        self.ends = Some(noted);
    }

    /// Takes a single value (a register) as a root. Returns whether it was a candidate.
    pub fn root(&mut self, value: u64) -> bool {
        match self.tables.word_map.word_of(value) {
            Some(target) => {
                self.meet(target);
                true
            }
            None => false,
        }
    }
}

/// What is counted and noted of the blocks reached.
struct Account<'t, 'a, const P: usize> {
    count: u64,
    bytes: u64,
    word_map: &'t WordMap<P>,
    used_end: &'t [u64],
    journal: &'t mut Option<Vec<usize>>,
    unaligned: &'t mut Option<Unaligned<'a>>,
}

impl<const P: usize> Account<'_, '_, P> {
    /// Takes a target whose tables have been loaded.
    #[inline(always)]
    fn take<I: Index, const ACCOUNT: bool>(
        &mut self,
        regions: &mut [Region<I, P>],
        edges: &[I],
        stack: &mut Vec<(I, I)>,
        target: usize,
    ) {
        let Some(granule) = chunk_of_word(regions, target) else { return };
        if !reach(regions, edges, stack, granule) {
            return;
        }
        self.count += 1;
        if ACCOUNT {
            let run = self.word_map.run_of_granule(granule);
            self.bytes += size_of(self.word_map, regions, self.used_end, run, granule);
            if let Some(journal) = &mut self.journal {
                journal.push(granule);
            }
            if let Some(unaligned) = &mut self.unaligned {
                unaligned.reached(granule);
            }
        }
    }
}

/// The marking, as work that is inlined.
struct Following<'m, 'a, I: Index, const P: usize, const ACCOUNT: bool> {
    marker: &'m mut Marker<'a, I, P>,
    control: &'m Control,
}

impl<I: Index, const P: usize, const ACCOUNT: bool> hw::Work for Following<'_, '_, I, P, ACCOUNT> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        self.marker.follow::<ACCOUNT>(self.control)
    }
}

/// **The decision**: the block whose chunk begins at `granule` is reachable. Returns whether it was not marked before;
/// then its pointers go on the stack.
#[inline(always)]
fn reach<I: Index, const P: usize>(
    regions: &mut [Region<I, P>],
    edges: &[I],
    stack: &mut Vec<(I, I)>,
    granule: usize,
) -> bool {
    let region = &mut regions[granule / REGION];
    if region.marked(granule % REGION) {
        return false;
    }
    region.mark(granule % REGION);
    let (first, end) = edges_of(regions, granule);
    if first < end {
        hw::prefetch(edges, first);
        stack.push((I::new(first), I::new(end)));
    }
    true
}
