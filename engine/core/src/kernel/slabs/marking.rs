//! Which objects are held, and by what evidence. An object's evidence is the strongest that there is.

use super::freelists::{state, States};
use super::node_set::NodeSet;
use super::sweep::{Pointers, Weak};
use super::table::Node;
use crate::control::{Control, Stopped};

/// Marks all objects that are held.
pub fn mark(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    strong(states, pointers, control)?;
    weak(states, pointers, control)
}

/// Marks what plain pointers hold, then what stacks hold.
pub fn strong(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    let mut marker = Marker { states, pointers, todo: Vec::new(), weak: Vec::new() };
    marker.from(&pointers.roots, state::PLAIN, control)?;
    marker.from(&pointers.stacks, state::STACK, control)
}

/// Marks what only weak evidence holds.
pub fn weak(states: &mut States, pointers: &Pointers, control: &Control) -> Result<(), Stopped> {
    let mut marker = Marker { states, pointers, todo: Vec::new(), weak: Vec::new() };
    for (class, evidence) in [(state::UNALIGNED, &pointers.unaligned), (state::PHYSICAL, &pointers.physical)] {
        marker.weak.push(evidence);
        for (holder, target) in &evidence.edges {
            if is_held(marker.states.of[*holder as usize]) {
                marker.reach(*target, class);
            }
        }
        marker.from(&evidence.roots, class, control)?;
    }
    Ok(())
}

/// Marks objects that are known not to be leaks, and what nothing else holds.
pub fn set_aside(states: &mut States, pointers: &Pointers, nodes: &[Node], control: &Control) -> Result<(), Stopped> {
    let weak = vec![&pointers.unaligned, &pointers.physical];
    let mut marker = Marker { states, pointers, todo: Vec::new(), weak };
    for node in nodes {
        marker.reach(*node, state::SET_ASIDE);
    }
    marker.follow(state::SET_ASIDE, control)
}

fn is_held(state: u8) -> bool {
    (state::PLAIN..=state::PHYSICAL).contains(&state)
}

struct Marker<'a> {
    states: &'a mut States,
    pointers: &'a Pointers,
    todo: Vec<Node>,
    /// Weak evidence that is followed as well.
    weak: Vec<&'a Weak>,
}

impl Marker<'_> {
    fn from(&mut self, roots: &NodeSet, class: u8, control: &Control) -> Result<(), Stopped> {
        for node in roots.iter() {
            self.reach(node, class);
        }
        self.follow(class, control)
    }

    /// Marks everything that the marked objects lead to.
    fn follow(&mut self, class: u8, control: &Control) -> Result<(), Stopped> {
        let pointers = self.pointers;
        let mut steps = 0u32;
        while let Some(node) = self.todo.pop() {
            for target in pointers.of(node) {
                self.reach(*target, class);
            }
            for index in 0..self.weak.len() {
                for target in weak_targets(self.weak[index], node) {
                    self.reach(target, class);
                }
            }
            steps = steps.wrapping_add(1);
            if steps % (1 << 16) == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn reach(&mut self, node: Node, class: u8) {
        let known = &mut self.states.of[node as usize];
        if *known == state::LEAKED {
            *known = class;
            self.todo.push(node);
        }
    }
}

/// Returns what an object holds by weak evidence.
pub fn weak_targets(weak: &Weak, holder: Node) -> impl Iterator<Item = Node> + '_ {
    let from = weak.edges.partition_point(|(other, _)| *other < holder);
    weak.edges[from..].iter().take_while(move |(other, _)| *other == holder).map(|(_, target)| *target)
}
