//! Where variables and functions are, in the addresses of the file.

use gimli::Operation;
use serde::{Deserialize, Serialize};

use super::die::Die;
use super::file::Parsed;
use super::units::Ready;
use crate::lines::Bounded;

/// Where a variable is, in the addresses of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stored {
    /// At an address of the file.
    At(u64),
    /// At an offset in the module's thread-local memory.
    Thread(u64),
}

/// Returns where a variable is, if that does not depend on a frame.
pub(super) fn stored<'a>(
    parsed: &Parsed<'a>,
    unit: u32,
    expression: &gimli::Expression<Bounded<'a>>,
) -> Option<Stored> {
    let found = &parsed.unit(unit).ok()?.unit;
    let mut operations = (*expression).operations(found.encoding());
    let first = operations.next().ok()??;
    let value = match first {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => parsed.dwarf_of(unit).address(found, index).ok()?,
        Operation::ConstantIndex { index } => parsed.dwarf_of(unit).address(found, index).ok()?,
        Operation::UnsignedConstant { value } => value,
        _ => return None,
    };
    let address = matches!(first, Operation::Address { .. } | Operation::AddressIndex { .. });
    match operations.next().ok()? {
        None if address => Some(Stored::At(value)),
        Some(Operation::TLS) => Some(Stored::Thread(value)),
        Some(Operation::PlusConstant { value: more }) if address => {
            operations.next().ok()?.is_none().then_some(Stored::At(value.wrapping_add(more)))
        }
        _ => None,
    }
}

/// Returns the addresses of a function or a block.
pub(super) fn ranges<'a>(parsed: &Parsed<'a>, unit: u32, die: &Die<'a>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let Ok(Ready { unit: found, .. }) = parsed.unit(unit) else { return out };
    let dwarf = parsed.dwarf_of(unit);
    if let Some(low) = die.low.and_then(|value| dwarf.attr_address(found, value).ok()?) {
        let high = die.high.and_then(|value| match value {
            gimli::AttributeValue::Udata(size) => low.checked_add(size),
            value => value.udata_value().and_then(|size| low.checked_add(size)).or_else(|| {
                // An address: the end itself.
                dwarf.attr_address(found, value).ok()?
            }),
        });
        if let Some(high) = high.filter(|&high| high > low && low != 0) {
            out.push((low, high));
        }
    } else if let Some(list) = die.ranges.and_then(|value| dwarf.attr_ranges(found, value).ok()?) {
        let mut list = list;
        while let Ok(Some(range)) = list.next() {
            if range.begin < range.end && range.begin != 0 && out.len() < 1 << 10 {
                out.push((range.begin, range.end));
            }
        }
    }
    out
}
