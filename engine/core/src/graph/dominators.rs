//! The dominator tree: semi-NCA (Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005), over vertices in
//! preorder.
//!
//! A block dominates another if every path from vertex 0 to the other passes through it: the other dies with it. What a block dominates
//! is what it keeps alive alone.

use super::too_many;
use crate::control::{Control, Stopped};
use crate::hw;

/// How many edges ahead the CPU is asked to load what they need: the vertex that an edge comes from, the one above that,
/// and the one above that again.
const AHEAD: [usize; 3] = [48, 32, 16];

/// Steps up the tree, for each vertex on average. More of them, and long ways get short cuts.
const STEPS: usize = 8;
/// How many edges ahead the CPU is asked to load the counts of the vertices that they lead to.
const NEXT: usize = 16;

/// The edges that are not in the search's tree, by the vertex that they lead to.
pub struct Others {
    first: Vec<u32>,
    from: Vec<u32>,
}

impl Others {
    /// Sorts the edges (to, from) by `to`, by counting: a comparison sort takes several times as long. `vertices` is how
    /// many there are.
    pub fn new(vertices: usize, pairs: Vec<(u32, u32)>) -> Result<Others, Stopped> {
        if pairs.len() >= u32::MAX as usize {
            return Err(too_many());
        }
        // After the sums, `first[v + 1]` is where the edges of `v` begin. Placing them moves it to where they end.
        let mut first = vec![0u32; vertices + 2];
        hw::huge_pages(&first);
        for (at, &(to, _)) in pairs.iter().enumerate() {
            if let Some(next) = pairs.get(at + NEXT) {
                hw::prefetch(&first, next.0 as usize + 2);
            }
            first[to as usize + 2] += 1;
        }
        let mut sum = 0;
        for slot in &mut first {
            sum += *slot;
            *slot = sum;
        }
        let mut from = vec![0u32; pairs.len()];
        hw::huge_pages(&from);
        for (at, &(to, origin)) in pairs.iter().enumerate() {
            if let Some(next) = pairs.get(at + 2 * NEXT) {
                hw::prefetch(&first, next.0 as usize + 1);
            }
            if let Some(next) = pairs.get(at + NEXT) {
                hw::prefetch(&from, first[next.0 as usize + 1] as usize);
            }
            let place = &mut first[to as usize + 1];
            from[*place as usize] = origin;
            *place += 1;
        }
        first.truncate(vertices + 1);
        Ok(Others { first, from })
    }

    /// Returns the vertices that lead to `vertex`, besides its parent.
    #[inline(always)]
    pub fn of(&self, vertex: u32) -> &[u32] {
        &self.from[self.first[vertex as usize] as usize..self.first[vertex as usize + 1] as usize]
    }
}

/// The work of [`immediate`].
pub struct Dominating<'a> {
    /// The vertex that each was reached from.
    pub parents: &'a [u32],
    /// The other edges.
    pub others: &'a Others,
    /// Ends the work.
    pub control: &'a Control,
}

impl hw::Work for Dominating<'_> {
    type Out = Result<Vec<u32>, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        immediate(self.parents, self.others, self.control)
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
        let mut least = parents[vertex as usize];
        for at in others.first[vertex as usize] as usize..others.first[vertex as usize + 1] as usize {
            forest.load(&others.from[..at], vertex);
            least = least.min(forest.least_above(others.from[at], vertex));
        }
        semi[vertex as usize] = least;
        forest.links[vertex as usize].least = least;
    }
    drop(forest);
    // The dominators take the place of the semidominators, from the top down.
    let mut dominators = semi;
    let mut cuts: Option<ShortCuts> = None;
    let mut steps = 0;
    for vertex in 1..count {
        let (mut dominator, most) = (parents[vertex], dominators[vertex]);
        if let Some(cuts) = &mut cuts {
            dominator = cuts.up_to(&dominators, dominator, most);
            cuts.add(dominator);
        } else {
            while dominator > most {
                dominator = dominators[dominator as usize];
                steps += 1;
            }
        }
        dominators[vertex] = dominator;
        if cuts.is_none() && steps > STEPS * count {
            cuts = Some(ShortCuts::new(&dominators[..=vertex], count));
        }
        if vertex % (1 << 20) == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
    }
    Ok(dominators)
}

/// For each vertex that has a dominator: one further up the tree, so that any way up takes a logarithm of its length
/// (Myers, "An Applicative Random-Access Stack", 1983).
///
/// Most trees are flat, and need none. In a queue each node dominates the next: with an index beside it, the way from each
/// message to the top is as long as the queue.
struct ShortCuts {
    jumps: Vec<u32>,
    depths: Vec<u32>,
}

impl ShortCuts {
    /// Begins with the vertices whose dominators are known. `count` is how many there will be.
    fn new(dominators: &[u32], count: usize) -> ShortCuts {
        let mut cuts = ShortCuts { jumps: Vec::with_capacity(count), depths: Vec::with_capacity(count) };
        cuts.jumps.push(0);
        cuts.depths.push(0);
        dominators[1..].iter().for_each(|&dominator| cuts.add(dominator));
        cuts
    }

    /// Adds the next vertex.
    fn add(&mut self, dominator: u32) {
        let jump = self.jumps[dominator as usize];
        let further = self.jumps[jump as usize];
        let depth = |vertex: u32| self.depths[vertex as usize];
        let (near, far) = (depth(dominator) - depth(jump), depth(jump) - depth(further));
        self.jumps.push(if near == far { further } else { dominator });
        self.depths.push(self.depths[dominator as usize] + 1);
    }

    /// Returns the first vertex from `vertex` up that is no greater than `most`.
    fn up_to(&self, dominators: &[u32], mut vertex: u32, most: u32) -> u32 {
        while vertex > most {
            let jump = self.jumps[vertex as usize];
            vertex = if jump > most { jump } else { dominators[vertex as usize] };
        }
        vertex
    }
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
        let mut links = Vec::with_capacity(parents.len());
        hw::huge_pages(links.spare_capacity_mut());
        links.extend(parents.iter().enumerate().map(link));
        Forest { links, path: Vec::new() }
    }

    /// Loads what the last of the edges will ask for, which vertices up to `last` have.
    #[inline(always)]
    fn load(&self, edges: &[u32], last: u32) {
        let ahead = |edges: &[u32], by: usize| edges.len().checked_sub(by).map(|at| edges[at]);
        let [first, second, third] = AHEAD;
        if let Some(from) = ahead(edges, first) {
            hw::prefetch(&self.links, from as usize);
        }
        if let Some(from) = ahead(edges, second).filter(|&from| from > last) {
            hw::prefetch(&self.links, self.links[from as usize].above as usize);
        }
        if let Some(from) = ahead(edges, third).filter(|&from| from > last) {
            let above = self.links[from as usize].above;
            hw::prefetch(&self.links, self.links[above as usize].above as usize);
        }
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
