//! Signatures: what the first words of a block hold, one number for each word.

/// How many words of a block are looked at.
pub const WORDS: usize = 8;
/// Blocks of a larger size are put into classes, four for each power of two.
const EXACT: u64 = 1024;

/// The kind of a word: its top byte. The other bits are the detail.
pub mod word_kind {
    /// The word is zero, or the block ends before it.
    pub const ZERO: u8 = 0;
    /// It points to a free block or to a header: left over from an earlier use of the memory.
    pub const LEFT_OVER: u8 = 1;
    /// A number below 65,536.
    pub const SMALL: u8 = 2;
    /// Any other bits.
    pub const NUMBER: u8 = 3;
    /// Text.
    pub const TEXT: u8 = 4;
    /// A pointer to code. The detail is the module and the offset in it.
    pub const CODE: u8 = 5;
    /// A pointer to a table of functions in a module's data. The detail is the module and the offset.
    pub const TABLE: u8 = 6;
    /// A pointer to a vtable with type information. The detail is the module and the offset.
    pub const VTABLE: u8 = 7;
    /// A pointer to a module's read-only data.
    pub const READ_ONLY: u8 = 8;
    /// A pointer to a module's writable data.
    pub const DATA: u8 = 9;
    /// A pointer to a block. The detail is the size class of the block.
    pub const HEAP: u8 = 10;
    /// A pointer to other memory.
    pub const ELSEWHERE: u8 = 11;
    /// A word below 2^32 that may be a short text or a number.
    pub const SHORT: u8 = 12;
}
#[cfg(test)]
use word_kind as k;

/// Returns the kind of a word of a signature.
#[inline(always)]
pub fn kind_of(word: u64) -> u8 {
    (word >> 56) as u8
}

/// Makes a word of a signature.
#[inline(always)]
pub const fn of(kind: u8, detail: u64) -> u64 {
    (kind as u64) << 56 | (detail & ((1 << 56) - 1))
}

/// What is known of a block without its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// The words say something.
    Shape,
    /// An object. The first word of the signature is its vtable.
    Object,
    /// A C++ exception in flight. The first word of the signature is its type_info.
    Exception,
    /// Not told apart: the size class has too many signatures.
    Various,
    /// The block is not in the dump.
    Missing,
    /// Something else than its own content says what it is. The first word of the signature is the caller's number of the
    /// name: see `graph::named`.
    Named,
}

/// What the first words of a block hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The least size of the size class.
    pub class: u64,
    /// What is known.
    pub form: Form,
    /// The words.
    pub words: [u64; WORDS],
}

/// Returns the least and the largest size of the size class that a size belongs to.
#[inline]
pub fn size_class(size: u64) -> (u64, u64) {
    if size <= EXACT {
        return (size, size);
    }
    let step = 1u64 << (size.ilog2() - 2);
    let low = size / step * step;
    (low, low + (step - 1))
}

/// How many size classes there are.
pub(crate) const CLASSES: usize = EXACT as usize + 1 + 4 * 54;

/// Returns the number of the size class whose least size is `class`.
#[inline(always)]
pub(crate) fn class_index(class: u64) -> usize {
    if class <= EXACT {
        return class as usize;
    }
    let log = class.ilog2() as usize;
    EXACT as usize + 1 + (log - 10) * 4 + (class >> (log - 2) & 3) as usize
}

/// Returns the least size of the size class of that number.
pub(super) fn class_of(index: usize) -> u64 {
    let Some(above) = index.checked_sub(EXACT as usize + 1) else { return index as u64 };
    (4 + above as u64 % 4) << (above / 4 + 8)
}

/// Returns a signature that says less: which words are pointers, and into what. The tests compare the pass's
/// own forms of a signature with it.
#[cfg(test)]
pub(super) fn coarse(signature: Signature) -> Signature {
    let mut words = signature.words;
    for word in &mut words {
        let kind = kind_of(*word) as usize % COARSE.len();
        let (keep, set) = COARSE[kind];
        *word = *word & keep | set;
    }
    Signature { words, ..signature }
}

/// For each kind of word: the bits that stay, and those that are set.
#[cfg(test)]
const COARSE: [(u64, u64); 16] = {
    let mut all = [(u64::MAX, 0); 16];
    all[k::SMALL as usize] = (0, of(k::NUMBER, 0));
    all[k::SHORT as usize] = (0, of(k::NUMBER, 0));
    all[k::LEFT_OVER as usize] = (0, of(k::NUMBER, 0));
    all[k::READ_ONLY as usize] = (0, of(k::DATA, 0));
    all[k::CODE as usize] = (0, of(k::CODE, 0));
    all[k::HEAP as usize] = (0, of(k::HEAP, 0));
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_signature_is_coarse() {
        let words = [of(k::HEAP, 72), of(k::SMALL, 0), of(k::CODE, 5), of(k::VTABLE, 9), 0, of(k::READ_ONLY, 0), 0, 0];
        let made = coarse(Signature { class: 72, form: Form::Shape, words });
        let wanted = [of(k::HEAP, 0), of(k::NUMBER, 0), of(k::CODE, 0), of(k::VTABLE, 9), 0, of(k::DATA, 0), 0, 0];
        assert_eq!(made.words, wanted);
        assert_eq!(coarse(made), made);
    }

    #[test]
    fn every_size_class_has_its_number() {
        (0..=EXACT).for_each(|size| assert_eq!((class_index(size), class_of(size as usize)), (size as usize, size)));
        // The first class of several sizes begins with the last exact size, and counts with it.
        assert_eq!(size_class(EXACT + 1), (EXACT, 1279));
        let mut size = 1280;
        for number in EXACT as usize + 2..CLASSES {
            let (low, high) = size_class(size);
            assert_eq!((class_index(low), low), (number, size));
            assert_eq!(class_of(number), low);
            size = high.wrapping_add(1);
        }
        assert_eq!(size, 0);
    }

    #[test]
    fn size_classes_do_not_overlap() {
        assert_eq!(size_class(24), (24, 24));
        assert_eq!(size_class(1024), (1024, 1024));
        let mut size = 1025;
        while size < 1 << 30 {
            let (low, high) = size_class(size);
            assert!(low <= size && size <= high && high - low < size / 4 + 1);
            assert_eq!(size_class(high + 1).0, high + 1);
            assert_eq!(size_class(high).0, low);
            size = high + 1;
        }
        assert_eq!(size_class(u64::MAX).1, u64::MAX);
    }
}
