//! Signal frames. The kernel saves every register of the code that it interrupts, so the registers after one are exact.

use super::arch::{Arch, Context, Registers, Trampoline, UNKNOWN};
use super::memory::Memory;
use std::collections::BTreeMap;

/// Where the kernel saved its data, and the registers in it.
#[derive(Clone, Debug)]
pub struct SignalFrame {
    pub ucontext: u64,
    pub siginfo: u64,
    pub registers: Registers,
}

/// How far above the stack pointer a signal frame is searched when unwinding stops short.
const SCAN: u64 = 1 << 20;

/// Returns the trampoline whose code is at `pc`.
pub fn trampoline_at(arch: &'static Arch, memory: &mut Memory<'_>, pc: u64) -> Option<&'static Trampoline> {
    arch.trampolines.iter().find(|trampoline| {
        let mut code = [0; 16];
        let code = &mut code[..trampoline.code.len()];
        memory.read(pc, code).is_some() && code == trampoline.code
    })
}

/// Returns the signal frame of a trampoline that is about to run with `sp`.
pub fn frame_at(arch: &Arch, memory: &mut Memory<'_>, trampoline: &Trampoline, sp: u64) -> Option<SignalFrame> {
    let mut follow = |context| match context {
        Context::At(offset) => sp.checked_add(offset),
        Context::PointerAt(offset) => memory.word(sp.checked_add(offset)?, arch.word),
    };
    let (ucontext, siginfo) = (follow(trampoline.context)?, follow(trampoline.siginfo)?);
    let mut registers = UNKNOWN;
    for &(number, offset) in arch.context {
        registers[number] = Some(memory.word(ucontext.checked_add(offset)?, arch.word)?);
    }
    Some(SignalFrame { ucontext, siginfo, registers })
}

/// Returns where the kernel saved the registers that a function must preserve: (DWARF number, address).
pub fn preserved(arch: &Arch, ucontext: u64) -> Vec<(usize, u64)> {
    let saved = arch.context.iter().filter(|(number, _)| arch.callee_saved.contains(number));
    saved.filter_map(|&(number, offset)| Some((number, ucontext.checked_add(offset)?))).collect()
}

/// Returns the signal frame of a trampoline that a frame pointer chain led to. Where calls do not push the return
/// address, the handler's frame is larger than its frame record. So the signal frame is the first plausible one above
/// that.
pub fn frame_above(
    arch: &Arch,
    memory: &mut Memory<'_>,
    trampoline: &Trampoline,
    sp: u64,
) -> Option<(u64, SignalFrame)> {
    const REACH: u64 = 1 << 16;
    (0..REACH / 16).find_map(|step| {
        let sp = sp.checked_add(16 * step)?;
        let frame = frame_at(arch, memory, trampoline, sp)?;
        plausible(arch, memory, &frame).then_some((sp, frame))
    })
}

/// Returns whether the kernel could have written the words of a `struct ucontext` for a process in user mode.
fn plausible(arch: &Arch, memory: &mut Memory<'_>, frame: &SignalFrame) -> bool {
    // uc_flags has three bits so far, uc_link is the kernel's 0 (fs/signal code of both machines).
    let flags_at = frame.ucontext;
    let (Some(flags), Some(link)) =
        (memory.word(flags_at, arch.word), memory.word(flags_at.saturating_add(arch.word as u64), arch.word))
    else {
        return false;
    };
    let Some(sp) = frame.registers[arch.sp] else { return false };
    if flags > 0xff || link != 0 || sp == 0 || sp >> 56 != 0 {
        return false;
    }
    match arch.name {
        "x86_64" => {
            // cs, gs, fs, ss: user segments of Linux; ss is 0 before UC_SIGCONTEXT_SS (Linux 4.6).
            let Some(segments) = memory.word(frame.ucontext.saturating_add(184), 8) else { return false };
            let (cs, ss) = (segments & 0xffff, segments >> 48);
            matches!(cs, 0x33 | 0x23) && matches!(ss, 0 | 0x2b)
        }
        "aarch64" => {
            // pstate: EL0, AArch64 (mode bits 0), no bits above 32; sp is 16-aligned; a signal number.
            let Some(pstate) = memory.word(frame.ucontext.saturating_add(448), 8) else { return false };
            let Some(signal) = memory.word(frame.siginfo, 4) else { return false };
            pstate >> 32 == 0 && pstate & 0x1f == 0 && sp & 0xf == 0 && (1..=64).contains(&signal)
        }
        // i386: cs in the low half of the word after eip.
        _ => memory.word(frame.ucontext.saturating_add(80), 4).is_some_and(|cs| matches!(cs & 0xffff, 0x23 | 0x73)),
    }
}

/// Returns whether x86-64's kernel wrote this: its floating point state follows, aligned for xsave, and the interrupted
/// pc is code. This matters when the dump lacks the trampoline's own code.
fn has_floating_point_state(memory: &mut Memory<'_>, frame: &SignalFrame, is_code: &impl Fn(u64) -> bool) -> bool {
    // mcontext.fpregs; the state lies above the frame: get_sigframe() in arch/x86/kernel/signal.c makes room for it first.
    const REACH: u64 = 1 << 14;
    let pc = frame.registers[super::arch::X86_64.pc];
    let state = frame.ucontext.checked_add(224).and_then(|at| memory.word(at, 8));
    let near = state.is_some_and(|at| at % 64 == 0 && at > frame.ucontext && at - frame.ucontext < REACH);
    near && pc.is_some_and(is_code)
}

type Named = Option<(u64, &'static Trampoline)>;

/// Stretches of memory without a signal frame. For each: where it begins, where it ends, and which trampoline was named
/// last. So each word of a stack is looked at once, however many threads share the stack.
#[derive(Default)]
pub struct Quiet(BTreeMap<u64, (u64, Named)>);

impl Quiet {
    /// Returns where the stretch that holds `at` ends.
    fn end(&self, at: u64) -> Option<(u64, Named)> {
        self.0.range(..=at).next_back().map(|(_, stretch)| *stretch).filter(|stretch| at < stretch.0)
    }

    /// Returns where the next stretch begins.
    fn next(&self, at: u64) -> u64 {
        self.0.range(at..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    fn add(&mut self, start: u64, end: u64, named: Named) {
        let (mut whole, mut stop, mut named) = (start, end, named);
        while let Some((&before, &(until, last))) = self.0.range(..=stop).next_back().filter(|(_, s)| s.0 >= whole) {
            self.0.remove(&before);
            whole = whole.min(before);
            if until > stop {
                (stop, named) = (until, last);
            }
        }
        if whole < stop {
            self.0.insert(whole, (stop, named));
        }
    }
}

/// Searches upward from `sp` for the address of a trampoline, with a plausible signal frame where the trampoline would
/// find one. Returns (the trampoline's address, its sp). `is_code` says which values are worth a check; `quiet` holds the
/// stretches that were searched.
pub fn scan(
    arch: &'static Arch,
    memory: &mut Memory<'_>,
    sp: u64,
    is_code: impl Fn(u64) -> bool,
    quiet: &mut Quiet,
) -> Option<(u64, u64)> {
    let word = arch.word as u64;
    let start = sp.checked_add(word - 1)? & !(word - 1);
    let &(first, end) = memory.image.covered(start, start.saturating_add(SCAN)).first()?;
    if first > start {
        return None;
    }
    let mut last: Named = None;
    let mut rejected: Option<u64> = None;
    let (mut at, mut known_from) = (start, start);
    let mut found = None;
    while found.is_none() && at.checked_add(word).is_some_and(|next| next <= end) {
        if at >= known_from {
            if let Some((stop, named)) = quiet.end(at) {
                (at, last) = (stop, named.or(last));
            }
            known_from = quiet.next(at);
            continue;
        }
        let Some(value) = memory.word(at, arch.word) else { break };
        let next = at + word;
        let mut known = true;
        if rejected != Some(value) && is_code(value) {
            known = memory.word(value, 1).is_some();
            match trampoline_at(arch, memory, value) {
                Some(found) => last = Some((value, found)),
                None if !known && arch.name == "x86_64" => last = Some((value, &arch.trampolines[0])),
                None => rejected = Some(value),
            }
        }
        // x86 pushes the trampoline's address as the handler's return address, so its frame follows directly. AArch64
        // passes it in the link register: the handler saves it, below the frame.
        let candidate = match (last, arch.link) {
            (Some((pc, kind)), None) if pc == value => Some((pc, kind, next)),
            (Some((pc, kind)), Some(_)) if at % 16 == 0 => Some((pc, kind, at)),
            _ => None,
        };
        if let Some((pc, kind, sp)) = candidate {
            if let Some(frame) = frame_at(arch, memory, kind, sp) {
                if plausible(arch, memory, &frame) && (known || has_floating_point_state(memory, &frame, &is_code)) {
                    found = Some((pc, sp));
                    continue;
                }
            }
        }
        at = next;
    }
    quiet.add(start, at, last);
    found
}
