//! A signature in few registers: the pass makes one for each block, and few of them are new.
//!
//! The kinds of the eight words stand in the bytes of one number. Only pointers have details.

use super::brief::Brief;
use super::folds::Folds;
use super::signature::{class_index, kind_of, of, size_class, word_kind as k, Form, Signature, WORDS};

/// Every byte is 1.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The bits of a word of a signature that hold its detail.
const DETAIL: u64 = (1 << 56) - 1;

/// Returns a number whose byte i is 1 where bit i of `mask` is set, else 0.
#[inline(always)]
pub(super) fn spread(mask: u8) -> u64 {
    // Byte i of the product is the mask. Of it, bit i stays, and is moved to the lowest bit of the byte.
    let bits = u64::from(mask).wrapping_mul(ONES) & 0x8040_2010_0804_0201;
    ((bits + 0x7f7f_7f7f_7f7f_7f7f) >> 7) & ONES
}

/// A signature, and the coarser one that may stand for it: see `coarse` in [`super::signature`].
#[derive(Clone, Copy)]
pub(super) struct Packed {
    /// The kinds of the words, the first in the lowest byte.
    kinds: u64,
    /// The kinds of the coarser signature.
    coarse_kinds: u64,
    /// The details of the words in `detailed`. The others are from an earlier block.
    details: [u64; WORDS],
    /// The words with a detail other than 0.
    pub detailed: u8,
    /// Those of them that keep it in the coarser signature.
    kept: u8,
    /// Whether a word is of a kind that [`Brief`] has not; and whether one is in the coarser signature.
    rich: bool,
    coarse_rich: bool,
    /// What is known.
    pub form: Form,
    /// The least size of the size class.
    pub class: u64,
}

impl Packed {
    pub const EMPTY: Packed = Packed {
        kinds: 0,
        coarse_kinds: 0,
        details: [0; WORDS],
        detailed: 0,
        kept: 0,
        rich: false,
        coarse_rich: false,
        form: Form::Shape,
        class: 0,
    };

    /// Begins anew, for a block of this size.
    #[inline(always)]
    pub fn begin(&mut self, size: u64) {
        (self.kinds, self.coarse_kinds, self.detailed, self.kept) = (0, 0, 0, 0);
        (self.rich, self.coarse_rich) = (false, false);
        (self.form, self.class) = (Form::Shape, size_class(size).0);
    }

    /// Sets the words that are numbers; `large` are those of them from 65,536 on.
    #[inline(always)]
    pub fn set_numbers(&mut self, numbers: u8, large: u8) {
        const { assert!(k::SMALL == 2 && k::NUMBER == 3) };
        let all = spread(numbers);
        self.kinds = all * u64::from(k::SMALL) + spread(large & numbers);
        self.coarse_kinds = all * u64::from(k::NUMBER);
    }

    /// Sets one word.
    #[inline(always)]
    pub fn set(&mut self, i: usize, word: u64) {
        let (kind, detail) = (kind_of(word), word & DETAIL);
        let (coarse, keeps) = match kind {
            k::SMALL | k::SHORT | k::LEFT_OVER => (k::NUMBER, false),
            k::READ_ONLY => (k::DATA, false),
            k::CODE | k::HEAP => (kind, false),
            _ => (kind, true),
        };
        self.rich |= is_rich(kind);
        self.coarse_rich |= is_rich(coarse);
        let at = 8 * i;
        self.kinds = self.kinds & !(0xff << at) | u64::from(kind) << at;
        self.coarse_kinds = self.coarse_kinds & !(0xff << at) | u64::from(coarse) << at;
        // Each word is set once.
        if detail != 0 {
            self.details[i] = detail;
            self.detailed |= 1 << i;
            self.kept |= u8::from(keeps) << i;
        }
    }

    /// Makes it a pointer to a block of the size class `class`, or to none that is in use. The word has not been set.
    #[inline(always)]
    pub fn set_target(&mut self, i: usize, class: Option<u64>) {
        let at = 8 * i;
        match class {
            Some(class) => {
                self.kinds |= u64::from(k::HEAP) << at;
                self.coarse_kinds |= u64::from(k::HEAP) << at;
                self.details[i] = class & DETAIL;
                self.detailed |= u8::from(class & DETAIL != 0) << i;
            }
            None => {
                self.kinds |= u64::from(k::LEFT_OVER) << at;
                self.coarse_kinds |= u64::from(k::NUMBER) << at;
            }
        }
    }

    /// Makes it an object or an exception: only the word that says which counts.
    pub fn set_form(&mut self, form: Form, word: u64) {
        (self.kinds, self.coarse_kinds, self.detailed, self.kept, self.form) = (0, 0, 0, 0, form);
        self.set(0, word);
    }

    /// Puts the coarser signature in its place.
    #[inline(always)]
    pub fn coarsen(&mut self) {
        (self.kinds, self.detailed, self.rich) = (self.coarse_kinds, self.kept, self.coarse_rich);
    }

    /// Returns it in three numbers, where they are enough.
    #[inline(always)]
    pub fn brief(&self) -> Option<Brief> {
        match self.rich || self.form != Form::Shape {
            true => None,
            false => Brief::of_kinds(self.class, self.kinds.to_le_bytes(), |i| self.detail(i)),
        }
    }

    #[inline(always)]
    fn detail(&self, i: usize) -> u64 {
        if self.detailed >> i & 1 != 0 {
            self.details[i]
        } else {
            0
        }
    }

    /// Returns the hash.
    #[inline(always)]
    pub fn hash(&self, folds: &Folds) -> u64 {
        folds.of(self.class ^ (self.form as u64) << 56, self.kinds, &self.details, self.detailed)
    }

    /// Returns the number of the size class.
    #[inline(always)]
    pub fn class_index(&self) -> usize {
        class_index(self.class)
    }

    /// Returns the signature in full.
    pub fn signature(&self) -> Signature {
        let words = std::array::from_fn(|i| of((self.kinds >> (8 * i)) as u8, self.detail(i)));
        Signature { class: self.class, form: self.form, words }
    }
}

/// Returns whether [`Brief`] has no such words.
#[inline(always)]
fn is_rich(kind: u8) -> bool {
    !matches!(kind, k::ZERO | k::LEFT_OVER | k::SMALL | k::NUMBER | k::TEXT | k::HEAP)
}

impl From<&Signature> for Packed {
    fn from(signature: &Signature) -> Packed {
        let mut packed = Packed { class: signature.class, form: signature.form, ..Packed::EMPTY };
        for (i, &word) in signature.words.iter().enumerate() {
            packed.set(i, word);
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::coarse;
    use super::*;
    use crate::keys::Keys;

    fn random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    #[test]
    fn bits_become_bytes() {
        for mask in 0..=u8::MAX {
            let slow = (0..8).filter(|i| mask >> i & 1 != 0).fold(0u64, |all, i| all | 1 << (8 * i));
            assert_eq!(spread(mask), slow);
        }
    }

    #[test]
    fn a_packed_signature_is_the_signature() {
        let (folds, mut x) = (Folds::new(&Keys::default()), 88172645463325252u64);
        let pointer = |kind: u8| matches!(kind, k::CODE | k::TABLE | k::VTABLE | k::HEAP);
        for _ in 0..20_000 {
            let words = std::array::from_fn(|_| {
                let (kind, detail) = ((random(&mut x) % 13) as u8, random(&mut x) % 3);
                of(kind, if pointer(kind) { detail } else { 0 })
            });
            let signature = Signature { class: 24, form: Form::Shape, words };
            let mut packed = Packed::from(&signature);
            assert_eq!(packed.signature(), signature);
            // What earlier blocks left behind does not count.
            let mut other = packed;
            for i in (0..WORDS).filter(|i| packed.detailed >> i & 1 == 0) {
                other.details[i] = random(&mut x);
            }
            assert_eq!(packed.hash(&folds), other.hash(&folds));
            packed.coarsen();
            assert_eq!(packed.signature(), coarse(signature));
            assert_eq!(packed.hash(&folds), Packed::from(&coarse(signature)).hash(&folds));
        }
    }

    #[test]
    fn other_signatures_have_other_hashes() {
        let (folds, mut x) = (Folds::new(&Keys::default()), 88172645463325252u64);
        let mut known = std::collections::HashMap::new();
        for _ in 0..200_000 {
            let words = std::array::from_fn(|_| match random(&mut x) % 4 {
                0 => of(k::HEAP, random(&mut x) % 4 * 16),
                1 => of(k::CODE, random(&mut x) % 4),
                2 => 0,
                _ => of(k::NUMBER, 0),
            });
            let signature = Signature { class: random(&mut x) % 2 * 24, form: Form::Shape, words };
            let before = known.insert(Packed::from(&signature).hash(&folds), signature);
            assert!(before.is_none_or(|before| before == signature));
        }
    }
}
