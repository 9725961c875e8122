//! What an object in use does not use of its own block, and of the buffer that it owns.

use super::search::{Search, HEAP_TYPE};
use super::{deques, frames, values};
use crate::python::census::Found;
use crate::python::sizes::Reader;
use crate::python::types::{Kind, Type, BORROWED};

/// `Py_TPFLAGS_TUPLE_SUBCLASS` and `Py_TPFLAGS_BYTES_SUBCLASS`
const TUPLE: u64 = 1 << 26;
const BYTES: u64 = 1 << 27;
/// `Py_TPFLAGS_LONG_SUBCLASS` to `Py_TPFLAGS_TYPE_SUBCLASS`: a built-in type and all that inherit from it have one.
const FAMILIES: u64 = 0xff << 24;
/// `PyTypeObject.tp_flags`, `tp_doc` and `tp_base`
const FLAGS: u64 = 168;
const DOCUMENTATION: u64 = 176;
const BASE: u64 = 256;
/// `PySetObject.table`, `PyByteArrayObject.ob_bytes` and `arrayobject.ob_item`.
const TABLE: u64 = 40;
const ALLOCATED_BYTES: u64 = 32;
const ITEMS: u64 = 24;
/// `__slots__` of a class.
const MOST_SLOTS: u64 = 1 << 16;
/// `PyBytesObject.ob_sval`
const BYTES_START: u64 = 32;

/// Adds what the object does not use. `end` is where its block ends.
pub(super) fn unused(search: &mut Search<'_, '_>, object: Found, end: u64) {
    let at = object.address;
    let Some(known) = search.types.at(object.kind) else { return };
    // The buffers of lists and dictionaries are theirs, whatever inherits from them.
    match known.kind {
        Kind::List => items(search, at),
        Kind::Dict => {
            keys(search, at, 32);
            values::of_dictionary(search, at);
        }
        Kind::Type => {
            keys(search, at, search.process.release.cached_keys());
            shared(search, at);
            documentation(search, at);
        }
        Kind::Deque => deques::unused(search, at, object.kind),
        Kind::Set | Kind::Bytearray | Kind::Array => buffer(search, at, &known),
        Kind::Weak => BORROWED.iter().for_each(|&(from, to)| search.add(at + from, at + to)),
        _ => {}
    }
    if let Some(list) = known.weak_list(at) {
        search.add(list, list + 8);
    }
    values::of_object(search, at, &known, object.kind, end);
    if !is_first_builtin(search, object.kind) {
        return;
    }
    let behind = at.saturating_add(object.inside);
    match known.kind {
        // Digits: an address does not fit into one, and two do not look like it.
        Kind::Int => search.add(at + 16, end),
        Kind::Str => text(search, at, behind, end),
        Kind::Plain if known.flags & BYTES != 0 => {
            search.add(at + 16, at + BYTES_START);
            // The last byte is a NUL that ends what the program wrote: its word is no pointer.
            search.add((behind - 1) & !7, end);
        }
        // The instructions. Pointers among them are borrowed: what is valid has another owner, and the version of a type
        // says whether it is (Python/specialize.c). References stand before the first instruction.
        Kind::Code => search.add(at.saturating_add(known.basic), end),
        // `PyMemberDef` for each slot, and one that ends them (`_PyType_AllocNoTrack`).
        Kind::Type => {
            if let Some(count) = search.word(at, 16).filter(|&count| count < MOST_SLOTS) {
                search.add(at.saturating_add(known.basic + known.item * (count + 1)), end);
            }
        }
        Kind::Frame => frames::of_frame(search, at, &known, object.inside, end),
        Kind::Generator => frames::of_generator(search, at, &known, behind, end),
        Kind::Plain if known.flags & TUPLE != 0 || known.item == 0 => search.add(behind, end),
        Kind::List | Kind::Dict | Kind::Set | Kind::Bytearray | Kind::Deque | Kind::Array => search.add(behind, end),
        _ => {}
    }
}

/// Returns whether the type is a built-in one, and no built-in type of the same family is above it: str, not a subclass.
///
/// A subclass of tuple may hide items (`PyStructSequence`: `n_fields` is more than `ob_size` says).
fn is_first_builtin(search: &mut Search<'_, '_>, kind: u64) -> bool {
    if let Some(&known) = search.builtins.get(&kind) {
        return known;
    }
    let first = search.builtin(kind).is_some_and(|known| {
        let family = known.flags & FAMILIES;
        let base = search.word(kind, BASE).filter(|&base| base != 0).and_then(|base| search.types.at(base));
        family == 0 || base.is_some_and(|base| base.flags & family == 0)
    });
    search.builtins.insert(kind, first);
    first
}

/// Objects/unicodeobject.c: length, hash and state are numbers; then, up to 3.11, a pointer to wide characters. What is
/// not ASCII has a pointer to UTF-8.
fn text(search: &mut Search<'_, '_>, at: u64, behind: u64, end: u64) {
    let Some(state) = search.words.word(at.saturating_add(32), 4) else { return };
    let new = search.process.release.minor >= 12;
    search.add(at + 16, at + 40);
    let (compact, ascii) = (state >> 5 & 1 != 0, state >> 6 & 1 != 0);
    let start = match (compact, ascii) {
        (true, true) => at + if new { 40 } else { 48 },
        (true, false) => at + if new { 56 } else { 72 },
        (false, _) => behind,
    };
    search.add(start, end);
}

/// The places behind the last item of a list.
fn items(search: &mut Search<'_, '_>, at: u64) {
    let (Some(count), Some(start), Some(allocated)) = (search.word(at, 16), search.word(at, 24), search.word(at, 32))
    else {
        return;
    };
    // While a list is sorted, it has no items, and -1 places (Objects/listobject.c, list_sort_impl).
    let readable = count <= allocated && allocated < 1 << 40 && start % 8 == 0 && start != 0;
    let (Some(used), Some(last)) = (start.checked_add(count << 3), start.checked_add(allocated << 3)) else { return };
    if readable {
        let block = search.block(start).filter(|block| last <= block.1);
        search.add(used, block.map_or(last, |block| block.1));
    }
}

/// The text that a heap type owns, and the rest of its block (`type_dealloc`, Objects/typeobject.c, frees it).
fn documentation(search: &mut Search<'_, '_>, at: u64) {
    if search.word(at, FLAGS).is_none_or(|flags| flags & HEAP_TYPE == 0) {
        return;
    }
    if let Some(block) = search.word(at, DOCUMENTATION).and_then(|start| search.block(start)) {
        search.add(block.0, block.1);
    }
}

/// The rest of the block behind the table of a set, and behind the bytes that a bytearray or an array has.
fn buffer(search: &mut Search<'_, '_>, at: u64, known: &Type) {
    let offset = match known.kind {
        Kind::Set => TABLE,
        Kind::Bytearray => ALLOCATED_BYTES,
        _ => ITEMS,
    };
    let Some(start) = search.word(at, offset).filter(|&start| start != 0) else { return };
    let Some(size) = search.outside(at, known).filter(|&size| size > 0) else { return };
    let Some(block) = search.block(start) else { return };
    search.add(start.saturating_add(size).next_multiple_of(8), block.1);
}

/// The values in the keys that the objects of a class share: the values of each are elsewhere, and nobody writes here.
fn shared(search: &mut Search<'_, '_>, at: u64) {
    let release = search.process.release;
    let Some(keys) = search.word(at, release.cached_keys()).filter(|&keys| keys != 0) else { return };
    let heap_type = search.word(at, FLAGS).is_some_and(|flags| flags & HEAP_TYPE != 0);
    let Some((start, end)) = search.block(keys).filter(|block| block.0 == keys && heap_type) else { return };
    let Some(head) = search.word(keys, 8) else { return };
    let (first, stride) = match release.minor {
        // DICT_KEYS_SPLIT
        11.. if head >> 16 & 0xff == 2 && head >> 8 & 0xff <= 16 => (32 + (1 << (head >> 8 & 0xff)), 16),
        ..=10 if head <= 0xff => (40 + head, 24),
        _ => return,
    };
    let mut entry = start.saturating_add(first);
    while entry.saturating_add(stride) <= end {
        search.add(entry + stride - 8, entry + stride);
        entry += stride;
    }
}

/// The rest of the block behind the keys of a dictionary.
fn keys(search: &mut Search<'_, '_>, at: u64, offset: u64) {
    let Some(start) = search.word(at, offset).filter(|&start| start != 0) else { return };
    let Some(block) = search.block(start) else { return };
    let size = Reader { words: &mut search.words, release: search.process.release }.keys(start);
    if let Some(size) = size {
        search.add(start.saturating_add(size).next_multiple_of(8), block.1);
    }
}
