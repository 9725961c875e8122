//! Words that are part of a text.
//!
//! Where addresses have four bytes, every line of text may hold one: a heap that begins at 0x0900_0000 has the addresses of "abc\t", and
//! one at 0x0a00_0000 those of whatever ends a line. Addresses of eight bytes begin with two that no text has.

use super::pass::word;
use super::space::Space;

/// Words of text that must stand before such a word, and as many behind it. A struct has now and then one text beside a pointer; hardly
/// one that fills its array on each side and has no NUL at its end.
const AROUND: usize = 2;

/// Whether word `index` of `bytes`, which has the value of an address in the heap, is part of a text: so are those around it, none of
/// which has such a value, too. (In an array of pointers to where every address is text, all have.) What begins or ends with `bytes` is
/// none.
#[inline(always)]
pub fn is_text<const P: usize>(space: &Space<P>, bytes: &[u8], index: usize) -> bool {
    if P == 2 {
        return false;
    }
    let size = Space::<P>::WORD as usize;
    let Some(first) = index.checked_sub(AROUND) else { return false };
    let Some(around) = bytes.get(first * size..(index + AROUND + 1) * size) else { return false };
    let printed = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    let lonely = |place: usize| place == AROUND || space.word_of(word::<P>(around, place)).is_none();
    around.iter().all(printed) && (0..2 * AROUND + 1).all(lonely)
}
