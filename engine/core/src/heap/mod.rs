//! Heaps out of a core: glibc's, and what other allocators have: one pass over the bytes, then everything on compact metadata.
//!
//! * [`space`]: where the runs lie, and the compact numbering of their words.
//! * [`pass`]: reads each run once and keeps which words hold candidate pointers.
//! * [`pass::walk`]: follows the chunks meanwhile, and finds them again behind damage.
//! * [`watch`]: tells a tcache by its content.
//! * [`index`]: the tables that the pass fills, and questions to them (which block, how large, free or not).
//! * [`mark`]: which blocks are reachable. **Here `findleaks` decides.**
//! * [`leaks`]: the unreachable ones: direct and indirect, and what each direct one keeps alive.
//! * [`lists`]: free lists (tcache, fastbins), whose chunks carry the in-use bit.
//! * [`bins`]: the arenas' bins, followed and judged.
//! * [`find`]: how runs, arenas and mmapped chunks are found without symbols.
//! * [`jemalloc`]: jemalloc's extents, by its own radix tree.

pub mod bins;
pub mod find;
pub mod index;
pub mod jemalloc;
pub mod leaks;
pub mod lists;
pub mod mark;
pub mod model;
pub mod pass;
pub mod space;
mod text;
pub mod watch;
pub mod window;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a long computation is watched and stopped from outside.
#[derive(Debug, Default)]
pub struct Control {
    cancel: AtomicBool,
    done: AtomicU64,
}

impl Control {
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
    /// Bytes gone through so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Stopped {
    /// Through [`Control::cancel`].
    Cancelled,
    /// No address space for the tables.
    NoMemory(std::io::Error),
}

/// Width of the numbers that name words of the heap: `u32` for heaps up to 32 GiB, `u64` beyond.
pub trait Index: Copy + Default + Send + Sync + bytemuck::Pod + std::fmt::Debug {
    fn new(value: usize) -> Self;
    fn get(self) -> usize;
    /// How many words can be named.
    const LIMIT: u64;
}

impl Index for u32 {
    #[inline(always)]
    fn new(value: usize) -> u32 {
        value as u32
    }
    #[inline(always)]
    fn get(self) -> usize {
        self as usize
    }
    const LIMIT: u64 = u32::MAX as u64;
}

impl Index for u64 {
    #[inline(always)]
    fn new(value: usize) -> u64 {
        value as u64
    }
    #[inline(always)]
    fn get(self) -> usize {
        self as usize
    }
    const LIMIT: u64 = u64::MAX;
}

/// A buffer that is used again and again becomes as large as it ever needs to be, and no larger.
pub(crate) fn at_least(buffer: &mut Vec<u8>, size: usize) {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}
