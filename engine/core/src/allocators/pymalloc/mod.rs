//! Reads CPython's pymalloc (Objects/obmalloc.c): arenas, pools and their free blocks.
//!
//! An arena is one mapping. It is cut into pools, and a pool into blocks of one size. A pool's header says its size class
//! twice, and its counts must fit its chain of free blocks. An `arena_object` says where an arena lies, how far it is cut
//! into pools, and which pools are free. The array of these objects is found by the pools: each has an index into it.
//!
//! * [`pool`]: reads and proves one pool.
//! * [`search`]: finds the pools, and the arrays of arenas that they belong to.
//! * [`arenas`]: reads all pools of the arenas.

pub mod arenas;
pub mod pool;
pub mod search;

pub use arenas::{read, Arena, Heap, Problem};

/// The sizes that a build of CPython chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of an arena: 1 MiB since 3.10, before 256 KiB.
    pub arena: u64,
    /// Bytes of a pool: 16 KiB since 3.10, before 4 KiB.
    pub pool: u64,
}

/// Bytes of a pool's header.
pub const HEADER: u64 = 48;
/// The step between size classes, and the alignment of blocks.
pub const ALIGNMENT: u64 = 16;
/// How many size classes there are: up to 512 bytes.
pub const CLASSES: u32 = 32;
/// Bytes of an `arena_object`.
pub const ARENA_OBJECT: u64 = 48;
