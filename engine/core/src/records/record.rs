//! The record of one block.

/// A live block, as its recorder described it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What malloc returned.
    pub address: u64,
    /// Where the record itself lies. mdb calls it a bufctl.
    pub at: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// A key of the stacks; 0: not known.
    pub stack: u32,
    /// The recorder's number of the thread; 0: not known.
    pub thread: u32,
}
