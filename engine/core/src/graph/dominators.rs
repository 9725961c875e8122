//! The dominator tree: semi-NCA (Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005), over vertices in
//! preorder.
//!
//! A block dominates another if every path from vertex 0 to the other passes through it: the other dies with it. What a block dominates
//! is what it keeps alive alone.

use super::too_many;
use crate::control::{Control, Stopped};

/// The edges that are not in the search's tree, by the vertex that they lead to.
pub struct Others {
    first: Vec<u32>,
    from: Vec<u32>,
}

impl Others {
    /// Sorts the edges (to, from) by `to`. `vertices` is how many there are.
    pub fn new(vertices: usize, pairs: Vec<(u32, u32)>) -> Result<Others, Stopped> {
        if pairs.len() >= u32::MAX as usize {
            return Err(too_many());
        }
        let mut first = vec![0u32; vertices + 1];
        for &(to, _) in &pairs {
            first[to as usize] += 1;
        }
        let mut total = 0;
        for slot in &mut first {
            total += *slot;
            *slot = total;
        }
        // Each slot now says where its vertex's edges end. Filling them backward leaves where they begin.
        let mut from = vec![0u32; pairs.len()];
        for &(to, source) in pairs.iter().rev() {
            first[to as usize] -= 1;
            from[first[to as usize] as usize] = source;
        }
        Ok(Others { first, from })
    }

    /// Returns the vertices that lead to `vertex`, besides its parent.
    #[inline(always)]
    pub fn of(&self, vertex: u32) -> &[u32] {
        &self.from[self.first[vertex as usize] as usize..self.first[vertex as usize + 1] as usize]
    }
}

/// Returns the immediate dominator of each vertex. That of vertex 0 is 0.
pub fn immediate(parents: &[u32], others: &Others, control: &Control) -> Result<Vec<u32>, Stopped> {
    let count = parents.len();
    let mut forest = Forest { above: parents.to_vec(), least: (0..count as u32).collect(), path: Vec::new() };
    let mut semi = vec![0u32; count];
    for vertex in (1..count as u32).rev() {
        if vertex % (1 << 20) == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let mut least = parents[vertex as usize];
        for &from in others.of(vertex) {
            least = least.min(forest.least_above(from, vertex));
        }
        semi[vertex as usize] = least;
        forest.least[vertex as usize] = least;
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
    above: Vec<u32>,
    /// The least semidominator on the compressed path. For a vertex that is not in the forest, the vertex itself.
    least: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// Returns the least semidominator on the path from `vertex` up, as far as vertices greater than `last` go.
    #[inline(always)]
    fn least_above(&mut self, vertex: u32, last: u32) -> u32 {
        let mut at = vertex;
        if self.above[at as usize] <= last {
            return self.least[at as usize];
        }
        while self.above[at as usize] > last {
            self.path.push(at);
            at = self.above[at as usize];
        }
        let top = self.above[at as usize];
        let mut least = self.least[at as usize];
        while let Some(below) = self.path.pop() {
            least = least.min(self.least[below as usize]);
            self.least[below as usize] = least;
            self.above[below as usize] = top;
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
