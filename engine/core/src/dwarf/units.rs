//! The units of a module: in the program, in the file that dwz made, and in .dwo and .dwp files.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::constants as l;
use gimli::{Abbreviations, AttributeValue, Dwarf, DwarfPackage, DwoId, Section, Unit, UnitHeader, UnitSectionOffset};

use crate::lines::{describe, Bounded, DwoFile, ElfFile, MAX_SPLIT, OTHER_BUILD};

/// Units of a module.
const MOST_UNITS: usize = 1 << 20;

/// The sections that a unit stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Home {
    /// Those of the program, or of its separate debug information.
    Program,
    /// Those of the file that dwz made.
    Supplementary,
    /// Those of a .dwo file, or its part of a .dwp file, by their number.
    Split(u32),
}

/// A unit, and where its entries stand.
pub(super) struct UnitAt<'a> {
    pub(super) home: Home,
    /// It stands in `.debug_types` of DWARF 4.
    pub(super) of_types: bool,
    /// Where its header begins in its section, and where the unit ends.
    pub(super) start: usize,
    pub(super) end: usize,
    /// For a type unit: its signature, and where the type is.
    pub(super) signature: Option<(u64, usize)>,
    pub(super) header: UnitHeader<Bounded<'a>>,
    /// Opened when it is first asked.
    pub(super) ready: OnceCell<gimli::Result<Ready<'a>>>,
}

/// An opened unit.
pub(super) struct Ready<'a> {
    /// It has no line table.
    pub(super) unit: Unit<Bounded<'a>>,
    /// It is of the C language: types have the names "struct foo".
    pub(super) c: bool,
    /// It is of the C++ language.
    pub(super) cxx: bool,
}

/// Tables of abbreviations by their place. Units share them.
#[derive(Default)]
pub(super) struct Tables(RefCell<HashMap<(usize, usize), Arc<Abbreviations>>>);

/// When units are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// All at once. Those whose entries lie in .dwo files are replaced by what is there.
    Now,
    /// Each when it is first asked. The file is known to have no parts in .dwo files.
    Asked,
}

type Sections<'a> = Dwarf<Bounded<'a>>;
/// Units whose entries lie in a .dwo file, by their number.
type Skeletons<'s, 'a> = HashMap<u64, &'s Unit<Bounded<'a>>>;

/// The units of a module.
pub(super) struct Found<'a> {
    pub(super) units: Vec<UnitAt<'a>>,
    /// The sections of the split ones.
    pub(super) split: Vec<Sections<'a>>,
    /// Units have their entries in .dwo files, whether these were found or not.
    pub(super) has_skeletons: bool,
}

/// Returns the units of a module. `load` loads a section of a .dwo file. `problems` gets what is missing.
pub(super) fn units_of<'a>(
    dwarf: &Sections<'a>,
    package: Option<DwarfPackage<Bounded<'a>>>,
    (path, tables, when): (&Path, &Tables, When),
    problems: &mut Vec<String>,
    load: impl FnMut(&mut ElfFile, Option<&str>) -> Result<Bounded<'a>, String>,
) -> Result<Found<'a>, String> {
    let mut units = Units::new(tables, when);
    units.take(Home::Program, dwarf, &HashMap::new())?;
    if let Some(sup) = dwarf.sup() {
        units.take(Home::Supplementary, sup, &HashMap::new())?;
    }
    let mut search = Search { program: path, dwarf, package, load, left: MAX_SPLIT, read: HashSet::new() };
    let (skeletons, mut split, mut first) = (std::mem::take(&mut units.skeletons), Vec::new(), None);
    let all: Skeletons<'_, '_> = skeletons.iter().filter_map(|unit| Some((unit.dwo_id?.0, unit))).collect();
    for (id, skeleton) in skeletons.iter().filter_map(|unit| Some((unit.dwo_id?, unit))) {
        if units.taken.contains(&id.0) {
            continue; // an earlier unit's file has it, too
        }
        match search.sections(id, skeleton) {
            Ok(sections) => units.take_split(&mut split, sections, &all)?,
            Err(why) => _ = first.get_or_insert(why),
        }
    }
    if let Some(package) = search.package.take().filter(|_| !units.taken.is_empty()) {
        for row in 1..=package.tu_index.unit_count() {
            match package.tu_sections(row, dwarf) {
                Ok(sections) => units.take_split(&mut split, sections, &all)?,
                Err(error) => units.damaged = Some(error),
            }
        }
    }
    let name = path.display();
    if let Some(first) = first {
        let (missing, all) = (all.len() - units.taken.len(), all.len());
        problems.push(format!("{name}: {missing} of {all} units have no types: they lie in .dwo files ({first})"));
    }
    if let Some(error) = units.damaged {
        problems.push(format!("{name}: {}", describe(error)));
    }
    Ok(Found { units: units.found, split, has_skeletons: !skeletons.is_empty() })
}

/// The units found so far.
struct Units<'t, 'a> {
    found: Vec<UnitAt<'a>>,
    skeletons: Vec<Unit<Bounded<'a>>>,
    /// Those whose entries were found.
    taken: HashSet<u64>,
    tables: &'t Tables,
    when: When,
    damaged: Option<gimli::Error>,
}

impl<'t, 'a> Units<'t, 'a> {
    fn new(tables: &'t Tables, when: When) -> Units<'t, 'a> {
        let (found, skeletons, taken) = (Vec::new(), Vec::new(), HashSet::new());
        Units { found, skeletons, taken, tables, when, damaged: None }
    }

    fn take_split(
        &mut self,
        homes: &mut Vec<Sections<'a>>,
        sections: Sections<'a>,
        skeletons: &Skeletons<'_, 'a>,
    ) -> Result<(), String> {
        self.take(Home::Split(homes.len() as u32), &sections, skeletons)?;
        homes.push(sections);
        Ok(())
    }

    /// Takes all units of these sections; of split ones, those of the skeletons, and type units.
    fn take(&mut self, home: Home, dwarf: &Sections<'a>, skeletons: &Skeletons<'_, 'a>) -> Result<(), String> {
        let (mut headers, mut more) = (dwarf.units(), dwarf.type_units());
        loop {
            let header = match headers.next().and_then(|header| header.map_or_else(|| more.next(), |h| Ok(Some(h)))) {
                Ok(Some(header)) => header,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.damaged = Some(error);
                    return Ok(());
                }
            };
            if self.found.len() >= MOST_UNITS {
                return Err("it has too many units".to_string());
            }
            let (start, of_types) = match header.offset() {
                UnitSectionOffset::DebugInfoOffset(at) => (at.0, false),
                UnitSectionOffset::DebugTypesOffset(at) => (at.0, true),
            };
            let end = start.saturating_add(header.length_including_self());
            let signature = match header.type_() {
                gimli::UnitType::Type { type_signature, type_offset }
                | gimli::UnitType::SplitType { type_signature, type_offset } => Some((type_signature.0, type_offset.0)),
                _ => None,
            };
            let mut unit = UnitAt { home, of_types, start, end, signature, header, ready: OnceCell::new() };
            if self.when == When::Now {
                match self.tables.open(dwarf, header) {
                    Ok(mut ready) => {
                        let Some(id) = ready.unit.dwo_id else {
                            // A .dwo file has one unit that is not of a type: that with the number.
                            if !matches!(home, Home::Split(_)) || signature.is_some() {
                                unit.ready = OnceCell::from(Ok(ready));
                                self.found.push(unit);
                            }
                            continue;
                        };
                        if !matches!(home, Home::Split(_)) {
                            self.skeletons.push(ready.unit);
                            continue;
                        }
                        let Some(skeleton) = skeletons.get(&id.0).filter(|_| self.taken.insert(id.0)) else { continue };
                        ready.unit.copy_relocated_attributes(skeleton);
                        unit.ready = OnceCell::from(Ok(ready));
                    }
                    Err(gimli::Error::TooManyIterations) => return Err(describe(gimli::Error::TooManyIterations)),
                    Err(error) => {
                        self.damaged = Some(error);
                        unit.ready = OnceCell::from(Err(error));
                    }
                }
            }
            self.found.push(unit);
        }
    }
}

impl Tables {
    /// Opens a unit without its line table: thousands of units may share one, and nothing here needs it.
    pub(super) fn open<'a>(&self, dwarf: &Sections<'a>, header: UnitHeader<Bounded<'a>>) -> gimli::Result<Ready<'a>> {
        let (encoding, file) = (header.encoding(), dwarf.file_type);
        let dwo_id = match header.type_() {
            gimli::UnitType::Skeleton(id) | gimli::UnitType::SplitCompilation(id) => Some(id),
            _ => None,
        };
        let mut unit = Unit {
            abbreviations: self.abbreviations(dwarf, &header)?,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file),
            line_program: None,
            dwo_id,
            header,
        };
        // What needs the bases is read when they are known: they may follow it.
        let (mut folder, mut low, mut language) = (None, None, None);
        let mut entries = unit.header.entries(&unit.abbreviations);
        entries.next_dfs()?;
        let mut attributes = entries.current().ok_or(gimli::Error::MissingUnitDie)?.attrs();
        while let Some(attribute) = attributes.next()? {
            match (attribute.name(), attribute.value()) {
                (l::DW_AT_comp_dir, value) => folder = Some(value),
                (l::DW_AT_low_pc, value) => low = Some(value),
                (l::DW_AT_language, AttributeValue::Language(value)) => language = Some(value),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugLocListsBase(base)) => unit.loclists_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                (l::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => unit.dwo_id = unit.dwo_id.or(Some(id)),
                _ => {}
            }
        }
        unit.comp_dir = folder.and_then(|folder| dwarf.attr_string(&unit, folder).ok());
        unit.low_pc = low.map_or(Ok(None), |low| dwarf.attr_address(&unit, low))?.unwrap_or(0);
        let c =
            matches!(language, Some(l::DW_LANG_C | l::DW_LANG_C89 | l::DW_LANG_C99 | l::DW_LANG_C11 | l::DW_LANG_C17));
        let cxx = matches!(
            language,
            Some(
                l::DW_LANG_C_plus_plus
                    | l::DW_LANG_C_plus_plus_03
                    | l::DW_LANG_C_plus_plus_11
                    | l::DW_LANG_C_plus_plus_14
                    | l::DW_LANG_C_plus_plus_17
                    | l::DW_LANG_C_plus_plus_20
            )
        );
        Ok(Ready { unit, c, cxx })
    }

    fn abbreviations<'a>(
        &self,
        dwarf: &Sections<'a>,
        header: &UnitHeader<Bounded<'a>>,
    ) -> gimli::Result<Arc<Abbreviations>> {
        let table = (dwarf.debug_abbrev.reader().bytes().as_ptr() as usize, header.debug_abbrev_offset().0);
        if let Some(known) = self.0.borrow().get(&table) {
            return Ok(known.clone());
        }
        let read = dwarf.abbreviations(header)?;
        self.0.borrow_mut().insert(table, read.clone());
        Ok(read)
    }
}

/// The search for the sections of split units.
struct Search<'s, 'a, L> {
    /// The file with the skeletons, and its sections.
    program: &'s Path,
    dwarf: &'s Sections<'a>,
    package: Option<DwarfPackage<Bounded<'a>>>,
    load: L,
    /// Bytes of .dwo files that may still be loaded.
    left: usize,
    /// Files that were read. Link-time optimization puts several units into one.
    read: HashSet<PathBuf>,
}

impl<'a, L: FnMut(&mut ElfFile, Option<&str>) -> Result<Bounded<'a>, String>> Search<'_, 'a, L> {
    /// Returns the sections that a skeleton stands for. The error names the file.
    fn sections(&mut self, id: DwoId, skeleton: &Unit<Bounded<'a>>) -> Result<Sections<'a>, String> {
        if let Some(found) = self.package.as_ref().and_then(|package| package.find_cu(id, self.dwarf).ok()?) {
            return Ok(found);
        }
        let name = skeleton.dwo_name().map_err(describe)?.ok_or("one without a name")?;
        let name = self.dwarf.attr_string(skeleton, name).map_err(describe)?;
        let dwo = DwoFile { folder: skeleton.comp_dir.as_ref().map(Bounded::bytes), name: name.bytes(), id };
        if !self.read.insert(dwo.path()) {
            return Err(format!("{}: {OTHER_BUILD}", dwo.path().display()));
        }
        let (load, left) = (&mut self.load, &mut self.left);
        let opened = dwo.open(self.program, self.dwarf, |file, name, _| {
            let section = load(file, name)?;
            *left = left.checked_sub(section.bytes().len()).ok_or("there are too many of them")?;
            Ok(section)
        });
        opened.map_err(|why| format!("{}: {why}", dwo.path().display()))
    }
}
