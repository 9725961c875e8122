//! Sets of page frames.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

const SECTION_BITS: u32 = 12;
const WORDS: usize = (1 << SECTION_BITS) / 64;

/// 8 TiB of pages of 4 KB, in 280 MB. A hostile page table entry of eight bytes can ask for a section.
const MOST_SECTIONS: usize = 1 << 19;

/// A set of page frames.
#[derive(Default)]
pub struct FrameSet {
    sections: HashMap<u64, Box<[u64; WORDS]>, foldhash::fast::FixedState>,
}

impl FrameSet {
    /// Adds a frame. Returns whether it is new, or None where the set is full: then the dump claims too many.
    pub fn insert(&mut self, pfn: u64) -> Option<bool> {
        let room = self.sections.len() < MOST_SECTIONS;
        let section = match self.sections.entry(pfn >> SECTION_BITS) {
            Entry::Occupied(section) => section.into_mut(),
            Entry::Vacant(place) if room => place.insert(Box::new([0; WORDS])),
            Entry::Vacant(_) => return None,
        };
        let bit = pfn as usize % (1 << SECTION_BITS);
        let fresh = section[bit / 64] >> (bit % 64) & 1 == 0;
        section[bit / 64] |= 1 << (bit % 64);
        Some(fresh)
    }

    /// Returns whether the set has no frames.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Returns whether the frame is in the set.
    pub fn contains(&self, pfn: u64) -> bool {
        let bit = pfn as usize % (1 << SECTION_BITS);
        self.sections.get(&(pfn >> SECTION_BITS)).is_some_and(|section| section[bit / 64] >> (bit % 64) & 1 != 0)
    }
}
