//! Modules, classes and their variables by name.
//!
//! A variable of a module is an entry of its dictionary, and so is an attribute of a class. An entry has the name and the
//! value side by side, so its memory is the variable's. Nothing has a name here that the process does not have.

use super::census::{given, Found};
use super::keys::Keys;
use super::types::{Kind, Types};
use super::{Release, StrState};
use crate::blocks::model::Heap;
use crate::cached_reader::CachedReader;

/// Characters of a name.
const MOST_TEXT: u64 = 256;
/// Names of one module or class.
const MOST: u64 = 1 << 20;
/// Entries of all dictionaries that are read. In a damaged dump many modules may share a large one.
pub const MOST_ENTRIES: u64 = 1 << 23;
/// `PyModuleObject.md_dict` (Include/internal/pycore_moduleobject.h), `PyTypeObject.tp_dict`.
const MODULE_DICT: u64 = 16;
const CLASS_DICT: u64 = 264;
/// `ht_qualname` stands before `ht_cached_keys` in `PyHeapTypeObject`.
const QUALNAME_BEFORE: u64 = 8;

/// A variable: its name, and the memory of its entry. `value` is the word that holds its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The entry.
    pub start: u64,
    /// The word of the value, the last of the entry.
    pub value: u64,
}

/// What holds variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The object.
    pub address: u64,
    /// Whether it is a class; otherwise it is a module.
    pub class: bool,
    /// `app.store` or `app.store.Cache`.
    pub name: String,
    /// Its memory behind the count of references and the type.
    pub body: (u64, u64),
    /// Its variables, by address.
    pub variables: Vec<Variable>,
}

/// Reads names.
pub struct Reader<'a, 'b> {
    /// The blocks.
    pub heap: &'b dyn Heap,
    /// The release.
    pub release: Release,
    /// The types.
    pub types: &'b mut Types<'a>,
    /// The memory.
    pub words: &'b mut CachedReader<'a>,
    /// Entries of dictionaries that may still be read: see [`MOST_ENTRIES`].
    pub left: u64,
}

/// Returns a module or a class with its variables. None: it has no name, or its dictionary cannot be read.
pub fn holder(reader: &mut Reader<'_, '_>, object: &Found) -> Option<Holder> {
    let at = object.address;
    let class = reader.types.at(object.kind)?.kind == Kind::Type;
    let dict = reader.word(at, if class { CLASS_DICT } else { MODULE_DICT })?;
    let entries = reader.entries(dict)?;
    let mut named = |wanted: &str| {
        let own = entries.iter().find(|entry| entry.name == wanted)?;
        let value = reader.word(own.value, 0)?;
        reader.text(value)
    };
    let name = match class {
        true => {
            let module = named("__module__");
            let place = reader.release.cached_keys().checked_sub(QUALNAME_BEFORE)?;
            let qualified = reader.word(at, place).and_then(|text| reader.text(text))?;
            module.map_or(qualified.clone(), |module| format!("{module}.{qualified}"))
        }
        false => {
            let own = named("__name__");
            let place = reader.release.module_name();
            own.or_else(|| reader.word(at, place).and_then(|text| reader.text(text)))?
        }
    };
    let body = (at.checked_add(16)?, at.checked_add(object.inside)?);
    Some(Holder { address: at, class, name, body, variables: entries })
}

impl Reader<'_, '_> {
    fn word(&mut self, at: u64, offset: u64) -> Option<u64> {
        self.words.word(at.checked_add(offset)?, 8)
    }

    fn is(&mut self, at: u64, kind: Kind) -> bool {
        let own = self.word(at, 8).filter(|_| at % 8 == 0);
        own.and_then(|own| self.types.at(own)).is_some_and(|known| known.kind == kind)
    }

    /// Returns the value of a str that may be a name: it is short, and all of its characters can be printed.
    pub fn text(&mut self, at: u64) -> Option<String> {
        if !self.is(at, Kind::Str) {
            return None;
        }
        let length = self.word(at, 16).filter(|length| (1..=MOST_TEXT).contains(length))?;
        let StrState { width, compact, ascii } = StrState::read(self.words, at)?;
        if !compact || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let start = at.checked_add(self.release.characters(ascii))?;
        let mut bytes = vec![0u8; (length * width) as usize];
        if self.words.image().read(start, &mut bytes) < bytes.len() {
            return None;
        }
        let number = |part: &[u8]| part.iter().rev().fold(0u32, |all, &byte| all << 8 | u32::from(byte));
        let text: Option<String> =
            bytes.chunks_exact(width as usize).map(|part| char::from_u32(number(part))).collect();
        text.filter(|text| !text.chars().any(char::is_control))
    }

    /// Returns the entries of a dictionary whose keys are names, by address. None: it is no dictionary, or shares its keys.
    fn entries(&mut self, dict: u64) -> Option<Vec<Variable>> {
        if !self.is(dict, Kind::Dict) || self.word(dict, 40)? != 0 {
            return None;
        }
        let start = self.word(dict, 32)?;
        let (block, ..) = self.heap.find(start).filter(|found| !found.0.free)?;
        if given(self.words, block.address)? != start {
            return None;
        }
        let Keys { entries, stride, used, .. } = Keys::read(self.words, self.release, start)?;
        let room = block.address.saturating_add(block.size).checked_sub(entries)? / stride;
        let mut found = Vec::new();
        let count = used.min(room).min(MOST);
        self.left = self.left.checked_sub(count)?;
        for number in 0..count {
            let at = entries + number * stride + stride - 16;
            let (Some(key), Some(value)) = (self.word(at, 0), self.word(at, 8)) else { break };
            if let Some(name) = self.text(key).filter(|_| value != 0) {
                found.push(Variable { name, start: at, value: at + 8 });
            }
        }
        Some(found)
    }
}
