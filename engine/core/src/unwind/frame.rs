//! Frames: how each was found, and why there are no more.

use super::arch::Registers;

/// How a frame's registers were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// They are the thread's registers.
    Thread,
    /// The call frame information of the frame below.
    Cfi,
    /// The kernel saved them when it delivered a signal.
    Signal,
    /// Guess: the frame pointer chain.
    FramePointer,
    /// Guess: the thread jumped to an address without code, and the return address of that call is still in place.
    BadJump,
    /// Guess: there are no tables, but the call before the return address leads to this code. (The system call of glibc's
    /// clone3, which hides its tables from its child.)
    Leaf,
    /// Guess: unwinding stopped short, and a signal frame was found further up the stack.
    Scan,
}

impl Found {
    /// Returns the name of the way.
    pub fn name(self) -> &'static str {
        match self {
            Found::Thread => "thread",
            Found::Cfi => "cfi",
            Found::Signal => "signal",
            Found::FramePointer => "frame pointer",
            Found::BadJump => "bad jump",
            Found::Leaf => "leaf",
            Found::Scan => "scan",
        }
    }
}

/// One frame, with the registers that are known in it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The program counter.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The known registers.
    pub registers: Registers,
    /// How they were found.
    pub found: Found,
    /// `pc` is the instruction that was to run next (in the innermost frame, or one that a signal interrupted), not a
    /// return address.
    pub exact: bool,
    /// This is the code that a signal handler returns to. The next frame is the one that the signal interrupted.
    pub trampoline: bool,
    /// In a trampoline's frame: where the kernel saved the registers and the `siginfo_t`.
    pub ucontext: Option<u64>,
    /// Where the kernel saved the `siginfo_t`.
    pub siginfo: Option<u64>,
    /// Where this function, or the kernel, saved registers that a function must preserve: (DWARF number, address). The
    /// words have what the next frame has in these registers.
    pub saved: Vec<(usize, u64)>,
}

/// Why there are no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The tables say that this function has no caller.
    Outermost,
    /// The return address is 0. Code without another way to mark the outermost frame does that.
    Zero,
    /// No tables cover the pc, and there is no frame pointer chain.
    NoTables,
    /// The pc is in no executable mapping.
    NotCode,
    /// The tables need a value that is not known or not in the dump.
    Unreadable,
    /// The caller's frame would be below its callee's, or the same frame came again.
    NotIncreasing,
    /// There are more frames than asked for.
    Limit,
}

impl End {
    /// Returns the name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            End::Outermost => "outermost",
            End::Zero => "zero",
            End::NoTables => "no tables",
            End::NotCode => "not code",
            End::Unreadable => "unreadable",
            End::NotIncreasing => "not increasing",
            End::Limit => "limit",
        }
    }

    /// Returns whether frames may be missing.
    pub(super) fn is_short(self) -> bool {
        self != End::Outermost
    }
}
