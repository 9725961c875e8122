//! Unwinds stacks: from a thread's registers to its frames, in a process that no longer runs.
//!
//! Every frame says how it was found. Tables (CFI) and the kernel's signal frames are believed. A frame pointer chain,
//! the caller of a jump to nowhere, and a signal frame found by a search are only likely: these frames are marked as
//! guesses. No other frames are made.

pub mod arch;
mod cfi;
mod expression;
mod frame;
mod memory;
mod signal;
#[cfg(test)]
mod tests;
mod unwinder;

pub use arch::{Arch, Registers, UNKNOWN};
pub use cfi::Module;
pub use frame::{End, Found, Frame};
pub use unwinder::Unwinder;
