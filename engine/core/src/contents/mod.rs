//! What the first words of every block hold: the *signature* of each block, and how many blocks have it.
//!
//! One pass over the blocks in address order. [`Signature`] says for each of the first words whether it is zero, a number,
//! text or a pointer, and where the pointer leads. A block that begins with a vtable pointer has the signature of that
//! vtable. The pass tells nothing apart that needs the whole heap: `graph::kinds` merges signatures into kinds.
//!
//! * [`signature`]: the signature of a block.
//! * [`brief`]: a signature in three numbers, as most blocks have one; [`packed`]: any signature in few registers.
//! * [`text`]: recognises text in a word.
//! * [`places`]: what a word means that does not point into the heap.
//! * [`targets`]: where the pointers of a block lead.
//! * [`sums`]: what the blocks of one signature have in common, and their states.
//! * [`table`]: the table of signatures; [`counted`]: one on its way into it.
//! * [`pass`]: the pass over a part of the heap; [`census`]: over all of it.
//! * [`folds`]: the hashes of signatures.

mod brief;
mod census;
mod counted;
mod folds;
mod packed;
mod pass;
mod places;
mod signature;
mod sums;
mod table;
mod targets;
mod text;

pub use census::Census;
pub use places::{Place, Section};
pub(crate) use signature::{class_index, CLASSES};
pub use signature::{kind_of, of, size_class, word_kind, Form, Signature, WORDS};
pub use sums::{Entry, Part, Sum};
