//! Notices memory that the page array shows more than once.
//!
//! Honest kernels do that only for the tails of huge pages. Their `struct page`s are all alike, so one page of memory
//! holds them for many (Documentation/mm/vmemmap_dedup.rst: hugetlb and device DAX). Each huge page keeps its own page of
//! memory with the head. Hostile page tables that lead to the same few pages again and again would otherwise cost 2^40
//! pages.

use std::collections::BTreeMap;

/// How many pages of page array there may be for each page that is a huge page's own. A page of 1 GB in pages of 4 KB has
/// 4096, with 64 bytes for each `struct page`. (16 GB in pages of 64 KB has 256.) A `struct page` of 128 bytes makes
/// twice as many.
const MOST_SHARED: u64 = 8192;

/// Bytes of page array that may always be shown again.
const SPARE: u64 = 1 << 28;

/// How many pages other than tails may lie in memory that was shown before. A damaged page array has some.
const MOST_STRANGE: u64 = 1 << 20;

/// How many pieces are kept. 8 TiB of huge pages of 2 MB have this many. Beyond that it is not known what is new.
const MOST_PIECES: usize = 1 << 22;

/// Physical memory that was read as page array.
#[derive(Default)]
pub struct Shared {
    /// Disjoint pieces, start to end.
    pieces: BTreeMap<u64, u64>,
    /// Bytes that were shown for the first time, and again.
    fresh: u64,
    again: u64,
    strange: u64,
}

impl Shared {
    /// Notes that `[start, end)` is shown. Returns how many of its bytes are new.
    pub fn show(&mut self, start: u64, end: u64) -> u64 {
        let mut fresh = end.saturating_sub(start);
        let (mut from, mut to) = (start, end);
        if let Some((before, until)) = self.pieces.range(..start).next_back().map(|(a, b)| (*a, *b)) {
            if until >= start {
                fresh -= until.min(end) - start;
                (from, to) = (before, until.max(end));
            }
        }
        while let Some((inside, until)) = self.pieces.range(start..=end).next().map(|(a, b)| (*a, *b)) {
            fresh -= until.min(end) - inside;
            to = to.max(until);
            self.pieces.remove(&inside);
        }
        if self.pieces.len() < MOST_PIECES || from < start {
            self.pieces.insert(from, to);
        }
        self.fresh += fresh;
        self.again += end.saturating_sub(start) - fresh;
        fresh
    }

    /// Notes pages that are not tails and lie in memory that was shown before.
    pub fn strange(&mut self, pages: u64) {
        self.strange += pages;
    }

    /// Returns whether no kernel makes such a page array.
    pub fn is_a_lie(&self) -> bool {
        self.strange > MOST_STRANGE || self.again > self.fresh.saturating_mul(MOST_SHARED).saturating_add(SPARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_is_shown_again() {
        let mut shared = Shared::default();
        let said = [(0x1000, 0x2000), (0x3000, 0x4000), (0x1800, 0x3800), (0, 0x5000), (0x2000, 0x3000)]
            .map(|(start, end)| shared.show(start, end));
        assert_eq!(said, [0x1000, 0x1000, 0x1000, 0x2000, 0]);
        assert_eq!(shared.pieces, BTreeMap::from([(0, 0x5000)]));
        assert_eq!((shared.fresh, shared.again), (0x5000, 0x1000 + 0x3000 + 0x1000));
    }

    #[test]
    fn neighbours_are_one_piece_in_either_order() {
        let mut shared = Shared::default();
        for page in [3, 1, 2, 4, 0] {
            assert_eq!(shared.show(page << 12, (page + 1) << 12), 1 << 12);
        }
        assert_eq!(shared.pieces.len(), 1);
    }
}
