//! The objects that nothing holds: which are leaked directly, and what each of those keeps alive. [`crate::direct_leaks`] has the method.

use super::freelists::{state, States};
use super::marking::{Marker, Objects};
use super::node_set::NodeSet;
use super::sweep::Pointers;
use super::table::{Node, Table};
use crate::control::{Control, Stopped};
use crate::direct_leaks::{self, Leaked, Visited};
use crate::hw;

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
    let weak = pointers.weak();
    let unseen = Unseen { table, states: &states.of, seen: NodeSet::new(table.nodes)?, count: 0, bytes: 0 };
    let mut walk = Walk { table, marker: Marker::new(pointers, &weak, unseen) };
    let mut direct = Vec::new();
    let (_, bytes) = direct_leaks::find(&mut walk, all.iter().copied(), control, |node, found| {
        direct.push(Direct { node, kept: found.kept, kept_bytes: found.kept_bytes });
    })?;
    direct.reverse();
    Ok(Leaks { all, direct, bytes })
}

/// The leaked objects: a visit marks them as seen.
struct Walk<'a> {
    table: &'a Table,
    marker: Marker<'a, Unseen<'a>>,
}

struct Unseen<'a> {
    table: &'a Table,
    states: &'a [u8],
    seen: NodeSet,
    /// Objects seen since the last visit began, and their bytes.
    count: u64,
    bytes: u64,
}

impl Objects for Unseen<'_> {
    #[inline(always)]
    fn load(&self, node: usize) {
        hw::prefetch(self.states, node);
    }

    #[inline(always)]
    fn mark(&mut self, node: Node) -> bool {
        if self.states[node as usize] != state::LEAKED || self.seen.has(node) {
            return false;
        }
        self.seen.add(node);
        self.count += 1;
        self.bytes += self.table.describe(node).1;
        true
    }
}

impl Leaked for Walk<'_> {
    type Node = Node;

    fn is_visited(&self, node: Node) -> bool {
        self.marker.objects().seen.has(node)
    }

    fn visit(&mut self, first: Node, control: &Control) -> Result<Visited, Stopped> {
        let unseen = self.marker.objects_mut();
        (unseen.count, unseen.bytes) = (0, 0);
        self.marker.from(std::iter::once(first), control)?;
        let (own, unseen) = (self.table.describe(first).1, self.marker.objects());
        Ok(Visited { own, kept: unseen.count - 1, kept_bytes: unseen.bytes - own })
    }

    fn forget(&mut self) {
        self.marker.objects_mut().seen.clear();
    }
}
