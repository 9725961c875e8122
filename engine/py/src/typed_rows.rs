//! What debug information says of blocks, as Python has it.

use dmods_engine::dwarf::DebugTypes;
use dmods_engine::typed::blocks::{Claim, Shape};
use pyo3::prelude::*;

/// A statement on the type of a block. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct ClaimRow {
    name: String,
    shape: u8,
    skip: u64,
    evidence: &'static str,
    rank: u8,
    disputed: bool,
    source: u64,
    size: u64,
}

impl ClaimRow {
    pub(crate) fn new(debug: &DebugTypes, claim: &Claim) -> ClaimRow {
        ClaimRow {
            name: text_of(debug, claim),
            shape: claim.shape as u8,
            skip: u64::from(claim.skip),
            evidence: claim.evidence(),
            rank: claim.rank as u8,
            disputed: claim.disputed,
            source: claim.from,
            size: debug.types.size(claim.kind),
        }
    }
}

/// Returns the name of the type of a claim, with `[]` for an array.
pub(crate) fn text_of(debug: &DebugTypes, claim: &Claim) -> String {
    let text = debug.types.text(claim.kind);
    if claim.shape == Shape::Many {
        format!("{text}[]")
    } else {
        text
    }
}
