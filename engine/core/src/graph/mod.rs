//! What the blocks of a heap are, and what changed between two heaps.
//!
//! * [`kinds`]: merges the signatures of blocks into kinds: types by their vtables, and shapes.
//! * [`stream`]: all blocks in use of a heap, in address order.
//! * [`sums`]: counts the blocks of each kind.
//! * [`growth`]: compares the blocks of several cores of one process.

pub mod growth;
pub mod kinds;
pub mod stream;
pub mod sums;
