//! Stacks as a tree: a node is a frame, and its parent the frame that called it.

use super::format;

/// A bit above the address: this is the outermost frame of the record, and the stack goes on.
pub const TRUNCATED: u64 = 1 << format::NODE_TRUNCATED_BIT;
/// A bit that marks an address that is not a return address: a signal interrupted the instruction.
pub const EXACT: u64 = 1 << format::NODE_EXACT_BIT;
const ADDRESS: u64 = TRUNCATED - 1;

/// A frame, and the frame that called it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The address. The bits above it are [`TRUNCATED`] and [`EXACT`].
    pub pc: u64,
    /// The caller's node. 0: no caller.
    pub parent: u32,
}

/// A stack is named by the number of its innermost node. Node 0 means no stack.
#[derive(Debug, Default)]
pub struct Stacks {
    nodes: Vec<Node>,
    /// The most frames of a stack.
    most: usize,
}

/// The frames, innermost first, as (address, whether it is exact), and whether there were more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The frames.
    pub frames: Vec<(u64, bool)>,
    /// Whether there were more.
    pub truncated: bool,
}

impl Stacks {
    /// `nodes[0]` is never used.
    pub fn new(nodes: Vec<Node>, most: usize) -> Stacks {
        Stacks { nodes, most }
    }

    /// Makes the tree from stacks given as lists, innermost frame first. Also returns the key of each. An address may have
    /// [`TRUNCATED`] and [`EXACT`].
    pub fn of_lists<'a>(lists: impl IntoIterator<Item = &'a [u64]>) -> (Stacks, Vec<u32>) {
        let (mut nodes, mut keys, mut most) = (vec![Node::default()], Vec::new(), 0);
        for list in lists {
            let mut parent = 0;
            for pc in list.iter().rev() {
                nodes.push(Node { pc: pc & (ADDRESS | TRUNCATED | EXACT), parent });
                parent = (nodes.len() - 1) as u32;
            }
            most = most.max(list.len());
            keys.push(parent);
        }
        (Stacks { nodes, most }, keys)
    }

    /// Returns the nodes of a stack, innermost first. A parent precedes its child in the table, so no chain can be a
    /// cycle.
    pub fn nodes(&self, key: u32) -> impl Iterator<Item = Node> + '_ {
        let mut next = key;
        let mut left = self.most;
        std::iter::from_fn(move || {
            let node = *self.nodes.get(next as usize).filter(|_| next != 0 && left > 0)?;
            left -= 1;
            next = if node.parent < next { node.parent } else { 0 };
            Some(node)
        })
    }

    /// Returns the stack of a key.
    pub fn stack(&self, key: u32) -> Stack {
        let mut stack = Stack::default();
        for node in self.nodes(key) {
            stack.frames.push((node.pc & ADDRESS, node.pc & EXACT != 0));
            let cut = stack.frames.len() == self.most && node.parent != 0;
            stack.truncated = cut || node.pc & TRUNCATED != 0;
        }
        stack
    }

    /// Returns how many stacks have a key.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether no stack has a key.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() < 2
    }

    /// Returns the key, or 0 where there is no such node.
    pub fn known(&self, key: u64) -> u32 {
        if key < self.nodes.len() as u64 {
            key as u32
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(stack: &Stack) -> Vec<u64> {
        stack.frames.iter().map(|frame| frame.0).collect()
    }

    #[test]
    fn lists_come_back_as_they_were() {
        let (stacks, keys) = Stacks::of_lists([&[1u64, 2, 3][..], &[], &[9, 2, 3, 4]]);
        assert_eq!(addresses(&stacks.stack(keys[0])), [1, 2, 3]);
        assert_eq!(keys[1], 0);
        assert_eq!(addresses(&stacks.stack(keys[2])), [9, 2, 3, 4]);
        assert_eq!(stacks.known(8), 0);
        assert_eq!(stacks.known(7), 7);
    }

    #[test]
    fn circles_and_strangers_end_a_stack() {
        let node = |pc, parent| Node { pc, parent };
        let nodes = vec![node(0, 0), node(1, 0), node(2, 3), node(3, 2), node(4, 77), node(5 | EXACT, 1)];
        let stacks = Stacks::new(nodes, 15);
        assert_eq!(addresses(&stacks.stack(3)), [3, 2]);
        assert_eq!(addresses(&stacks.stack(4)), [4]);
        assert_eq!(stacks.stack(5).frames, [(5, true), (1, false)]);
        assert_eq!(addresses(&stacks.stack(1000)), []);
        assert_eq!(addresses(&stacks.stack(0)), []);
    }

    #[test]
    fn truncation_is_told() {
        let nodes = vec![Node::default(), Node { pc: 1 | TRUNCATED, parent: 0 }, Node { pc: 2, parent: 1 }];
        assert!(Stacks::new(nodes.clone(), 15).stack(2).truncated);
        let cut = Stacks::new(nodes, 1).stack(2);
        assert_eq!((addresses(&cut), cut.truncated), (vec![2], true));
    }
}
