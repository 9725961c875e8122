//! What a signature's blocks have in common, and how many there are in which state.

use super::signature::{Signature, WORDS};

/// The blocks of one signature.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The signature.
    pub signature: Signature,
    /// How many blocks have it.
    pub count: u64,
    /// The words of the first block.
    pub sample: [u64; WORDS],
    /// How many bytes of each word, from its first, are the same in all blocks.
    pub same: [u8; WORDS],
    /// The blocks by their states.
    pub sum: Sum,
}

/// What a block in use is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Live.
    Live,
    /// Leaked, directly or not.
    Leaked,
    /// The allocator's own.
    Own,
}

/// Blocks by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Count and usable bytes of live blocks.
    pub live: (u64, u64),
    /// Of leaked blocks, directly or not.
    pub leaked: (u64, u64),
    /// Of the allocator's own.
    pub own: (u64, u64),
    /// The least and the largest usable size.
    pub sizes: Option<(u64, u64)>,
    /// The block with the lowest address.
    pub first: Option<u64>,
    /// The lowest of those that leaked.
    pub first_leaked: Option<u64>,
}

impl Sum {
    #[inline(always)]
    pub(crate) fn count(&mut self, address: u64, size: u64, part: Part) {
        let leaked = part == Part::Leaked;
        let part = match part {
            Part::Own => &mut self.own,
            Part::Leaked => &mut self.leaked,
            Part::Live => &mut self.live,
        };
        part.0 += 1;
        part.1 = part.1.saturating_add(size);
        self.first.get_or_insert(address);
        if leaked {
            self.first_leaked.get_or_insert(address);
        }
        let (least, most) = self.sizes.unwrap_or((size, size));
        self.sizes = Some((least.min(size), most.max(size)));
    }

    /// Adds the blocks of another sum.
    pub fn add(&mut self, other: &Sum) {
        let parts = [(&mut self.live, other.live), (&mut self.leaked, other.leaked), (&mut self.own, other.own)];
        for (part, more) in parts {
            *part = (part.0 + more.0, part.1.saturating_add(more.1));
        }
        let lower = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        self.first = lower(self.first, other.first);
        self.first_leaked = lower(self.first_leaked, other.first_leaked);
        self.sizes = match (self.sizes, other.sizes) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

impl Entry {
    /// Adds blocks whose words begin with `sample` and have `same` bytes in common.
    pub fn add(&mut self, count: u64, sample: &[u64; WORDS], same: &[u8; WORDS]) {
        self.count += count;
        add_same(&mut self.same, &self.sample, sample, same);
    }
}

/// Adds blocks whose words begin with `other_sample` and have `other_same` bytes in common to `same`, those of `sample`.
pub(super) fn add_same(
    same: &mut [u8; WORDS],
    sample: &[u64; WORDS],
    other_sample: &[u64; WORDS],
    other_same: &[u8; WORDS],
) {
    let mut open = u64::from_le_bytes(*same);
    while open != 0 {
        let i = open.trailing_zeros() as usize / 8;
        open &= !(0xff << (8 * i));
        let common = ((sample[i] ^ other_sample[i]).trailing_zeros() / 8) as u8;
        same[i] = same[i].min(other_same[i]).min(common);
    }
}
