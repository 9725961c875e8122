//! BTF: the types of a kernel or of one of its modules (Documentation/bpf/btf.rst, include/uapi/linux/btf.h).
//!
//! Types are numbered from 1; 0 is void. A module's numbers and strings go on behind those of its kernel.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: usize = 24;
/// A kernel has some 100,000.
const MOST_TYPES: usize = 1 << 22;

/// A type. Names are places in the strings; other types are told by their numbers; lists lie in the data from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are those of the format
pub enum Type {
    Void,
    Int {
        name: u32,
        size: u32,
        signed: bool,
        boolean: bool,
        character: bool,
    },
    Float {
        name: u32,
        size: u32,
    },
    Pointer {
        to: u32,
    },
    Array {
        of: u32,
        count: u32,
    },
    /// `members` are `count` entries from there on.
    Composite {
        name: u32,
        union: bool,
        size: u32,
        members: usize,
        count: usize,
        bit_fields: bool,
    },
    Enum {
        name: u32,
        size: u32,
        signed: bool,
        wide: bool,
        values: usize,
        count: usize,
    },
    Forward {
        name: u32,
        union: bool,
    },
    Typedef {
        name: u32,
        to: u32,
    },
    Const {
        to: u32,
    },
    Volatile {
        to: u32,
    },
    Restrict {
        to: u32,
    },
    /// A remark on another type.
    Tag {
        to: u32,
    },
    Function {
        name: u32,
        prototype: u32,
    },
    Prototype {
        returns: u32,
        parameters: usize,
        count: usize,
    },
    Variable {
        name: u32,
        of: u32,
    },
    Section {
        name: u32,
        entries: usize,
        count: usize,
    },
}

/// The word before a type's name in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is what it is called
pub enum Tag {
    None,
    Struct,
    Union,
    Enum,
}

/// The name of a type in C.
pub type Name<'a> = (Tag, &'a [u8]);

/// Returns the name of a type in C's words: `struct page`, `union x`, `enum x`, `int`.
pub fn name_of(words: &str) -> Name<'_> {
    let tags = [("struct ", Tag::Struct), ("union ", Tag::Union), ("enum ", Tag::Enum)];
    let tagged = tags.iter().find_map(|&(word, tag)| Some((tag, words.strip_prefix(word)?.as_bytes())));
    tagged.unwrap_or((Tag::None, words.as_bytes()))
}

/// A member of a structure or a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, a place in the strings.
    pub name: u32,
    /// The number of its type.
    pub of: u32,
    /// From the start of the structure, in bits.
    pub offset: u32,
    /// 0 for a member that is no bit-field.
    pub bits: u32,
}

/// A variable of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The number of the variable.
    pub variable: u32,
    /// From the start of the section, in bytes.
    pub offset: u32,
    /// In bytes.
    pub size: u32,
}

/// The types of a kernel.
pub struct Btf<'a> {
    data: &'a [u8],
    strings: &'a [u8],
    types: Vec<Type>,
}

impl<'a> Btf<'a> {
    /// Reads the types. The error says what is wrong with them.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let (data, strings) = parts(bytes)?;
        let mut found = Self { data, strings, types: vec![Type::Void] };
        let mut at = 0;
        while at < data.len() {
            let (read, next) = found.read(at).ok_or_else(|| format!("type {} is broken", found.types.len()))?;
            found.types.push(read);
            at = next;
            if found.types.len() > MOST_TYPES {
                return Err(format!("it has more than {MOST_TYPES} types"));
            }
        }
        Ok(found)
    }

    /// Returns the type at `at`, and where the next one begins. None if it is cut, or of a kind that is not known.
    fn read(&self, at: usize) -> Option<(Type, usize)> {
        let (name, info, value) = (word(self.data, at)?, word(self.data, at + 4)?, word(self.data, at + 8)?);
        let (count, flag, more) = ((info & 0xffff) as usize, info >> 31 != 0, at + 12);
        let list = |entry: usize| more.checked_add(count.checked_mul(entry)?).filter(|&end| end <= self.data.len());
        let read = match info >> 24 & 0x1f {
            1 => {
                let encoding = word(self.data, more)?;
                let (signed, character, boolean) =
                    (encoding >> 24 & 1 != 0, encoding >> 24 & 2 != 0, encoding >> 24 & 4 != 0);
                (Type::Int { name, size: value, signed, boolean, character }, more + 4)
            }
            2 => (Type::Pointer { to: value }, more),
            3 => (Type::Array { of: word(self.data, more)?, count: word(self.data, more + 8)? }, more + 12),
            kind @ (4 | 5) => {
                let read =
                    Type::Composite { name, union: kind == 5, size: value, members: more, count, bit_fields: flag };
                (read, list(12)?)
            }
            6 => (Type::Enum { name, size: value, signed: flag, wide: false, values: more, count }, list(8)?),
            7 => (Type::Forward { name, union: flag }, more),
            8 => (Type::Typedef { name, to: value }, more),
            9 => (Type::Volatile { to: value }, more),
            10 => (Type::Const { to: value }, more),
            11 => (Type::Restrict { to: value }, more),
            12 => (Type::Function { name, prototype: value }, more),
            13 => (Type::Prototype { returns: value, parameters: more, count }, list(8)?),
            14 => (Type::Variable { name, of: value }, more + 4),
            15 => (Type::Section { name, entries: more, count }, list(12)?),
            16 => (Type::Float { name, size: value }, more),
            17 => (Type::Tag { to: value }, more + 4), // of a declaration
            18 => (Type::Tag { to: value }, more),
            19 => (Type::Enum { name, size: value, signed: flag, wide: true, values: more, count }, list(12)?),
            _ => return None,
        };
        (read.1 <= self.data.len()).then_some(read)
    }

    /// The types by their numbers.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The types as they are written.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The strings, one after the other, each with a zero byte behind it.
    pub fn strings(&self) -> &'a [u8] {
        self.strings
    }

    /// The text at a place of the strings. It is empty where no text is.
    pub fn string(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.get(..memchr::memchr(0, rest).unwrap_or(0)).unwrap_or_default()
    }

    /// Whether there is text at a place of the strings.
    pub fn is_named(&self, at: u32) -> bool {
        self.strings.get(at as usize).is_some_and(|&first| first != 0)
    }

    /// The members of a structure or a union.
    pub fn members(&self, at: usize, count: usize, bit_fields: bool) -> impl Iterator<Item = Member> + '_ {
        self.entries(at, count, 3).map(move |[name, of, offset]| {
            let (bits, offset) = if bit_fields { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            Member { name, of, offset, bits }
        })
    }

    /// (name, value) of an enumeration, the value as 64 bits.
    pub fn values(&self, at: usize, count: usize, signed: bool, wide: bool) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.entries(at, count, if wide { 3 } else { 2 }).map(move |[name, low, high]| {
            let value = match (wide, signed) {
                (true, _) => u64::from(high) << 32 | u64::from(low),
                (false, true) => low as i32 as i64 as u64,
                (false, false) => u64::from(low),
            };
            (name, value)
        })
    }

    /// The types of parameters. A last one of 0 stands for `...`.
    pub fn parameters(&self, at: usize, count: usize) -> impl Iterator<Item = u32> + '_ {
        self.entries(at, count, 2).map(|[_name, of, _]| of)
    }

    /// The variables of a section.
    pub fn placed(&self, at: usize, count: usize) -> impl Iterator<Item = Placed> + '_ {
        self.entries(at, count, 3).map(|[variable, offset, size]| Placed { variable, offset, size })
    }

    /// Entries of `words` words. The third is 0 where an entry has two.
    fn entries(&self, at: usize, count: usize, words: usize) -> impl Iterator<Item = [u32; 3]> + '_ {
        let data = self.data.get(at..).unwrap_or_default();
        data.chunks_exact(4 * words).take(count).map(|entry| std::array::from_fn(|i| word(entry, 4 * i).unwrap_or(0)))
    }

    /// The numbers of the types that C names: structures, unions, enumerations, and typedefs and numbers.
    pub fn by_name(&self) -> HashMap<Name<'a>, u32> {
        let mut found = HashMap::with_capacity(self.types.len() / 4);
        for (number, one) in self.types.iter().enumerate() {
            let (tag, name) = match *one {
                Type::Composite { name, union, .. } => (if union { Tag::Union } else { Tag::Struct }, name),
                Type::Enum { name, .. } => (Tag::Enum, name),
                Type::Typedef { name, .. } | Type::Int { name, .. } | Type::Float { name, .. } => (Tag::None, name),
                _ => continue,
            };
            if self.is_named(name) {
                found.entry((tag, self.string(name))).or_insert(number as u32);
            }
        }
        found
    }

    /// The number of the structure without a name that has exactly these members.
    pub fn unnamed(&self, names: &[&[u8]]) -> Option<u32> {
        let fits = |one: &Type| match *one {
            Type::Composite { name, union: false, members, count, bit_fields, .. } => {
                count == names.len()
                    && self.string(name).is_empty()
                    && self.members(members, count, bit_fields).zip(names).all(|(a, b)| self.string(a.name) == *b)
            }
            _ => false,
        };
        self.types.iter().position(fits).and_then(|number| u32::try_from(number).ok())
    }

    /// Returns the size of a type in bytes. None for one that has none, or whose parts lead back to it.
    pub fn size(&self, number: u32) -> Option<u64> {
        let (mut number, mut times) = (number, 1u64);
        for _ in 0..64 {
            let size = match *self.types.get(number as usize)? {
                Type::Int { size, .. } | Type::Float { size, .. } => u64::from(size),
                Type::Composite { size, .. } | Type::Enum { size, .. } => u64::from(size),
                Type::Pointer { .. } => 8,
                Type::Array { of, count } => {
                    times = times.checked_mul(u64::from(count))?;
                    number = of;
                    continue;
                }
                Type::Typedef { to, .. }
                | Type::Const { to }
                | Type::Volatile { to }
                | Type::Restrict { to }
                | Type::Tag { to } => {
                    number = to;
                    continue;
                }
                Type::Variable { of, .. } => {
                    number = of;
                    continue;
                }
                _ => return None,
            };
            return size.checked_mul(times);
        }
        None
    }
}

/// Returns the bytes of the types and of the strings. The error says what is wrong with the header.
pub(super) fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let header = bytes.get(..HEADER).ok_or("its header is cut")?;
    if (u16::from_le_bytes([header[0], header[1]]), header[2]) != (MAGIC, VERSION) {
        return Err("it does not begin as BTF does".to_string());
    }
    let field = |at: usize| word(header, at).unwrap_or(0) as usize;
    let (start, types, types_size, strings, strings_size) = (field(4), field(8), field(12), field(16), field(20));
    let part = |offset: usize, size: usize| {
        let from = start.checked_add(offset)?;
        bytes.get(from..from.checked_add(size)?)
    };
    let data = part(types, types_size).ok_or("its types are cut")?;
    let strings = part(strings, strings_size).ok_or("its strings are cut")?;
    Ok((data, strings))
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
