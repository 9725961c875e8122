//! Finds the file that has the debug information of a program or library.
//!
//! The order is gdb's (GDB manual, "Debugging Information in Separate Files"): the file itself, then the build-id, then
//! `.gnu_debuglink`. A file is refused when its build-id or its checksum is not the expected one.

use std::path::{Path, PathBuf};

use super::elf::{ElfFile, Link};

/// What a search has found, and what was wrong with files that it could not use.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) debug: Option<ElfFile>,
    pub(crate) supplementary: Option<ElfFile>,
    pub(crate) problems: Vec<String>,
}

/// What to search for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The program or library. None where only its build-id is known.
    pub(crate) path: Option<PathBuf>,
    /// Folders like /usr/lib/debug.
    pub(crate) roots: Vec<PathBuf>,
    /// The build-id that the process had in memory.
    pub(crate) build_id: Option<Vec<u8>>,
}

/// Searches for the file with the debug information, and for the file that dwz took common parts out to.
pub(crate) fn find(wanted: &Wanted) -> Found {
    let mut found = Found::default();
    let program = wanted.path.as_ref().and_then(|path| open(path, wanted.build_id.as_deref(), &mut found.problems));
    found.debug = match program {
        Some(program) if program.has_debug_info() => Some(program),
        program => separate(wanted, program.as_ref(), &mut found.problems),
    };
    if let Some(debug) = &found.debug {
        if let Some(link) = debug.supplementary() {
            found.supplementary = supplementary(&wanted.roots, debug, &link, &mut found.problems);
            if found.supplementary.is_none() {
                let (path, name) = (debug.path.display(), link.name.display());
                found
                    .problems
                    .push(format!("{path}: its supplementary file {name} was not found: some names are missing"));
            }
        }
    }
    found
}

/// Opens a file, and refuses it where its build-id is not the wanted one.
fn open(path: &Path, build_id: Option<&[u8]>, problems: &mut Vec<String>) -> Option<ElfFile> {
    let file = match ElfFile::open(path) {
        Ok(file) => file,
        Err(why) => {
            problems.push(format!("{}: {why}", path.display()));
            return None;
        }
    };
    match (build_id, &file.build_id) {
        (Some(wanted), Some(has)) if wanted != has => {
            let (wanted, has) = (hex(wanted), hex(has));
            problems.push(format!("{}: its build-id is {has}, not {wanted}: it is not used", path.display()));
            None
        }
        (Some(wanted), None) => {
            let wanted = hex(wanted);
            problems.push(format!("{}: it has no build-id, and {wanted} is wanted: it is not used", path.display()));
            None
        }
        _ => Some(file),
    }
}

/// Opens a candidate if it exists. One that is not there is no problem: there are many.
fn open_if_there(path: &Path, build_id: Option<&[u8]>, problems: &mut Vec<String>) -> Option<ElfFile> {
    if !path.exists() {
        return None;
    }
    let file = open(path, build_id, problems)?;
    if !file.has_debug_info() {
        problems.push(format!("{}: it has no debug information (no section .debug_info)", path.display()));
        return None;
    }
    Some(file)
}

fn separate(wanted: &Wanted, program: Option<&ElfFile>, problems: &mut Vec<String>) -> Option<ElfFile> {
    let build_id = wanted.build_id.as_deref().or_else(|| program?.build_id.as_deref());
    if let Some(build_id) = build_id {
        let by_id = wanted.roots.iter().filter_map(|root| build_id_path(root, build_id));
        for candidate in by_id {
            if let Some(file) = open_if_there(&candidate, Some(build_id), problems) {
                return Some(file);
            }
        }
    }
    let program = program?;
    let link = program.debuglink()?;
    for candidate in debuglink_paths(&program.path, &link, &wanted.roots) {
        let Some(file) = open_if_there(&candidate, None, problems) else { continue };
        if let (Some(wanted), Some(has)) = (build_id, &file.build_id) {
            if wanted != has {
                let (wanted, has) = (hex(wanted), hex(has));
                problems.push(format!("{}: its build-id is {has}, not {wanted}: it is not used", candidate.display()));
                continue;
            }
        }
        match file.checksum() {
            Ok(checksum) if checksum == link.id => return Some(file),
            Ok(checksum) => problems.push(format!(
                "{}: its checksum is {checksum:08x}, not {:08x} as .gnu_debuglink says: it is not used",
                candidate.display(),
                link.id
            )),
            Err(why) => problems.push(format!("{}: {why}", candidate.display())),
        }
    }
    None
}

/// Returns the places of a file that `.gnu_debuglink` names.
fn debuglink_paths(program: &Path, link: &Link<u32>, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    // As it is called, and as it is without symbolic links (/lib is often a link to /usr/lib).
    let canonical = program.canonicalize().ok();
    for path in [Some(program), canonical.as_deref()].into_iter().flatten() {
        if let Some(folder) = path.parent() {
            if !folders.iter().any(|known| known == folder) {
                folders.push(folder.to_path_buf());
            }
        }
    }
    let mut paths = Vec::new();
    for folder in &folders {
        paths.push(folder.join(&link.name));
        paths.push(folder.join(".debug").join(&link.name));
        if let Ok(below) = folder.strip_prefix("/") {
            paths.extend(roots.iter().map(|root| root.join(below).join(&link.name)));
        }
    }
    paths
}

fn supplementary(
    roots: &[PathBuf],
    debug: &ElfFile,
    link: &Link<Vec<u8>>,
    problems: &mut Vec<String>,
) -> Option<ElfFile> {
    if link.id.is_empty() {
        return None;
    }
    // Relative to the file that names it, whichever link led there; an absolute name also below each root.
    let canonical = debug.path.canonicalize().ok();
    let folders = [debug.path.parent(), canonical.as_deref().and_then(Path::parent)];
    let mut candidates: Vec<PathBuf> = folders.into_iter().flatten().map(|folder| folder.join(&link.name)).collect();
    for root in roots {
        if let Ok(below) = link.name.strip_prefix("/usr/lib/debug") {
            candidates.push(root.join(below));
        }
        candidates.extend(build_id_path(root, &link.id));
    }
    candidates.iter().find_map(|path| open_if_there(path, Some(&link.id), problems))
}

/// Returns ROOT/.build-id/ab/cdef.debug.
fn build_id_path(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    // The kernel and linkers write 16 or 20 bytes; a file name holds 255 characters.
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    Some(root.join(".build-id").join(format!("{first:02x}")).join(format!("{}.debug", hex(rest))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}
