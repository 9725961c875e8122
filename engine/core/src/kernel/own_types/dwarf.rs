//! BTF as DWARF (version 4): the sections that debuggers read types and variables from.
//!
//! A kernel has half a million entries (with members, parameters and values). They are written here, because a writer
//! that keeps each entry as an object takes a second and hundreds of megabytes for them. References have a fixed width:
//! one to a type that is not written yet has the type's number, until all types are written.

use gimli::constants::*;

use super::btf::{Btf, Type};
use super::shapes::{abbreviations, uleb, Shape};

/// A variable whose type the kernel does not say.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The address that vmlinux has for it.
    pub address: u64,
    /// The type's number in BTF.
    pub of: u32,
    /// The number of pointers that lead to it.
    pub pointers: u32,
    /// The number of elements, where it is an array.
    pub count: Option<u64>,
    /// It is a function, of which nothing else is known.
    pub function: bool,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name, a place in the strings of BTF.
    pub name: u32,
    /// The address that vmlinux has for it.
    pub address: u64,
    /// The number of its prototype in BTF.
    pub prototype: u32,
}

/// The contents of the sections.
pub struct Sections {
    /// `.debug_info`
    pub info: Vec<u8>,
    /// `.debug_abbrev`
    pub abbreviations: Vec<u8>,
    /// `.debug_str`
    pub strings: Vec<u8>,
}

/// The name of what made the types.
const PRODUCER: &str = "dmods, from the kernel's BTF";
/// unit_length, version, debug_abbrev_offset, address_size
const UNIT_HEADER: usize = 11;
/// Returns the types, the variables and the functions. `char_signed`: a plain `char` is signed (BTF does not say it).
pub fn sections(
    btf: &Btf,
    variables: &[Variable],
    functions: &[Function],
    char_signed: bool,
) -> Result<Sections, String> {
    let mut strings = btf.strings().to_vec();
    strings.push(0);
    let mut text = |text: &str| {
        let at = u32::try_from(strings.len()).unwrap_or(u32::MAX);
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    let producer = text(PRODUCER);
    let integers = ["int", "unsigned int"].map(&mut text);
    let names: Vec<u32> = variables.iter().map(|one| text(&one.name)).collect();
    let mut writer = Writer {
        btf,
        out: Vec::with_capacity(2 * btf.data().len()),
        places: vec![0; btf.types().len()],
        open: Vec::new(),
        char_signed,
        integers: [0; 2],
    };
    writer.unit(producer, integers, variables, &names, functions);
    if writer.out.len() >= 1 << 32 || strings.len() >= 1 << 32 {
        return Err("its types are too many".to_string());
    }
    let length = (writer.out.len() - 4) as u32;
    writer.out[..4].copy_from_slice(&length.to_le_bytes());
    Ok(Sections { info: writer.out, abbreviations: abbreviations(), strings })
}

/// What an entry refers to.
#[derive(Clone, Copy)]
enum To {
    /// An entry, by its place.
    Place(u32),
    /// A type that is not written yet, by its number.
    Type(u32),
}

struct Writer<'a> {
    btf: &'a Btf<'a>,
    out: Vec<u8>,
    /// Where each type is written, 0 for those that are not yet.
    places: Vec<u32>,
    /// Where references to such types are.
    open: Vec<usize>,
    char_signed: bool,
    /// Where `int` and `unsigned int` are, for enumerations.
    integers: [u32; 2],
}

impl Writer<'_> {
    fn unit(
        &mut self,
        producer: u32,
        integers: [u32; 2],
        variables: &[Variable],
        names: &[u32],
        functions: &[Function],
    ) {
        self.out.extend([0; 4]); // the length
        self.out.extend(4u16.to_le_bytes());
        self.out.extend([0; 4]);
        self.out.push(8);
        debug_assert_eq!(self.out.len(), UNIT_HEADER);
        self.begin(Shape::Unit);
        self.word(producer);
        self.out.push(DW_LANG_C11.0 as u8);
        self.integers = [(DW_ATE_signed, integers[0]), (DW_ATE_unsigned, integers[1])].map(|(encoding, name)| {
            let place = self.out.len() as u32;
            self.base(name, 4, encoding);
            place
        });
        for (number, one) in self.btf.types().iter().enumerate() {
            self.places[number] = self.out.len() as u32;
            self.one(one);
        }
        for at in std::mem::take(&mut self.open) {
            let number = u32::from_le_bytes([self.out[at], self.out[at + 1], self.out[at + 2], self.out[at + 3]]);
            self.out[at..at + 4].copy_from_slice(&self.places[number as usize].to_le_bytes());
        }
        for (one, &name) in variables.iter().zip(names) {
            self.variable(one, name);
        }
        for one in functions {
            self.function(one);
        }
        self.out.push(0);
    }

    fn one(&mut self, one: &Type) {
        match *one {
            Type::Void | Type::Function { .. } | Type::Variable { .. } | Type::Section { .. } | Type::Tag { .. } => {}
            Type::Int { name, size, signed, boolean, character } => {
                let text = self.btf.string(name);
                let encoding = match (boolean, text) {
                    (true, _) => DW_ATE_boolean,
                    (_, b"char") if self.char_signed => DW_ATE_signed_char,
                    (_, b"signed char") => DW_ATE_signed_char,
                    (_, b"char" | b"unsigned char") => DW_ATE_unsigned_char,
                    _ if character => DW_ATE_unsigned_char,
                    _ if signed => DW_ATE_signed,
                    _ => DW_ATE_unsigned,
                };
                self.base(name, size, encoding);
            }
            Type::Float { name, size } => self.base(name, size, DW_ATE_float),
            Type::Pointer { to } => {
                self.refers(to, Shape::Pointer, Shape::VoidPointer, None);
                self.out.push(8);
            }
            Type::Const { to } => self.refers(to, Shape::Const, Shape::VoidConst, None),
            Type::Volatile { to } => self.refers(to, Shape::Volatile, Shape::VoidVolatile, None),
            Type::Restrict { to } => self.refers(to, Shape::Restrict, Shape::VoidRestrict, None),
            Type::Typedef { name, to } => self.refers(to, Shape::Typedef, Shape::VoidTypedef, Some(name)),
            Type::Array { of, count } => {
                let element = self.to(of).unwrap_or(To::Place(self.integers[0]));
                self.array(element, (count > 0).then_some(u64::from(count)));
            }
            Type::Composite { .. } => self.composite(one),
            Type::Enum { .. } => self.enumeration(one),
            Type::Forward { name, union } => {
                self.begin(if union { Shape::UnionDeclaration } else { Shape::StructDeclaration });
                self.word(name);
            }
            Type::Prototype { returns, parameters, count } => {
                self.refers(returns, Shape::Prototype, Shape::VoidPrototype, None);
                self.parameters(parameters, count);
            }
        }
    }

    fn parameters(&mut self, parameters: usize, count: usize) {
        let sibling = self.sibling();
        for (number, of) in self.btf.parameters(parameters, count).enumerate() {
            match self.to(of) {
                Some(to) => {
                    self.begin(Shape::Parameter);
                    self.refer(to);
                }
                None if number + 1 == count => self.begin(Shape::MoreParameters),
                None => {}
            }
        }
        self.end(sibling);
    }

    fn function(&mut self, one: &Function) {
        let Some(&Type::Prototype { returns, parameters, count }) = self.btf.types().get(one.prototype as usize) else {
            return;
        };
        self.refers(returns, Shape::Function, Shape::VoidFunction, Some(one.name));
        self.out.extend(one.address.to_le_bytes());
        self.parameters(parameters, count);
    }

    fn composite(&mut self, one: &Type) {
        let Type::Composite { name, union, size, members, count, bit_fields } = *one else { return };
        let named = self.btf.is_named(name);
        self.begin(match (union, named) {
            (false, true) => Shape::Struct,
            (false, false) => Shape::UnnamedStruct,
            (true, true) => Shape::Union,
            (true, false) => Shape::UnnamedUnion,
        });
        if named {
            self.word(name);
        }
        uleb(&mut self.out, u64::from(size));
        let sibling = self.sibling();
        let btf = self.btf;
        for member in btf.members(members, count, bit_fields) {
            let Some(to) = self.to(member.of) else { continue };
            let named = btf.is_named(member.name);
            if member.bits > 0 || member.offset % 8 != 0 {
                if !named {
                    continue; // padding, which C's compilers leave out
                }
                self.begin(Shape::BitField);
                self.word(member.name);
                self.refer(to);
                uleb(&mut self.out, u64::from(member.offset));
                uleb(&mut self.out, u64::from(member.bits));
                continue;
            }
            self.begin(if named { Shape::Member } else { Shape::UnnamedMember });
            if named {
                self.word(member.name);
            }
            self.refer(to);
            uleb(&mut self.out, u64::from(member.offset / 8));
        }
        self.end(sibling);
    }

    fn enumeration(&mut self, one: &Type) {
        let Type::Enum { name, size, signed, wide, values, count } = *one else { return };
        let named = self.btf.is_named(name);
        self.begin(if named { Shape::Enum } else { Shape::UnnamedEnum });
        if named {
            self.word(name);
        }
        self.word(self.integers[usize::from(!signed)]);
        uleb(&mut self.out, u64::from(size));
        for (name, value) in self.btf.values(values, count, signed, wide) {
            self.begin(if signed { Shape::SignedValue } else { Shape::UnsignedValue });
            self.word(name);
            if signed {
                sleb(&mut self.out, value as i64);
            } else {
                uleb(&mut self.out, value);
            }
        }
        self.out.push(0);
    }

    /// A variable, with the types that stand between it and its own.
    fn variable(&mut self, one: &Variable, name: u32) {
        if one.function {
            self.begin(Shape::VoidFunction);
            self.word(name);
            self.out.extend(one.address.to_le_bytes());
            let sibling = self.sibling();
            self.end(sibling);
            return;
        }
        let mut of = self.to(one.of);
        for _ in 0..one.pointers {
            let made = self.out.len() as u32;
            self.begin(if of.is_some() { Shape::Pointer } else { Shape::VoidPointer });
            if let Some(to) = of {
                self.refer(to);
            }
            self.out.push(8);
            of = Some(To::Place(made));
        }
        let Some(mut of) = of else { return };
        if let Some(count) = one.count {
            let made = self.out.len() as u32;
            self.array(of, Some(count));
            of = To::Place(made);
        }
        self.begin(Shape::Variable);
        self.word(name);
        self.refer(of);
        self.out.extend([9, DW_OP_addr.0]);
        self.out.extend(one.address.to_le_bytes());
    }

    fn base(&mut self, name: u32, size: u32, encoding: DwAte) {
        self.begin(Shape::Base);
        self.word(name);
        uleb(&mut self.out, u64::from(size));
        self.out.push(encoding.0);
    }

    fn array(&mut self, of: To, count: Option<u64>) {
        self.begin(Shape::Array);
        self.refer(of);
        self.begin(if count.is_some() { Shape::Count } else { Shape::NoCount });
        if let Some(count) = count {
            uleb(&mut self.out, count);
        }
        self.out.push(0);
    }

    /// Begins an entry whose type may be void.
    fn refers(&mut self, to: u32, shape: Shape, of_void: Shape, name: Option<u32>) {
        let to = self.to(to);
        self.begin(if to.is_some() { shape } else { of_void });
        if let Some(name) = name {
            self.word(name);
        }
        if let Some(to) = to {
            self.refer(to);
        }
    }

    /// Where a type is, or will be. None for void. A tag stands for the type behind it.
    fn to(&self, number: u32) -> Option<To> {
        let mut number = number;
        for _ in 0..64 {
            match *self.btf.types().get(number as usize)? {
                Type::Tag { to } => number = to,
                Type::Void | Type::Function { .. } | Type::Variable { .. } | Type::Section { .. } => return None,
                _ => {
                    let place = self.places[number as usize];
                    return Some(if place > 0 { To::Place(place) } else { To::Type(number) });
                }
            }
        }
        None
    }

    fn refer(&mut self, to: To) {
        match to {
            To::Place(place) => self.word(place),
            To::Type(number) => {
                self.open.push(self.out.len());
                self.word(number);
            }
        }
    }

    /// Leaves room for the place behind the entry's children, and returns where the room is. Who looks for entries of
    /// the unit passes over the children.
    fn sibling(&mut self) -> usize {
        let at = self.out.len();
        self.word(0);
        at
    }

    /// Ends the children of an entry.
    fn end(&mut self, sibling: usize) {
        self.out.push(0);
        let behind = (self.out.len() as u32).to_le_bytes();
        self.out[sibling..sibling + 4].copy_from_slice(&behind);
    }

    fn begin(&mut self, shape: Shape) {
        self.out.push(shape as u8);
    }

    fn word(&mut self, value: u32) {
        self.out.extend(value.to_le_bytes());
    }
}

fn sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}
