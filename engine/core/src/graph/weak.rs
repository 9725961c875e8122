//! The roots on stacks that nothing else makes needless.
//!
//! A stack has words that no function reads again. Such a word may point into the middle of a structure that a local
//! variable of another frame holds. Then the word is needless: the structure leads there too. What remains is a least
//! set of words that reaches the same blocks. [`crate::blocks::leaks`] finds the direct leaks in the same way.

use super::search::Graph;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;

/// Edges whose targets are being loaded.
const WAITING: usize = 16;

/// Returns which of the `nodes` are needed to reach all that they reach, in their order. Where each of two leads to the
/// other, the earlier is needed. `taken` says of a node's number that it is held otherwise.
pub fn needed<G: Graph>(
    graph: &G,
    nodes: &[usize],
    taken: impl Fn(usize) -> bool,
    control: &Control,
) -> Result<Vec<usize>, Stopped> {
    let mut first = Marks::new(graph, &taken);
    let mut candidates = Vec::new();
    for (index, &node) in nodes.iter().enumerate() {
        if first.reach(node, control)? {
            candidates.push(index);
        }
    }
    drop(first);
    let mut second = Marks::new(graph, &taken);
    let mut kept = Vec::new();
    for &index in candidates.iter().rev() {
        if second.reach(nodes[index], control)? {
            kept.push(index);
        }
    }
    kept.reverse();
    Ok(kept)
}

/// The work of [`Marks::reach`].
struct Reaching<'m, 'a, G: Graph, T> {
    marks: &'m mut Marks<'a, G, T>,
    control: &'m Control,
}

impl<G: Graph, T: Fn(usize) -> bool> hw::Work for Reaching<'_, '_, G, T> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        self.marks.drain(self.control)
    }
}

/// Marks, and what a node leads to.
pub(super) struct Marks<'a, G: Graph, T> {
    graph: &'a G,
    taken: &'a T,
    bits: Vec<u64>,
    stack: Vec<(G::Edge, G::Edge)>,
    /// Edges of marked nodes that lead nowhere, if they are asked for.
    aside: Option<Vec<G::Edge>>,
}

impl<'a, G: Graph, T: Fn(usize) -> bool> Marks<'a, G, T> {
    /// Nothing is marked yet. `taken` says of a node's number that no mark enters it.
    pub fn new(graph: &'a G, taken: &'a T) -> Self {
        Marks { graph, taken, bits: vec![0; graph.count().div_ceil(64)], stack: Vec::new(), aside: None }
    }

    /// Keeps the edges that lead nowhere from now on, and returns those that were kept.
    pub fn aside(&mut self) -> Vec<G::Edge> {
        self.aside.replace(Vec::new()).unwrap_or_default()
    }

    /// Marks a node and all that it leads to. Returns whether the node was not marked before.
    pub fn reach(&mut self, node: usize, control: &Control) -> Result<bool, Stopped> {
        if !self.mark(node) {
            return Ok(false);
        }
        hw::fast_work(Reaching { marks: self, control })?;
        Ok(true)
    }

    /// Marks what the nodes on the stack lead to.
    #[inline(always)]
    fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        // Edges wait in a ring: `followed` of the `met` ones have left it.
        let mut waiting = [0; WAITING];
        let (mut met, mut followed, mut steps) = (0usize, 0usize, 0u32);
        loop {
            if let Some((first, end)) = self.stack.pop() {
                for edge in first.get()..end.get() {
                    if met - followed == WAITING {
                        self.follow(waiting[followed % WAITING]);
                        followed += 1;
                    }
                    self.graph.prefetch(edge);
                    waiting[met % WAITING] = edge;
                    met += 1;
                }
            } else if followed < met {
                self.follow(waiting[followed % WAITING]);
                followed += 1;
            } else {
                return Ok(());
            }
            steps = steps.wrapping_add(1);
            if steps % (1 << 16) == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
    }

    #[inline(always)]
    fn follow(&mut self, edge: usize) {
        if let Some(node) = self.graph.target(edge) {
            self.mark(node);
        } else if let Some(aside) = &mut self.aside {
            aside.push(G::Edge::new(edge));
        }
    }

    /// Returns whether the node with this number is marked.
    pub fn has(&self, number: usize) -> bool {
        self.bits[number / 64] >> (number % 64) & 1 != 0
    }

    #[inline(always)]
    fn mark(&mut self, node: usize) -> bool {
        let number = self.graph.number(node);
        if self.bits[number / 64] >> (number % 64) & 1 != 0 || (self.taken)(number) {
            return false;
        }
        self.bits[number / 64] |= 1 << (number % 64);
        let (first, end) = self.graph.edges(node);
        if first < end {
            self.stack.push((G::Edge::new(first), G::Edge::new(end)));
        }
        true
    }
}
