//! Stopping another process and reading its memory: ptrace(2), process_vm_readv(2), and PAGEMAP_SCAN.
//!
//! No function here makes a Rust reference to memory that the kernel writes meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The event of a stop that PTRACE_INTERRUPT, or a stop of the whole process, made (linux/ptrace.h).
pub const EVENT_STOP: i32 = 128;
/// The most parts that one call reads (limits.h: IOV_MAX).
pub const MOST_PARTS: usize = 1024;
const POPULATE_WRITE: libc::c_int = 23; // asm-generic/mman-common.h: MADV_POPULATE_WRITE, since Linux 5.14
const SCAN: libc::c_ulong = 0xc060_6610; // linux/fs.h: PAGEMAP_SCAN, since Linux 6.7

/// A state of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It stopped: by which signal, and with which event of ptrace (0 for the delivery of a signal).
    Stopped {
        /// The signal.
        signal: i32,
        /// The event.
        event: i32,
    },
    /// It has ended.
    Gone,
}

fn ok(result: libc::c_long) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Becomes the tracer of a thread, which runs on.
pub fn seize(tid: i32) -> io::Result<()> {
    // SAFETY: the request touches no memory of this process.
    ok(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0usize, 0usize) })
}

/// Asks a traced thread to stop.
pub fn interrupt(tid: i32) -> io::Result<()> {
    // SAFETY: the request touches no memory of this process.
    ok(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0usize, 0usize) })
}

/// Lets a stopped thread go, and delivers a signal to it (0 for none).
pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the request touches no memory of this process.
    ok(unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0usize, signal as usize) })
}

/// Returns the new state of a traced thread, or None where it has none.
pub fn look(tid: i32) -> Option<Seen> {
    let mut status = 0;
    // SAFETY: `status` is an int of this process.
    let found = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        0 => None,
        found if found == tid && libc::WIFSTOPPED(status) => {
            Some(Seen::Stopped { signal: libc::WSTOPSIG(status), event: status >> 16 })
        }
        -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => None,
        _ => Some(Seen::Gone),
    }
}

/// Fills `buffer` with a set of registers of a stopped thread. Returns its size. `kind` is that of the note in a core.
pub fn registers(tid: i32, kind: u32, buffer: &mut [u8]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, kind as usize, &mut part) })?;
    Ok(part.iov_len.min(buffer.len()))
}

/// Returns the siginfo_t of the signal that a stopped thread is about to receive.
pub fn siginfo(tid: i32) -> io::Result<[u8; 128]> {
    let mut info = [0u64; 16];
    // SAFETY: a siginfo_t has 128 bytes (asm-generic/siginfo.h: SI_MAX_SIZE) and is aligned to 8.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0usize, info.as_mut_ptr()) })?;
    let mut bytes = [0; 128];
    for (to, word) in bytes.chunks_exact_mut(8).zip(info) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

/// A part of a file, mapped so that the kernel can write memory of another process into it.
#[derive(Debug)]
pub struct Window {
    pointer: *mut libc::c_void,
    start: u64,
    size: usize,
}

// SAFETY: the pointer is only ever handed to the kernel.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `size` bytes of the file from `start` on. `start` is a multiple of the page size.
    pub fn map(file: &File, start: u64, size: u64) -> io::Result<Window> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let size = usize::try_from(size).map_err(|_| invalid())?;
        let offset = libc::off_t::try_from(start).map_err(|_| invalid())?;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                offset,
            )
        };
        if pointer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Window { pointer, start, size })
    }

    /// Returns where it begins in the file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns where it ends in the file.
    pub fn end(&self) -> u64 {
        self.start + self.size as u64
    }

    fn at(&self, start: u64, size: u64) -> Option<libc::iovec> {
        let skip = start.checked_sub(self.start)?;
        let inside = skip.checked_add(size)? <= self.size as u64;
        // SAFETY: the part lies in the mapping.
        inside.then(|| libc::iovec {
            iov_base: unsafe { self.pointer.cast::<u8>().add(skip as usize) }.cast(),
            iov_len: size as usize,
        })
    }

    /// Makes the pages of a part, so that to write them later takes no fault.
    pub fn populate(&self, start: u64, size: u64) -> io::Result<()> {
        let part = self.at(start, size).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the part lies in the mapping, and its bytes stay as they are.
        ok(unsafe { libc::madvise(part.iov_base, part.iov_len, POPULATE_WRITE) }.into())
    }

    /// Reads parts of a process's memory, given as (address, size), to the same offsets of the file. At most `MOST_PARTS`
    /// of them are read. Returns how many bytes were read before the first that cannot be read.
    pub fn read(&self, pid: i32, parts: &[(u64, u64)]) -> io::Result<u64> {
        let parts = &parts[..parts.len().min(MOST_PARTS)];
        let to: Option<Vec<_>> = parts.iter().map(|&(start, size)| self.at(start, size)).collect();
        read(pid, parts, &to.ok_or(io::ErrorKind::InvalidInput)?)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this object alone.
        unsafe { libc::munmap(self.pointer, self.size) };
    }
}

/// Reads memory of a process into a buffer. Returns how many bytes were read before the first that cannot be read.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let to = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    read(pid, &[(address, buffer.len() as u64)], &[to])
}

fn read(pid: i32, parts: &[(u64, u64)], to: &[libc::iovec]) -> io::Result<u64> {
    let from: Vec<_> = parts
        .iter()
        .map(|&(start, size)| libc::iovec { iov_base: start as usize as *mut _, iov_len: size as usize })
        .collect();
    // SAFETY: every part of `to` is memory that only the kernel uses during the call. `from` is memory of the other
    // process, and the kernel checks it.
    let done = unsafe {
        libc::process_vm_readv(
            pid,
            to.as_ptr(),
            to.len() as libc::c_ulong,
            from.as_ptr(),
            from.len() as libc::c_ulong,
            0,
        )
    };
    u64::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// A run of pages that PAGEMAP_SCAN found: struct page_region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    categories: u64,
}

/// Which pages [`scan`] looks for: those that have `all` of some categories, after `inverted` ones were inverted, and
/// `any` of others (linux/fs.h: PAGE_IS_*).
#[derive(Clone, Copy, Debug)]
pub struct Categories {
    /// The categories that are inverted.
    pub inverted: u64,
    /// A page has all of these.
    pub all: u64,
    /// And one of these.
    pub any: u64,
}

#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Finds runs of pages in `[start, end)` of the process that the file /proc/PID/pagemap belongs to. Returns how many
/// `regions` were filled, and where the search ended.
pub fn scan(
    pagemap: &File,
    (start, end): (u64, u64),
    wanted: Categories,
    regions: &mut [Region],
) -> io::Result<(usize, u64)> {
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: 0,
        category_inverted: wanted.inverted,
        category_mask: wanted.all,
        category_anyof_mask: wanted.any,
        return_mask: 0, // which of them a page has does not matter, so runs are longer
    };
    // SAFETY: the kernel writes at most `vec_len` regions, and the fields of the argument.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), SCAN, &mut arg) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    Ok((found.min(regions.len()), arg.walk_end))
}
