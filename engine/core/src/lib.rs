//! The engine of dmods: the parts that must be fast and must survive hostile input.
//!
//! Every number in a dump may be wrong. The engine checks each one, so that no dump makes it panic, hang, or take memory
//! without a bound. This crate does not use Python.

#![warn(missing_docs)]

pub mod allocators;
pub mod blocks;
pub mod cached_reader;
pub mod contents;
pub mod control;
pub mod direct_leaks;
pub mod disassemble;
pub mod dwarf;
pub mod golang;
pub mod graph;
pub mod hw;
pub mod image;
pub mod kernel;
pub mod keys;
pub mod lines;
pub mod live;
pub mod names;
pub(crate) mod nonzero_words;
pub mod profile;
pub mod python;
pub mod records;
pub mod red_zone;
pub mod search;
pub mod sole_symbols;
pub mod symbols;
pub mod tcb;
pub mod touched;
pub mod typed;
pub mod unpack;
pub mod unwind;
pub(crate) mod words;

pub use control::{Control, Stopped};
