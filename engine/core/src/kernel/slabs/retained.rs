//! What slab objects keep alive alone: the dominator tree of [`crate::graph`], over the objects of a kernel.
//!
//! An object keeps another one alive if every path from a root to the other one leads through it. The roots are one
//! vertex: this tree does not say which of them holds an object.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::freelists::{state, States};
use super::leaks::Leaks;
use super::sweep::Pointers;
use super::table::{Node, Slab, Table, LARGE};
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::graph::dense::{Graph, Placed};
use crate::graph::dominators::{add_up, immediate, Others};
use crate::graph::owners::Tree;
use crate::graph::retained::{by_vertex, Retained as Bytes};
use crate::graph::search::{Found, Search, ROOT};
use crate::graph::too_many;

/// The dominator tree. Vertex 0 is above all.
pub struct Retained {
    /// For each object: its vertex. 0: it is free, or the allocator's own.
    vertices: Vec<u32>,
    /// For each vertex: its object, or [`ROOT`].
    nodes: Vec<Node>,
    dominators: Vec<u32>,
    /// For each vertex: the objects that it keeps alive, itself included, and their bytes.
    counts: Vec<u32>,
    bytes: Vec<u64>,
    /// The vertices from here on are leaked.
    leaked: u32,
    /// Large blocks that are not kmalloc's, sorted. They lead to objects, and do not count.
    others: Vec<Node>,
}

/// An object with what it keeps alive, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The object.
    pub node: Node,
    /// How many objects.
    pub count: u32,
    /// Their bytes.
    pub bytes: u64,
}

struct Objects<'a> {
    pointers: &'a Pointers,
    nodes: usize,
}

impl Graph for Objects<'_> {
    type Edge = u32;

    fn count(&self) -> usize {
        self.nodes
    }

    #[inline(always)]
    fn number(&self, node: usize) -> usize {
        node
    }

    #[inline(always)]
    fn edges(&self, node: usize) -> (usize, usize) {
        self.pointers.range(node as Node)
    }

    #[inline(always)]
    fn target(&self, edge: usize) -> Option<usize> {
        Some(self.pointers.targets[edge] as usize)
    }

    #[inline(always)]
    fn each(&self, mut each: impl FnMut(usize, usize, usize) -> bool) {
        for node in 0..self.nodes {
            let (first, end) = self.edges(node);
            if !each(node, first, end) {
                return;
            }
        }
    }
}

/// Makes the tree. Call it when the leaks have been found, and before any are set aside.
pub fn find(
    table: &Table,
    states: &States,
    pointers: &Pointers,
    leaks: &Leaks,
    control: &Control,
) -> Result<Retained, Stopped> {
    let graph = Objects { pointers, nodes: table.nodes as usize };
    let (Found { vertices, numbers, parents, others }, leaked) = match Placed::<u32>::new(&graph) {
        Some(placed) => searched(&graph, placed, states, leaks, control)?,
        None => searched(&graph, Placed::<u64>::new(&graph).ok_or_else(too_many)?, states, leaks, control)?,
    };
    let others = Others::new(numbers.len(), others)?;
    let dominators = immediate(&parents, &others, control)?;
    drop((parents, others));
    let (counts, bytes) = (vec![0; numbers.len()], vec![0; numbers.len()]);
    let others = pointers.only_paged(table);
    let mut made = Retained { vertices, nodes: numbers, dominators, counts, bytes, leaked, others };
    for (slab, nodes) in in_slabs(&made.others, table) {
        for node in nodes {
            let vertex = made.vertices[node as usize] as usize;
            if vertex != 0 {
                (made.counts[vertex], made.bytes[vertex]) = (1, table.bytes_of(slab));
            }
        }
    }
    add_up(&made.dominators, &mut made.counts, &mut made.bytes);
    Ok(made)
}

/// Returns all slabs with their objects, without the large blocks `others`.
fn in_slabs<'a>(others: &'a [Node], table: &'a Table) -> impl Iterator<Item = (&'a Slab, Range<Node>)> {
    let slabs = table.slabs.iter().filter(|slab| slab.cache != LARGE || others.binary_search(&slab.first).is_err());
    slabs.map(|slab| (slab, slab.first..slab.first + u32::from(slab.objects)))
}

/// Follows all roots. Returns what was found, and the first vertex that is leaked.
fn searched<W: Index>(
    graph: &Objects,
    placed: Placed<W>,
    states: &States,
    leaks: &Leaks,
    control: &Control,
) -> Result<(Found, u32), Stopped> {
    let mut search = Search::new(graph, placed, control)?;
    let root = search.root()?;
    for node in graph.pointers.roots.iter().chain(graph.pointers.stacks.iter()) {
        search.reach(root, node as usize, control)?;
    }
    // What only weak evidence holds: nothing that plain pointers reach is attributed to it.
    for (weak, class) in graph.pointers.weak().into_iter().zip([state::UNALIGNED, state::PHYSICAL]) {
        search.next_tier();
        let root = search.root()?;
        for node in weak.roots.iter().chain(weak.edges.iter().map(|(_, target)| *target)) {
            if states.of[node as usize] == class {
                search.reach(root, node as usize, control)?;
            }
        }
    }
    search.next_tier();
    let root = search.root()?;
    for (node, _) in states.of.iter().enumerate().filter(|(_, found)| **found == state::UNSURE) {
        if search.vertex(node) == 0 {
            search.reach(root, node, control)?;
        }
    }
    search.next_tier();
    let leaked = search.root()?;
    for node in leaks.direct.iter().map(|direct| direct.node).chain(leaks.all.iter().copied()) {
        // Of the others, only those that weak evidence alone leads to are left.
        if search.vertex(node as usize) == 0 {
            search.reach(leaked, node as usize, control)?;
        }
    }
    Ok((search.finish(), leaked))
}

impl Retained {
    /// Returns the bytes that the held and the leaked objects of each cache keep alive, themselves included. The last are those of
    /// the large blocks. A byte counts once for each cache: an object below another of its cache adds nothing.
    pub fn by_cache(&self, table: &Table, control: &Control) -> Result<Vec<Bytes>, Stopped> {
        let caches = table.caches.len();
        let mut groups = vec![ROOT; self.nodes.len()];
        for (slab, nodes) in in_slabs(&self.others, table) {
            let group = slab.cache.min(caches as u32);
            for node in nodes {
                groups[self.vertices[node as usize] as usize] = group;
            }
        }
        groups[0] = ROOT;
        let tree = Tree { dominators: &self.dominators, bytes: &self.bytes };
        by_vertex(&tree, &groups, caches + 1, |vertex| vertex >= self.leaked, control)
    }

    /// Returns the largest of the objects of a cache that are below no other one of it, the largest first.
    pub fn largest(&self, table: &Table, cache: u32, most: usize) -> Vec<Kept> {
        let mut inside = vec![false; self.nodes.len()];
        for (_, nodes) in in_slabs(&self.others, table).filter(|(slab, _)| slab.cache == cache) {
            for node in nodes {
                inside[self.vertices[node as usize] as usize] = true;
            }
        }
        inside[0] = false;
        let mut under = vec![false; self.nodes.len()];
        let mut outer = Vec::new();
        for vertex in 1..self.nodes.len() {
            let above = self.dominators[vertex] as usize;
            under[vertex] = under[above] || inside[above];
            if inside[vertex] && !under[vertex] {
                outer.push(vertex as u32);
            }
        }
        self.largest_of(outer.into_iter(), most)
    }

    /// Returns the object that a vertex stands for. None: it is a root.
    fn kept(&self, vertex: u32) -> Option<Kept> {
        let node = *self.nodes.get(vertex as usize).filter(|node| **node != ROOT && vertex != 0)?;
        Some(Kept { node, count: self.counts[vertex as usize], bytes: self.bytes[vertex as usize] })
    }

    fn largest_of(&self, vertices: impl Iterator<Item = u32>, most: usize) -> Vec<Kept> {
        let mut heap = BinaryHeap::new();
        for vertex in vertices {
            heap.push(Reverse((self.bytes[vertex as usize], Reverse(vertex))));
            if heap.len() > most {
                heap.pop();
            }
        }
        heap.into_sorted_vec().into_iter().filter_map(|Reverse((_, Reverse(vertex)))| self.kept(vertex)).collect()
    }

    /// Returns an object and those that dominate it, from the object up, at most `most`. Empty: it is not in use.
    pub fn above(&self, node: Node, most: usize) -> Vec<Kept> {
        let mut vertex = self.vertices.get(node as usize).copied().unwrap_or(0);
        let mut found = Vec::new();
        while let Some(kept) = self.kept(vertex).filter(|_| found.len() < most) {
            found.push(kept);
            vertex = self.dominators[vertex as usize];
        }
        found
    }

    /// Returns the largest of the objects that an object dominates directly, the largest first.
    pub fn below(&self, node: Node, most: usize) -> Vec<Kept> {
        let Some(vertex) = self.vertices.get(node as usize).copied().filter(|vertex| *vertex != 0) else {
            return Vec::new();
        };
        let all = 1..self.nodes.len() as u32;
        self.largest_of(all.filter(|other| self.dominators[*other as usize] == vertex), most)
    }

    /// Returns (cache, objects, bytes) of what an object keeps alive, itself included, in the order of the caches.
    pub fn caches_of(&self, table: &Table, node: Node) -> Vec<(u32, u64, u64)> {
        let top = self.vertices.get(node as usize).copied().unwrap_or(0);
        if top == 0 {
            return Vec::new();
        }
        let mut inside = vec![false; self.nodes.len()];
        for vertex in top as usize..self.nodes.len() {
            inside[vertex] = vertex == top as usize || inside[self.dominators[vertex] as usize];
        }
        let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (slab, nodes) in in_slabs(&self.others, table) {
            let count = nodes.filter(|node| inside[self.vertices[*node as usize] as usize]).count() as u64;
            if count > 0 {
                let sum = found.entry(slab.cache).or_default();
                *sum = (sum.0 + count, sum.1 + count * table.bytes_of(slab));
            }
        }
        found.into_iter().map(|(cache, (count, bytes))| (cache, count, bytes)).collect()
    }

    /// Returns whether an object is leaked.
    pub fn is_leaked(&self, node: Node) -> bool {
        self.vertices.get(node as usize).is_some_and(|vertex| *vertex >= self.leaked)
    }
}
