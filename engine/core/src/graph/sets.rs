//! The sets of roots that lead to each vertex.
//!
//! What a vertex dominates is reached by the roots that reach the vertex. So only the top of the dominator tree needs a set: the vertices
//! that vertex 0 dominates directly. Among those, the members of a cycle have one set (Tarjan's strongly connected components). A
//! set is the union of the sets before it.

use super::dominators::Others;
use crate::control::{Control, Stopped};
use std::collections::{BTreeSet, HashMap};

/// The most roots in a set that is listed.
pub const MOST_ROOTS: usize = 64;
/// The most sets.
pub const MOST_SETS: usize = 1 << 16;
/// Unions that are remembered.
const MOST_UNIONS: usize = 1 << 20;
/// The set without members.
const EMPTY: u32 = 0;
/// Stands for every set that is too large, or that came after too many others.
pub const MANY: u32 = 1;

/// The sets of roots, each once.
pub struct Sets {
    /// The members of each set, sorted. Those of [`MANY`] are not known.
    pub members: Vec<Vec<u32>>,
    /// All roots of the sets that are [`MANY`].
    pub many: BTreeSet<u32>,
    /// Which sets are in `many`.
    in_many: Vec<bool>,
    by_members: HashMap<Vec<u32>, u32>,
    unions: HashMap<(u32, u32), u32>,
}

impl Default for Sets {
    fn default() -> Self {
        Sets {
            members: vec![Vec::new(), Vec::new()],
            many: BTreeSet::new(),
            in_many: Vec::new(),
            by_members: HashMap::new(),
            unions: HashMap::new(),
        }
    }
}

impl Sets {
    /// Returns the set with one member.
    pub fn single(&mut self, root: u32) -> u32 {
        self.intern(vec![root])
    }

    fn intern(&mut self, members: Vec<u32>) -> u32 {
        if let Some(&set) = self.by_members.get(&members) {
            return set;
        }
        // A single root always has a set: there are no more of them than roots.
        if members.len() > MOST_ROOTS || (members.len() > 1 && self.members.len() >= MOST_SETS) {
            return MANY;
        }
        let set = self.members.len() as u32;
        self.members.push(members.clone());
        self.by_members.insert(members, set);
        set
    }

    fn add_to_many(&mut self, set: u32) {
        let set = set as usize;
        if self.in_many.len() <= set {
            self.in_many.resize(set + 1, false);
        }
        if !std::mem::replace(&mut self.in_many[set], true) {
            self.many.extend(&self.members[set]);
        }
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        let (a, b) = (a.min(b), a.max(b));
        if a == b || a == EMPTY {
            return b;
        }
        if a == MANY {
            self.add_to_many(b);
            return MANY;
        }
        if let Some(&set) = self.unions.get(&(a, b)) {
            return set;
        }
        let mut members = self.members[a as usize].clone();
        members.extend_from_slice(&self.members[b as usize]);
        members.sort_unstable();
        members.dedup();
        let set = self.intern(members);
        if set == MANY {
            self.add_to_many(a);
            self.add_to_many(b);
        }
        if self.unions.len() < MOST_UNIONS {
            self.unions.insert((a, b), set);
        }
        set
    }
}

/// The top of the dominator tree, with what leads to it.
struct Top<'a> {
    /// The vertices that vertex 0 dominates directly, in order.
    vertices: Vec<u32>,
    /// For each vertex: which of those dominates it.
    above: Vec<u32>,
    parents: &'a [u32],
    others: &'a Others,
}

impl Top<'_> {
    /// Returns the `nth` vertex of the top that leads to number `top`. None after the last.
    #[inline(always)]
    fn before(&self, top: u32, nth: u32) -> Option<u32> {
        let vertex = self.vertices[top as usize];
        let from = match nth {
            0 => self.parents[vertex as usize],
            _ => *self.others.of(vertex).get(nth as usize - 1)?,
        };
        Some(if from == 0 { top } else { self.above[from as usize] })
    }
}

/// Returns the sets, and the set of each vertex. `roots` are (vertex, root), by vertex.
pub fn of_vertices(
    dominators: &[u32],
    parents: &[u32],
    others: &Others,
    roots: &[(u32, u32)],
    control: &Control,
) -> Result<(Sets, Vec<u32>), Stopped> {
    let mut sets = Sets::default();
    let mut top = Top { vertices: Vec::new(), above: vec![0; dominators.len()], parents, others };
    for (vertex, &dominator) in dominators.iter().enumerate().skip(1) {
        top.above[vertex] = if dominator == 0 {
            top.vertices.push(vertex as u32);
            top.vertices.len() as u32 - 1
        } else {
            top.above[dominator as usize]
        };
    }
    let mut found = vec![EMPTY; top.vertices.len()];
    let mut next = roots.iter().peekable();
    for (index, &vertex) in top.vertices.iter().enumerate() {
        if let Some(&(_, root)) = next.next_if(|(at, _)| *at == vertex) {
            found[index] = sets.single(root);
        }
    }
    components(&top, &mut sets, &mut found, control)?;
    let Top { mut above, .. } = top;
    for slot in &mut above[1..] {
        *slot = found[*slot as usize];
    }
    Ok((sets, above))
}

/// Tarjan's algorithm along the edges backward: a component is complete when everything that leads to it is.
fn components(top: &Top, sets: &mut Sets, found: &mut [u32], control: &Control) -> Result<(), Stopped> {
    const DONE: u32 = u32::MAX;
    let count = top.vertices.len();
    let mut low = vec![0u32; count]; // 0: not entered
    let (mut open, mut calls): (Vec<u32>, Vec<(u32, u32, u32)>) = (Vec::new(), Vec::new());
    let (mut clock, mut steps) = (0, 0u64);
    for start in 0..count as u32 {
        if low[start as usize] != 0 {
            continue;
        }
        let mut enter = Some(start);
        loop {
            if let Some(vertex) = enter.take() {
                clock += 1;
                low[vertex as usize] = clock;
                open.push(vertex);
                calls.push((vertex, 0, clock));
            }
            let Some((vertex, nth, entered)) = calls.last_mut() else { break };
            steps += 1;
            if steps % (1 << 16) == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if let Some(before) = top.before(*vertex, *nth) {
                *nth += 1;
                match low[before as usize] {
                    0 => enter = Some(before),
                    DONE => {}
                    other => low[*vertex as usize] = low[*vertex as usize].min(other),
                }
                continue;
            }
            let (vertex, entered) = (*vertex, *entered);
            calls.pop();
            let least = low[vertex as usize];
            if let Some((caller, ..)) = calls.last() {
                low[*caller as usize] = low[*caller as usize].min(least);
            }
            if least == entered {
                let from = open.iter().rposition(|&each| each == vertex).unwrap_or(0);
                let mut set = EMPTY;
                for &member in &open[from..] {
                    set = sets.union(set, found[member as usize]);
                    let mut nth = 0;
                    while let Some(before) = top.before(member, nth) {
                        // Within the component, nothing is known yet or it is this set's own.
                        set = sets.union(set, found[before as usize]);
                        nth += 1;
                    }
                }
                for &member in &open[from..] {
                    low[member as usize] = DONE;
                    found[member as usize] = set;
                }
                open.truncate(from);
            }
        }
    }
    Ok(())
}
