//! Finds the reachable blocks.
//!
//! A block is reachable when a root or a reachable block holds a pointer into it. [`reach`] is the one place that
//! decides. Free blocks are marked from the start, so nothing is followed through them. [`super::queue`] follows the pointers.

use super::ends;
use super::guide::Guide;
use super::index::{chunk_of_word, edges_of, size_of, Region, Tables};
use super::number::Index;
use super::odd::Odd;
use super::queue::{Marked, Queue};
use super::root_reader::RootReader;
use super::runs::REGION;
use super::together;
use super::word_map::WordMap;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// The marking in progress.
pub struct Marker<'a, I: Index, const P: usize> {
    /// The tables that are marked.
    pub tables: &'a mut Tables<I, P>,
    /// What is still to follow.
    queue: Queue<I>,
    /// Blocks marked since the last `take_counts` and, with `count_bytes`, their usable bytes.
    count: u64,
    bytes: u64,
    /// Whether bytes are counted too.
    pub count_bytes: bool,
    /// How many threads may follow pointers. One, where bytes are counted, blocks are noted or goals are set.
    pub threads: usize,
    /// If present, it records the blocks reached.
    pub journal: Option<Vec<usize>>,
    /// If present, odd pointers are followed, too.
    pub odd: Option<Odd<'a>>,
    /// If present, ends of blocks in roots are left out, and noted here: the words that they lead to.
    pub ends: Option<Vec<usize>>,
    /// If present, marking ends as soon as all of these blocks are reached. The list shrinks meanwhile.
    pub goals: Option<Vec<usize>>,
}

impl<'a, I: Index, const P: usize> Marker<'a, I, P> {
    /// Begins marking.
    pub fn new(tables: &'a mut Tables<I, P>) -> Self {
        Marker {
            tables,
            queue: Queue::default(),
            count: 0,
            bytes: 0,
            count_bytes: false,
            threads: 1,
            journal: None,
            odd: None,
            ends: None,
            goals: None,
        }
    }

    /// Takes a candidate pointer, given as a word number.
    pub fn meet(&mut self, target: usize) {
        hw::prefetch(&self.tables.regions, target / (REGION * P));
        if let Some(oldest) = self.queue.wait(target) {
            if let Some(granule) = self.tables.chunk_of_word(oldest) {
                self.reach(granule);
            }
        }
    }

    /// Marks the block whose chunk begins at `granule`. `drain` follows its pointers.
    pub fn reach(&mut self, granule: usize) {
        if let Some(range) = reach(&mut self.tables.regions, granule) {
            self.queue.push(self.tables.edges.as_slice(), range);
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
        if let Some(odd) = &mut self.odd {
            odd.reached(granule);
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
        let Marker { tables, goals, .. } = self;
        goals.as_mut().is_some_and(|goals| are_reached(goals, |goal| tables.is_marked(goal)))
    }

    /// Follows everything that is queued, to the end.
    pub fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        if self.is_enough() {
            return Ok(());
        }
        if !self.count_bytes && self.journal.is_none() && self.odd.is_none() {
            hw::fast_work(Following::<I, P, false> { marker: self, control })?;
            if self.can_share() && !self.queue.is_empty() {
                let queue = std::mem::take(&mut self.queue);
                self.count += together::follow(self.tables, queue, self.threads, control)?;
            }
            return Ok(());
        }
        loop {
            hw::fast_work(Following::<I, P, true> { marker: self, control })?;
            let Some(odd) = &mut self.odd else { return Ok(()) };
            let unread = odd.take_unread();
            if unread.is_empty() {
                return Ok(());
            }
            self.read_blocks(unread, control)?;
        }
    }

    /// Returns whether other threads may help.
    fn can_share(&self) -> bool {
        self.threads > 1 && self.goals.is_none()
    }

    /// `ACCOUNT` counts bytes and notes the blocks.
    #[inline(always)]
    fn follow<const ACCOUNT: bool>(&mut self, control: &Control) -> Result<(), Stopped> {
        let most = if !ACCOUNT && self.can_share() { together::MANY } else { usize::MAX };
        // Borrowed once, so that the compiler sees that a store to the tables does not change their addresses.
        let Marker { tables, journal, odd, goals, .. } = self;
        let Tables { word_map, regions, edges, guide, used_end, .. } = &mut **tables;
        let (regions, count, bytes) = (&mut regions[..], 0, 0);
        let mut blocks =
            Blocks::<I, P, ACCOUNT> { regions, guide, count, bytes, most, word_map, used_end, journal, odd, goals };
        let followed = self.queue.follow(&mut blocks, edges.as_slice(), control);
        let (count, bytes) = (blocks.count, blocks.bytes);
        self.count += count;
        self.bytes += bytes;
        followed
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
        candidates += self.odd_words(start, end, control)?;
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

    /// Takes a register as a root. Returns whether it was a candidate.
    pub fn register(&mut self, value: u64) -> bool {
        let tagged = self.odd.as_ref().is_some_and(|odd| odd.kinds.tagged);
        self.root(value) || (tagged && self.tagged_root(value))
    }

    /// Takes a value as a root. Returns whether it was a candidate.
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

/// The blocks that are marked, and what is counted and noted of those reached.
struct Blocks<'t, 'a, I: Index, const P: usize, const ACCOUNT: bool> {
    regions: &'t mut [Region<I, P>],
    guide: &'t Guide<I>,
    count: u64,
    bytes: u64,
    /// With more ranges than these, it stops: see [`together`].
    most: usize,
    word_map: &'t WordMap<P>,
    used_end: &'t [u64],
    journal: &'t mut Option<Vec<usize>>,
    odd: &'t mut Option<Odd<'a>>,
    goals: &'t mut Option<Vec<usize>>,
}

impl<I: Index, const P: usize, const ACCOUNT: bool> Marked<I> for Blocks<'_, '_, I, P, ACCOUNT> {
    #[inline(always)]
    fn load(&self, target: usize) {
        hw::prefetch(self.regions, target / (REGION * P));
    }

    #[inline(always)]
    fn load_edges(&self, edges: &[I], target: usize) {
        self.guide.load::<P>(edges, target);
    }

    #[inline(always)]
    fn reach(&mut self, target: usize) -> Option<(usize, usize)> {
        let granule = chunk_of_word(self.regions, target)?;
        let range = reach(self.regions, granule)?;
        self.count += 1;
        if ACCOUNT {
            let run = self.word_map.run_of_granule(granule);
            self.bytes += size_of(self.word_map, self.regions, self.used_end, run, granule);
            if let Some(journal) = self.journal {
                journal.push(granule);
            }
            if let Some(odd) = self.odd {
                odd.reached(granule);
            }
        }
        Some(range)
    }

    #[inline(always)]
    fn pause(&mut self, waiting: &mut Vec<(I, I)>) -> bool {
        let reached = |goal: usize| self.regions[goal / REGION].marked(goal % REGION);
        waiting.len() > self.most || self.goals.as_mut().is_some_and(|goals| are_reached(goals, reached))
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

/// **The decision**: the block whose chunk begins at `granule` is reachable. Returns the range of its edges if it was not
/// marked before.
#[inline(always)]
fn reach<I: Index, const P: usize>(regions: &mut [Region<I, P>], granule: usize) -> Option<(usize, usize)> {
    let region = &mut regions[granule / REGION];
    if region.marked(granule % REGION) {
        return None;
    }
    region.mark(granule % REGION);
    Some(edges_of(regions, granule))
}

/// Drops the goals at the end of the list that are reached. Returns whether none is left.
#[inline(always)]
fn are_reached(goals: &mut Vec<usize>, is_reached: impl Fn(usize) -> bool) -> bool {
    while goals.last().is_some_and(|&goal| is_reached(goal)) {
        goals.pop();
    }
    goals.is_empty()
}
