//! What is known of families of structs: see `families`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::blocks::{Claim, Found, Shape};
use super::maps::{HashMap, HashSet};
use crate::dwarf::model::Id;

/// Members of a base that may be the tag.
pub(super) const MOST_FIELDS: usize = 64;
/// Objects of one type from which the tag is learned.
const MOST_WITNESSES: usize = 1 << 10;
/// Objects without a type that are looked at to choose the tag, or to find the type of a value.
pub(super) const SAMPLE: usize = 1 << 10;
/// Values of a tag, at most, and how many objects each must have on average: a pointer to the next object is no tag.
pub(super) const MOST_VALUES: usize = 1 << 12;
pub(super) const LEAST_OBJECTS: usize = 4;

/// How often something new is learned before it ends.
pub(super) const MOST_LESSONS: usize = 64;
/// Structs of one family that are tried on objects whose tag no witness has.
pub(super) const MOST_DERIVED: usize = 1 << 10;

/// A member of a base: its first bit, and how many bits it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) bit: u64,
    pub(super) bits: u64,
}

/// What the values of a tag mean.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    pub(super) field: Field,
    pub(super) kinds: HashMap<u64, Id>,
}

/// An object of which only the base is known: where it is, and where a pointer to it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    pub(super) address: u64,
    pub(super) from: u64,
}

/// What is known of one base.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) unknown: Vec<Unknown>,
    pub(super) witnesses: Vec<(u64, Id)>,
    pub(super) tag: Option<Tag>,
    /// How many objects there were when it was looked at last.
    pub(super) seen: usize,
}

/// The families of all bases that were met.
#[derive(Debug, Default)]
pub(super) struct Families {
    /// The structs derived from each base, by size.
    pub(super) derived: HashMap<Id, Rc<Vec<(u64, Id)>>>,
    /// The bases of each struct that is derived from some.
    pub(super) bases: HashMap<Id, Vec<Id>>,
    pub(super) all: BTreeMap<Id, Family>,
    /// The canonical numbers of bases, by the numbers that pointers have.
    pub(super) known: HashMap<Id, Option<Id>>,
    /// Whether a block of a size may have an object that is derived from a base.
    pub(super) room: HashMap<(Id, u64), bool>,
    /// How many bytes of a struct say nothing in a block of a size: the answers of `common_members`.
    pub(super) common: HashMap<(Id, u64), u64>,
    /// Blocks that are in a family's list.
    pub(super) listed: HashSet<u64>,
    counts: HashMap<(Id, Id), usize>,
    /// A tag says what is proposed now: no witness of its own.
    pub(super) by_tag: bool,
    pub(super) lessons: usize,
}

impl Families {
    pub(super) fn derived(&self, base: Id) -> Option<Rc<Vec<(u64, Id)>>> {
        self.derived.get(&base).cloned()
    }

    /// Takes the structs that contain others: those at offset 0 are bases.
    pub(super) fn fill(&mut self, outer: &HashMap<(Id, u64), Vec<(u64, Id)>>, is_struct: impl Fn(Id) -> bool) {
        for (&(base, at), structs) in outer {
            if at != 0 || !is_struct(base) {
                continue;
            }
            let derived: Vec<(u64, Id)> =
                structs.iter().copied().filter(|&(size, id)| id != base && size > 0 && is_struct(id)).collect();
            if derived.is_empty() {
                continue;
            }
            for &(_, id) in &derived {
                self.bases.entry(id).or_default().push(base);
            }
            self.derived.insert(base, Rc::new(derived));
        }
    }

    /// Remembers an object to which a pointer of its own type leads.
    pub(super) fn witness(&mut self, found: Found, claim: &Claim) {
        if self.by_tag || claim.shape == Shape::Many {
            return;
        }
        for &base in self.bases.get(&claim.kind).into_iter().flatten() {
            let count = self.counts.entry((base, claim.kind)).or_default();
            if *count < MOST_WITNESSES {
                *count += 1;
                self.all
                    .entry(base)
                    .or_default()
                    .witnesses
                    .push((found.block.address + u64::from(claim.skip), claim.kind));
            }
        }
    }
}

/// Returns at most so many, evenly chosen.
pub(super) fn sampled<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most).max(1);
    all.iter().step_by(step).copied().collect()
}
