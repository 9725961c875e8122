//! Types spread from variables through typed pointers to blocks, and from these to others.
//!
//! The passes are those of mdb's `::typegraph`, more careful where C++ and C allow more. A wrong type does harm: it
//! spreads. So a pointer names a block only where the block's size agrees, and weaker evidence is used only after all
//! stronger evidence.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::blocks::{Blocks, Claim, Conflict, Conflicts, Found, Object, Rank, Shape, Work};
use super::content::Content;
use super::family::Families;
use super::maps::{HashMap, HashSet};
use super::plan::{Plan, Plans};
use super::sample::{self, Sample};
use super::vtables::Vtables;
use crate::cached_reader::CachedReader;
use crate::dwarf::model::{Form, Id, Type, Types, VOID};
use crate::dwarf::DebugTypes;

/// Pointers that wait for a later pass.
pub(super) const MOST_WAITING: usize = 1 << 26;
/// How often each word of memory may be looked at.
const TIMES: u64 = 16;
/// Blocks between two looks at [`Control`].
pub(super) const CHECK: usize = 1 << 12;
/// Values that are no pointers although their type says so: MAP_FAILED, small numbers in a pointer's place.
pub(super) const SMALL: u64 = 4096;

/// Structs that have a member of a type at an offset: (bytes, struct), the smallest first.
pub(super) type Outer = Rc<HashMap<(Id, u64), Vec<(u64, Id)>>>;

/// The numbers of elements that were found in a member: the struct, where in it the pointer and the number are, and whether the
/// number is the logarithm.
pub(super) type Counters = HashMap<(Id, u64, u64, bool), HashSet<u64>>;

/// A pointer that is judged later: where it is, what it is, and to which types it may point.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) value: u64,
    pub(super) to: Id,
    pub(super) from: u64,
}

/// The state of the propagation.
pub(super) struct Spread<'a, 'd> {
    pub(super) blocks: Blocks<'a>,
    /// Only the types of these blocks are asked for.
    pub(super) sample: Option<Sample>,
    pub(super) reader: CachedReader<'a>,
    pub(super) debug: &'d mut DebugTypes,
    pub(super) plans: Plans,
    pub(super) vtables: Vtables,
    /// Memory that exists, sorted.
    pub(super) memory: &'a [(u64, u64)],
    pub(super) conflicts: Conflicts,
    /// Blocks on which good sources disagree: nothing spreads from them.
    pub(super) barred: HashSet<u64>,
    /// What pointers say at the moment, at best.
    pub(super) rank: Rank,
    pub(super) word: u64,
    /// The addresses of blocks that got a type, and are to be followed.
    pub(super) open: Vec<u64>,
    /// Objects that are to be followed: where the first is, the distance to the next, how many, what is in each.
    pub(super) areas: Vec<(u64, u64, u64, Rc<Plan>)>,
    pub(super) depth: usize,
    /// The objects that are followed may be left over from an earlier block: only what proves itself is believed.
    pub(super) doubtful: bool,
    pub(super) loose: Vec<Waiting>,
    pub(super) unions: Vec<(u64, Vec<Id>, u64)>,
    /// Pointers into the middle of blocks that have no type yet.
    pub(super) inside: Vec<Waiting>,
    /// Those of them that no struct explains.
    pub(super) parts: Vec<Waiting>,
    /// Pointers to characters that are not at the start of a block, and where these pointers are.
    pub(super) texts: Vec<(u64, u64)>,
    /// Odd words of the block that is looked at, and where they are.
    pub(super) odd: Vec<(u64, u64)>,
    /// Static variables: where each is, and its type. Sorted.
    pub(super) statics: Vec<(u64, Id)>,
    /// Objects that do not name their blocks, and that were followed.
    pub(super) placed: BTreeMap<u64, Object>,
    /// Pointers that lead to no block of their size.
    pub(super) pooled: Vec<Waiting>,
    /// They were sorted, and are too many all the same.
    pub(super) pooled_tidied: bool,
    /// Blocks that look like arrays and are not arrays.
    pub(super) no_arrays: HashSet<u64>,
    /// Pointers without a type: what they are, and where.
    pub(super) untold: Vec<(u64, u64)>,
    /// They were sorted, and are too many all the same.
    pub(super) untold_tidied: bool,
    /// Structs with pointers to structs, for the objects to which only these lead.
    pub(super) contents: Option<Rc<Vec<Content>>>,
    /// Blocks that have no type because the user said so.
    pub(super) untyped: HashSet<u64>,
    pub(super) families: Families,
    pub(super) counters: Counters,
    /// A member with the number of elements was proven: the doubtful arrays are judged once more.
    pub(super) counters_grew: bool,
    /// Pointers to arrays of which too little is known.
    pub(super) doubtful_arrays: Vec<Waiting>,
    pub(super) outer: Option<Outer>,
    pub(super) outer_flexible: Outer,
    pointers: HashMap<Id, Id>,
    /// Places in objects that may still be looked at.
    pub(super) work: u64,
    /// How many there were at first.
    pub(super) most_work: u64,
    /// Not everything was looked at: there was too much.
    pub(super) exhausted: bool,
    /// Nodes that may still be walked.
    pub(super) budget: u64,
    /// One number for all types that are printed alike, by the number of the type: the answers of `canonical`.
    pub(super) names: Vec<Option<Id>>,
    /// Whether a type has another at an offset, for a depth: the answers of `contains`.
    pub(super) contained: HashMap<(Id, u64, Id, usize), bool>,
    pub(super) first_of_name: HashMap<String, Id>,
    /// Blocks with many objects of a type that has a flexible array member.
    pub(super) pools: HashSet<u64>,
    /// The types by their vtables, in Rust. None: two types share one.
    pub(super) concrete: HashMap<u64, Option<Id>>,
    /// The addresses of blocks that their vtables named.
    pub(super) told: Vec<u64>,
    /// What pointers to numbers and characters say of objects that their vtables name, by the number of the block.
    pub(super) plain: HashMap<usize, Claim>,
    /// The types of the values of `std::any`, by the functions that manage them.
    pub(super) managed: HashMap<u64, Id>,
    /// The records that end in a trait object, with the types of the objects that are there.
    pub(super) made_records: HashMap<(Id, Id), Option<Id>>,
}

impl<'a, 'd> Spread<'a, 'd> {
    pub(super) fn new(
        blocks: Blocks<'a>,
        reader: CachedReader<'a>,
        debug: &'d mut DebugTypes,
        memory: &'a [(u64, u64)],
        budget: u64,
    ) -> Self {
        let word = debug.types.word;
        let words: u64 =
            memory.iter().map(|&(start, end)| end.saturating_sub(start) / word).fold(0, u64::saturating_add);
        let work = words.saturating_mul(TIMES).saturating_add(1 << 24);
        Spread {
            work,
            most_work: work,
            exhausted: false,
            blocks,
            sample: None,
            reader,
            debug,
            plans: Plans::default(),
            vtables: Vtables::default(),
            memory,
            conflicts: Conflicts::default(),
            barred: HashSet::default(),
            rank: Rank::Pointer,
            word,
            open: Vec::new(),
            areas: Vec::new(),
            depth: 0,
            doubtful: false,
            loose: Vec::new(),
            unions: Vec::new(),
            inside: Vec::new(),
            parts: Vec::new(),
            texts: Vec::new(),
            odd: Vec::new(),
            statics: Vec::new(),
            placed: BTreeMap::new(),
            pooled: Vec::new(),
            pooled_tidied: false,
            no_arrays: HashSet::default(),
            untold: Vec::new(),
            untold_tidied: false,
            contents: None,
            untyped: HashSet::default(),
            families: Families::default(),
            counters: Counters::default(),
            counters_grew: false,
            doubtful_arrays: Vec::new(),
            outer: None,
            outer_flexible: Outer::default(),
            pointers: HashMap::default(),
            budget,
            names: Vec::new(),
            contained: HashMap::default(),
            first_of_name: HashMap::default(),
            pools: HashSet::default(),
            concrete: HashMap::default(),
            told: Vec::new(),
            plain: HashMap::default(),
            managed: HashMap::default(),
            made_records: HashMap::default(),
        }
    }

    /// Asks only for the types of leaked blocks at these addresses.
    pub(super) fn take_sample(&mut self, leaked: Option<&[u64]>) {
        let Some(leaked) = leaked else { return };
        self.sample = Some(Sample::new(leaked));
        self.work = self.work.min(sample::WORK);
        self.most_work = self.work;
    }

    pub(super) fn types(&self) -> &Types {
        &self.debug.types
    }

    pub(super) fn read(&mut self, address: u64) -> Option<u64> {
        self.reader.word(address, self.word)
    }

    /// Returns whether there is memory at an address.
    pub(super) fn is_mapped(&self, address: u64) -> bool {
        let after = self.memory.partition_point(|&(start, _)| start <= address);
        after > 0 && address < self.memory[after - 1].1
    }

    /// Returns what was done up to now.
    pub(super) fn work(&self) -> Work {
        Work {
            looked_up: self.blocks.looked_up(),
            read: self.reader.filled(),
            steps: self.most_work.saturating_sub(self.work),
            taken: self.blocks.taken(),
        }
    }

    /// Takes steps from what may still be done. It is more than an honest program needs.
    pub(super) fn works(&mut self, steps: usize) -> bool {
        match self.work.checked_sub(steps as u64 + 1) {
            Some(left) => {
                self.work = left;
                true
            }
            None => {
                self.work = 0;
                self.exhausted = true;
                false
            }
        }
    }

    // -- claims ---------------------------------------------------------------------------------------------------

    /// Says what a block is. Returns whether that is new, and now what is said of it.
    pub(super) fn propose(&mut self, found: Found, mut claim: Claim) -> bool {
        claim.kind = self.canonical(claim.kind);
        if claim.kind == VOID || self.untyped.contains(&found.block.address) {
            return false;
        }
        let old = self.blocks.claim(found.number);
        let agree = old.kind == claim.kind && old.skip == claim.skip;
        if !old.is_some() || (old.rank == Rank::Weak && claim.rank < Rank::Weak) {
            self.accept(found, claim);
            return true;
        }
        if agree || claim.rank == Rank::Weak {
            self.meet_vtable(found, &old, &claim, agree);
            // An array is more than one object.
            // The vtable at the start of an array is that of its first element.
            let first = old.rank == Rank::Vtable && !fits(self.types().size(old.kind), found.block.size);
            let better = claim.rank <= old.rank || (first && claim.rank < Rank::Weak);
            if agree && old.shape == Shape::One && claim.shape == Shape::Many && better {
                self.accept(found, claim);
                return true;
            }
            return false;
        }
        if self.holds(&old, &claim) {
            return false;
        }
        let part = self.is_first_member(found, &old, &claim);
        let replaces = claim.rank <= Rank::Frame.max(old.rank) && (old.rank > Rank::Vtable || part);
        if replaces && self.holds(&claim, &old) {
            claim.over_vtable = part;
            self.accept(found, claim);
            return true;
        }
        if self.are_apart(&old, &claim) {
            return false;
        }
        let (kept, other) = if claim.rank < old.rank { (claim, old) } else { (old, claim) };
        self.conflicts.add(Conflict { address: found.block.address, kept, other });
        if kept.rank == other.rank && kept.rank > Rank::Vtable {
            self.blocks.set(found.number, Claim { disputed: true, ..old });
        } else if claim.rank < old.rank {
            self.accept(found, claim);
            return true;
        }
        false
    }

    /// Notes who points to an object that its vtable names: something that may hold its class, or only pointers to numbers and
    /// characters. These lead to memory that still has the object from before.
    fn meet_vtable(&mut self, found: Found, old: &Claim, claim: &Claim, agree: bool) {
        if old.rank != Rank::Vtable {
        } else if agree && claim.from != found.block.address {
            self.vouch(found);
        } else if !agree && claim.shape == Shape::Many && self.rank < Rank::Frame && self.plain.len() < MOST_WAITING {
            self.plain.entry(found.number).or_insert(*claim);
        }
    }

    /// Notes that a pointer leads to an object which may be one to its class.
    pub(super) fn vouch(&mut self, found: Found) {
        let claim = self.blocks.claim(found.number);
        if claim.rank == Rank::Vtable && !claim.pointed {
            self.blocks.set(found.number, Claim { pointed: true, ..claim });
        }
    }

    /// Returns whether an object that its vtable names may be the first member of another one: it is much smaller than its
    /// block, or the other one has no vtable of its own and fills the block as well.
    fn is_first_member(&mut self, found: Found, old: &Claim, claim: &Claim) -> bool {
        if old.rank != Rank::Vtable || old.kind == claim.kind {
            return false;
        }
        let (own, outer) = (self.types().size(old.kind), self.types().size(claim.kind));
        let plain = self.plans.of(self.debug, claim.kind).vtable.is_none();
        !fits(own, found.block.size) || (plain && own < outer && fits(outer, found.block.size))
    }

    fn accept(&mut self, found: Found, claim: Claim) {
        let disputed = self.barred.contains(&found.block.address) && claim.rank > Rank::Taught;
        self.blocks.set(found.number, Claim { disputed, ..claim });
        if claim.rank == Rank::Vtable && self.sample.is_none() {
            self.told.push(found.block.address);
        }
        if claim.rank != Rank::Weak && !disputed {
            self.families.witness(found, &claim);
            self.open.push(found.block.address);
        }
    }

    /// Takes back that the block just accepted is to be followed: only a part of it is in use.
    pub(super) fn forget_last(&mut self, found: Found) -> bool {
        let last = self.open.last() == Some(&found.block.address);
        if last {
            self.open.pop();
        }
        last
    }

    /// Returns the type of a pointer to a type.
    pub(super) fn made_pointer(&mut self, to: Id) -> Id {
        if let Some(&known) = self.pointers.get(&to) {
            return known;
        }
        let size = self.word;
        let made = self.debug.types.add(Type { name: String::new(), size, form: Form::Pointer(to) });
        self.pointers.insert(to, made);
        made
    }

    /// Returns the type of the buckets of a hash table with these nodes. What they point to is known from the chain.
    pub(super) fn bucket_kind(&mut self, node: Id) -> Id {
        self.made_pointer(node)
    }
}

/// Returns whether a block of this many usable bytes is what an allocator gives for an object of this size: glibc
/// rounds up to 16 bytes, gives 24 at least and may leave a remainder of 16 with it; jemalloc has four sizes between two
/// powers of two.
pub(super) fn fits(size: u64, usable: u64) -> bool {
    size > 0 && size <= usable && usable <= largest_block(size)
}

/// Returns the most usable bytes of a block for an object of this size. More bytes never give less.
fn largest_block(size: u64) -> u64 {
    size.saturating_add(31).max(24).max(size.saturating_add(size / 4))
}

/// Returns those of the structs, sorted by size, whose size fits a block.
pub(super) fn fitting(structs: &[(u64, Id)], usable: u64) -> &[(u64, Id)] {
    let first = structs.partition_point(|&(size, _)| size == 0 || largest_block(size) < usable);
    let last = structs.partition_point(|&(size, _)| size <= usable);
    structs.get(first..last).unwrap_or_default()
}
