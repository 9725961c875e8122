//! The width of the numbers that name words of the heap.

/// The width of the numbers that name words of the heap: `u32` for heaps up to 32 GiB, `u64` beyond.
pub trait Index: Copy + Default + Send + Sync + bytemuck::Pod + std::fmt::Debug {
    /// Makes the number.
    fn new(value: usize) -> Self;
    /// Returns the number.
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
