//! The passes, one after the other.

use super::blocks::{Blocks, Claim, Conflict, Found, Rank, Shape, Table, Work};
use super::maps::{HashMap, HashSet};
use super::pools::Pools;
use super::propagate::{fits, Spread};
use crate::blocks::model::Heap;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;
use crate::dwarf::{DebugTypes, Place, Variable};
use crate::image::Image;

/// Blocks of 4 KiB that are kept while types spread: 64 MiB.
const SLOTS: usize = 1 << 14;
/// Those that are kept for a sample: 8 MiB.
const SLOTS_OF_SAMPLE: usize = 1 << 11;
/// Blocks that are disputed are left out, and all begins anew, so often at most.
const ROUNDS: usize = 4;
/// Passes over the objects of which only the base is known.
const DERIVED: usize = 16;
/// Bytes that are too few for a chunk of glibc where words have 8 bytes: they stay with the block (malloc.c, MINSIZE).
const REST: u64 = 16;
/// Blocks, at least, that are compared with others of their class.
const FEW: u64 = 4;

/// A variable with its place in the process.
#[derive(Clone, Debug)]
pub struct Root {
    /// The variable. Its place is an address or a value.
    pub variable: Variable,
    /// It belongs to a frame: what it holds may be left over.
    pub local: bool,
}

/// What the user said of a block: its address, and its type.
pub type Taught = (u64, Id);

/// What is asked.
pub struct Request<'a> {
    /// The heap, with its leaks found.
    pub heap: &'a dyn Heap,
    /// The memory.
    pub image: &'a Image,
    /// Memory that exists, sorted.
    pub memory: &'a [(u64, u64)],
    /// The variables.
    pub roots: &'a [Root],
    /// What the user said.
    pub taught: &'a [Taught],
    /// Blocks that have no type because the user said so.
    pub untyped: &'a [u64],
    /// The functions that manage values of `std::any`, and the types of these values.
    pub managed: &'a [(u64, Id)],
    /// Arenas whose blocks debug information does not describe: objects of an interpreter.
    pub strange: &'a [u32],
    /// The addresses of leaked blocks: only their types are asked for, of a heap that is too large to find those of all.
    pub sample: Option<&'a [u64]>,
}

/// The types of the blocks of a heap.
pub struct TypeGraph {
    /// What is said of each block.
    pub table: Table,
    /// The objects of blocks that hold many.
    pub pools: Pools,
    /// What excludes each other.
    pub conflicts: Vec<Conflict>,
    /// How many conflicts there are.
    pub conflict_count: u64,
    /// Not all pointers were followed: there were too many.
    pub exhausted: bool,
    /// What was done for it, in the last round.
    pub work: Work,
}

/// Finds the types of all blocks.
pub fn build(request: &Request<'_>, debug: &mut DebugTypes, control: &Control) -> Result<TypeGraph, Stopped> {
    debug.complete_declared();
    let mut barred: HashSet<u64> = HashSet::default();
    let mut no_arrays: HashSet<u64> = HashSet::default();
    for round in 1.. {
        let blocks = match request.sample {
            Some(_) => Blocks::few(request.heap, request.strange),
            None => Blocks::new(request.heap, request.strange).ok_or_else(crate::graph::too_many)?,
        };
        let budget = (blocks.count() as u64).saturating_mul(8).saturating_add(1 << 16);
        let slots = if request.sample.is_some() { SLOTS_OF_SAMPLE } else { SLOTS };
        let reader = CachedReader::with_slots(request.image, slots);
        let mut spread = Spread::new(blocks, reader, debug, request.memory, budget);
        spread.take_sample(request.sample);
        spread.barred = barred.clone();
        spread.no_arrays = no_arrays.clone();
        spread.run(request, control)?;
        // What was said because of a false array is said no more: that is sorted out first.
        if round < ROUNDS && spread.no_arrays.len() > no_arrays.len() {
            no_arrays = std::mem::take(&mut spread.no_arrays);
            continue;
        }
        let disputed: Vec<u64> = spread.disputed();
        if round < ROUNDS && disputed.iter().any(|address| !barred.contains(address)) {
            barred.extend(disputed);
            continue;
        }
        let (conflicts, conflict_count) = (std::mem::take(&mut spread.conflicts.list), spread.conflicts.count);
        let pools = spread.finish_pools();
        spread.forget_members(control)?;
        spread.judge_leaked(&pools, control)?;
        // Of a large heap, only a part is looked at in any case.
        let exhausted = spread.exhausted && request.sample.is_none();
        let work = spread.work();
        return Ok(TypeGraph { table: spread.blocks.into_table(), pools, conflicts, conflict_count, exhausted, work });
    }
    unreachable!("the last round returns")
}

impl Spread<'_, '_> {
    fn run(&mut self, request: &Request<'_>, control: &Control) -> Result<(), Stopped> {
        for &(address, kind) in request.taught {
            let Some(found) = self.blocks.at(address) else { continue };
            let size = self.types().size(kind);
            let many = size > 0 && found.block.size >= 2 * size;
            let shape = if many { Shape::Many } else { Shape::One };
            self.propose(found, self.claim(kind, found.block.address, Rank::Taught, shape));
        }
        self.untyped.extend(request.untyped.iter().copied());
        self.managed.extend(request.managed.iter().copied());
        self.statics = request.roots.iter().filter(|root| !root.local).filter_map(static_place).collect();
        self.statics.sort_unstable();
        self.take_vtables();
        self.objects(control)?;
        self.drain(control)?;
        self.rank = Rank::Pointer;
        self.roots(request, false);
        self.settle(control)?;
        self.rank = Rank::Frame;
        self.roots(request, true);
        self.settle(control)?;
        self.rank = Rank::Candidate;
        self.judge_inside(control)?;
        self.judge_structures(control)?;
        // An object that got a type may prove another one: not a whole chain of them, or it would take a pass for each.
        let mut passes = 0..DERIVED;
        while (passes.next().is_some() && self.judge_only_derived(control)?) || self.judge_tags(control)? {
            self.settle(control)?;
            self.judge_inside(control)?;
        }
        self.rank = Rank::Pooled;
        self.judge_pools(control)?;
        if self.sample.is_some() {
            return Ok(()); // no pointer leads to a direct leak
        }
        self.rank = Rank::Text;
        self.judge_texts(control)
    }

    pub(super) fn settle(&mut self, control: &Control) -> Result<(), Stopped> {
        self.drain(control)?;
        self.judge_loose(control)?;
        loop {
            self.judge_unions(control)?;
            if self.loose.is_empty() && self.unions.is_empty() {
                if !self.judge_families(control)? && !std::mem::take(&mut self.counters_grew) {
                    return Ok(());
                }
                self.loose.append(&mut self.doubtful_arrays);
                self.drain(control)?;
            }
            self.judge_loose(control)?;
        }
    }

    /// Gives all objects with vtables their classes: also those to which no typed pointer leads.
    fn objects(&mut self, control: &Control) -> Result<(), Stopped> {
        self.each_block(control, Self::object_with_vtable)
    }

    fn object_with_vtable(&mut self, found: Found) {
        let address = found.block.address;
        let Some(vtable) = self.read(address).filter(|&word| word > 4096 && self.is_constant(word)) else { return };
        let Some((kind, top)) = self.vtables.class(self.debug, &mut self.reader, vtable) else { return };
        let size = self.types().size(kind);
        if top == 0 && size > 0 && size <= found.block.size {
            self.propose(found, self.claim(kind, address, Rank::Vtable, Shape::One));
        }
    }

    /// Forgets the classes that a vtable told of blocks of another size: it is that of a first member, or of the first
    /// element of an array. Now and then a chunk of glibc is 16 bytes larger than it has to be; if most blocks of a class
    /// are, they hold more than such an object. And an object to which only pointers to characters and numbers lead is left over
    /// from an earlier use of the memory.
    fn forget_members(&mut self, control: &Control) -> Result<(), Stopped> {
        let mut counts: HashMap<Id, (u64, u64)> = HashMap::default();
        self.told.sort_unstable();
        self.told.dedup();
        self.each_told(control, |spread, found, claim| {
            let size = spread.types().size(claim.kind);
            let (exact, larger) = counts.entry(claim.kind).or_default();
            *exact += u64::from(found.block.size == usual(size));
            *larger += u64::from(found.block.size == usual(size) + REST);
        })?;
        let word = self.word;
        self.each_told(control, |spread, found, claim| {
            let (size, &(exact, larger)) = (spread.types().size(claim.kind), &counts[&claim.kind]);
            let rest = word == 8 && found.block.size == usual(size) + REST && larger >= FEW && larger > exact;
            let plain = spread.plain.get(&found.number).copied().filter(|_| !claim.pointed);
            if plain.is_some() || rest || !fits(size, found.block.size) {
                spread.blocks.set(found.number, plain.unwrap_or_default());
            }
        })
    }

    /// Calls `each` for the blocks whose class only the vtable at their start tells. Only those that got a class from one are
    /// looked at: in most heaps they are few.
    fn each_told(&mut self, control: &Control, mut each: impl FnMut(&mut Self, Found, Claim)) -> Result<(), Stopped> {
        let told = match &self.sample {
            Some(sample) => sample.known(),
            None => std::mem::take(&mut self.told),
        };
        let done = self.each_of(&told, control, |spread, found| {
            let claim = spread.blocks.claim(found.number);
            if claim.rank == Rank::Vtable && claim.shape == Shape::One {
                each(spread, found, claim);
            }
        });
        if self.sample.is_none() {
            self.told = told;
        }
        done
    }

    /// Takes the vtables of Rust: variables whose types tell of which type the objects are.
    fn take_vtables(&mut self) {
        for i in 0..self.statics.len() {
            let (at, kind) = self.statics[i];
            let Some(concrete) = self.types().record(kind).and_then(|record| record.concrete) else { continue };
            let concrete = self.canonical(concrete);
            let known = self.concrete.entry(at).or_insert(Some(concrete));
            if *known != Some(concrete) {
                *known = None;
            }
        }
    }

    /// Returns whether an address is memory outside the heap, where a vtable may be.
    fn is_constant(&self, address: u64) -> bool {
        // Most are pointers to blocks in use, which are found faster than free ones.
        address % self.word == 0
            && self.is_mapped(address)
            && self.blocks.at(address).is_none()
            && self.blocks.heap().find(address).is_none()
    }

    fn roots(&mut self, request: &Request<'_>, local: bool) {
        for root in request.roots.iter().filter(|root| root.local == local) {
            let plan = self.plans.of(self.debug, root.variable.kind);
            match root.variable.place {
                Place::At(address) => {
                    // What a frame holds may be left over: it must look like its type.
                    if !local || self.plausible(address, 0, 1, &plan) {
                        self.follow(address, &plan);
                    }
                }
                Place::Value(value) => {
                    if let Some(to) = self.types().pointee(root.variable.kind) {
                        self.point(value, to, 0);
                    }
                }
                Place::Thread(_) => {}
            }
        }
    }

    fn disputed(&self) -> Vec<u64> {
        let disputed = |c: &&Conflict| c.kept.rank == c.other.rank && c.kept.rank > Rank::Vtable;
        self.conflicts.list.iter().filter(disputed).map(|conflict| conflict.address).collect()
    }

    /// Returns the type of a pointer to elements of this type.
    pub(super) fn pointer_to(&mut self, element: Id) -> Id {
        self.made_pointer(element)
    }
}

/// Returns the usable bytes of the chunk that glibc makes for an object (malloc.c, request2size).
fn usual(size: u64) -> u64 {
    (size.saturating_add(23) / 16 * 16).saturating_sub(8).max(24)
}

fn static_place(root: &Root) -> Option<(u64, Id)> {
    match root.variable.place {
        Place::At(address) => Some((address, root.variable.kind)),
        _ => None,
    }
}

impl Claim {
    /// Returns what kind of evidence this is.
    pub fn evidence(&self) -> &'static str {
        match self.rank {
            Rank::Taught => "taught",
            Rank::Vtable => "vtable",
            Rank::Container => "container",
            Rank::Pointer => "typed pointer",
            Rank::Loose => "typed pointer, larger block",
            Rank::Union => "pointer in a union",
            Rank::Tag => "tag of the object",
            Rank::Frame => "variable of a frame",
            Rank::Candidate => "the only candidate",
            Rank::Part => "part of the block",
            Rank::Pooled => "typed pointer in a pool",
            Rank::Weak => "weak pointer",
            Rank::Text => "text behind a header",
            Rank::Alike => "like live objects",
        }
    }
}
