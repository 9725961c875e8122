//! Depth-first search. It numbers what it reaches in preorder, which the dominators need.
//!
//! Vertices are numbered from 1 as they are reached. Vertex 0 leads to all roots. A root is a vertex too: several words of one variable
//! are one root.
//!
//! The search goes in *tiers*. What a tier reaches is closed for the later ones: pointers from there are not looked at. So weak evidence
//! attributes only what strong evidence does not reach, and changes nothing else.

pub use super::dense::Graph;
use super::dense::{Building, Dense, Placed, LEAF};
use super::too_many;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;

/// A block that the search does not enter.
pub const CLOSED: u32 = u32::MAX;
/// Stands for the number of a vertex that is a root and no block.
pub const ROOT: u32 = u32::MAX;
/// Edges whose targets are loaded when a block is reached, and edges ahead whose targets are loaded where there are more.
const AHEAD: usize = 8;
/// How far below the top of the stack the edges of a block, and their targets, are loaded.
const DEPTHS: [usize; 2] = [12, 6];
/// Edges of each whose targets are loaded.
const NEAR: usize = 3;
/// Blocks that may have been put on the stack since, so that what was loaded is still there.
const WARM: usize = 64;
/// Roots for which there is room at first.
const ROOTS: usize = 1 << 12;
/// Edges that were met of late, by the vertex that they lead to. A root often holds many words with one value.
const RECENT: usize = 1 << 10;

#[derive(Clone, Copy)]
struct Frame<W> {
    /// Where the next edge stands.
    at: W,
    vertex: u32,
    /// Whether the block has more edges than are loaded when it is reached.
    wide: bool,
}

/// What a search has found.
pub struct Found {
    /// For each number of a node: its vertex, 0 if it was not reached, or [`CLOSED`].
    pub vertices: Vec<u32>,
    /// For each vertex: the number of its node, or [`ROOT`].
    pub numbers: Vec<u32>,
    /// For each vertex: the vertex that it was reached from.
    pub parents: Vec<u32>,
    /// The edges (to, from) that led to a vertex that had been reached. Some stand there more than once.
    pub others: Vec<(u32, u32)>,
}

/// A search in progress. `W` is the width of a place in the list of the graph.
pub struct Search<'g, G: Graph, W: Index> {
    graph: &'g G,
    dense: Dense<W>,
    parents: Vec<u32>,
    others: Vec<(u32, u32)>,
    stack: Vec<Frame<W>>,
    recent: Vec<(u32, u32)>,
    floor: u32,
    /// The edges of the blocks of the stack from here on have been loaded.
    warm: usize,
}

impl<'g, G: Graph, W: Index> Search<'g, G, W> {
    /// Begins a search. `placed` says where the graph's nodes stand.
    pub fn new(graph: &'g G, placed: Placed<W>, control: &Control) -> Result<Self, Stopped> {
        // The list of parents is written from its beginning: what is not used stays untouched.
        let mut parents = Vec::with_capacity(graph.count() + ROOTS);
        parents.push(0);
        Ok(Search {
            graph,
            dense: hw::fast_work(Building { graph, placed, closed: CLOSED, control })?,
            parents,
            others: Vec::new(),
            stack: Vec::new(),
            recent: vec![(0, 0); RECENT],
            floor: 1,
            warm: 0,
        })
    }

    /// Leaves a node out.
    pub fn close(&mut self, node: usize) {
        let place = self.dense.place(self.graph.number(node));
        self.dense.words[place] = W::new(CLOSED as usize);
    }

    /// Closes everything that has been reached so far.
    pub fn next_tier(&mut self) {
        self.floor = self.parents.len() as u32;
    }

    /// Returns the vertex of a node: 0 if it was not reached, or [`CLOSED`].
    #[inline(always)]
    pub fn vertex(&self, node: usize) -> u32 {
        self.vertex_of(self.graph.number(node))
    }

    /// Returns the vertex of the node with this number: see [`Search::vertex`].
    #[inline(always)]
    pub fn vertex_of(&self, number: usize) -> u32 {
        self.dense.said(self.dense.place(number))
    }

    /// Adds a root. The words that it holds go to `reach` before another root is added.
    pub fn root(&mut self) -> Result<u32, Stopped> {
        self.add(0)
    }

    #[inline(always)]
    fn add(&mut self, parent: u32) -> Result<u32, Stopped> {
        let vertex = self.parents.len() as u32;
        if vertex >= LEAF {
            return Err(too_many());
        }
        self.parents.push(parent);
        Ok(vertex)
    }

    /// Follows a pointer of `root` to `node`, and everything behind it.
    #[inline(always)]
    pub fn reach(&mut self, root: u32, node: usize, control: &Control) -> Result<(), Stopped> {
        let place = self.dense.place(self.graph.number(node));
        self.meet(root, place)?;
        let mut since_check = 0u32;
        while let Some(top) = self.stack.last_mut() {
            let (at, from, wide) = (top.at.get(), top.vertex, top.wide);
            let edge = self.dense.words[at].get();
            if edge & Dense::<W>::LAST != 0 {
                self.stack.pop(); // before its last child is entered: a list takes no stack
                self.load_below();
            } else {
                top.at = W::new(at + 1);
                if wide {
                    self.load(at + AHEAD);
                }
            }
            self.meet(from, edge & !Dense::<W>::LAST)?;
            since_check += 1;
            if since_check == 1 << 16 {
                since_check = 0;
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
            }
        }
        Ok(())
    }

    /// Loads what the blocks below the top of the stack need. The way back up meets many of them in a row, and what was
    /// loaded on the way down is no longer in the cache.
    #[inline(always)]
    fn load_below(&mut self) {
        let depth = self.stack.len();
        if depth > self.warm.saturating_add(WARM) {
            self.warm = depth;
        }
        let [first, second] = DEPTHS;
        if depth < second || depth - second >= self.warm {
            return;
        }
        self.warm = depth - second;
        if depth >= first {
            hw::prefetch(&self.dense.words, self.stack[depth - first].at.get());
        }
        let at = self.stack[depth - second].at.get();
        for edge in at..at + NEAR {
            if self.load(edge) {
                break;
            }
        }
    }

    /// Loads what an edge leads to. Returns whether it is the last of its block.
    #[inline(always)]
    fn load(&self, edge: usize) -> bool {
        let Some(word) = self.dense.words.get(edge) else { return true };
        hw::prefetch(&self.dense.words, word.get() & !Dense::<W>::LAST);
        word.get() & Dense::<W>::LAST != 0
    }

    #[inline(always)]
    fn meet(&mut self, from: u32, place: usize) -> Result<(), Stopped> {
        let known = self.dense.words[place].get() as u32;
        if known != 0 && known != LEAF {
            if known != CLOSED && known >= self.floor && known != from && self.is_news(known, from) {
                self.others.push((known, from));
            }
            return Ok(());
        }
        let vertex = self.add(from)?;
        self.dense.words[place] = W::new(vertex as usize);
        self.is_news(vertex, from); // it is in the tree
        if known == LEAF {
            return Ok(());
        }
        let first = place + 1;
        let wide = !(first..first + AHEAD).any(|edge| self.load(edge));
        self.stack.push(Frame { at: W::new(first), vertex, wide });
        Ok(())
    }

    /// Returns whether the edge was not met just before. An edge that is kept twice changes nothing, and takes memory.
    #[inline(always)]
    fn is_news(&mut self, to: u32, from: u32) -> bool {
        std::mem::replace(&mut self.recent[to as usize % RECENT], (to, from)) != (to, from)
    }

    /// Returns what was found.
    pub fn finish(self) -> Found {
        let Search { dense, parents, others, .. } = self;
        let vertices = dense.into_said();
        let mut numbers = vec![ROOT; parents.len()];
        hw::huge_pages(&numbers);
        for (number, &vertex) in vertices.iter().enumerate() {
            if let Some(place) = numbers.get_mut(vertex as usize).filter(|_| vertex != 0) {
                *place = number as u32;
            }
        }
        Found { vertices, numbers, parents, others }
    }
}
