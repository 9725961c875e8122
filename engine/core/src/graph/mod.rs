//! What the pointers and the contents of a heap say, and what changed between heaps.
//!
//! Who keeps which block alive:
//!
//! * [`numbering`]: dense numbers for the blocks of the heap's tables.
//! * [`search`]: depth-first search, which numbers what it reaches in preorder.
//! * [`dominators`]: the dominator tree (semi-NCA) and retained sizes.
//! * [`sets`]: which roots lead to what no single root dominates.
//! * [`weak`]: the roots on stacks that nothing else makes needless.
//! * [`owners`]: the owners of a heap, made from all these; and the questions about them.
//! * [`paths`]: shortest paths from the roots.
//!
//! What the blocks are, and what grew:
//!
//! * [`kinds`]: merges the signatures of blocks into kinds: types by their vtables, and shapes.
//! * [`stream`]: all blocks in use of a heap, in address order.
//! * [`sums`]: counts the blocks of each kind.
//! * [`growth`]: compares the blocks of several cores of one process.

pub mod dominators;
pub mod growth;
pub mod kinds;
pub mod numbering;
pub mod owners;
pub mod paths;
pub mod search;
pub mod sets;
pub mod stream;
pub mod sums;
pub mod weak;

use crate::control::Stopped;

/// Returns the error for a heap with more blocks or pointers than 32-bit numbers can name.
pub(crate) fn too_many() -> Stopped {
    Stopped::NoMemory(std::io::ErrorKind::OutOfMemory.into())
}
