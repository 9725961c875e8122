//! A region: 1 KiB of heap in the tables.

use super::number::{Back, Index};
use super::runs::REGION;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of 1 KiB of heap (64 granules). It has 32 bytes where a word has 8 bytes.
///
/// Each word has one bit: the word holds a candidate pointer. The targets are in the edges, in order. A chunk's size word
/// holds no pointer, so its bit is the chunk's *mark*: the chunk is reachable, or it is free and must not be followed.
/// Several threads may mark blocks at once. Nothing else changes meanwhile.
#[derive(Debug)]
#[repr(C)]
pub struct Region<I: Index, const P: usize> {
    /// Which granules begin a chunk.
    pub start: u64,
    bits: [AtomicU64; P],
    /// The number of the first edge at or after this region's first word.
    pub edge: I,
    back: I::Back,
}

impl<I: Index, const P: usize> Default for Region<I, P> {
    fn default() -> Self {
        Region { start: 0, bits: [const { AtomicU64::new(0) }; P], edge: I::default(), back: Default::default() }
    }
}

impl<I: Index, const P: usize> Clone for Region<I, P> {
    fn clone(&self) -> Self {
        let mut new = Region { start: self.start, edge: self.edge, back: self.back, ..Default::default() };
        for i in 0..P {
            *new.bits_mut(i) = self.bits(i);
        }
        new
    }
}

impl<I: Index, const P: usize> Region<I, P> {
    /// Makes a region where chunks begin at these granules.
    pub fn of_chunks(start: u64) -> Self {
        Region { start, ..Default::default() }
    }

    /// Says to region number `number`, which this is, that the last chunk before it begins at `granule`.
    #[inline(always)]
    pub fn set_back(&mut self, number: usize, granule: usize) {
        self.back = I::Back::new(number, granule);
    }

    /// Returns the last granule before region number `number` that begins a chunk.
    #[inline(always)]
    pub fn chunk_before(regions: &[Self], number: usize) -> usize {
        let at = |region: usize| (regions[region].start, regions[region].back);
        regions[number].back.granule(number, at)
    }

    /// Returns the bits of words `64 * i` to `64 * i + 63`, marks among them.
    #[inline(always)]
    pub fn bits(&self, i: usize) -> u64 {
        // As plain as a load of a u64, to the CPU.
        self.bits[i].load(Ordering::Relaxed)
    }

    /// Returns these bits, to be written.
    #[inline(always)]
    pub fn bits_mut(&mut self, i: usize) -> &mut u64 {
        self.bits[i].get_mut()
    }

    /// Returns which of these words hold candidate pointers.
    #[inline(always)]
    pub fn pointers(&self, i: usize) -> u64 {
        self.bits(i) & !self.size_words(i)
    }

    /// Returns which of these words are the size words of chunks.
    #[inline(always)]
    pub fn size_words(&self, i: usize) -> u64 {
        if P == 2 {
            let half = if i == 0 { self.start as u32 } else { (self.start >> 32) as u32 };
            spread2(half) << 1
        } else {
            spread4((self.start >> (i * 16)) as u16) << 1
        }
    }

    /// Returns how many candidate pointers this region has before its word `word` (0 ..= 64 * P).
    #[inline(always)]
    pub fn rank(&self, word: usize) -> usize {
        let mut count = 0;
        for i in 0..P {
            let from = i * 64;
            if word <= from {
                break;
            }
            let keep = if word - from >= 64 { u64::MAX } else { (1 << (word - from)) - 1 };
            count += (self.pointers(i) & keep).count_ones() as usize;
        }
        count
    }

    /// Returns the word that holds candidate pointer number `place` of this region. There must be as many.
    pub fn pointer(&self, mut place: usize) -> usize {
        for i in 0..P {
            let mut bits = self.pointers(i);
            let count = bits.count_ones() as usize;
            if place < count {
                for _ in 0..place {
                    bits &= bits - 1;
                }
                return i * 64 + bits.trailing_zeros() as usize;
            }
            place -= count;
        }
        REGION * P
    }

    /// Returns whether the chunk that begins at a granule is marked.
    #[inline(always)]
    pub fn marked(&self, granule: usize) -> bool {
        let bit = granule * P + 1;
        self.bits(bit / 64) >> (bit % 64) & 1 != 0
    }

    /// Marks the chunk that begins at a granule.
    #[inline(always)]
    pub fn mark(&mut self, granule: usize) {
        let bit = granule * P + 1;
        *self.bits_mut(bit / 64) |= 1 << (bit % 64);
    }

    /// Marks it while other threads mark blocks. Returns false if it was marked before.
    #[inline(always)]
    pub fn mark_shared(&self, granule: usize) -> bool {
        let bit = granule * P + 1;
        let (word, mask) = (&self.bits[bit / 64], 1 << (bit % 64));
        // The first look is cheap, and most pointers lead to a block that is marked.
        word.load(Ordering::Relaxed) & mask == 0 && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
    }

    /// Returns which granules begin a chunk that is not marked.
    #[inline(always)]
    pub fn unmarked(&self) -> u64 {
        let (mut open, mut any) = ([0; P], 0);
        for (i, open) in open.iter_mut().enumerate() {
            *open = self.size_words(i) & !self.bits(i);
            any |= *open;
        }
        if any == 0 {
            return 0;
        }
        (0..REGION).filter(|g| open[g * P / 64] >> (g * P % 64 + 1) & 1 != 0).fold(0, |mask, g| mask | 1 << g)
    }

    /// Removes the mark of the chunk that begins at a granule.
    #[inline(always)]
    pub fn unmark(&mut self, granule: usize) {
        let bit = granule * P + 1;
        *self.bits_mut(bit / 64) &= !(1 << (bit % 64));
    }
}

/// Moves bit i of `x` to bit 2i.
#[inline(always)]
fn spread2(x: u32) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & 0x5555_5555_5555_5555
}

/// Moves bit i of `x` to bit 4i.
#[inline(always)]
fn spread4(x: u16) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    x = (x | x << 12) & 0x000f_000f_000f_000f;
    x = (x | x << 6) & 0x0303_0303_0303_0303;
    (x | x << 3) & 0x1111_1111_1111_1111
}

#[cfg(test)]
mod tests {
    use super::super::number::Wide;
    use super::*;

    #[test]
    fn spreading_is_the_slow_loop() {
        for x in [0u32, 1, 0x8000_0001, 0xdead_beef, u32::MAX] {
            let slow = (0..32).filter(|i| x >> i & 1 != 0).fold(0u64, |m, i| m | 1 << (2 * i));
            assert_eq!(spread2(x), slow);
            let slow = (0..16).filter(|i| x >> i & 1 != 0).fold(0u64, |m, i| m | 1 << (4 * i));
            assert_eq!(spread4(x as u16), slow);
        }
    }

    #[test]
    fn a_region_is_half_a_cache_line() {
        assert_eq!(std::mem::size_of::<Region<u32, 2>>(), 32);
        assert_eq!(std::mem::size_of::<Region<Wide, 2>>(), 32);
    }
}
