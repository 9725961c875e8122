//! What single allocators need of the engine: how their structures are found and read, and what their own lists say.
//!
//! Each reader makes runs of blocks: see [`crate::blocks`]. What is done with the blocks after that names no allocator.
//!
//! * [`glibc`]: finds runs, arenas and mmapped chunks without symbols; follows free lists and bins.
//! * [`jemalloc`]: reads jemalloc's extents through its own radix tree.
//! * [`mimalloc`]: reads the pages of mimalloc.
//! * [`musl`]: reads mallocng, the malloc of musl.
//! * [`pymalloc`]: reads the pools of CPython.
//! * [`tcmalloc`]: reads the heap of gperftools' tcmalloc through its page map.

pub mod glibc;
pub mod jemalloc;
pub mod mimalloc;
pub mod musl;
pub mod pymalloc;
pub mod tcmalloc;
