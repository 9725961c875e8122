//! The owners of a heap: for each block, the roots that lead to it and what the block keeps alive alone.

use super::dense::Placed;
use super::dominators::{add_up, Dominating, Others};
use super::edges::Edges;
use super::numbering::{HeapGraph, Numbering};
use super::parts;
use super::roots::{Named, LEAKED};
use super::search::{Found, CLOSED, ROOT};
use super::set_aside::Aside;
use super::sets::{self, Sets};
use super::tiers::searched;
use super::too_many;
use crate::blocks::index::{Block, Tables, EVERY};
use crate::blocks::leaks::Leaks;
use crate::blocks::number::Index;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use std::collections::{BinaryHeap, HashMap};
use std::sync::OnceLock;

/// Blocks whose vertices are being loaded.
const WAITING: usize = 16;
/// Structures of one size are told apart if one in so many bytes, or more, belongs to several roots.
const SHARED: u64 = 100;
/// Kinds of blocks that are told apart in a listing.
const MOST_KINDS: usize = 1 << 16;

/// What a set of roots holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The set's number.
    pub set: u32,
    /// The roots. None: too many to list.
    pub roots: Option<Vec<u32>>,
    /// Blocks.
    pub count: u64,
    /// Their usable bytes.
    pub bytes: u64,
}

/// A block with what it keeps alive, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Usable bytes of all.
    pub bytes: u64,
    /// How many blocks.
    pub count: u32,
    /// The block's address.
    pub address: u64,
    /// Its usable bytes.
    pub size: u64,
}

/// Which blocks a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every block that roots reach. Leaked ones are not in it.
    Live,
    /// Those that a set of roots holds.
    Set(u32),
    /// The block at this address and all that it dominates.
    Below(u64),
}

/// Blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The first word, if it lies in one of the ranges that were asked for; 0 otherwise.
    pub first_word: u64,
    /// Usable bytes of each.
    pub size: u64,
    /// How many.
    pub count: u64,
    /// The block with the lowest address.
    pub example: u64,
}

/// The dominator tree. A vertex is a block or a root, and vertex 0 is above all.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// For each vertex: the vertex that dominates it directly. It has a smaller number.
    pub dominators: &'a [u32],
    /// For each vertex: the usable bytes that it keeps alive, itself included.
    pub bytes: &'a [u64],
}

/// The owners of all blocks.
pub struct Owners {
    pub(super) numbering: Numbering,
    /// For each block's number: its vertex, 0 or CLOSED.
    pub(super) vertices: Vec<u32>,
    /// For each vertex: its block's number, or ROOT.
    pub(super) numbers: Vec<u32>,
    pub(super) dominators: Vec<u32>,
    counts: Vec<u32>,
    bytes: Vec<u64>,
    /// For each vertex: the set of roots that lead to it.
    pub(super) sets: Vec<u32>,
    members: Vec<Vec<u32>>,
    /// The roots of the sets that are too large to list.
    pub many: Vec<u32>,
    leaked: Option<u32>,
    /// The pointers that were not followed.
    pub set_aside: Edges,
    /// How many of them are left over from an earlier use of the memory.
    pub left_over: u64,
    /// The vertices whose block no other block dominates, once they have been asked for.
    outer: OnceLock<Vec<u32>>,
}

/// The work of adding up what each vertex keeps alive.
struct Adding<'o, 't, I: Index, const P: usize> {
    owners: &'o mut Owners,
    tables: &'t Tables<I, P>,
}

impl<I: Index, const P: usize> hw::Work for Adding<'_, '_, I, P> {
    type Out = ();
    #[inline(always)]
    fn run<const FAST: bool>(self) {
        self.owners.add_up::<I, P, FAST>(self.tables);
    }
}

/// What the owners are found by.
struct Following<'a, I: Index, const P: usize> {
    /// All edges.
    graph: &'a HeapGraph<'a, I, P>,
    image: &'a Image,
    named: Named<'a>,
    closed: &'a [usize],
    leaks: Option<&'a Leaks<I>>,
    control: &'a Control,
}

impl<I: Index, const P: usize> Following<'_, I, P> {
    /// Finds the owners by all edges but those of `cut`.
    fn owners(&self, cut: Edges) -> Result<Owners, Stopped> {
        let &Following { graph, image, named, closed, leaks, control } = self;
        let tables = graph.tables;
        let graph = HeapGraph { cut: (cut.count > 0).then_some(&cut), ..*graph };
        let (found, roots) = match Placed::<u32>::new(&graph) {
            Some(placed) => searched(&graph, placed, image, named, closed, leaks, control)?,
            None => {
                let placed = Placed::<u64>::new(&graph).ok_or_else(too_many)?;
                searched(&graph, placed, image, named, closed, leaks, control)?
            }
        };
        let Found { vertices, numbers, parents, others } = found;
        let others = Others::new(numbers.len(), others)?;
        let dominators = hw::fast_work(Dominating { parents: &parents, others: &others, control })?;
        let (Sets { members, many, .. }, sets) = sets::of_vertices(&dominators, &parents, &others, &roots, control)?;
        drop((parents, others));
        let leaked = members.iter().position(|each| each[..] == [LEAKED]).map(|set| set as u32);
        let (counts, bytes) = (vec![0; numbers.len()], vec![0; numbers.len()]);
        hw::huge_pages(&counts);
        hw::huge_pages(&bytes);
        let mut owners = Owners {
            numbering: Numbering::new(&tables.regions).ok_or_else(too_many)?,
            vertices,
            numbers,
            dominators,
            counts,
            bytes,
            sets,
            members,
            many: many.into_iter().collect(),
            leaked,
            set_aside: cut,
            left_over: 0,
            outer: OnceLock::new(),
        };
        hw::fast_work(Adding { owners: &mut owners, tables });
        Ok(owners)
    }
}

impl Owners {
    /// Finds the owners. `closed` are the granules of the allocator's own blocks, `leaks` are the leaked blocks.
    pub fn find<I: Index, const P: usize>(
        tables: &Tables<I, P>,
        image: &Image,
        named: Named,
        closed: &[usize],
        leaks: Option<&Leaks<I>>,
        control: &Control,
    ) -> Result<Owners, Stopped> {
        let numbering = Numbering::new(&tables.regions).ok_or_else(too_many)?;
        let graph = HeapGraph { tables, numbering: &numbering, cut: None };
        let taken = parts::taken(tables, image, named);
        let count = taken.count;
        let following = Following { graph: &graph, image, named, closed, leaks, control };
        let mut found = if named.all_edges {
            following.owners(taken)?
        } else {
            let aside = Aside::new(&graph, image, named, closed, &taken, control)?;
            let found = following.owners(aside.by_sizes()?)?;
            match found.are_shared() {
                true => {
                    drop(found);
                    following.owners(aside.by_structures()?)?
                }
                false => found,
            }
        };
        found.left_over = found.set_aside.count - count;
        Ok(found)
    }

    /// Returns whether several roots hold a part of the heap that is worth a closer look at its pointers.
    fn are_shared(&self) -> bool {
        let (mut shared, mut all) = (0, 0);
        for line in self.lines() {
            all += line.bytes;
            shared += if line.roots.is_some_and(|roots| roots.len() == 1) { 0 } else { line.bytes };
        }
        shared * SHARED > all
    }

    #[inline(always)]
    fn add_up<I: Index, const P: usize, const FAST: bool>(&mut self, tables: &Tables<I, P>) {
        // The vertices lie in another order than the blocks: each waits until its place has been loaded.
        let mut waiting = [(0, 0, 0); WAITING];
        let mut nth = 0;
        for run in 0..tables.word_map.runs.len() {
            tables.each_block(run, EVERY, |block| {
                let vertex = self.vertices[self.numbering.of(&tables.regions, block.granule)];
                if vertex != 0 && vertex != CLOSED {
                    let oldest = std::mem::replace(&mut waiting[nth % WAITING], (vertex as usize, 1, block.size));
                    hw::prefetch(&self.counts, vertex as usize);
                    hw::prefetch(&self.bytes, vertex as usize);
                    (self.counts[oldest.0], self.bytes[oldest.0]) = (oldest.1, oldest.2);
                    nth = nth.wrapping_add(1);
                }
                true
            });
        }
        for (vertex, count, size) in waiting {
            (self.counts[vertex], self.bytes[vertex]) = (count, size);
        }
        add_up(&self.dominators, &mut self.counts, &mut self.bytes);
    }

    /// Returns what each set of roots holds. The leaked blocks have the set of [`LEAKED`].
    pub fn lines(&self) -> Vec<Line> {
        let mut sums: Vec<(u64, u64)> = vec![(0, 0); self.members.len()];
        for vertex in 1..self.dominators.len() {
            if self.dominators[vertex] == 0 {
                let sum = &mut sums[self.sets[vertex] as usize];
                sum.0 += u64::from(self.counts[vertex]);
                sum.1 += self.bytes[vertex];
            }
        }
        let roots = |set: usize| (set as u32 != sets::MANY).then(|| self.members[set].clone());
        let line = |(set, &(count, bytes))| Line { set: set as u32, roots: roots(set), count, bytes };
        sums.iter().enumerate().filter(|(_, sum)| sum.0 > 0).map(line).collect()
    }

    /// Returns the dominator tree.
    pub fn tree(&self) -> Tree<'_> {
        Tree { dominators: &self.dominators, bytes: &self.bytes }
    }

    /// Returns the number of the set of roots that leads to a vertex.
    pub fn set_of(&self, vertex: u32) -> u32 {
        self.sets.get(vertex as usize).copied().unwrap_or(sets::MANY)
    }

    /// Returns whether a vertex's block is leaked.
    pub fn is_leaked(&self, vertex: u32) -> bool {
        self.leaked.is_some() && self.sets.get(vertex as usize).copied() == self.leaked
    }

    /// Returns the vertex of each block in use, in address order; 0 for a block of the allocator's own.
    pub fn vertices<I: Index, const P: usize>(&self, tables: &Tables<I, P>) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.numbering.count());
        // The numbers are those of all starts, in order. What is no block counts as free.
        let mut vertices = self.vertices.iter();
        for (region, &free) in tables.regions.iter().zip(&tables.free) {
            let mut bits = region.start;
            let count = bits.count_ones() as usize;
            for &vertex in vertices.by_ref().take(count) {
                if free & bits & bits.wrapping_neg() == 0 {
                    found.push(if vertex == CLOSED { 0 } else { vertex });
                }
                bits &= bits - 1;
            }
        }
        found
    }

    pub(super) fn vertex<I: Index, const P: usize>(&self, tables: &Tables<I, P>, address: u64) -> Option<u32> {
        let block = tables.find(address).filter(|block| !block.free)?;
        let vertex = self.vertices[self.numbering.of(&tables.regions, block.granule)];
        (vertex != 0 && vertex != CLOSED).then_some(vertex)
    }

    pub(super) fn kept<I: Index, const P: usize>(&self, tables: &Tables<I, P>, vertex: u32) -> Option<Kept> {
        let number = *self.numbers.get(vertex as usize).filter(|&&number| number != ROOT)?;
        let granule = self.numbering.granule(&tables.regions, number as usize);
        let block = tables.block(tables.word_map.run_of_granule(granule), granule);
        let (bytes, count) = (self.bytes[vertex as usize], self.counts[vertex as usize]);
        Some(Kept { bytes, count, address: block.address, size: block.size })
    }

    /// Returns the block at `address` and those that dominate it, from the block up, at most `most`; and the set of roots
    /// that hold them. None: no vertex is there.
    pub fn above<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        address: u64,
        most: usize,
    ) -> Option<(Vec<Kept>, u32)> {
        let mut vertex = self.vertex(tables, address)?;
        let set = self.sets[vertex as usize];
        let mut found = Vec::new();
        while let Some(kept) = self.kept(tables, vertex).filter(|_| found.len() < most) {
            found.push(kept);
            vertex = self.dominators[vertex as usize];
        }
        Some((found, set))
    }

    /// Returns for each vertex whether it is in the scope.
    pub fn within<I: Index, const P: usize>(&self, tables: &Tables<I, P>, scope: Scope) -> Vec<bool> {
        match scope {
            Scope::Live => self.sets.iter().map(|&set| Some(set) != self.leaked).collect(),
            Scope::Set(wanted) => self.sets.iter().map(|&set| set == wanted).collect(),
            Scope::Below(address) => {
                let mut below = vec![false; self.numbers.len()];
                if let Some(vertex) = self.vertex(tables, address) {
                    below[vertex as usize] = true;
                    for other in vertex as usize + 1..below.len() {
                        below[other] = below[self.dominators[other] as usize];
                    }
                }
                below
            }
        }
    }

    /// Calls `take` for each vertex of the sets that are wanted whose block no other block dominates.
    fn each_outer(&self, wanted: impl Fn(u32) -> bool, take: impl FnMut(usize)) {
        // A root is a vertex too. It dominates blocks, but is not a block.
        let is_block = |vertex: u32| self.numbers[vertex as usize] != ROOT;
        let is_outer = |&vertex: &u32| is_block(vertex) && !is_block(self.dominators[vertex as usize]);
        let outer = self.outer.get_or_init(|| (1..self.numbers.len() as u32).filter(is_outer).collect());
        outer.iter().map(|&vertex| vertex as usize).filter(|&vertex| wanted(self.sets[vertex])).for_each(take);
    }

    /// Returns the largest blocks in the scope that no other block in it dominates, the largest first. For [`Scope::Below`], the block
    /// itself is not among them.
    pub fn largest<I: Index, const P: usize>(&self, tables: &Tables<I, P>, scope: Scope, most: usize) -> Vec<Kept> {
        let mut heap = BinaryHeap::new();
        let take = |vertex: usize| {
            heap.push(std::cmp::Reverse((self.bytes[vertex], std::cmp::Reverse(vertex as u32))));
            if heap.len() > most {
                heap.pop();
            }
        };
        match scope {
            Scope::Live => self.each_outer(|set| Some(set) != self.leaked, take),
            Scope::Set(wanted) => self.each_outer(|set| set == wanted, take),
            Scope::Below(address) => {
                let under = self.vertex(tables, address);
                let direct = |&vertex: &usize| Some(self.dominators[vertex]) == under && self.numbers[vertex] != ROOT;
                (1..self.dominators.len()).filter(direct).for_each(take);
            }
        }
        let found = heap.into_sorted_vec();
        found.iter().filter_map(|each| self.kept(tables, each.0 .1 .0)).collect()
    }

    /// Calls `each` for every block in the scope, by address, until it returns false.
    pub(super) fn each<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        scope: Scope,
        mut each: impl FnMut(Block) -> bool,
    ) {
        let within = self.within(tables, scope);
        self.each_vertex(tables, |block, vertex| !within[vertex as usize] || each(block));
    }

    /// Calls `each` for every block that is a vertex, by address, until it returns false.
    pub(super) fn each_vertex<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        mut each: impl FnMut(Block, u32) -> bool,
    ) {
        for run in 0..tables.word_map.runs.len() {
            let more = tables.each_block(run, EVERY, |block| {
                let vertex = self.vertices[self.numbering.of(&tables.regions, block.granule)];
                vertex == 0 || vertex == CLOSED || each(block, vertex)
            });
            if !more {
                return;
            }
        }
    }

    /// Returns the addresses of up to `most` blocks in the scope, from address `from` on.
    pub fn addresses<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        scope: Scope,
        from: u64,
        most: usize,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        self.each(tables, scope, |block| {
            if block.address >= from {
                found.push(block.address);
            }
            found.len() < most
        });
        found
    }

    /// Returns the blocks in the scope by their first word, if it lies in one of the sorted `ranges`, and by size. No memory is read
    /// if there are no ranges.
    pub fn alike<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped> {
        let mut kinds: HashMap<(u64, u64), Alike> = HashMap::new();
        let mut reader = CachedReader::new(image);
        let mut seen = 0u32;
        self.each(tables, scope, |block| {
            let mut first_word = 0;
            if !ranges.is_empty() {
                let word = reader.word(block.address, 16 / P as u64).unwrap_or(0);
                let index = ranges.partition_point(|range| range.1 <= word);
                if ranges.get(index).is_some_and(|range| range.0 <= word) {
                    first_word = word;
                }
            }
            if kinds.len() >= MOST_KINDS && !kinds.contains_key(&(first_word, block.size)) {
                first_word = 0;
            }
            let kind = Alike { first_word, size: block.size, count: 0, example: block.address };
            kinds.entry((first_word, block.size)).or_insert(kind).count += 1;
            seen = seen.wrapping_add(1);
            seen % (1 << 16) != 0 || !control.cancelled()
        });
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let mut found: Vec<Alike> = kinds.into_values().collect();
        found.sort_by_key(|kind| (std::cmp::Reverse(kind.size * kind.count), kind.size, kind.first_word));
        Ok(found)
    }
}
