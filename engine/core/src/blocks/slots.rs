//! Blocks without headers, as the structures of an allocator or a recorder's records tell them: spans of slots of one
//! size, and single blocks.
//!
//! The reader of each allocator makes one. [`Slots::runs`] gives it to the heap.

use super::runs::{Kind, Owner, Run, SLOTS};
use super::word_map::MOST_SLAB;

/// Slots of one size side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first slot.
    pub start: u64,
    /// Bytes of a slot: what the program may use of its block. A multiple of a word.
    pub slot: u64,
    /// How many slots there are.
    pub count: u32,
    /// The first word of its map in [`Slots::maps`].
    pub map: u32,
}

/// One block that has its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// Its first address.
    pub start: u64,
    /// The bytes that the program may use. It may be 0.
    pub size: u64,
    /// The end of what the allocator gave. An address before it is in the block.
    pub end: u64,
}

/// The blocks of one allocator, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots of one size.
    pub spans: Vec<Span>,
    /// The maps of the spans: bit `i` (from the lowest) of a span's words says that slot `i` is free.
    pub maps: Vec<u64>,
    /// Blocks that are in use and have their own size.
    pub singles: Vec<Single>,
}

impl Slots {
    /// Adds a span. `free` says which slots are free.
    pub fn add(&mut self, start: u64, slot: u64, count: u32, free: impl IntoIterator<Item = u64>) {
        let words = count.div_ceil(64) as usize;
        let map = self.maps.len();
        self.maps.extend(free.into_iter().take(words));
        self.maps.resize(map + words, 0);
        // A map beyond 2^32 words is one of 2^38 slots: more than memory holds.
        self.spans.push(Span { start, slot, count, map: map as u32 });
    }

    /// Returns whether slot `index` of the span is free.
    pub fn is_free(&self, span: &Span, index: u32) -> bool {
        let word = self.maps.get(span.map as usize + index as usize / 64);
        word.is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Returns how many blocks are in use.
    pub fn len(&self) -> usize {
        let slots = self.spans.iter().map(|span| (span.count - self.free_of(span)) as usize);
        slots.sum::<usize>() + self.singles.len()
    }

    /// Returns whether no block is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the usable bytes of all slots and single blocks, in use or not.
    pub fn bytes(&self) -> u64 {
        let slots = self.spans.iter().map(|span| span.slot.saturating_mul(u64::from(span.count)));
        slots.chain(self.singles.iter().map(|single| single.size)).fold(0, u64::saturating_add)
    }

    fn free_of(&self, span: &Span) -> u32 {
        (0..span.count).filter(|&index| self.is_free(span, index)).count() as u32
    }

    /// Returns the runs of this owner. `first_map` is added to the numbers of maps.
    ///
    /// A span that is too long for a run becomes several. Where its slots are too large as well, each block in use
    /// becomes a run of its own.
    pub fn runs(&self, owner: Owner, first_map: u32) -> Vec<Run> {
        let mut runs = Vec::with_capacity(self.spans.len() + self.singles.len());
        for span in &self.spans {
            let at = |index: u32| span.start.saturating_add(span.slot.saturating_mul(u64::from(index)));
            // Each part begins with a word of the map.
            let most = (MOST_SLAB / span.slot.max(1)).min(SLOTS as u64) as u32 / 64 * 64;
            if most == 0 {
                let used = (0..span.count).filter(|&index| !self.is_free(span, index));
                runs.extend(used.map(|index| extent(at(index), span.slot, at(index + 1), owner)));
                continue;
            }
            for first in (0..span.count).step_by(most as usize) {
                let (start, end) = (at(first), at((first + most).min(span.count)));
                let map = first_map + span.map + first / 64;
                runs.push(Run { start, end, kind: Kind::Slab, owner, usable: span.slot, map });
            }
        }
        runs.extend(self.singles.iter().map(|single| extent(single.start, single.size, single.end, owner)));
        runs
    }
}

fn extent(start: u64, usable: u64, end: u64, owner: Owner) -> Run {
    Run { start, end, kind: Kind::Extent, owner, usable, map: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_spans_are_cut_and_huge_slots_stand_alone() {
        let mut slots = Slots::default();
        slots.add(0x1000, 16, 3, [0b010]);
        slots.add(0x10_0000, 16, 10_000, [0; 200]);
        slots.add(0x1_0000_0000, 1 << 24, 3, [0b001]);
        slots.singles.push(Single { start: 0x9000, size: 13, end: 0x9010 });
        assert_eq!((slots.len(), slots.maps.len()), (2 + 10_000 + 2 + 1, 1 + 157 + 1));
        assert_eq!(slots.bytes(), 3 * 16 + 160_000 + (3 << 24) + 13);
        let runs = slots.runs(Owner::new(2, 7), 5);
        let said = |run: &Run| (run.start, run.end, run.kind, run.usable, run.map);
        let expected = [
            (0x1000, 0x1030, Kind::Slab, 16, 5),
            (0x10_0000, 0x10_0000 + 8192 * 16, Kind::Slab, 16, 6),
            (0x10_0000 + 8192 * 16, 0x10_0000 + 160_000, Kind::Slab, 16, 6 + 128),
            (0x1_0100_0000, 0x1_0200_0000, Kind::Extent, 1 << 24, 0),
            (0x1_0200_0000, 0x1_0300_0000, Kind::Extent, 1 << 24, 0),
            (0x9000, 0x9010, Kind::Extent, 13, 0),
        ];
        assert_eq!(runs.iter().map(said).collect::<Vec<_>>(), expected);
        assert!(runs.iter().all(|run| run.owner == Owner::new(2, 7)));
    }

    #[test]
    fn lies_do_no_harm() {
        let mut slots = Slots::default();
        slots.add(u64::MAX - 8, u64::MAX, u32::MAX, []);
        slots.maps.clear();
        slots.spans[0].count = 3;
        slots.add(8, 0, 2, []);
        assert_eq!((slots.bytes(), slots.len()), (u64::MAX, 5));
        assert!(slots.runs(Owner::default(), 0).iter().all(|run| run.start <= run.end));
    }
}
