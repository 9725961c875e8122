//! Computes the value of a rule: an address or register of the caller.

use gimli::{Encoding, EndianSlice, EvaluationResult, Expression, Format, LittleEndian, Location, Value};

use super::arch::{Arch, Registers};
use super::cfi::Rule;
use super::memory::Memory;

/// How many operations one expression may run. Those of `__restore_rt` and of PLTs run fewer than ten.
const MAX_OPERATIONS: u32 = 1000;

/// Returns the value. None where the rule needs something unknown. `cfa` is None while the CFA itself is computed.
pub fn evaluate(
    arch: &Arch,
    memory: &mut Memory<'_>,
    rule: &Rule,
    registers: &Registers,
    cfa: Option<u64>,
) -> Option<u64> {
    let value = match rule {
        Rule::At(_) | Rule::AtExpression(_) => {
            let at = place(arch, memory, rule, registers, cfa)?;
            memory.word(at, arch.word)?
        }
        Rule::Cfa(offset) => cfa?.wrapping_add_signed(*offset),
        Rule::Register(number, offset) => (*registers.get(*number)?)?.wrapping_add_signed(*offset),
        Rule::Expression(code) => run(arch, memory, code, registers, cfa)?,
    };
    Some(narrow(arch, value))
}

/// Returns the address where the rule says that the value was saved. None where it was not saved in memory.
pub fn place(
    arch: &Arch,
    memory: &mut Memory<'_>,
    rule: &Rule,
    registers: &Registers,
    cfa: Option<u64>,
) -> Option<u64> {
    match rule {
        Rule::At(offset) => Some(narrow(arch, cfa?.wrapping_add_signed(*offset))),
        Rule::AtExpression(code) => run(arch, memory, code, registers, cfa),
        _ => None,
    }
}

fn narrow(arch: &Arch, value: u64) -> u64 {
    if arch.word == 4 {
        value & 0xffff_ffff
    } else {
        value
    }
}

fn run(arch: &Arch, memory: &mut Memory<'_>, code: &[u8], registers: &Registers, cfa: Option<u64>) -> Option<u64> {
    let encoding = Encoding { address_size: arch.word as u8, format: Format::Dwarf32, version: 4 };
    let mut evaluation = Expression(EndianSlice::new(code, LittleEndian)).evaluation(encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let value = memory.word(address, usize::from(size))?;
                evaluation.resume_with_memory(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = (*registers.get(usize::from(register.0))?)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(cfa?).ok()?,
            _ => return None,
        };
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Some(address),
            _ => None,
        },
        _ => None,
    }
}
