//! Which pages of a process were touched: /proc/PID/pagemap.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hw::trace::{scan, Categories, Region};

// linux/fs.h
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
// The bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;
/// The most regions, or the most pages, that one call looks at.
const STEP: usize = 1024;

/// The pages of a process.
#[derive(Debug)]
pub struct Pages {
    pagemap: File,
    page: u64,
    /// Whether the kernel has PAGEMAP_SCAN, which skips memory that was never touched.
    scans: AtomicBool,
}

impl Pages {
    /// Opens the pages of a process. `page` is the size of a page.
    pub fn open(pid: i32, page: u64) -> io::Result<Pages> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Pages { pagemap, page, scans: AtomicBool::new(true) })
    }

    /// Calls `found` with every run of pages in `[start, end)` that were touched, in memory or swapped out. Pages that are
    /// known to be zeros may be left out.
    pub fn touched(&self, start: u64, end: u64, mut found: impl FnMut(u64, u64)) -> io::Result<()> {
        let wanted = Categories { inverted: ZERO, all: ZERO, any: PRESENT | SWAPPED };
        self.runs(
            start,
            end,
            wanted,
            |entry| entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0,
            |from, to| {
                found(from, to);
                true
            },
        )
    }

    /// Returns whether the page at an address was touched.
    pub fn is_touched(&self, start: u64) -> bool {
        let mut any = false;
        let _ = self.touched(start, start + self.page, |_, _| any = true);
        any
    }

    /// Returns whether a page of a private mapping of a file was written, and is no page of the file any more.
    pub fn any_anonymous(&self, start: u64, end: u64) -> bool {
        let wanted = Categories { inverted: FILE, all: FILE, any: PRESENT | SWAPPED };
        let mut any = false;
        let written = |entry| entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0 && entry & ENTRY_FILE == 0;
        let known = self.runs(start, end, wanted, written, |_, _| {
            any = true;
            false
        });
        any || known.is_err()
    }

    fn runs(
        &self,
        start: u64,
        end: u64,
        wanted: Categories,
        is: impl Fn(u64) -> bool,
        mut found: impl FnMut(u64, u64) -> bool,
    ) -> io::Result<()> {
        let mut at = start;
        while at < end && self.scans.load(Ordering::Relaxed) {
            let mut regions = [Region::default(); STEP];
            match scan(&self.pagemap, (at, end), wanted, &mut regions) {
                Ok((count, walked)) => {
                    if !regions[..count].iter().all(|region| found(region.start, region.end)) {
                        return Ok(());
                    }
                    if walked <= at {
                        return Ok(());
                    }
                    at = walked;
                }
                Err(_) => self.scans.store(false, Ordering::Relaxed),
            }
        }
        let mut bytes = [0; STEP * 8];
        while at < end {
            let count = ((end - at) / self.page).min(STEP as u64) as usize;
            let read = self.pagemap.read_at(&mut bytes[..count * 8], at / self.page * 8)?;
            if read < 8 {
                return Ok(());
            }
            let mut run = at;
            for entry in bytes[..read].chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                if !is(entry) {
                    if run < at && !found(run, at) {
                        return Ok(());
                    }
                    run = at + self.page;
                }
                at += self.page;
            }
            if run < at && !found(run, at) {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn both_ways_find_what_was_written() {
        let mut memory = memmap2::MmapMut::map_anon(64 * PAGE).unwrap();
        memory.advise(memmap2::Advice::NoHugePage).unwrap(); // or the kernel touches more than is written
        let start = memory.as_ptr() as usize;
        for page in [0, 1, 2, 17, 40, 41] {
            memory[page * PAGE] = 1;
        }
        let pages = Pages::open(std::process::id() as i32, PAGE as u64).unwrap();
        let found = || {
            let mut found = Vec::new();
            let end = (start + 50 * PAGE) as u64;
            pages.touched(start as u64, end, |from, to| found.push((from, to))).unwrap();
            found
        };
        let run = |first, count| ((start + first * PAGE) as u64, (start + (first + count) * PAGE) as u64);
        let scanned = found();
        pages.scans.store(false, Ordering::Relaxed);
        assert_eq!(found(), [run(0, 3), run(17, 1), run(40, 2)]);
        assert_eq!(found(), scanned);
        assert!(
            pages.is_touched(start as u64 + 17 * PAGE as u64) && !pages.is_touched(start as u64 + 18 * PAGE as u64)
        );
    }
}
