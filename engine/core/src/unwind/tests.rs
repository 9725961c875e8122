//! Synthetic processes with known answers: a module whose tables are written here, a stack laid out by hand.

use std::collections::HashSet;
use std::sync::Arc;

use gimli::write::{
    Address, CallFrameInstruction as Cfi, CommonInformationEntry, EhFrame, EndianVec, FrameDescriptionEntry, FrameTable,
};
use gimli::{Encoding, Format, LittleEndian, Register};

use super::*;
use crate::image::{Image, Segment, Source};

const MODULE: u64 = 0x40_0000;
const CODE: u64 = 0x41_0000;
const STACK: u64 = 0x7fff_0000_0000;
const ALTERNATE: u64 = 0x7f00_0000_0000;
const STACK_SIZE: usize = 0x4000;

/// Functions of 0x100 bytes, each described by its instructions: (offset in the function, instruction).
type Function = Vec<(u32, Cfi)>;

struct Process {
    arch: &'static Arch,
    code: Vec<u8>,
    eh_frame: Vec<u8>,
    stack: Vec<u8>,
    alternate: Vec<u8>,
}

impl Process {
    /// Function `i` is at `CODE + 0x100 * i`.
    fn new(arch: &'static Arch, functions: &[Option<Function>]) -> Process {
        let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 1 };
        let (sp, ra) = (Register(arch.sp as u16), Register(arch.link.unwrap_or(arch.pc) as u16));
        let mut cie = CommonInformationEntry::new(encoding, 1, -8, ra);
        if arch.link.is_none() {
            cie.add_instruction(Cfi::Cfa(sp, 8));
            cie.add_instruction(Cfi::Offset(ra, -8));
        } else {
            cie.add_instruction(Cfi::Cfa(sp, 0));
        }
        let mut table = FrameTable::default();
        let cie = table.add_cie(cie);
        for (index, function) in functions.iter().enumerate() {
            if let Some(function) = function {
                let start = Address::Constant(CODE + 0x100 * index as u64);
                let mut fde = FrameDescriptionEntry::new(start, 0x100);
                for (at, instruction) in function {
                    fde.add_instruction(*at, instruction.clone());
                }
                table.add_fde(cie, fde);
            }
        }
        let mut section = EhFrame(EndianVec::new(LittleEndian));
        table.write_eh_frame(&mut section).unwrap();
        let code = vec![0x90; 0x100 * functions.len()];
        Process {
            arch,
            code,
            eh_frame: section.0.into_vec(),
            stack: vec![0; STACK_SIZE],
            alternate: vec![0; STACK_SIZE],
        }
    }

    fn push(&mut self, address: u64, value: u64) {
        let (bytes, start) = if address >= STACK { (&mut self.stack, STACK) } else { (&mut self.alternate, ALTERNATE) };
        let at = (address - start) as usize;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put_code(&mut self, address: u64, code: &[u8]) {
        let at = (address - CODE) as usize;
        self.code[at..at + code.len()].copy_from_slice(code);
    }

    /// What the kernel writes for a handler that is entered with its return address at `address` (x86-64).
    fn push_signal_frame(&mut self, address: u64, restorer: u64, pc: u64, sp: u64, rbx: u64) {
        self.push(address, restorer);
        let ucontext = address + 8;
        self.push(ucontext, 7);
        self.push(ucontext + 128, rbx);
        self.push(ucontext + 160, sp);
        self.push(ucontext + 168, pc);
        self.push(ucontext + 184, 0x002b_0000_0000_0033);
    }

    /// An ELF file whose .eh_frame_hdr has no search table, as `ld --no-eh-frame-hdr` would never make but a dump may hold.
    fn header(&self) -> Vec<u8> {
        let mut head = vec![0u8; 0x2000];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[6] = 1;
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &2u16.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &64u16.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &2u16.to_le_bytes());
        let size = 0x1_0000 + self.code.len() as u64;
        for (index, (kind, address, size)) in
            [(1u32, MODULE, size), (0x6474_e550, MODULE + 0x1000, 12)].iter().enumerate()
        {
            let at = 64 + 56 * index;
            put(at, &kind.to_le_bytes());
            put(at + 16, &address.to_le_bytes());
            put(at + 32, &size.to_le_bytes());
            put(at + 40, &size.to_le_bytes());
        }
        // Version 1, eh_frame_ptr pcrel|sdata4, no table; .eh_frame follows at 0x1010.
        put(0x1000, &[1, 0x1b, 0xff, 0xff]);
        put(0x1004, &(0x1010u32 - 0x1004).to_le_bytes());
        put(0x1010, &self.eh_frame);
        head
    }

    fn unwinder(&self) -> Unwinder {
        self.unwinder_of((CODE, CODE + self.code.len() as u64))
    }

    fn unwinder_of(&self, code: (u64, u64)) -> Unwinder {
        let segment = |start: u64, data: &[u8]| Segment {
            start,
            end: start + data.len() as u64,
            source: Source::Bytes(data.into()),
        };
        let segments = vec![
            segment(MODULE, &self.header()),
            segment(CODE, &self.code),
            segment(STACK, &self.stack),
            segment(ALTERNATE, &self.alternate),
        ];
        let module = Module { start: MODULE, end: code.1, bias: 0, file: None };
        Unwinder::new(Arc::new(Image::new(&[], segments).unwrap()), self.arch, vec![module], vec![code])
    }

    fn unwind(&self, pc: u64, sp: u64, more: &[(usize, u64)]) -> (Vec<(u64, u64, Found)>, End) {
        let (frames, end) = self.frames(pc, sp, more);
        (frames.iter().map(|f| (f.pc, f.sp, f.found)).collect(), end)
    }

    fn frames(&self, pc: u64, sp: u64, more: &[(usize, u64)]) -> (Vec<Frame>, End) {
        let mut registers = UNKNOWN;
        registers[self.arch.pc] = Some(pc);
        registers[self.arch.sp] = Some(sp);
        for &(number, value) in more {
            registers[number] = Some(value);
        }
        self.unwinder().unwind(&registers, 100)
    }
}

fn function(n: u64) -> u64 {
    CODE + 0x100 * n
}

fn frame_of(size: i32) -> Option<Function> {
    Some(vec![(4, Cfi::CfaOffset(size))])
}

fn outermost() -> Option<Function> {
    Some(vec![(0, Cfi::Undefined(Register(16)))])
}

const RESTORER: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

#[test]
fn tables_lead_to_the_outermost_frame() {
    let mut process = Process::new(&arch::X86_64, &[frame_of(32), frame_of(64), outermost()]);
    process.push(STACK + 0x100 + 24, function(1) + 0x20);
    process.push(STACK + 0x120 + 56, function(2) + 0x20);
    let (frames, end) = process.unwind(function(0) + 0x10, STACK + 0x100, &[]);
    let expected = vec![
        (function(0) + 0x10, STACK + 0x100, Found::Thread),
        (function(1) + 0x20, STACK + 0x120, Found::Cfi),
        (function(2) + 0x20, STACK + 0x160, Found::Cfi),
    ];
    assert_eq!((frames, end), (expected, End::Outermost));
}

#[test]
fn a_return_address_after_a_call_that_does_not_return_belongs_to_the_caller() {
    // Function 1 ends in the call, so the return address is where function 2, with another frame size, begins.
    let mut process = Process::new(&arch::X86_64, &[frame_of(16), frame_of(48), frame_of(800), outermost()]);
    process.push(STACK + 8, function(2));
    process.push(STACK + 16 + 40, function(3) + 9);
    let (frames, end) = process.unwind(function(0) + 0x10, STACK, &[]);
    assert_eq!(frames[2], (function(3) + 9, STACK + 64, Found::Cfi));
    assert_eq!(end, End::Outermost);
}

#[test]
fn behind_a_signal_frame_the_registers_are_exact() {
    // 0 is the handler, on an alternate stack; 1 the trampoline; 2 a function interrupted at its very first instruction, which
    // a look-up of pc - 1 would take for the trampoline.
    let mut process = Process::new(&arch::X86_64, &[frame_of(16), None, frame_of(400), outermost()]);
    process.put_code(function(1), RESTORER);
    process.push_signal_frame(ALTERNATE + 8, function(1), function(2), STACK + 0x40, 77);
    process.push(STACK + 0x40, function(3) + 1);
    let (frames, end) = process.frames(function(0) + 8, ALTERNATE, &[]);
    let trapped = &frames[2];
    assert_eq!(
        (trapped.pc, trapped.sp, trapped.found, trapped.exact),
        (function(2), STACK + 0x40, Found::Signal, true)
    );
    assert_eq!(trapped.registers[3], Some(77));
    assert!(frames[1].trampoline && !trapped.trampoline);
    assert_eq!((frames[1].ucontext, frames[1].siginfo), (Some(ALTERNATE + 16), Some(ALTERNATE + 16 + 304)));
    assert_eq!((frames[3].pc, frames[3].exact, end), (function(3) + 1, false, End::Outermost));
}

#[test]
fn a_call_through_null_shows_its_caller_as_a_guess() {
    let mut process = Process::new(&arch::X86_64, &[frame_of(32), outermost()]);
    process.put_code(function(0) + 0x1e, &[0xff, 0xd0]);
    process.push(STACK, function(0) + 0x20);
    process.push(STACK + 32, function(1) + 5);
    let (frames, end) = process.unwind(0, STACK, &[]);
    assert_eq!(frames[1], (function(0) + 0x20, STACK + 8, Found::BadJump));
    assert_eq!((frames[2].0, end), (function(1) + 5, End::Outermost));
    // What does not follow a call is no caller.
    process.put_code(function(0) + 0x1e, &[0x90, 0x90]);
    let (frames, end) = process.unwind(0, STACK, &[]);
    assert_eq!((frames.len(), end), (1, End::NotCode));
}

#[test]
fn code_without_tables_that_was_just_called_shows_its_caller() {
    let mut process = Process::new(&arch::X86_64, &[None, frame_of(32), outermost()]);
    process.push(STACK, function(1) + 0x25);
    process.push(STACK + 32, function(2) + 5);
    for (offset, found) in [(-0x125, Some(Found::Leaf)), (-0x105, None)] {
        process.put_code(function(1) + 0x20, &[0xe8]);
        process.put_code(function(1) + 0x21, &i32::to_le_bytes(offset));
        let (frames, end) = process.unwind(function(0) + 0x19, STACK, &[(6, 3)]);
        assert_eq!(frames.get(1).map(|frame| frame.2), found);
        assert_eq!(end, if found.is_some() { End::Outermost } else { End::NoTables });
    }
}

#[test]
fn without_tables_the_frame_pointer_leads_on_if_it_can_be_one() {
    let mut process = Process::new(&arch::X86_64, &[None, None, outermost()]);
    for (at, to) in [(1, 0x40), (2, 0x80)] {
        process.put_code(function(at) + 0x20, &[0xe8, 0, 0, 0, 0]);
        process.push(STACK + to, STACK + to + 0x40);
        process.push(STACK + to + 8, function(at) + 0x25);
    }
    let (frames, end) = process.unwind(function(0) + 1, STACK, &[(6, STACK + 0x40)]);
    let expected = vec![
        (function(0) + 1, STACK, Found::Thread),
        (function(1) + 0x25, STACK + 0x50, Found::FramePointer),
        (function(2) + 0x25, STACK + 0x90, Found::FramePointer),
    ];
    assert_eq!((frames, end), (expected, End::Outermost));
    for bad in [STACK - 8, STACK + 0x41, STACK + 0x48, 1, u64::MAX] {
        let (frames, _) = process.unwind(function(0) + 1, STACK, &[(6, bad)]);
        assert_eq!(frames.len(), 1, "{bad:#x}");
    }
}

#[test]
fn a_signal_frame_is_found_where_unwinding_stops_short() {
    let mut process = Process::new(&arch::X86_64, &[None, None, frame_of(16), outermost()]);
    process.put_code(function(1), RESTORER);
    // A restorer's address without a frame behind it is skipped.
    process.push(STACK + 0x80, function(1));
    process.push_signal_frame(STACK + 0x400, function(1), function(2) + 8, STACK + 0x800, 5);
    process.push(STACK + 0x808, function(3) + 1);
    let (frames, end) = process.frames(function(0) + 1, STACK, &[]);
    assert_eq!((frames[1].pc, frames[1].sp, frames[1].found), (function(1), STACK + 0x408, Found::Scan));
    assert_eq!((frames[2].pc, frames[2].sp, frames[2].found), (function(2) + 8, STACK + 0x800, Found::Signal));
    assert_eq!((frames.len(), end), (4, End::Outermost));
}

#[test]
fn a_signal_frame_is_found_where_the_dump_has_no_code_at_all() {
    let mut process = Process::new(&arch::X86_64, &[None, None, None]);
    let mapped = (CODE, CODE + process.code.len() as u64);
    process.code.clear();
    process.push_signal_frame(STACK + 0x400, function(1), function(2) + 8, STACK + 0x800, 5);
    for (state, count) in [(STACK + 0x640, 3), (STACK + 0x648, 1), (STACK, 1), (0, 1)] {
        process.push(STACK + 0x408 + 224, state);
        let unwinder = process.unwinder_of(mapped);
        let mut registers = UNKNOWN;
        registers[16] = Some(function(0) + 1);
        registers[7] = Some(STACK);
        let (frames, _end) = unwinder.unwind(&registers, 100);
        assert_eq!(frames.len(), count, "{state:x}");
        if count == 3 {
            assert_eq!((frames[1].pc, frames[1].found, frames[1].trampoline), (function(1), Found::Scan, true));
            assert_eq!((frames[2].pc, frames[2].sp), (function(2) + 8, STACK + 0x800));
        }
    }
}

#[test]
fn what_does_not_go_up_the_stack_ends_it() {
    // CFA = rbx + 16, which points back down.
    let sideways: Function = vec![(0, Cfi::Cfa(Register(3), 16))];
    let mut process = Process::new(&arch::X86_64, &[Some(sideways)]);
    process.push(STACK + 0x18, function(0) + 0x20);
    for rbx in [STACK + 0x10, STACK + 0xf0] {
        process.push(rbx + 8, function(0) + 0x20);
        assert_eq!(process.unwind(function(0) + 0x20, STACK + 0x100, &[(3, rbx)]).1, End::NotIncreasing);
    }
    assert_eq!(process.unwind(function(0) + 0x20, STACK + 0x100, &[(3, 0x10)]).1, End::Unreadable);
    assert_eq!(process.unwind(function(0) + 0x20, STACK + 0x100, &[]).1, End::Unreadable);
}

#[test]
fn a_signal_frame_that_leads_back_to_itself_ends_it() {
    let mut process = Process::new(&arch::X86_64, &[frame_of(16), None]);
    process.put_code(function(1), RESTORER);
    process.push_signal_frame(STACK + 8, function(1), function(0) + 8, STACK, 0);
    let (frames, end) = process.unwind(function(0) + 8, STACK, &[]);
    assert!(frames.len() < 12, "{frames:x?}");
    assert_eq!(end, End::NotIncreasing);
}

#[test]
fn aarch64_leaves_signs_and_signals() {
    let saves: Function =
        vec![(4, Cfi::CfaOffset(32)), (4, Cfi::Offset(Register(29), -32)), (4, Cfi::Offset(Register(30), -24))];
    let undefined = vec![(0, Cfi::Undefined(Register(30)))];
    let leaf = Some(vec![]);
    let mut process = Process::new(&arch::AARCH64, &[leaf, Some(saves), None, Some(undefined)]);
    process.put_code(function(2), arch::AARCH64.trampolines[0].code);
    // The leaf was called by 1, a handler whose signed return address leads to the trampoline.
    process.push(ALTERNATE + 8, function(2) | (0x2b << 56));
    let frame = ALTERNATE + 32;
    process.push(frame + 128 + 424, 99);
    process.push(frame + 128 + 432, STACK);
    process.push(frame + 128 + 440, function(3) + 4);
    let (frames, end) = process.frames(function(0) + 4, ALTERNATE, &[(30, (function(1) + 0x20) | (0x11 << 48))]);
    let seen: Vec<_> = frames.iter().map(|f| (f.pc, f.sp, f.found, f.exact)).collect();
    let expected = vec![
        (function(0) + 4, ALTERNATE, Found::Thread, true),
        (function(1) + 0x20, ALTERNATE, Found::Cfi, false),
        (function(2), ALTERNATE + 32, Found::Cfi, false),
        (function(3) + 4, STACK, Found::Signal, true),
    ];
    assert_eq!(seen, expected);
    assert_eq!(frames[3].registers[30], Some(99));
    assert_eq!(frames[2].siginfo, Some(ALTERNATE + 32));
    // In the interrupted frame the link register would do as a caller only if it pointed to code.
    assert_eq!(end, End::NotCode);
}

/// A handler without tables saved its frame record, and whatever else, below the signal frame.
#[test]
fn aarch64_signal_frames_are_found_above_a_handler_without_tables() {
    let mut process = Process::new(&arch::AARCH64, &[None, None, Some(vec![])]);
    process.put_code(function(1), arch::AARCH64.trampolines[0].code);
    process.push(ALTERNATE + 0x48, function(1));
    let frame = ALTERNATE + 0x80;
    process.push(frame, 11);
    process.push(frame + 128 + 432, STACK);
    process.push(frame + 128 + 440, function(2) + 4);
    // By the frame pointer, or by looking for a trampoline's address and a plausible frame above it.
    for (fp, found) in [(ALTERNATE + 0x40, Found::FramePointer), (1, Found::Scan)] {
        let (frames, _end) = process.unwind(function(0) + 4, ALTERNATE, &[(29, fp), (30, 0)]);
        assert_eq!(frames[1], (function(1), frame, found));
        assert_eq!(frames[2], (function(2) + 4, STACK, Found::Signal));
    }
}

#[test]
fn hostile_bytes_cost_no_more_than_an_end() {
    // xorshift64: the same damage in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut ends = HashSet::new();
    for round in 0..3000 {
        let mut process = Process::new(&arch::X86_64, &[frame_of(32), frame_of(64), None, frame_of(8), outermost()]);
        process.put_code(function(2), RESTORER);
        process.push(STACK + 24, function(1) + 0x20);
        process.push_signal_frame(STACK + 32 + 56, function(2), function(3) + 9, STACK + 0x1000, 0);
        process.push(STACK + 0x1000, function(4) + 1);
        for _ in 0..round % 8 {
            let at = random() as usize;
            let (bytes, reach) = match random() % 4 {
                0 => (&mut process.stack, 0x200),
                _ => (&mut process.eh_frame, 0x200),
            };
            let at = at % bytes.len().min(reach);
            bytes[at] = random() as u8;
        }
        let (frames, end) = process.unwind(function(0) + 0x10, STACK, &[(6, random() % STACK)]);
        assert!(!frames.is_empty() && frames.len() <= 100);
        ends.insert(end.name());
    }
    assert!(ends.contains("outermost") && ends.len() >= 4, "{ends:?}");
}
