//! The lists of glibc's malloc, and how its memory is found.
//!
//! * [`find`]: finds arenas, stretches of the main arena and mmapped chunks by their shape.
//! * [`lists`]: follows free lists (tcache, fastbins), whose chunks carry the in-use bit.
//! * [`bins`]: follows and checks the arenas' bins.

pub mod bins;
pub mod find;
pub mod lists;
