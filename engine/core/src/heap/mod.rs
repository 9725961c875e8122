//! The heaps of glibc and other allocators in a core. The bytes are read in one pass. Later steps use compact tables.
//!
//! * [`runs`]: stretches of memory that hold blocks; [`word_map`] numbers their words.
//! * [`pass`]: reads each run once and keeps which words hold candidate pointers.
//! * [`tcache`]: recognises a tcache by its content.
//! * [`index`]: the tables that the pass fills, and lookups in them.
//! * [`mark`]: finds the reachable blocks. **This decides what `findleaks` reports.**
//! * [`leaks`]: splits the unreachable blocks into direct and indirect leaks.
//! * [`holders`]: finds the blocks that are reachable without one given block.
//! * [`lists`]: follows free lists (tcache, fastbins), whose chunks carry the in-use bit.
//! * [`bins`]: follows and checks the arenas' bins.
//! * [`number`]: the width of the numbers that name words.
//! * [`find`]: finds runs, arenas and mmapped chunks without symbols.
//! * [`jemalloc`]: reads jemalloc's extents through its own radix tree.

pub mod bins;
pub mod cached_reader;
pub mod find;
pub mod holders;
pub mod index;
pub mod jemalloc;
pub mod leaks;
pub mod lists;
pub mod mark;
pub mod model;
pub mod number;
pub mod pass;
pub mod runs;
pub mod tcache;
mod text;
pub mod word_map;
