//! The blocks of a heap, whichever allocator they are of. The bytes are read in one pass. Later steps use compact tables.
//!
//! * [`runs`]: stretches of memory that hold blocks; [`word_map`] numbers their words.
//! * [`slots`]: blocks without headers, as the readers of allocators tell them; [`slot_blocks`] finds one of them;
//!   [`stale_links`]: the links that free ones left behind.
//! * [`pass`]: reads each run once and keeps which words hold candidate pointers.
//! * [`tcache`]: recognises a tcache by its content.
//! * [`index`]: the tables that the pass fills, and lookups in them.
//! * `region`: 1 KiB of heap in the tables.
//! * [`guide`]: says where the edges of a block are, about.
//! * [`model`]: the heap, as the rest of the engine sees it; `build` makes it; [`widths`]: what works on its tables.
//! * [`mark`]: finds the reachable blocks. **This decides what `findleaks` reports.**
//! * [`queue`]: the work queue of every marking, that of a kernel's objects too.
//! * `together`: several threads follow one queue.
//! * [`marking`]: marking from the roots of a heap, step by step.
//! * [`root_reader`]: reads the words of roots; `odd`: finds pointers at every byte, or with a tag, where that is asked
//!   for.
//! * [`leaks`]: splits the unreachable blocks into direct and indirect leaks.
//! * [`holders`]: finds the blocks that are reachable without one given block.
//! * [`pointers`]: finds the words of memory that point to given places.
//! * `listing`: lists of blocks with their states.
//! * [`states`]: the states of blocks, in address order; `sizes`: how many blocks of each size are in which state.
//! * [`number`]: the width of the numbers that name words.
//! * [`ends`]: words that are the end of a block and the beginning of the next one; `string_room`: words behind the text of
//!   a string.

mod build;
pub mod ends;
pub mod guide;
pub mod holders;
pub mod index;
pub mod leaks;
mod listing;
pub mod mark;
mod mark_odd;
pub mod marking;
pub mod model;
pub mod number;
pub mod odd;
pub mod pass;
pub mod pointers;
pub mod queue;
mod region;
pub mod root_reader;
pub mod runs;
mod sizes;
pub mod slot_blocks;
pub mod slots;
pub mod stale_links;
pub mod states;
mod string_room;
pub mod tcache;
mod text;
mod together;
pub mod widths;
pub mod word_map;

pub use build::{build, build_so, Way};
