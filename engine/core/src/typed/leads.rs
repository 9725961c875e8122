//! To what a pointer leads, and whether that can be what its type says.

use super::blocks::{Found, Rank, Shape};
use super::propagate::{Spread, SMALL};
use crate::dwarf::model::{Form, Id};

/// To what a word leads, as far as it says whether the word can be a pointer of some type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lead {
    /// It is 0.
    Null,
    /// There is no memory.
    Nowhere,
    /// To memory outside the heap.
    Outside,
    /// To a variable of this type.
    Variable(Id),
    /// So far into an object of this type. `sure`: nothing contradicts the type.
    Object { kind: Id, at: u64, sure: bool },
    /// Behind the one object of a block: to an object of this type, if one is known there.
    Behind(Option<Id>),
    /// Before the first object of a block.
    Before,
    /// To the start of a block of this size of which nothing is known.
    Blank(u64),
    /// Into the middle of such a block.
    Inside,
}

impl Spread<'_, '_> {
    /// Says to what a word leads. `found` is the block into which it points.
    pub(super) fn lead(&self, value: u64, found: Option<Found>) -> Lead {
        if value < SMALL {
            return if value == 0 { Lead::Null } else { Lead::Nowhere };
        }
        let Some(found) = found else {
            return match self.variable_at(value) {
                _ if !self.is_mapped(value) => Lead::Nowhere,
                Some(kind) => Lead::Variable(kind),
                None => Lead::Outside,
            };
        };
        let claim = self.blocks.claim(found.number);
        let inside = value - found.block.address;
        if claim.is_some() && claim.rank != Rank::Weak {
            let size = self.types().size(claim.kind);
            let Some(at) = inside.checked_sub(u64::from(claim.skip)) else { return Lead::Before };
            if claim.shape == Shape::One && at >= size {
                return Lead::Behind(self.placed.get(&value).map(|object| object.kind));
            }
            let at = if claim.shape == Shape::Many && size > 0 { at % size } else { at };
            return Lead::Object { kind: claim.kind, at, sure: !claim.disputed };
        }
        match self.placed_at(value) {
            Some((at, kind)) => Lead::Object { kind, at: value - at, sure: true },
            None if inside == 0 => Lead::Blank(found.block.size),
            None => Lead::Inside,
        }
    }

    /// Returns the type of the static variable that begins at an address.
    pub(super) fn variable_at(&self, address: u64) -> Option<Id> {
        // Most words are no addresses at all.
        let first = self.statics.first().is_some_and(|&(first, _)| first <= address);
        if !first || self.statics.last().is_some_and(|&(last, _)| last < address) {
            return None;
        }
        self.statics.binary_search_by_key(&address, |&(at, _)| at).ok().map(|place| self.statics[place].1)
    }

    /// Returns whether a pointer of a type leads to an object that is known to have this type. None: it cannot be one.
    pub(super) fn leads(&mut self, value: u64, to: Id) -> Option<bool> {
        let found = if value < SMALL { None } else { self.blocks.at(value) };
        self.leads_as(self.lead(value, found), to)
    }

    /// Does the same for a pointer of which it is known to what it leads.
    pub(super) fn leads_as(&mut self, lead: Lead, to: Id) -> Option<bool> {
        let to = self.types().bare(to);
        let outside = matches!(lead, Lead::Outside | Lead::Variable(_));
        match (lead, &self.types().get(to).form) {
            (Lead::Null, _) => return Some(false),
            (Lead::Nowhere, _) => return None,
            (_, Form::Record(_)) => {}
            // No code is in a block of the heap.
            (_, Form::Function) if !outside => return None,
            _ => return Some(false),
        }
        // What has no members may be anywhere: an allocator is the base of many classes, and takes no room in them.
        let is_proof = self.types().size(to) > 1;
        match lead {
            Lead::Object { kind, at, sure } => self.contains(kind, at, to, 8).then_some(is_proof && sure),
            Lead::Behind(kind) => Some(kind.is_some_and(|kind| self.canonical(kind) == self.canonical(to))),
            Lead::Blank(size) => (self.types().size(to) <= size).then_some(false),
            Lead::Variable(kind) => Some(self.canonical(kind) == self.canonical(to) || self.contains(kind, 0, to, 8)),
            Lead::Inside | Lead::Outside => Some(false),
            Lead::Null | Lead::Nowhere | Lead::Before => None,
        }
    }
}
