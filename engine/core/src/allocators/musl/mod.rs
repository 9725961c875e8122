//! Reads mallocng, the malloc of musl since 1.2.1 (src/malloc/mallocng).
//!
//! * [`layout`]: the sizes of its structures, by the size of a word.
//! * [`find`]: finds its context by shape, and the areas that hold its metas.
//! * [`group`]: a group of slots, and the metas that describe them.
//! * [`slot`]: what the header of a slot says: where the block begins, and its exact size.
//! * [`walk`]: all groups and blocks.
//! * [`sums`]: the blocks as the heap takes them, and figures.

pub mod find;
pub mod group;
pub mod layout;
pub mod slot;
pub mod sums;
#[cfg(test)]
mod tests;
pub mod walk;

pub use find::{find, Context};
pub use group::Group;
pub use layout::Layout;
pub use walk::{walk, Fault, Walked};
