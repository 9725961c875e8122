//! What an object in use does not use of its own block, and of the buffer that it owns.

use super::search::{Search, HEAP_TYPE};
use super::{deques, frames, values};
use crate::python::census::Found;
use crate::python::keys::Keys;
use crate::python::types::{Kind, Type, BORROWED};
use crate::python::StrState;

/// `Py_TPFLAGS_TUPLE_SUBCLASS` and `Py_TPFLAGS_BYTES_SUBCLASS`
const TUPLE: u64 = 1 << 26;
const BYTES: u64 = 1 << 27;
/// `Py_TPFLAGS_LONG_SUBCLASS` to `Py_TPFLAGS_TYPE_SUBCLASS`: a built-in type and all that inherit from it have one.
const FAMILIES: u64 = 0xff << 24;
/// `PyTypeObject.tp_name`, `tp_flags`, `tp_doc` and `tp_base`
const NAME: u64 = 24;
const FLAGS: u64 = 168;
const DOCUMENTATION: u64 = 176;
const BASE: u64 = 256;
/// `PySetObject.mask` and `table`, `PyByteArrayObject.ob_bytes` and `arrayobject.ob_item`.
const MASK: u64 = 32;
const TABLE: u64 = 40;
const ALLOCATED_BYTES: u64 = 32;
const ITEMS: u64 = 24;
/// `PyDictObject.ma_used` and `ma_version_tag`. Each change of any dictionary counts the version up, since 3.12 by 256 and
/// in 3.13 by 4096 (`DICT_VERSION_INCREMENT`): it passes the addresses of the heap of an interpreter at a fixed address.
const NUMBERS: (u64, u64) = (16, 32);
/// `PyCodeObject._co_unique_id` (3.14, Include/cpython/code.h): only a free-threaded build writes it.
const CODE_ID: (u64, u64) = (184, 192);
/// `PyCodeObject.co_cell2arg` and `co_opcache_map` (3.9, 3.10, Include/cpython/code.h), and the size of the structure.
const CODE_NUMBERS: [u64; 2] = [96, 152];
const OLD_CODE: u64 = 176;
/// `PyModuleObject.md_def` and `md_state` (Objects/moduleobject.c), and `PyModuleDef.m_size` (Include/moduleobject.h). Since
/// 3.15 the module has the state in the place of its definition, and says the size itself, as far behind its beginning
/// (`md_state_size`, Include/internal/pycore_moduleobject.h).
const DEFINITION: u64 = 24;
const STATE: u64 = 32;
const STATE_315: u64 = 24;
const STATE_SIZE: u64 = 56;
/// An entry of a set: the key and its hash.
const SET_ENTRY: u64 = 16;
/// No page below is mapped.
const LEAST_ADDRESS: u64 = 1 << 12;
/// Entries of keys that objects share, until 3.10: their size is a byte.
const MOST_SHARED: u64 = 170;
/// `__slots__` of a class.
const MOST_SLOTS: u64 = 1 << 16;
/// Words of an object that may lead to the description of a C type.
const MOST_MEMBERS: u64 = 32;
/// How the description of a C type begins: an order of bytes, a sign for pointer, function or struct, the shape of an array,
/// or, of what has no size, a B (Modules/_ctypes/_ctypes.c). Members' names make it long.
const FORMATS: &[u8] = b"<>&XT(B";
const MOST_FORMAT: u64 = 1 << 16;
/// `PyBUF_MAX_NDIM`
const MOST_DIMENSIONS: u64 = 64;
/// `PyLongObject.ob_digit`, and the bytes of a digit.
const DIGITS: u64 = 24;
const DIGIT: u64 = 4;
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
            search.add(at + NUMBERS.0, at + NUMBERS.1);
            keys(search, at, 32);
            values::of_dictionary(search, at);
        }
        Kind::Type => {
            keys(search, at, search.process.release.cached_keys());
            shared(search, at);
            texts(search, at);
            slots(search, at, &known, end);
        }
        Kind::Deque => deques::unused(search, at, object.kind),
        Kind::Module => state(search, at),
        Kind::Set => {
            buffer(search, at, &known);
            members(search, at, end);
        }
        // Since 3.15 a bytearray has its bytes in a bytes object, which is looked at alone.
        Kind::Bytearray if search.process.release.minor >= 15 => {}
        Kind::Bytearray | Kind::Array => buffer(search, at, &known),
        // `func_version` is the last member of PyFunctionObject (Include/cpython/funcobject.h) and has 32 bits. What was in the
        // other half of the word is left.
        Kind::Function => search.add(at.saturating_add(known.basic.saturating_sub(8)), at.saturating_add(known.basic)),
        Kind::Weak => BORROWED.iter().for_each(|&(from, to)| search.add(at + from, at + to)),
        _ => {}
    }
    if known.description != 0 {
        c_type(search, at, &known);
    }
    if let Some(list) = known.weak_list(at) {
        search.add(list, list + 8);
    }
    values::of_object(search, at, &known, object.kind, end);
    if known.basic == OLD_CODE && is_old_code(search, object.kind) {
        for block in CODE_NUMBERS.map(|offset| search.word(at, offset).and_then(|start| search.block(start))) {
            block.into_iter().for_each(|(start, end)| search.add(start, end));
        }
    }
    if !is_first_builtin(search, object.kind) {
        if known.kind == Kind::Int && known.flags & HEAP_TYPE != 0 {
            number(search, at, &known, end);
        }
        return;
    }
    let behind = at.saturating_add(object.inside);
    match known.kind {
        // Digits: an address does not fit into one, and two do not look like it.
        Kind::Int => search.add(at + 16, end),
        Kind::Str => text(search, at, behind, end),
        Kind::Plain if is_bytes(&known) => {
            search.add(at + 16, at + BYTES_START);
            // The last byte is a NUL that ends what the program wrote: its word is no pointer.
            search.add((behind - 1) & !7, end);
        }
        // The instructions. Pointers among them are borrowed: what is valid has another owner, and the version of a type
        // says whether it is (Python/specialize.c). References stand before the first instruction.
        Kind::Code => {
            search.add(at.saturating_add(known.basic), end);
            if search.process.release.minor >= 14 {
                search.add(at + CODE_ID.0, at + CODE_ID.1);
            }
        }
        Kind::Frame => frames::of_frame(search, at, &known, object.inside, end),
        Kind::Generator => frames::of_generator(search, at, &known, behind, end),
        Kind::Plain if known.flags & TUPLE != 0 || known.item == 0 => search.add(behind, end),
        Kind::List
        | Kind::Dict
        | Kind::Set
        | Kind::Bytearray
        | Kind::Deque
        | Kind::Array
        | Kind::Function
        | Kind::Module
        | Kind::Weak => {
            search.add(behind, end);
        }
        // Items beyond those that the object counts may be in use. What is behind a class was looked at.
        Kind::Plain | Kind::Type => {}
    }
}

/// Returns whether the type is that of code objects, and they own arrays of numbers: which arguments are in cells, a byte
/// for each instruction (until 3.10).
fn is_old_code(search: &mut Search<'_, '_>, kind: u64) -> bool {
    let name = search.word(kind, NAME).and_then(|at| search.words.word(at, 8)).map(u64::to_le_bytes);
    search.process.release.minor <= 10 && search.is_inside(kind) && name.is_some_and(|name| name.starts_with(b"code\0"))
}

/// Returns whether the type is bytes, or inherits from it.
pub(super) fn is_bytes(known: &Type) -> bool {
    known.flags & BYTES != 0
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

/// The digits of an object whose class inherits from int, as those of an `IntEnum` do, and what is behind it. It has place for
/// a digit more than it needs (`long_subtype_new`, Objects/longobject.c; `PyType_GenericAlloc`). Until 3.11, the last word of
/// what it needs is `__dict__`.
fn number(search: &mut Search<'_, '_>, at: u64, known: &Type, end: u64) {
    let Some(size) = search.word(at, 16) else { return };
    let count = if search.process.release.minor >= 12 { size >> 3 } else { (size as i64).unsigned_abs() };
    let Some(digits) =
        count.checked_mul(DIGIT).filter(|&digits| at.saturating_add(DIGITS).saturating_add(digits) <= end)
    else {
        return;
    };
    search.add(at + 16, at + DIGITS + digits.next_multiple_of(8));
    search.add((at + known.basic + digits + DIGIT).next_multiple_of(8), end);
}

/// Objects/unicodeobject.c: length, hash and state are numbers; then, up to 3.11, a pointer to wide characters. What is
/// not ASCII has a pointer to UTF-8.
fn text(search: &mut Search<'_, '_>, at: u64, behind: u64, end: u64) {
    let Some(state) = StrState::read(&mut search.words, at) else { return };
    search.add(at + 16, at + 40);
    let characters = at + search.process.release.characters(state.ascii);
    search.add(if state.compact { characters } else { behind }, end);
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

/// What is behind `PyMemberDef` for each slot, and one that ends them. Metaclasses allocate no other way
/// (`_PyType_AllocNoTrack`, Objects/typeobject.c).
fn slots(search: &mut Search<'_, '_>, at: u64, known: &Type, end: u64) {
    if let Some(count) = search.word(at, 16).filter(|&count| count < MOST_SLOTS) {
        search.add(at.saturating_add(known.basic + known.item * (count + 1)), end);
    }
}

/// The texts that a heap type owns, with the rest of their blocks (`type_dealloc`, Objects/typeobject.c, frees them): what
/// documents it, and since 3.11 its name, if a C extension made it (`_ht_tpname`).
fn texts(search: &mut Search<'_, '_>, at: u64) {
    if search.word(at, FLAGS).is_none_or(|flags| flags & HEAP_TYPE == 0) {
        return;
    }
    for place in [NAME, DOCUMENTATION] {
        if let Some(block) = search.word(at, place).and_then(|start| search.block(start)) {
            search.add(block.0, block.1);
        }
    }
}

/// The text that describes a C type to `memoryview`, "<h" or "T{<i:count:}", and the lengths of an array's dimensions
/// (`format`, `ndim` and `shape`, Modules/_ctypes/ctypes.h), each with the rest of its block. A text is short: with what was in
/// the block before, it can look like an address.
fn c_type(search: &mut Search<'_, '_>, at: u64, known: &Type) {
    let last = known.basic.min(known.description.saturating_add(MOST_MEMBERS * 8));
    for offset in (known.description..last).step_by(8) {
        let Some(block) = search.word(at, offset).and_then(|start| search.block(start)) else { continue };
        let Some(count) = search.words.word(at.saturating_add(offset + 8), 4) else { return };
        let Some(shape) = search.word(at, offset + 16) else { return };
        if count > MOST_DIMENSIONS || (count == 0) != (shape == 0) || !is_format(search, block) {
            continue;
        }
        search.add(block.0, block.1);
        if let Some(block) = search.block(shape) {
            search.add(block.0, block.1);
        }
        return;
    }
}

fn is_format(search: &mut Search<'_, '_>, block: (u64, u64)) -> bool {
    for place in (block.0..block.1.min(block.0.saturating_add(MOST_FORMAT))).step_by(8) {
        let Some(left) = search.entries.checked_sub(1) else { return false };
        search.entries = left;
        let Some(word) = search.word(place, 0) else { return false };
        for (number, byte) in word.to_le_bytes().into_iter().enumerate() {
            let first = place == block.0 && number == 0;
            match byte {
                _ if first && !FORMATS.contains(&byte) => return false,
                0 => return true,
                b' '..=b'~' => {}
                _ => return false,
            }
        }
    }
    false
}

/// The rest of the block behind the state of a module in C, of which its definition says the size. A module without a state has
/// such a block, too: it marks that the module was executed (`PyModule_ExecDef`, Objects/moduleobject.c). Nobody writes there.
fn state(search: &mut Search<'_, '_>, at: u64) {
    let (place, definition) = match search.process.release.minor {
        15.. => (STATE_315, Some(at)),
        _ => (STATE, search.word(at, DEFINITION).filter(|&definition| definition != 0)),
    };
    let Some((start, end)) = search.word(at, place).and_then(|start| search.block(start)) else { return };
    // A negative size says that the module has no state, and cannot be made twice.
    let size = definition.and_then(|definition| search.word(definition, STATE_SIZE));
    let Some(size) = size.filter(|&size| size <= end - start) else { return };
    search.add((start + size).next_multiple_of(8), end);
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

/// The hashes in the table of a set. A small one lies in the object.
fn members(search: &mut Search<'_, '_>, at: u64, end: u64) {
    let (Some(mask), Some(table)) = (search.word(at, MASK), search.word(at, TABLE)) else { return };
    let limit = if at <= table && table < end { Some(end) } else { search.block(table).map(|block| block.1) };
    let room = limit.map_or(0, |limit| (limit - table) / SET_ENTRY);
    if mask < room {
        hashes(search, table + 8, SET_ENTRY, mask + 1);
    }
}

/// The values in the keys that the objects of a class share: the values of each are elsewhere, and nobody writes here.
fn shared(search: &mut Search<'_, '_>, at: u64) {
    let Some(keys) = search.word(at, search.process.release.cached_keys()).filter(|&keys| keys != 0) else { return };
    let heap_type = search.word(at, FLAGS).is_some_and(|flags| flags & HEAP_TYPE != 0);
    let Some((_, end)) = search.block(keys).filter(|block| block.0 == keys && heap_type) else { return };
    let release = search.process.release;
    let Some(table) = Keys::read(&mut search.words, release, keys) else { return };
    // DICT_KEYS_SPLIT. Until 3.10 the keys of a class are always shared, and few.
    if !(table.split || release.minor <= 10 && table.room <= MOST_SHARED) {
        return;
    }
    let mut entry = table.entries;
    while entry.saturating_add(table.stride) <= end {
        search.add(entry + table.stride - 8, entry + table.stride);
        entry += table.stride;
    }
}

/// What the table of a dictionary does not use, and its numbers: the indices, and the hashes that are addresses.
fn keys(search: &mut Search<'_, '_>, at: u64, offset: u64) {
    let Some(start) = search.word(at, offset).filter(|&start| start != 0) else { return };
    let Some(block) = search.block(start) else { return };
    let release = search.process.release;
    let Some(table) = Keys::read(&mut search.words, release, start) else { return };
    let end = start.saturating_add(table.size());
    if end > block.1 {
        return;
    }
    search.add(start, table.entries);
    search.add(end.next_multiple_of(8), block.1);
    // The keys that objects share are strings.
    if table.hashed() && table.references == 1 {
        hashes(search, table.entries, table.stride, table.used.min(table.room));
    }
}

/// The hashes of `count` entries from `first` on, as far as they are addresses: the hash of an int is its value, and
/// programs have dictionaries of what id() returned (copy.deepcopy, pickle).
fn hashes(search: &mut Search<'_, '_>, first: u64, stride: u64, count: u64) {
    let Some(left) = search.entries.checked_sub(count) else { return };
    search.entries = left;
    for number in 0..count {
        let at = first + number * stride;
        let Some(hash) = search.word(at, 0) else { return };
        if (LEAST_ADDRESS..1 << 47).contains(&hash) && search.word(hash & !7, 0).is_some() {
            search.add(at, at + 8);
        }
    }
}
