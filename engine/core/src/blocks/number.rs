//! The width of the numbers that name words of the heap.

use super::runs::REGION;
use crate::hw::HUGE;

/// The width of the numbers that name words of the heap: `u32` for heaps up to 32 GiB, [`Wide`] up to 8 TiB.
pub trait Index: Copy + Default + Send + Sync + bytemuck::Pod + std::fmt::Debug {
    /// What a region says of the chunk before it.
    type Back: Back;
    /// Makes the number.
    fn new(value: usize) -> Self;
    /// Returns the number.
    fn get(self) -> usize;
    /// How many words can be named.
    const LIMIT: u64;
    /// A list of so many numbers ends where a huge page does, if it begins where one does.
    const APART: usize;
}

/// Where the last chunk before a region begins.
pub trait Back: Copy + Default + Send + Sync + std::fmt::Debug {
    /// Says to region number `region` that the last chunk before it begins at `granule`.
    fn new(region: usize, granule: usize) -> Self;
    /// Returns that granule to region number `region`. `at` says of a region which of its granules begin a chunk, and where
    /// the last chunk before it begins.
    fn granule(self, region: usize, at: impl Fn(usize) -> (u64, Self)) -> usize;
}

/// A number of 40 bits. With it a region has 32 bytes, as with numbers of 32 bits.
pub type Wide = [u8; 5];

/// How many regions before this one the last chunk begins. It may be fewer: then the region there says how many more.
pub type Steps = [u8; 3];

/// The most steps at once: 16 GiB.
const MOST_STEPS: usize = (1 << 24) - 1;

macro_rules! of_machine {
    ($number:ty) => {
        impl Index for $number {
            type Back = $number;
            #[inline(always)]
            fn new(value: usize) -> $number {
                value as $number
            }
            #[inline(always)]
            fn get(self) -> usize {
                self as usize
            }
            const LIMIT: u64 = <$number>::MAX as u64;
            const APART: usize = HUGE / std::mem::size_of::<$number>();
        }

        impl Back for $number {
            #[inline(always)]
            fn new(_region: usize, granule: usize) -> $number {
                granule as $number
            }
            #[inline(always)]
            fn granule(self, _region: usize, _at: impl Fn(usize) -> (u64, Self)) -> usize {
                self as usize
            }
        }
    };
}

of_machine!(u32);
of_machine!(u64);

impl Index for Wide {
    type Back = Steps;
    #[inline(always)]
    fn new(value: usize) -> Wide {
        let [a, b, c, d, e, ..] = (value as u64).to_le_bytes();
        [a, b, c, d, e]
    }
    #[inline(always)]
    fn get(self) -> usize {
        let [a, b, c, d, e] = self;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) as usize
    }
    const LIMIT: u64 = (1 << 40) - 1;
    const APART: usize = HUGE; // five huge pages
}

impl Back for Steps {
    #[inline(always)]
    fn new(region: usize, granule: usize) -> Steps {
        let steps = (region - granule / REGION).min(MOST_STEPS);
        let [a, b, c, _] = (steps as u32).to_le_bytes();
        [a, b, c]
    }
    #[inline(always)]
    fn granule(self, mut region: usize, at: impl Fn(usize) -> (u64, Self)) -> usize {
        let mut back = self;
        loop {
            let steps = u32::from_le_bytes([back[0], back[1], back[2], 0]) as usize;
            if steps == 0 {
                // The first region of a run. No chunk begins before it.
                return region * REGION;
            }
            region -= steps;
            let (starts, before) = at(region);
            if starts != 0 {
                return region * REGION + (REGION - 1 - starts.leading_zeros() as usize);
            }
            back = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_number_keeps_all_its_bits() {
        for bit in 0..40 {
            for value in [1usize << bit, (1 << bit) - 1, (1 << bit) | 1] {
                assert_eq!(Wide::new(value).get(), value);
            }
        }
        assert_eq!(Wide::new(Wide::LIMIT as usize).get() as u64, Wide::LIMIT);
    }

    #[test]
    fn steps_that_are_too_many_are_made_one_after_the_other() {
        // A chunk of 80 GiB begins at the last granule of region 7. Nobody writes such a table for a test.
        let first = 7 * REGION + REGION - 1;
        let said = |region: usize| match region {
            0..=7 => (1 << (REGION - 1), Steps::new(region, 0)),
            _ => (0, Steps::new(region, first)),
        };
        for region in [8, 9, MOST_STEPS, MOST_STEPS + 7, MOST_STEPS + 8, 3 * MOST_STEPS, 5 * MOST_STEPS + 100] {
            assert_eq!(said(region).1.granule(region, said), first, "{region}");
        }
        // Behind damage a run may begin without a chunk.
        assert_eq!(Steps::new(9, 9 * REGION).granule(9, |_| (0, Steps::default())), 9 * REGION);
        assert_eq!(Steps::new(12, 9 * REGION).granule(12, |_| (0, Steps::default())), 9 * REGION);
    }
}
