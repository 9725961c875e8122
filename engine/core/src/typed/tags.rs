//! The member that tells of which type an object is, learned from objects whose types are known otherwise.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::blocks::Rank;
use super::family::{
    sampled, Field, Tag, Unknown, LEAST_OBJECTS, MOST_DERIVED, MOST_FIELDS, MOST_LESSONS, MOST_VALUES, SAMPLE,
};
use super::maps::{HashMap, HashSet};
use super::plan::What;
use super::propagate::{fits, Spread, SMALL};
use super::structure::MOST_WORDS;
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id};

impl Spread<'_, '_> {
    /// Learns the tag of a base from its witnesses. Returns whether it says more than before.
    pub(super) fn learn(&mut self, base: Id) -> bool {
        let Some(family) = self.families.all.get_mut(&base) else { return false };
        let objects = family.unknown.len() + family.witnesses.len();
        if family.unknown.is_empty() || family.witnesses.is_empty() || family.seen == objects {
            return false;
        }
        family.seen = objects;
        let witnesses = family.witnesses.clone();
        let unknown = sampled(&family.unknown, SAMPLE);
        let before = family.tag.clone();
        let fields = match &before {
            Some(tag) => vec![tag.field],
            None => self.fields(base),
        };
        // Of several members the one is the tag with whose values the sizes agree best; then the one with fewer values.
        let mut best: Option<((usize, Reverse<usize>), Tag)> = None;
        for field in fields {
            let Some((alike, values, tag)) = self.as_tag(field, &witnesses, &unknown) else { continue };
            let order = (alike, Reverse(values));
            if best.as_ref().is_none_or(|best| order > best.0) {
                best = Some((order, tag));
            }
        }
        let Some((_, mut tag)) = best else { return false };
        if let Some(before) = before {
            let old = before.kinds.len();
            for (value, kind) in before.kinds {
                tag.kinds.entry(value).or_insert(kind);
            }
            if tag.kinds.len() == old {
                return false;
            }
        }
        if let Some(family) = self.families.all.get_mut(&base) {
            family.tag = Some(tag);
        }
        true
    }

    /// Returns what a member would mean as the tag, with two numbers: how many objects have the size that most with their value
    /// have, and how many values there are. None: it is not the tag.
    fn as_tag(&mut self, field: Field, witnesses: &[(u64, Id)], unknown: &[Unknown]) -> Option<(usize, usize, Tag)> {
        let mut kinds: HashMap<u64, Id> = HashMap::default();
        let mut sizes: HashMap<u64, HashMap<u64, usize>> = HashMap::default();
        for &(address, kind) in witnesses {
            let Some(found) = self.object(address) else { continue };
            let claim = self.blocks.claim(found.number);
            if claim.kind != kind || claim.disputed {
                continue;
            }
            let value = self.field_value(address, field)?;
            if *kinds.entry(value).or_insert(kind) != kind {
                return None;
            }
            *sizes.entry(value).or_default().entry(found.block.size).or_default() += 1;
        }
        let types: HashSet<Id> = kinds.values().copied().collect();
        for unknown in unknown {
            let Some(found) = self.object(unknown.address) else { continue };
            let value = self.field_value(unknown.address, field)?;
            *sizes.entry(value).or_default().entry(found.block.size).or_default() += 1;
        }
        let objects: usize = sizes.values().flat_map(HashMap::values).sum();
        let is_tag = sizes.len() <= MOST_VALUES && sizes.len() * LEAST_OBJECTS <= objects.max(8 * LEAST_OBJECTS);
        // Of one type nothing can be learned.
        if !is_tag || types.len() < 2 {
            return None;
        }
        let alike = sizes.values().filter_map(|sizes| sizes.values().max()).sum();
        Some((alike, sizes.len(), Tag { field, kinds }))
    }

    /// Returns the members of a base that may be its tag: numbers and pointers.
    fn fields(&mut self, base: Id) -> Vec<Field> {
        let mut out = Vec::new();
        let mut open = vec![(0u64, base, 0)];
        while let Some((at, kind, depth)) = open.pop() {
            let Some(record) = self.types().record(kind).filter(|record| !record.union).cloned() else { continue };
            for member in &record.members {
                if out.len() >= MOST_FIELDS {
                    return out;
                }
                let (inner, start) = (self.types().bare(member.kind), at.saturating_add(member.offset));
                if let Some((bit, bits)) = member.bits {
                    out.push(Field { bit: at.saturating_mul(8).saturating_add(bit), bits: bits.clamp(1, 64) });
                    continue;
                }
                match self.types().get(inner).form {
                    Form::Base(_) | Form::Enum | Form::Pointer(_) => {
                        let size = self.types().size(inner);
                        if matches!(size, 1 | 2 | 4 | 8) {
                            out.push(Field { bit: start.saturating_mul(8), bits: size * 8 });
                        }
                    }
                    Form::Record(_) if depth < 4 => open.push((start, inner, depth + 1)),
                    _ => {}
                }
            }
        }
        out
    }

    /// Finds the types of the values of tags that no witness has: the one struct of the family that explains all objects with such
    /// a value. Returns whether an object got a type.
    pub(super) fn judge_tags(&mut self, control: &Control) -> Result<bool, Stopped> {
        let bases: Vec<Id> = self.families.all.keys().copied().collect();
        let mut any = false;
        for base in bases {
            let Some(family) = self.families.all.get(&base) else { continue };
            let Some(field) = family.tag.as_ref().map(|tag| tag.field) else { continue };
            if self.families.lessons >= MOST_LESSONS {
                break;
            }
            self.blocks.take(family.unknown.len());
            let mut by_value: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for unknown in family.unknown.clone() {
                let Some(found) = self.object(unknown.address) else { continue };
                let claim = self.blocks.claim(found.number);
                if claim.is_some() && claim.rank != Rank::Weak && claim.kind != base {
                    continue;
                }
                let Some(value) = self.field_value(unknown.address, field) else { continue };
                by_value.entry(value).or_default().push(unknown.address);
            }
            let mut learned = false;
            for (value, objects) in by_value.into_iter().take(MOST_VALUES) {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let Some(kind) = self.explains_all(base, &objects) else { continue };
                let family = self.families.all.get_mut(&base);
                if let Some(tag) = family.and_then(|family| family.tag.as_mut()) {
                    learned |= tag.kinds.insert(value, kind).is_none();
                }
            }
            if learned {
                self.families.lessons += 1;
                any |= self.resolve(base);
            }
        }
        Ok(any)
    }

    /// Returns the struct of a family that explains all objects: the only one that is proven by pointers to objects of known types,
    /// or the only one that may be right, if there are enough objects.
    fn explains_all(&mut self, base: Id, objects: &[u64]) -> Option<Id> {
        let (derived, common) = (self.families.derived(base)?, self.types().size(base));
        if derived.len() > MOST_DERIVED {
            return None;
        }
        let all: HashSet<u64> = objects.iter().copied().collect();
        let objects = &sampled(objects, SAMPLE)[..];
        let mut possible = Vec::new();
        for &(_, kind) in derived.iter() {
            if let Some(proofs) = self.proofs(kind, common, objects, &all) {
                possible.push((kind, proofs));
            }
        }
        let mut proven = possible.iter().filter(|&&(_, proofs)| proofs > 0);
        if let Some(&(kind, _)) = proven.next() {
            return proven.next().is_none().then_some(kind);
        }
        let &[(kind, _)] = &possible[..] else { return None };
        let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
        let told = objects.len() >= LEAST_OBJECTS && plan.flexible.is_none();
        (told && objects.iter().all(|&address| self.convincing(address, size, 1, &plan))).then_some(kind)
    }

    /// Returns how many objects have a pointer that proves them to be of a type. None: one is of another type. `all` are the
    /// objects with the same tag: if they are of the type, then no pointer to one of them is a pointer to another type.
    fn proofs(&mut self, kind: Id, common: u64, objects: &[u64], all: &HashSet<u64>) -> Option<usize> {
        let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
        let pointers = self.pointer_words(&plan).0;
        let words = plan.flexible.map_or(size, |(at, _)| at) / self.word;
        // Blocks of several sizes have something behind the members that is not declared: the characters of a string.
        let mut sizes: Vec<u64> = objects.iter().filter_map(|&at| Some(self.object(at)?.block.size)).collect();
        sizes.sort_unstable();
        let several = sizes.first() != sizes.last();
        let mut proofs = 0;
        for &address in objects {
            let Some(found) = self.object(address) else { continue };
            let usable = found.block.size;
            if size > usable || !(several || plan.flexible.is_some() || fits(size, usable)) {
                return None;
            }
            // Where a type has a number there is no pointer.
            for word in (0..words.min(MOST_WORDS)).filter(|word| pointers >> word & 1 == 0) {
                let value = self.read(address + word * self.word)?;
                if value >= SMALL && self.blocks.at(value).is_some_and(|other| other.block.address == value) {
                    return None;
                }
            }
            for slot in &plan.slots {
                let What::Pointer(to) = slot.what else { continue };
                let value = self.read(address + slot.at)?;
                if all.contains(&value) && !self.contains(kind, 0, to, 8) {
                    return None;
                }
            }
            proofs += usize::from(self.proof(address, &plan, common)?.is_some());
        }
        Some(proofs)
    }
}
