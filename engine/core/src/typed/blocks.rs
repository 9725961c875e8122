//! What is known of each block: its type, and where that comes from.

use std::cell::Cell;
use std::collections::HashMap;

use crate::blocks::index::Block;
use crate::blocks::model::{Heap, State};
use crate::blocks::widths::by_width;
use crate::dwarf::model::{Id, VOID};
use crate::graph::numbering::Numbering;
use crate::graph::stream::InUse;
use crate::hw::Spans;

use super::maps;

/// Look-ups that are kept, in 224 KiB: the passes ask several times in a row for what the words of one block lead to.
const KEPT: usize = 1 << 12;

/// How good the evidence for a type is. A lower one is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The user said so.
    Taught,
    /// The object's own vtable says so.
    Vtable,
    /// A container of the C++ library holds the block, and its counts and links agree.
    Container,
    /// A typed pointer in static data, or in an object that static data leads to. The size agrees.
    Pointer,
    /// The same, but the block is larger than the type; or an array.
    Loose,
    /// A pointer in a union.
    Union,
    /// A member of the object tells its type, as it does in other objects.
    Tag,
    /// A pointer in a frame's variable.
    Frame,
    /// The only struct of that size which has a pointed-to member there.
    Candidate,
    /// Pointers of one type lead so far into many blocks of one kind.
    Part,
    /// A typed pointer in an object that lies in a pool.
    Pooled,
    /// A pointer to numbers or characters, or to a type whose members are not known.
    #[default]
    Weak,
    /// A pointer to a text that begins a few bytes behind the start of the block and fills it.
    Text,
    /// Live objects of one type look like the leaked block.
    Alike,
}

/// The shape of the objects in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    #[default]
    One,
    /// An array.
    Many,
    /// One object with a flexible array member at its end.
    Flexible,
}

/// What is said of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim {
    /// The type of the object, or of each element. `VOID`: nothing is said.
    pub kind: Id,
    /// How many bytes come before the first object: what `new[]` puts there.
    pub skip: u16,
    /// How good the evidence is.
    pub rank: Rank,
    /// One object or more.
    pub shape: Shape,
    /// Two good sources say different things.
    pub disputed: bool,
    /// The vtable at the start of the object is that of its first member.
    pub over_vtable: bool,
    /// A vtable says so, and a pointer that may be one to this class leads here.
    pub pointed: bool,
    /// The address of the pointer that says so; for a vtable the object itself.
    pub from: u64,
}

impl Claim {
    /// Returns whether anything is said.
    pub fn is_some(&self) -> bool {
        self.kind != VOID
    }
}

/// An object that lies somewhere in a block.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its type.
    pub kind: Id,
    /// Its bytes, with those that the pool keeps for it.
    pub size: u64,
    /// The address of the pointer that says so.
    pub from: u64,
    /// No typed pointer leads there: so many pointers in the object prove what it is. 0: a typed pointer does.
    pub proofs: u16,
}

/// Two claims for one block that exclude each other.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    /// The block.
    pub address: u64,
    /// What is kept.
    pub kept: Claim,
    /// What else was said.
    pub other: Claim,
}

/// How much was done. It grows as the heap does, and not faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Addresses that were looked up in the heap.
    pub looked_up: u64,
    /// How often memory was read, in pieces of 4 KiB or more.
    pub read: u64,
    /// Places in objects that were looked at.
    pub steps: u64,
    /// Blocks and pointers that a pass took from a list.
    pub taken: u64,
}

/// The claims of all blocks.
pub(super) struct Blocks<'h> {
    heap: &'h dyn Heap,
    strange: &'h [u32],
    claims: Claims,
    /// Where pointers to blocks lie.
    spans: Spans,
    /// The last look-ups: an address, and the block that it points into.
    kept: Vec<Cell<(u64, Option<Found>)>>,
    looked_up: Cell<u64>,
    taken: Cell<u64>,
}

/// A block in use, and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) block: Block,
    pub(super) number: usize,
}

impl Found {
    /// Returns the block without its first bytes.
    pub(super) fn behind(&self, skip: u64) -> Found {
        let skip = skip.min(self.block.size);
        let block = Block { address: self.block.address + skip, size: self.block.size - skip, ..self.block };
        Found { block, number: self.number }
    }
}

impl<'h> Blocks<'h> {
    /// Makes the table. None: there are too many blocks. Blocks of the arenas `strange` get no type.
    pub(super) fn new(heap: &'h dyn Heap, strange: &'h [u32]) -> Option<Blocks<'h>> {
        let numbering = Numbering::of_heap(heap)?;
        let said = vec![Claim::default(); numbering.count()];
        Some(Blocks::with(heap, strange, Claims::Every(numbering, said)))
    }

    /// Makes a table for a few blocks of a large heap: it takes no memory for those of which nothing is said.
    pub(super) fn few(heap: &'h dyn Heap, strange: &'h [u32]) -> Blocks<'h> {
        Blocks::with(heap, strange, Claims::Few(maps::HashMap::default()))
    }

    fn with(heap: &'h dyn Heap, strange: &'h [u32], claims: Claims) -> Blocks<'h> {
        // No block has the last address.
        let kept = vec![Cell::new((u64::MAX, None)); KEPT];
        let spans = by_width!(Widths, heap.widths(), heap => heap.tables().word_map.spans);
        Blocks { heap, strange, claims, spans, kept, looked_up: Cell::new(0), taken: Cell::new(0) }
    }

    /// Returns how many blocks may have a claim.
    pub(super) fn count(&self) -> usize {
        match &self.claims {
            Claims::Every(_, said) => said.len(),
            Claims::Few(said) => said.len(),
        }
    }

    pub(super) fn heap(&self) -> &'h dyn Heap {
        self.heap
    }

    /// Returns the block in use that an address points into. The allocator's own blocks are not among them.
    pub(super) fn at(&self, address: u64) -> Option<Found> {
        if !self.spans.contains(address) {
            return None;
        }
        self.looked_up.set(self.looked_up.get().wrapping_add(1));
        let kept = &self.kept[(address >> 3 ^ address >> 15) as usize % KEPT];
        let (of, known) = kept.get();
        if of == address {
            return known;
        }
        let found = self.heap.in_use(address).and_then(|block| self.known(block));
        kept.set((address, found));
        found
    }

    /// Returns what [`Blocks::at`] does for the address of a block that was listed: nothing has to be looked up.
    pub(super) fn listed(&self, each: &InUse) -> Option<Found> {
        self.take(1);
        self.known(each.block).filter(|_| each.state != State::Own)
    }

    fn known(&self, block: Block) -> Option<Found> {
        if !self.strange.is_empty() && self.strange.contains(&self.heap.run(block.run).owner.arena) {
            return None;
        }
        Some(Found { block, number: self.claims.number(self.heap, block.granule) })
    }

    /// Returns how many addresses near the heap were looked up.
    pub(super) fn looked_up(&self) -> u64 {
        self.looked_up.get()
    }

    /// Counts blocks or pointers that a pass takes from a list.
    pub(super) fn take(&self, count: usize) {
        self.taken.set(self.taken.get().wrapping_add(count as u64));
    }

    /// Returns how many were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    pub(super) fn claim(&self, number: usize) -> Claim {
        self.claims.of(number)
    }

    pub(super) fn set(&mut self, number: usize, claim: Claim) {
        match &mut self.claims {
            Claims::Every(_, said) => {
                if let Some(place) = said.get_mut(number) {
                    *place = claim;
                }
            }
            Claims::Few(said) => {
                said.insert(number, claim);
            }
        }
    }

    pub(super) fn into_table(self) -> Table {
        Table { claims: self.claims }
    }
}

/// The claims, without the heap.
pub struct Table {
    claims: Claims,
}

/// The claims by the number of the block. A block has the number of its granule where few blocks have one.
enum Claims {
    Every(Numbering, Vec<Claim>),
    Few(maps::HashMap<usize, Claim>),
}

impl Claims {
    fn number(&self, heap: &dyn Heap, granule: usize) -> usize {
        match self {
            Claims::Every(numbering, _) => numbering.in_heap(heap, granule),
            Claims::Few(_) => granule,
        }
    }

    fn of(&self, number: usize) -> Claim {
        match self {
            Claims::Every(_, said) => said.get(number),
            Claims::Few(said) => said.get(&number),
        }
        .copied()
        .unwrap_or_default()
    }
}

impl Table {
    /// Returns what is said of the block whose chunk begins at a granule.
    pub fn of(&self, heap: &dyn Heap, granule: usize) -> Claim {
        self.claims.of(self.claims.number(heap, granule))
    }
}

/// Conflicts, each block once. Not all are kept; all are counted.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    pub(super) list: Vec<Conflict>,
    seen: HashMap<u64, usize>,
    pub(super) count: u64,
}

const MOST_CONFLICTS: usize = 1 << 16;

impl Conflicts {
    pub(super) fn add(&mut self, conflict: Conflict) {
        if self.seen.contains_key(&conflict.address) {
            return;
        }
        self.count += 1;
        if self.list.len() < MOST_CONFLICTS {
            self.seen.insert(conflict.address, self.list.len());
            self.list.push(conflict);
        }
    }
}
