//! Compares the heap engine with a slow and obvious model, on random heaps and on damaged ones.

mod census;
mod damage;
mod holders;
mod lists;
mod made;
mod plain;
mod reference;
mod text;
