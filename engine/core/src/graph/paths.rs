//! The shortest path from the roots to a block.
//!
//! Better roots come first: variables of a runtime, then data before stacks, a word to the first byte of a block before one into its middle. Among the
//! roots of one tier, a path through the fewest blocks is found, breadth-first.

use super::edges::Edges;
use super::numbering::{is_start, HeapGraph, Numbering};
use super::parts::{self, VARIABLE};
use super::roots::{each_word, Area, Named, DATA, OWN};
use super::search::Graph;
use super::too_many;
use crate::blocks::index::Tables;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// Blocks whose edges are looked up together. Meanwhile the CPU loads what the next step needs.
const BATCH: usize = 64;
/// Edges that are followed together, for the same reason.
const EDGES: usize = 256;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A word of memory of the root with this number.
    Memory(u64, u32),
    /// The value with this index.
    Value(usize, u32),
    /// A direct leak.
    Leak,
}

/// Paths that are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Only from this root.
    pub root: Option<u32>,
    /// Paths from the direct leaks instead.
    pub leaked: bool,
    /// Edges that no path takes.
    pub cut: Option<&'a Edges>,
}

/// Returns the origin and the granules of the blocks on the path, the last one `goal`. None: no path leads there.
pub fn shortest<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    named: Named,
    (closed, leaks): (&[usize], &[I]),
    wanted: Wanted,
    goal: usize,
    control: &Control,
) -> Result<Option<(Origin, Vec<usize>)>, Stopped> {
    let numbering = Numbering::new(&tables.regions).ok_or_else(too_many)?;
    let graph = HeapGraph { tables, numbering: &numbering, cut: wanted.cut };
    let from = vec![0; numbering.count()];
    hw::huge_pages(&from);
    let mut spread = Spread { graph: &graph, closed, from, queue: Vec::new(), followed: 0, goal };
    if wanted.leaked {
        for granule in leaks {
            spread.enter(granule.get(), START);
        }
        let path = if spread.run(control)? { spread.path() } else { None };
        return Ok(path.map(|path| (Origin::Leak, path)));
    }
    for tier in 0..=LAST {
        let fits = |target: usize, root: u32, rank: u32| {
            let node = tables.chunk_of_word(target).filter(|_| wanted.root.is_none_or(|only| only == root))?;
            (tier_of(rank, is_start::<P>(target, node)) == tier).then_some(node)
        };
        let of_part = |area: &Area, target: usize| {
            let node = tables.chunk_of_word(target).filter(|_| wanted.root.is_none_or(|only| only == area.root))?;
            let own = if area.rank <= VARIABLE { 0 } else { tier_of(area.rank, true) };
            (own == tier).then_some(node)
        };
        parts::each(tables, image, named, |area, _, target| {
            if let Some(node) = of_part(area, target) {
                spread.enter(node, START);
            }
            Ok(())
        })?;
        for word in named.values {
            let target = tables.word_map.word_of(word.value);
            if let Some(node) = target.and_then(|target| fits(target, word.root, word.rank)) {
                spread.enter(node, START);
            }
        }
        each_word(tables, image, named, control, |_address, target, root, rank| {
            if let Some(node) = fits(target, root, rank) {
                spread.enter(node, START);
            }
            Ok(())
        })?;
        if !spread.run(control)? {
            continue;
        }
        let Some(path) = spread.path() else { return Ok(None) };
        // Roots may lead to a hundred million blocks, and only one of their words is asked for: it is searched for again.
        for (index, word) in named.values.iter().enumerate() {
            let target = tables.word_map.word_of(word.value);
            if target.and_then(|target| fits(target, word.root, word.rank)) == Some(path[0]) {
                return Ok(Some((Origin::Value(index, word.root), path)));
            }
        }
        let mut origin = None;
        parts::each(tables, image, named, |area, address, target| {
            if origin.is_none() && of_part(area, target) == Some(path[0]) {
                origin = Some(Origin::Memory(address, area.root));
            }
            Ok(())
        })?;
        each_word(tables, image, named, control, |address, target, root, rank| {
            if origin.is_none() && fits(target, root, rank) == Some(path[0]) {
                origin = Some(Origin::Memory(address, root));
            }
            Ok(())
        })?;
        return Ok(origin.map(|origin| (origin, path)));
    }
    Ok(None)
}

/// The last tier.
const LAST: u32 = 4;

/// Returns the tier of a word. A runtime's variables have tier 0. Those of the allocator are the last: they say nothing of the program.
fn tier_of(rank: u32, start: bool) -> u32 {
    match (rank, start) {
        (DATA, true) => 1,
        (DATA, false) => 2,
        (OWN, _) => LAST,
        _ => 3,
    }
}

/// In `Spread::from`: a root leads here.
const START: u32 = u32::MAX;

/// A breadth-first search.
struct Spread<'a, I: Index, const P: usize> {
    graph: &'a HeapGraph<'a, I, P>,
    closed: &'a [usize],
    /// For each number: 1 + the place in the queue of the block that it was reached from, START, or 0 if it was not.
    from: Vec<u32>,
    /// The blocks in the order in which they were reached. The edges of the first `followed` ones were followed.
    queue: Vec<I>,
    followed: usize,
    goal: usize,
}

impl<I: Index, const P: usize> Spread<'_, I, P> {
    #[inline(always)]
    fn enter(&mut self, node: usize, from: u32) {
        let number = self.graph.number(node);
        if self.from[number] != 0 || self.graph.tables.is_free(node) || self.closed.binary_search(&node).is_ok() {
            return;
        }
        self.from[number] = from;
        self.queue.push(I::new(node));
    }

    /// Spreads from what was entered. Returns whether it reached the goal.
    fn run(&mut self, control: &Control) -> Result<bool, Stopped> {
        let goal = self.graph.number(self.goal);
        hw::fast_work(Spreading { spread: self, goal, control })?;
        Ok(self.from[goal] != 0)
    }

    /// Returns the blocks from the first one, to which a root leads, to the goal.
    fn path(&self) -> Option<Vec<usize>> {
        let mut path = vec![self.goal];
        loop {
            let first = *path.last()?;
            match self.from[self.graph.number(first)] {
                0 => return None,
                START => {
                    path.reverse();
                    return Some(path);
                }
                from => path.push(self.queue.get(from as usize - 1)?.get()),
            }
        }
    }
}

/// The search from what was entered on, as work that is inlined. Blocks are taken in the order in which they were reached.
struct Spreading<'s, 'a, I: Index, const P: usize> {
    spread: &'s mut Spread<'a, I, P>,
    goal: usize,
    control: &'s Control,
}

impl<I: Index, const P: usize> hw::Work for Spreading<'_, '_, I, P> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Spreading { spread, goal, control } = self;
        let graph = spread.graph;
        let (mut lists, mut ahead, mut batches) = (Vec::with_capacity(BATCH), Ahead::default(), 0);
        while spread.followed < spread.queue.len() && spread.from[goal] == 0 {
            let batch = spread.followed..spread.queue.len().min(spread.followed + BATCH);
            spread.followed = batch.end;
            for node in &spread.queue[batch.clone()] {
                graph.load(node.get());
            }
            for (place, node) in batch.clone().zip(&spread.queue[batch]) {
                let (first, end) = graph.edges(node.get());
                graph.load_edges(first, end);
                lists.push((first, end, place as u32 + 1));
            }
            for (first, end, from) in lists.drain(..) {
                for edge in first..end {
                    graph.prefetch(edge);
                    ahead.edges.push((edge, from));
                    if ahead.edges.len() == EDGES {
                        ahead.follow(spread);
                    }
                }
            }
            ahead.follow(spread);
            batches += 1;
            if batches % (1 << 10) == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(())
    }
}

/// What the CPU loads while other edges are looked at.
#[derive(Default)]
struct Ahead {
    /// Edges, each with the block that it belongs to: see [`Spread::from`].
    edges: Vec<(usize, u32)>,
    /// The blocks that they lead to.
    nodes: Vec<(usize, u32)>,
}

impl Ahead {
    /// Enters the blocks to which the edges lead, in their order.
    #[inline(always)]
    fn follow<I: Index, const P: usize>(&mut self, spread: &mut Spread<I, P>) {
        for (edge, from) in self.edges.drain(..) {
            if let Some(node) = spread.graph.target(edge) {
                hw::prefetch(&spread.from, spread.graph.number(node));
                self.nodes.push((node, from));
            }
        }
        for (node, from) in self.nodes.drain(..) {
            spread.enter(node, from);
        }
    }
}
