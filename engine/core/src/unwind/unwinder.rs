//! Walks from a thread's registers to its frames.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::arch::{Arch, Registers, Trampoline, UNKNOWN};
use super::cfi::{self, Module, ModuleTables, Rules};
use super::frame::{End, Found, Frame};
use super::memory::Memory;
use super::{expression, signal};
use crate::image::Image;

/// What is at a pc. It is kept, because threads share their code.
#[derive(Clone, Debug)]
enum At {
    Trampoline(&'static Trampoline),
    Rules(Arc<Rules>),
    Nothing,
}

/// How many pcs are remembered. Real processes have a few hundred; hostile ones may have any number.
const MAX_REMEMBERED: usize = 1 << 16;

/// How many signal frames are searched for in one stack.
const MAX_SCANS: usize = 4;

/// Unwinds the threads of one process. May be shared between threads.
pub struct Unwinder {
    image: Arc<Image>,
    arch: &'static Arch,
    modules: Vec<ModuleTables>,
    /// Executable mappings, sorted.
    code: Vec<(u64, u64)>,
    remembered: Mutex<HashMap<(u64, bool), At>>,
    quiet: Mutex<signal::Quiet>,
}

impl Unwinder {
    /// Makes an unwinder. `code` are the executable mappings. Where they hold an ELF header that `modules` does not list
    /// (the vdso), its tables are used too.
    pub fn new(image: Arc<Image>, arch: &'static Arch, modules: Vec<Module>, mut code: Vec<(u64, u64)>) -> Unwinder {
        code.sort_unstable();
        let mut tables: Vec<ModuleTables> = Vec::new();
        for &(start, end) in &code {
            if modules.iter().any(|m| m.start <= start && start < m.end) {
                continue;
            }
            if let Some(bias) = cfi::bias_of_header(&image, arch, start) {
                tables.push(ModuleTables::new(Module { start, end, bias, file: None }));
            }
        }
        tables.extend(modules.into_iter().map(ModuleTables::new));
        tables.sort_by_key(ModuleTables::range);
        Unwinder { image, arch, modules: tables, code, remembered: Mutex::default(), quiet: Mutex::default() }
    }

    /// Returns the machine.
    pub fn arch(&self) -> &'static Arch {
        self.arch
    }

    /// Returns whether the address lies in an executable mapping.
    pub fn is_code(&self, pc: u64) -> bool {
        let at = self.code.partition_point(|&(start, _)| start <= pc);
        at > 0 && pc < self.code[at - 1].1
    }

    /// Returns the code with `pc` that has one entry in the unwind tables, (first byte, end): a function, or the part of
    /// one that lies together. None where no entry describes it.
    pub fn function(&self, pc: u64) -> Option<(u64, u64)> {
        self.rules(pc).map(|rules| rules.code)
    }

    /// Returns the frames, innermost first: at least one where pc and sp are known, at most `limit`.
    pub fn unwind(&self, registers: &Registers, limit: usize) -> (Vec<Frame>, End) {
        let mut memory = Memory::new(&self.image);
        let mut frames = Vec::new();
        let mut seen = HashSet::new();
        let mut scans = 0;
        let Some(first) = self.frame(*registers, Found::Thread, true) else { return (frames, End::Unreadable) };
        frames.push(first);
        loop {
            let last = frames.len() - 1;
            let step = if seen.insert((frames[last].pc, frames[last].sp)) {
                self.step(&mut memory, &mut frames[last])
            } else {
                Err(End::NotIncreasing)
            };
            let next = match step {
                Err(end) if end.is_short() && scans < MAX_SCANS => {
                    scans += 1;
                    self.scan(&mut memory, &frames[last]).ok_or(end)
                }
                step => step,
            };
            match next {
                Ok(_) if frames.len() >= limit => return (frames, End::Limit),
                Ok(frame) => frames.push(frame),
                Err(end) => return (frames, end),
            }
        }
    }

    fn frame(&self, registers: Registers, found: Found, exact: bool) -> Option<Frame> {
        let (pc, sp) = (registers[self.arch.pc]?, registers[self.arch.sp]?);
        let saved = Vec::new();
        Some(Frame { pc, sp, registers, found, exact, trampoline: false, ucontext: None, siginfo: None, saved })
    }

    /// Returns the caller of `frame`. If `frame` is a trampoline, fills in what is known of it.
    fn step(&self, memory: &mut Memory<'_>, frame: &mut Frame) -> Result<Frame, End> {
        let at = match self.at(memory, frame.pc, frame.exact) {
            // It is known by the frame after it: its own code may not be in the dump.
            At::Nothing if frame.found == Found::Scan => At::Trampoline(&self.arch.trampolines[0]),
            at => at,
        };
        match at {
            At::Trampoline(trampoline) => {
                let (sp, saved) = match (frame.found, self.arch.link) {
                    (Found::FramePointer, Some(_)) => signal::frame_above(self.arch, memory, trampoline, frame.sp),
                    _ => signal::frame_at(self.arch, memory, trampoline, frame.sp).map(|saved| (frame.sp, saved)),
                }
                .ok_or(End::Unreadable)?;
                frame.trampoline = true;
                frame.sp = sp;
                frame.registers[self.arch.sp] = Some(sp);
                frame.ucontext = Some(saved.ucontext);
                frame.siginfo = Some(saved.siginfo);
                frame.saved = signal::preserved(self.arch, saved.ucontext);
                self.frame(saved.registers, Found::Signal, true).ok_or(End::Unreadable)
            }
            At::Rules(rules) => {
                let registers = self.apply(memory, &rules, frame)?;
                frame.trampoline = rules.signal;
                let found = if rules.signal { Found::Signal } else { Found::Cfi };
                let next = self.frame(registers, found, rules.signal).ok_or(End::Unreadable)?;
                self.checked(frame, next)
            }
            At::Nothing => self.guess(memory, frame),
        }
    }

    /// Returns what is at a pc. Each pc is looked up once.
    fn at(&self, memory: &mut Memory<'_>, pc: u64, exact: bool) -> At {
        let mut remembered = self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(at) = remembered.get(&(pc, exact)) {
            return at.clone();
        }
        let at = self.look_up(memory, pc, exact);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert((pc, exact), at.clone());
        at
    }

    fn look_up(&self, memory: &mut Memory<'_>, pc: u64, exact: bool) -> At {
        if !self.is_code(pc) {
            return At::Nothing;
        }
        if let Some(trampoline) = signal::trampoline_at(self.arch, memory, pc) {
            return At::Trampoline(trampoline);
        }
        // The return address of a call that does not return may belong to the next function, so the call itself is
        // looked up. A trampoline is never called: its address is its first instruction.
        let rules = match self.rules(pc) {
            Some(rules) if exact || rules.signal => Some(rules),
            _ if exact => None,
            _ => self.rules(pc.wrapping_sub(1)).filter(|rules| !rules.signal),
        };
        rules.map_or(At::Nothing, |rules| At::Rules(Arc::new(rules)))
    }

    fn rules(&self, pc: u64) -> Option<Rules> {
        let at = self.modules.partition_point(|m| m.range().0 <= pc).checked_sub(1)?;
        let module = self.modules.get(at).filter(|m| pc < m.range().1)?;
        module.rules(&self.image, self.arch, pc)
    }

    /// Returns the caller's registers, by the tables. Notes in `frame` where they were saved.
    fn apply(&self, memory: &mut Memory<'_>, rules: &Rules, frame: &mut Frame) -> Result<Registers, End> {
        let arch = self.arch;
        let cfa = expression::evaluate(arch, memory, &rules.cfa, &frame.registers, None).ok_or(End::Unreadable)?;
        let mut registers = UNKNOWN;
        for &register in arch.callee_saved {
            registers[register] = frame.registers[register];
        }
        registers[arch.sp] = Some(cfa);
        for (register, rule) in &rules.registers {
            if *register < registers.len() {
                registers[*register] = expression::evaluate(arch, memory, rule, &frame.registers, Some(cfa));
            }
            if arch.callee_saved.contains(register) {
                let at = expression::place(arch, memory, rule, &frame.registers, Some(cfa));
                frame.saved.extend(at.map(|at| (*register, at)));
            }
        }
        let has_rule = rules.registers.iter().any(|(register, _)| *register == rules.return_address);
        registers[arch.pc] = match (has_rule, arch.link) {
            (true, _) => registers.get(rules.return_address).copied().flatten().ok_or(End::Unreadable)?.into(),
            // A leaf function leaves its return address in the link register. Only the innermost frame can be one.
            // `_start`, whose rule for the return address is "undefined", looks the same here: there the register holds
            // anything.
            (false, Some(link)) if frame.exact && rules.return_address == link => {
                let pc = frame.registers[link].ok_or(End::Unreadable)? & arch.code_mask;
                if !self.is_code(pc) {
                    return Err(End::NotCode);
                }
                Some(pc)
            }
            // DW_CFA_undefined: _start and clone say by it that nobody called them.
            (false, _) => return Err(End::Outermost),
        };
        Ok(registers)
    }

    /// Checks what holds for every caller's frame, unless a signal lies between (a handler may have its own stack).
    fn checked(&self, frame: &Frame, mut next: Frame) -> Result<Frame, End> {
        if next.pc & !self.arch.code_mask != 0 {
            next.pc &= self.arch.code_mask;
            next.registers[self.arch.pc] = Some(next.pc);
        }
        if next.pc == 0 {
            return Err(End::Zero);
        }
        let leaf = frame.exact && self.arch.link.is_some();
        if next.found != Found::Signal && (next.sp < frame.sp || (next.sp == frame.sp && !leaf)) {
            return Err(End::NotIncreasing);
        }
        Ok(next)
    }

    /// Guesses without tables: first the caller of a jump to nowhere, then the frame pointer chain.
    fn guess(&self, memory: &mut Memory<'_>, frame: &Frame) -> Result<Frame, End> {
        let arch = self.arch;
        let in_code = self.is_code(frame.pc);
        if frame.exact {
            if let Some(pc) = self.entry_return_address(memory, frame, in_code) {
                let mut registers = frame.registers;
                registers[arch.pc] = Some(pc);
                if arch.link.is_none() {
                    registers[arch.sp] = frame.sp.checked_add(arch.word as u64);
                }
                let found = if in_code { Found::Leaf } else { Found::BadJump };
                return self.frame(registers, found, false).ok_or(End::NotCode);
            }
        }
        if !in_code && !frame.exact {
            return Err(End::NotCode);
        }
        self.frame_pointer(memory, frame).map_err(|end| match end {
            End::NoTables if !in_code => End::NotCode,
            end => end,
        })
    }

    /// Returns the return address where a function finds it on entry, if a call precedes it. Where the pc is not in code,
    /// any call will do. For code without tables the call must lead to just before the pc.
    fn entry_return_address(&self, memory: &mut Memory<'_>, frame: &Frame, in_code: bool) -> Option<u64> {
        const REACH: u64 = 4096;
        let arch = self.arch;
        let pc = match arch.link {
            Some(link) => frame.registers[link]? & arch.code_mask,
            None => memory.word(frame.sp, arch.word)?,
        };
        if !in_code {
            return self.follows_call(memory, pc).then_some(pc);
        }
        let mut before = [0; 8];
        memory.read(pc.checked_sub(8)?, &mut before)?;
        let target = arch.call_target(&before, pc)?;
        (self.is_code(pc) && target <= frame.pc && frame.pc - target < REACH).then_some(pc)
    }

    fn frame_pointer(&self, memory: &mut Memory<'_>, frame: &Frame) -> Result<Frame, End> {
        let arch = self.arch;
        let word = arch.word as u64;
        let fp = frame.registers[arch.fp].ok_or(End::NoTables)?;
        if fp < frame.sp || fp % word != 0 {
            return Err(End::NoTables);
        }
        let saved = memory.word(fp, arch.word).ok_or(End::NoTables)?;
        let pc = fp.checked_add(word).and_then(|at| memory.word(at, arch.word)).ok_or(End::NoTables)? & arch.code_mask;
        if pc == 0 {
            // Where no frame pointer led here, the register may hold anything, such as the address of zeros.
            return Err(if frame.found == Found::FramePointer { End::Zero } else { End::NoTables });
        }
        if !self.follows_call(memory, pc) && !self.is_trampoline(memory, pc) {
            return Err(End::NoTables);
        }
        let mut registers = UNKNOWN;
        registers[arch.pc] = Some(pc);
        registers[arch.fp] = Some(saved);
        registers[arch.sp] = fp.checked_add(2 * word);
        self.frame(registers, Found::FramePointer, false).ok_or(End::NoTables)
    }

    fn is_trampoline(&self, memory: &mut Memory<'_>, pc: u64) -> bool {
        self.is_code(pc) && signal::trampoline_at(self.arch, memory, pc).is_some()
    }

    /// Returns whether `pc` can be a return address: it is in code, and it follows a call if the dump has those bytes.
    fn follows_call(&self, memory: &mut Memory<'_>, pc: u64) -> bool {
        let mut before = [0; 8];
        let Some(start) = pc.checked_sub(8) else { return false };
        self.is_code(pc) && memory.read(start, &mut before).is_none_or(|()| self.arch.ends_in_call(&before))
    }

    fn scan(&self, memory: &mut Memory<'_>, last: &Frame) -> Option<Frame> {
        // The words of a trampoline's own frame were read already.
        let from = if last.trampoline { last.sp.checked_add(1)? } else { last.sp };
        let (pc, sp) = {
            let mut quiet = self.quiet.lock().unwrap_or_else(|e| e.into_inner());
            signal::scan(self.arch, memory, from, |pc| self.is_code(pc), &mut quiet)?
        };
        let mut registers = UNKNOWN;
        registers[self.arch.pc] = Some(pc);
        registers[self.arch.sp] = Some(sp);
        self.frame(registers, Found::Scan, true)
    }
}
