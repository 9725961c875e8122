//! The owners of a heap: for each block, the roots that lead to it and what the block keeps alive alone.
//!
//! The tiers, strongest first: the allocator's own words; words of data to the first byte of a block; other words of data; the needed
//! words of stacks and registers; the direct leaks. See [`super::search`].

use super::dominators::{add_up, immediate, Others};
use super::numbering::{is_start, HeapGraph, Numbering};
use super::search::{Graph, Search, CLOSED, ROOT};
use super::sets::{self, Sets};
use super::{too_many, weak};
use crate::control::{Control, Stopped};
use crate::heap::cached_reader::CachedReader;
use crate::heap::index::Tables;
use crate::heap::leaks::Leaks;
use crate::heap::mark::RootReader;
use crate::heap::number::Index;
use crate::heap::runs::REGION;
use crate::hw;
use crate::image::Image;
use std::collections::{BinaryHeap, HashMap};

/// The root that holds the leaked blocks.
pub const LEAKED: u32 = u32::MAX;
/// The root of blocks in use that no aligned word leads to: see [`crate::heap::model::Heap::take_unaligned`].
pub const UNALIGNED: u32 = u32::MAX - 1;
/// The rank of the allocator's own words.
pub const OWN: u32 = 0;
/// The rank of data. What is above is weak: the lower, the more it counts.
pub const DATA: u32 = 1;
/// Kinds of blocks that are told apart in a listing.
const MOST_KINDS: usize = 1 << 16;

/// Memory of one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// The caller's number for the root.
    pub root: u32,
    /// [`OWN`], [`DATA`], or the rank of a stack.
    pub rank: u32,
}

/// A single word that is a root, such as a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// What it holds.
    pub value: u64,
    /// The caller's number for the root.
    pub root: u32,
    /// As in [`Area`].
    pub rank: u32,
}

/// The roots, with names. `areas` are sorted and do not overlap. Of a range that they leave out, root 0 has the words, as data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    /// Memory whose words are roots, as for marking.
    pub ranges: &'a [(u64, u64)],
    /// Whose memory it is.
    pub areas: &'a [Area],
    /// Single roots.
    pub values: &'a [Word],
}

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

/// The owners of all blocks.
pub struct Owners {
    numbering: Numbering,
    /// For each block's number: its vertex, 0 or CLOSED.
    vertices: Vec<u32>,
    /// For each vertex: its block's number, or ROOT.
    numbers: Vec<u32>,
    dominators: Vec<u32>,
    counts: Vec<u32>,
    bytes: Vec<u64>,
    /// For each vertex: the set of roots that lead to it.
    sets: Vec<u32>,
    members: Vec<Vec<u32>>,
    leaked: Option<u32>,
}

/// Calls `each` with (address, target word, root, rank) for every candidate pointer in the roots' memory.
pub(super) fn each_word<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    named: Named,
    control: &Control,
    mut each: impl FnMut(u64, usize, u32, u32) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let mut last = Area { start: 1, end: 0, root: 0, rank: DATA };
    for &(start, end) in named.ranges {
        let mut reader = RootReader::new(image, start, end);
        while reader.read(image, &tables.word_map, control)? {
            for &(address, target) in &reader.found {
                if address < last.start || address >= last.end {
                    last = area_of(named.areas, address);
                }
                each(address, target, last.root, last.rank)?;
            }
        }
    }
    Ok(())
}

/// Returns the area that holds the address, or the gap between two as root 0's.
fn area_of(areas: &[Area], address: u64) -> Area {
    let next = areas.partition_point(|area| area.start <= address);
    let before = next.checked_sub(1).map(|index| areas[index]);
    match before {
        Some(area) if address < area.end => area,
        _ => Area {
            start: before.map_or(0, |area| area.end),
            end: areas.get(next).map_or(u64::MAX, |area| area.start),
            root: 0,
            rank: DATA,
        },
    }
}

/// A weak root, before it is known whether it is needed.
struct Weak {
    interior: bool,
    rank: u32,
    root: u32,
    node: usize,
}

/// The search from the roots, tier by tier.
struct Tiers<'g, I: Index, const P: usize> {
    graph: &'g HeapGraph<'g, I, P>,
    search: Search<'g, HeapGraph<'g, I, P>>,
    /// (vertex, root), by vertex.
    roots: Vec<(u32, u32)>,
    /// Words of data that point into the middle of a block: (root, node).
    interior: Vec<(u32, I)>,
    weak: Vec<Weak>,
}

impl<I: Index, const P: usize> Tiers<'_, I, P> {
    fn reach(&mut self, root: u32, node: usize, control: &Control) -> Result<(), Stopped> {
        let vertex = match self.roots.last() {
            Some(&(vertex, last)) if last == root => vertex,
            _ => {
                let vertex = self.search.root()?;
                self.roots.push((vertex, root));
                vertex
            }
        };
        self.search.reach(vertex, node, control)
    }

    /// Takes a word of a root. Data is followed at once; what is weaker waits.
    fn word(&mut self, target: usize, root: u32, rank: u32, control: &Control) -> Result<(), Stopped> {
        let Some(node) = self.graph.tables.chunk_of_word(target) else { return Ok(()) };
        let interior = !is_start::<P>(target, node);
        if !interior && rank <= DATA {
            return self.reach(root, node, control);
        }
        // What stronger evidence has reached needs no more of it. A large mapping may be full of such words.
        if self.search.vertices[self.graph.number(node)] != 0 {
            return Ok(());
        }
        if rank > DATA {
            self.weak.push(Weak { interior, rank, root, node });
        } else if !self.interior.last().is_some_and(|last| last.0 == root && last.1.get() == node) {
            self.interior.push((root, I::new(node)));
        }
        Ok(())
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
        let graph = HeapGraph { tables, numbering: &numbering };
        let mut search = Search::new(&graph);
        for (region, &free) in tables.free.iter().enumerate() {
            let mut bits = free & tables.regions[region].start;
            while bits != 0 {
                search.close(region * REGION + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        closed.iter().for_each(|&granule| search.close(granule));
        let mut tiers = Tiers { graph: &graph, search, roots: Vec::new(), interior: Vec::new(), weak: Vec::new() };
        hw::fast(|| tiers.all(image, named, leaks, control))?;
        let Tiers { search, roots, interior, weak, .. } = tiers;
        drop((interior, weak));
        let Search { vertices, numbers, parents, others, .. } = search;
        let others = Others::new(numbers.len(), others)?;
        let dominators = hw::fast(|| immediate(&parents, &others, control))?;
        let (Sets { members, .. }, sets) = sets::of_vertices(&dominators, &parents, &others, &roots, control)?;
        drop((parents, others));
        let leaked = members.iter().position(|each| each[..] == [LEAKED]).map(|set| set as u32);
        let (counts, bytes) = (vec![0; numbers.len()], vec![0; numbers.len()]);
        let mut owners = Owners { numbering, vertices, numbers, dominators, counts, bytes, sets, members, leaked };
        owners.add_up(tables);
        Ok(owners)
    }

    fn add_up<I: Index, const P: usize>(&mut self, tables: &Tables<I, P>) {
        for run in 0..tables.word_map.runs.len() {
            tables.each_block(run, 0, |granule| {
                let vertex = self.vertices[self.numbering.of(&tables.regions, granule)];
                if vertex != 0 && vertex != CLOSED {
                    self.counts[vertex as usize] = 1;
                    self.bytes[vertex as usize] = tables.block(run, granule).size;
                }
                true
            });
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

    fn vertex<I: Index, const P: usize>(&self, tables: &Tables<I, P>, address: u64) -> Option<u32> {
        let block = tables.find(address).filter(|block| !block.free)?;
        let vertex = self.vertices[self.numbering.of(&tables.regions, block.granule)];
        (vertex != 0 && vertex != CLOSED).then_some(vertex)
    }

    fn kept<I: Index, const P: usize>(&self, tables: &Tables<I, P>, vertex: u32) -> Option<Kept> {
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
    fn within<I: Index, const P: usize>(&self, tables: &Tables<I, P>, scope: Scope) -> Vec<bool> {
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

    /// Returns the largest blocks in the scope that no other block in it dominates, the largest first. For [`Scope::Below`], the block
    /// itself is not among them.
    pub fn largest<I: Index, const P: usize>(&self, tables: &Tables<I, P>, scope: Scope, most: usize) -> Vec<Kept> {
        let within = self.within(tables, scope);
        let under = match scope {
            Scope::Below(address) => self.vertex(tables, address),
            _ => None,
        };
        // A root is a vertex too. It dominates blocks, and is none.
        let outer = |vertex: usize| match under {
            Some(under) => self.dominators[vertex] == under,
            None => self.numbers[self.dominators[vertex] as usize] == ROOT,
        };
        let mut heap = BinaryHeap::new();
        for (vertex, &number) in self.numbers.iter().enumerate().skip(1) {
            if within[vertex] && number != ROOT && outer(vertex) {
                heap.push(std::cmp::Reverse((self.bytes[vertex], std::cmp::Reverse(vertex as u32))));
                if heap.len() > most {
                    heap.pop();
                }
            }
        }
        let found = heap.into_sorted_vec();
        found.iter().filter_map(|each| self.kept(tables, each.0 .1 .0)).collect()
    }

    /// Calls `each` with (run, granule) for every block in the scope, by address, until it returns false.
    fn each<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        scope: Scope,
        mut each: impl FnMut(usize, usize) -> bool,
    ) {
        let within = self.within(tables, scope);
        let mut more = true;
        for run in 0..tables.word_map.runs.len() {
            tables.each_block(run, 0, |granule| {
                let vertex = self.vertices[self.numbering.of(&tables.regions, granule)];
                if vertex != 0 && vertex != CLOSED && within[vertex as usize] {
                    more = each(run, granule);
                }
                more
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
        self.each(tables, scope, |run, granule| {
            let address = tables.word_map.user(run, granule);
            if address >= from {
                found.push(address);
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
        self.each(tables, scope, |run, granule| {
            let block = tables.block(run, granule);
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

impl<I: Index, const P: usize> Tiers<'_, I, P> {
    #[inline(always)]
    fn all(&mut self, image: &Image, named: Named, leaks: Option<&Leaks<I>>, control: &Control) -> Result<(), Stopped> {
        let graph = self.graph;
        let value = |word: &Word| graph.tables.word_map.word_of(word.value);
        for word in named.values.iter().filter(|word| word.rank == OWN) {
            if let Some(node) = value(word).and_then(|target| graph.tables.chunk_of_word(target)) {
                self.reach(word.root, node, control)?;
            }
        }
        self.search.next_tier();
        each_word(graph.tables, image, named, control, |_, target, root, rank| self.word(target, root, rank, control))?;
        for word in named.values.iter().filter(|word| word.rank != OWN) {
            if let Some(target) = value(word) {
                self.word(target, word.root, word.rank, control)?;
            }
        }
        self.search.next_tier();
        let mut interior = std::mem::take(&mut self.interior);
        interior.sort_by_key(|&(root, _)| root);
        for (root, node) in interior {
            self.reach(root, node.get(), control)?;
        }
        self.search.next_tier();
        let mut waiting = std::mem::take(&mut self.weak);
        waiting.sort_by_key(|weak| (weak.interior, weak.rank, weak.root));
        self.needed(&waiting, control)?;
        self.search.next_tier();
        let waiting = self.not_reached(leaks);
        self.needed(&waiting, control)?;
        self.search.next_tier();
        for granule in leaks.map_or(&[][..], |leaks| &leaks.direct) {
            self.reach(LEAKED, granule.get(), control)?;
        }
        Ok(())
    }

    /// Follows the words that nothing else makes needless.
    fn needed(&mut self, waiting: &[Weak], control: &Control) -> Result<(), Stopped> {
        let nodes: Vec<usize> = waiting.iter().map(|weak| weak.node).collect();
        let vertices = &self.search.vertices;
        let mut needed = weak::needed(self.graph, &nodes, |number| vertices[number] != 0, control)?;
        needed.sort_by_key(|&index| waiting[index].root);
        for index in needed {
            self.reach(waiting[index].root, waiting[index].node, control)?;
        }
        Ok(())
    }

    /// Returns the blocks in use that no tier has reached. Marking found pointers to them that are not in the tables.
    fn not_reached(&self, leaks: Option<&Leaks<I>>) -> Vec<Weak> {
        let tables = self.graph.tables;
        let mut found = Vec::new();
        for run in 0..tables.word_map.runs.len() {
            tables.each_block(run, 0, |node| {
                let known = self.search.vertices[self.graph.number(node)];
                if known == 0 && !leaks.is_some_and(|leaks| leaks.is_leaked(node)) {
                    found.push(Weak { interior: false, rank: 0, root: UNALIGNED, node });
                }
                true
            });
        }
        found
    }
}
