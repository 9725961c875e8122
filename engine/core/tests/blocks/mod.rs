//! Compares the heap engine with a slow and obvious model, on random heaps and on damaged ones.

mod census;
mod damage;
mod holders;
mod lists;
pub mod made;
mod parts;
pub mod plain;
pub mod reference;
mod strings;
mod text;
mod together;
mod wide;
