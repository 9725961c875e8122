//! The objects that nothing holds: which are leaked directly, and what each of those keeps alive. [`crate::direct_leaks`] has the method.

use super::freelists::{state, States};
use super::marking::weak_targets;
use super::node_set::NodeSet;
use super::sweep::Pointers;
use super::table::{Node, Table};
use crate::control::{Control, Stopped};
use crate::direct_leaks::{self, Leaked, Visited};

/// A direct leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The object.
    pub node: Node,
    /// How many other objects it keeps alive.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// All leaks.
#[derive(Debug, Default)]
pub struct Leaks {
    /// Every leaked object, sorted.
    pub all: Vec<Node>,
    /// The direct ones, sorted.
    pub direct: Vec<Direct>,
    /// The bytes of all leaked objects.
    pub bytes: u64,
}

/// Finds the leaks. Call it when marking is complete.
pub fn find(table: &Table, states: &States, pointers: &Pointers, control: &Control) -> Result<Leaks, Stopped> {
    let leaked = states.of.iter().enumerate().filter(|(_, state)| **state == state::LEAKED);
    let all: Vec<Node> = leaked.map(|(node, _)| node as Node).collect();
    let mut walk = Walk { table, states, pointers, seen: NodeSet::new(table.nodes)?, todo: Vec::new() };
    let mut direct = Vec::new();
    let (_, bytes) = direct_leaks::find(&mut walk, all.iter().copied(), control, |node, found| {
        direct.push(Direct { node, kept: found.kept, kept_bytes: found.kept_bytes });
    })?;
    direct.reverse();
    Ok(Leaks { all, direct, bytes })
}

struct Walk<'a> {
    table: &'a Table,
    states: &'a States,
    pointers: &'a Pointers,
    seen: NodeSet,
    todo: Vec<Node>,
}

impl Leaked for Walk<'_> {
    type Node = Node;

    fn is_visited(&self, node: Node) -> bool {
        self.seen.has(node)
    }

    fn visit(&mut self, first: Node, control: &Control) -> Result<Visited, Stopped> {
        let (mut count, mut bytes) = (0, 0);
        self.reach(first);
        let pointers = self.pointers;
        while let Some(node) = self.todo.pop() {
            count += 1;
            bytes += self.table.describe(node).1;
            for target in pointers.of(node) {
                self.reach(*target);
            }
            for weak in [&pointers.unaligned, &pointers.physical] {
                for target in weak_targets(weak, node) {
                    self.reach(target);
                }
            }
            if count % (1 << 16) == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        let own = self.table.describe(first).1;
        Ok(Visited { own, kept: count - 1, kept_bytes: bytes - own })
    }

    fn forget(&mut self) {
        self.seen.clear();
    }
}

impl Walk<'_> {
    fn reach(&mut self, node: Node) {
        if self.states.of[node as usize] == state::LEAKED && !self.seen.has(node) {
            self.seen.add(node);
            self.todo.push(node);
        }
    }
}
