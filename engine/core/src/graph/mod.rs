//! What the pointers of a heap say: who keeps which block alive.
//!
//! * [`numbering`]: dense numbers for the blocks of the heap's tables.
//! * [`search`]: depth-first search, which numbers what it reaches in preorder.
//! * [`dominators`]: the dominator tree (semi-NCA) and retained sizes.
//! * [`sets`]: which roots lead to what no single root dominates.
//! * [`weak`]: the roots on stacks that nothing else makes needless.
//! * [`owners`]: the owners of a heap, made from all these; and the questions about them.
//! * [`paths`]: shortest paths from the roots.

pub mod dominators;
pub mod numbering;
pub mod owners;
pub mod paths;
pub mod search;
pub mod sets;
pub mod weak;

use crate::control::Stopped;

/// Returns the error for a heap with more blocks or pointers than 32-bit numbers can name.
pub(crate) fn too_many() -> Stopped {
    Stopped::NoMemory(std::io::ErrorKind::OutOfMemory.into())
}
