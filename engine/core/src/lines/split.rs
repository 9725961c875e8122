//! Split DWARF: the .dwo file of a unit, and FILE.dwp, which has those of all units of a program.
//!
//! The program itself keeps a skeleton of each unit, which names the .dwo file (DWARF 5, 3.1.2; GNU's form of DWARF 4 before).

use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfPackage, DwoId, SectionId};

use super::elf::{path_of, ElfFile};
use super::reader::{describe, Bounded};

/// All .dwo files of a program together: there may be thousands.
pub(crate) const MAX_SPLIT: usize = 1 << 30;
pub(crate) const OTHER_BUILD: &str = "it belongs to another build";

/// Opens FILE.dwp, which lies beside the program or beside its debug information.
pub(crate) fn package_of(program: Option<&Path>, debug: &Path) -> Option<ElfFile> {
    let beside = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".dwp");
        ElfFile::open_unlinked(Path::new(&name)).ok()
    };
    program.and_then(beside).or_else(|| beside(debug))
}

/// Parses FILE.dwp. `load` loads a section by its name; all are needed: the index cuts a part for each unit out of each.
pub(crate) fn parse_package<'a>(
    mut file: ElfFile,
    empty: Bounded<'a>,
    mut load: impl FnMut(&mut ElfFile, Option<&str>) -> Result<Bounded<'a>, String>,
) -> Option<DwarfPackage<Bounded<'a>>> {
    let load = |id: SectionId| load(&mut file, id.dwo_name()).map_err(|_| gimli::Error::Io);
    DwarfPackage::load(load, empty).ok()
}

/// A unit's .dwo file: where it was made, the name that it got there, and the unit's number.
pub(crate) struct DwoFile<'n> {
    pub(crate) folder: Option<&'n [u8]>,
    pub(crate) name: &'n [u8],
    pub(crate) id: DwoId,
}

impl DwoFile<'_> {
    /// Returns the path that the compiler wrote.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.folder.map(path_of).unwrap_or_default();
        path.push(path_of(self.name));
        path
    }

    /// Returns the first of the paths where it may be that is a file: where the compiler put it, or beside `program`. If none is,
    /// returns the first.
    fn place(&self, program: &Path) -> PathBuf {
        let (first, name) = (self.path(), path_of(self.name));
        if first.exists() {
            return first;
        }
        let folder = program.parent().unwrap_or(Path::new(""));
        let short = name.file_name().map(|name| folder.join(name));
        let others = [Some(folder.join(&name)), short];
        others.into_iter().flatten().find(|path| path.exists()).unwrap_or(first)
    }

    /// Opens and parses the file. `program` is the file with the skeleton, `parent` its sections. The error is a phrase that does
    /// not name the file.
    pub(crate) fn open<'a>(
        &self,
        program: &Path,
        parent: &Dwarf<Bounded<'a>>,
        mut load: impl FnMut(&mut ElfFile, Option<&str>, SectionId) -> Result<Bounded<'a>, String>,
    ) -> Result<Dwarf<Bounded<'a>>, String> {
        let mut file = ElfFile::open_unlinked(&self.place(program))?;
        let mut dwarf = Dwarf::load(|id| load(&mut file, id.dwo_name(), id))?;
        dwarf.make_dwo(parent);
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().map_err(describe)? {
            if matches!(header.type_(), gimli::UnitType::SplitType { .. } | gimli::UnitType::Type { .. }) {
                continue;
            }
            if dwarf.unit(header).map_err(describe)?.dwo_id == Some(self.id) {
                return Ok(dwarf);
            }
        }
        Err(OTHER_BUILD.to_string())
    }
}
