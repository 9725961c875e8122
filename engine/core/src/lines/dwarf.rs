//! The parsed debug information of one file, and the frames at an address.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, Dwarf, DwarfPackage, SectionId};
use self_cell::self_cell;
use typed_arena::Arena;

use super::elf::{Bytes, ElfFile};
use super::locate::Found;
use super::reader::{describe, Bounded, Limits};
use super::split::{package_of, parse_package, DwoFile, MAX_SPLIT};
use crate::symbols::demangle;

/// One call may have this many inlined functions around it. gcc and clang stop far below.
const MAX_FRAMES: usize = 256;

/// A function at an address, inlined or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name as written, without parameters. None where the debug information has none.
    pub function: Option<String>,
    /// The source file, as the compiler was given it, below the folder of compilation where it is relative.
    pub path: Option<String>,
    /// The line: of the address in the innermost frame, of the inlined call in the others. From 1 on.
    pub line: Option<u32>,
    /// The column, from 1 on.
    pub column: Option<u32>,
}

/// Everything that the parsed form borrows from.
struct Store {
    bytes: Arena<Bytes>,
    limits: Limits,
}

struct Parsed<'a> {
    context: Context<Bounded<'a>>,
    /// FILE.dwp: all .dwo files of a program in one.
    package: Option<DwarfPackage<Bounded<'a>>>,
}

self_cell!(
    struct Cell {
        owner: Store,
        #[not_covariant]
        dependent: Parsed,
    }
);

/// The debug information of one program or library.
pub(super) struct DebugInfo {
    cell: Cell,
    search: Search,
}

/// The search for .dwo files: each address may need another.
struct Search {
    /// The file with the skeletons.
    program: PathBuf,
    /// Bytes of .dwo files that may still be loaded.
    left: usize,
    /// .dwo files that could not be used, each told once.
    missing: HashSet<PathBuf>,
}

impl DebugInfo {
    /// Loads and indexes what was found. The error is a whole sentence. Runs on a stack of `stack` bytes.
    pub(super) fn load(found: &mut Found, program: Option<&Path>, stack: usize) -> Option<Result<DebugInfo, String>> {
        let mut debug = found.debug.take()?;
        let mut supplementary = found.supplementary.take();
        let package = package_of(program, &debug.path);
        let path = debug.path.clone();
        let store = Store { bytes: Arena::new(), limits: Limits::new() };
        store.limits.on_stack_of(stack);
        let cell = Cell::try_new(store, |store| -> Result<Parsed<'_>, String> {
            let mut dwarf = Dwarf::load(|id| load(store, &mut debug, Some(id.name()), id))?;
            if let Some(file) = &mut supplementary {
                dwarf.load_sup(|id| load(store, file, Some(id.name()), id))?;
            }
            // Units share tables of abbreviations: each is read once.
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
            let context = Context::from_dwarf(dwarf).map_err(describe)?;
            let package = package.and_then(|file| {
                let empty = Bounded::new(&[], file.endian, &store.limits);
                parse_package(file, empty, |file, name| load_any(store, file, name))
            });
            Ok(Parsed { context, package })
        });
        Some(match cell {
            Ok(cell) => {
                Ok(DebugInfo { cell, search: Search { program: path, left: MAX_SPLIT, missing: HashSet::new() } })
            }
            Err(why) => Err(format!("{}: {why}", path.display())),
        })
    }

    /// Returns the frames at an address of the file, innermost first: none where the debug information says nothing of it. Runs on a
    /// stack of `stack` bytes. `problems` gets what is missing.
    pub(super) fn frames(
        &mut self,
        address: u64,
        stack: usize,
        problems: &mut Vec<String>,
    ) -> Result<Vec<Frame>, String> {
        // addr2line adds 1.
        if address == u64::MAX {
            return Ok(Vec::new());
        }
        let search = &mut self.search;
        self.cell.with_dependent(|store, parsed| {
            store.limits.on_stack_of(stack);
            let mut lookup = parsed.context.find_frames(address);
            let mut frames = loop {
                match lookup {
                    LookupResult::Output(frames) => break frames.map_err(describe)?,
                    LookupResult::Load { load, continuation } => {
                        let dwo = split(store, parsed.package.as_ref(), &load, search, problems);
                        lookup = continuation.resume(dwo);
                    }
                }
            };
            let mut out = Vec::new();
            while let Some(frame) = frames.next().map_err(describe)? {
                if out.len() >= MAX_FRAMES {
                    return Err("the debug information nests its inlined functions too deeply".to_string());
                }
                let function = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                let location = frame.location.as_ref();
                out.push(Frame {
                    function: function.map(|name| demangle(&name).unwrap_or_else(|| name.into_owned())),
                    path: location.and_then(|l| l.file).map(str::to_owned),
                    line: location.and_then(|l| l.line),
                    column: location.and_then(|l| l.column).filter(|&column| column > 0),
                });
            }
            Ok(out)
        })
    }
}

/// Loads a section. Those that lookups do not need stay empty.
fn load<'a>(store: &'a Store, file: &mut ElfFile, name: Option<&str>, id: SectionId) -> Result<Bounded<'a>, String> {
    let needed = matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    );
    load_any(store, file, name.filter(|_| needed))
}

/// Loads a section of that name; an empty one where the name is None.
fn load_any<'a>(store: &'a Store, file: &mut ElfFile, name: Option<&str>) -> Result<Bounded<'a>, String> {
    let bytes: &'a [u8] = match name {
        Some(name) => store.bytes.alloc(file.load(name)?),
        None => &[],
    };
    store.limits.allow(bytes.len());
    Ok(Bounded::new(bytes, file.endian, &store.limits))
}

/// Loads the debug information that a unit left in a .dwo file. None where it is not there.
fn split<'a>(
    store: &'a Store,
    package: Option<&DwarfPackage<Bounded<'a>>>,
    wanted: &SplitDwarfLoad<Bounded<'a>>,
    search: &mut Search,
    problems: &mut Vec<String>,
) -> Option<Arc<Dwarf<Bounded<'a>>>> {
    if let Some(unit) = package.and_then(|package| package.find_cu(wanted.dwo_id, &wanted.parent).ok()?) {
        return Some(Arc::new(unit));
    }
    let folder = wanted.comp_dir.map(|folder| folder.bytes());
    let dwo = DwoFile { folder, name: wanted.path?.bytes(), id: wanted.dwo_id };
    if search.missing.contains(&dwo.path()) {
        return None;
    }
    let loaded = dwo.open(&search.program, &wanted.parent, |file, name, id| {
        let section = load(store, file, name, id)?;
        search.left = search.left.checked_sub(section.bytes().len()).ok_or("there are too many of them")?;
        Ok(section)
    });
    match loaded {
        Ok(dwarf) => Some(Arc::new(dwarf)),
        Err(why) => {
            problems.push(format!("{}: {why}: its functions have no names", dwo.path().display()));
            search.missing.insert(dwo.path());
            None
        }
    }
}
