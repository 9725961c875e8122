//! Says where the edges of a block are, about, without a look at its region.
//!
//! The edges of a block are found through its region: two loads, one after the other. The number of the first edge grows
//! with the address, so a coarse table that stays in the cache tells it to within a few edges.

use super::number::Index;
use super::runs::REGION;
use crate::hw;

/// Regions between two entries. The table of a heap of 2 GiB has half a megabyte.
const APART: usize = 16;
/// How far from the guess the edges are loaded too.
const AROUND: usize = 5;

/// The number of the first edge of every sixteenth region.
#[derive(Debug, Default)]
pub struct Guide<I> {
    first: Vec<I>,
}

impl<I: Index> Guide<I> {
    /// Makes the guide from the number of each region's first edge.
    pub fn new(first: impl Iterator<Item = I>) -> Guide<I> {
        Guide { first: first.step_by(APART).collect() }
    }

    /// Asks the CPU to load the edges of a word's block.
    #[inline(always)]
    pub fn load<const P: usize>(&self, edges: &[I], word: usize) {
        let edge = self.guess::<P>(word);
        hw::prefetch(edges, edge.saturating_sub(AROUND));
        hw::prefetch(edges, edge.wrapping_add(AROUND));
    }

    /// Returns about where the edges of a word's block are. It may be the number of no edge at all.
    #[inline(always)]
    pub fn guess<const P: usize>(&self, word: usize) -> usize {
        let words = APART * REGION * P;
        let entry = word / words;
        let (Some(from), Some(to)) = (self.first.get(entry), self.first.get(entry + 1)) else { return 0 };
        let edges = to.get().wrapping_sub(from.get());
        from.get().wrapping_add(edges.wrapping_mul(word % words) / words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_lies_between_the_entries() {
        let guide = Guide::new((0..100).map(|i| i * 7u32));
        for word in 0..96 * REGION * 2 {
            let (guess, right) = (guide.guess::<2>(word), word * 7 / (REGION * 2));
            assert!(guess.abs_diff(right) <= 7, "{word}: {guess}, not {right}");
        }
        assert_eq!(guide.guess::<2>(usize::MAX / 2), 0);
    }
}
