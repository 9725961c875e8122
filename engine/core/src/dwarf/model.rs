//! Types as data: what debug information says of them, without the debug information.

use std::cell::OnceCell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use super::packed::Packed;
pub use super::spelling::{canonical, plain};

/// The number of a type in [`Types`].
pub type Id = u32;
/// The type `void`, and every type that is not known.
pub const VOID: Id = 0;
/// Types that are kept. A program of a million lines has a tenth of that.
const MOST: usize = 1 << 22;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Type {
    /// The name as gdb prints it, with its namespaces. Empty for a type without a name.
    pub name: String,
    /// Bytes. 0 where it is not known.
    pub size: u64,
    /// What it is.
    pub form: Form,
}

/// What a type is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// `void`, or not known.
    Void,
    /// A number or a character.
    Base(Number),
    /// An enumeration.
    Enum,
    /// A struct, a class or a union.
    Record(Record),
    /// A struct, a class or a union whose members are not known here.
    Declared,
    /// A pointer or a reference to a type.
    Pointer(Id),
    /// An array: its elements, and how many there are; None: it has no bound.
    Array(Id, Option<u64>),
    /// Another name for a type, or the same type with a qualifier (then the name is "const", "volatile").
    Alias(Id),
    /// A function.
    Function,
}

impl Form {
    /// Replaces the number of each type that it refers to.
    pub(super) fn renumber(&mut self, number: impl Fn(Id) -> Id) {
        match self {
            Form::Pointer(to) | Form::Array(to, _) | Form::Alias(to) => *to = number(*to),
            Form::Record(record) => {
                record.members.iter_mut().for_each(|member| member.kind = number(member.kind));
                record.arguments.iter_mut().for_each(|argument| *argument = number(*argument));
                record.discriminant.iter_mut().for_each(|(_, kind)| *kind = number(*kind));
                record.concrete.iter_mut().for_each(|kind| *kind = number(*kind));
            }
            Form::Void | Form::Base(_) | Form::Enum | Form::Declared | Form::Function => {}
        }
    }
}

/// What the bits of a base type mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
    /// An integer, or anything else.
    Integer,
    /// A character.
    Character,
    /// A floating-point number of the processor.
    Float,
    /// `bool`.
    Truth,
}

/// A struct, a class or a union.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// It is a union.
    pub union: bool,
    /// The members and base classes, in the order of the declaration. Static members are not among them.
    pub members: Vec<Member>,
    /// The arguments of the template that are types.
    pub arguments: Vec<Id>,
    /// What decides which variants are there: its offset and its type. None: nothing, or it is not understood.
    pub discriminant: Option<(u64, Id)>,
    /// The type has a pointer to a vtable of its own.
    pub vtable: bool,
    /// It has a destructor: `new[]` puts the number of elements before an array of it.
    pub destructor: bool,
    /// For the type of a vtable of Rust: the type whose objects have that vtable.
    pub concrete: Option<Id>,
    /// The alignment that the declaration asks for, or 0.
    pub align: u64,
}

/// A member of a record, or a base class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name. Empty for a base class and for an anonymous member.
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: u64,
    /// Its type.
    pub kind: Id,
    /// It is a base class.
    pub base: bool,
    /// For a bit-field: its first bit, counted from the start of the record (little-endian), and how many there are.
    pub bits: Option<(u64, u64)>,
    /// The member is there only if a discriminant has a certain value (Rust's enums).
    pub variant: bool,
    /// That value of the discriminant. None: all that no other member has.
    pub when: Option<u64>,
}

/// What tells two records apart: a hash of their tag, name, size and members. Each unit that uses a type declares it again.
pub(super) type Key = u128;

/// All types of the modules of a process that were asked for.
#[derive(Debug)]
pub struct Types {
    /// Those of a layer are read when they are first asked.
    all: Vec<OnceCell<Box<Type>>>,
    layers: Vec<Layer>,
    keys: HashMap<Key, Id, RandomState>,
    /// Bytes of a pointer.
    pub word: u64,
}

/// The types of one module.
#[derive(Debug)]
struct Layer {
    /// The number that the module's own number 0 would have.
    base: usize,
    /// The numbers of all types, by the module's own.
    numbers: Vec<Id>,
    packed: Packed,
}

impl Types {
    /// Makes a table with `void` in it.
    pub fn new(word: u64) -> Types {
        let void = Type { name: "void".to_string(), size: 0, form: Form::Void };
        Types { all: vec![OnceCell::from(Box::new(void))], layers: Vec::new(), keys: HashMap::default(), word }
    }

    /// Returns how many types there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there is no type at all. There is always `void`.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns a type.
    pub fn get(&self, id: Id) -> &Type {
        let id = if (id as usize) < self.all.len() { id } else { VOID };
        self.all[id as usize].get_or_init(|| Box::new(self.unpacked(id as usize)))
    }

    /// Reads a type of a layer. One that cannot be read is `void`: what was kept may be damaged.
    fn unpacked(&self, id: usize) -> Type {
        let after = self.layers.partition_point(|layer| layer.base < id);
        let found = after.checked_sub(1).and_then(|place| {
            let layer = &self.layers[place];
            let mut kind: Type = layer.packed.get(id - layer.base)?;
            kind.form.renumber(|id| layer.numbers.get(id as usize).copied().unwrap_or(VOID));
            Some(kind)
        });
        found.unwrap_or_else(|| Type { name: String::new(), size: 0, form: Form::Void })
    }

    /// Adds a type. Returns `VOID` where there are too many.
    pub fn add(&mut self, kind: Type) -> Id {
        if self.all.len() >= MOST {
            return VOID;
        }
        self.all.push(OnceCell::from(Box::new(kind)));
        (self.all.len() - 1) as Id
    }

    pub(super) fn set(&mut self, id: Id, kind: Type) {
        if id != VOID {
            if let Some(place) = self.all.get_mut(id as usize) {
                *place = OnceCell::from(Box::new(kind));
            }
        }
    }

    /// Adds the types of a module. `keys` tells those apart that other modules may have as well, by the module's own numbers: one
    /// that is known keeps its number. Returns the numbers of all, by the module's own, and the first of them, less one.
    pub(super) fn adopt(&mut self, packed: Packed, keys: &[(Id, Key)]) -> (&[Id], usize) {
        let base = self.all.len() - 1;
        let room = |own: &usize| *own > 0 && base + own < MOST;
        let mut numbers: Vec<Id> =
            (0..packed.len()).map(|own| if room(&own) { (base + own) as Id } else { VOID }).collect();
        let end = numbers.iter().max().map_or(0, |&last| last as usize + 1);
        self.all.resize_with(end.max(self.all.len()), OnceCell::new);
        for &(own, key) in keys {
            let Some(number) = numbers.get_mut(own as usize).filter(|number| **number != VOID) else { continue };
            *number = *self.keys.entry(key).or_insert(*number);
        }
        self.layers.push(Layer { base, numbers, packed });
        (&self.layers[self.layers.len() - 1].numbers, base)
    }

    /// Returns the types, and what tells those apart that other modules may have as well.
    pub(super) fn into_parts(mut self) -> (Vec<Type>, Vec<(Id, Key)>) {
        let all = std::mem::take(&mut self.all).into_iter().filter_map(|kind| Some(*kind.into_inner()?));
        (all.collect(), self.keys.into_iter().map(|(key, id)| (id, key)).collect())
    }

    pub(super) fn known(&self, key: Key) -> Option<Id> {
        self.keys.get(&key).copied()
    }

    pub(super) fn remember(&mut self, key: Key, id: Id) {
        self.keys.insert(key, id);
    }

    /// Returns the type without its other names and qualifiers.
    pub fn bare(&self, mut id: Id) -> Id {
        // A damaged file may have a ring of names.
        for _ in 0..64 {
            match self.get(id).form {
                Form::Alias(next) => id = next,
                _ => return id,
            }
        }
        VOID
    }

    /// Returns the record behind all names.
    pub fn record(&self, id: Id) -> Option<&Record> {
        match &self.get(self.bare(id)).form {
            Form::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Returns the type that a pointer points to.
    pub fn pointee(&self, id: Id) -> Option<Id> {
        match self.get(self.bare(id)).form {
            Form::Pointer(to) => Some(to),
            _ => None,
        }
    }

    /// Returns the size of a type in bytes. 0: it is not known.
    pub fn size(&self, id: Id) -> u64 {
        let mut id = self.bare(id);
        let mut times = 1u64;
        for _ in 0..16 {
            let kind = self.get(id);
            match kind.form {
                Form::Array(_, _) if kind.size > 0 => return kind.size.saturating_mul(times),
                Form::Array(element, count) => {
                    times = times.saturating_mul(count.unwrap_or(0));
                    id = self.bare(element);
                }
                Form::Pointer(_) => return self.word.saturating_mul(times),
                _ => return kind.size.saturating_mul(times),
            }
        }
        0
    }

    /// Returns the alignment of a type.
    pub fn align(&self, id: Id) -> u64 {
        self.align_within(id, 16, &mut 4096)
    }

    fn align_within(&self, id: Id, depth: usize, steps: &mut usize) -> u64 {
        // A damaged file may have types whose parts are many and the same.
        let Some(left) = steps.checked_sub(1) else { return 1 };
        *steps = left;
        let kind = self.get(self.bare(id));
        match &kind.form {
            Form::Record(record) if depth > 0 => {
                let members = record.members.iter().take(256).map(|m| self.align_within(m.kind, depth - 1, steps));
                members.max().unwrap_or(1).max(record.align).clamp(1, 4096)
            }
            Form::Array(element, _) if depth > 0 => self.align_within(*element, depth - 1, steps),
            Form::Pointer(_) => self.word,
            // The i386 psABI aligns long long and double to 4 within records.
            Form::Base(_) | Form::Enum => kind.size.clamp(1, if self.word == 4 { 4 } else { 16 }).next_power_of_two(),
            _ => 1,
        }
    }

    /// Returns the name as gdb prints it.
    pub fn text(&self, id: Id) -> String {
        self.text_within(id, 32)
    }

    fn text_within(&self, id: Id, depth: usize) -> String {
        let kind = self.get(id);
        if depth == 0 {
            return "..".to_string();
        }
        match &kind.form {
            Form::Pointer(to) => {
                let inner = self.text_within(*to, depth - 1);
                let space = if inner.ends_with('*') { "" } else { " " };
                match self.get(self.bare(*to)).form {
                    Form::Function => "function pointer".to_string(),
                    _ => format!("{inner}{space}*"),
                }
            }
            Form::Array(element, count) => {
                let inner = self.text_within(*element, depth - 1);
                count.map_or(format!("{inner} []"), |count| format!("{inner} [{count}]"))
            }
            Form::Alias(to) if matches!(kind.name.as_str(), "" | "const" | "volatile" | "restrict" | "_Atomic") => {
                let inner = self.text_within(*to, depth - 1);
                match kind.name.as_str() {
                    "" | "restrict" => inner,
                    word if inner.ends_with('*') => format!("{inner} {word}"),
                    word => format!("{word} {inner}"),
                }
            }
            _ if !kind.name.is_empty() => kind.name.clone(),
            Form::Record(record) => if record.union { "union {...}" } else { "struct {...}" }.to_string(),
            Form::Enum => "enum {...}".to_string(),
            Form::Function => "function".to_string(),
            _ => "void".to_string(),
        }
    }

    /// Returns the member of that name, in the record or in what it is made of: its offset and its type.
    pub fn find_member(&self, id: Id, name: &str) -> Option<(u64, Id)> {
        let mut open = vec![(0u64, id)];
        let mut looked = 0;
        while let Some((at, id)) = open.pop() {
            let Some(record) = self.record(id) else { continue };
            for member in &record.members {
                looked += 1;
                if looked > 512 {
                    return None;
                }
                let offset = at.saturating_add(member.offset);
                if member.name == name {
                    return Some((offset, member.kind));
                }
                open.push((offset, member.kind));
            }
        }
        None
    }
}

/// Returns the name of a template without its arguments: "std::vector". None: it is no template.
pub fn template_of(name: &str) -> Option<&str> {
    let at = name.find('<')?;
    (at > 0 && name.ends_with('>')).then(|| &name[..at])
}
