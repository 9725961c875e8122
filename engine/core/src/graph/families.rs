//! Families of structures, and their fields.
//!
//! [`super::structures`] tells more structures apart than a program has: the leaves of a tree have another shape than
//! its other nodes, and left and right lead to different ones. A field has one type. So structures of one size that one
//! field leads to are one family, and then those that the same field of two structures of a family leads to.

use std::collections::{HashMap, HashSet};

use super::fields::{SLACK, SMALL};
use super::links::Link;
use super::structures::{place, Heap, Place, Structures, FIRST};
use super::tally::Tally;
use crate::blocks::number::Index;
use crate::contents::CLASSES;
use crate::control::Stopped;
use crate::hw;
use crate::keys::Keys;

/// A field leads to a structure if one in so many of the blocks have such a pointer, and so many at least.
const ONE_IN: u64 = 50;
const LEAST: u64 = 8;
/// Pointers of a field that lead to a structure, if it is of one family with others: so many at least, and one in so
/// many.
pub(super) type Enough = (u64, u64);
/// While structures are named by sizes, some are several.
pub(super) const PROVISIONAL: Enough = (50, 8);
pub(super) const FINAL: Enough = (50, 50);
/// A field tells of families if one in so many blocks have it.
const USUAL: u64 = 8;
/// A field leads to rare structures if so many of its pointers do.
const RARE_ONE_IN: u64 = 10;
/// Blocks of a family, at least, that are compared.
const COMMON: u32 = 64;
/// Rounds in which families grow.
const ROUNDS: usize = 32;

/// What a field of a family leads to.
#[derive(Debug)]
struct Field {
    place: Place,
    /// Families, and size classes of blocks whose structure is not known.
    targets: Box<[u16]>,
    /// It leads to rare structures, too, such as texts of many sizes.
    rare: bool,
}

/// The families of a heap. One is named by the least number of its structures.
pub(super) struct Families {
    /// For each structure: its family.
    of: Vec<u16>,
    /// For each family: how many blocks in use it has.
    counts: Vec<u32>,
    /// For each structure: its size class.
    kinds: Vec<u16>,
    /// For each family: its fields, by place. None: its blocks are not compared.
    fields: Vec<Option<Vec<Field>>>,
    /// The fields of all families of a size: (size class, place, family).
    of_size: HashSet<(u16, Place, u16), Keys>,
}

/// Sums of pointers: (family, place, family), how many.
type Sums = Vec<((u16, Place, u16), u64)>;

impl Families {
    /// Finds the families.
    #[inline(always)]
    pub fn new<I: Index, const P: usize>(
        heap: &Heap<I, P>,
        structures: &Structures,
        enough: Enough,
    ) -> Result<Families, Stopped> {
        let mut seen = Tally::default();
        let load = |target: usize| hw::prefetch(&structures.of, target);
        heap.sample(structures, load, |structure, place, link, weight| {
            if place >= FIRST && usize::from(structure) >= CLASSES {
                if let Some(target) = link.target() {
                    seen.add((structure, place, structures.of[target]), weight);
                }
            }
        })?;
        Ok(Families::of(structures.counts(), structures.kinds.clone(), &seen.finish(), enough))
    }

    /// Finds the families of structures that have so many blocks, and are of these size classes. `seen` are sums of
    /// their pointers.
    fn of(counts: Vec<u32>, kinds: Vec<u16>, seen: &Sums, enough: Enough) -> Families {
        let of = (0..kinds.len()).map(|structure| structure as u16).collect();
        let mut families = Families { of, counts, kinds, fields: Vec::new(), of_size: HashSet::default() };
        for _ in 0..ROUNDS {
            if !families.unite(&families.sums(seen), enough) {
                break;
            }
        }
        families.learn(&families.sums(seen));
        families
    }

    /// Returns the sums for families, sorted.
    fn sums(&self, seen: &Sums) -> Sums {
        let family = |structure: u16| self.of[usize::from(structure)];
        let mut sums: Sums =
            seen.iter().map(|&((from, at, to), count)| ((family(from), at, family(to)), count)).collect();
        sums.sort_unstable();
        sums.dedup_by(|next, first| {
            let is_same = next.0 == first.0;
            first.1 += if is_same { next.1 } else { 0 };
            is_same
        });
        sums
    }

    /// Unites the families of one size that a field leads to. Returns whether there were any.
    fn unite(&mut self, sums: &Sums, (least, one_in): Enough) -> bool {
        let mut unions = Vec::new();
        for field in sums.chunk_by(|one, other| (one.0 .0, one.0 .1) == (other.0 .0, other.0 .1)) {
            let all: u64 = field.iter().map(|each| each.1).sum();
            if all * USUAL < u64::from(self.counts[usize::from(field[0].0 .0)]) {
                continue;
            }
            let is_target = |count: u64| count >= least && count * one_in >= all;
            let mut of_kind: HashMap<u16, u16, Keys> = HashMap::default();
            for &((_, _, to), count) in field {
                if is_target(count) && usize::from(to) >= CLASSES {
                    let first = *of_kind.entry(self.kinds[usize::from(to)]).or_insert(to);
                    if first != to {
                        unions.push((first, to));
                    }
                }
            }
        }
        self.unite_all(unions)
    }

    /// Unites the families of pairs. Returns whether there were any two.
    fn unite_all(&mut self, pairs: Vec<(u16, u16)>) -> bool {
        let mut is_new = false;
        for (one, other) in pairs {
            let [one, other] = [one, other].map(|each| self.family(each));
            if one != other {
                let (least, most) = (one.min(other), one.max(other));
                self.of[usize::from(most)] = least;
                self.counts[usize::from(least)] += std::mem::take(&mut self.counts[usize::from(most)]);
                is_new = true;
            }
        }
        for structure in 0..self.of.len() as u16 {
            self.of[usize::from(structure)] = self.family(structure);
        }
        is_new
    }

    /// Names each block by its family.
    pub fn name(&self, structures: &mut Structures) {
        for structure in &mut structures.of {
            *structure = self.of[usize::from(*structure)];
        }
    }

    /// Returns the family of a structure while some are being united.
    fn family(&self, mut structure: u16) -> u16 {
        while self.of[usize::from(structure)] != structure {
            structure = self.of[usize::from(structure)];
        }
        structure
    }

    /// Learns the fields of all families.
    fn learn(&mut self, sums: &Sums) {
        let is_compared = |family: usize| family >= CLASSES && self.counts[family] >= COMMON;
        self.fields = (0..self.of.len()).map(|family| is_compared(family).then(Vec::new)).collect();
        for of_place in sums.chunk_by(|one, other| (one.0 .0, one.0 .1) == (other.0 .0, other.0 .1)) {
            let (family, place, _) = of_place[0].0;
            let Some(fields) = &mut self.fields[usize::from(family)] else { continue };
            let blocks = u64::from(self.counts[usize::from(family)]);
            let is_target = |count: u64| count >= LEAST && count * ONE_IN >= blocks;
            let targets: Box<[u16]> = of_place.iter().filter(|each| is_target(each.1)).map(|each| each.0 .2).collect();
            let is_rare = |to: u16| usize::from(to) < CLASSES || self.counts[usize::from(to)] < COMMON;
            let all: u64 = of_place.iter().map(|each| each.1).sum();
            let of_rare: u64 = of_place.iter().filter(|each| is_rare(each.0 .2)).map(|each| each.1).sum();
            let rare = is_target(of_rare) && of_rare * RARE_ONE_IN >= all;
            let kind = self.kinds[usize::from(family)];
            self.of_size.extend(targets.iter().map(|&to| (kind, place, to)));
            if rare || !targets.is_empty() {
                fields.push(Field { place, targets, rare });
            }
        }
    }

    /// Returns whether the blocks of a structure are compared.
    #[inline(always)]
    pub fn is_compared(&self, structure: u16) -> bool {
        self.fields[usize::from(self.of[usize::from(structure)])].is_some()
    }

    /// Returns whether a structure whose blocks are compared, of a size class, has a pointer at an offset to a block of
    /// a structure. What leads to blocks that are not compared counts as a field.
    #[inline(always)]
    pub fn size_has_field(&self, kind: u16, offset: usize, link: Link, target: u16) -> bool {
        !self.is_compared(target)
            || self.of_size.contains(&(kind, place(Some(offset), link), self.of[usize::from(target)]))
    }

    /// Returns whether a structure whose blocks are compared has a pointer at an offset to a block of another.
    #[inline(always)]
    pub fn has_field(&self, structure: u16, offset: usize, link: Link, target: u16) -> bool {
        let Some(fields) = &self.fields[usize::from(self.of[usize::from(structure)])] else { return true };
        let place = place(Some(offset), link);
        let Ok(nth) = fields.binary_search_by_key(&place, |field| field.place) else { return false };
        let field = &fields[nth];
        let family = self.of[usize::from(target)];
        if field.targets.contains(&family) {
            return true;
        }
        // Of a rare structure only the size is known. Its chunk may be larger than it has to be.
        let kind_of = |structure: u16| self.kinds[usize::from(structure)];
        let kind = kind_of(target);
        let is_near = |&each: &u16| kind_of(each) == kind || is_larger(kind, kind_of(each));
        !self.is_compared(target) && (field.rare || field.targets.iter().any(is_near))
    }
}

/// Returns whether a chunk of a size may have a block of another that needs less.
fn is_larger(size: u16, other: u16) -> bool {
    u64::from(size) <= SMALL && u64::from(size) == u64::from(other) + SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Place = FIRST + 1; // a pointer at the first word to a first byte

    /// Families of structures from CLASSES on with 1,000 blocks of 48 bytes each. `seen` has their numbers from 0 on.
    fn families(count: u16, seen: &[((u16, Place, u16), u64)]) -> Families {
        let first = CLASSES as u16;
        let mut kinds: Vec<u16> = (0..first).collect();
        kinds.resize(CLASSES + usize::from(count), 48);
        let mut counts = vec![0; CLASSES];
        counts.resize(kinds.len(), 1000);
        let seen = seen.iter().map(|&((from, at, to), count)| ((first + from, at, first + to), count)).collect();
        Families::of(counts, kinds, &seen, FINAL)
    }

    #[test]
    fn what_one_field_leads_to_is_a_family() {
        // A tree: 0 leads to 1 and 2. Another field of both leads to 3 and 4. Nothing leads to 5 but a few words.
        let found = families(
            6,
            &[
                ((0, AT, 1), 500),
                ((0, AT, 2), 400),
                ((1, AT + 2, 3), 600),
                ((2, AT + 2, 4), 600),
                ((0, AT + 4, 5), 60),
                ((0, AT + 4, 3), 60),
            ],
        );
        let family = |structure: usize| found.of[CLASSES + structure] - CLASSES as u16;
        assert_eq!([0, 1, 2, 3, 4, 5].map(family), [0, 1, 1, 3, 3, 5]);
        assert_eq!(found.counts[CLASSES + 1], 2000);
    }

    #[test]
    fn a_few_words_are_no_field() {
        let found = families(3, &[((0, AT, 1), 500), ((0, AT, 2), 15), ((1, AT + 2, 2), 900)]);
        let (from, link) = (CLASSES as u16, Link::to(0, true));
        assert!(found.has_field(from, 0, link, from + 1));
        assert!(!found.has_field(from, 0, link, from + 2));
        assert!(!found.has_field(from, 0, Link::to(0, false), from + 1));
        assert!(!found.has_field(from, 7, link, from + 1));
        // No block of 48 bytes has such a field.
        assert!(found.size_has_field(48, 0, link, from + 1) && !found.size_has_field(48, 0, link, from + 2));
    }
}
