//! Go's descriptions of types, in the read-only data of each Go program and library.

use std::collections::HashMap;
use std::sync::Arc;

use crate::image::Image;

const HEAD: usize = 48; // bytes of struct abi.Type
const CHUNK: usize = 1 << 20;
const MOST_SECTION: u64 = 1 << 28;
const MOST_TYPES: usize = 1 << 20;
const MOST_NAME: u64 = 4096;
const MOST_FIELDS: u64 = 1 << 14;
const FEW_FIELDS: u64 = 16; // where the first one with a size is
const MOST_WORK: u64 = 1 << 27; // fields that are read, of all types
const MOST_STEPS: usize = 4096;
const DEEPEST: usize = 32;
const MOST_KEPT: usize = 1 << 20; // words that are no table of an interface

/// Kinds of types (internal/abi/type.go).
pub mod kind {
    #![allow(missing_docs)]
    pub const UINT64: u8 = 11;
    pub const ARRAY: u8 = 17;
    pub const CHAN: u8 = 18;
    pub const FUNC: u8 = 19;
    pub const INTERFACE: u8 = 20;
    pub const MAP: u8 = 21;
    pub const POINTER: u8 = 22;
    pub const SLICE: u8 = 23;
    pub const STRING: u8 = 24;
    pub const STRUCT: u8 = 25;
    pub const UNSAFE: u8 = 26;
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The address of its description.
    pub address: u64,
    /// Bytes of a value.
    pub size: u64,
    /// Whether a value has pointers.
    pub pointers: bool,
    /// See [`kind`].
    pub kind: u8,
    /// Whether an interface holds the value itself: it is one pointer.
    pub direct: bool,
    /// The hash of the type, which tables of interfaces repeat.
    pub hash: u32,
    section: usize,
    name: u32,
    star: bool,
}

/// What a word of a value leads to. Numbers are those of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A pointer to a value.
    Pointer(u32),
    /// A pointer to an array, its length and its capacity.
    Slice(u32),
    /// A pointer to bytes, and their number.
    Text,
    /// A type and a pointer; or a table and a pointer.
    Interface,
    /// A pointer to a map of this type.
    Map(u32),
    /// A pointer to a channel of this type.
    Channel(u32),
    /// A pointer to a closure of this type.
    Function(u32),
}

/// The types of a process.
#[derive(Debug)]
pub struct Types {
    image: Arc<Image>,
    sections: Vec<(u64, u64)>,
    modules: Vec<(u64, u64)>,
    all: Vec<Type>,
    numbers: HashMap<u64, Option<u32>>,
    plans: HashMap<u32, Arc<Vec<(u64, Step)>>>,
    tables: HashMap<u64, Option<u32>>,
    work: u64,
    /// The structs (and arrays) that begin with a value of a type.
    outer: HashMap<u32, Vec<u32>>,
}

impl Types {
    /// Makes an empty set. `sections` are where descriptions are, `modules` the memory of the programs around them.
    pub fn new(image: Arc<Image>, sections: Vec<(u64, u64)>, modules: Vec<(u64, u64)>) -> Types {
        Types {
            image,
            sections,
            modules,
            all: Vec::new(),
            numbers: HashMap::new(),
            plans: HashMap::new(),
            tables: HashMap::new(),
            work: 0,
            outer: HashMap::new(),
        }
    }

    /// Finds every description in the sections, so that [`Types::is_inner`] knows them all. Returns how many there are.
    pub fn enumerate(&mut self) -> usize {
        for (start, end) in self.sections.clone() {
            let end = end.min(start.saturating_add(MOST_SECTION));
            let mut at = start & !7;
            let mut bytes = vec![0; CHUNK + HEAD];
            while at < end {
                let got = self.image.read(at, &mut bytes);
                for place in (0..got.min(CHUNK)).step_by(8) {
                    let Some(head) = bytes.get(place..place + HEAD).filter(|_| place + HEAD <= got) else { break };
                    let address = at.wrapping_add(place as u64);
                    if looks_like_a_type(head) && address < end && self.all.len() < MOST_TYPES {
                        self.number(address);
                    }
                }
                at = at.saturating_add(CHUNK as u64);
            }
        }
        for number in 0..self.all.len() as u32 {
            self.add_outer(number);
        }
        self.all.len()
    }

    fn add_outer(&mut self, number: u32) {
        let mut inner = number;
        for _ in 0..DEEPEST {
            let Some(next) = self.first_part(inner) else { return };
            self.outer.entry(next).or_default().push(number);
            inner = next;
        }
    }

    /// Returns the type of the first part of a struct or an array.
    pub fn first_part(&mut self, number: u32) -> Option<u32> {
        let (address, kind) = (self.get(number)?.address, self.get(number)?.kind);
        match kind {
            kind::ARRAY => self.element(address),
            kind::STRUCT => {
                let fields = self.fields(address, FEW_FIELDS)?;
                fields.iter().filter(|field| field.1 == 0).find_map(|&(address, _)| {
                    let number = self.number(address)?;
                    (self.get(number)?.size > 0).then_some(number)
                })
            }
            _ => None,
        }
    }

    /// Returns whether a type begins with a value of another one.
    pub fn begins_with(&self, outer: u32, inner: u32) -> bool {
        self.outer.get(&inner).is_some_and(|all| all.contains(&outer))
    }

    /// Returns whether there is a type that begins with a value of this one, and for which `fits` holds.
    pub fn is_inner(&self, inner: u32, fits: impl Fn(&Type) -> bool) -> bool {
        let all = self.outer.get(&inner).into_iter().flatten();
        all.filter_map(|&number| self.get(number)).any(fits)
    }

    /// Returns a type by its number.
    pub fn get(&self, number: u32) -> Option<&Type> {
        self.all.get(number as usize)
    }

    /// Returns the number of the type that is described at an address.
    pub fn number(&mut self, address: u64) -> Option<u32> {
        if let Some(&known) = self.numbers.get(&address) {
            return known;
        }
        let section = self.sections.iter().position(|&(start, end)| start <= address && address < end)?;
        let found = self.read(address, section).filter(|_| self.all.len() < MOST_TYPES).map(|one| {
            self.all.push(one);
            (self.all.len() - 1) as u32
        });
        if self.numbers.len() < 2 * MOST_TYPES {
            self.numbers.insert(address, found);
        }
        found
    }

    fn read(&self, address: u64, section: usize) -> Option<Type> {
        let mut head = [0; HEAD];
        if address % 8 != 0 {
            return None;
        }
        self.image.read_exact(address, &mut head)?;
        if !looks_like_a_type(&head) {
            return None;
        }
        let (equal, data) = (word(&head, 24), word(&head, 32));
        let pointers = word(&head, 8) > 0;
        if (equal != 0 && !self.in_module(equal)) || (pointers && !self.in_module(data)) {
            return None;
        }
        let made = Type {
            address,
            size: word(&head, 0),
            pointers,
            kind: head[23] & 31,
            direct: head[23] & 32 != 0 || head[20] & 32 != 0, // a bit of the kind; a flag since 1.26
            hash: half(&head, 16),
            section,
            name: half(&head, 40),
            star: head[20] & 2 != 0,
        };
        self.name_of(&made).map(|_| made)
    }

    fn in_module(&self, address: u64) -> bool {
        self.modules.iter().any(|&(start, end)| start <= address && address < end)
    }

    /// Returns the name of a type, as reflect.Type.String has it.
    pub fn name(&self, number: u32) -> Option<String> {
        self.get(number).and_then(|one| self.name_of(one))
    }

    fn name_of(&self, one: &Type) -> Option<String> {
        let (start, end) = *self.sections.get(one.section)?;
        let at = start.checked_add(u64::from(one.name)).filter(|&at| at < end && one.name != 0)?;
        let mut head = [0; 4];
        let got = self.image.read(at, &mut head);
        let (mut length, mut used) = (0, 1);
        loop {
            let byte = u64::from(*head.get(used).filter(|_| used < got)?);
            length |= (byte & 127) << (7 * (used - 1));
            used += 1;
            if byte < 128 {
                break;
            }
        }
        if head[0] > 15 || length == 0 || length > MOST_NAME {
            return None;
        }
        let mut text = vec![0; length as usize];
        self.image.read_exact(at.wrapping_add(used as u64), &mut text)?;
        let text = String::from_utf8(text).ok().filter(|text| !text.chars().any(char::is_control))?;
        if one.star {
            text.strip_prefix('*').map(str::to_owned)
        } else {
            Some(text)
        }
    }

    /// Returns the type in the word behind the head: the element's, or a map's key.
    fn element(&mut self, address: u64) -> Option<u32> {
        let element = self.image.word(address.wrapping_add(HEAD as u64), 8)?;
        self.number(element)
    }

    /// Returns the element type of a pointer, slice, array or channel.
    pub fn element_of(&mut self, number: u32) -> Option<u32> {
        let one = self.get(number)?;
        let has = matches!(one.kind, kind::ARRAY | kind::CHAN | kind::POINTER | kind::SLICE);
        let address = one.address;
        has.then(|| self.element(address)).flatten()
    }

    /// Returns the type of a map's buckets, or groups since 1.24.
    pub fn bucket(&mut self, number: u32) -> Option<u32> {
        let address = self.get(number).filter(|one| one.kind == kind::MAP)?.address;
        let bucket = self.image.word(address.wrapping_add(HEAD as u64 + 16), 8)?;
        self.number(bucket)
    }

    /// Returns (type, offset) of the first `most` fields of a struct.
    fn fields(&mut self, address: u64, most: u64) -> Option<Vec<(u64, u64)>> {
        let [at, count] = self.image.words::<2>(address.wrapping_add(HEAD as u64 + 8), 8)?;
        let read = count.min(most);
        self.work += read;
        if count > MOST_FIELDS || self.work > MOST_WORK {
            return None;
        }
        let count = read;
        let mut bytes = vec![0; count as usize * 24];
        self.image.read_exact(at, &mut bytes)?;
        Some(bytes.chunks_exact(24).map(|field| (word(field, 8), word(field, 16))).collect())
    }

    /// Returns what the words of a value lead to, by offset.
    pub fn plan(&mut self, number: u32) -> Arc<Vec<(u64, Step)>> {
        if let Some(known) = self.plans.get(&number) {
            return known.clone();
        }
        let mut steps = Vec::new();
        self.add_steps(number, 0, 0, &mut steps);
        let made = Arc::new(steps);
        self.plans.insert(number, made.clone());
        made
    }

    fn add_steps(&mut self, number: u32, offset: u64, depth: usize, steps: &mut Vec<(u64, Step)>) {
        let Some(one) = self.get(number).filter(|one| one.pointers).cloned() else { return };
        self.work += 1;
        if depth > DEEPEST || steps.len() >= MOST_STEPS || self.work > MOST_WORK {
            return;
        }
        let step = match one.kind {
            kind::POINTER => self.element_of(number).map(Step::Pointer),
            kind::SLICE => self.element_of(number).map(Step::Slice),
            kind::STRING => Some(Step::Text),
            kind::INTERFACE => Some(Step::Interface),
            kind::MAP => Some(Step::Map(number)),
            kind::CHAN => Some(Step::Channel(number)),
            kind::FUNC => Some(Step::Function(number)),
            kind::STRUCT => {
                for (address, at) in self.fields(one.address, MOST_FIELDS).unwrap_or_default() {
                    if at < one.size {
                        if let Some(field) = self.number(address) {
                            self.add_steps(field, offset.saturating_add(at), depth + 1, steps);
                        }
                    }
                }
                None
            }
            kind::ARRAY => {
                let element = self.element_of(number);
                let size = element.and_then(|element| self.get(element)).map_or(0, |element| element.size);
                if let Some(element) = element.filter(|_| size > 0) {
                    for number in 0..(one.size / size).min(MOST_STEPS as u64) {
                        self.add_steps(element, offset.saturating_add(number * size), depth + 1, steps);
                    }
                }
                None
            }
            _ => None,
        };
        steps.extend(step.map(|step| (offset, step)));
    }

    /// Returns the dynamic type of an interface value whose first word is this: a type, or a table (struct itab).
    pub fn dynamic(&mut self, first: u64) -> Option<u32> {
        if first % 8 != 0 || first < 4096 {
            return None;
        }
        if let Some(number) = self.number(first) {
            return Some(number);
        }
        if let Some(&known) = self.tables.get(&first) {
            return known;
        }
        let found = self.table(first);
        if self.tables.len() < MOST_KEPT {
            self.tables.insert(first, found);
        }
        found
    }

    /// struct itab: the interface, the type, and the type's hash.
    fn table(&mut self, address: u64) -> Option<u32> {
        let [interface, one, hash] = self.image.words::<3>(address, 8)?;
        let interface = self.number(interface)?;
        let number = self.number(one)?;
        let fits = self.get(interface)?.kind == kind::INTERFACE && self.get(number)?.hash == hash as u32;
        fits.then_some(number)
    }
}

/// Whether the parts of a description agree with each other.
fn looks_like_a_type(head: &[u8]) -> bool {
    let (size, pointers) = (word(head, 0), word(head, 8));
    let (flags, align, field_align, kind) = (head[20], head[21], head[22], head[23] & 31);
    let fits = match kind {
        1 | 3 | 8 => size == 1 && pointers == 0,
        4 | 9 => size == 2 && pointers == 0,
        5 | 10 | 13 => size == 4 && pointers == 0,
        2 | 6 | 7 | 11 | 12 | 14 | 15 => size == 8 && pointers == 0,
        16 => size == 16 && pointers == 0,
        kind::CHAN | kind::FUNC | kind::MAP | kind::POINTER | kind::UNSAFE => size == 8 && pointers == 8,
        kind::INTERFACE => size == 16 && pointers == 16,
        kind::SLICE => size == 24 && pointers == 8,
        kind::STRING => size == 16 && pointers == 8,
        kind::ARRAY | kind::STRUCT => size < 1 << 46 && pointers <= size && pointers % 8 == 0,
        _ => false,
    };
    fits && flags < 64
        && matches!(align, 1 | 2 | 4 | 8)
        && matches!(field_align, 1 | 2 | 4 | 8)
        && size % u64::from(align) == 0
        && half(head, 40) != 0
}

pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}
