//! Proves how much of the red zone a thread still uses.
//!
//! A leaf function of x86-64 may keep data in the 128 bytes below the stack pointer (psABI 3.2.2). Functions that have
//! returned leave old words there, too. A function that calls others keeps nothing there: GCC and LLVM use the zone in
//! leaf functions only (`ix86_compute_frame_layout` asks for `crtl->is_leaf`, `X86FrameLowering::emitPrologue` for
//! `!MFI.hasCalls()`).
//!
//! Behind a system call, most code is libc's, whose functions may be leaves. There this follows all paths from an instruction on with the registers of the thread,
//! until each path returns or calls a function: the zone holds no data that is needed across a call (psABI). What is not
//! proven counts as a read of the whole zone.

use std::collections::HashMap;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess,
    OpKind, Register, UsedMemory,
};

use crate::image::Image;

const SIZE: u64 = 128;
/// Registers in the order of their numbers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
pub type Registers = [u64; 16];
const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;
const RBP: usize = 5;
const R11: usize = 11;
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const CALL_ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
const SYSTEM_CALL_ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];
/// Instructions that are followed. Those behind a call only show whether hand-written code keeps the zone.
const MOST: usize = 4096;
const MOST_BEHIND_CALLS: usize = 256;
/// An address this far below the stack pointer may become one in the zone when something is added.
const NEAR: u64 = 4096;
const PAGE: u64 = 4096;
const LONGEST: usize = 15;

#[derive(Clone, Copy, PartialEq)]
enum Value {
    Known(u64),
    /// Nothing is known, but no address in the zone went into it.
    Other,
    /// It may be an address in the zone.
    Near,
}

#[derive(Clone, PartialEq)]
struct State {
    registers: [Value; 16],
    /// Bit n: byte n of the zone, from below, still has what it had at the beginning.
    old: u128,
    /// The path to here has called a function.
    called: bool,
}

/// Code of a function that is looked at. Those of interpreters are the largest.
const MOST_CODE: u64 = 1 << 20;

/// Returns whether the code in `[start, end)` calls a function: then its function is no leaf.
///
/// A system call and a jump to another function at the end do not count.
pub fn calls(image: &Image, start: u64, end: u64) -> bool {
    let mut code = vec![0; end.saturating_sub(start).min(MOST_CODE) as usize];
    let read = image.read(start, &mut code);
    let decoded = Decoder::with_ip(64, &code[..read], start, DecoderOptions::NONE);
    decoded.into_iter().take_while(|instruction| !instruction.is_invalid()).any(|instruction| {
        instruction.mnemonic() == Mnemonic::Call && instruction.near_branch_target() != instruction.next_ip()
    })
}

/// Where nothing is proven: the whole zone may be read.
struct Unproven;

struct Proof<'a> {
    image: &'a Image,
    stack: u64,
    /// Bytes below the stack pointer that may be read.
    in_use: u64,
    pages: HashMap<u64, Vec<u8>>,
}

/// Returns how many bytes below the stack pointer the code from `pc` on may read. None: there is no code at `pc`.
pub fn bytes_in_use(image: &Image, pc: u64, registers: &Registers) -> Option<u64> {
    let mut proof = Proof { image, stack: registers[RSP], in_use: 0, pages: HashMap::new() };
    proof.decode(pc)?;
    if registers[RSP] < PAGE {
        return Some(SIZE);
    }
    let mut first = State { registers: registers.map(Value::Known), old: u128::MAX, called: false };
    first.registers[RAX] = Value::Other;
    Some(if proof.follow(pc, first).is_ok() { proof.in_use } else { SIZE })
}

impl Proof<'_> {
    fn follow(&mut self, pc: u64, first: State) -> Result<(), Unproven> {
        let mut factory = InstructionInfoFactory::new();
        // A function that does not return is followed by other code. So what lies behind a call is kept apart.
        let mut seen: HashMap<(u64, bool), State> = HashMap::from([((pc, false), first)]);
        let (mut waiting, mut behind) = (vec![pc], Vec::new());
        let (mut left, mut left_behind) = (MOST, MOST_BEHIND_CALLS);
        while let Some((at, called)) = waiting.pop().map(|at| (at, false)).or_else(|| behind.pop().map(|at| (at, true)))
        {
            let state = seen[&(at, called)].clone();
            let budget = if called { &mut left_behind } else { &mut left };
            if *budget == 0 {
                if called {
                    continue;
                }
                return Err(Unproven);
            }
            *budget -= 1;
            let next = match self.step(&mut factory, at, state) {
                Err(Unproven) if called => continue,
                other => other?,
            };
            for (to, state) in next {
                let key = (to, state.called);
                let merged = match seen.get(&key) {
                    Some(old) => self.join(old, &state),
                    None => state,
                };
                if seen.get(&key) != Some(&merged) {
                    if merged.called { &mut behind } else { &mut waiting }.push(to);
                    seen.insert(key, merged);
                }
            }
        }
        Ok(())
    }

    fn join(&self, one: &State, other: &State) -> State {
        let mut merged = one.clone();
        for (to, &from) in merged.registers.iter_mut().zip(&other.registers) {
            if *to != from {
                *to = if self.is_near(*to) || self.is_near(from) { Value::Near } else { Value::Other };
            }
        }
        merged.old |= other.old;
        merged
    }

    fn is_near(&self, value: Value) -> bool {
        match value {
            Value::Known(address) => address < self.stack && address >= self.stack.saturating_sub(NEAR),
            Value::Other => false,
            Value::Near => true,
        }
    }

    fn decode(&mut self, at: u64) -> Option<Instruction> {
        let mut code = Vec::with_capacity(LONGEST);
        while code.len() < LONGEST {
            let address = at.checked_add(code.len() as u64)?;
            let page = address & !(PAGE - 1);
            let image = self.image;
            let bytes = self.pages.entry(page).or_insert_with(|| {
                let mut bytes = vec![0; PAGE as usize];
                let read = image.read(page, &mut bytes);
                bytes.truncate(read);
                bytes
            });
            let Some(rest) = bytes.get((address - page) as usize..).filter(|rest| !rest.is_empty()) else { break };
            code.extend_from_slice(&rest[..rest.len().min(LONGEST - code.len())]);
        }
        let found = Decoder::with_ip(64, &code, at, DecoderOptions::NONE).decode();
        (!found.is_invalid()).then_some(found)
    }

    /// Executes one instruction. Returns where it may lead to.
    fn step(
        &mut self,
        factory: &mut InstructionInfoFactory,
        at: u64,
        mut state: State,
    ) -> Result<Vec<(u64, State)>, Unproven> {
        let code = self.decode(at).ok_or(Unproven)?;
        let calls = matches!(code.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        if code.mnemonic() == Mnemonic::Syscall {
            self.check_arguments(&state, &SYSTEM_CALL_ARGUMENTS)?;
            for register in [RAX, RCX, R11] {
                state.registers[register] = Value::Other;
            }
            return Ok(vec![(code.next_ip(), state)]);
        }
        if !calls {
            let info = factory.info(&code);
            let memory = info.used_memory().to_vec();
            let written: Vec<usize> = info
                .used_registers()
                .iter()
                .filter(|used| is_write(used.access()))
                .filter_map(|used| number(used.register()))
                .collect();
            self.access(&code, &memory, &mut state)?;
            let target = self.indirect_target(&code, &state);
            self.assign(&code, &written, &mut state)?;
            return self.lead(&code, target, state);
        }
        if code.mnemonic() != Mnemonic::Call {
            return Err(Unproven); // sysenter, vmcall
        }
        let sp = self.stack_pointer(&state)?;
        if code.is_call_near() && code.near_branch_target() == code.next_ip() {
            let below = sp.wrapping_sub(8);
            state.old &= !self.bits(below, 8);
            state.registers[RSP] = Value::Known(below);
            return Ok(vec![(code.next_ip(), state)]);
        }
        self.check_arguments(&state, &CALL_ARGUMENTS)?;
        if sp < self.stack && state.old & self.bits(sp, self.stack - sp) != 0 {
            return Err(Unproven); // part of the zone has become the frame of this function
        }
        for register in CALLER_SAVED {
            state.registers[register] = Value::Other;
        }
        state.called = true;
        Ok(vec![(code.next_ip(), state)])
    }

    fn stack_pointer(&self, state: &State) -> Result<u64, Unproven> {
        match state.registers[RSP] {
            Value::Known(sp) => Ok(sp),
            _ => Err(Unproven),
        }
    }

    fn check_arguments(&self, state: &State, arguments: &[usize]) -> Result<(), Unproven> {
        let in_zone = |&at: &usize| match state.registers[at] {
            Value::Known(address) => self.bits(address, 1) != 0,
            value => value == Value::Near,
        };
        if arguments.iter().any(in_zone) {
            Err(Unproven)
        } else {
            Ok(())
        }
    }

    /// Returns the bytes of the zone in `[start, start + size)`.
    fn bits(&self, start: u64, size: u64) -> u128 {
        let low = self.stack - SIZE;
        let (from, to) = (start.max(low), start.saturating_add(size).min(self.stack));
        if from >= to {
            return 0;
        }
        (u128::MAX >> (SIZE - (to - from))) << (from - low)
    }

    /// Notes what the instruction reads of the zone, and what it overwrites there.
    fn access(&mut self, code: &Instruction, memory: &[UsedMemory], state: &mut State) -> Result<(), Unproven> {
        let repeated = code.has_rep_prefix() || code.has_repne_prefix();
        let text = code.is_string_instruction();
        for used in memory.iter().filter(|used| !matches!(used.segment(), Register::FS | Register::GS)) {
            let size = match (used.memory_size().size() as u64, text && repeated) {
                (_, true) | (0, _) => NEAR,
                (size, _) => size,
            };
            let address = self.address(used, state);
            if is_read(used.access()) {
                match address {
                    Value::Near => return Err(Unproven),
                    Value::Known(start) => self.read(state.old & self.bits(start, size)),
                    Value::Other => {}
                }
            }
            if is_write(used.access()) && self.stores_near(code, state) {
                return Err(Unproven); // an address in the zone is kept somewhere
            }
            if let (OpAccess::Write, Value::Known(start), false) = (used.access(), address, text) {
                if used.memory_size() != MemorySize::Unknown {
                    state.old &= !self.bits(start, size);
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: u128) {
        if bytes != 0 {
            self.in_use = self.in_use.max(SIZE - u64::from(bytes.trailing_zeros()));
        }
    }

    fn stores_near(&self, code: &Instruction, state: &State) -> bool {
        (0..code.op_count())
            .filter(|&operand| code.op_kind(operand) == OpKind::Register)
            .filter_map(|operand| number(code.op_register(operand)))
            .any(|at| match state.registers[at] {
                Value::Known(address) => self.bits(address, 1) != 0,
                value => value == Value::Near,
            })
    }

    fn address(&self, used: &UsedMemory, state: &State) -> Value {
        if used.base() == Register::RIP || used.base() == Register::EIP {
            return Value::Known(used.displacement());
        }
        self.sum(used.base(), used.index(), used.scale() as u64, used.displacement(), state)
    }

    fn sum(&self, base: Register, index: Register, scale: u64, displacement: u64, state: &State) -> Value {
        let (mut known, mut unknown, mut near) = (displacement, false, false);
        for (register, scale) in [(base, 1), (index, scale)] {
            match (register, number(register)) {
                (Register::None, _) => {}
                (_, Some(at)) if register.is_gpr64() => match state.registers[at] {
                    Value::Known(value) => known = known.wrapping_add(value.wrapping_mul(scale)),
                    value => {
                        unknown = true;
                        near |= value == Value::Near;
                    }
                },
                _ => unknown = true,
            }
        }
        match (unknown, near || self.is_near(Value::Known(known))) {
            (false, _) => Value::Known(known),
            (true, true) => Value::Near,
            (true, false) => Value::Other,
        }
    }

    /// Returns the word at the address, as the dump has it.
    fn load(&self, address: Value, state: &State) -> Value {
        match address {
            Value::Known(at) if self.bits(at, 8) & !state.old == 0 => {
                self.image.word(at, 8).map_or(Value::Other, Value::Known)
            }
            Value::Near => Value::Near,
            _ => Value::Other,
        }
    }

    /// Returns the address of the one operand in memory. `fs` and `gs` lead elsewhere.
    fn operand_address(&self, code: &Instruction, state: &State) -> Option<Value> {
        if matches!(code.segment_prefix(), Register::FS | Register::GS) {
            return None;
        }
        if code.is_ip_rel_memory_operand() {
            return Some(Value::Known(code.ip_rel_memory_address()));
        }
        let scale = u64::from(code.memory_index_scale());
        Some(self.sum(code.memory_base(), code.memory_index(), scale, code.memory_displacement64(), state))
    }

    fn operand(&self, code: &Instruction, operand: u32, state: &State) -> Value {
        match code.op_kind(operand) {
            OpKind::Register => match number(code.op_register(operand)) {
                Some(at) if code.op_register(operand).is_gpr64() => state.registers[at],
                Some(at) if self.is_near(state.registers[at]) => Value::Near,
                _ => Value::Other,
            },
            OpKind::Memory => self.operand_address(code, state).map_or(Value::Other, |at| self.load(at, state)),
            _ => code.try_immediate(operand).map_or(Value::Other, Value::Known),
        }
    }

    /// Gives the registers their new values.
    fn assign(&self, code: &Instruction, written: &[usize], state: &mut State) -> Result<(), Unproven> {
        let before = state.clone();
        let near = |at: u32| self.is_near(self.operand(code, at, &before));
        let source = if (0..code.op_count()).any(near) { Value::Near } else { Value::Other };
        for &at in written.iter().filter(|&&at| at != RSP) {
            state.registers[at] = source;
        }
        let wide = code.op_count() > 0 && code.op0_kind() == OpKind::Register && code.op0_register().is_gpr64();
        let to = if wide { number(code.op0_register()) } else { None };
        let sp = before.registers[RSP];
        let moved = |by: u64| match sp {
            Value::Known(sp) => Value::Known(sp.wrapping_add(by)),
            other => other,
        };
        match (code.mnemonic(), to) {
            (Mnemonic::Mov, Some(to)) => state.registers[to] = self.operand(code, 1, &before),
            (Mnemonic::Lea, Some(to)) => {
                let scale = u64::from(code.memory_index_scale());
                state.registers[to] = match code.is_ip_rel_memory_operand() {
                    true => Value::Known(code.ip_rel_memory_address()),
                    false => {
                        let displacement = code.memory_displacement64();
                        self.sum(code.memory_base(), code.memory_index(), scale, displacement, &before)
                    }
                };
            }
            (Mnemonic::Add | Mnemonic::Sub | Mnemonic::And, Some(to)) => {
                let (one, other) = (before.registers[to], self.operand(code, 1, &before));
                state.registers[to] = self.combine(code.mnemonic(), one, other);
            }
            (Mnemonic::Xor, _) if code.op0_kind() == OpKind::Register && same_registers(code) => {
                if let Some(to) = number(code.op0_register()) {
                    state.registers[to] = Value::Known(0);
                }
            }
            (Mnemonic::Push, _) => state.registers[RSP] = moved(8u64.wrapping_neg()),
            (Mnemonic::Pushfq, _) => state.registers[RSP] = moved(8u64.wrapping_neg()),
            (Mnemonic::Popfq, _) => state.registers[RSP] = moved(8),
            (Mnemonic::Pop, to) => {
                state.registers[RSP] = moved(8);
                if let Some(to) = to {
                    state.registers[to] = self.load(sp, &before);
                }
            }
            (Mnemonic::Leave, _) => {
                let Value::Known(base) = before.registers[RBP] else { return Err(Unproven) };
                state.registers[RBP] = self.load(Value::Known(base), &before);
                state.registers[RSP] = Value::Known(base.wrapping_add(8));
            }
            (Mnemonic::Ret, _) => {}
            _ if written.contains(&RSP) => return Err(Unproven),
            _ => {}
        }
        self.stack_pointer(state).map(|_| ())
    }

    fn combine(&self, how: Mnemonic, one: Value, other: Value) -> Value {
        match (how, one, other) {
            (Mnemonic::Add, Value::Known(one), Value::Known(other)) => Value::Known(one.wrapping_add(other)),
            (Mnemonic::Sub, Value::Known(one), Value::Known(other)) => Value::Known(one.wrapping_sub(other)),
            (Mnemonic::And, Value::Known(one), Value::Known(other)) => Value::Known(one & other),
            _ if self.is_near(one) || self.is_near(other) => Value::Near,
            _ => Value::Other,
        }
    }

    /// Returns where an indirect jump leads to, where that is known.
    fn indirect_target(&self, code: &Instruction, state: &State) -> Value {
        match code.flow_control() {
            FlowControl::IndirectBranch => self.operand(code, 0, state),
            _ => Value::Other,
        }
    }

    fn lead(&self, code: &Instruction, target: Value, state: State) -> Result<Vec<(u64, State)>, Unproven> {
        if code.code() == Code::Hlt {
            return Ok(vec![]);
        }
        match code.flow_control() {
            FlowControl::Next => Ok(vec![(code.next_ip(), state)]),
            FlowControl::UnconditionalBranch if code.near_branch_target() != 0 => {
                Ok(vec![(code.near_branch_target(), state)])
            }
            FlowControl::ConditionalBranch => {
                Ok(vec![(code.next_ip(), state.clone()), (code.near_branch_target(), state)])
            }
            // A call at the end of a function, through the table of addresses that the linker filled.
            FlowControl::IndirectBranch if code.is_ip_rel_memory_operand() => {
                self.check_arguments(&state, &CALL_ARGUMENTS)?;
                if self.stack_pointer(&state)? < self.stack {
                    Err(Unproven)
                } else {
                    Ok(vec![])
                }
            }
            FlowControl::IndirectBranch => match target {
                Value::Known(to) => Ok(vec![(to, state)]),
                _ => Err(Unproven),
            },
            // Below the stack, it is a jump to what was pushed.
            FlowControl::Return if self.stack_pointer(&state)? >= self.stack => Ok(vec![]),
            FlowControl::Exception => Ok(vec![]),
            FlowControl::Interrupt if code.mnemonic() == Mnemonic::Int3 => Ok(vec![]),
            _ => Err(Unproven),
        }
    }
}

fn same_registers(code: &Instruction) -> bool {
    code.op1_kind() == OpKind::Register && code.op0_register() == code.op1_register()
}

fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn is_read(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn is_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}
