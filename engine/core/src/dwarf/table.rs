//! What the debug information of a module says as a whole: every type that has a name, with all that it refers to, and every
//! global variable. It is read once, and then stands alone.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use gimli::constants as c;
use serde::{Deserialize, Serialize};

use super::file::{Key, Parsed};
use super::identity::From;
use super::index::{Function, Index, Variable};
use super::locals::described;
use super::model::{self, Form, Id, Type, Types, VOID};
use super::packed::Packed;
use super::places::Stored;
use super::read::{Declared, Reader};
use crate::lines::describe;
use crate::symbols::demangle;

/// Typedefs and qualifiers between a name and the type that it means.
const MOST_NAMES: usize = 16;

/// A global or static variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Global {
    /// The name, with its namespace or function.
    pub(super) name: String,
    pub(super) kind: Id,
    pub(super) stored: Stored,
}

/// The types and variables of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Table {
    /// The types, by the module's own numbers, until [`Table::adopt`]. Number 0 is `void`.
    types: Packed,
    /// What tells the records and enumerations among them apart, by number.
    keys: Vec<(Id, model::Key)>,
    /// Types that are only declared.
    pub(super) declared: Vec<Declared>,
    /// Records: a hash of the whole name, or of another name (`index::hash_of_name`). Sorted by it.
    named: Vec<(u64, Id)>,
    /// Records that are templates: a hash of the name before its arguments. Sorted by it.
    templates: Vec<(u64, Id)>,
    /// All records that have members: half of those of C++ have none, and say nothing of any memory.
    pub(super) records: Vec<Id>,
    pub(super) globals: Vec<Global>,
    /// The functions, sorted by their start.
    functions: Vec<Function>,
    /// The version of the Rust compiler that made the module.
    pub(super) rust: Option<(u32, u32)>,
    /// Frames need all units at once, and .dwo files that may change by themselves.
    pub(super) needs_all_units: bool,
    /// What could not be read.
    pub(super) problems: Vec<String>,
}

impl Table {
    /// Reads everything. `word` is the size of a pointer in bytes. Returns the index as well, which has looked at all units.
    pub(super) fn read(parsed: &Parsed<'_>, word: u64) -> (Table, Index) {
        let mut table = Table::default();
        let mut index = Index::whole(parsed, &mut table.problems);
        let (mut types, mut reader) = (Types::new(word), Reader::default());
        let records = std::mem::take(&mut index.records);
        let nameless = std::mem::take(&mut index.nameless);
        let (named, templates) = (std::mem::take(&mut index.named), std::mem::take(&mut index.templates));
        let variables = std::mem::take(&mut index.variables);
        let mut functions = std::mem::take(&mut index.functions);
        functions.sort_by_key(|function| (function.start, function.end));

        let typedefs: Vec<Key> = nameless.into_iter().filter(|key| index.typedefs.contains_key(key)).collect();
        let mut from = From { parsed, index: &mut index, types: &mut types };
        // A record without any name is read where something refers to it: each unit has its own.
        for &key in records.iter().chain(&typedefs) {
            parsed.comes_to(key.0);
            reader.read(&mut from, key);
        }
        table.named = read_names(&mut reader, &mut from, named, &records);
        table.templates = templates.iter().map(|&(hash, key)| (hash, reader.read(&mut from, key))).collect();
        for list in [&mut table.named, &mut table.templates] {
            // The order among equals is that of the file: the first is the answer.
            list.sort_by_key(|&(hash, _)| hash);
            let mut seen: HashSet<(u64, Id), RandomState> = HashSet::default();
            list.retain(|&(hash, id)| id != VOID && seen.insert((hash, id)));
        }
        table.globals = variables.iter().filter_map(|variable| global(&mut reader, &mut from, variable)).collect();
        if let Some(problem) = reader.failed.map(describe).filter(|problem| !table.problems.contains(problem)) {
            table.problems.push(problem);
        }
        table.declared = reader.declared;
        table.functions = functions;
        table.rust = rust_version(parsed);
        table.needs_all_units = index.has_simple_names() || parsed.has_skeletons;
        let (types, keys) = types.into_parts();
        table.keys = keys;
        table.keys.sort_unstable();
        let has_members = |kind: &Type| matches!(&kind.form, Form::Record(record) if !record.members.is_empty());
        table.records = (0..types.len() as Id).filter(|&id| has_members(&types[id as usize])).collect();
        table.types = Packed::of(types);
        (table, index)
    }

    /// Moves the types to those of other modules. A record that is known there keeps its number. From then on all numbers of the
    /// table are those of `into`.
    pub(super) fn adopt(&mut self, into: &mut Types) {
        let (numbers, base) = into.adopt(std::mem::take(&mut self.types), &std::mem::take(&mut self.keys));
        // A file that was kept may be damaged: a number beyond all types means none.
        let number = |id: Id| numbers.get(id as usize).copied().unwrap_or(VOID);
        let added = |id: Id| id != VOID && number(id) as usize == base + id as usize;
        self.declared.retain(|one| added(one.id));
        self.declared.iter_mut().for_each(|one| one.id = number(one.id));
        self.named.iter_mut().chain(&mut self.templates).for_each(|(_, id)| *id = number(*id));
        self.records.iter_mut().for_each(|id| *id = number(*id));
        self.globals.iter_mut().for_each(|global| global.kind = number(global.kind));
    }

    /// Returns the records that may have a name, by `index::hash_of_name`.
    pub(super) fn named(&self, hash: u64) -> impl Iterator<Item = Id> + '_ {
        at(&self.named, hash)
    }

    /// Returns the records that may be made from a template, by `index::hash_of_template`.
    pub(super) fn of_template(&self, hash: u64) -> impl Iterator<Item = Id> + '_ {
        at(&self.templates, hash)
    }

    /// Returns the function that has an address of the file.
    pub(super) fn function_at(&self, pc: u64) -> Option<Key> {
        let after = self.functions.partition_point(|function| function.start <= pc);
        // Ranges do not overlap in an honest file; a few neighbours are enough to look at.
        let near = self.functions[..after].iter().rev().take(8);
        near.into_iter().find(|function| pc < function.end).map(|function| function.key)
    }
}

fn at(sorted: &[(u64, Id)], wanted: u64) -> impl Iterator<Item = Id> + '_ {
    let from = sorted.partition_point(|&(hash, _)| hash < wanted);
    sorted[from..].iter().take_while(move |&&(hash, _)| hash == wanted).map(|&(_, id)| id)
}

/// The records that types of a unit lead to.
type Meant = HashMap<Key, Option<Key>, RandomState>;

/// Reads the records of names: a typedef is another name. Each unit repeats it: one of those for the same record is read.
fn read_names(reader: &mut Reader, from: &mut From<'_, '_>, named: Vec<(u64, Key)>, records: &[Key]) -> Vec<(u64, Id)> {
    let mut known: HashSet<(u64, Id), RandomState> = HashSet::default();
    let (mut meant, mut unit) = (Meant::default(), 0);
    let mut out = Vec::new();
    for (hash, key) in named {
        if std::mem::replace(&mut unit, key.0) != key.0 {
            meant.clear();
        }
        from.parsed.comes_to(key.0);
        // They are in the order of the file.
        if records.binary_search(&key).is_ok() {
            out.push((hash, reader.read(from, key)));
            continue;
        }
        let Some(record) = record_behind(from, key, &mut meant) else { continue };
        let id = reader.read(from, record);
        if known.insert((hash, id)) {
            out.push((hash, reader.read(from, key)));
        }
    }
    out
}

/// Returns the record that a typedef means. `meant` remembers what a type led to.
fn record_behind(from: &From<'_, '_>, key: Key, meant: &mut Meant) -> Option<Key> {
    let mut passed = Vec::new();
    let mut next = Some(key);
    let mut found = None;
    for _ in 0..MOST_NAMES {
        let Some(key) = next else { break };
        if let Some(&known) = meant.get(&key) {
            found = known;
            break;
        }
        passed.push(key);
        let Ok(Some(die)) = from.parsed.die(key) else { break };
        if die.is_record() {
            found = Some(key);
            break;
        }
        let is_name = matches!(die.tag, c::DW_TAG_typedef | c::DW_TAG_const_type | c::DW_TAG_volatile_type);
        let target = die.kind.filter(|_| is_name);
        next = target.and_then(|target| from.parsed.resolve(key.0, target, &from.index.signatures));
    }
    meant.extend(passed.into_iter().map(|key| (key, found)));
    found
}

fn global(reader: &mut Reader, from: &mut From<'_, '_>, variable: &Variable) -> Option<Global> {
    let (parsed, key) = (from.parsed, variable.key);
    let die = parsed.die(key).ok()??;
    let (kind, name) = described(parsed, from.index, key.0, &die)?;
    let target = parsed.resolve(kind.0, parsed.die(kind).ok()??.kind?, &from.index.signatures)?;
    let text = parsed.text(name.0, &parsed.die(name).ok()??.name).unwrap_or_default();
    let linkage = parsed.text(key.0, &die.linkage);
    let name = linkage.and_then(|linkage| demangle(&linkage));
    let name = name.unwrap_or_else(|| format!("{}{text}", from.index.names.scope(variable.scope)));
    Some(Global { name, kind: reader.read(from, target), stored: variable.stored })
}

/// Returns the version of the Rust compiler that a unit of a module names: "clang LLVM (rustc version 1.95.0 (59807616e ..".
fn rust_version(parsed: &Parsed<'_>) -> Option<(u32, u32)> {
    (0..parsed.units.len() as u32).find_map(|number| {
        let mut entries = parsed.unit(number).ok()?.unit.entries();
        entries.next_dfs().ok()?;
        let producer = entries.current()?.attr_value(gimli::DW_AT_producer).ok()?;
        let text = parsed.text(number, &producer)?;
        let mut numbers = text.split_once("rustc version ")?.1.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}
