//! A picture of a live process: its registers and its memory at one moment.
//!
//! The process is stopped, read and let go. No code runs in it. No page is made in it, but for code of files that nobody else
//! can read. (A snapshot
//! by fork() would stop it for a shorter time. But a thread of the process must then run a system call that it did not ask
//! for: a killed tracer leaves wrong registers behind, a filter of system calls may kill the process, and it gets a child.)
//! What can be done while the process runs is done before: its mappings are read, and the pages are made that its memory is
//! copied to.

mod copy;
mod files;
mod maps;
mod pages;
mod parts;
mod stop;
mod trouble;

use std::collections::HashSet;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use copy::{Behind, Store, Wanted};
use files::Files;
pub use maps::{Kind, Mapping};
use pages::Pages;
use parts::part_of;
pub use parts::Part;
use stop::Held;
pub use stop::Thread;
pub use trouble::Trouble;

use crate::Control;

/// The most bytes of a private mapping of a file that are read whole.
const MOST_WHOLE: u64 = 1 << 30;

/// A mapping, and how many of its bytes are in the picture.
#[derive(Debug)]
pub struct Taken {
    /// The mapping.
    pub mapping: Mapping,
    /// The bytes from its start.
    pub size: u64,
    /// Where they are in the file.
    pub offset: u64,
}

/// A picture. The memory is in the file.
#[derive(Debug)]
pub struct Picture {
    /// How long the process was stopped.
    pub pause: Duration,
    /// How many bytes were read.
    pub read: u64,
    /// How many bytes could not be read.
    pub unread: u64,
    /// How many bytes of files were left out: the process did not touch them, and nobody else can read them.
    pub left: u64,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The mappings.
    pub mappings: Vec<Taken>,
}

/// How a picture is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The bits of coredump_filter (core(5)).
    pub filter: u32,
    /// The size of a page.
    pub page: u64,
    /// Whether the file is memory. Then its pages are made before, and the offset of a byte is its address. A file on a disk
    /// cannot be so long, and gets one mapping behind the other.
    pub in_memory: bool,
    /// Where the memory may begin in the file: the header comes before it.
    pub least: u64,
}

/// Takes a picture of a process into an empty file. The thread that calls this is the
/// tracer.
pub fn take(pid: i32, file: &File, options: Options, control: &Control) -> Result<Picture, Trouble> {
    let pages = Pages::open(pid, options.page)?;
    let before = maps::parse(&fs::read(format!("/proc/{pid}/smaps"))?);
    let mut files = Files::new(pid);
    let mut store = Store::new(pid, options.page, file, &pages)?;
    let (_, mut parts) = wanted(pid, &before, options, &pages, &mut files);
    files_behind(&before, &mut parts, &mut files); // to open them takes time
    if options.in_memory {
        store.prepare(&parts, control)?;
    }
    if control.cancelled() {
        return Err(Trouble::Cancelled);
    }
    let held = Held::stop(pid)?;
    let now = with_kinds(maps::parse(&fs::read(format!("/proc/{pid}/maps"))?), &before);
    let (places, mut parts) = wanted(pid, &now, options, &pages, &mut files);
    let behind = files_behind(&now, &mut parts, &mut files);
    store.files = behind
        .into_iter()
        .filter_map(|(place, start, offset)| Some(Behind { file: files.at(place)?, start, offset }))
        .collect();
    let threads = store.copy(&parts, control, || held.registers(pid))?;
    let began = held.began();
    drop(held);
    let pause = Instant::now() - began;
    if control.cancelled() {
        return Err(Trouble::Cancelled);
    }
    let (read, unread, left) = store.sums();
    let mappings =
        now.into_iter().zip(places).map(|((mapping, _), (size, offset))| Taken { mapping, size, offset }).collect();
    Ok(Picture { pause, read, unread, left, threads, mappings })
}

/// How many bytes of a mapping are in the picture, and at which offset of the file.
type Place = (u64, u64);

/// Returns the place of each mapping in the picture, and what is copied for it.
fn wanted(
    pid: i32,
    mappings: &[(Mapping, Kind)],
    options: Options,
    pages: &Pages,
    files: &mut Files,
) -> (Vec<Place>, Vec<Wanted>) {
    let mut next = options.least;
    let mut places = Vec::with_capacity(mappings.len());
    let mut parts = Vec::new();
    for (mapping, kind) in mappings {
        let part = if options.in_memory && mapping.start < options.least {
            Part::None
        } else {
            part_of(mapping, pid, *kind, options.filter, pages, files)
        };
        // Of a large mapping of a file, only what was touched is read: all of it may be more than the machine's memory.
        let large = part == Part::All && mapping.end - mapping.start > MOST_WHOLE;
        let part = if large { Part::Touched } else { part };
        let size = match part {
            Part::None => 0,
            Part::Head => options.page,
            _ => mapping.end - mapping.start,
        };
        let to = if options.in_memory { mapping.start } else { next };
        next += size;
        places.push((size, to));
        if size > 0 {
            let end = mapping.start + size;
            parts.push(Wanted { start: mapping.start, end, to, part, readable: mapping.readable(), file: None });
        }
    }
    (places, parts)
}

/// Finds the files behind mappings. Returns the place of each in `files`, the address at which it is mapped, and the offset
/// there.
///
/// Where a file cannot be opened, pages that the process did not touch are left out: what the process made is not in them.
/// But stacks cannot be unwound without code and its tables, so the files of code are read from the process.
fn files_behind(mappings: &[(Mapping, Kind)], parts: &mut [Wanted], files: &mut Files) -> Vec<(usize, u64, u64)> {
    let file_of = |mapping: &Mapping| (mapping.device, mapping.inode);
    let code: HashSet<_> =
        mappings.iter().filter(|(mapping, _)| mapping.executable()).map(|(mapping, _)| file_of(mapping)).collect();
    let mut behind = Vec::new();
    for part in parts.iter_mut().filter(|part| part.part != Part::Touched) {
        let Ok(place) = mappings.binary_search_by_key(&part.start, |(mapping, _)| mapping.start) else { continue };
        let mapping = &mappings[place].0;
        if let Some(place) = files.place(mapping) {
            part.file = Some(behind.len());
            behind.push((place, mapping.start, mapping.offset));
        } else if mapping.has_file() && part.part != Part::Head && !code.contains(&file_of(mapping)) {
            part.part = Part::Known;
        }
    }
    behind
}

/// Gives the mappings the flags that those at the same place had before: to read flags costs time in which the process
/// stands still.
fn with_kinds(now: Vec<(Mapping, Kind)>, before: &[(Mapping, Kind)]) -> Vec<(Mapping, Kind)> {
    now.into_iter()
        .map(|(mapping, _)| {
            let place = before.partition_point(|(old, _)| old.end <= mapping.start);
            let old = before.get(place).filter(|(old, _)| old.start <= mapping.start && old.inode == mapping.inode);
            let kind = old.map_or_else(Kind::default, |(_, kind)| *kind);
            (mapping, kind)
        })
        .collect()
}
