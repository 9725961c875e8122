//! Families of structures, and their fields.
//!
//! [`super::structures`] tells more structures apart than a program has: the leaves of a tree have another shape than its other
//! nodes, and left and right lead to different ones. A field has one type. So structures of one size that one field leads to
//! are one family, and then those that the same field of two structures of a family leads to.

use std::collections::HashMap;

use super::links::Link;
use super::structures::{place, Heap, Place, Structures, FIRST};
use crate::blocks::number::Index;
use crate::contents::CLASSES;
use crate::control::Stopped;
use crate::keys::Keys;

/// A field leads to a structure if one in so many of the blocks have such a pointer, and so many at least.
const ONE_IN: u64 = 50;
const LEAST: u64 = 3;
/// A field tells of families if one in so many blocks have it.
const USUAL: u64 = 8;
/// A field leads to blocks of any kind if one in so many blocks have a pointer to a first byte, of which one in so many
/// lead to no structure that the field leads to.
const ANY_ONE_IN: u64 = 5;
const OTHER_ONE_IN: u64 = 10;
/// Blocks of a family, at least, that are compared.
const COMMON: u32 = 64;
/// Rounds in which families grow.
const ROUNDS: usize = 32;
/// By so many bytes a chunk may be larger than it has to be: see [`super::fields`].
const SLACK: u16 = 16;

/// What a field of a family leads to.
#[derive(Clone, Debug, Default)]
struct Field {
    any: bool,
    /// Families, and size classes of blocks whose structure is not known.
    targets: Vec<u16>,
    /// The size classes of all these.
    kinds: Vec<u16>,
}

/// The families of a heap. One is named by the least number of its structures.
pub(super) struct Families {
    /// For each structure: its family.
    of: Vec<u16>,
    /// For each family: how many blocks in use it has.
    counts: Vec<u32>,
    /// For each structure: its size class.
    kinds: Vec<u16>,
    /// For each family: its fields by place. None: its blocks are not compared.
    fields: Vec<Option<Vec<Field>>>,
}

/// Sums of pointers: (family, place, family), how many.
type Sums = Vec<((u16, Place, u16), u64)>;

impl Families {
    /// Finds the families.
    #[inline(always)]
    pub fn new<I: Index, const P: usize>(heap: &Heap<I, P>, structures: &Structures) -> Result<Families, Stopped> {
        let mut seen: HashMap<(u16, Place, u16), u64, Keys> = HashMap::default();
        heap.sample(structures, |structure, place, link, weight| {
            if place >= FIRST && usize::from(structure) >= CLASSES {
                if let Some(target) = link.target() {
                    *seen.entry((structure, place, structures.of[target])).or_default() += weight;
                }
            }
        })?;
        let seen: Sums = seen.into_iter().collect();
        let mut families = Families {
            of: (0..structures.kinds.len()).map(|structure| structure as u16).collect(),
            counts: structures.counts(),
            kinds: structures.kinds.clone(),
            fields: Vec::new(),
        };
        for _ in 0..ROUNDS {
            if !families.unite(&families.sums(&seen)) {
                break;
            }
        }
        families.learn(&families.sums(&seen));
        Ok(families)
    }

    /// Returns the sums for families, sorted.
    fn sums(&self, seen: &Sums) -> Sums {
        let family = |structure: u16| self.of[usize::from(structure)];
        let mut sums: Sums = seen.iter().map(|&((from, at, to), count)| ((family(from), at, family(to)), count)).collect();
        sums.sort_unstable();
        sums.dedup_by(|next, first| {
            let is_same = next.0 == first.0;
            first.1 += if is_same { next.1 } else { 0 };
            is_same
        });
        sums
    }

    /// Unites the families of one size that a field leads to. Returns whether there were any.
    fn unite(&mut self, sums: &Sums) -> bool {
        let mut unions = Vec::new();
        for field in sums.chunk_by(|one, other| (one.0 .0, one.0 .1) == (other.0 .0, other.0 .1)) {
            let all: u64 = field.iter().map(|each| each.1).sum();
            if all * USUAL < u64::from(self.counts[usize::from(field[0].0 .0)]) {
                continue;
            }
            let is_target = |count: u64| count >= LEAST && count * ONE_IN >= all;
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
        self.fields = vec![None; self.of.len()];
        for (family, fields) in self.fields.iter_mut().enumerate().skip(CLASSES) {
            *fields = (self.counts[family] >= COMMON).then(Vec::new);
        }
        for of_place in sums.chunk_by(|one, other| (one.0 .0, one.0 .1) == (other.0 .0, other.0 .1)) {
            let (family, place, _) = of_place[0].0;
            let Some(fields) = &mut self.fields[usize::from(family)] else { continue };
            let blocks = u64::from(self.counts[usize::from(family)]);
            let is_target = |count: u64| count >= LEAST && count * ONE_IN >= blocks;
            let (mut field, mut all, mut others) = (Field::default(), 0, 0);
            for &((_, _, to), count) in of_place {
                all += count;
                if is_target(count) {
                    field.targets.push(to);
                    field.kinds.push(self.kinds[usize::from(to)]);
                } else {
                    others += count;
                }
            }
            field.any = place % 2 == 1 && all * ANY_ONE_IN >= blocks && others * OTHER_ONE_IN >= all;
            fields.resize(usize::from(place).max(fields.len()), Field::default());
            fields.push(field);
        }
    }

    pub fn family_of(&self, s: u16) -> u16 { self.of[usize::from(s)] }
    pub fn show(&self, s: u16) -> String {
        match &self.fields[usize::from(s)] {
            None => String::new(),
            Some(fields) => fields.iter().enumerate().filter(|f| !f.1.targets.is_empty() || f.1.any).map(|(p, f)| format!("+{}{}->{:?}{}", (p / 2).wrapping_sub(1), if p % 2 == 1 {""} else {"i"}, f.targets, if f.any {"any"} else {""})).collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns whether the blocks of a structure are compared.
    #[inline(always)]
    pub fn is_compared(&self, structure: u16) -> bool {
        self.fields[usize::from(self.of[usize::from(structure)])].is_some()
    }

    /// Returns whether a structure whose blocks are compared has a pointer at an offset to a block of another. `kind` is the size
    /// class of that block.
    #[inline(always)]
    pub fn has_field(&self, structure: u16, offset: usize, link: Link, target: u16) -> bool {
        let Some(fields) = &self.fields[usize::from(self.of[usize::from(structure)])] else { return true };
        let Some(field) = fields.get(usize::from(place(Some(offset), link))) else { return false };
        let family = self.of[usize::from(target)];
        if field.any || field.targets.contains(&family) {
            return true;
        }
        // Of a rare structure only the size is known. Its chunk may be larger than it has to be.
        let kind = self.kinds[usize::from(target)];
        (usize::from(family) < CLASSES || self.counts[usize::from(family)] < COMMON)
            && field.kinds.iter().any(|&each| each == kind || each.saturating_add(SLACK) == kind)
    }
}
