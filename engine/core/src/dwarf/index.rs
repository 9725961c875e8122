//! One pass over the entries of a unit: where types, variables and functions stand. The units of a module are taken all at once,
//! or each when it is first asked for.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use gimli::constants as c;
use gimli::Operation;
use serde::{Deserialize, Serialize};

use super::die::{Die, Place};
use super::file::{Key, Parsed};
use super::model::{plain, template_of};
use super::short;
use super::simple::Simple;
use super::units::Ready;
use crate::lines::{describe, Bounded};

/// Global variables that are kept.
const MOST_VARIABLES: usize = 1 << 21;
/// Nested namespaces and classes. Templates nest names no deeper.
const MOST_DEPTH: usize = 1 << 10;

/// Where a variable is, in the addresses of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stored {
    /// At an address of the file.
    At(u64),
    /// At an offset in the module's thread-local memory.
    Thread(u64),
}

/// A global or static variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    pub(super) key: Key,
    /// The namespace or function around it.
    pub(super) scope: u32,
    pub(super) stored: Stored,
}

/// A function: its addresses in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Function {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) key: Key,
}

/// What the passes have found.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// What stands before the name of a type: "std::chrono::". Number 0 is empty.
    pub(super) scopes: Vec<String>,
    /// The scope of each type in a namespace, a class or a function.
    scope_of: HashMap<Key, u32>,
    /// Complete records, and other names for types: a hash of the whole name.
    pub(super) named: Vec<(u64, Key)>,
    /// Records that are templates: a hash of the name before its arguments.
    pub(super) templates: Vec<(u64, Key)>,
    /// Complete records that have a name of their own.
    pub(super) records: Vec<Key>,
    /// Complete records that have none. A typedef may name them.
    pub(super) nameless: Vec<Key>,
    pub(super) variables: Vec<Variable>,
    pub(super) functions: Vec<Function>,
    /// Records without a name, by the typedef that names them.
    pub(super) typedefs: HashMap<Key, Key>,
    pub(super) signatures: HashMap<u64, Key>,
    /// Names with the arguments of their templates, where the file leaves them out.
    simple: Simple,
    /// The units whose entries were looked at.
    taken: Vec<bool>,
}

/// Returns what [`Index::named`] has for a name.
pub(super) fn hash_of_name(name: &str) -> u64 {
    hash(&short::key(name))
}

/// Returns what [`Index::templates`] has for the name of a template.
pub(super) fn hash_of_template(name: &str) -> u64 {
    hash(&plain(name))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Index {
    /// Makes the index of all units. `problems` gets what could not be read.
    pub(super) fn whole(parsed: &Parsed<'_>, problems: &mut Vec<String>) -> Index {
        let mut index = Index::empty(parsed);
        let mut tell = |error| {
            let problem = describe(error);
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            error == gimli::Error::TooManyIterations
        };
        let units = parsed.units.len() as u32;
        for unit in 0..units {
            match super::simple::has_simple_names(parsed, unit) {
                Ok(false) => {}
                Ok(true) => {
                    index.simple = Simple::new(parsed, &index.signatures, &mut tell);
                    break;
                }
                Err(error) if tell(error) => break,
                Err(_) => {}
            }
        }
        for unit in 0..units {
            if let Err(error) = index.take(parsed, unit) {
                if tell(error) {
                    break;
                }
            }
        }
        index
    }

    /// Makes an index that takes a unit when it is asked for: [`Index::take`]. The file has no names that leave out arguments.
    pub(super) fn empty(parsed: &Parsed<'_>) -> Index {
        let mut index =
            Index { scopes: vec![String::new()], taken: vec![false; parsed.units.len()], ..Index::default() };
        for (number, unit) in parsed.units.iter().enumerate() {
            if let Some((signature, at)) = unit.signature {
                index.signatures.insert(signature, (number as u32, at as u32));
            }
        }
        index
    }

    /// Returns whether the file has names of templates without their arguments: then all its units are needed for one name.
    pub(super) fn has_simple_names(&self) -> bool {
        !self.simple.is_empty()
    }

    /// Looks at the entries of a unit, once.
    pub(super) fn take(&mut self, parsed: &Parsed<'_>, unit: u32) -> gimli::Result<()> {
        let Some(taken) = self.taken.get_mut(unit as usize).filter(|taken| !**taken) else { return Ok(()) };
        *taken = true;
        self.take_unit(parsed, unit)
    }

    /// Returns what stands before the name of a type.
    pub(super) fn scope(&self, key: Key) -> &str {
        self.scope_of.get(&key).map_or("", |&scope| &self.scopes[scope as usize])
    }

    /// Returns the name of an entry without what stands before it, but with the arguments of its template.
    pub(super) fn own_name<'a>(&self, parsed: &Parsed<'a>, key: Key, die: &Die<'a>) -> Option<String> {
        match self.simple.name(key) {
            Some(name) => Some(name.to_string()),
            None => parsed.text(key.0, &die.name),
        }
    }

    fn take_unit(&mut self, parsed: &Parsed<'_>, unit: u32) -> gimli::Result<()> {
        // The scopes around the entry: its depth, and what its children's names begin with.
        let mut around: Vec<(isize, u32)> = Vec::new();
        let c = parsed.unit(unit)?.c;
        parsed.below(parsed.top(unit), |die| {
            while around.last().is_some_and(|&(depth, _)| depth >= die.depth) {
                around.pop();
            }
            let scope = around.last().map_or(0, |&(_, scope)| scope);
            let key = (unit, die.offset as u32);
            match die.tag {
                c::DW_TAG_namespace if die.children => {
                    let name = parsed.text(unit, &die.name).unwrap_or_else(|| "(anonymous namespace)".to_string());
                    self.enter(&mut around, die.depth, scope, &name, "::");
                }
                c::DW_TAG_subprogram => {
                    self.function(parsed, unit, &die);
                    if die.children && !c {
                        if let Some(name) = self.function_name(parsed, unit, &die) {
                            self.enter(&mut around, die.depth, scope, &name, "()::");
                        }
                    } else if die.children {
                        around.push((die.depth, 0));
                    }
                }
                _ if die.is_record() => {
                    // A class that is defined outside of the one that declares it, as all are in type units.
                    let declared = die.specification.and_then(|to| parsed.resolve(unit, to, &self.signatures));
                    let declared = declared.filter(|&declared| declared != key);
                    let scope = declared.and_then(|declared| self.scope_of.get(&declared).copied()).unwrap_or(scope);
                    let name = self.own_name(parsed, key, &die).or_else(|| {
                        // In a type unit the classes around a type are only declared: by the signatures of their own units.
                        let real =
                            parsed.resolve(unit, die.specification?, &self.signatures).filter(|&real| real != key)?;
                        self.own_name(parsed, real, &parsed.die(real).ok()??)
                    });
                    if scope != 0 {
                        self.scope_of.insert(key, scope);
                    }
                    if !die.declaration && die.size.is_some() {
                        let list = if name.is_some() { &mut self.records } else { &mut self.nameless };
                        list.push(key);
                        if let Some(name) = &name {
                            let whole = format!("{}{name}", self.scopes[scope as usize]);
                            self.named.push((hash(&short::key(&whole)), key));
                            if let Some(template) = template_of(&whole) {
                                self.templates.push((hash(&plain(template)), key));
                            }
                        }
                    }
                    if die.children && !c {
                        self.enter(&mut around, die.depth, scope, name.as_deref().unwrap_or("{unnamed}"), "::");
                    }
                }
                c::DW_TAG_enumeration_type => {
                    if scope != 0 {
                        self.scope_of.insert(key, scope);
                    }
                    return Ok(super::file::Below::Skip);
                }
                c::DW_TAG_typedef | c::DW_TAG_base_type | c::DW_TAG_unspecified_type => {
                    if scope != 0 {
                        self.scope_of.insert(key, scope);
                    }
                    if let Some(target) = die.kind.filter(|_| die.tag == c::DW_TAG_typedef && die.name.is_some()) {
                        if let Some(target) = parsed.resolve(unit, target, &self.signatures) {
                            self.typedefs.entry(target).or_insert(key);
                        }
                        if let Some(name) = parsed.text(unit, &die.name) {
                            let whole = format!("{}{name}", self.scopes[scope as usize]);
                            self.named.push((hash(&short::key(&whole)), key));
                        }
                    }
                }
                c::DW_TAG_variable => self.variable(parsed, unit, &die, scope),
                _ => {}
            }
            Ok(super::file::Below::Go)
        })
    }

    fn enter(&mut self, around: &mut Vec<(isize, u32)>, depth: isize, scope: u32, name: &str, end: &str) {
        if around.len() >= MOST_DEPTH {
            return;
        }
        let text = format!("{}{name}{end}", self.scopes[scope as usize]);
        // Parts of a namespace follow one another; a damaged file must not make long names of short ones.
        let number = match self.scopes.last() {
            Some(last) if *last == text => self.scopes.len() - 1,
            _ if text.len() > 1 << 12 => 0,
            _ => {
                self.scopes.push(text);
                self.scopes.len() - 1
            }
        };
        around.push((depth, number as u32));
    }

    fn function_name<'a>(&self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) -> Option<String> {
        if die.name.is_some() {
            return parsed.text(unit, &die.name);
        }
        let origin = parsed.resolve(unit, die.origin.or(die.specification)?, &self.signatures)?;
        let other = parsed.die(origin).ok()??;
        if other.name.is_some() {
            return parsed.text(origin.0, &other.name);
        }
        let further = parsed.resolve(origin.0, other.specification?, &self.signatures)?;
        let last = parsed.die(further).ok()??;
        parsed.text(further.0, &last.name)
    }

    fn function<'a>(&mut self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) {
        let key = (unit, die.offset as u32);
        for (start, end) in ranges(parsed, unit, die) {
            self.functions.push(Function { start, end, key });
        }
    }

    fn variable<'a>(&mut self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>, scope: u32) {
        let Some(Place::Expression(expression)) = &die.place else { return };
        if self.variables.len() >= MOST_VARIABLES {
            return;
        }
        if let Some(stored) = stored(parsed, unit, expression) {
            self.variables.push(Variable { key: (unit, die.offset as u32), scope, stored });
        }
    }
}

/// Returns where a variable is, if that does not depend on a frame.
fn stored<'a>(parsed: &Parsed<'a>, unit: u32, expression: &gimli::Expression<Bounded<'a>>) -> Option<Stored> {
    let found = &parsed.unit(unit).ok()?.unit;
    let mut operations = (*expression).operations(found.encoding());
    let first = operations.next().ok()??;
    let value = match first {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => parsed.dwarf_of(unit).address(found, index).ok()?,
        Operation::ConstantIndex { index } => parsed.dwarf_of(unit).address(found, index).ok()?,
        Operation::UnsignedConstant { value } => value,
        _ => return None,
    };
    let address = matches!(first, Operation::Address { .. } | Operation::AddressIndex { .. });
    match operations.next().ok()? {
        None if address => Some(Stored::At(value)),
        Some(Operation::TLS) => Some(Stored::Thread(value)),
        Some(Operation::PlusConstant { value: more }) if address => {
            operations.next().ok()?.is_none().then_some(Stored::At(value.wrapping_add(more)))
        }
        _ => None,
    }
}

/// Returns the addresses of a function or a block.
pub(super) fn ranges<'a>(parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let Ok(Ready { unit: found, .. }) = parsed.unit(unit) else { return out };
    let dwarf = parsed.dwarf_of(unit);
    if let Some(low) = die.low.and_then(|value| dwarf.attr_address(found, value).ok()?) {
        let high = die.high.and_then(|value| match value {
            gimli::AttributeValue::Udata(size) => low.checked_add(size),
            value => value.udata_value().and_then(|size| low.checked_add(size)).or_else(|| {
                // An address: the end itself.
                dwarf.attr_address(found, value).ok()?
            }),
        });
        if let Some(high) = high.filter(|&high| high > low && low != 0) {
            out.push((low, high));
        }
    } else if let Some(list) = die.ranges.and_then(|value| dwarf.attr_ranges(found, value).ok()?) {
        let mut list = list;
        while let Ok(Some(range)) = list.next() {
            if range.begin < range.end && range.begin != 0 && out.len() < 1 << 10 {
                out.push((range.begin, range.end));
            }
        }
    }
    out
}
