//! The hashes of signatures.

use std::hash::BuildHasher;

use super::signature::WORDS;
use crate::keys::{folded, Keys};

/// Hashes signatures. The products do not wait for each other, as those of [`Keys`] do.
pub(super) struct Folds([u64; 2 * WORDS + 8]);

impl Folds {
    /// `keys` is where the secret comes from.
    pub fn new(keys: &Keys) -> Folds {
        Folds(std::array::from_fn(|i| keys.hash_one(i)))
    }

    /// Returns the hash of two numbers, and of those of the words that are in `mask`.
    #[inline(always)]
    pub fn of(&self, number: u64, kinds: u64, words: &[u64; WORDS], mut mask: u8) -> u64 {
        let keys = &self.0;
        let mut all = folded(number ^ keys[2 * WORDS], kinds ^ keys[2 * WORDS + 1]);
        while mask != 0 {
            let i = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            all ^= folded(words[i] ^ keys[2 * i], keys[2 * i + 1] | 1);
        }
        folded(all ^ keys[2 * WORDS + 2], keys[2 * WORDS + 3] | 1)
    }

    /// Returns the hash of three numbers.
    #[inline(always)]
    pub fn of_three(&self, number: u64, others: [u64; 2]) -> u64 {
        let keys = &self.0[2 * WORDS + 4..];
        folded(number ^ keys[0], others[0] ^ keys[1]) ^ folded(others[1] ^ keys[2], keys[3] | 1)
    }
}
