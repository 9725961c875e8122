//! Families of structs. C derives a struct from another by beginning it with the other, or with the same members. A pointer to
//! the base says little of such an object; the object itself says more: one of the members that all of the family have tells
//! its type (`tt` in Lua, `g_class` in GObject, `ob_type` in CPython, `type` in X11 and PostgreSQL).
//!
//! Which member that is, and what its values mean, is learned from the objects to which pointers of their own types lead. A
//! member can be the tag if no value of it stands in objects of two types.

use super::blocks::{Found, Rank, Shape};
use super::family::{Field, Unknown, MOST_LESSONS};
use super::maps::HashMap;
use super::propagate::{fits, Spread, MOST_WAITING};
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;

/// Answers that are kept: bases and sizes of blocks.
const MOST_ROOM: usize = 1 << 18;

impl Spread<'_, '_> {
    /// Returns the part of a block that begins with an object.
    pub(super) fn object(&self, address: u64) -> Option<Found> {
        let found = self.blocks.at(address)?;
        Some(found.behind(address - found.block.address))
    }

    /// Returns the base that a pointer's type is, if structs are derived from it.
    fn base_of(&mut self, to: Id) -> Option<Id> {
        if let Some(&known) = self.families.known.get(&to) {
            return known;
        }
        self.outer_types();
        let base = self.canonical(to);
        let known = self.families.derived.contains_key(&base).then_some(base);
        self.families.known.insert(to, known);
        known
    }

    /// Returns whether a block may have an object of a struct that is derived from this one.
    pub(super) fn may_be_derived(&mut self, to: Id, usable: u64) -> bool {
        let Some(base) = self.base_of(to) else { return false };
        if let Some(&known) = self.families.room.get(&(base, usable)) {
            return known;
        }
        let derived = self.families.derived(base).unwrap_or_default();
        let found = derived.iter().any(|&(_, id)| self.may_be(id, usable));
        if self.families.room.len() >= MOST_ROOM {
            self.families.room.clear();
        }
        self.families.room.insert((base, usable), found);
        found
    }

    /// Returns how many bytes at the start of a struct are those of a base from which a block may have another struct, too.
    pub(super) fn common_members(&mut self, kind: Id, usable: u64) -> u64 {
        if let Some(&known) = self.families.common.get(&(kind, usable)) {
            return known;
        }
        self.outer_types();
        let mut most = 0;
        for base in self.families.bases.get(&kind).cloned().unwrap_or_default() {
            let size = self.types().size(base);
            let derived = self.families.derived(base).unwrap_or_default();
            if size > most && derived.iter().any(|&(_, other)| other != kind && self.may_be(other, usable)) {
                most = size;
            }
        }
        if self.families.common.len() >= MOST_ROOM {
            self.families.common.clear();
        }
        self.families.common.insert((kind, usable), most);
        most
    }

    /// Takes a pointer to a base, to the start of a block. Returns whether a struct derived from it may be there: then the pointer
    /// says no more.
    pub(super) fn meet(&mut self, found: Found, to: Id, from: u64) -> bool {
        let Some(base) = self.base_of(to) else { return false };
        let old = self.blocks.claim(found.number);
        if old.is_some() && old.rank != Rank::Weak && old.kind != base {
            return self.families.bases.get(&old.kind).is_some_and(|bases| bases.contains(&base));
        }
        let usable = found.block.size;
        if !self.may_be_derived(to, usable) {
            return false;
        }
        if self.tagged(base, found, from) {
            return true;
        }
        if self.families.listed.len() < MOST_WAITING && self.families.listed.insert(found.block.address) {
            let unknown = Unknown { address: found.block.address, from };
            self.families.all.entry(base).or_default().unknown.push(unknown);
            // What all of the family have is there in any case.
            let plan = self.plans.of(self.debug, base);
            self.areas.push((found.block.address, self.types().size(base), 1, plan));
        }
        // A block that is only as large as the base needs it may be one all the same.
        usable >= self.types().size(base) + 16 && usable > 24
    }

    /// Returns whether a block may have one object of a struct.
    fn may_be(&mut self, kind: Id, usable: u64) -> bool {
        let plan = self.plans.of(self.debug, kind);
        match plan.flexible {
            Some((at, _)) => at <= usable,
            None => fits(self.types().size(kind), usable),
        }
    }

    /// Gives an object the type that its tag says. Returns false where that is not known.
    fn tagged(&mut self, base: Id, found: Found, from: u64) -> bool {
        let Some(tag) = self.families.all.get(&base).and_then(|family| family.tag.as_ref()) else { return false };
        let field = tag.field;
        let Some(value) = self.field_value(found.block.address, field) else { return false };
        let family = self.families.all.get(&base);
        let Some(&kind) = family.and_then(|family| family.tag.as_ref()?.kinds.get(&value)) else { return false };
        self.accept_tagged(kind, found, from)
    }

    fn accept_tagged(&mut self, kind: Id, found: Found, from: u64) -> bool {
        let (address, size) = (found.block.address, self.types().size(kind));
        let plan = self.plans.of(self.debug, kind);
        // What follows the members of a struct need not be declared: the characters of a string.
        if size > found.block.size || !self.plausible(address, size, 1, &plan) {
            return false;
        }
        let shape = if plan.flexible.is_some() { Shape::Flexible } else { Shape::One };
        let claim = self.claim(kind, from, self.rank.max(Rank::Tag), shape);
        let Some(whole) = self.blocks.at(address) else { return false };
        self.families.by_tag = true;
        let new = self.say(whole, address - whole.block.address, claim);
        self.families.by_tag = false;
        new
    }

    pub(super) fn field_value(&mut self, address: u64, field: Field) -> Option<u64> {
        let first = field.bit / 8 / self.word * self.word;
        let shift = field.bit - first * 8;
        let word = self.read(address.checked_add(first)?)?;
        let high =
            if shift + field.bits > self.word * 8 { self.read(address.checked_add(first + self.word)?)? } else { 0 };
        let both = u128::from(word) | u128::from(high) << (8 * self.word);
        Some((both >> shift) as u64 & (u64::MAX >> (64 - field.bits)))
    }

    /// Learns what tags mean, and gives the objects that wait their types. Returns whether one got a type.
    pub(super) fn judge_families(&mut self, control: &Control) -> Result<bool, Stopped> {
        let bases: Vec<Id> = self.families.all.keys().copied().collect();
        let mut any = false;
        for base in bases {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if self.families.lessons >= MOST_LESSONS || !self.learn(base) {
                continue;
            }
            self.families.lessons += 1;
            any |= self.resolve(base);
        }
        Ok(any)
    }

    pub(super) fn resolve(&mut self, base: Id) -> bool {
        let Some(family) = self.families.all.get_mut(&base) else { return false };
        self.blocks.take(family.unknown.len());
        let mut any = false;
        let mut left = Vec::new();
        for unknown in std::mem::take(&mut family.unknown) {
            let Some(found) = self.object(unknown.address) else { continue };
            let old = self.blocks.claim(found.number);
            if old.is_some() && old.rank != Rank::Weak && old.kind != base {
                continue;
            }
            if self.tagged(base, found, unknown.from) {
                any = true;
            } else {
                left.push(unknown);
            }
        }
        if let Some(family) = self.families.all.get_mut(&base) {
            family.unknown.append(&mut left);
        }
        any
    }

    /// Gives objects of families without a tag the one struct that may be there. Returns whether one got a type.
    pub(super) fn judge_only_derived(&mut self, control: &Control) -> Result<bool, Stopped> {
        let bases: Vec<Id> = self.families.all.keys().copied().collect();
        let (mut any, mut only) = (false, HashMap::default());
        for base in bases {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(family) = self.families.all.get_mut(&base).filter(|family| family.tag.is_none()) else { continue };
            self.blocks.take(family.unknown.len());
            let mut left = Vec::new();
            for unknown in std::mem::take(&mut family.unknown) {
                if self.only_derived(base, &unknown, &mut only) {
                    any = true;
                } else {
                    left.push(unknown);
                }
            }
            if let Some(family) = self.families.all.get_mut(&base) {
                family.unknown.append(&mut left);
            }
        }
        Ok(any)
    }

    /// Gives an object the only struct derived from a base that its block has room for. A pointer behind the members that
    /// all of the family have must prove it, and the base alone must be too small.
    /// `only` has the answers for the sizes of blocks that were met.
    fn only_derived(&mut self, base: Id, unknown: &Unknown, only: &mut HashMap<(Id, u64), Option<Id>>) -> bool {
        let Some(found) = self.object(unknown.address) else { return false };
        let (usable, common, old) = (found.block.size, self.types().size(base), self.blocks.claim(found.number));
        if fits(common, usable) || (old.is_some() && old.rank != Rank::Weak) {
            return false;
        }
        let kind = *only.entry((base, usable)).or_insert_with(|| {
            let derived = self.families.derived(base).unwrap_or_default();
            let mut fitting = derived.iter().map(|&(_, id)| id).filter(|&id| self.may_be(id, usable));
            fitting.next().filter(|_| fitting.next().is_none())
        });
        let Some(kind) = kind else { return false };
        let plan = self.plans.of(self.debug, kind);
        if self.proof(unknown.address, &plan, common).flatten().is_none() {
            return false;
        }
        let shape = if plan.flexible.is_some() { Shape::Flexible } else { Shape::One };
        let claim = self.claim(kind, unknown.from, self.rank.max(Rank::Candidate), shape);
        let Some(whole) = self.blocks.at(unknown.address) else { return false };
        self.say(whole, unknown.address - whole.block.address, claim)
    }
}
