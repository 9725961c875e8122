//! What is asked of the debug information of the modules of a process.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;

use super::file::{Cell, Files, Key, Parsed};
use super::identity::From;
use super::index::Index;
use super::kept::Folder;
use super::locals::{locals, needs_line, FrameAt, Local, Read};
use super::model::{plain, Form, Id, Types, VOID};
use super::names::{hash_of_name, hash_of_template};
use super::places::Stored;
use super::read::{Declared, Reader};
use super::table::Table;
use super::units::When;
use crate::lines::{describe, Wanted};
use crate::symbols::demangle;

/// Stack that must be free while debug information is read. Nothing here recurses.
const STACK: usize = 1 << 20;
/// Types of one name that are looked at. The same type may be in many units.
const MOST_OF_NAME: usize = 1 << 16;
/// Problems that are told of one module.
const MOST_PROBLEMS: usize = 8;

/// Where a variable is, in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory.
    At(u64),
    /// At this offset of the thread-local memory of the module.
    Thread(u64),
    /// In a register, or computed: the value itself.
    Value(u64),
}

/// A variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name, with its namespace or function.
    pub name: String,
    /// Its type.
    pub kind: Id,
    /// Where it is.
    pub place: Place,
    /// The register that it is in, by DWARF's number, if it is in one.
    pub register: Option<u16>,
    /// The inlined function that has it, if the frame's own function has not.
    pub function: Option<String>,
}

/// A program or library with debug information.
struct Module {
    wanted: Wanted,
    path: PathBuf,
    bias: u64,
    table: Table,
    /// What frames need. It is opened when one asks.
    open: Option<Open>,
    /// The work of parsing that is over.
    work: u64,
    problems: Vec<String>,
}

/// The parsed debug information of a module, and the types that were read from it for frames.
struct Open {
    cell: Cell,
    index: Index,
    reader: Reader,
}

/// The debug information of the modules of a process, and the types that were read from it.
pub struct DebugTypes {
    modules: Vec<Option<Module>>,
    /// The types.
    pub types: Types,
    problems: Vec<String>,
    /// Types that are only declared.
    incomplete: Vec<Declared>,
    /// Where tables are kept.
    folder: Option<Folder>,
}

impl DebugTypes {
    /// Makes it for a process whose pointers have `word` bytes. What is read is kept in `folder`.
    pub fn new(word: u64, folder: Option<Folder>) -> DebugTypes {
        let (modules, problems, incomplete) = (Vec::new(), Vec::new(), Vec::new());
        DebugTypes { modules, types: Types::new(word), problems, incomplete, folder }
    }

    /// Opens the debug information of a module, if there is any. Returns the module's number.
    pub fn open(
        &mut self,
        path: Option<PathBuf>,
        roots: Vec<PathBuf>,
        build_id: Option<Vec<u8>>,
        bias: u64,
    ) -> Option<usize> {
        let wanted = Wanted { path, roots, build_id: build_id.filter(|id| !id.is_empty()) };
        let mut problems = Vec::new();
        let (folder, word) = (self.folder.as_ref(), self.types.word);
        let made = catch_unwind(AssertUnwindSafe(|| {
            let Some(files) = Files::find(&wanted, &mut problems) else { return Ok(None) };
            let path = files.path().to_path_buf();
            let place = folder.and_then(|folder| folder.place(&files, wanted.build_id.as_deref(), word));
            if let Some(table) = place.as_ref().and_then(|place| place.load()) {
                return Ok(Some((path, table, None, 0)));
            }
            let mut damage = Vec::new();
            let cell = files.parse(STACK, When::Now, &mut damage)?;
            let (mut table, index) = cell.with_dependent(|_, parsed| Table::read(parsed, word));
            let own = std::mem::take(&mut table.problems).into_iter().map(|why| format!("{}: {why}", path.display()));
            table.problems = damage.into_iter().chain(own).take(MOST_PROBLEMS).collect();
            if let Some(place) = place.filter(|_| !table.needs_all_units) {
                place.store(&table);
            }
            if table.needs_all_units {
                return Ok(Some((path, table, Some(Open { cell, index, reader: Reader::default() }), 0)));
            }
            // Frames need one unit each, and all that was found in the others takes much memory.
            let work = cell.with_dependent(|store, _| store.work());
            Ok(Some((path, table, None, work)))
        }));
        let found = match made {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => {
                problems.push(why);
                None
            }
            Err(_) => {
                let path = wanted.path.clone().unwrap_or_default();
                problems.push(format!("{}: its debug information is damaged (the parser failed)", path.display()));
                None
            }
        };
        let module = found.map(|(path, mut table, open, work)| {
            table.adopt(&mut self.types);
            problems.append(&mut table.problems);
            Module { wanted, path, bias, table, open, work, problems: Vec::new() }
        });
        self.problems.extend(problems.into_iter().take(MOST_PROBLEMS));
        self.modules.push(Some(module?));
        Some(self.modules.len() - 1)
    }

    /// Returns what was wrong, as sentences.
    pub fn problems(&self) -> Vec<String> {
        let of_modules = self.modules.iter().flatten().flat_map(|module| module.problems.iter());
        self.problems.iter().chain(of_modules).cloned().collect()
    }

    /// Returns the work that parsing took, in all modules. It does not depend on the machine; what was kept takes none.
    pub fn parsing_work(&self) -> u64 {
        let of_frames = |open: &Open| open.cell.with_dependent(|store, _| store.work());
        self.modules.iter().flatten().map(|module| module.work + module.open.as_ref().map_or(0, of_frames)).sum()
    }

    /// Does `work` with the parsed debug information of a module. A module whose parser fails is left out from then on.
    fn with<T>(&mut self, number: usize, work: impl FnOnce(&mut Open, u64, &mut Types) -> T) -> Option<T> {
        let module = self.modules.get_mut(number)?.as_mut()?;
        let types = &mut self.types;
        let done = catch_unwind(AssertUnwindSafe(|| {
            if module.open.is_none() {
                module.open = Some(open_for_frames(&module.wanted)?);
            }
            let open = module.open.as_mut()?;
            open.cell.with_dependent(|store, _| store.limits_on_stack(STACK));
            Some(work(open, module.bias, types))
        }));
        match done {
            Ok(value) => {
                if let Some(error) = module.open.as_mut().and_then(|open| open.reader.failed.take()) {
                    let problem = format!("{}: {}", module.path.display(), describe(error));
                    if !module.problems.contains(&problem) && module.problems.len() < MOST_PROBLEMS {
                        module.problems.push(problem);
                    }
                }
                value
            }
            Err(_) => {
                let path = module.path.display();
                self.problems.push(format!("{path}: its debug information is damaged (the parser failed)"));
                self.modules[number] = None;
                None
            }
        }
    }

    /// Returns the global and static variables of a module, with their types.
    pub fn variables(&mut self, number: usize) -> Vec<Variable> {
        self.complete(number);
        let Some(Some(module)) = self.modules.get(number) else { return Vec::new() };
        let variable = |global: &super::table::Global| {
            let place = match global.stored {
                Stored::At(address) => Place::At(address.wrapping_add(module.bias)),
                Stored::Thread(offset) => Place::Thread(offset),
            };
            Variable { name: global.name.clone(), kind: global.kind, place, register: None, function: None }
        };
        module.table.globals.iter().map(variable).collect()
    }

    /// Returns whether [`DebugTypes::locals`] needs the source line of a pc.
    pub fn needs_line(&mut self, number: usize, pc: u64) -> bool {
        let Some(Some(module)) = self.modules.get(number) else { return false };
        let Some(function) = module.table.function_at(pc.wrapping_sub(module.bias)) else { return false };
        let needs =
            |open: &mut Open, _, _: &mut Types| open.cell.with_dependent(|_, parsed| needs_line(parsed, function));
        self.with(number, needs).unwrap_or(false)
    }

    /// Returns the variables of a frame that have a place at its pc.
    pub fn locals(&mut self, number: usize, frame: &FrameAt, read: Read<'_>) -> Vec<Variable> {
        let Some(Some(module)) = self.modules.get(number) else { return Vec::new() };
        let Some(function) = module.table.function_at(frame.pc.wrapping_sub(module.bias)) else { return Vec::new() };
        let found = self.with(number, |open, bias, types| {
            let Open { cell, index, reader } = open;
            cell.with_dependent(|_, parsed| {
                let mut out = Vec::new();
                for local in locals(parsed, index, function, frame, bias, read).unwrap_or_default() {
                    let Ok(Some(typed)) = parsed.die(local.key) else { continue };
                    let Some(target) = typed.kind.and_then(|to| parsed.resolve(local.key.0, to, &index.signatures))
                    else {
                        continue;
                    };
                    let Ok(Some(named)) = parsed.die(local.name) else { continue };
                    let name = parsed.text(local.name.0, &named.name).unwrap_or_default();
                    let kind = reader.read(&mut From { parsed, index, types }, target);
                    let (place, register) = match local.place {
                        Local::At(address) => (Place::At(address), None),
                        Local::Register(number, value) => (Place::Value(value), Some(number)),
                        Local::Value(value) => (Place::Value(value), None),
                    };
                    let function = local.function.and_then(|key| function_name(parsed, key));
                    out.push(Variable { name, kind, place, register, function });
                }
                out
            })
        });
        self.complete(number);
        found.unwrap_or_default()
    }

    /// Completes the types that a module only declares, from this module or another one.
    fn complete(&mut self, number: usize) {
        let Some(Some(module)) = self.modules.get_mut(number) else { return };
        let of_table = std::mem::take(&mut module.table.declared);
        let of_frames = module.open.as_mut().map(|open| std::mem::take(&mut open.reader.declared));
        for one in of_table.into_iter().chain(of_frames.unwrap_or_default()) {
            self.complete_one(one);
        }
    }

    /// Completes the types that were only declared in the modules known so far: a later module may have them.
    pub fn complete_declared(&mut self) {
        for one in std::mem::take(&mut self.incomplete) {
            self.complete_one(one);
        }
        for number in 0..self.modules.len() {
            self.complete(number);
        }
    }

    fn complete_one(&mut self, one: Declared) {
        let mut found = self.with_hash(one.hash, false);
        if found.len() > 1 {
            self.prefer_exact(&self.types.get(one.id).name, &mut found);
        }
        match found.into_iter().find(|&other| other != one.id) {
            Some(whole) => {
                let name = self.types.get(one.id).name.clone();
                self.types.set(one.id, super::model::Type { name, size: 0, form: Form::Alias(whole) });
            }
            None => self.incomplete.push(one),
        }
    }

    /// Returns the complete records of a name, from all modules.
    pub fn find(&mut self, name: &str) -> Vec<Id> {
        let mut found = self.with_hash(hash_of_name(name), false);
        self.prefer_exact(name, &mut found);
        found
    }

    /// Returns the records that are made from a template.
    pub fn of_template(&mut self, name: &str) -> Vec<Id> {
        self.with_hash(hash_of_template(name), true)
    }

    /// Returns the records whose names, or the names of whose templates, have a hash.
    fn with_hash(&self, hash: u64, template: bool) -> Vec<Id> {
        let mut out: Vec<Id> = Vec::new();
        for module in self.modules.iter().flatten() {
            let mut take = |id: Id| {
                if id != VOID && !out.contains(&id) && self.types.record(id).is_some() {
                    out.push(id);
                }
            };
            match template {
                true => module.table.of_template(hash).take(MOST_OF_NAME).for_each(&mut take),
                false => module.table.named(hash).take(MOST_OF_NAME).for_each(&mut take),
            }
        }
        out
    }

    /// Leaves the types of a name alone if there are any. Two libraries may have one short name for different types.
    fn prefer_exact(&self, name: &str, found: &mut Vec<Id>) {
        let wanted = plain(name);
        if found.iter().any(|&id| plain(&self.types.get(id).name) == wanted) {
            found.retain(|&id| plain(&self.types.get(id).name) == wanted);
        }
    }

    /// Returns the versions of the Rust compilers that made the modules: (1, 95). One compiler makes all of a module.
    pub fn rust_versions(&self) -> Vec<(u32, u32)> {
        let mut out: Vec<(u32, u32)> = Vec::new();
        for version in self.modules.iter().flatten().filter_map(|module| module.table.rust) {
            if !out.contains(&version) {
                out.push(version);
            }
        }
        out
    }

    /// Returns the numbers of all records of all modules that have members.
    pub fn records(&mut self) -> Vec<Id> {
        let mut out = self.records_by_module().concat();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Returns the numbers of all records of each module that have members.
    pub fn records_by_module(&mut self) -> Vec<Vec<Id>> {
        (0..self.modules.len()).map(|number| self.records_of(number)).collect()
    }

    fn records_of(&mut self, number: usize) -> Vec<Id> {
        self.complete(number);
        let mut out = match &self.modules[number] {
            Some(module) => module.table.records.clone(),
            None => Vec::new(),
        };
        out.sort_unstable();
        out.dedup();
        out.retain(|&id| self.types.record(id).is_some());
        out
    }
}

/// Parses the debug information of a module whose table is there: each unit when a frame needs it.
fn open_for_frames(wanted: &Wanted) -> Option<Open> {
    // What is wrong with the files has been told when the module was opened.
    let cell = Files::find(wanted, &mut Vec::new())?.parse(STACK, When::Asked, &mut Vec::new()).ok()?;
    let index = cell.with_dependent(|_, parsed| Index::empty(parsed));
    Some(Open { cell, index, reader: Reader::default() })
}

/// Returns the name of a function as its symbol would have it.
fn function_name(parsed: &Parsed<'_>, key: Key) -> Option<String> {
    let die = parsed.die(key).ok()??;
    let linkage = parsed.text(key.0, &die.linkage);
    linkage.and_then(|linkage| demangle(&linkage)).or_else(|| parsed.text(key.0, &die.name))
}
