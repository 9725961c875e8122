//! Allocation records: who allocated a block, when, and from where. A recorder inside the process kept them.
//!
//! * [`audit`]: reads the tables of dmods' own auditor (audit/format.h).
//! * [`format`]: the offsets of the tables' fields, generated from audit/format.h.
//! * [`blocks`]: the blocks of an allocator that dmods cannot walk, from records alone.
//! * [`redzones`]: compares what a recorder wrote behind each block.
//! * [`stacks`]: stacks as a tree of return addresses.
//! * [`log`]: transactions: what happened to blocks, freed ones too.
//! * [`groups`]: records and leaks, added up by stack.
//! * [`by_thread`]: what some threads allocated or freed.
//!
//! Other recorders (a profiling allocator) give their records one by one: [`Records::new`].

pub mod audit;
pub mod blocks;
pub mod by_thread;
mod claims;
pub mod format;
pub mod groups;
pub mod log;
mod record;
pub mod redzones;
pub mod stacks;
mod store;

pub use claims::Claims;
pub use record::Record;
pub use store::Records;
