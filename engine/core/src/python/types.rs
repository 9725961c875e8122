//! What a type says of its objects.

use super::Release;
use crate::blocks::slots::Slots;
use crate::cached_reader::CachedReader;
use crate::words::USER_END;
use std::collections::HashMap;

/// How many words that are no types are remembered.
const MOST_KNOWN: usize = 1 << 20;
/// Metaclasses of metaclasses, and bases of bases, that are followed.
const MOST_STEPS: usize = 64;
/// SMALL_REQUEST_THRESHOLD: pymalloc's largest block (Objects/obmalloc.c).
const LARGEST_SLOT: u64 = 512;
/// Where `ffi_type_pointer` ends, in `StgDictObject` and in `StgInfo`.
const BEHIND_FFI_312: u64 = 96;
const BEHIND_FFI: u64 = 56;
/// `ob_refcnt` and `ob_type`.
const HEAD: u64 = 16;
/// Where a `buffered` has the address of its buffer.
const BUFFER: u64 = 56;
/// How many types are kept where no hash is computed.
const RECENT: usize = 1024;

/// The built-in type that a type is or inherits from, where that decides how large its objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `object.__sizeof__` says it.
    Plain,
    /// int
    Int,
    /// str
    Str,
    /// list
    List,
    /// dict
    Dict,
    /// set, frozenset
    Set,
    /// bytearray
    Bytearray,
    /// type
    Type,
    /// collections.deque
    Deque,
    /// array.array
    Array,
    /// generator, coroutine, async_generator
    Generator,
    /// frame
    Frame,
    /// code (3.11 and later: the instructions are in the object)
    Code,
    /// function (3.11 and later: it has a version)
    Function,
    /// module
    Module,
    /// A reference that is not counted: weakref and the proxies.
    Weak,
}

/// Words of a `PyWeakReference` that hold nothing: `wr_object`, `wr_prev` and `wr_next` (Include/cpython/weakrefobject.h).
pub const BORROWED: [(u64, u64); 2] = [(16, 24), (40, 56)];

/// A type.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Bytes of an object without its items.
    pub basic: u64,
    /// Bytes of an item, or 0.
    pub item: u64,
    /// `tp_flags`
    pub flags: u64,
    /// What it inherits from.
    pub kind: Kind,
    /// Bytes before an object: the links of the collector, and the pointers to its dictionary and weak references.
    pub before: u64,
    /// Whether the collector may track its objects.
    pub gc: bool,
    /// Where an object has the list of its weak references (`tp_weaklistoffset`). 0: it has none.
    pub weak: i64,
    /// Where the words begin that may lead to the description of a C type: in ctypes' `StgDict` until 3.12, since then in a
    /// class of ctypes. An object of another type has 0.
    pub description: u64,
    /// Where the bytes of its objects begin that are no pointers. 0: they have pointers, or may have some.
    pub content: u64,
    /// Where its objects point to memory that has no pointers. 0: nowhere.
    pub without_pointers: u64,
}

impl Type {
    /// Returns where the object at `at` has the list of its weak references. They are not its own.
    pub fn weak_list(&self, at: u64) -> Option<u64> {
        at.checked_add_signed(self.weak).filter(|_| self.weak != 0)
    }
}

/// Finds types, and keeps what it found.
pub struct Types<'a> {
    reader: CachedReader<'a>,
    release: Release,
    known: HashMap<u64, Option<Type>>,
    /// Those that were asked for last, each at a place that its address gives.
    recent: Vec<(u64, Option<Type>)>,
    /// Where no type is: sorted and disjoint.
    never: Vec<(u64, u64)>,
}

impl<'a> Types<'a> {
    /// Makes a finder.
    pub fn new(reader: CachedReader<'a>, release: Release) -> Self {
        Types { reader, release, known: HashMap::new(), recent: vec![(0, None); RECENT], never: Vec::new() }
    }

    /// Makes a finder that knows pymalloc's blocks: a type has more than 512 bytes, so none lies there.
    pub fn outside(reader: CachedReader<'a>, release: Release, slots: &[&Slots]) -> Self {
        let mut types = Types::new(reader, release);
        let spans = slots.iter().flat_map(|slots| slots.spans.iter()).filter(|span| span.slot <= LARGEST_SLOT);
        let mut spans: Vec<(u64, u64)> = spans
            .map(|span| (span.start, span.start.saturating_add(span.slot.saturating_mul(u64::from(span.count)))))
            .collect();
        spans.sort_unstable();
        for (start, end) in spans {
            match types.never.last_mut() {
                // What lies between two pools is the header of the second, and what the first has no room for.
                Some(last) if start <= last.1.saturating_add(2 * LARGEST_SLOT) => last.1 = last.1.max(end),
                _ => types.never.push((start, end)),
            }
        }
        types
    }

    /// Returns the type at the address, or None where none is.
    pub fn at(&mut self, address: u64) -> Option<Type> {
        if address % 8 != 0 || !(4096..USER_END).contains(&address) {
            return None;
        }
        let place = (address / 16) as usize % RECENT;
        if self.recent[place].0 != address {
            if self.is_in_a_pool(address) {
                return None;
            }
            self.recent[place] = (address, self.ask(address));
        }
        self.recent[place].1
    }

    fn is_in_a_pool(&self, address: u64) -> bool {
        let next = self.never.partition_point(|part| part.0 <= address);
        next > 0 && address < self.never[next - 1].1
    }

    fn ask(&mut self, address: u64) -> Option<Type> {
        if let Some(&known) = self.known.get(&address) {
            return known;
        }
        let found = self.read(address);
        if self.known.len() >= MOST_KNOWN {
            self.known.retain(|_, known| known.is_some());
        }
        if self.known.len() < MOST_KNOWN {
            self.known.insert(address, found);
        }
        found
    }

    fn word(&mut self, address: u64, offset: u64) -> Option<u64> {
        self.reader.word(address.checked_add(offset)?, 8)
    }

    /// Returns whether the types of the object there end at `type`, which is its own type, and its own type is a subclass
    /// of `type` (`Py_TPFLAGS_TYPE_SUBCLASS`).
    fn is_type(&mut self, address: u64) -> bool {
        let own = self.word(address, 8).and_then(|kind| self.word(kind, 168));
        if own.is_none_or(|flags| flags >> 31 & 1 == 0) {
            return false;
        }
        let mut at = address;
        for _ in 0..8 {
            let Some(kind) = self.word(at, 8).filter(|kind| kind % 8 == 0 && *kind >= 4096) else { return false };
            if kind == at {
                return self.name(at).is_some_and(|name| &name[..5] == b"type\0");
            }
            at = kind;
        }
        false
    }

    /// Returns the first bytes of `tp_name`.
    fn name(&mut self, address: u64) -> Option<[u8; 24]> {
        let at = self.word(address, 24)?;
        let mut bytes = [0u8; 24];
        for (number, part) in bytes.chunks_exact_mut(8).enumerate() {
            let word = self.reader.word(at.checked_add(number as u64 * 8)?, 8).unwrap_or(0);
            part.copy_from_slice(&word.to_le_bytes());
        }
        Some(bytes)
    }

    fn read(&mut self, address: u64) -> Option<Type> {
        if !self.is_type(address) {
            return None;
        }
        let (basic, item, flags) = (self.word(address, 32)?, self.word(address, 40)?, self.word(address, 168)?);
        if !(16..1 << 24).contains(&basic) || item > 1 << 24 {
            return None;
        }
        let gc = flags >> 14 & 1 != 0;
        let managed = match self.release.minor {
            ..=10 => 0,
            11 => flags >> 4 & 1,
            _ => u64::from(flags >> 3 & 3 != 0),
        };
        let before = u64::from(gc) * 16 + managed * 16;
        let weak = self.word(address, 208)? as i64;
        let weak = if weak % 8 == 0 && (-64..basic as i64).contains(&weak) { weak } else { 0 };
        let kind = self.kind(address, flags);
        let description = self.description(address, kind).unwrap_or(0);
        let content = self.content(address, kind, basic).unwrap_or(0);
        let without_pointers = self.without_pointers(address).unwrap_or(0);
        Some(Type { basic, item, flags, kind, before, gc, weak, description, content, without_pointers })
    }

    /// Returns where the bytes begin of objects of some built-in types, and the instructions of code. Those have inline caches,
    /// which hold none of what they point to (Include/internal/pycore_code.h). Where a str has them, it says itself: see
    /// [`Release::characters`].
    fn content(&mut self, address: u64, kind: Kind, basic: u64) -> Option<u64> {
        let name = self.name(address).filter(|_| self.is_static(address))?;
        match name.split(|&byte| byte == 0).next()? {
            b"code" if kind == Kind::Code => Some(basic),
            b"int" | b"bool" | b"float" | b"complex" | b"bytes" => Some(HEAD),
            b"str" => Some(self.release.characters(true)),
            _ => None,
        }
    }

    /// Locks have a semaphore of the C library, or a mutex and a condition, until 3.12 (`lock_lock`, Modules/_threadmodule.c); files
    /// have a buffer (`buffered`, Modules/_io/bufferedio.c).
    fn without_pointers(&mut self, address: u64) -> Option<u64> {
        let name = self.name(address)?;
        match name.split(|&byte| byte == 0).next()? {
            b"_thread.lock" | b"_thread.RLock" if self.release.minor <= 12 => Some(HEAD),
            b"_io.BufferedReader" | b"_io.BufferedWriter" | b"_io.BufferedRandom" => Some(BUFFER),
            _ => None,
        }
    }

    /// Modules/_ctypes/ctypes.h: `StgDictObject`, and `StgInfo` behind the structure of `type`, in classes that a subclass of
    /// `CType_Type` makes. Returns where `ffi_type_pointer` ends there.
    fn description(&mut self, address: u64, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Dict => {
                let ours = self.is_static(address) && self.name(address)?.starts_with(b"StgDict\0");
                ours.then_some(BEHIND_FFI_312)
            }
            Kind::Type if self.release.minor >= 13 => {
                let mut at = address;
                for _ in 0..MOST_STEPS {
                    let base = self.word(at, 256).filter(|&base| base != 0 && base % 8 == 0)?;
                    if self.name(at)?.starts_with(b"_ctypes.CType_Type\0") {
                        return Some(self.word(base, 32)?.checked_next_multiple_of(16)?.saturating_add(BEHIND_FFI));
                    }
                    at = base;
                }
                None
            }
            _ => None,
        }
    }

    /// Returns whether no class statement made the type (`Py_TPFLAGS_HEAPTYPE`): a class may have any name.
    fn is_static(&mut self, address: u64) -> bool {
        self.word(address, 168).is_some_and(|flags| flags >> 9 & 1 == 0)
    }

    fn kind(&mut self, address: u64, flags: u64) -> Kind {
        for (bit, kind) in [(24, Kind::Int), (25, Kind::List), (28, Kind::Str), (29, Kind::Dict), (31, Kind::Type)] {
            if flags >> bit & 1 != 0 {
                return kind;
            }
        }
        let mut at = address;
        for _ in 0..MOST_STEPS {
            let name = self.name(at).unwrap_or_default();
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            match &name[..end] {
                b"set" | b"frozenset" => return Kind::Set,
                // PyFrozenDictObject is a PyDictObject with a hash behind it. It has no flag of its own (3.15).
                b"frozendict" if self.is_static(at) => return Kind::Dict,
                b"frame" => return Kind::Frame,
                b"code" if self.release.minor >= 11 => return Kind::Code,
                b"function" if self.release.minor >= 11 && self.is_static(at) => return Kind::Function,
                b"bytearray" => return Kind::Bytearray,
                b"collections.deque" => return Kind::Deque,
                b"array.array" => return Kind::Array,
                b"generator" | b"coroutine" | b"async_generator" => return Kind::Generator,
                b"module" if self.is_static(at) => return Kind::Module,
                // The names until 3.11, and since. The last one is cut.
                b"weakref" | b"weakproxy" | b"weakcallableproxy" if self.is_static(at) => return Kind::Weak,
                b"weakref.ReferenceType" | b"weakref.ProxyType" | b"weakref.CallableProxyTyp" if self.is_static(at) => {
                    return Kind::Weak
                }
                _ => {}
            }
            match self.word(at, 256) {
                Some(base) if base != 0 && base % 8 == 0 => at = base,
                _ => break,
            }
        }
        Kind::Plain
    }
}
