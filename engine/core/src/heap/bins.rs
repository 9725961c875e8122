//! The arenas' bins: doubly linked lists of free chunks (unsorted, small, large), followed and judged.
//!
//! Every chunk is visited once, over all bins together, so that a cycle costs no more than a sound list.

use super::index::{Block, Tables};
use super::space::{Space, REGION};
use super::window::Window;
use super::{Control, Index, Stopped};
use crate::image::Image;
use std::collections::HashMap;

/// Problems described over all bins; all are counted.
const DESCRIBED: usize = 200;
/// Chunks between two looks at whether to stop.
const PATIENCE: u64 = 1 << 14;

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
    pub most: u64,
    /// A large bin: the largest first, the first chunk of each size in a second ring (`fd_nextsize`).
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
    /// Index into the bins that were asked for; for [`Fault::Unlisted`] the first bin of the arena.
    pub bin: usize,
    pub fault: Fault,
    pub at: u64,
    pub value: u64,
}

/// What hangs in a bin: chunks and their bytes with headers, as glibc's statistics count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub count: u64,
    pub bytes: u64,
}

/// What following all bins gave.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// In the order of the bins that were asked for.
    pub held: Vec<Held>,
    pub problems: Vec<Problem>,
    pub problem_count: u64,
}

/// Follows every bin. `free` is how many free chunks the walk of the memory found in each arena: where that is another number
/// than hangs in the arena's bins, the chunks that make the difference are sought.
pub fn follow<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    bins: &[Bin],
    free: &HashMap<u32, u64>,
    control: &Control,
) -> Result<Followed, Stopped> {
    let mut follower = Follower {
        tables,
        window: Window::new(image),
        control,
        seen: vec![0; tables.free.len()],
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
    window: Window<'a>,
    control: &'a Control,
    /// Granules of chunks that were met on a list.
    seen: Vec<u64>,
    visited: u64,
    out: Followed,
}

/// A chunk on a list with its links. The ring's are read only where there is one.
struct Member {
    size: u64,
    fd: u64,
    bk: u64,
    fd_nextsize: u64,
    bk_nextsize: u64,
}

/// The ring through the first chunk of each size, as far as it was seen.
#[derive(Default)]
struct Ring {
    first: u64,
    first_back: u64,
    last: u64,
    last_on: u64,
    broken: bool,
}

impl<I: Index, const P: usize> Follower<'_, I, P> {
    const WORD: u64 = Space::<P>::WORD;

    fn bin(&mut self, index: usize, bin: &Bin) -> Result<(), Stopped> {
        let links = self.window.words::<2>(bin.head.wrapping_add(Space::<P>::HEADER), Self::WORD);
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

    /// Along `fd`. The last chunk when the list closes, None where it breaks.
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
                self.ring(index, &mut ring, at, &member, member.size != size_before);
                size_before = member.size;
            }
            (from, at) = (at, member.fd);
        }
        if ring.last != 0 && !ring.broken && (ring.last_on != ring.first || ring.first_back != ring.last) {
            self.problem(index, Fault::SizeRing, ring.last, ring.last_on);
        }
        Ok(Some(from))
    }

    /// Along `bk`, for what lies behind the break: until it meets what was seen.
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

    /// Only the first chunk of a size is in the ring (`fd_nextsize` of the others is null).
    fn ring(&mut self, index: usize, ring: &mut Ring, at: u64, member: &Member, first_of_size: bool) {
        if ring.broken {
            return;
        }
        if !first_of_size {
            if member.fd_nextsize != 0 {
                self.problem(index, Fault::SizeRing, at, member.fd_nextsize);
                ring.broken = true;
            }
            return;
        }
        if ring.last == 0 {
            (ring.first, ring.first_back) = (at, member.bk_nextsize);
        } else if ring.last_on != at {
            self.problem(index, Fault::SizeRing, ring.last, ring.last_on);
            ring.broken = true;
        } else if member.bk_nextsize != ring.last {
            self.problem(index, Fault::SizeRing, at, member.bk_nextsize);
            ring.broken = true;
        }
        (ring.last, ring.last_on) = (at, member.fd_nextsize);
    }

    /// The chunk at `at`, counted; or why it does not belong here.
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
        if self.tables.space.runs[block.run].run.arena != bin.arena {
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
        let read = if bin.sorted {
            self.window.words::<4>(block.address, Self::WORD)
        } else {
            self.window.words::<2>(block.address, Self::WORD).map(|[fd, bk]| [fd, bk, 0, 0])
        };
        let [fd, bk, fd_nextsize, bk_nextsize] = read.ok_or(Fault::Missing)?;
        *seen |= bit;
        let held = &mut self.out.held[index];
        held.count += 1;
        held.bytes += size;
        Ok(Member { size, fd, bk, fd_nextsize, bk_nextsize })
    }

    /// The chunks that the memory says are free and no bin holds, and the other way round.
    fn compare(&mut self, bin: usize, arena: u32) -> Result<(), Stopped> {
        let tables = self.tables;
        for index in 0..tables.space.runs.len() {
            let run = tables.space.runs[index].run;
            if run.arena != arena {
                continue;
            }
            let mut visited = 0u64;
            tables.each_block(index, 0, |granule| {
                visited += 1;
                if tables.is_free(granule) {
                    self.compare_chunk(bin, &tables.block(index, granule));
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
        // The chunk behind it says whether it is free. (One in a tcache or a fastbin is, too, but not by that.)
        let size = block.size + Self::WORD;
        let Some([prev_size, field]) = self.window.words::<2>(block.address - Space::<P>::HEADER + size, Self::WORD)
        else {
            return;
        };
        let free = field & PREV_INUSE == 0 && prev_size == size;
        let listed = self.seen[block.granule / REGION] >> (block.granule % REGION) & 1 != 0;
        if free != listed {
            let fault = if free { Fault::Unlisted } else { Fault::InUse };
            self.problem(bin, fault, block.address - Space::<P>::HEADER, size);
        }
    }

    fn problem(&mut self, bin: usize, fault: Fault, at: u64, value: u64) {
        self.out.problem_count += 1;
        if self.out.problems.len() < DESCRIBED {
            self.out.problems.push(Problem { bin, fault, at, value });
        }
    }
}
