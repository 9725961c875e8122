//! The heap engine against a slow and obvious model of it, on random heaps; and on damaged ones.

mod damage;
mod lists;
mod made;
mod plain;
mod reference;
mod text;
