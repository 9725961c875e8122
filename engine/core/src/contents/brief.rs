//! A signature in three numbers: that of a block whose words are zero, numbers, text or pointers into the heap.
//!
//! Most blocks are such. The masks of their words are the signature, so nothing has to be put together for each word.

use super::folds::Folds;
use super::signature::{class_index, class_of, of, word_kind as k, Form, Signature, WORDS};

/// Bits of [`Brief::masks`] before each mask, and before the number of the size class.
const NUMBERS: u32 = 0;
const LARGE: u32 = 8;
const TEXT: u32 = 16;
const HEAP: u32 = 24;
const LEFT_OVER: u32 = 32;
const CLASS: u32 = 40;
/// The bits of the detail of a word.
const DETAIL: u64 = (1 << 56) - 1;

/// The signature. Bit i of each mask stands for word i. A word that is in no mask is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brief {
    masks: u64,
    /// For each pointer into the heap: the number of the size class of what it points to, in 16 bits.
    targets: [u64; 2],
}

impl Brief {
    pub const EMPTY: Brief = Brief { masks: 0, targets: [0; 2] };

    /// Makes it for a block whose size class has this number. No word points into the heap; `large` are the numbers from
    /// 65,536 on.
    #[inline(always)]
    pub fn new(class: usize, numbers: u8, large: u8, text: u8) -> Brief {
        let masks = u64::from(numbers) << NUMBERS | u64::from(large & numbers) << LARGE | u64::from(text) << TEXT;
        Brief { masks: masks | (class as u64) << CLASS, targets: [0; 2] }
    }

    /// Makes a word that is zero a pointer to a block of the size class `class`, or to none that is in use.
    #[inline(always)]
    pub fn set_target(&mut self, i: usize, class: Option<u64>) {
        match class {
            Some(class) => {
                self.masks |= 1 << (HEAP as usize + i);
                self.targets[i / 4] |= (class_index(class) as u64) << (i % 4 * 16);
            }
            None => self.masks |= 1 << (LEFT_OVER as usize + i),
        }
    }

    /// Puts the coarser signature in its place: see `coarse` in [`super::signature`].
    #[inline(always)]
    pub fn coarsen(&mut self) {
        let numbers = self.mask(NUMBERS) | self.mask(LEFT_OVER);
        *self = Brief {
            masks: Brief::new(self.class_index(), numbers, numbers, self.mask(TEXT)).masks
                | u64::from(self.mask(HEAP)) << HEAP,
            targets: [0; 2],
        };
    }

    #[inline(always)]
    fn mask(&self, shift: u32) -> u8 {
        (self.masks >> shift) as u8
    }

    /// Returns the hash.
    #[inline(always)]
    pub fn hash(&self, folds: &Folds) -> u64 {
        folds.of_three(self.masks, self.targets)
    }

    /// Returns the number of the size class.
    #[inline(always)]
    pub fn class_index(&self) -> usize {
        (self.masks >> CLASS) as usize
    }

    /// Returns the signature in full.
    pub fn signature(&self) -> Signature {
        let words = std::array::from_fn(|i| {
            let is = |shift: u32| self.mask(shift) >> i & 1 != 0;
            match () {
                () if is(LARGE) => of(k::NUMBER, 0),
                () if is(NUMBERS) => of(k::SMALL, 0),
                () if is(TEXT) => of(k::TEXT, 0),
                () if is(LEFT_OVER) => of(k::LEFT_OVER, 0),
                () if is(HEAP) => of(k::HEAP, class_of((self.targets[i / 4] >> (i % 4 * 16)) as u16 as usize)),
                () => 0,
            }
        });
        Signature { class: class_of(self.class_index()), form: Form::Shape, words }
    }

    /// Makes it of the kinds of the words and their details. None where one is of another kind.
    pub fn of_kinds(class: u64, kinds: [u8; WORDS], detail: impl Fn(usize) -> u64) -> Option<Brief> {
        let mut brief = Brief::new(class_index(class), 0, 0, 0);
        for (i, kind) in kinds.into_iter().enumerate() {
            match kind {
                k::ZERO => {}
                k::SMALL => brief.masks |= 1 << (NUMBERS as usize + i),
                k::NUMBER => brief.masks |= 1 << (NUMBERS as usize + i) | 1 << (LARGE as usize + i),
                k::TEXT => brief.masks |= 1 << (TEXT as usize + i),
                k::LEFT_OVER => brief.set_target(i, None),
                k::HEAP => brief.set_target(i, Some(detail(i) & DETAIL)),
                _ => return None,
            }
        }
        Some(brief)
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{coarse, kind_of, size_class};
    use super::*;

    #[test]
    fn a_brief_signature_is_the_signature() {
        let mut x = 88172645463325252u64;
        let mut random = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        for _ in 0..20_000 {
            let words = std::array::from_fn(|_| match random() % 6 {
                0 => of(k::HEAP, size_class(random() >> (random() % 50)).0),
                1 => of(k::LEFT_OVER, 0),
                2 => of(k::TEXT, 0),
                3 => of(k::SMALL, 0),
                4 => of(k::NUMBER, 0),
                _ => 0,
            });
            let signature = Signature { class: size_class(random() >> (random() % 50)).0, form: Form::Shape, words };
            let brief = |s: &Signature| Brief::of_kinds(s.class, s.words.map(kind_of), |i| s.words[i]);
            let mut made = brief(&signature).unwrap();
            assert_eq!(made.signature(), signature);
            made.coarsen();
            assert_eq!(made.signature(), coarse(signature));
            assert_eq!(Some(made), brief(&coarse(signature)));
        }
        for other in [k::CODE, k::TABLE, k::VTABLE, k::READ_ONLY, k::DATA, k::ELSEWHERE, k::SHORT] {
            let mut kinds = [0; WORDS];
            kinds[3] = other;
            assert_eq!(Brief::of_kinds(24, kinds, |_| 0), None);
        }
    }
}
