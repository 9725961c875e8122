//! The type that a caller always makes.
//!
//! Where some blocks of a caller and of a size have a type, the others that look the same have it, too. A leaked block has
//! no holder that says what it is; its sisters have.

use std::collections::HashMap;

use super::labels::{Label, Labels};
use super::stream::Stream;
use super::sums::View;
use crate::control::{Control, Stopped};
use crate::records::{Record, Records};

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 16;
/// Callers and sizes that are remembered.
const MOST: usize = 1 << 22;
/// Shapes of one type from one caller that are remembered.
const SHAPES: usize = 16;

/// What is known of the blocks of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: it is a shape.
    Nothing,
    /// A type that the blocks do not say themselves: the caller's number of its name.
    Type(u32),
    /// They are what they say themselves. A block that does not say so is something else.
    Itself,
}

/// Reads the records of blocks, in the order of their addresses.
pub struct Cursor<'a> {
    records: Vec<&'a [Record]>,
    at: Vec<usize>,
}

impl<'a> Cursor<'a> {
    /// Begins before the first block.
    pub fn new(records: &[&'a Records]) -> Self {
        Cursor { records: records.iter().map(|one| one.all()).collect(), at: vec![0; records.len()] }
    }

    /// Returns the number of the recorder, and the record of a block. No block before it can be asked for after that.
    #[inline]
    pub fn of(&mut self, address: u64, size: u64) -> Option<(usize, Record)> {
        for (recorder, (all, at)) in self.records.iter().zip(&mut self.at).enumerate() {
            while all.get(*at).is_some_and(|record| record.address < address) {
                *at += 1;
            }
            // A record of more bytes than the block has belongs to an earlier block.
            if let Some(record) = all.get(*at).filter(|record| record.address == address && record.size <= size) {
                return Some((recorder, *record));
            }
        }
        None
    }
}

/// What the typed blocks of one caller and size are.
struct Made {
    name: Option<u32>,
    shapes: Vec<u32>,
}

/// Who allocated: for each recorder its records, and the caller's number for each of its stacks.
pub type Callers<'a> = [(&'a Records, HashMap<u32, u32>)];

/// Returns labels for blocks without a type whose caller makes only one type of their size. `view` has the types that are
/// known, `plain` the shapes of the same blocks. `known` says what each kind of `view` is.
pub fn labels(
    view: &View,
    plain: &View,
    callers: &Callers,
    known: &[Known],
    control: &Control,
) -> Result<Labels, Stopped> {
    let mut made: HashMap<(u32, u64), Made> = HashMap::new();
    each(view, callers, control, |_address, _size, number, key| {
        let Some(kind) = view.kind(number).and_then(|kind| known.get(kind as usize)) else { return };
        let name = match *kind {
            Known::Nothing => return,
            Known::Type(name) => Some(name),
            Known::Itself => None,
        };
        if made.len() >= MOST && !made.contains_key(&key) {
            return;
        }
        let entry = made.entry(key).or_insert(Made { name, shapes: Vec::new() });
        if entry.name != name {
            entry.name = None;
        }
        match plain.kind(number) {
            Some(shape) if entry.shapes.len() < SHAPES && !entry.shapes.contains(&shape) => entry.shapes.push(shape),
            _ => {}
        }
    })?;
    let mut rows = Vec::new();
    if made.values().any(|made| made.name.is_some()) {
        each(view, callers, control, |address, size, number, key| {
            let unknown = view.kind(number).and_then(|kind| known.get(kind as usize)) == Some(&Known::Nothing);
            let Some(made) = made.get(&key).filter(|_| unknown) else { return };
            let alike = plain.kind(number).is_some_and(|shape| made.shapes.contains(&shape));
            if let Some(label) = made.name.filter(|_| alike) {
                rows.push(Label { address, label, size, counted: false, kind: 0 });
            }
        })?;
    }
    Ok(Labels::new(rows, false))
}

/// Calls `each` with (address, usable bytes, number, (caller, bytes asked for)) for every recorded block in use.
fn each(
    view: &View,
    callers: &Callers,
    control: &Control,
    mut each: impl FnMut(u64, u64, usize, (u32, u64)),
) -> Result<(), Stopped> {
    let records: Vec<&Records> = callers.iter().map(|one| one.0).collect();
    let mut cursor = Cursor::new(&records);
    for found in Stream::new(view.heap) {
        if found.number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let (address, size) = (found.block.address, found.block.size);
        let Some((recorder, record)) = cursor.of(address, size) else { continue };
        if let Some(&caller) = callers.get(recorder).and_then(|one| one.1.get(&record.stack)) {
            each(address, size, found.number, (caller, record.size));
        }
    }
    Ok(())
}
