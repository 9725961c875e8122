//! The units of a module: in the program, in the file that dwz made, and in .dwo and .dwp files.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::constants as l;
use gimli::{
    Abbreviations, AbbreviationsCacheStrategy, AttributeValue, Dwarf, DwarfPackage, DwoId, Section, Unit,
    UnitSectionOffset,
};

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
    /// It is of the C language: types have the names "struct foo".
    pub(super) c: bool,
    /// It is of the C++ language.
    pub(super) cxx: bool,
    /// For a type unit: its signature, and where the type is.
    pub(super) signature: Option<(u64, usize)>,
    pub(super) unit: Unit<Bounded<'a>>,
}

type Sections<'a> = Dwarf<Bounded<'a>>;
/// Units whose entries lie in a .dwo file, by their number.
type Skeletons<'s, 'a> = HashMap<u64, &'s Unit<Bounded<'a>>>;

/// Returns the units of a module, and the sections of the split ones. `load` loads a section of a .dwo file. `problems` gets what
/// is missing.
pub(super) fn units_of<'a>(
    dwarf: &Sections<'a>,
    package: Option<DwarfPackage<Bounded<'a>>>,
    path: &Path,
    problems: &mut Vec<String>,
    load: impl FnMut(&mut ElfFile, Option<&str>) -> Result<Bounded<'a>, String>,
) -> Result<(Vec<UnitAt<'a>>, Vec<Sections<'a>>), String> {
    let mut units = Units::default();
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
    Ok((units.found, split))
}

/// The units found so far.
#[derive(Default)]
struct Units<'a> {
    found: Vec<UnitAt<'a>>,
    skeletons: Vec<Unit<Bounded<'a>>>,
    /// Those whose entries were found.
    taken: HashSet<u64>,
    /// Tables of abbreviations in a .dwp file, by their place: its type units share them.
    abbreviations: HashMap<(usize, usize), Arc<Abbreviations>>,
    damaged: Option<gimli::Error>,
}

impl<'a> Units<'a> {
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
            let opened = if signature.is_some() { self.type_unit(dwarf, header) } else { dwarf.unit(header) };
            let mut unit = match opened {
                Ok(unit) => unit,
                Err(gimli::Error::TooManyIterations) => return Err(describe(gimli::Error::TooManyIterations)),
                Err(error) => {
                    self.damaged = Some(error);
                    continue;
                }
            };
            match (home, unit.dwo_id) {
                (Home::Split(_), Some(id)) => match skeletons.get(&id.0).filter(|_| self.taken.insert(id.0)) {
                    Some(skeleton) => unit.copy_relocated_attributes(skeleton),
                    None => continue,
                },
                (Home::Split(_), None) if signature.is_none() => continue,
                (Home::Program | Home::Supplementary, Some(_)) => {
                    self.skeletons.push(unit);
                    continue;
                }
                _ => {}
            }
            let language = language(&unit);
            let c = matches!(
                language,
                Some(l::DW_LANG_C | l::DW_LANG_C89 | l::DW_LANG_C99 | l::DW_LANG_C11 | l::DW_LANG_C17)
            );
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
            self.found.push(UnitAt { home, of_types, start, end, c, cxx, signature, unit });
        }
    }

    /// Opens a type unit. Thousands of them share the line table of one program, and none needs it.
    fn type_unit(
        &mut self,
        dwarf: &Sections<'a>,
        header: gimli::UnitHeader<Bounded<'a>>,
    ) -> gimli::Result<Unit<Bounded<'a>>> {
        let (encoding, file) = (header.encoding(), dwarf.file_type);
        let table = (dwarf.debug_abbrev.reader().bytes().as_ptr() as usize, header.debug_abbrev_offset().0);
        let abbreviations = match self.abbreviations.get(&table) {
            Some(known) => known.clone(),
            None => self.abbreviations.entry(table).or_insert(dwarf.abbreviations(&header)?).clone(),
        };
        let mut unit = Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file),
            line_program: None,
            dwo_id: None,
            header,
        };
        let mut base = None;
        let mut entries = unit.entries();
        if entries.next_dfs()?.is_some() {
            base = entries.current().ok_or(gimli::Error::MissingUnitDie)?.attr_value(l::DW_AT_str_offsets_base)?;
        }
        if let Some(AttributeValue::DebugStrOffsetsBase(base)) = base {
            unit.str_offsets_base = base;
        }
        Ok(unit)
    }
}

fn language(unit: &Unit<Bounded<'_>>) -> Option<gimli::DwLang> {
    let mut entries = unit.entries();
    entries.next_dfs().ok()?;
    match entries.current()?.attr_value(l::DW_AT_language).ok()?? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
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
        let mut opened = opened.map_err(|why| format!("{}: {why}", dwo.path().display()))?;
        opened.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Ok(opened)
    }
}
