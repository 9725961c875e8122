//! Words in the unused room of arrays.
//!
//! A container that grows takes more room than it needs, and the room has the words of an earlier use: in memory that held
//! another array, pointers to all elements of that. They look as regular as any. The container says where its elements are:
//!
//! * `std::vector` of libstdc++ and libc++ has three words about one block: its begin, the end of the elements, and the end
//!   of the room.
//! * `__split_buffer` of libc++, which its deque has for its pieces, has four: begin of the room, of the elements, and the
//!   ends of both.
//! * `std::deque` of libstdc++ has the array of its pieces, the size of that, and two iterators of four words: `cur`,
//!   `first` and `last` about a piece, and `node`, the place in the array that leads to it (bits/stl_deque.h). All must
//!   agree.
//!
//! Where two readings are possible, or two containers tell of one block, what any of them uses counts. A parser may have
//! three such words too, and read on behind the second one. So words on stacks are no vectors, and the pointers outside are
//! only left over: they lead on to what nothing better leads to.

use super::numbering::{is_start, HeapGraph};
use super::offsets::offsets;
use super::roots::{each_word, Named, DATA};
use crate::blocks::ends::word_of_edge;
use crate::blocks::index::{chunk_of_word, edges_of, next_start, Block, Tables};
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::blocks::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use std::collections::HashSet;

/// Bytes of an array whose room is looked at, at least.
const LEAST: u64 = 64;
/// Words of a deque's piece, at most: 512 bytes, or one element that is larger.
const PIECE: usize = 1 << 10;
/// Words between the beginning of a deque and `cur` of each of its iterators.
const ITERATORS: [u64; 2] = [2, 6];
/// Places whose regions are loaded at once.
const WAITING: usize = 32;
/// Edges between two looks at [`Control`].
const CHECK: usize = 1 << 20;

/// The part of a block that a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    block: u64,
    from: u64,
    end: u64,
}

/// Returns the edges that lie in the unused room of arrays.
pub fn unused<I: Index, const P: usize>(
    graph: &HeapGraph<I, P>,
    image: &Image,
    named: Named,
    control: &Control,
) -> Result<Vec<usize>, Stopped> {
    let tables = graph.tables;
    let mut extents = Extents { tables, reader: CachedReader::new(image), arrays: HashSet::new(), found: Vec::new() };
    for address in hw::fast_work(InBlocks { tables, image, control })? {
        extents.vector(address);
        extents.deque(address);
    }
    let mut last = [(0, 0); 3];
    each_word(tables, image, named, control, |address, target, _, rank| {
        last = [last[1], last[2], (address, target)];
        let adjacent = |one: usize| last[one].0.wrapping_add(WordMap::<P>::WORD) == last[one + 1].0;
        let pair = adjacent(1) && is_pair::<P>([last[1].1, last[2].1]);
        let triple = adjacent(0) && adjacent(1) && is_triple(last.map(|each| each.1));
        for (found, at) in [(pair, last[1].0), (triple, last[0].0)] {
            if found {
                extents.deque(at);
            }
            if found && rank <= DATA {
                extents.vector(at);
            }
        }
        Ok(())
    })?;
    Ok(outside(tables, image, extents.found))
}

/// Whether two words may be the begin and the end of a vector whose block has a run of its own: both count as the first.
#[inline(always)]
fn is_pair<const P: usize>([begin, end]: [usize; 2]) -> bool {
    (begin == end) & (begin % (REGION * P) == P)
}

/// Whether three words may be those of a vector, or of an iterator of a deque: a test without lookups.
#[inline(always)]
fn is_triple([first, second, third]: [usize; 3]) -> bool {
    let low = first.min(second);
    (first <= third)
        & (second <= third)
        & (third.wrapping_sub(low) >= 4)
        & ((first <= second) | (third.wrapping_sub(second) <= PIECE))
}

/// The work of [`in_blocks`].
struct InBlocks<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    image: &'a Image,
    control: &'a Control,
}

impl<I: Index, const P: usize> hw::Work for InBlocks<'_, I, P> {
    type Out = Result<Vec<u64>, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        in_blocks(self.tables, self.image, self.control)
    }
}

/// Returns the addresses of words in blocks in use that may begin a vector or an iterator of a deque.
#[inline(always)]
fn in_blocks<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    control: &Control,
) -> Result<Vec<u64>, Stopped> {
    let mut found = Vec::new();
    for (run, placed) in tables.word_map.runs.iter().enumerate() {
        let last = &tables.regions[tables.word_map.region_end(run) - 1];
        let end = last.edge.get() + last.rank(REGION * P);
        let Some(edges) = tables.edges.as_slice().get(placed.edge..end) else { continue };
        let mut places = Vec::new();
        for from in (0..edges.len().saturating_sub(1)).step_by(CHECK) {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            in_edges(tables, edges, from, |at| places.push(placed.edge + at));
        }
        if !placed.run.kind.is_single() {
            found.extend(places.into_iter().filter_map(|edge| address_of(tables, run, edge)));
        } else if !places.is_empty() {
            // No table says where the words of a block with a run of its own are.
            let block = tables.block(run, placed.region * REGION);
            let (first, end) = edges_of(&tables.regions, block.granule);
            let offsets = offsets(tables, image, &block, (first, end));
            let offset = |edge: usize| offsets.get(edge.checked_sub(first)?).map(|&offset| offset as u64);
            let address = |edge| Some(block.address + offset(edge)? * WordMap::<P>::WORD);
            found.extend(places.into_iter().filter_map(address).filter(|_| !block.free));
        }
    }
    Ok(found)
}

/// Calls `take` with the number of each of [`CHECK`] edges that may begin a vector or an iterator with the next two, by number. The
/// regions that tell are at random places: a word waits until its region has been loaded.
#[inline(always)]
fn in_edges<I: Index, const P: usize>(tables: &Tables<I, P>, edges: &[I], from: usize, mut take: impl FnMut(usize)) {
    let word = |at: usize| edges.get(at).map_or(0, |edge| edge.get());
    let end = (from + CHECK).min(edges.len().saturating_sub(1));
    let (mut at, mut first, mut second) = (from, word(from), word(from + 1));
    let mut waiting = [(0, [0; 3]); WAITING];
    while at < end {
        let mut count = 0;
        while at < end && count < WAITING {
            let words = [first, second, word(at + 2)];
            if is_pair::<P>([words[0], words[1]]) | is_triple(words) {
                hw::prefetch(&tables.regions, words[0].min(words[1]) / (REGION * P));
                waiting[count] = (at, words);
                count += 1;
            }
            (first, second) = (words[1], words[2]);
            at += 1;
        }
        for &(at, words) in &waiting[..count] {
            if is_pair::<P>([words[0], words[1]]) || about_one_block(tables, words) {
                take(at);
            }
        }
    }
}

/// Whether three words lead into one block, the lower of the first two to its beginning.
#[inline(always)]
fn about_one_block<I: Index, const P: usize>(tables: &Tables<I, P>, [first, second, third]: [usize; 3]) -> bool {
    let (low, high) = (first.min(second), first.max(second));
    let block = chunk_of_word(&tables.regions, low).filter(|&block| is_start::<P>(low, block));
    let Some(block) = block else { return false };
    let next = next_start(&tables.regions, block);
    // The end of a block without a header is the beginning of the next one.
    high / P <= next && third / P <= next + 1
}

/// Returns the address of the word that holds an edge, if its block is in use.
fn address_of<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize, edge: usize) -> Option<u64> {
    let word = word_of_edge(tables, run, edge)?;
    let granule = tables.chunk_of_word(word).filter(|&granule| !tables.is_free(granule))?;
    let first = granule * P + if tables.word_map.runs[run].run.kind.has_chunks() { 2 } else { P };
    Some(tables.word_map.user(run, granule) + word.checked_sub(first)? as u64 * WordMap::<P>::WORD)
}

/// What containers say of their blocks.
struct Extents<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    reader: CachedReader<'a>,
    /// The arrays of deques whose pieces were read.
    arrays: HashSet<u64>,
    found: Vec<Extent>,
}

impl<I: Index, const P: usize> Extents<'_, I, P> {
    const WORD: u64 = WordMap::<P>::WORD;

    fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.reader.word(address.checked_add(i as u64 * Self::WORD)?, Self::WORD)?;
        }
        Some(words)
    }

    /// Returns the block that begins at an address, if it is large enough to have room.
    fn block(&self, address: u64) -> Option<Block> {
        self.tables.find(address).filter(|block| block.address == address && !block.free && block.size >= LEAST)
    }

    fn add(&mut self, block: u64, from: u64, end: u64) {
        self.found.push(Extent { block, from, end });
    }

    /// Reads the words at an address as those of a vector, and as those of a buffer with room on both sides.
    fn vector(&mut self, address: u64) {
        let Some([begin, end, room]) = self.words(address) else { return };
        let Some(block) = self.block(begin) else { return };
        // An iterator of a deque may have its begin twice.
        if begin < end && is_ascending::<P>(&block, &[begin, end, room]) {
            self.add(begin, begin, end);
        }
        if let Some([_, first, end, room]) = self.words(address) {
            if is_ascending::<P>(&block, &[begin, first, end, room]) && first < end {
                self.add(begin, first, end);
            }
        }
    }

    /// Reads the words before an address as those of a deque that has an iterator there.
    fn deque(&mut self, address: u64) {
        for before in ITERATORS {
            if let Some(at) = address.checked_sub(before * Self::WORD) {
                self.deque_at(at);
            }
        }
    }

    fn deque_at(&mut self, address: u64) -> Option<()> {
        let [array, count, words @ ..] = self.words::<10>(address)?;
        let [start, finish] = [0, 4].map(|i| DequeIterator {
            cur: words[i],
            first: words[i + 1],
            last: words[i + 2],
            node: words[i + 3],
        });
        let block = self.block(array)?;
        let end = array.checked_add(count.checked_mul(Self::WORD)?)?;
        let is_node = |node: u64| node >= array && node < end && node % Self::WORD == 0;
        let piece = start.last.checked_sub(start.first)?;
        let agree = is_ascending::<P>(&block, &[array, end])
            && is_node(start.node)
            && is_node(finish.node)
            && (start.node, start.cur) <= (finish.node, finish.cur)
            && finish.last.checked_sub(finish.first) == Some(piece)
            && [start, finish].iter().all(|each| (each.first..each.last).contains(&each.cur));
        if !agree || [start, finish].iter().any(|each| self.reader.word(each.node, Self::WORD) != Some(each.first)) {
            return None;
        }
        self.add(array, start.node, finish.node + Self::WORD);
        if !self.arrays.insert(array) {
            return Some(());
        }
        // What an allocator gives out beyond a piece is no part of it.
        for node in (start.node + Self::WORD..finish.node).step_by(Self::WORD as usize) {
            let first = self.reader.word(node, Self::WORD)?;
            if self.block(first).is_some_and(|block| block.size > piece) {
                self.add(first, first, first.checked_add(piece)?);
            }
        }
        if start.node == finish.node {
            self.add(start.first, start.cur, finish.cur);
        } else {
            self.add(start.first, start.cur, start.last);
            self.add(finish.first, finish.first, finish.cur);
        }
        Some(())
    }
}

/// An iterator of a deque.
#[derive(Clone, Copy, Debug)]
struct DequeIterator {
    cur: u64,
    first: u64,
    last: u64,
    node: u64,
}

/// Whether addresses ascend in a block, from its beginning, and the last is the end of most of it.
fn is_ascending<const P: usize>(block: &Block, addresses: &[u64]) -> bool {
    let room = addresses.last().map_or(0, |last| last.wrapping_sub(block.address));
    // An allocator rounds up by a quarter at most, and by 16 bytes.
    addresses.is_sorted()
        && addresses.iter().all(|address| address % WordMap::<P>::WORD == 0)
        && room <= block.size
        && room + 16 >= block.size - block.size / 4
}

/// Returns the edges of blocks that lie outside the extents.
fn outside<I: Index, const P: usize>(tables: &Tables<I, P>, image: &Image, mut extents: Vec<Extent>) -> Vec<usize> {
    extents.sort_unstable();
    let mut found = Vec::new();
    for of_block in extents.chunk_by(|one, other| one.block == other.block) {
        let from = of_block.iter().map(|each| each.from).min().unwrap_or(0);
        let end = of_block.iter().map(|each| each.end).max().unwrap_or(0);
        let Some(block) = tables.find(of_block[0].block).filter(|block| block.address == of_block[0].block) else {
            continue;
        };
        let edges = edges_of(&tables.regions, block.granule);
        if edges.0 < edges.1 && (from > block.address || end < block.address.saturating_add(block.size)) {
            for (edge, offset) in (edges.0..edges.1).zip(offsets(tables, image, &block, edges)) {
                let address = block.address + offset as u64 * WordMap::<P>::WORD;
                if address < from || address >= end {
                    found.push(edge);
                }
            }
        }
    }
    found
}
