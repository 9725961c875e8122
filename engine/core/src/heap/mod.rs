//! The heaps of glibc and other allocators in a core. The bytes are read in one pass. Later steps use compact tables.
//!
//! * [`runs`]: stretches of memory that hold blocks; [`word_map`] numbers their words.
//! * [`pass`]: reads each run once and keeps which words hold candidate pointers.
//! * [`tcache`]: recognises a tcache by its content.
//! * [`index`]: the tables that the pass fills, and lookups in them.
//! * `region`: 1 KiB of heap in the tables.
//! * [`guide`]: says where the edges of a block are, about.
//! * [`model`]: the heap, as the rest of the engine sees it.
//! * [`mark`]: finds the reachable blocks. **This decides what `findleaks` reports.**
//! * [`root_reader`]: reads the words of roots; `unaligned`: finds pointers at every byte, where that is asked for.
//! * [`leaks`]: splits the unreachable blocks into direct and indirect leaks.
//! * [`holders`]: finds the blocks that are reachable without one given block.
//! * [`contents`]: what the first words of every block hold.
//! * `listing`: lists of blocks with their states.
//! * [`lists`]: follows free lists (tcache, fastbins), whose chunks carry the in-use bit.
//! * [`bins`]: follows and checks the arenas' bins.
//! * `states`: the states of blocks, in address order; `sizes`: how many blocks of each size are in which state.
//! * [`number`]: the width of the numbers that name words.
//! * [`ends`]: words that are the end of a block and the beginning of the next one.
//! * [`find`]: finds runs, arenas and mmapped chunks without symbols.
//! * [`code_words`]: finds pointers in code that the program made at run time.
//! * [`jemalloc`]: reads jemalloc's extents through its own radix tree.
//! * [`musl`]: reads mallocng, the malloc of musl.
//! * [`mimalloc`]: reads the pages of mimalloc.
//! * [`pymalloc`]: reads the pools of CPython.
//! * [`tcmalloc`]: reads the heap of gperftools' tcmalloc through its page map.
//! * `nonzero_words`: reads tables that are mostly zero.
//! * [`slots`]: the blocks of other allocators, as their readers tell them.

pub mod bins;
pub mod cached_reader;
pub mod code_words;
pub mod contents;
pub mod ends;
pub mod find;
pub mod guide;
pub mod holders;
pub mod index;
mod indexed;
pub mod jemalloc;
pub mod leaks;
mod listing;
pub mod lists;
pub mod mark;
mod mark_unaligned;
pub mod mimalloc;
pub mod model;
pub mod musl;
mod nonzero_words;
pub mod number;
pub mod pass;
pub mod pymalloc;
mod region;
pub mod root_reader;
pub mod runs;
mod sizes;
pub mod slot_blocks;
pub mod slots;
pub mod stale_links;
mod states;
pub mod tcache;
pub mod tcmalloc;
mod text;
mod unaligned;
pub mod word_map;

pub use indexed::build;
