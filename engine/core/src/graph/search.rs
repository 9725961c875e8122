//! Depth-first search. It numbers what it reaches in preorder, which the dominators need.
//!
//! Vertices are numbered from 1 as they are reached. Vertex 0 leads to all roots. A root is a vertex too: several words of one variable
//! are one root.
//!
//! The search goes in *tiers*. What a tier reaches is closed for the later ones: pointers from there are not looked at. So weak evidence
//! attributes only what strong evidence does not reach, and changes nothing else.

use super::too_many;
use crate::control::{Control, Stopped};
use crate::heap::number::Index;
use crate::hw;

/// A graph whose edges lie side by side.
pub trait Graph {
    /// The width of the numbers that name edges.
    type Edge: Index;
    /// Returns how many numbers there are.
    fn count(&self) -> usize;
    /// Returns the number of a node.
    fn number(&self, node: usize) -> usize;
    /// Returns the range of a node's edges.
    fn edges(&self, node: usize) -> (usize, usize);
    /// Returns the node that an edge leads to, or None where it leads nowhere.
    fn target(&self, edge: usize) -> Option<usize>;
    /// Asks the CPU to load what `target` needs.
    fn prefetch(&self, _edge: usize) {}
}

/// A block that the search does not enter.
pub const CLOSED: u32 = u32::MAX;
/// Stands for the number of a vertex that is a root and no block.
pub const ROOT: u32 = u32::MAX;
/// Edges whose targets are loaded when a block is reached.
const AHEAD: usize = 8;
/// Edges that were met of late, by the vertex that they lead to. A root often holds many words with one value.
const RECENT: usize = 1 << 10;

struct Frame<E> {
    at: E,
    end: E,
    vertex: u32,
}

/// A search in progress.
pub struct Search<'g, G: Graph> {
    graph: &'g G,
    /// For each number of a node: its vertex, 0 if it was not reached, or [`CLOSED`].
    pub vertices: Vec<u32>,
    /// For each vertex: the number of its node, or [`ROOT`].
    pub numbers: Vec<u32>,
    /// For each vertex: the vertex that it was reached from.
    pub parents: Vec<u32>,
    /// The edges (to, from) that led to a vertex that had been reached. Some stand there more than once.
    pub others: Vec<(u32, u32)>,
    stack: Vec<Frame<G::Edge>>,
    recent: Vec<(u32, u32)>,
    floor: u32,
}

impl<'g, G: Graph> Search<'g, G> {
    /// Begins a search.
    pub fn new(graph: &'g G) -> Self {
        let vertices = vec![0; graph.count()];
        hw::huge_pages(&vertices);
        Search {
            graph,
            vertices,
            numbers: vec![ROOT],
            parents: vec![0],
            others: Vec::new(),
            stack: Vec::new(),
            recent: vec![(0, 0); RECENT],
            floor: 1,
        }
    }

    /// Leaves a node out.
    pub fn close(&mut self, node: usize) {
        let number = self.graph.number(node);
        self.vertices[number] = CLOSED;
    }

    /// Closes everything that has been reached so far.
    pub fn next_tier(&mut self) {
        self.floor = self.numbers.len() as u32;
    }

    /// Adds a root. The words that it holds go to `reach` before another root is added.
    pub fn root(&mut self) -> Result<u32, Stopped> {
        self.add(ROOT, 0)
    }

    fn add(&mut self, number: u32, parent: u32) -> Result<u32, Stopped> {
        let vertex = self.numbers.len() as u32;
        if vertex >= CLOSED - 1 {
            return Err(too_many());
        }
        self.numbers.push(number);
        self.parents.push(parent);
        Ok(vertex)
    }

    /// Follows a pointer of `root` to `node`, and everything behind it.
    #[inline(always)]
    pub fn reach(&mut self, root: u32, node: usize, control: &Control) -> Result<(), Stopped> {
        self.meet(root, node)?;
        let mut since_check = 0u32;
        while let Some(top) = self.stack.last_mut() {
            let (edge, from) = (top.at.get(), top.vertex);
            top.at = G::Edge::new(edge + 1);
            if edge + 1 == top.end.get() {
                self.stack.pop(); // before its last child is entered: a list takes no stack
            }
            if let Some(node) = self.graph.target(edge) {
                self.meet(from, node)?;
            }
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

    #[inline(always)]
    fn meet(&mut self, from: u32, node: usize) -> Result<(), Stopped> {
        let number = self.graph.number(node);
        let known = self.vertices[number];
        if known != 0 {
            if known != CLOSED && known >= self.floor && known != from && self.is_news(known, from) {
                self.others.push((known, from));
            }
            return Ok(());
        }
        let vertex = self.add(number as u32, from)?;
        self.vertices[number] = vertex;
        self.is_news(vertex, from); // it is in the tree
        let (first, end) = self.graph.edges(node);
        if first < end {
            for edge in first..end.min(first + AHEAD) {
                self.graph.prefetch(edge);
            }
            self.stack.push(Frame { at: G::Edge::new(first), end: G::Edge::new(end), vertex });
        }
        Ok(())
    }

    /// Returns whether the edge was not met just before. An edge that is kept twice changes nothing, and takes memory.
    #[inline(always)]
    fn is_news(&mut self, to: u32, from: u32) -> bool {
        std::mem::replace(&mut self.recent[to as usize % RECENT], (to, from)) != (to, from)
    }
}
