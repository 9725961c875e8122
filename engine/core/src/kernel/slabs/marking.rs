//! Which objects are held, and by what evidence. An object's evidence is the strongest that there is.
//!
//! [`crate::blocks::queue`] follows the pointers, as it does for the blocks of a process. A state of an object is its mark.

use super::freelists::{state, States};
use super::reserves::Reserves;
use super::sweep::{Pointers, Weak};
use super::table::{Node, Table};
use crate::blocks::queue::{Marked, Queue};
use crate::control::{Control, Stopped};
use crate::hw;

/// Marks all objects that are held.
pub fn mark(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    strong(states, pointers, control)?;
    weak(states, pointers, control)
}

/// Marks what plain pointers hold, then what stacks hold.
pub fn strong(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    for (roots, class) in [(&pointers.roots, state::PLAIN), (&pointers.stacks, state::STACK)] {
        Marker::new(pointers, &[], Held { states: &mut states.of, class }).from(roots.iter(), control)?;
    }
    Ok(())
}

/// Marks what only weak evidence holds.
pub fn weak(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    let evidence = pointers.weak();
    for (number, class) in [state::UNALIGNED, state::PHYSICAL].into_iter().enumerate() {
        let held = Held { states: &mut states.of, class };
        let mut marker = Marker::new(pointers, &evidence[..=number], held);
        for (holder, target) in &evidence[number].edges {
            if is_held(marker.objects().states[*holder as usize]) {
                marker.meet(*target);
            }
        }
        marker.from(evidence[number].roots.iter(), control)?;
    }
    Ok(())
}

/// Marks objects that are known not to be leaks, and what nothing else holds.
pub fn set_aside(states: &mut States, pointers: &Pointers, nodes: &[Node], control: &Control) -> Result<(), Stopped> {
    let held = Held { states: &mut states.of, class: state::SET_ASIDE };
    Marker::new(pointers, &pointers.weak(), held).from(nodes.iter().copied(), control)
}

/// Marks objects that nothing is known to hold and that may be free, because the dump lacks a part of their slab's freelist, or of
/// the lists of their cache; and what only they hold. With `all`, it marks each object that nothing is known to hold.
pub fn unsure(
    table: &Table,
    reserves: &Reserves,
    states: &mut States,
    pointers: &Pointers,
    all: bool,
    control: &Control,
) -> Result<(), Stopped> {
    let mut nodes = Vec::new();
    for (index, slab) in table.slabs.iter().enumerate() {
        let cut = reserves.cut.get(slab.cache as usize).is_some_and(|lists| *lists > 0)
            || states.cut.binary_search(&(index as u32)).is_ok();
        let objects = slab.first..slab.first + u32::from(slab.objects);
        nodes.extend(objects.filter(|node| (all || cut) && states.of[*node as usize] == state::LEAKED));
    }
    let held = Held { states: &mut states.of, class: state::UNSURE };
    Marker::new(pointers, &pointers.weak(), held).from(nodes.into_iter(), control)
}

fn is_held(state: u8) -> bool {
    (state::PLAIN..=state::PHYSICAL).contains(&state)
}

/// Objects that can be marked.
pub(super) trait Objects {
    /// Asks the CPU to load the mark of an object.
    fn load(&self, node: usize);
    /// Marks an object. Returns whether it was not marked before.
    fn mark(&mut self, node: Node) -> bool;
}

/// Objects that are not leaked get this state.
struct Held<'a> {
    states: &'a mut [u8],
    class: u8,
}

impl Objects for Held<'_> {
    #[inline(always)]
    fn load(&self, node: usize) {
        hw::prefetch(self.states, node);
    }

    /// **The decision**: an object that a held object points to is held.
    #[inline(always)]
    fn mark(&mut self, node: Node) -> bool {
        let known = &mut self.states[node as usize];
        let fresh = *known == state::LEAKED;
        if fresh {
            *known = self.class;
        }
        fresh
    }
}

/// A marking in progress.
pub(super) struct Marker<'a, O> {
    pointers: &'a Pointers,
    queue: Queue<u32>,
    reaching: Reaching<'a, O>,
}

/// What is marked, and what the weak evidence of marked objects leads to.
struct Reaching<'a, O> {
    pointers: &'a Pointers,
    weak: &'a [&'a Weak],
    later: Vec<Node>,
    objects: O,
}

impl<O: Objects> Marked<u32> for Reaching<'_, O> {
    #[inline(always)]
    fn load(&self, target: usize) {
        self.objects.load(target);
        hw::prefetch(&self.pointers.starts, target);
    }

    #[inline(always)]
    fn reach(&mut self, target: usize) -> Option<(usize, usize)> {
        let node = target as Node;
        if !self.objects.mark(node) {
            return None;
        }
        for weak in self.weak {
            self.later.extend(weak_targets(weak, node));
        }
        Some(self.pointers.range(node))
    }
}

impl<'a, O: Objects> Marker<'a, O> {
    /// Begins marking. The evidence in `weak` is followed as well.
    pub fn new(pointers: &'a Pointers, weak: &'a [&'a Weak], objects: O) -> Self {
        let reaching = Reaching { pointers, weak, later: Vec::new(), objects };
        Marker { pointers, queue: Queue::default(), reaching }
    }

    /// Takes a pointer to an object. It may be followed later.
    pub fn meet(&mut self, node: Node) {
        self.queue.meet(&mut self.reaching, &self.pointers.targets, node as usize);
    }

    /// Marks the roots, and everything that they and what was met before lead to.
    pub fn from(&mut self, roots: impl Iterator<Item = Node>, control: &Control) -> Result<(), Stopped> {
        roots.for_each(|root| self.meet(root));
        loop {
            self.queue.follow(&mut self.reaching, &self.pointers.targets, control)?;
            if self.reaching.later.is_empty() {
                return Ok(());
            }
            std::mem::take(&mut self.reaching.later).into_iter().for_each(|target| self.meet(target));
        }
    }

    /// Returns what is marked.
    pub fn objects(&self) -> &O {
        &self.reaching.objects
    }

    /// Does the same for what is changed.
    pub fn objects_mut(&mut self) -> &mut O {
        &mut self.reaching.objects
    }
}

/// Returns what an object holds by weak evidence.
fn weak_targets(weak: &Weak, holder: Node) -> impl Iterator<Item = Node> + '_ {
    let from = weak.edges.partition_point(|(other, _)| *other < holder);
    weak.edges[from..].iter().take_while(move |(other, _)| *other == holder).map(|(_, target)| *target)
}
