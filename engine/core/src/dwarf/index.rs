//! One pass over the entries of a unit: where types, variables and functions stand. The units of a module are taken all at once,
//! or each when it is first asked for.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gimli::constants as c;
use gimli::DwTag;
use serde::{Deserialize, Serialize};

use super::die::{Die, Place};
use super::file::{Key, Parsed};
use super::model::canonical;
use super::names::{Full, Names, Own};
use super::places::{ranges, stored, Stored};
use super::simple::Simple;
use super::walk::Below;
use crate::lines::describe;

/// Global variables that are kept.
const MOST_VARIABLES: usize = 1 << 21;
/// Nested namespaces and classes. Templates nest names no deeper.
const MOST_DEPTH: usize = 1 << 10;

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

/// What is around an entry.
#[derive(Clone, Copy)]
struct Around {
    depth: isize,
    /// What its children's names begin with.
    scope: u32,
    /// It is a function, at this offset of the unit, and `scope` is not known yet. Few functions have types or variables that need
    /// a name.
    function: Option<usize>,
}

/// What the passes have found.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// What stands before names, and what was made of names.
    pub(super) names: Names,
    /// The scope of each type in a namespace, a class or a function, for each unit by the offset of the type.
    scopes: Vec<Vec<(u32, u32)>>,
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
    pub(super) typedefs: HashMap<Key, Key, RandomState>,
    pub(super) signatures: HashMap<u64, Key>,
    /// Names with the arguments of their templates, where the file leaves them out.
    simple: Simple,
    /// The units whose entries were looked at.
    taken: Vec<bool>,
}

/// Returns whether a pass looks at entries of a tag. What has children may have some of these below it.
fn is_looked_at(tag: DwTag, children: bool) -> bool {
    children
        || matches!(
            tag,
            c::DW_TAG_structure_type
                | c::DW_TAG_class_type
                | c::DW_TAG_union_type
                | c::DW_TAG_enumeration_type
                | c::DW_TAG_typedef
                | c::DW_TAG_base_type
                | c::DW_TAG_unspecified_type
                | c::DW_TAG_variable
                | c::DW_TAG_subprogram
        )
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
            parsed.comes_to(unit);
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
        let units = parsed.units.len();
        let mut index = Index { scopes: vec![Vec::new(); units], taken: vec![false; units], ..Index::default() };
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
        self.names.scope(self.scope_number(key))
    }

    fn scope_number(&self, key: Key) -> u32 {
        let Some(scopes) = self.scopes.get(key.0 as usize) else { return 0 };
        scopes.binary_search_by_key(&key.1, |&(at, _)| at).map_or(0, |place| scopes[place].1)
    }

    /// Returns the name of an entry without what stands before it, but with the arguments of its template.
    fn own<'a>(&self, key: Key, die: &Die<'a>) -> Option<Own<'a>> {
        match self.simple.name(key) {
            Some(name) => Some(Own::Made(name.to_string())),
            None => die.name.map(|name| Own::Read(key.0, name)),
        }
    }

    /// Returns the name of a record as gdb prints it, with what stands before it. None: it has none.
    pub(super) fn full_name<'a>(&mut self, parsed: &Parsed<'a>, key: Key, die: &Die<'a>) -> Option<Full> {
        let scope = self.scope_number(key);
        let own = self.own(key, die).and_then(|own| self.names.full(parsed, scope, &own));
        own.or_else(|| {
            let declared = parsed.resolve(key.0, die.specification?, &self.signatures)?;
            let own = self.own(declared, &parsed.die(declared).ok()??)?;
            self.names.full(parsed, scope, &own)
        })
    }

    /// Returns the text of [`Index::full_name`].
    pub(super) fn text_of_name<'a>(&self, parsed: &Parsed<'a>, key: Key, die: &Die<'a>) -> Option<String> {
        let name = self.own_name(parsed, key, die)?;
        Some(canonical(&format!("{}{name}", self.scope(key))).into_owned())
    }

    /// Returns the name of a record without what stands before it. None: it has none.
    pub(super) fn own_name<'a>(&self, parsed: &Parsed<'a>, key: Key, die: &Die<'a>) -> Option<String> {
        self.own(key, die).and_then(|own| own.text(parsed)).or_else(|| {
            let declared = parsed.resolve(key.0, die.specification?, &self.signatures)?;
            self.own(declared, &parsed.die(declared).ok()??)?.text(parsed)
        })
    }

    fn take_unit(&mut self, parsed: &Parsed<'_>, unit: u32) -> gimli::Result<()> {
        let mut around: Vec<Around> = Vec::new();
        let c = parsed.unit(unit)?.c;
        parsed.below_of(parsed.top(unit), is_looked_at, |die| {
            while around.last().is_some_and(|one| one.depth >= die.depth) {
                around.pop();
            }
            let enters = die.children && around.len() < MOST_DEPTH;
            match die.tag {
                c::DW_TAG_namespace if enters => {
                    let outer = self.scope_within(parsed, unit, &mut around);
                    let own = die.name.map(|name| Own::Read(unit, name));
                    let scope = self.names.enter(parsed, outer, own.as_ref(), "(anonymous namespace)", false);
                    around.push(Around { depth: die.depth, scope, function: None });
                }
                c::DW_TAG_subprogram => {
                    self.function(parsed, unit, &die);
                    if enters {
                        let function = (!c).then_some(die.offset);
                        around.push(Around { depth: die.depth, scope: 0, function });
                    }
                }
                _ if die.is_record() => {
                    let outer = self.scope_within(parsed, unit, &mut around);
                    let (scope, own) = self.record(parsed, unit, &die, outer);
                    if enters && !c {
                        let scope = self.names.enter(parsed, scope, own.as_ref(), "{unnamed}", false);
                        around.push(Around { depth: die.depth, scope, function: None });
                    }
                }
                c::DW_TAG_enumeration_type => {
                    let scope = self.scope_within(parsed, unit, &mut around);
                    self.stands_in(unit, &die, scope);
                    return Ok(Below::Skip);
                }
                c::DW_TAG_typedef | c::DW_TAG_base_type | c::DW_TAG_unspecified_type => {
                    let scope = self.scope_within(parsed, unit, &mut around);
                    self.stands_in(unit, &die, scope);
                    self.typedef(parsed, unit, &die, scope);
                }
                c::DW_TAG_variable => {
                    if let Some(stored) = self.place_of_variable(parsed, unit, &die) {
                        let scope = self.scope_within(parsed, unit, &mut around);
                        self.variables.push(Variable { key: (unit, die.offset as u32), scope, stored });
                    }
                }
                _ => {}
            }
            Ok(Below::Go)
        })
    }

    /// Returns the scope of the next entry. The functions around it get their names now.
    fn scope_within(&mut self, parsed: &Parsed<'_>, unit: u32, around: &mut [Around]) -> u32 {
        let known = around.iter().rposition(|one| one.function.is_none()).map_or(0, |place| place + 1);
        let mut scope = known.checked_sub(1).map_or(0, |place| around[place].scope);
        for one in &mut around[known..] {
            if let Some(at) = one.function.take() {
                scope = self.scope_of_function(parsed, (unit, at as u32), scope);
            }
            one.scope = scope;
        }
        scope
    }

    fn scope_of_function(&mut self, parsed: &Parsed<'_>, key: Key, outer: u32) -> u32 {
        let Ok(Some(die)) = parsed.die(key) else { return outer };
        match self.function_name(parsed, key.0, &die) {
            Some(name) => self.names.enter(parsed, outer, Some(&name), "", true),
            None => outer,
        }
    }

    /// Remembers the scope of a type.
    fn stands_in(&mut self, unit: u32, die: &Die<'_>, scope: u32) {
        if scope != 0 {
            self.scopes[unit as usize].push((die.offset as u32, scope));
        }
    }

    /// Takes a record. Returns its scope, and its name without what stands before it.
    fn record<'a>(&mut self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>, outer: u32) -> (u32, Option<Own<'a>>) {
        let key = (unit, die.offset as u32);
        // A class that is defined outside of the one that declares it, as all are in type units.
        let declared = die.specification.and_then(|to| parsed.resolve(unit, to, &self.signatures));
        let declared = declared.filter(|&declared| declared != key);
        let scope = declared.map_or(0, |declared| self.scope_number(declared));
        let scope = if scope == 0 { outer } else { scope };
        // In a type unit the classes around a type are only declared: by the signatures of their own units.
        let own = self.own(key, die).or_else(|| {
            let declared = declared?;
            self.own(declared, &parsed.die(declared).ok()??)
        });
        self.stands_in(unit, die, scope);
        if !die.declaration && die.size.is_some() {
            match own.as_ref().and_then(|own| self.names.hashes(parsed, scope, own)) {
                Some(hashes) => {
                    self.records.push(key);
                    self.named.push((hashes.whole, key));
                    self.templates.extend(hashes.template.map(|hash| (hash, key)));
                }
                None => self.nameless.push(key),
            }
        }
        (scope, own)
    }

    /// Takes another name for a type.
    fn typedef<'a>(&mut self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>, scope: u32) {
        let (Some(target), Some(name)) = (die.kind.filter(|_| die.tag == c::DW_TAG_typedef), die.name) else { return };
        let key = (unit, die.offset as u32);
        if let Some(target) = parsed.resolve(unit, target, &self.signatures) {
            self.typedefs.entry(target).or_insert(key);
        }
        if let Some(hashes) = self.names.hashes(parsed, scope, &Own::Read(unit, name)) {
            self.named.push((hashes.whole, key));
        }
    }

    fn function_name<'a>(&self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) -> Option<Own<'a>> {
        let read = |unit: u32, die: &Die<'a>| Some(Own::Read(unit, die.name?)).filter(|own| own.text(parsed).is_some());
        if die.name.is_some() {
            return read(unit, die);
        }
        let origin = parsed.resolve(unit, die.origin.or(die.specification)?, &self.signatures)?;
        let other = parsed.die(origin).ok()??;
        if other.name.is_some() {
            return read(origin.0, &other);
        }
        let further = parsed.resolve(origin.0, other.specification?, &self.signatures)?;
        read(further.0, &parsed.die(further).ok()??)
    }

    fn function<'a>(&mut self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) {
        let key = (unit, die.offset as u32);
        for (start, end) in ranges(parsed, unit, die) {
            self.functions.push(Function { start, end, key });
        }
    }

    fn place_of_variable<'a>(&self, parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) -> Option<Stored> {
        let Some(Place::Expression(expression)) = &die.place else { return None };
        (self.variables.len() < MOST_VARIABLES).then(|| stored(parsed, unit, expression))?
    }
}
