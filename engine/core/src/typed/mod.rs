//! The types of blocks, from debug information.
//!
//! * [`blocks`]: what is said of each block, with its evidence.
//! * [`build`]: the passes.
//! * `propagate`, `follow`: how a type spreads through pointers.
//! * `agree`: which types are the same, and which contain which.
//! * `plan`: the pointers and containers in an object of a type.
//! * `containers`, `nodes`, `walk`: the containers of libstdc++ and libc++.
//! * `rust`, `rust_walk`: those of Rust's library.
//! * `rust_states`, `rust_states_walk`: its values that are not always there.
//! * `unsized_tails`, `concrete`: Rust's records that end in a trait object or a slice.
//! * `judge`, `unions`: what is less certain.
//! * `counted`: arrays whose holder says how many elements they have.
//! * `parts`: objects that do not fill their blocks.
//! * [`pools`]: blocks that hold many objects.
//! * `families`, `family`, `prefixes`, `tags`: structs that begin alike, and the member that tells which one an object is.
//! * `candidates`, `structure`, `texts`: the last passes.
//! * `content`, `untold`: objects to which only untyped pointers lead.
//! * `leads`: what pointers prove.
//! * `leaked`, `likeness`, `rivals`: leaked blocks that look like live objects.
//! * `sample`: some leaked blocks of a large heap; `reach`: which blocks the passes look at; [`sampled_groups`]: the types of
//!   groups, from a sample.
//! * `vtables`: classes by vtables.
//! * `maps`: maps with a fast hash.
//! * [`count`]: the blocks of each type.
//! * [`names`]: names of fields.

mod agree;
pub mod blocks;
pub mod build;
mod candidates;
mod concrete;
mod containers;
mod content;
pub mod count;
mod counted;
mod families;
mod family;
mod follow;
mod judge;
mod leads;
mod leaked;
mod likeness;
mod maps;
pub mod names;
mod nodes;
mod owned;
mod parts;
mod plan;
pub mod pools;
mod prefixes;
mod propagate;
mod reach;
mod rivals;
mod rust;
mod rust_states;
mod rust_states_walk;
mod rust_walk;
mod sample;
pub mod sampled_groups;
mod structure;
mod tags;
mod texts;
mod unions;
mod unsized_tails;
mod untold;
mod vtables;
mod walk;
