//! The stacks of holders: for each block its kind, the kinds of the blocks that alone keep it alive, and the roots.
//!
//! The dominator tree is merged from the roots down. Blocks of one kind below the same stack are one node. A chain of
//! blocks of one kind is one node as well, so that a list of a million elements has one frame. Every block in use that
//! has an owner is counted once.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::owners::Owners;
use super::search::{CLOSED, ROOT};
use crate::blocks::index::{Tables, EVERY};
use crate::blocks::number::Index;

/// Nodes, and pairs of node and size, that are told apart.
const MOST: usize = 200_000;
/// Frames of a stack. What lies deeper is a child of the last one but one, which holds it too.
const DEPTH: u32 = 64;

/// A node: its parent's number plus 1 (0: none), and the number of a kind, or of a set of roots where there is no
/// parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The holder's number plus 1; 0: this is a set of roots.
    pub parent: u32,
    /// The kind or the set.
    pub what: u32,
}

/// Blocks of one size at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node.
    pub node: u32,
    /// Usable bytes of each; `u64::MAX` where sizes are not told apart.
    pub size: u64,
    /// How many blocks.
    pub count: u64,
    /// Usable bytes of all.
    pub bytes: u64,
}

/// The stacks of holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The nodes. A holder comes before what it holds.
    pub nodes: Vec<Node>,
    /// What lies at them.
    pub held: Vec<Held>,
    /// Whether there were too many nodes, so that blocks are counted at their holders.
    pub full: bool,
}

struct Tree {
    nodes: Vec<Node>,
    depths: Vec<u32>,
    known: HashMap<(u32, u32), u32, RandomState>,
    full: bool,
}

impl Tree {
    fn child(&mut self, parent: u32, what: u32) -> u32 {
        if let Some(&known) = self.known.get(&(parent, what)) {
            return known;
        }
        if self.nodes.len() >= MOST && parent != 0 {
            self.full = true;
            return parent - 1;
        }
        let number = self.nodes.len() as u32;
        self.depths.push(if parent == 0 { 0 } else { self.depths[parent as usize - 1] + 1 });
        self.nodes.push(Node { parent, what });
        self.known.insert((parent, what), number);
        number
    }

    /// Returns the node of a block of a kind below the node of its holder.
    fn below(&mut self, holder: u32, kind: u32) -> u32 {
        let node = self.nodes[holder as usize];
        if node.parent != 0 && node.what == kind {
            return holder;
        }
        let parent = if self.depths[holder as usize] >= DEPTH { node.parent } else { holder + 1 };
        self.child(parent, kind)
    }
}

impl Owners {
    /// Returns the stacks of holders. `kind` has the kind of each block in use, by its number in address order.
    pub fn reference<I: Index, const P: usize>(&self, tables: &Tables<I, P>, kind: &dyn Fn(usize) -> u32) -> Reference {
        let mut kinds = vec![(u32::MAX, u64::MAX); self.numbers.len()];
        let mut number = 0;
        for run in 0..tables.word_map.runs.len() {
            tables.each_block(run, EVERY, |block| {
                if !block.free {
                    let vertex = self.vertices[self.numbering.of(&tables.regions, block.granule)];
                    if vertex != 0 && vertex != CLOSED {
                        kinds[vertex as usize] = (kind(number), block.size);
                    }
                    number += 1;
                }
                true
            });
        }
        let mut tree = Tree { nodes: Vec::new(), depths: Vec::new(), known: HashMap::default(), full: false };
        let mut nodes = vec![0u32; self.numbers.len()];
        let mut held: HashMap<(u32, u64), (u64, u64), RandomState> = HashMap::default();
        let mut sizes = true;
        // A dominator has a lower number than what it dominates.
        for vertex in 1..self.numbers.len() {
            if self.numbers[vertex] == ROOT {
                continue;
            }
            let above = self.dominators[vertex] as usize;
            let holder =
                if above == 0 || self.numbers[above] == ROOT { tree.child(0, self.sets[vertex]) } else { nodes[above] };
            let (kind, size) = kinds[vertex];
            let node = tree.below(holder, kind);
            nodes[vertex] = node;
            if size == u64::MAX {
                continue;
            }
            let key = (node, if sizes { size } else { u64::MAX });
            let sum = held.entry(key).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(size));
            if sizes && held.len() > MOST {
                sizes = false;
                let finer = std::mem::take(&mut held);
                for ((node, _), (count, bytes)) in finer {
                    let sum = held.entry((node, u64::MAX)).or_default();
                    *sum = (sum.0 + count, sum.1.saturating_add(bytes));
                }
            }
        }
        let mut held: Vec<Held> =
            held.into_iter().map(|((node, size), (count, bytes))| Held { node, size, count, bytes }).collect();
        held.sort_by_key(|one| (one.node, one.size));
        Reference { nodes: tree.nodes, held, full: tree.full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree { nodes: Vec::new(), depths: Vec::new(), known: HashMap::default(), full: false }
    }

    #[test]
    fn a_chain_of_one_kind_is_one_node() {
        let mut tree = tree();
        let root = tree.child(0, 7);
        let first = tree.below(root, 7);
        assert_ne!(first, root, "a set of roots is no kind");
        assert_eq!(tree.below(first, 7), first);
        let other = tree.below(first, 8);
        assert_ne!(other, first);
        assert_eq!(tree.below(root, 7), first);
    }

    #[test]
    fn depth_is_bounded() {
        let mut tree = tree();
        let mut node = tree.child(0, 0);
        for kind in 0..1000 {
            node = tree.below(node, kind % 2);
        }
        assert!(tree.nodes.len() <= DEPTH as usize + 3);
    }
}
