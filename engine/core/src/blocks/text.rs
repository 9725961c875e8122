//! Recognises words that are part of a text.
//!
//! Where a heap lies low, its addresses look like text. An address from 0x0900_0000 on looks like "abc\t", one from
//! 0x0a00_0000 on like the end of a line, one from 0x2f00_0000 on like a name that ends with a slash. In a 32-bit process
//! any four characters may be an address. In a 64-bit process only the last four of a text and the zeros after them may
//! be.

use super::word_map::WordMap;
use crate::words::{is_printed, word};

/// Bytes of text that must stand before such a word and after it. A structure may have one text beside a pointer. It
/// hardly has texts on both sides that fill their arrays without a NUL.
const AROUND: usize = 8;

/// Returns whether word `index` of `bytes`, whose value is an address in the heap, is part of a text. Text must stand
/// before it. After it more text must follow, or the text ends there and no block can begin at the value. In an array of
/// pointers whose addresses all look like text, the neighbouring words also point into the heap: such a word is a
/// pointer. A word at the start of `bytes` is a pointer too.
#[inline(always)]
pub fn is_text<const P: usize>(word_map: &WordMap<P>, bytes: &[u8], index: usize) -> bool {
    let value = word::<P>(bytes, index);
    value >> 32 == 0 && is_low_text(word_map, bytes, index, value)
}

#[inline(never)]
fn is_low_text<const P: usize>(word_map: &WordMap<P>, bytes: &[u8], index: usize, value: u64) -> bool {
    let size = WordMap::<P>::WORD as usize;
    let Some(start) = (index * size).checked_sub(AROUND) else { return false };
    let (before, from) = bytes[start..].split_at(AROUND);
    let (itself, behind) = from.split_at(4);
    let lonely = |first: usize| (first..first + AROUND / size).all(|i| word_map.word_of(word::<P>(bytes, i)).is_none());
    if !before.iter().chain(itself).all(is_printed) || !lonely(index - AROUND / size) {
        return false;
    }
    let more = behind.iter().take_while(|byte| is_printed(byte)).take(AROUND).count();
    if more == AROUND {
        return lonely(index + 1);
    }
    behind.get(more) == Some(&0) && value % 8 != 0
}
