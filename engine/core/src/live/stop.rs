//! Stops all threads of a process, and lets them go.
//!
//! PTRACE_SEIZE leaves no trace: a stopped process stays stopped, a running one runs on, and where this thread ends, or this
//! process is killed, the kernel lets the traced threads go.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use super::trouble::Trouble;
use crate::hw::trace::{detach, interrupt, look, registers, seize, siginfo, Seen, EVENT_STOP};

/// A thread that does not stop within this time waits in the kernel.
const PATIENCE: Duration = Duration::from_secs(3);
const MOST_REGISTERS: usize = 1 << 17;
/// The kinds of the notes with the registers of a thread (linux/elf.h). The first are the general ones.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 4] = [1, 2, 0x202, 0x200];
#[cfg(not(target_arch = "x86_64"))]
const KINDS: [u32; 8] = [1, 2, 0x401, 0x405, 0x406, 0x40b, 0x40c, 0x40d];

/// A stopped thread.
#[derive(Debug)]
pub struct Tracee {
    /// Its number.
    pub tid: i32,
    /// The signal that it is about to receive, or 0.
    pub signal: i32,
}

/// A thread as it was when the process stopped.
#[derive(Debug)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// The signal that it was about to receive, or 0, and its siginfo_t.
    pub signal: i32,
    /// The siginfo_t of the signal.
    pub siginfo: Option<[u8; 128]>,
    /// The registers, by the kind of their note.
    pub registers: Vec<(u32, Vec<u8>)>,
}

/// A process whose threads are stopped. It runs on when this is dropped.
#[derive(Debug)]
pub struct Held {
    threads: Vec<Tracee>,
    began: Instant,
}

impl Held {
    /// Stops all threads. Threads that appear meanwhile are stopped, too.
    pub fn stop(pid: i32) -> Result<Held, Trouble> {
        let mut held = Held { threads: Vec::new(), began: Instant::now() };
        let mut known = HashSet::new();
        let mut quiet = 0;
        // Stopped threads make no new ones. A listing is not atomic: a thread may end while it is read, and the list moves
        // up. So the second listing without a new thread counts.
        while quiet < 2 {
            let mut fresh = Vec::new();
            for tid in tasks(pid)? {
                if known.insert(tid) && seized(pid, tid)? {
                    fresh.push(tid);
                }
            }
            quiet = if fresh.is_empty() { quiet + 1 } else { 0 };
            if held.threads.is_empty() {
                held.began = Instant::now();
            }
            for &tid in &fresh {
                let _ = interrupt(tid); // it may have ended
            }
            held.wait_for(pid, fresh)?;
        }
        if held.threads.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH).into());
        }
        Ok(held)
    }

    fn wait_for(&mut self, pid: i32, mut running: Vec<i32>) -> Result<(), Trouble> {
        let began = Instant::now();
        let mut rounds = 0;
        loop {
            running.retain(|&tid| match look(tid) {
                Some(Seen::Stopped { signal, event }) => {
                    let signal = if event == EVENT_STOP { 0 } else { signal };
                    self.threads.push(Tracee { tid, signal });
                    false
                }
                Some(Seen::Gone) => false,
                None => true,
            });
            let Some(&first) = running.first() else { return Ok(()) };
            rounds += 1;
            if rounds < 100 {
                yield_now();
                continue;
            }
            sleep(Duration::from_micros(100));
            running.retain(|&tid| !ended(pid, tid));
            if began.elapsed() > PATIENCE {
                return Err(Trouble::Stuck(first));
            }
        }
    }

    /// Returns when the first thread was asked to stop.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Returns the registers of all threads, the first thread of the process first.
    pub fn registers(&self, pid: i32) -> Vec<Thread> {
        let mut buffer = vec![0; MOST_REGISTERS];
        let mut all: Vec<Thread> = self
            .threads
            .iter()
            .map(|thread| Thread {
                tid: thread.tid,
                signal: thread.signal,
                siginfo: if thread.signal == 0 { None } else { siginfo(thread.tid).ok() },
                registers: KINDS
                    .iter()
                    .filter_map(|&kind| {
                        let size = registers(thread.tid, kind, &mut buffer).ok()?;
                        (size > 0).then(|| (kind, buffer[..size].to_vec()))
                    })
                    .collect(),
            })
            .collect();
        all.sort_by_key(|thread| (thread.tid != pid, thread.tid));
        all
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for thread in &self.threads {
            let _ = detach(thread.tid, thread.signal); // it may have been killed
        }
    }
}

/// Becomes the tracer of a thread. Returns false where it has ended.
fn seized(pid: i32, tid: i32) -> Result<bool, Trouble> {
    match seize(tid) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        // The first thread of a process may end before the others.
        Err(_) if ended(pid, tid) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn tasks(pid: i32) -> Result<Vec<i32>, Trouble> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        match entry {
            Ok(entry) => found.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn ended(pid: i32, tid: i32) -> bool {
    let Ok(text) = fs::read(format!("/proc/{pid}/task/{tid}/stat")) else { return true };
    // "TID (NAME) STATE": the name may have any character.
    let behind = text.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    matches!(text.get(behind + 2), None | Some(b'Z' | b'X' | b'x'))
}
