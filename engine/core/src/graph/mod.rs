//! What the pointers and the contents of a heap say, and what changed between heaps.
//!
//! Who keeps which block alive:
//!
//! * [`numbering`]: dense numbers for the blocks of the heap's tables.
//! * [`dense`]: the graph as one list of numbers, for the search.
//! * [`edges`]: sets of edges.
//! * [`search`]: depth-first search, which numbers what it reaches in preorder.
//! * [`dominators`]: the dominator tree (semi-NCA) and retained sizes.
//! * [`sets`]: which roots lead to what no single root dominates.
//! * [`weak`]: the roots on stacks that nothing else makes needless.
//! * [`sources`]: the blocks in use that have pointers.
//! * [`regular`]: which pointers belong to the structures, and which are left over (`fields`, `kinds_of_targets`); `set_aside`: those that are not followed.
//! * `odd`: pointers that the structure of their block does not have (`links`, `shapes`, `structures`, `families`); `waves`: what
//!   is not regular is followed by how good the evidence is.
//! * [`roots`]: the roots, with names and ranks; [`tiers`]: the search from them, the strongest first.
//! * [`parts`]: words in blocks that are roots, or own nothing: the variables of a language runtime.
//! * [`owners`]: the owners of a heap, made from all these; [`owned_heap`]: a heap with them, for questions.
//! * [`leading`]: what the words of blocks lead to.
//! * [`reference`]: the stacks of holders, added up by kind.
//! * [`paths`]: shortest paths from the roots.
//!
//! What the blocks are, and what grew:
//!
//! * [`kinds`]: merges the signatures of blocks into kinds: types by their vtables, and shapes.
//! * [`labels`]: finds the blocks whose holders say what they are; [`named`]: a census with these names.
//! * [`asked`]: objects that were asked for with just their size.
//! * [`by_stack`]: the type that a stack always makes.
//! * [`retained`]: what the blocks of each kind keep alive, and the kinds that an owner holds.
//! * [`stream`]: all blocks in use of a heap, in address order.
//! * [`sums`]: counts the blocks of each kind; [`sampled`]: some direct leaks of each kind.
//! * [`growth`]: compares the blocks of several cores of one process; `growth_rows`: what it adds up.
//! * [`in_place`]: the blocks of two cores that stayed where they were and hold other content.

pub mod asked;
pub mod by_stack;
pub mod dense;
pub mod dominators;
pub mod edges;
mod extents;
mod families;
mod fields;
pub mod growth;
mod growth_rows;
pub mod in_place;
mod judged;
pub mod kinds;
mod kinds_of_targets;
pub mod labels;
pub mod leading;
mod links;
pub mod named;
pub mod numbering;
mod odd;
mod offsets;
pub mod owned_heap;
pub mod owners;
pub mod parts;
pub mod paths;
pub mod reference;
pub mod regular;
pub mod retained;
pub mod roots;
pub mod sampled;
pub mod search;
mod set_aside;
pub mod sets;
mod shapes;
pub mod sources;
mod sparse;
pub mod stream;
mod structures;
pub mod sums;
mod tally;
mod tiers;
mod waves;
pub mod weak;

use crate::control::Stopped;

/// Returns the error for a heap with more blocks or pointers than 32-bit numbers can name.
pub(crate) fn too_many() -> Stopped {
    Stopped::NoMemory(std::io::ErrorKind::OutOfMemory.into())
}
