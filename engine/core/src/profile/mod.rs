//! Heap profiles: which stacks hold how much.
//!
//! * [`samples`]: adds up the records of a recorder by stack, thread, size and what the heap says of the block.
//! * [`pprof`]: writes and reads the profile.proto of pprof.
//!
//! The stacks of a heap without records come from [`crate::graph::reference`].

pub mod pprof;
pub mod samples;
