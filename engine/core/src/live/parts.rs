//! Which part of a mapping belongs into a picture.

use std::os::unix::fs::FileExt;

use super::files::Files;
use super::maps::{Kind, Mapping};
use super::pages::Pages;
use crate::hw::trace;

/// The bits of coredump_filter (core(5)).
const SHARED_ANONYMOUS: u32 = 1;
const PRIVATE_FILES: u32 = 2;
const SHARED_FILES: u32 = 3;
const ELF_HEADERS: u32 = 4;
const PRIVATE_HUGE: u32 = 5;
const SHARED_HUGE: u32 = 6;
const PRIVATE: u32 = 0;
const MAGIC: [u8; 4] = *b"\x7fELF";

/// The part of a mapping that belongs into a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// None of it.
    None,
    /// The first page.
    Head,
    /// What was touched. The rest is zeros.
    Touched,
    /// What its file has, and what was touched. The rest is zeros.
    Shared,
    /// All of it: what was not touched is in the file.
    All,
    /// What was touched. The rest is in a file that only the process itself can read, so it is left out.
    Known,
}

/// Returns the part of a mapping that a core would have (the kernel's fs/coredump.c, vma_dump_size), and files that were
/// deleted.
pub fn part_of(mapping: &Mapping, pid: i32, kind: Kind, filter: u32, pages: &Pages, files: &mut Files) -> Part {
    let chosen = |bit: u32| filter >> bit & 1 == 1;
    let when = |bit: u32, part: Part| if chosen(bit) { part } else { Part::None };
    if mapping.path == b"[vdso]" {
        return Part::All;
    }
    if kind.excluded || mapping.path.starts_with(b"[v") {
        return Part::None; // [vvar] and [vsyscall] cannot be read
    }
    if kind.huge {
        return when(if mapping.private() { PRIVATE_HUGE } else { SHARED_HUGE }, Part::Touched);
    }
    let deleted = mapping.deleted();
    if !mapping.private() {
        return when(if deleted { SHARED_ANONYMOUS } else { SHARED_FILES }, Part::Shared);
    }
    if !mapping.has_file() {
        return when(PRIVATE, Part::Touched);
    }
    // Nobody can read a deleted file later, so it is in the picture.
    if chosen(PRIVATE_FILES) || deleted || chosen(PRIVATE) && pages.any_anonymous(mapping.start, mapping.end) {
        return Part::All;
    }
    if chosen(ELF_HEADERS) && mapping.offset == 0 && mapping.readable() && is_elf(mapping, pid, pages, files) {
        return Part::Head;
    }
    Part::None
}

/// Returns whether the file begins as an ELF file does. The process is not asked for a page that it did not touch, if the
/// file itself can be read.
fn is_elf(mapping: &Mapping, pid: i32, pages: &Pages, files: &mut Files) -> bool {
    let mut magic = [0; MAGIC.len()];
    let place = if pages.is_touched(mapping.start) { None } else { files.place(mapping) };
    let file = place.and_then(|place| files.at(place));
    let read = match file {
        Some(file) => file.read_at(&mut magic, 0).map(|read| read as u64),
        None => trace::read_memory(pid, mapping.start, &mut magic),
    };
    read.is_ok_and(|read| read == MAGIC.len() as u64) && magic == MAGIC
}
