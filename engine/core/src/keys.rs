//! Hash functions for tables whose keys a dump chooses.

use std::hash::{BuildHasher, Hasher};

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

/// Returns the folded product of two numbers.
#[inline(always)]
pub(crate) fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
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
