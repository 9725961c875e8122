//! The variables of a frame: where each is at a pc.

use std::collections::HashMap;

use gimli::constants as c;
use gimli::{EvaluationResult, Expression, Location, Value};

use super::die::{Die, Place};
use super::file::{Key, Parsed};
use super::index::Index;
use super::places::ranges;
use super::walk::Below;
use crate::lines::Bounded;

/// Variables of one frame, with those of inlined functions.
const MOST: usize = 1 << 12;
/// How many operations one expression may run. Compilers write fewer than a hundred.
const MAX_OPERATIONS: u32 = 10_000;

/// A frame, in the addresses of the process.
#[derive(Clone, Debug, Default)]
pub struct FrameAt {
    /// An address inside the instruction that runs.
    pub pc: u64,
    /// The canonical frame address.
    pub cfa: Option<u64>,
    /// The registers that are known, by DWARF's numbers.
    pub registers: HashMap<u16, u64>,
    /// The source line of the pc. A variable that is declared further down has no value yet.
    pub line: Option<u64>,
}

/// Where a local variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// In memory.
    At(u64),
    /// In a register: DWARF's number of it, and the value.
    Register(u16, u64),
    /// Its value, which was computed.
    Value(u64),
}

/// A variable of a frame, before its type is read.
pub(super) struct FoundLocal {
    pub(super) key: Key,
    pub(super) name: Key,
    pub(super) place: Local,
    /// The entry with the name of the inlined function that has it. None: the frame's own function has it.
    pub(super) function: Option<Key>,
}

/// Reads a word of memory: the address, and how many bytes.
pub(super) type Read<'m> = &'m mut dyn FnMut(u64, u8) -> Option<u64>;

/// Returns the variables of a function that have a place at the frame's pc.
pub(super) fn locals(
    parsed: &Parsed<'_>,
    index: &Index,
    function: Key,
    frame: &FrameAt,
    bias: u64,
    read: Read<'_>,
) -> gimli::Result<Vec<FoundLocal>> {
    let pc = frame.pc.wrapping_sub(bias);
    let mut out = Vec::new();
    let unit = function.0;
    let mut base: Option<Option<u64>> = None;
    let mut frame_base: Option<Place<'_>> = None;
    let mut inlined: Vec<(isize, Option<Key>)> = Vec::new();
    parsed.below(function, |die| {
        if out.len() >= MOST {
            return Ok(Below::Stop);
        }
        while inlined.last().is_some_and(|&(depth, _)| depth >= die.depth) {
            inlined.pop();
        }
        match die.tag {
            _ if die.depth == 0 => {
                frame_base = die.frame_base;
                return Ok(Below::Go);
            }
            c::DW_TAG_lexical_block | c::DW_TAG_inlined_subroutine => {
                let inside = ranges(parsed, unit, &die).iter().any(|&(start, end)| start <= pc && pc < end);
                if inside && die.tag == c::DW_TAG_inlined_subroutine {
                    inlined.push((die.depth, named(parsed, index, unit, &die)));
                }
                return Ok(if inside { Below::Go } else { Below::Skip });
            }
            c::DW_TAG_variable | c::DW_TAG_formal_parameter => {}
            _ => return Ok(Below::Skip),
        }
        let base = *base.get_or_insert_with(|| {
            let expression = at(parsed, unit, frame_base.as_ref()?, pc)?;
            match evaluate(parsed, unit, expression, frame, None, bias, read)? {
                Local::At(value) | Local::Register(_, value) | Local::Value(value) => Some(value),
            }
        });
        if is_declared_later(&die, frame.line) {
            return Ok(Below::Skip);
        }
        let place = die.place.as_ref().and_then(|place| at(parsed, unit, place, pc));
        let place = place.and_then(|expression| evaluate(parsed, unit, expression, frame, base, bias, read));
        if let Some((place, (key, name))) = place.zip(described(parsed, index, unit, &die)) {
            // A static variable is global: it is listed as such.
            if !is_static(&die, parsed, unit) {
                let function = inlined.last().and_then(|&(_, function)| function);
                out.push(FoundLocal { key, name, place, function });
            }
        }
        Ok(Below::Skip)
    })?;
    Ok(out)
}

/// Returns whether the source line of a pc decides which variables of a function have a value there.
pub(super) fn needs_line(parsed: &Parsed<'_>, function: Key) -> bool {
    let mut needs = false;
    let walked = parsed.below(function, |die| {
        needs = is_declared_later(&die, Some(0));
        Ok(if needs { Below::Stop } else { Below::Go })
    });
    needs || walked.is_err()
}

/// Returns whether a variable is declared below a line. Where it has a place for each pc, the place says whether it has a value.
fn is_declared_later(die: &Die<'_>, line: Option<u64>) -> bool {
    let everywhere = die.tag == c::DW_TAG_variable && matches!(die.place, Some(Place::Expression(_)));
    everywhere && line.zip(die.line).is_some_and(|(now, declared)| now < declared)
}

fn is_static<'a>(die: &Die<'a>, parsed: &Parsed<'a>, unit: u32) -> bool {
    let Some(Place::Expression(expression)) = die.place else { return false };
    let Ok(found) = parsed.unit(unit) else { return false };
    let first = expression.operations(found.unit.encoding()).next();
    matches!(first, Ok(Some(gimli::Operation::Address { .. } | gimli::Operation::AddressIndex { .. })))
}

/// Returns the entries that have the type and the name: of an inlined function's variable, its origin has them.
pub(super) fn described<'a>(parsed: &Parsed<'a>, index: &Index, unit: u32, die: &Die<'a>) -> Option<(Key, Key)> {
    let own = (unit, die.offset as u32);
    let (mut kind, mut name) = (die.kind.map(|_| own), die.name.map(|_| own));
    let mut next = die.origin.or(die.specification).map(|reference| (unit, reference));
    for _ in 0..4 {
        let Some((unit, reference)) = next.filter(|_| kind.is_none() || name.is_none()) else { break };
        let key = parsed.resolve(unit, reference, &index.signatures)?;
        let other = parsed.die(key).ok()??;
        kind = kind.or(other.kind.map(|_| key));
        name = name.or(other.name.map(|_| key));
        next = other.origin.or(other.specification).map(|reference| (key.0, reference));
    }
    Some((kind?, name?))
}

/// Returns the entry that has the name of an inlined function: the first of its origins that has a mangled one, or else a plain one.
fn named(parsed: &Parsed<'_>, index: &Index, unit: u32, die: &Die<'_>) -> Option<Key> {
    let mut plain = None;
    let mut next = die.origin.map(|reference| (unit, reference));
    for _ in 0..4 {
        let Some((unit, reference)) = next else { break };
        let key = parsed.resolve(unit, reference, &index.signatures)?;
        let other = parsed.die(key).ok()??;
        if other.linkage.is_some() {
            return Some(key);
        }
        plain = plain.or(other.name.map(|_| key));
        next = other.origin.or(other.specification).map(|reference| (key.0, reference));
    }
    plain
}

/// Returns the expression that holds at a pc.
fn at<'a>(parsed: &Parsed<'a>, unit: u32, place: &Place<'a>, pc: u64) -> Option<Expression<Bounded<'a>>> {
    match place {
        Place::Expression(expression) => Some(*expression),
        Place::List(list) => {
            let found = &parsed.unit(unit).ok()?.unit;
            let mut list = parsed.dwarf_of(unit).attr_locations(found, *list).ok()??;
            while let Ok(Some(entry)) = list.next() {
                if entry.range.begin <= pc && pc < entry.range.end {
                    return Some(entry.data);
                }
            }
            None
        }
    }
}

fn evaluate<'a>(
    parsed: &Parsed<'a>,
    unit: u32,
    expression: Expression<Bounded<'a>>,
    frame: &FrameAt,
    base: Option<u64>,
    bias: u64,
    read: Read<'_>,
) -> Option<Local> {
    let found = &parsed.unit(unit).ok()?.unit;
    let mut evaluation = expression.evaluation(found.encoding());
    evaluation.set_max_iterations(MAX_OPERATIONS);
    let mut result = evaluation.evaluate().ok()?;
    // Every stop of the evaluation counts as an operation, too.
    for _ in 0..MAX_OPERATIONS {
        result = match result {
            EvaluationResult::Complete => {
                let [piece] = evaluation.as_result() else { return None };
                return match piece.location {
                    Location::Address { address } if piece.size_in_bits.is_none() => Some(Local::At(address)),
                    Location::Register { register } if piece.size_in_bits.is_none() => {
                        frame.registers.get(&register.0).map(|&value| Local::Register(register.0, value))
                    }
                    Location::Value { value } => value.to_u64(u64::MAX).ok().map(Local::Value),
                    _ => None,
                };
            }
            EvaluationResult::RequiresFrameBase => evaluation.resume_with_frame_base(base?).ok()?,
            EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(frame.cfa?).ok()?,
            EvaluationResult::RequiresRegister { register, base_type } if base_type.0 == 0 => {
                let value = *frame.registers.get(&register.0)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size, space: None, base_type } if base_type.0 == 0 => {
                evaluation.resume_with_memory(Value::Generic(read(address, size)?)).ok()?
            }
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address.wrapping_add(bias)).ok()?
            }
            EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                let address = parsed.dwarf_of(unit).address(found, index).ok()?;
                let address = if relocate { address.wrapping_add(bias) } else { address };
                evaluation.resume_with_indexed_address(address).ok()?
            }
            // The value that a register had when the function was called is in the caller's frame; and the like.
            _ => return None,
        };
    }
    None
}
