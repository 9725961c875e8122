//! Follows and checks the arenas' bins: doubly linked lists of free chunks (unsorted, small, large).
//!
//! Every chunk is visited once, over all bins together. So a cycle costs no more than a sound list.

use crate::blocks::index::{Block, Tables, EVERY};
use crate::blocks::model::Heap;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::blocks::widths::by_width;
use crate::blocks::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::words::word;
use std::collections::HashMap;

/// How many problems are described. All are counted.
const DESCRIBED: usize = 200;
/// Chunks between two checks for cancellation.
const PATIENCE: u64 = 1 << 14;

/// With this many free chunks, their links are first read in the order of addresses. Following a list costs a system call
/// and a cache miss for each chunk: several microseconds. The sweep takes a fraction of one.
const SWEEP: u64 = 1 << 16;
/// Bytes that the sweep reads at once.
const BLOCK: usize = 1 << 16;

const PREV_INUSE: u64 = 1;

/// A bin to follow.
#[derive(Clone, Copy, Debug)]
pub struct Bin {
    /// The bin seen as a chunk: two words before its pair of links.
    pub head: u64,
    /// The number of its arena, as in the runs.
    pub arena: u32,
    /// The chunk sizes that belong there.
    pub least: u64,
    /// The largest chunk size that belongs there.
    pub most: u64,
    /// A large bin: the largest chunk comes first, and the first chunk of each size is on a second ring (`fd_nextsize`).
    pub sorted: bool,
}

/// What is wrong with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not lead to a chunk.
    NotAChunk,
    /// It leads to a chunk of another arena.
    OtherArena,
    /// It leads to a chunk that is in use.
    InUse,
    /// It leads to a chunk of a size that does not belong here.
    WrongSize,
    /// It leads to a chunk that was seen already: a cycle, or a chunk on two lists.
    Again,
    /// The chunk's `bk` does not lead back to where its predecessor is.
    Backward,
    /// A large bin's chunk is larger than the one before.
    Order,
    /// The ring of sizes of a large bin does not agree with the list.
    SizeRing,
    /// The link is not in the dump.
    Missing,
    /// A free chunk that is on no list.
    Unlisted,
}

/// A bad link: in the chunk (or bin) at `at`, where it holds `value`.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Index into the bins that were asked for. For [`Fault::Unlisted`] it is the first bin of the arena.
    pub bin: usize,
    /// What is wrong.
    pub fault: Fault,
    /// The chunk or bin with the bad link.
    pub at: u64,
    /// The link's value.
    pub value: u64,
}

/// The chunks in a bin, and their bytes with headers, as glibc's statistics count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many chunks.
    pub count: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// The result for all bins.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// In the order of the bins that were asked for.
    pub held: Vec<Held>,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// How many problems there are.
    pub problem_count: u64,
}

/// Follows every bin of a heap.
pub fn follow(heap: &dyn Heap, image: &Image, bins: &[Bin], control: &Control) -> Result<Followed, Stopped> {
    let found = heap.found();
    let mut free: HashMap<u32, u64> = HashMap::new();
    for (run, report) in found.chunk_runs.iter().zip(&found.reports) {
        *free.entry(run.owner.arena).or_default() += report.free_chunks;
    }
    by_width!(Widths, heap.widths(), heap => follow_in(heap.tables(), image, bins, &free, control))
}

/// Follows every bin. `free` is how many free chunks the walk of the memory found in each arena. Where an arena's bins
/// hold another number, the chunks that make the difference are searched.
fn follow_in<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    bins: &[Bin],
    free: &HashMap<u32, u64>,
    control: &Control,
) -> Result<Followed, Stopped> {
    let count: u64 = free.values().sum();
    let seen = vec![0; tables.free.len()];
    hw::huge_pages(&seen);
    let mut follower = Follower {
        tables,
        image,
        links: if count >= SWEEP { Some(Links::sweep(tables, image, control)?) } else { None },
        window: CachedReader::new(image),
        control,
        seen,
        visited: 0,
        out: Followed { held: vec![Held::default(); bins.len()], ..Default::default() },
    };
    for (index, bin) in bins.iter().enumerate() {
        follower.bin(index, bin)?;
    }
    let mut listed: HashMap<u32, (usize, u64)> = HashMap::new();
    for (index, bin) in bins.iter().enumerate() {
        listed.entry(bin.arena).or_insert((index, 0)).1 += follower.out.held[index].count;
    }
    for (&arena, &(first, count)) in &listed {
        if free.get(&arena).copied().unwrap_or(0) != count {
            follower.compare(first, arena)?;
        }
    }
    Ok(follower.out)
}

struct Follower<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    image: &'a Image,
    links: Option<Links>,
    window: CachedReader<'a>,
    control: &'a Control,
    /// Granules of the chunks found on a list.
    seen: Vec<u64>,
    visited: u64,
    out: Followed,
}

/// `fd` and `bk` of every chunk that may be free.
struct Links {
    /// How many such chunks there are before each region.
    before: Vec<usize>,
    links: Vec<[u64; 2]>,
}

/// Stands for "no pair of links": both are odd.
const UNREAD: [u64; 2] = [u64::MAX; 2];

impl Links {
    fn sweep<I: Index, const P: usize>(
        tables: &Tables<I, P>,
        image: &Image,
        control: &Control,
    ) -> Result<Links, Stopped> {
        let mut before = vec![0; tables.free.len()];
        hw::huge_pages(&before);
        let mut count = 0;
        for (before, bits) in before.iter_mut().zip(&tables.free) {
            *before = count;
            count += bits.count_ones() as usize;
        }
        let mut links = vec![[0; 2]; count];
        hw::huge_pages(&links);
        let mut rest = links.iter_mut();
        let (mut start, mut buffer) = (0u64, Vec::new());
        for index in 0..tables.word_map.runs.len() {
            for region in tables.word_map.runs[index].region..tables.word_map.region_end(index) {
                let mut bits = tables.free[region];
                while bits != 0 {
                    let granule = region * REGION + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let at = tables.word_map.address(index, granule) + WordMap::<P>::HEADER;
                    let len = 2 * WordMap::<P>::WORD as usize;
                    if at < start || at - start + len as u64 > buffer.len() as u64 {
                        start = at;
                        buffer.resize(BLOCK, 0);
                        let got = image.read(at, &mut buffer[..]);
                        buffer.truncate(got);
                        if control.cancelled() {
                            return Err(Stopped::Cancelled);
                        }
                    }
                    let bytes = buffer.get((at - start) as usize..(at - start) as usize + len);
                    if let Some(links) = rest.next() {
                        *links = bytes.map_or(UNREAD, |bytes| [word::<P>(bytes, 0), word::<P>(bytes, 1)]);
                    }
                }
            }
        }
        Ok(Links { before, links })
    }

    fn of<I: Index, const P: usize>(&self, tables: &Tables<I, P>, granule: usize) -> Option<[u64; 2]> {
        let region = granule / REGION;
        let below = tables.free[region] & ((1 << (granule % REGION)) - 1);
        self.links.get(self.before[region] + below.count_ones() as usize).copied().filter(|&links| links != UNREAD)
    }
}

/// A chunk on a list.
struct Member {
    size: u64,
    fd: u64,
    bk: u64,
}

/// The ring through the first chunk of each size, as far as it was read.
#[derive(Default)]
struct Ring {
    first: u64,
    first_back: u64,
    last: u64,
    last_on: u64,
    broken: bool,
}

impl<I: Index, const P: usize> Follower<'_, I, P> {
    const WORD: u64 = WordMap::<P>::WORD;

    fn bin(&mut self, index: usize, bin: &Bin) -> Result<(), Stopped> {
        let links = self.image.words::<2>(bin.head.wrapping_add(WordMap::<P>::HEADER), Self::WORD);
        let Some([first, last]) = links else {
            self.problem(index, Fault::Missing, bin.head, 0);
            return Ok(());
        };
        if first == 0 && last == 0 {
            return Ok(()); // an arena that was never initialised
        }
        let end = self.forward(index, bin, first)?;
        match end {
            Some(end) if end != last => self.problem(index, Fault::Backward, bin.head, last),
            Some(_) => {}
            None => self.backward(index, bin, last)?,
        }
        Ok(())
    }

    /// Follows `fd`. Returns the last chunk when the list closes, None where it breaks.
    fn forward(&mut self, index: usize, bin: &Bin, first: u64) -> Result<Option<u64>, Stopped> {
        let (mut from, mut at, mut size_before) = (bin.head, first, u64::MAX);
        let mut ring = Ring::default();
        while at != bin.head {
            let member = match self.visit(index, bin, at)? {
                Ok(member) => member,
                Err(fault) => {
                    self.problem(index, fault, from, at);
                    return Ok(None);
                }
            };
            if member.bk != from {
                self.problem(index, Fault::Backward, at, member.bk);
            }
            if bin.sorted {
                if member.size > size_before {
                    self.problem(index, Fault::Order, at, member.size);
                }
                if member.size != size_before {
                    self.ring(index, &mut ring, at);
                }
                size_before = member.size;
            }
            (from, at) = (at, member.fd);
        }
        if ring.last != 0 && !ring.broken && (ring.last_on != ring.first || ring.first_back != ring.last) {
            self.problem(index, Fault::SizeRing, ring.last, ring.last_on);
        }
        Ok(Some(from))
    }

    /// Follows `bk`, for the chunks after a break, until it meets a chunk that was visited.
    fn backward(&mut self, index: usize, bin: &Bin, last: u64) -> Result<(), Stopped> {
        let (mut from, mut at) = (bin.head, last);
        while at != bin.head {
            match self.visit(index, bin, at)? {
                Ok(member) => (from, at) = (at, member.bk),
                Err(Fault::Again) => return Ok(()),
                Err(fault) => {
                    self.problem(index, fault, from, at);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Checks the ring: the chunk at `at` is the first of its size, so it must follow the first of the size before.
    fn ring(&mut self, index: usize, ring: &mut Ring, at: u64) {
        let links = at.wrapping_add(WordMap::<P>::HEADER + 2 * Self::WORD);
        let Some([fd_nextsize, bk_nextsize]) = self.image.words(links, Self::WORD).filter(|_| !ring.broken) else {
            ring.broken = true;
            return;
        };
        if ring.last == 0 {
            (ring.first, ring.first_back) = (at, bk_nextsize);
        } else if ring.last_on != at {
            self.problem(index, Fault::SizeRing, ring.last, ring.last_on);
            ring.broken = true;
        } else if bk_nextsize != ring.last {
            self.problem(index, Fault::SizeRing, at, bk_nextsize);
            ring.broken = true;
        }
        (ring.last, ring.last_on) = (at, fd_nextsize);
    }

    /// Returns the chunk at `at` and counts it, or returns why it does not belong here.
    fn visit(&mut self, index: usize, bin: &Bin, at: u64) -> Result<Result<Member, Fault>, Stopped> {
        self.visited += 1;
        if self.visited % PATIENCE == 0 {
            self.control.add(PATIENCE);
            if self.control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(self.member(index, bin, at))
    }

    fn member(&mut self, index: usize, bin: &Bin, at: u64) -> Result<Member, Fault> {
        let block = self.tables.chunk_at(at).ok_or(Fault::NotAChunk)?;
        let size = block.size + Self::WORD;
        if self.tables.word_map.runs[block.run].run.owner.arena != bin.arena {
            return Err(Fault::OtherArena);
        }
        if !block.free {
            return Err(Fault::InUse);
        }
        if size < bin.least || size > bin.most {
            return Err(Fault::WrongSize);
        }
        let bit = 1 << (block.granule % REGION);
        let seen = &mut self.seen[block.granule / REGION];
        if *seen & bit != 0 {
            return Err(Fault::Again);
        }
        let swept = self.links.as_ref().and_then(|links| links.of(self.tables, block.granule));
        let [fd, bk] = swept.or_else(|| self.image.words(block.address, Self::WORD)).ok_or(Fault::Missing)?;
        *seen |= bit;
        let held = &mut self.out.held[index];
        held.count += 1;
        held.bytes += size;
        Ok(Member { size, fd, bk })
    }

    /// Finds the chunks that the memory says are free and no bin holds, and the other way round.
    fn compare(&mut self, bin: usize, arena: u32) -> Result<(), Stopped> {
        let tables = self.tables;
        for index in 0..tables.word_map.runs.len() {
            let run = tables.word_map.runs[index].run;
            if run.owner.arena != arena {
                continue;
            }
            let mut visited = 0u64;
            tables.each_block(index, EVERY, |block| {
                visited += 1;
                if block.free {
                    self.compare_chunk(bin, &block);
                }
                visited % PATIENCE != 0 || !self.control.cancelled()
            });
            if self.control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(())
    }

    fn compare_chunk(&mut self, bin: usize, block: &Block) {
        // The next chunk's header says whether it is free. (A chunk in a tcache or a fastbin is free too, but its header
        // does not say so.)
        let size = block.size + Self::WORD;
        let Some([prev_size, field]) = self.window.words::<2>(block.address - WordMap::<P>::HEADER + size, Self::WORD)
        else {
            return;
        };
        let free = field & PREV_INUSE == 0 && prev_size == size;
        let listed = self.seen[block.granule / REGION] >> (block.granule % REGION) & 1 != 0;
        if free != listed {
            let fault = if free { Fault::Unlisted } else { Fault::InUse };
            self.problem(bin, fault, block.address - WordMap::<P>::HEADER, size);
        }
    }

    fn problem(&mut self, bin: usize, fault: Fault, at: u64, value: u64) {
        self.out.problem_count += 1;
        if self.out.problems.len() < DESCRIBED {
            self.out.problems.push(Problem { bin, fault, at, value });
        }
    }
}
