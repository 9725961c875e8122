//! A struct, as it is compared with the words of an object.

use std::rc::Rc;

use super::plan::Plan;
use crate::dwarf::model::Id;

/// A struct with pointers to structs.
pub(super) struct Content {
    pub(super) kind: Id,
    pub(super) size: u64,
    pub(super) plan: Rc<Plan>,
    /// The first words that may hold pointers, and those that hold pointers to structs.
    pub(super) pointers: u64,
    pub(super) to_structs: u64,
}
