//! The lists of glibc's malloc, and how its memory is found.
//!
//! * [`find`]: finds arenas, stretches of the main arena and mmapped chunks by their shape.
//! * [`shared`]: divides the main arena where another allocator took memory from the program's break, too.
//! * [`lists`]: follows free lists (tcache, fastbins), whose chunks carry the in-use bit.
//! * [`bins`]: follows and checks the arenas' bins.

pub mod bins;
pub mod find;
pub mod lists;
pub mod shared;
