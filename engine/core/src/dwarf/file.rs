//! The debug information of one module, parsed and indexed when it is first asked.

use std::cell::RefCell;
use std::path::Path;

use gimli::Dwarf;
use self_cell::self_cell;
use typed_arena::Arena;

use super::die::{Die, Reference};
use super::units::{units_of, Found, Home, Ready, Tables, UnitAt, When};
use super::walk::{walk, Below};
use crate::lines::{find_debug_file, package_of, parse_package, Bounded, Bytes, ElfFile, Limits, Wanted};

/// The work that types may need beyond what lines need: each entry is read for the index, for its type, and for its name;
/// twice more where names lack the arguments of their templates.
const TIMES: usize = 6;

/// Bytes of units whose memory is not given back while others are looked at.
const MOST_AT_ONCE: usize = 32 << 20;

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

    /// Returns the work that parsing took so far.
    pub(super) fn work(&self) -> u64 {
        self.limits.done()
    }
}

/// The parsed sections.
pub(super) struct Parsed<'a> {
    pub(super) dwarf: Dwarf<Bounded<'a>>,
    /// The sections of split units.
    pub(super) split: Vec<Dwarf<Bounded<'a>>>,
    /// Sorted by their home, then by whether they are in .debug_types, then by their start.
    pub(super) units: Vec<UnitAt<'a>>,
    /// Units have their entries in .dwo files, whether these were found or not.
    pub(super) has_skeletons: bool,
    tables: Tables,
    /// The sections.
    loaded: Vec<&'a Bytes>,
    /// The unit that was looked at last, and the bytes of units since memory was given back.
    passed: std::cell::Cell<(u32, usize)>,
}

self_cell!(
    pub(super) struct Cell {
        owner: Store,
        #[not_covariant]
        dependent: Parsed,
    }
);

/// The files with the debug information of a module.
pub(super) struct Files {
    debug: ElfFile,
    supplementary: Option<ElfFile>,
    package: Option<ElfFile>,
}

impl Files {
    /// Searches for the files. None: the module has no debug information. `problems` gets what is missing.
    pub(super) fn find(wanted: &Wanted, problems: &mut Vec<String>) -> Option<Files> {
        let mut found = find_debug_file(wanted);
        problems.append(&mut found.problems);
        let debug = found.debug?;
        let package = package_of(wanted.path.as_deref(), &debug.path);
        Some(Files { debug, supplementary: found.supplementary, package })
    }

    /// The path of the file that has the most.
    pub(super) fn path(&self) -> &Path {
        &self.debug.path
    }

    /// Returns what tells these files from all others, and their bytes of debug information as they are stored. None: parts of it
    /// lie in further files.
    pub(super) fn identity(&self) -> Option<(String, u64)> {
        let files = [Some(&self.debug), self.supplementary.as_ref()];
        let stamps: Option<Vec<String>> = files.into_iter().flatten().map(ElfFile::stamp).collect();
        let stored = self.debug.stored() + self.supplementary.as_ref().map_or(0, ElfFile::stored);
        self.package.is_none().then_some((stamps?.join(" "), stored))
    }

    /// Parses the files.
    pub(super) fn parse(mut self, stack: usize, when: When, problems: &mut Vec<String>) -> Result<Cell, String> {
        let path = self.debug.path.clone();
        let store = Store { bytes: Arena::new(), limits: Limits::new() };
        store.limits.on_stack_of(stack);
        let cell = Cell::try_new(store, |store| -> Result<Parsed<'_>, String> {
            let loaded = RefCell::new(Vec::new());
            let load = |file: &mut ElfFile, name: Option<&str>| load(store, &loaded, file, name);
            let mut dwarf = Dwarf::load(|id| load(&mut self.debug, Some(id.name())))?;
            if let Some(file) = &mut self.supplementary {
                dwarf.load_sup(|id| load(file, Some(id.name())))?;
            }
            let package = self.package.take().and_then(|file| {
                let empty = Bounded::new(&[], file.endian, &store.limits);
                parse_package(file, empty, load)
            });
            let tables = Tables::default();
            let how = (&*path, &tables, when);
            let Found { units, split, has_skeletons } = units_of(&dwarf, package, how, problems, load)?;
            let (loaded, passed) = (loaded.into_inner(), std::cell::Cell::default());
            Ok(Parsed { dwarf, split, units, has_skeletons, tables, loaded, passed })
        });
        cell.map_err(|why| format!("{}: {why}", path.display()))
    }
}

/// Loads a section of that name; an empty one where the name is None.
fn load<'a>(
    store: &'a Store,
    loaded: &RefCell<Vec<&'a Bytes>>,
    file: &mut ElfFile,
    name: Option<&str>,
) -> Result<Bounded<'a>, String> {
    // Nothing here needs these sections. (A unit of a .dwo file is opened with its line table.)
    let bytes: &'a [u8] = match name {
        None | Some(".debug_aranges" | ".debug_frame" | ".debug_line" | ".debug_names") => &[],
        Some(".debug_macinfo" | ".debug_macro" | ".debug_macinfo.dwo" | ".debug_macro.dwo") => &[],
        Some(name) => {
            let bytes: &'a Bytes = store.bytes.alloc(file.load(name)?);
            loaded.borrow_mut().push(bytes);
            bytes
        }
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

    /// Returns a unit, opened.
    pub(super) fn unit(&self, number: u32) -> gimli::Result<&Ready<'a>> {
        let found = self.units.get(number as usize).ok_or(gimli::Error::OffsetOutOfBounds)?;
        let opened = found.ready.get_or_init(|| self.tables.open(self.dwarf_of(number), found.header));
        opened.as_ref().map_err(|&error| error)
    }

    /// Says that a pass over the units has come to this one. The memory of the earlier ones is given back from time to time: the
    /// sections of a large program have a gigabyte.
    pub(super) fn comes_to(&self, unit: u32) {
        let (last, mut bytes) = self.passed.get();
        if unit != last {
            bytes += self.units.get(last as usize).map_or(0, |unit| unit.end - unit.start);
            if bytes > MOST_AT_ONCE {
                self.loaded.iter().for_each(|section| section.release());
                bytes = 0;
            }
            self.passed.set((unit, bytes));
        }
    }

    /// Returns the entry of a unit itself.
    pub(super) fn top(&self, number: u32) -> Key {
        (number, self.units.get(number as usize).map_or(0, |unit| unit.header.header_size() as u32))
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
        let unit = &self.unit(key.0)?.unit;
        let mut entries = unit.entries_raw(Some(gimli::UnitOffset(key.1 as usize)))?;
        Die::next(&mut entries)
    }

    /// Calls `each` for the entry and for all entries below it, until it says otherwise. Their depths count from the entry's, 0.
    pub(super) fn below(&self, key: Key, each: impl FnMut(Die<'a>) -> gimli::Result<Below>) -> gimli::Result<()> {
        self.below_of(key, |_, _| true, each)
    }

    /// The same, for the entry and those below it that are wanted: see [`walk`].
    pub(super) fn below_of(
        &self,
        key: Key,
        wanted: impl Fn(gimli::DwTag, bool) -> bool,
        each: impl FnMut(Die<'a>) -> gimli::Result<Below>,
    ) -> gimli::Result<()> {
        walk(&self.unit(key.0)?.unit, key.1 as usize, wanted, each)
    }

    /// Returns the string of an attribute.
    pub(super) fn text(&self, unit: u32, value: &Option<gimli::AttributeValue<Bounded<'a>>>) -> Option<String> {
        let text = self.dwarf_of(unit).attr_string(&self.unit(unit).ok()?.unit, *value.as_ref()?).ok()?;
        gimli::Reader::to_string_lossy(&text).ok().map(|text| text.into_owned())
    }
}
