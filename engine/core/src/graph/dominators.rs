//! The dominator tree: semi-NCA (Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005), over vertices in
//! preorder.
//!
//! A block dominates another if every path from vertex 0 to the other passes through it: the other dies with it. What a block dominates
//! is what it keeps alive alone.

use super::too_many;
use crate::control::{Control, Stopped};
use crate::hw;

/// How many edges ahead the CPU is asked to load what they need.
const AHEAD: usize = 16;

/// The edges that are not in the search's tree, by the vertex that they lead to.
pub struct Others {
    first: Vec<u32>,
    from: Vec<u32>,
}

impl Others {
    /// Sorts the edges (to, from) by `to`. `vertices` is how many there are.
    pub fn new(vertices: usize, mut pairs: Vec<(u32, u32)>) -> Result<Others, Stopped> {
        if pairs.len() >= u32::MAX as usize {
            return Err(too_many());
        }
        pairs.sort_unstable_by_key(|pair| pair.0);
        let mut first = vec![0u32; vertices + 1];
        let mut at = 0;
        for (vertex, slot) in first.iter_mut().enumerate() {
            *slot = at as u32;
            while pairs.get(at).is_some_and(|pair| pair.0 as usize == vertex) {
                at += 1;
            }
        }
        let from = pairs.into_iter().map(|(_, from)| from).collect();
        Ok(Others { first, from })
    }

    /// Returns the vertices that lead to `vertex`, besides its parent.
    #[inline(always)]
    pub fn of(&self, vertex: u32) -> &[u32] {
        &self.from[self.first[vertex as usize] as usize..self.first[vertex as usize + 1] as usize]
    }
}

/// Returns the immediate dominator of each vertex. That of vertex 0 is 0.
#[inline(always)]
pub fn immediate(parents: &[u32], others: &Others, control: &Control) -> Result<Vec<u32>, Stopped> {
    let count = parents.len();
    let mut forest = Forest::new(parents);
    let mut semi = vec![0u32; count];
    for vertex in (1..count as u32).rev() {
        if vertex % (1 << 20) == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        // What a vertex before this one will ask for.
        if let Some(&from) = (others.first[vertex as usize] as usize).checked_sub(AHEAD).map(|at| &others.from[at]) {
            hw::prefetch(&forest.links, from as usize);
        }
        let mut least = parents[vertex as usize];
        for &from in others.of(vertex) {
            least = least.min(forest.least_above(from, vertex));
        }
        semi[vertex as usize] = least;
        forest.links[vertex as usize].least = least;
    }
    drop(forest);
    let mut dominators = parents.to_vec();
    for vertex in 1..count {
        let mut dominator = dominators[vertex];
        while dominator > semi[vertex] {
            dominator = dominators[dominator as usize];
        }
        dominators[vertex] = dominator;
    }
    Ok(dominators)
}

/// The vertices whose semidominators are known, as a forest with compressed paths.
struct Forest {
    links: Vec<Link>,
    path: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Link {
    above: u32,
    /// The least semidominator on the compressed path. For a vertex that is not in the forest, the vertex itself.
    least: u32,
}

impl Forest {
    fn new(parents: &[u32]) -> Forest {
        let link = |(least, &above): (usize, &u32)| Link { above, least: least as u32 };
        Forest { links: parents.iter().enumerate().map(link).collect(), path: Vec::new() }
    }

    /// Returns the least semidominator on the path from `vertex` up, as far as vertices greater than `last` go.
    #[inline(always)]
    fn least_above(&mut self, vertex: u32, last: u32) -> u32 {
        let mut at = self.links[vertex as usize];
        let mut below = vertex;
        if at.above <= last {
            return at.least;
        }
        while at.above > last {
            self.path.push(below);
            below = at.above;
            at = self.links[below as usize];
        }
        let (top, mut least) = (at.above, at.least);
        while let Some(below) = self.path.pop() {
            let link = &mut self.links[below as usize];
            least = least.min(link.least);
            *link = Link { above: top, least };
        }
        least
    }
}

/// Adds each vertex's count and bytes to those of its dominator, from the leaves up.
pub fn add_up(dominators: &[u32], counts: &mut [u32], bytes: &mut [u64]) {
    for vertex in (1..dominators.len()).rev() {
        let above = dominators[vertex] as usize;
        counts[above] += counts[vertex];
        bytes[above] += bytes[vertex];
    }
}
