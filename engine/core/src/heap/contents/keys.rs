//! Hash functions for tables whose keys a dump chooses.

use std::hash::{BuildHasher, Hasher};

use super::signature::WORDS;

/// Folds 128-bit products, with keys that a dump cannot know.
#[derive(Clone)]
pub struct Keys(u64, u64);

impl Default for Keys {
    fn default() -> Self {
        let random = std::collections::hash_map::RandomState::new();
        Keys(random.hash_one(1u8), random.hash_one(2u8))
    }
}

/// The state of [`Keys`].
pub struct Fold {
    state: u64,
    key: u64,
}

#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Hashes signatures. The products do not wait for each other, as they do in [`Keys`].
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

impl BuildHasher for Keys {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold { state: self.0, key: self.1 }
    }
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.state
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    #[inline(always)]
    fn write_u64(&mut self, value: u64) {
        self.state = folded(self.state ^ value, self.key | 1);
    }
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
