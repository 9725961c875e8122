//! Copies the memory of a stopped process into a sparse file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;

use rustix::fs::{seek, SeekFrom};

use super::pages::Pages;
use super::parts::Part;
use crate::hw::trace::{read_memory, Window, MOST_PARTS};
use crate::Control;

/// Memory that one thread takes at once.
const CHUNK: u64 = 16 << 20;
/// Runs of pages with smaller gaps than this share a window.
const GAP: u64 = 32 << 20;
const THREADS: usize = 2;
const BUFFER: usize = 1 << 20;

/// A part of a mapping to copy.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// Where its first byte goes to in the file.
    pub to: u64,
    /// Which pages of it.
    pub part: Part,
    /// Whether the process itself can read it.
    pub readable: bool,
    /// The file behind it, by its number in [`Store::files`].
    pub file: Option<usize>,
}

impl Wanted {
    /// Returns where a byte of it goes to in the file.
    fn place(&self, address: u64) -> u64 {
        self.to + (address - self.start)
    }
}

/// The file behind a mapping. Pages that the process did not touch are read from it.
#[derive(Debug)]
pub struct Behind<'a> {
    /// The file.
    pub file: &'a File,
    /// The address at which it is mapped.
    pub start: u64,
    /// The offset in the file that is mapped there.
    pub offset: u64,
}

/// Where the memory goes to.
#[derive(Debug)]
pub struct Store<'a> {
    pid: i32,
    page: u64,
    file: &'a File,
    memory: File,
    pages: &'a Pages,
    windows: Vec<Window>,
    /// The files behind mappings.
    pub files: Vec<Behind<'a>>,
    read: AtomicU64,
    unread: AtomicU64,
    left: AtomicU64,
    failed: Mutex<Option<io::Error>>,
}

impl<'a> Store<'a> {
    /// Begins with a file. `page` is the size of a page.
    pub fn new(pid: i32, page: u64, file: &'a File, pages: &'a Pages) -> io::Result<Store<'a>> {
        Ok(Store {
            pid,
            page,
            file,
            memory: File::open(format!("/proc/{pid}/mem"))?,
            pages,
            windows: Vec::new(),
            files: Vec::new(),
            read: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            left: AtomicU64::new(0),
            failed: Mutex::new(None),
        })
    }

    /// Makes the pages of the file for memory that is touched now, while the process runs. The offset of a byte in the file
    /// is its address. Where this fails, only time is lost later.
    pub fn prepare(&mut self, wanted: &[Wanted], control: &Control) -> io::Result<()> {
        let runs = Mutex::new(Vec::new());
        self.each_chunk(wanted, control, |chunk| {
            let mut found = Vec::new();
            let _ = self.pages.touched(chunk.start, chunk.end, |from, to| found.push((from, to)));
            runs.lock().unwrap_or_else(|error| error.into_inner()).extend(found);
        });
        let mut runs = runs.into_inner().unwrap_or_else(|error| error.into_inner());
        runs.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for &(start, end) in &runs {
            match spans.last_mut() {
                Some(last) if start - last.1 <= GAP => last.1 = end,
                _ => spans.push((start, end)),
            }
        }
        // What is mapped behind the end of a file cannot be written.
        self.file.set_len(spans.last().map_or(0, |&(_, end)| end))?;
        self.windows =
            spans.iter().map_while(|&(start, end)| Window::map(self.file, start, end - start).ok()).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| loop {
                    let Some(&(start, end)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let Some(window) = self.window(start, end) else { continue };
                    if control.cancelled() || window.populate(start, end - start).is_err() {
                        return;
                    }
                });
            }
        });
        Ok(())
    }

    /// Copies the memory. Meanwhile `beside` runs on this thread.
    pub fn copy<T>(&self, wanted: &[Wanted], control: &Control, beside: impl FnOnce() -> T) -> io::Result<T> {
        let next = Chunks::new(wanted);
        let result = thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut worker =
                        Worker { store: self, buffer: vec![0; BUFFER], parts: Vec::with_capacity(MOST_PARTS) };
                    while let Some(chunk) = next.next() {
                        if control.cancelled() {
                            return;
                        }
                        if let Err(error) = worker.copy(chunk) {
                            *self.failed.lock().unwrap_or_else(|error| error.into_inner()) = Some(error);
                            return;
                        }
                    }
                });
            }
            beside()
        });
        match self.failed.lock().unwrap_or_else(|error| error.into_inner()).take() {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }

    /// Returns how many bytes were read, how many could not be read, and how many were left out.
    pub fn sums(&self) -> (u64, u64, u64) {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        (of(&self.read), of(&self.unread), of(&self.left))
    }

    fn each_chunk(&self, wanted: &[Wanted], control: &Control, work: impl Fn(Wanted) + Sync) {
        let next = Chunks::new(wanted);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(chunk) = next.next() {
                        if control.cancelled() {
                            return;
                        }
                        work(chunk);
                    }
                });
            }
        });
    }

    fn runs_of(&self, chunk: Wanted, mut found: impl FnMut(u64, u64)) {
        match chunk.part {
            Part::None => {}
            Part::Head | Part::All if chunk.file.is_none() => found(chunk.start, chunk.end),
            _ => {
                let _ = self.pages.touched(chunk.start, chunk.end, found);
            }
        }
    }

    /// Returns the window that the whole run lies in.
    fn window(&self, start: u64, end: u64) -> Option<&Window> {
        let place = self.windows.partition_point(|window| window.start() <= start);
        let window = self.windows.get(place.checked_sub(1)?)?;
        (end <= window.end()).then_some(window)
    }
}

struct Worker<'a> {
    store: &'a Store<'a>,
    buffer: Vec<u8>,
    parts: Vec<(u64, u64)>,
}

impl Worker<'_> {
    fn copy(&mut self, chunk: Wanted) -> io::Result<()> {
        let mut runs = Vec::new();
        self.store.runs_of(chunk, |from, to| runs.push((from, to)));
        if chunk.part == Part::Known {
            let touched: u64 = runs.iter().map(|&(start, end)| end - start).sum();
            self.store.left.fetch_add((chunk.end - chunk.start).saturating_sub(touched), Ordering::Relaxed);
        }
        if let Some(behind) = chunk.file.and_then(|number| self.store.files.get(number)) {
            let mut at = chunk.start;
            for &(start, end) in runs.iter().chain([&(chunk.end, chunk.end)]) {
                self.fill_from_file(behind, &chunk, at, start)?;
                at = end;
            }
        }
        let mut window: Option<&Window> = None;
        for (start, end) in runs {
            let found = if chunk.readable { self.store.window(start, end) } else { None };
            let same = found.map(Window::start) == window.map(Window::start);
            if !same || self.parts.len() == MOST_PARTS {
                self.flush(&chunk, window)?;
            }
            window = found;
            if found.is_some() {
                self.parts.push((start, end - start));
            } else {
                self.slowly(&chunk, start, end)?;
            }
        }
        self.flush(&chunk, window)
    }

    /// Reads the runs that were gathered, all of one window.
    fn flush(&mut self, chunk: &Wanted, window: Option<&Window>) -> io::Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let mut rest = &parts[..];
        if let Some(window) = window {
            while !rest.is_empty() {
                let mut done = match window.read(self.store.pid, rest) {
                    Ok(done) => done,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
                    Err(_) => 0,
                };
                self.store.read.fetch_add(done, Ordering::Relaxed);
                let before = rest;
                while let Some(&(_, size)) = rest.first().filter(|&&(_, size)| size <= done) {
                    done -= size;
                    rest = &rest[1..];
                }
                if let Some((&(start, size), others)) = rest.split_first() {
                    if done > 0 || before.len() == rest.len() {
                        // This run ends early, or cannot be read so at all.
                        self.slowly(chunk, start + done, start + size)?;
                        rest = others;
                    }
                }
            }
        }
        self.parts = parts;
        self.parts.clear();
        Ok(())
    }

    /// Copies what a file has of memory that the process did not touch.
    fn fill_from_file(&mut self, behind: &Behind<'_>, chunk: &Wanted, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let from = behind.offset + (at - behind.start);
            let Ok(data) = seek(behind.file, SeekFrom::Data(from)) else { return Ok(()) };
            let hole = seek(behind.file, SeekFrom::Hole(data)).unwrap_or(data);
            at += data - from;
            let until = end.min(at.saturating_add(hole - data));
            while at < until {
                let size = (until - at).min(BUFFER as u64) as usize;
                let done =
                    behind.file.read_at(&mut self.buffer[..size], behind.offset + (at - behind.start)).unwrap_or(0);
                if done == 0 {
                    return Ok(());
                }
                self.store.file.write_all_at(&self.buffer[..done], chunk.place(at))?;
                self.store.read.fetch_add(done as u64, Ordering::Relaxed);
                at += done as u64;
            }
            if hole == data {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a run through a buffer, and what cannot be read so as a debugger does: /proc/PID/mem reads memory that the
    /// process itself cannot read.
    fn slowly(&mut self, chunk: &Wanted, start: u64, end: u64) -> io::Result<()> {
        let store = self.store;
        let mut at = start;
        while at < end {
            let size = (end - at).min(BUFFER as u64);
            let buffer = &mut self.buffer[..size as usize];
            let mut done = read_memory(store.pid, at, buffer).unwrap_or(0);
            if done == 0 {
                done = store.memory.read_at(buffer, at).unwrap_or(0) as u64;
            }
            if done == 0 {
                let lost = store.page.min(end - at);
                store.unread.fetch_add(lost, Ordering::Relaxed);
                at += lost;
                continue;
            }
            store.file.write_all_at(&buffer[..done as usize], chunk.place(at))?;
            store.read.fetch_add(done, Ordering::Relaxed);
            at += done;
        }
        Ok(())
    }
}

/// The chunks of wanted memory, for several threads.
struct Chunks<'a> {
    wanted: &'a [Wanted],
    place: Mutex<(usize, u64)>,
}

impl Chunks<'_> {
    fn new(wanted: &[Wanted]) -> Chunks<'_> {
        Chunks { wanted, place: Mutex::new((0, 0)) }
    }

    fn next(&self) -> Option<Wanted> {
        let mut place = self.place.lock().unwrap_or_else(|error| error.into_inner());
        let (index, done) = *place;
        let whole = self.wanted.get(index)?;
        let start = whole.start + done;
        let end = whole.end.min(start + CHUNK);
        *place = if end == whole.end { (index + 1, 0) } else { (index, end - whole.start) };
        Some(Wanted { start, end, to: whole.place(start), ..*whole })
    }
}
