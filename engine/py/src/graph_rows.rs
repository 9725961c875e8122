//! Kinds of blocks, their sums and what became of them, as Python has them.

use dmods_engine::contents::{self, Form};
use dmods_engine::graph::growth;
use dmods_engine::graph::kinds::Kind;
use dmods_engine::graph::retained::Held;
use pyo3::prelude::*;

type Amount = (u64, u64);

/// A kind of blocks. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct KindRow {
    id: u64,
    form: u8,
    least: u64,
    most: u64,
    count: u64,
    words: Vec<(u8, u64)>,
    sample: Vec<u64>,
    same: Vec<u8>,
}

impl KindRow {
    pub(crate) fn new(kind: &Kind) -> KindRow {
        let entry = &kind.entry;
        let (least, most) = contents::size_class(entry.signature.class);
        let words = entry.signature.words.iter();
        KindRow {
            id: kind.id,
            form: form_number(entry.signature.form),
            least,
            most,
            count: entry.count,
            words: words.map(|&word| (contents::kind_of(word), word & ((1 << 56) - 1))).collect(),
            sample: entry.sample.to_vec(),
            same: entry.same.to_vec(),
        }
    }
}

fn form_number(form: Form) -> u8 {
    match form {
        Form::Shape => 0,
        Form::Object => 1,
        Form::Exception => 2,
        Form::Various => 3,
        Form::Missing => 4,
        Form::Named => 5,
    }
}

/// The blocks of a kind or a type. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct SumRow {
    live: Amount,
    leaked: Amount,
    own: Amount,
    least: u64,
    most: u64,
    first: Option<u64>,
    first_leaked: Option<u64>,
}

impl SumRow {
    pub(crate) fn new(sum: &contents::Sum) -> SumRow {
        let (least, most) = sum.sizes.unwrap_or_default();
        let &contents::Sum { live, leaked, own, first, first_leaked, .. } = sum;
        SumRow { live, leaked, own, least, most, first, first_leaked }
    }
}

/// What became of the blocks of a key. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct GrowthRow {
    key: u64,
    totals: Vec<Amount>,
    leaked: Vec<Amount>,
    gone: Amount,
    new: Amount,
    kept: Amount,
    survived: Amount,
    proven: u64,
    example: Option<u64>,
    times: Option<(u64, u64)>,
}

impl GrowthRow {
    pub(crate) fn new(key: u64, row: &growth::Row) -> GrowthRow {
        let amount = |a: growth::Amount| (a.count, a.bytes);
        let totals = row.totals.iter().copied().map(amount).collect();
        let leaked = row.leaked.iter().copied().map(amount).collect();
        let (gone, new, kept, survived) = (amount(row.gone), amount(row.new), amount(row.kept), amount(row.survived));
        let (proven, example, times) = (row.proven, row.example, row.times);
        GrowthRow { key, totals, leaked, gone, new, kept, survived, proven, example, times }
    }
}

/// Blocks of one kind and size. See `_engine.pyi`.
#[pyclass(frozen, get_all, module = "dmods._engine")]
pub struct HeldRow {
    kind: u32,
    size: u64,
    count: u64,
    bytes: u64,
    example: u64,
}

impl HeldRow {
    pub(crate) fn new(held: &Held) -> HeldRow {
        let &Held { kind, size, count, bytes, example } = held;
        HeldRow { kind, size, count, bytes, example }
    }
}
