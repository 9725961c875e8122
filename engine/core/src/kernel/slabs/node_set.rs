//! Sets of objects.

use super::freelists::no_memory;
use super::table::Node;
use crate::control::Stopped;

/// A set of nodes, a bit each.
#[derive(Debug, Default)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// Makes an empty set.
    pub fn new(nodes: u64) -> Result<NodeSet, Stopped> {
        let mut words = Vec::new();
        let count = nodes.div_ceil(64) as usize;
        words.try_reserve_exact(count).map_err(|_| no_memory())?;
        words.resize(count, 0);
        Ok(NodeSet(words))
    }
    /// Removes all nodes.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }
    /// Adds a node.
    #[inline(always)]
    pub fn add(&mut self, node: Node) {
        self.0[node as usize / 64] |= 1 << (node % 64);
    }
    /// Returns whether a node is in the set.
    #[inline(always)]
    pub fn has(&self, node: Node) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 != 0
    }
    /// Returns the nodes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Node> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as Node * 64 + bit)
            })
        })
    }
}
