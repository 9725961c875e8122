//! What is asked of the debug information of the modules of a process.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;

use super::file::{open, Cell, Key, Opened, Parsed};
use super::index::{Index, Stored};
use super::locals::{described, locals, FrameAt, Local, Read};
use super::model::{plain, Form, Id, Types, VOID};
use super::read::{From, Reader};
use crate::lines::{describe, Wanted};
use crate::symbols::demangle;

/// Stack that must be free while debug information is read. Nothing here recurses.
const STACK: usize = 1 << 20;
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
    cell: Cell,
    path: PathBuf,
    bias: u64,
    index: Index,
    reader: Reader,
    problems: Vec<String>,
}

/// The debug information of the modules of a process, and the types that were read from it.
pub struct DebugTypes {
    modules: Vec<Option<Module>>,
    /// The types.
    pub types: Types,
    problems: Vec<String>,
    /// Types that are only declared: their numbers and names.
    incomplete: Vec<(Id, String)>,
    /// What [`DebugTypes::rust_versions`] found.
    rust: Option<Vec<(u32, u32)>>,
}

impl DebugTypes {
    /// Makes it for a process whose pointers have `word` bytes.
    pub fn new(word: u64) -> DebugTypes {
        DebugTypes {
            modules: Vec::new(),
            types: Types::new(word),
            problems: Vec::new(),
            incomplete: Vec::new(),
            rust: None,
        }
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
        let made = catch_unwind(AssertUnwindSafe(|| {
            let Some(Opened { cell, path }) = open(&wanted, STACK, &mut problems)? else { return Ok(None) };
            let mut own = Vec::new();
            let index = cell.with_dependent(|_, parsed| Index::new(parsed, &mut own));
            problems.extend(own.into_iter().map(|why| format!("{}: {why}", path.display())));
            Ok(Some(Module { cell, path, bias, index, reader: Reader::default(), problems: Vec::new() }))
        }));
        let module = match made {
            Ok(Ok(module)) => module,
            Ok(Err(why)) => {
                problems.push(why);
                None
            }
            Err(_) => {
                let path = wanted.path.unwrap_or_default();
                problems.push(format!("{}: its debug information is damaged (the parser failed)", path.display()));
                None
            }
        };
        self.problems.extend(problems.into_iter().take(MOST_PROBLEMS));
        self.modules.push(Some(module?));
        Some(self.modules.len() - 1)
    }

    /// Returns what was wrong, as sentences.
    pub fn problems(&self) -> Vec<String> {
        let of_modules = self.modules.iter().flatten().flat_map(|module| module.problems.iter());
        self.problems.iter().chain(of_modules).cloned().collect()
    }

    /// Does `work` with a module. A module whose parser fails is left out from then on.
    fn with<T>(&mut self, number: usize, work: impl FnOnce(&mut Module, &mut Types) -> T) -> Option<T> {
        let module = self.modules.get_mut(number)?.as_mut()?;
        module.cell.with_dependent(|store, _| store.limits_on_stack(STACK));
        let types = &mut self.types;
        match catch_unwind(AssertUnwindSafe(|| work(module, types))) {
            Ok(value) => {
                if let Some(error) = module.reader.failed.take() {
                    let problem = format!("{}: {}", module.path.display(), describe(error));
                    if !module.problems.contains(&problem) && module.problems.len() < MOST_PROBLEMS {
                        module.problems.push(problem);
                    }
                }
                Some(value)
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
        let found = self.with(number, |module, types| {
            let Module { cell, index, reader, bias, .. } = module;
            cell.with_dependent(|_, parsed| {
                let mut from = From { parsed, index, types };
                let mut out = Vec::new();
                for variable in &index.variables {
                    let Ok(Some(die)) = parsed.die(variable.key) else { continue };
                    let Some((kind, name)) = described(parsed, index, variable.key.0, &die) else { continue };
                    let Ok(Some(typed)) = parsed.die(kind) else { continue };
                    let Some(target) = typed.kind.and_then(|to| parsed.resolve(kind.0, to, &index.signatures)) else {
                        continue;
                    };
                    let Ok(Some(named)) = parsed.die(name) else { continue };
                    let text = parsed.text(name.0, &named.name).unwrap_or_default();
                    let name = match parsed.text(variable.key.0, &die.linkage) {
                        Some(linkage) => demangle(&linkage)
                            .unwrap_or_else(|| format!("{}{text}", index.scopes[variable.scope as usize])),
                        None => format!("{}{text}", index.scopes[variable.scope as usize]),
                    };
                    let kind = reader.read(&mut from, target);
                    let place = match variable.stored {
                        Stored::At(address) => Place::At(address.wrapping_add(*bias)),
                        Stored::Thread(offset) => Place::Thread(offset),
                    };
                    out.push(Variable { name, kind, place, register: None, function: None });
                }
                out
            })
        });
        let found = found.unwrap_or_default();
        self.complete(number);
        found
    }

    /// Returns the variables of a frame that have a place at its pc.
    pub fn locals(&mut self, number: usize, frame: &FrameAt, read: Read<'_>) -> Vec<Variable> {
        let found = self.with(number, |module, types| {
            let Module { cell, index, reader, bias, .. } = module;
            cell.with_dependent(|_, parsed| {
                let mut out = Vec::new();
                for local in locals(parsed, index, frame, *bias, read).unwrap_or_default() {
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
        let found = found.unwrap_or_default();
        self.complete(number);
        found
    }

    /// Completes the types that a module only declares, from this module or another one.
    fn complete(&mut self, number: usize) {
        for _ in 0..8 {
            let declared = match self.modules.get_mut(number) {
                Some(Some(module)) => std::mem::take(&mut module.reader.declared),
                _ => return,
            };
            if declared.is_empty() {
                return;
            }
            for (id, name) in declared {
                self.complete_one(id, name);
            }
        }
    }

    /// Completes the types that were only declared in the modules known so far: a later module may have them.
    pub fn complete_declared(&mut self) {
        for (id, name) in std::mem::take(&mut self.incomplete) {
            self.complete_one(id, name);
        }
        for number in 0..self.modules.len() {
            self.complete(number);
        }
    }

    fn complete_one(&mut self, id: Id, name: String) {
        match self.find(&name).into_iter().find(|&other| other != id) {
            Some(whole) => {
                let name = self.types.get(id).name.clone();
                self.types.set(id, super::model::Type { name, size: 0, form: Form::Alias(whole) });
            }
            None => self.incomplete.push((id, name)),
        }
    }

    /// Returns the complete records of a name, from all modules.
    pub fn find(&mut self, name: &str) -> Vec<Id> {
        self.found(name, false)
    }

    /// Returns the records that are made from a template.
    pub fn of_template(&mut self, name: &str) -> Vec<Id> {
        self.found(name, true)
    }

    fn found(&mut self, name: &str, template: bool) -> Vec<Id> {
        let mut out: Vec<Id> = Vec::new();
        for number in 0..self.modules.len() {
            let ids = self.with(number, |module, types| {
                let Module { cell, index, reader, .. } = module;
                cell.with_dependent(|_, parsed| {
                    let mut from = From { parsed, index, types };
                    let keys: Vec<_> = match template {
                        true => index.of_template(name).collect(),
                        false => index.named(name).collect(),
                    };
                    // The same type is in many units.
                    keys.into_iter().take(1 << 16).map(|key| reader.read(&mut from, key)).collect::<Vec<_>>()
                })
            });
            for id in ids.unwrap_or_default() {
                if id != VOID && !out.contains(&id) && self.types.record(id).is_some() {
                    out.push(id);
                }
            }
        }
        // Two libraries may have one short name for different types: the exact name decides.
        let wanted = plain(name);
        if !template && out.iter().any(|&id| plain(&self.types.get(id).name) == wanted) {
            out.retain(|&id| plain(&self.types.get(id).name) == wanted);
        }
        out
    }

    /// Returns the versions of the Rust compilers that made the modules: (1, 95). One compiler makes all of a module.
    pub fn rust_versions(&mut self) -> Vec<(u32, u32)> {
        if let Some(known) = &self.rust {
            return known.clone();
        }
        let mut out: Vec<(u32, u32)> = Vec::new();
        for number in 0..self.modules.len() {
            let version = self.with(number, |module, _| module.cell.with_dependent(|_, parsed| rust_version(parsed)));
            out.extend(version.flatten().filter(|version| !out.contains(version)));
        }
        self.rust = Some(out.clone());
        out
    }

    /// Reads every record of every module. Returns their numbers.
    pub fn records(&mut self) -> Vec<Id> {
        let mut out = self.records_by_module().concat();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Reads every record. Returns the numbers of those of each module.
    pub fn records_by_module(&mut self) -> Vec<Vec<Id>> {
        (0..self.modules.len()).map(|number| self.records_of(number)).collect()
    }

    fn records_of(&mut self, number: usize) -> Vec<Id> {
        let ids = self.with(number, |module, types| {
            let Module { cell, index, reader, .. } = module;
            cell.with_dependent(|_, parsed| {
                let mut from = From { parsed, index, types };
                index.records.iter().map(|&key| reader.read(&mut from, key)).collect::<Vec<_>>()
            })
        });
        self.complete(number);
        let mut out = ids.unwrap_or_default();
        out.sort_unstable();
        out.dedup();
        out.retain(|&id| self.types.record(id).is_some());
        out
    }
}

/// Returns the version of the Rust compiler that a unit of a module names: "clang LLVM (rustc version 1.95.0 (59807616e ..".
fn rust_version(parsed: &Parsed<'_>) -> Option<(u32, u32)> {
    parsed.units.iter().enumerate().find_map(|(number, at)| {
        let mut entries = at.unit.entries();
        entries.next_dfs().ok()?;
        let producer = entries.current()?.attr_value(gimli::DW_AT_producer).ok()?;
        let text = parsed.text(u32::try_from(number).ok()?, &producer)?;
        let mut numbers = text.split_once("rustc version ")?.1.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

/// Returns the name of a function as its symbol would have it.
fn function_name(parsed: &Parsed<'_>, key: Key) -> Option<String> {
    let die = parsed.die(key).ok()??;
    let linkage = parsed.text(key.0, &die.linkage);
    linkage.and_then(|linkage| demangle(&linkage)).or_else(|| parsed.text(key.0, &die.name))
}
