//! Words that are part of a text.
//!
//! Where a heap lies low, its addresses are text: one that begins at 0x0900_0000 has those of "abc\t", one at 0x0a00_0000 those of
//! whatever ends a line, one at 0x2f00_0000 those of all that ends with a slash. In a process of 32 bits any four characters may be
//! one, otherwise the last four of a text and the zeros behind them.

use super::pass::word;
use super::space::Space;

/// Bytes of text that must stand before such a word, and behind it. A structure has now and then one text beside a pointer; hardly one
/// that fills its array on each side and has no NUL at its end.
const AROUND: usize = 8;

/// Whether word `index` of `bytes`, which has the value of an address in the heap, is part of a text. Then there is text before it; and
/// more of the same behind it, or the text ends with it: but no block begins at what it would point to. (In an array of pointers to
/// where every address is text, the words beside it are such, too.) What begins with `bytes` is none.
#[inline(always)]
pub fn is_text<const P: usize>(space: &Space<P>, bytes: &[u8], index: usize) -> bool {
    let value = word::<P>(bytes, index);
    value >> 32 == 0 && is_low_text(space, bytes, index, value)
}

#[inline(never)]
fn is_low_text<const P: usize>(space: &Space<P>, bytes: &[u8], index: usize, value: u64) -> bool {
    let size = Space::<P>::WORD as usize;
    let Some(start) = (index * size).checked_sub(AROUND) else { return false };
    let (before, from) = bytes[start..].split_at(AROUND);
    let (itself, behind) = from.split_at(4);
    let lonely = |first: usize| (first..first + AROUND / size).all(|i| space.word_of(word::<P>(bytes, i)).is_none());
    if !before.iter().chain(itself).all(is_printed) || !lonely(index - AROUND / size) {
        return false;
    }
    let more = behind.iter().take_while(|byte| is_printed(byte)).take(AROUND).count();
    if more == AROUND {
        return lonely(index + 1);
    }
    behind.get(more) == Some(&0) && value % 8 != 0
}

fn is_printed(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}
