//! Counts of what is frequent among very many different things, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;

use crate::keys::Keys;

/// Things that are counted at once.
const MOST: usize = 1 << 20;

/// Counts. Where too many different things come, the rarest so far are forgotten (lossy counting, Manku and Motwani
/// 2002): a count is then too low by less than what was forgotten of it.
pub(super) struct Tally<K> {
    counts: HashMap<K, u64, Keys>,
    most: usize,
}

impl<K: Eq + Hash> Default for Tally<K> {
    fn default() -> Self {
        Tally::of(MOST)
    }
}

impl<K: Eq + Hash> Tally<K> {
    /// Counts `most` things at once.
    fn of(most: usize) -> Self {
        Tally { counts: HashMap::default(), most }
    }

    /// Counts a thing so many times.
    #[inline(always)]
    pub fn add(&mut self, key: K, count: u64) {
        *self.counts.entry(key).or_default() += count;
        if self.counts.len() >= self.most {
            self.forget(count);
        }
    }

    /// Forgets the rarest half. The least count that any has is about `least`.
    #[inline(never)]
    fn forget(&mut self, mut least: u64) {
        while self.counts.len() > self.most / 2 {
            self.counts.retain(|_, count| *count > least);
            least = least.saturating_mul(2);
        }
    }

    /// Returns the counts, in no order.
    pub fn finish(self) -> Vec<(K, u64)> {
        self.counts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_frequent_is_not_forgotten() {
        let mut tally = Tally::of(64);
        for number in 0..100_000u64 {
            tally.add(1_000_000 + number, 1);
            if number % 4 == 0 {
                tally.add(number % 16, 1);
            }
            assert!(tally.counts.len() < 64);
        }
        let found: HashMap<u64, u64> = tally.finish().into_iter().collect();
        // Four things came 6,250 times each.
        for each in [0, 4, 8, 12] {
            assert!((5000..=6250).contains(&found[&each]), "{found:?}");
        }
    }
}
