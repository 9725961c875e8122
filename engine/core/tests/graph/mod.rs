//! Compares owners with slow and obvious models, and with an independent implementation.

mod large;
mod leading;
mod made;
mod owners;
mod small;
