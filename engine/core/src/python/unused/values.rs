//! The values of attributes that an object keeps without a dictionary (3.11 and later, Objects/dictobject.c).
//!
//! Besides the values there are bytes: how many there are, and in which order they were set. Nothing there is a pointer.
//! They lie in blocks of pymalloc, or of malloc where Python runs with PYTHONMALLOC=malloc. glibc leaves the link of its list
//! of freed blocks in the first word of a block.

use super::search::Search;
use crate::python::sizes::Reader;
use crate::python::types::Type;

/// Py_TPFLAGS_INLINE_VALUES (3.13)
const INLINE: u64 = 1 << 2;
/// SHARED_KEYS_MAX_SIZE
const MOST: u64 = 30;

/// Adds what the values of an object do not use. `end` is where its block ends.
pub(super) fn of_object(search: &mut Search<'_, '_>, at: u64, known: &Type, kind: u64, end: u64) {
    match search.process.release.minor {
        // `_PyObject_ValuesPointer`, four words before the object. No values: 0.
        11 if known.before == 32 => before_values(search, at.wrapping_sub(32), kind),
        // `PyDictOrValues`, three words before it. The lowest bit says that it leads to values.
        12 if known.before == 32 => before_values(search, at.wrapping_sub(24), kind),
        13.. if known.flags & INLINE != 0 => behind_values(search, at.saturating_add(known.basic), end, 1),
        _ => {}
    }
}

/// Adds what the values of a dictionary do not use, which shares its keys with others.
pub(super) fn of_dictionary(search: &mut Search<'_, '_>, at: u64) {
    let Some(values) = search.word(at, 40).filter(|&values| values != 0) else { return };
    if matches!(search.process.release.minor, 11 | 12) {
        return order(search, values, None);
    }
    let Some((_, end)) = search.block(values) else { return };
    match search.process.release.minor {
        // As many values as keys of that size have entries (USABLE_FRACTION).
        ..=10 => {
            let size = search.word(at, 32).and_then(|keys| search.word(keys, 8)).filter(|&size| size <= 1 << 20);
            if let Some(size) = size {
                search.add(values.saturating_add((size << 1) / 3 * 8), end);
            }
        }
        _ => behind_values(search, values, end, 0),
    }
}

/// 3.11 and 3.12: `place` holds the pointer to the values.
fn before_values(search: &mut Search<'_, '_>, place: u64, kind: u64) {
    let Some(word) = search.word(place, 0) else { return };
    let tagged = search.process.release.minor == 12;
    if word == 0 || word == u64::MAX || (word & 1 == 1) != tagged {
        return;
    }
    let keys = search.word(kind, search.process.release.cached_keys()).filter(|&keys| keys != 0);
    let mut reader = Reader { words: &mut search.words, release: search.process.release };
    let count = keys.and_then(|keys| reader.shared(keys)).filter(|&count| count <= MOST);
    // The pointer to values has 1 taken from it (`_PyDictOrValues_SetValues`).
    order(search, word + u64::from(tagged), count);
}

/// The bytes stand before the values. The last of them says how many they are.
fn order(search: &mut Search<'_, '_>, values: u64, count: Option<u64>) {
    let Some(size) = values.checked_sub(8).and_then(|at| search.word(at, 0)).map(|word| word >> 56) else { return };
    let start = values.checked_sub(size).filter(|_| size % 8 == 0);
    let Some((start, end)) = start.and_then(|start| search.block(start)) else { return };
    search.add(start, values);
    // As many bytes as values, and two more, rounded up to words.
    if let Some(count) = count.filter(|count| (count + 2).next_multiple_of(8) == size) {
        search.add(values.saturating_add(count * 8), end);
    }
}

/// 3.13 and later: `{u8 capacity, size, embedded, valid}`, the values, and as many bytes.
fn behind_values(search: &mut Search<'_, '_>, at: u64, end: u64, embedded: u64) {
    let Some(head) = search.word(at, 0) else { return };
    let (capacity, size) = (head & 0xff, head >> 8 & 0xff);
    let behind = at.saturating_add(8 + 8 * capacity);
    if head >> 16 & 0xff == embedded && size <= capacity && capacity <= MOST && behind <= end {
        search.add(at, at + 8);
        search.add(behind, end);
    }
}
