//! Finds the reachable blocks.
//!
//! A block is reachable when a root or a reachable block holds a pointer into it. [`reach`] is the one place that
//! decides. Free blocks are marked from the start, so nothing is followed through them.
//!
//! On a large heap every step is a cache miss. So targets wait in a short queue while the CPU loads their tables, and so
//! do the edge lists of marked blocks. A linked list in shuffled order allows no overlap: each node costs two misses in
//! any design.

use super::index::{chunk_of_word, edges_of, size_of, Region, Tables};
use super::number::Index;
use super::pass::{in_spans, PART};
use super::runs::REGION;
use super::text::is_text;
use super::word_map::WordMap;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::words::{grow_to, word, word_at, USER_END};

/// Targets whose tables are being loaded.
const PENDING: usize = 32;
/// Blocks whose edges are being loaded.
const READY: usize = 8;
/// Bytes of roots read at once.
const BLOCK: usize = 1 << 20;

/// Blocks from so many on are read in long pieces, in the order of their addresses.
const MANY: usize = 64;
/// Bytes read ahead for many blocks, and for few.
const AHEAD: [usize; 2] = [1 << 18, 1 << 12];

/// What is needed to find pointers at every byte. The tables only have those at multiples of the word size.
pub struct Unaligned<'a> {
    image: &'a Image,
    /// Memory inside blocks whose bytes are not pointers, sorted.
    dead: &'a [(u64, u64)],
    /// Blocks reached whose bytes are still to be read.
    unread: Vec<usize>,
    /// Bytes read last, and where they begin.
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Unaligned<'a> {
    /// Nothing is reached yet. `dead` is sorted.
    pub fn new(image: &'a Image, dead: &'a [(u64, u64)]) -> Self {
        Unaligned { image, dead, unread: Vec::new(), window: Vec::new(), window_start: 0 }
    }

    /// Returns where `[start, end)` lies in the window, which is filled if need be. None where it does not fit, or a byte
    /// is missing.
    fn place(&mut self, start: u64, end: u64, ahead: usize) -> Option<std::ops::Range<usize>> {
        let size = usize::try_from(end.checked_sub(start)?).ok().filter(|&size| size <= ahead)?;
        let inside = start
            .checked_sub(self.window_start)
            .is_some_and(|skip| skip.checked_add(size as u64).is_some_and(|last| last <= self.window.len() as u64));
        if !inside {
            self.window.resize(ahead, 0);
            let got = self.image.read(start, &mut self.window);
            self.window.truncate(got);
            self.window_start = start;
        }
        let first = (start - self.window_start) as usize;
        (first + size <= self.window.len()).then_some(first..first + size)
    }
}

/// The marking in progress.
pub struct Marker<'a, I: Index, const P: usize> {
    /// The tables that are marked.
    pub tables: &'a mut Tables<I, P>,
    queue: Queue<I>,
    /// Blocks marked since the last `take_counts` and, with `count_bytes`, their usable bytes.
    count: u64,
    bytes: u64,
    /// Whether bytes are counted too.
    pub count_bytes: bool,
    /// If present, it records the blocks reached.
    pub journal: Option<Vec<usize>>,
    /// If present, a pointer may begin at any byte.
    pub unaligned: Option<Unaligned<'a>>,
}

/// What is still to follow: ranges of edges, then a ring of targets whose tables are being loaded.
struct Queue<I> {
    stack: Vec<(I, I)>,
    pending: [usize; PENDING],
    next: usize,
    waiting: usize,
}

impl<I: Index> Queue<I> {
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

    fn oldest(&mut self) -> Option<usize> {
        let at = (self.next + PENDING - self.waiting) % PENDING;
        self.waiting = self.waiting.checked_sub(1)?;
        Some(self.pending[at])
    }
}

impl<'a, I: Index, const P: usize> Marker<'a, I, P> {
    /// Begins marking.
    pub fn new(tables: &'a mut Tables<I, P>) -> Self {
        let queue = Queue { stack: Vec::new(), pending: [0; PENDING], next: 0, waiting: 0 };
        Marker { tables, queue, count: 0, bytes: 0, count_bytes: false, journal: None, unaligned: None }
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
        if reach(&mut self.tables.regions, self.tables.edges.as_slice(), &mut self.queue.stack, granule) {
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
            unaligned.unread.push(granule);
        }
    }

    fn add_bytes(&mut self, granule: usize) {
        if self.count_bytes {
            let run = self.tables.word_map.run_of_granule(granule);
            self.bytes += self.tables.block(run, granule).size;
        }
    }

    /// Follows everything that is queued, to the end.
    pub fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        if !self.count_bytes && self.journal.is_none() && self.unaligned.is_none() {
            return hw::fast(|| self.follow::<false>(control));
        }
        loop {
            hw::fast(|| self.follow::<true>(control))?;
            let Some(unaligned) = self.unaligned.as_mut().filter(|unaligned| !unaligned.unread.is_empty()) else {
                return Ok(());
            };
            let mut blocks = std::mem::take(&mut unaligned.unread);
            blocks.sort_unstable();
            let ahead = AHEAD[usize::from(blocks.len() < MANY)];
            for granule in blocks {
                self.read_block(granule, ahead, control)?;
            }
        }
    }

    /// Takes what begins at the unaligned bytes of a block.
    fn read_block(&mut self, granule: usize, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let block = self.tables.block(self.tables.word_map.run_of_granule(granule), granule);
        let (mut at, end) = (block.address, block.address.saturating_add(block.size));
        let Some(dead) = self.unaligned.as_ref().map(|unaligned| unaligned.dead) else { return Ok(()) };
        for &(from, to) in &dead[dead.partition_point(|d| d.1 <= at)..] {
            if from >= end {
                break;
            }
            self.read_part(at, from.max(at), ahead, control)?;
            at = at.max(to.min(end));
        }
        self.read_part(at, end, ahead, control)
    }

    fn read_part(&mut self, start: u64, end: u64, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let Some(unaligned) = &mut self.unaligned else { return Ok(()) };
        let Some(place) = unaligned.place(start, end, ahead) else {
            return self.unaligned_words(start, end, control).map(|_| ());
        };
        let window = std::mem::take(&mut unaligned.window);
        self.take_unaligned(&window[place], start);
        if let Some(unaligned) = &mut self.unaligned {
            unaligned.window = window;
        }
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        Ok(())
    }

    /// Takes the values that begin at the unaligned bytes of `bytes`, which lie at `address`. Returns how many were
    /// candidates.
    fn take_unaligned(&mut self, bytes: &[u8], address: u64) -> u64 {
        let width = 16 / P;
        let mut candidates = 0;
        for offset in 0..(bytes.len() + 1).saturating_sub(width) {
            if (address + offset as u64) % width as u64 != 0 {
                candidates += u64::from(self.root(word_at::<P>(bytes, offset)));
            }
        }
        candidates
    }

    /// Does the same for `[start, end)`, as far as the image has it. Only with `unaligned`.
    fn unaligned_words(&mut self, start: u64, end: u64, control: &Control) -> Result<u64, Stopped> {
        let Some(image) = self.unaligned.as_ref().map(|unaligned| unaligned.image) else { return Ok(0) };
        let width = 16 / P;
        let mut candidates = 0;
        let mut buffer = Vec::new();
        for (from, to) in image.covered(start, end.min(USER_END)) {
            let mut at = from;
            while at < to {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                // The last words of a piece reach into the next one.
                let want = (to - at).min((BLOCK + width - 1) as u64) as usize;
                grow_to(&mut buffer, want);
                let got = image.read(at, &mut buffer[..want]);
                let found = self.take_unaligned(&buffer[..got], at);
                candidates += found;
                let next = (at + BLOCK as u64).min(to);
                // Untouched memory is a hole in the dump and is not read.
                at = if found == 0 { image.data_from(next, to).saturating_sub(width as u64).max(next) } else { next };
            }
        }
        Ok(candidates)
    }

    /// `ACCOUNT` counts bytes and notes the blocks.
    #[inline(always)]
    fn follow<const ACCOUNT: bool>(&mut self, control: &Control) -> Result<(), Stopped> {
        let mut since_check = 0u32;
        loop {
            while !self.queue.stack.is_empty() {
                // Not the newest: its edges were only just requested.
                let newest = self.queue.stack.len().saturating_sub(READY);
                let (first, end) = self.queue.stack.swap_remove(newest);
                // Borrowed once for the whole list, so that the compiler sees that a store to the tables does not change
                // their addresses.
                let regions = &mut self.tables.regions[..];
                let edges = self.tables.edges.as_slice();
                let mut count = 0;
                for &target in &edges[first.get()..end.get()] {
                    hw::prefetch(regions, target.get() / (REGION * P));
                    let Some(oldest) = self.queue.wait(target.get()) else { continue };
                    let Some(granule) = chunk_of_word(regions, oldest) else { continue };
                    if reach(regions, edges, &mut self.queue.stack, granule) {
                        count += 1;
                        if ACCOUNT {
                            let run = self.tables.word_map.run_of_granule(granule);
                            self.bytes += size_of(&self.tables.word_map, regions, &self.tables.used_end, run, granule);
                            if let Some(journal) = &mut self.journal {
                                journal.push(granule);
                            }
                            if let Some(unaligned) = &mut self.unaligned {
                                unaligned.unread.push(granule);
                            }
                        }
                    }
                }
                self.count += count;
                since_check += 1;
                if since_check == 1 << 16 {
                    since_check = 0;
                    if control.cancelled() {
                        return Err(Stopped::Cancelled);
                    }
                }
            }
            let Some(oldest) = self.queue.oldest() else { return Ok(()) };
            if let Some(granule) = self.tables.chunk_of_word(oldest) {
                self.reach(granule);
            }
        }
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
            for &(_, target) in &reader.found {
                self.meet(target);
            }
            candidates += reader.found.len() as u64;
            self.drain(control)?;
        }
        candidates += self.unaligned_words(start, end, control)?;
        self.drain(control)?;
        Ok(candidates)
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

/// Reads the words of a range of roots, a part at a time.
pub struct RootReader {
    left: std::vec::IntoIter<(u64, u64)>,
    at: u64,
    to: u64,
    buffer: Vec<u8>,
    /// The candidates of the part that was read: where each lies, and the number of the word that it names.
    pub found: Vec<(u64, usize)>,
}

impl RootReader {
    /// Begins to read `[start, end)`, where the image has it.
    pub fn new(image: &Image, start: u64, end: u64) -> RootReader {
        let left = image.covered(start, end.min(USER_END)).into_iter();
        RootReader { left, at: 0, to: 0, buffer: Vec::new(), found: Vec::new() }
    }

    /// Reads the next part. Returns false after the last.
    pub fn read<const P: usize>(
        &mut self,
        image: &Image,
        word_map: &WordMap<P>,
        control: &Control,
    ) -> Result<bool, Stopped> {
        let width = WordMap::<P>::WORD;
        while self.at >= self.to {
            let Some((from, to)) = self.left.next() else { return Ok(false) };
            // Pointers are aligned in memory, even if the range is not.
            (self.at, self.to) = (from.next_multiple_of(width), to);
        }
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let want = (self.to - self.at).min(BLOCK as u64) as usize;
        self.buffer.resize(want.next_multiple_of(512), 0);
        let got = image.read(self.at, &mut self.buffer[..want]) / width as usize * width as usize;
        self.buffer[got..].fill(0);
        self.find(word_map);
        let next = self.at + want as u64;
        // Untouched memory is a hole in the dump and is not read.
        let empty = self.found.is_empty();
        let next = if empty { image.data_from(next, self.to).next_multiple_of(width) } else { next };
        control.add(next - self.at);
        self.at = next;
        Ok(true)
    }

    fn find<const P: usize>(&mut self, word_map: &WordMap<P>) {
        self.found.clear();
        for (i, part) in self.buffer.chunks_exact(PART * 16 / P).enumerate() {
            let mut mask = in_spans::<P>(part, &word_map.spans);
            while mask != 0 {
                let bit = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                if is_text(word_map, &self.buffer, i * PART + bit) {
                    continue;
                }
                if let Some(target) = word_map.word_of(word::<P>(part, bit)) {
                    self.found.push((self.at + (i * PART + bit) as u64 * WordMap::<P>::WORD, target));
                }
            }
        }
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
