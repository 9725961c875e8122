//! How large an object is, as `sys.getsizeof` counts: the object, what stands before it, and the buffers that it alone
//! owns. The sources are the `__sizeof__` methods in Objects/ and Modules/ of each release.

use super::keys::{fraction, Keys};
use super::types::{Kind, Type};
use super::{Release, StrState};
use crate::cached_reader::CachedReader;

/// No buffer is larger.
const MOST: u64 = 1 << 47;
/// Bytes of a block of a deque: 64 items and two links (Modules/_collectionsmodule.c).
const DEQUE_BLOCK: u64 = 66 * 8;
/// Bytes of a bytes object without its content, and with the NUL behind it (`_PyBytesObject_SIZE`).
const BYTES: u64 = 33;
/// How many items such a block has.
const DEQUE_ITEMS: u64 = 64;

/// Reads the words of objects.
pub struct Reader<'a, 'b> {
    /// The memory.
    pub words: &'b mut CachedReader<'a>,
    /// The release.
    pub release: Release,
}

/// The size of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes that must lie in the object's own block, from the object on.
    pub inside: u64,
    /// Bytes in other blocks.
    pub outside: u64,
}

/// How many places a frame has.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// `co_nlocalsplus`
    pub locals: u64,
    /// `co_stacksize`
    pub stack: u64,
}

impl Reader<'_, '_> {
    fn word(&mut self, at: u64, offset: u64) -> Option<u64> {
        self.words.word(at.checked_add(offset)?, 8)
    }

    /// Returns the bytes of a buffer, or None unless its first and last byte are in the dump.
    fn buffer(&mut self, start: u64, bytes: u64) -> Option<u64> {
        // By words that are kept: reading a byte is a system call.
        let mut there = |at: u64| self.words.word(at & !7, 8).is_some();
        let proper = bytes == 0 || (bytes <= MOST && there(start) && there(start.checked_add(bytes - 1)?));
        proper.then_some(bytes)
    }

    fn int(&mut self, at: u64, offset: u64) -> Option<u64> {
        self.words.word(at.checked_add(offset)?, 4)
    }

    /// Returns the size of the object at the address, which is of this type. None:
    /// what it says cannot be true.
    pub fn size(&mut self, at: u64, known: &Type) -> Option<Size> {
        let plain = |inside: u64| Size { inside, outside: 0 };
        let items = |count: u64, size: u64| count.checked_mul(size).filter(|&bytes| bytes <= MOST);
        Some(match known.kind {
            Kind::Int => {
                let tag = self.word(at, 16)?;
                let count = if self.release.minor >= 12 { tag >> 3 } else { (tag as i64).unsigned_abs() };
                // Since 3.11 zero has a digit, too (long___sizeof___impl).
                let digits = count.max(u64::from(self.release.minor >= 11));
                let base = if self.release.minor >= 12 { known.basic } else { 24 };
                plain(base + items(digits, 4)?)
            }
            Kind::Str => self.text(at)?,
            Kind::List => {
                let (start, allocated) = (self.word(at, 24)?, self.word(at, 32)?);
                let outside = if start == 0 { 0 } else { self.buffer(start, items(allocated, 8)?)? };
                Size { inside: known.basic, outside }
            }
            Kind::Dict => Size { inside: known.basic, outside: self.dict(at)? },
            Kind::Set => {
                let (mask, table) = (self.word(at, 32)?, self.word(at, 40)?);
                let outside = if table == at + 64 { 0 } else { self.buffer(table, items(mask.checked_add(1)?, 16)?)? };
                Size { inside: known.basic, outside }
            }
            Kind::Bytearray => {
                let (start, allocated) = (self.word(at, 32)?, self.word(at, 24)?);
                // Since 3.15 the bytes are those of a bytes object.
                let head = if self.release.minor >= 15 && allocated > 0 { BYTES } else { 0 };
                Size { inside: known.basic, outside: head + self.buffer(start, allocated)? }
            }
            Kind::Deque => {
                let count = self.word(at, 16)?.checked_add(self.word(at, 40)?)?;
                let blocks = count.div_ceil(DEQUE_ITEMS);
                Size { inside: known.basic, outside: items(blocks, DEQUE_BLOCK)? }
            }
            Kind::Array => {
                let allocated = self.word(at, 32)?;
                let description = self.word(at, 40)?;
                let item = self.int(description, 4)?;
                Size { inside: known.basic, outside: items(allocated, item)? }
            }
            Kind::Type if known.flags >> 31 & 1 != 0 && self.word(at, 168)? >> 9 & 1 != 0 => {
                let cached = self.release.cached_keys();
                let keys = self.word(at, cached)?;
                let outside = if keys == 0 { 0 } else { self.keys(keys)? };
                Size { inside: known.basic, outside }
            }
            Kind::Generator if self.release.minor >= 11 => {
                let frame = known.basic.checked_sub(self.release.locals()).and_then(|offset| at.checked_add(offset))?;
                let places = self.places(frame).map_or(0, |places| places.locals + places.stack);
                plain(known.basic + items(places, 8)?)
            }
            // What PyObject_VAR_HEAD has in a count is `f_back` here: the code says how many places there are.
            Kind::Frame if self.release.minor >= 11 => {
                let frame = self.word(at, 24)?;
                let places = self.places(frame).map_or(0, |places| places.locals + places.stack);
                plain(known.basic + items(places, 8)?)
            }
            // code_sizeof rounds up (_PyObject_VAR_SIZE), which object.__sizeof__ does not.
            Kind::Code => {
                let count = self.word(at, 16)?;
                plain((known.basic + items(count, known.item)?).next_multiple_of(8))
            }
            // PyFrameObject has place for one of its items (frame_sizeof).
            Kind::Frame if self.release.minor <= 10 => {
                let count = self.word(at, 16)?;
                plain((known.basic + items(count, 8)?).saturating_sub(8))
            }
            _ => {
                let mut bytes = known.basic;
                if known.item > 0 {
                    let count = (self.word(at, 16)? as i64).unsigned_abs();
                    bytes += items(count, known.item)?;
                }
                plain(bytes)
            }
        })
    }

    /// Objects/unicodeobject.c, unicode_sizeof.
    fn text(&mut self, at: u64) -> Option<Size> {
        let length = self.word(at, 16)?;
        let StrState { width, compact, ascii } = StrState::read(self.words, at)?;
        let new = self.release.minor >= 12;
        if length > MOST || (!matches!(width, 1 | 2 | 4) && new) {
            return None;
        }
        let [small, medium] = [true, false].map(|ascii| self.release.characters(ascii));
        let large = medium + 8;
        let characters = (length + 1) * width.max(1);
        let mut size = match (compact, ascii) {
            (true, true) => Size { inside: small + length + 1, outside: 0 },
            (true, false) => Size { inside: medium + characters, outside: 0 },
            (false, _) => {
                let data = self.word(at, medium)?;
                Size { inside: large, outside: if data == 0 { 0 } else { characters } }
            }
        };
        let data = if !compact { self.word(at, medium)? } else { at + if ascii { small } else { medium } };
        if !new {
            let wide = self.word(at, 40)?;
            if wide != 0 && wide != data {
                let count = if ascii && compact { length } else { self.word(at, 64)? };
                size.outside += count.checked_add(1).filter(|&n| n <= MOST)? * 4;
            }
        }
        if !(compact && ascii) {
            let (count, utf8) =
                if new { (self.word(at, 40)?, self.word(at, 48)?) } else { (self.word(at, 48)?, self.word(at, 56)?) };
            if utf8 != 0 && utf8 != data {
                size.outside += count.checked_add(1).filter(|&n| n <= MOST)?;
            }
        }
        Some(size)
    }

    /// Objects/dictobject.c, _PyDict_SizeOf without the dictionary itself.
    fn dict(&mut self, at: u64) -> Option<u64> {
        let (keys, values) = (self.word(at, 32)?, self.word(at, 40)?);
        let mut bytes = 0;
        if values != 0 {
            let count = if self.release.minor >= 11 { self.shared(keys)? } else { fraction(self.word(keys, 8)?) };
            bytes += count.checked_mul(8).filter(|&bytes| bytes <= MOST)?;
        }
        // Keys that are shared belong to the type.
        if self.word(keys, 0)? == 1 {
            bytes += self.keys(keys)?;
        }
        Some(bytes)
    }

    /// Returns how many values an object with these keys has place for: dk_nentries + dk_usable.
    pub(super) fn shared(&mut self, keys: u64) -> Option<u64> {
        self.word(keys, 16)?.checked_add(self.word(keys, 24)?).filter(|&count| count <= 1 << 20)
    }

    /// Returns the bytes of the table of a dictionary.
    pub(super) fn keys(&mut self, start: u64) -> Option<u64> {
        let keys = Keys::read(self.words, self.release, start)?;
        self.buffer(start, keys.size())
    }

    /// Returns how many places a `_PyInterpreterFrame` has (3.11 and later).
    pub(super) fn places(&mut self, frame: u64) -> Option<Places> {
        let (code, locals, stack) = match self.release.minor {
            11 => (32, 76, 68),
            _ => (0, 72, 64),
        };
        let code = self.word(frame, code)? & !7;
        let [locals, stack] = [locals, stack].map(|offset| self.int(code, offset).filter(|&count| count <= 1 << 19));
        Some(Places { locals: locals?, stack: stack? })
    }
}
