//! The engine of dmods: what must be fast and must survive hostile input.
//!
//! Every number that comes out of a dump is a lie until checked; nothing here panics, loops or allocates without a
//! bound because of one. This crate knows nothing of Python.

pub mod disassemble;
pub mod heap;
pub mod hw;
pub mod image;
pub mod kernel;
pub mod records;
pub mod symbols;
pub mod tcb;
pub mod unwind;
