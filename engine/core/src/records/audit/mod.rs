//! Reads the tables of dmods' auditor (audit/format.h).
//!
//! * [`layout`]: where things lie in them.
//! * [`read`]: reads them from a process that may have died at any moment.

pub mod layout;
mod read;

pub use layout::{Bits, Clock, Layout, Ring, Shadow, Table};
pub use read::{read, Damage};
