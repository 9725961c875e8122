//! The debug information of one module, parsed and indexed when it is first asked.

use std::path::PathBuf;

use gimli::{AbbreviationsCacheStrategy, Dwarf};
use self_cell::self_cell;
use typed_arena::Arena;

use super::die::{Die, Reference};
use super::units::{units_of, Home, UnitAt};
use crate::lines::{find_debug_file, package_of, parse_package, Bounded, Bytes, ElfFile, Limits, Wanted};

/// The work that types may need beyond what lines need: each entry is read for the index, for its type, and for its name;
/// twice more where names lack the arguments of their templates.
const TIMES: usize = 6;

/// Everything that the parsed form borrows from.
pub(super) struct Store {
    bytes: Arena<Bytes>,
    limits: Limits,
}

impl Store {
    /// Says that the thread that asks now has so much stack left.
    pub(super) fn limits_on_stack(&self, size: usize) {
        self.limits.on_stack_of(size);
    }
}

/// The parsed sections.
pub(super) struct Parsed<'a> {
    pub(super) dwarf: Dwarf<Bounded<'a>>,
    /// The sections of split units.
    pub(super) split: Vec<Dwarf<Bounded<'a>>>,
    /// Sorted by their home, then by whether they are in .debug_types, then by their start.
    pub(super) units: Vec<UnitAt<'a>>,
}

self_cell!(
    pub(super) struct Cell {
        owner: Store,
        #[not_covariant]
        dependent: Parsed,
    }
);

/// What was found for a module.
pub(super) struct Opened {
    pub(super) cell: Cell,
    pub(super) path: PathBuf,
}

/// Opens the debug information of a module. Ok(None): it has none. `problems` gets what is missing.
pub(super) fn open(wanted: &Wanted, stack: usize, problems: &mut Vec<String>) -> Result<Option<Opened>, String> {
    let mut found = find_debug_file(wanted);
    problems.append(&mut found.problems);
    let Some(mut debug) = found.debug.take() else { return Ok(None) };
    let mut supplementary = found.supplementary.take();
    let path = debug.path.clone();
    let package = package_of(wanted.path.as_deref(), &path);
    let store = Store { bytes: Arena::new(), limits: Limits::new() };
    store.limits.on_stack_of(stack);
    let cell = Cell::try_new(store, |store| -> Result<Parsed<'_>, String> {
        let mut dwarf = Dwarf::load(|id| load(store, &mut debug, Some(id.name())))?;
        if let Some(file) = &mut supplementary {
            dwarf.load_sup(|id| load(store, file, Some(id.name())))?;
        }
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let package = package.and_then(|file| {
            let empty = Bounded::new(&[], file.endian, &store.limits);
            parse_package(file, empty, |file, name| load(store, file, name))
        });
        let (units, split) = units_of(&dwarf, package, &path, problems, |file, name| load(store, file, name))?;
        Ok(Parsed { dwarf, split, units })
    });
    match cell {
        Ok(cell) => Ok(Some(Opened { cell, path })),
        Err(why) => Err(format!("{}: {why}", path.display())),
    }
}

/// Loads a section of that name; an empty one where the name is None.
fn load<'a>(store: &'a Store, file: &mut ElfFile, name: Option<&str>) -> Result<Bounded<'a>, String> {
    // Nothing here needs these sections. (A unit cannot be opened without the header of its line table.)
    let bytes: &'a [u8] = match name {
        None | Some(".debug_macinfo" | ".debug_macro" | ".debug_names" | ".debug_frame") => &[],
        Some(".debug_macinfo.dwo" | ".debug_macro.dwo") => &[],
        Some(name) => store.bytes.alloc(file.load(name)?),
    };
    store.limits.allow(bytes.len().saturating_mul(TIMES));
    Ok(Bounded::new(bytes, file.endian, &store.limits))
}

/// The number of a unit, and the offset of an entry in it.
pub(super) type Key = (u32, u32);

impl<'a> Parsed<'a> {
    /// Returns the sections that a unit stands in.
    pub(super) fn dwarf_of(&self, unit: u32) -> &Dwarf<Bounded<'a>> {
        match self.units[unit as usize].home {
            Home::Program => &self.dwarf,
            Home::Supplementary => self.dwarf.sup().unwrap_or(&self.dwarf),
            Home::Split(number) => &self.split[number as usize],
        }
    }

    /// Returns the entry that a reference in a unit means.
    pub(super) fn resolve(
        &self,
        unit: u32,
        reference: Reference,
        signatures: &std::collections::HashMap<u64, Key>,
    ) -> Option<Key> {
        let home = match reference {
            Reference::Unit(at) => return Some((unit, u32::try_from(at).ok()?)),
            Reference::Signature(signature) => return signatures.get(&signature).copied(),
            Reference::File(_) => self.units.get(unit as usize)?.home,
            Reference::Supplementary(_) => Home::Supplementary,
        };
        let (Reference::File(at) | Reference::Supplementary(at)) = reference else { return None };
        let key = |u: &UnitAt<'_>| (u.home, u.of_types, u.start);
        let after = self.units.partition_point(|u| key(u) <= (home, false, at));
        let index = after.checked_sub(1)?;
        let found = &self.units[index];
        if found.home != home || found.of_types || at >= found.end {
            return None;
        }
        Some((index as u32, u32::try_from(at - found.start).ok()?))
    }

    /// Reads one entry.
    pub(super) fn die(&self, key: Key) -> gimli::Result<Option<Die<'a>>> {
        let unit = &self.units.get(key.0 as usize).ok_or(gimli::Error::OffsetOutOfBounds)?.unit;
        let mut entries = unit.entries_raw(Some(gimli::UnitOffset(key.1 as usize)))?;
        Die::next(&mut entries)
    }

    /// Calls `each` for the entry and for all entries below it, until it returns false. Their depths count from the entry's, 0.
    pub(super) fn below(&self, key: Key, mut each: impl FnMut(Die<'a>) -> gimli::Result<Below>) -> gimli::Result<()> {
        let unit = &self.units.get(key.0 as usize).ok_or(gimli::Error::OffsetOutOfBounds)?.unit;
        let mut entries = unit.entries_raw(Some(gimli::UnitOffset(key.1 as usize)))?;
        let mut skip: Option<isize> = None;
        while !entries.is_empty() {
            let Some(die) = Die::next(&mut entries)? else {
                if entries.next_depth() <= 0 {
                    break;
                }
                continue;
            };
            if die.depth < 0 || (die.depth == 0 && die.offset != key.1 as usize) {
                break;
            }
            if skip.is_some_and(|depth| die.depth > depth) {
                continue;
            }
            skip = None;
            let (depth, children) = (die.depth, die.children);
            match each(die)? {
                Below::Stop => break,
                Below::Skip => skip = Some(depth),
                Below::Go => {}
            }
            if depth == 0 && !children {
                break;
            }
        }
        Ok(())
    }

    /// Returns the string of an attribute.
    pub(super) fn text(&self, unit: u32, value: &Option<gimli::AttributeValue<Bounded<'a>>>) -> Option<String> {
        let text = self.dwarf_of(unit).attr_string(&self.units[unit as usize].unit, *value.as_ref()?).ok()?;
        gimli::Reader::to_string_lossy(&text).ok().map(|text| text.into_owned())
    }
}

/// Whether a walk goes on.
pub(super) enum Below {
    /// With the children of the entry.
    Go,
    /// With its next sibling.
    Skip,
    /// Not at all.
    Stop,
}
