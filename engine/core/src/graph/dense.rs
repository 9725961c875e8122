//! The graph as one list of numbers: each node, and behind it the nodes that it leads to.
//!
//! A search in the heap's tables waits for memory three times at each block: for the edges, for the target's region, and for
//! whether the target was reached. Here a node stands beside its edges, and is named by its place.

use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;
use std::marker::PhantomData;

/// A graph whose edges lie side by side.
pub trait Graph {
    /// The width of the numbers that name edges.
    type Edge: Index;
    /// Returns how many numbers there are.
    fn count(&self) -> usize;
    /// Returns the number of a node.
    fn number(&self, node: usize) -> usize;
    /// Returns the range of a node's edges.
    fn edges(&self, node: usize) -> (usize, usize);
    /// Returns the node that an edge leads to, or None where it leads nowhere.
    fn target(&self, edge: usize) -> Option<usize>;
    /// Calls `each` with every number and the range of its node's edges, by number, until it returns false. A node that no search
    /// enters has none.
    fn each(&self, each: impl FnMut(usize, usize, usize) -> bool);
    /// Asks the CPU to load what `target` needs.
    fn prefetch(&self, _edge: usize) {}
}

/// Where an edge leads that leads nowhere.
pub const NOWHERE: usize = 0;
/// What is said of a node that has no edges, before a search reaches it.
pub const LEAF: u32 = u32::MAX - 1;
/// Edges whose targets are being looked up.
const WAITING: usize = 16;
/// Edges ahead whose targets' regions are loaded.
const AHEAD: usize = 24;
/// Nodes between two looks at [`Control`].
const CHECK: usize = 1 << 16;

/// The list. `W` is the width of a place.
pub struct Dense<W: Index> {
    /// For each node, at its place: what the search says of it, then its edges. The last edge has the bit [`Dense::LAST`]. Of a
    /// node without edges, [`LEAF`] is said: half of the blocks may be such.
    pub words: Vec<W>,
    /// The places of the nodes, by number.
    places: Vec<W>,
}

/// The work of [`Dense::new`].
pub(super) struct Building<'a, G: Graph, W: Index> {
    pub graph: &'a G,
    pub placed: Placed<W>,
    pub closed: u32,
    pub control: &'a Control,
}

/// Where the nodes of a graph stand in its list.
pub struct Placed<W: Index> {
    /// The places of the nodes, by number.
    places: Vec<W>,
    /// How many words the list takes.
    size: usize,
}

impl<W: Index> Placed<W> {
    /// Places the nodes. None: `W` is too narrow for the list of this graph.
    pub fn new<G: Graph>(graph: &G) -> Option<Self> {
        hw::fast_work(Placing { graph, width: PhantomData })
    }
}

/// The work of [`Placed::new`].
struct Placing<'a, G: Graph, W: Index> {
    graph: &'a G,
    width: PhantomData<W>,
}

impl<G: Graph, W: Index> hw::Work for Placing<'_, G, W> {
    type Out = Option<Placed<W>>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let graph = self.graph;
        let mut places = Vec::with_capacity(graph.count());
        hw::huge_pages(places.spare_capacity_mut());
        let mut size = 1;
        graph.each(|_, first, end| {
            // A place that does not fit is not used: the list is refused below.
            places.push(if size < Dense::<W>::LAST { W::new(size) } else { W::default() });
            size += 1 + (end - first);
            true
        });
        (size < Dense::<W>::LAST).then_some(Placed { places, size })
    }
}

impl<G: Graph, W: Index> hw::Work for Building<'_, G, W> {
    type Out = Result<Dense<W>, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        Dense::new::<G, FAST>(self.graph, self.placed, self.closed, self.control)
    }
}

impl<W: Index> Dense<W> {
    /// Tells the last edge of a node.
    pub const LAST: usize = (W::LIMIT / 2 + 1) as usize;

    /// Makes the list. What stands at a node's place is 0 or [`LEAF`], and at [`NOWHERE`] it is `closed`. The nodes have been placed.
    #[inline(always)]
    fn new<G: Graph, const FAST: bool>(
        graph: &G,
        placed: Placed<W>,
        closed: u32,
        control: &Control,
    ) -> Result<Self, Stopped> {
        let Placed { places, size } = placed;
        let mut words = vec![W::default(); size];
        hw::huge_pages(&words);
        words[NOWHERE] = W::new(closed as usize);
        // The last edges: where each stands, the number of its target, and the bit. The oldest is at `nth % WAITING`.
        let mut waiting = [(0, 0, 0); WAITING];
        let (mut nth, mut stopped) = (0usize, false);
        let settle = |words: &mut [W], (at, target, last): (usize, usize, usize)| {
            words[at] = W::new(places[target].get() | last);
        };
        graph.each(|number, first, end| {
            let place = places[number].get() + 1;
            if first == end {
                words[place - 1] = W::new(LEAF as usize);
            }
            for edge in first..end {
                graph.prefetch(edge + AHEAD);
                let (at, last) = (place + (edge - first), if edge + 1 == end { Self::LAST } else { 0 });
                let Some(node) = graph.target(edge) else {
                    words[at] = W::new(last);
                    continue;
                };
                let target = graph.number(node);
                hw::prefetch(&places, target);
                let oldest = std::mem::replace(&mut waiting[nth % WAITING], (at, target, last));
                if nth >= WAITING {
                    settle(&mut words, oldest);
                }
                nth += 1;
            }
            stopped = number % CHECK == 0 && control.cancelled();
            !stopped
        });
        if stopped {
            return Err(Stopped::Cancelled);
        }
        (nth.saturating_sub(WAITING)..nth).for_each(|each| settle(&mut words, waiting[each % WAITING]));
        Ok(Dense { words, places })
    }

    /// Returns the place of the node with this number.
    #[inline(always)]
    pub fn place(&self, number: usize) -> usize {
        self.places[number].get()
    }

    /// Returns what the search says of the node at a place: 0 if it was not reached.
    #[inline(always)]
    pub fn said(&self, place: usize) -> u32 {
        reached(self.words[place].get() as u32)
    }

    /// Returns what the search says of each node, by number. The places make room for that.
    pub fn into_said(self) -> Vec<u32> {
        let Dense { words, places } = self;
        places.into_iter().map(|place| reached(words[place.get()].get() as u32)).collect()
    }
}

#[inline(always)]
fn reached(said: u32) -> u32 {
    if said == LEAF {
        0
    } else {
        said
    }
}
