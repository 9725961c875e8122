//! Answers for one program or library, from files that are opened when it is first asked.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::dwarf::{DebugInfo, Frame};
use super::locate::{self, Wanted};
use crate::control::{Control, Stopped};

/// The stack of the thread that parses. Its limit is what bounds the recursion.
const STACK: usize = 8 << 20;
/// Hostile debug information may fail at every address: the first problems suffice.
const MAX_PROBLEMS: usize = 16;

/// Source lines and inlined functions of one program or library. May be shared between threads.
pub struct Lines {
    wanted: Wanted,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    searched: bool,
    debug_file: Option<PathBuf>,
    debug: Option<DebugInfo>,
    problems: Vec<String>,
}

impl State {
    fn note(&mut self, problems: Vec<String>) {
        for problem in problems {
            if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }
}

impl Lines {
    /// Prepares answers for a file. `roots` are folders like /usr/lib/debug. `build_id` is what the process had in memory: a file
    /// with another one is not used. Without a `path` only the build-id leads to debug information.
    pub fn new(path: Option<PathBuf>, roots: Vec<PathBuf>, build_id: Option<Vec<u8>>) -> Lines {
        let build_id = build_id.filter(|id| !id.is_empty());
        Lines { wanted: Wanted { path, roots, build_id }, state: Mutex::default() }
    }

    /// Returns the file that the answers come from: the program itself or a separate file. None: neither has any.
    pub fn debug_file(&self) -> Option<PathBuf> {
        let mut state = self.lock();
        on_own_stack(&mut state, |state| self.open(state));
        state.debug_file.clone()
    }

    /// Returns what was wrong with files and their debug information so far, as sentences.
    pub fn problems(&self) -> Vec<String> {
        self.lock().problems.clone()
    }

    /// Returns the frames at each address of the file (the address in memory less the bias), innermost first: no frames where
    /// nothing is known. For a return address, ask for the address before it.
    pub fn find(&self, addresses: &[u64], control: &Control) -> Result<Vec<Vec<Frame>>, Stopped> {
        let mut state = self.lock();
        let mut answers = vec![Vec::new(); addresses.len()];
        let mut cancelled = false;
        on_own_stack(&mut state, |state| {
            self.open(state);
            for (answer, &address) in answers.iter_mut().zip(addresses) {
                cancelled = control.cancelled();
                if cancelled {
                    return;
                }
                *answer = self.frames(state, address);
            }
        });
        if cancelled {
            return Err(Stopped::Cancelled);
        }
        Ok(answers)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn open(&self, state: &mut State) {
        if std::mem::replace(&mut state.searched, true) {
            return;
        }
        let mut found = locate::find(&self.wanted);
        let path = found.debug.as_ref().map(|debug| debug.path.clone());
        let program: Option<&Path> = self.wanted.path.as_deref();
        let debug = catch_unwind(AssertUnwindSafe(|| DebugInfo::load(&mut found, program, STACK)));
        state.note(found.problems);
        match debug {
            Ok(Some(Ok(debug))) => {
                state.debug = Some(debug);
                state.debug_file = path;
            }
            Ok(Some(Err(problem))) => state.note(vec![problem]),
            Ok(None) => {}
            Err(_) => state.note(vec![broke(path.as_deref())]),
        }
    }

    fn frames(&self, state: &mut State, address: u64) -> Vec<Frame> {
        let Some(debug) = &mut state.debug else { return Vec::new() };
        let mut problems = Vec::new();
        let answer = catch_unwind(AssertUnwindSafe(|| debug.frames(address, STACK, &mut problems)));
        let path = state.debug_file.as_deref();
        let frames = match answer {
            Ok(Ok(frames)) => frames,
            Ok(Err(why)) => {
                let path = path.unwrap_or(Path::new("")).display();
                problems.push(format!("{path}: {why}"));
                Vec::new()
            }
            Err(_) => {
                problems.push(broke(path));
                // What a panic left half done is not asked again.
                state.debug = None;
                Vec::new()
            }
        };
        state.note(problems);
        frames
    }
}

fn broke(path: Option<&Path>) -> String {
    format!("{}: its debug information is damaged (the parser failed)", path.unwrap_or(Path::new("")).display())
}

/// Runs `work` on a thread whose stack has a known size.
fn on_own_stack(state: &mut State, work: impl FnOnce(&mut State) + Send) {
    let failed = std::thread::scope(|scope| {
        let state = &mut *state;
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || work(state)) {
            Ok(thread) => thread.join().is_err().then_some("the parser failed"),
            Err(_) => Some("no thread could be started"),
        }
    });
    if let Some(why) = failed {
        state.note(vec![format!("debug information was not read: {why}")]);
    }
}
