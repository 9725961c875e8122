//! Objects that do not fill their blocks.
//!
//! A function that wraps malloc may put the size before what it returns (SQLite, MariaDB): then all pointers lead a few bytes
//! into the block. Other programs put data before or behind an object: what a class keeps private (GObject), the links of a
//! garbage collector (CPython), a page before its descriptor (SQLite), or several structs that are asked for with one call.

use std::collections::BTreeMap;

use super::blocks::{Claim, Found, Object, Rank, Shape};
use super::propagate::{fits, Spread, Waiting};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id};

/// Bytes of a header, at most.
const MOST_HEADER: u64 = 64;
/// An object names the block if it ends where the block ends, or if the block is at most so many times as large.
const MOST_SHARE: u64 = 16;
/// Pointers that wait.
const MOST_PARTS: usize = 1 << 22;
/// Blocks that have an object at the same place, at least.
const LEAST_BLOCKS: usize = 8;

impl Spread<'_, '_> {
    /// Returns how many bytes of header come before the object of a type to which a pointer leads that is so far inside a block.
    /// 0: there is no header.
    ///
    /// A word of the header must be the number of bytes that the program asked for: the block has about so many behind the
    /// header, and one object or several fill them.
    pub(super) fn header(&mut self, found: Found, inside: u64, to: Id) -> u64 {
        let (size, usable) = (self.types().size(to), found.block.size);
        if inside == 0 || inside > MOST_HEADER || inside % self.word != 0 || size == 0 || size > usable {
            return 0;
        }
        let sized = (0..inside / self.word).any(|index| {
            let asked = self.read(found.block.address + index * self.word).unwrap_or(0);
            asked >= size && asked < usable && fits(asked + inside, usable) && self.fills(to, asked)
        });
        if sized && !self.is_explained(to, inside, usable) {
            inside
        } else {
            0
        }
    }

    /// Returns whether one object of a type, or several, may have been asked for with so many bytes: rounded up to 16 at most.
    fn fills(&mut self, to: Id, asked: u64) -> bool {
        let size = self.types().size(to);
        let plan = self.plans.of(self.debug, to);
        asked - size < 16 || asked % size == 0 || plan.flexible.is_some_and(|(at, _)| at <= asked)
    }

    /// Keeps a pointer to an object that may be a part of a block.
    pub(super) fn may_be_part(&mut self, waiting: &Waiting) {
        if self.parts.len() < MOST_PARTS && self.types().record(waiting.to).is_some() {
            self.parts.push(waiting.clone());
        }
    }

    /// Judges the pointers to objects that do not fill their blocks. Returns whether something new was found.
    ///
    /// An object is there if its own pointers prove it. It is there as well if pointers of one type always lead so far into
    /// blocks: up to the end of each, or into blocks of one size.
    pub(super) fn judge_parts(&mut self, control: &Control) -> Result<bool, Stopped> {
        let mut places: BTreeMap<(Id, u64), Vec<Waiting>> = BTreeMap::new();
        let mut parts = std::mem::take(&mut self.parts);
        self.blocks.take(parts.len());
        parts.sort_unstable_by_key(|waiting| (waiting.value, waiting.from));
        parts.dedup_by_key(|waiting| waiting.value);
        let mut any = false;
        for waiting in parts {
            let to = self.types().bare(waiting.to);
            let Some(found) = self.blocks.at(waiting.value) else { continue };
            let inside = waiting.value - found.block.address;
            if inside % self.word != 0 || !matches!(self.types().get(to).form, Form::Record(_)) {
                continue;
            }
            let old = self.blocks.claim(found.number);
            if old.is_some() && old.rank != Rank::Weak {
                any |= self.further_object(found, &waiting, &old);
            } else if self.proven_object(found, &waiting) {
                any = true;
            } else if inside > 0 {
                let kind = self.canonical(to);
                places.entry((kind, inside)).or_default().push(waiting);
            }
        }
        let mut sorted: Vec<((Id, u64), Vec<Waiting>)> = places.into_iter().collect();
        sorted.sort_by_key(|((_, inside), all)| (std::cmp::Reverse(all.len()), *inside));
        for ((kind, inside), all) in sorted {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            // The second object of a pool is at the same place in all of them.
            if all.len() >= LEAST_BLOCKS && self.rank < Rank::Pooled && self.is_part(kind, inside, &all) {
                for waiting in &all {
                    let Some(found) = self.blocks.at(waiting.value) else { continue };
                    any |= self.say(found, inside, self.claim(kind, waiting.from, Rank::Part, Shape::One));
                }
            } else {
                self.parts.extend(all);
            }
        }
        Ok(any)
    }

    /// Says that a block has an object, if pointers of the object prove it. An array of objects is not an object.
    fn proven_object(&mut self, found: Found, waiting: &Waiting) -> bool {
        let (size, plan) = (self.types().size(waiting.to), self.plans.of(self.debug, waiting.to));
        let inside = waiting.value - found.block.address;
        let room = size <= found.block.size.saturating_sub(inside);
        let whole = room && !self.is_explained(waiting.to, inside, found.block.size);
        if !whole || (inside > 0 && self.may_be_array(waiting.to, inside, found)) {
            return false;
        }
        if self.proof(waiting.value, &plan, 0).flatten().is_none() {
            if inside == 0 {
                self.may_be_part(waiting);
            }
            return false;
        }
        // A small object somewhere in a large block is one of many: it does not name the block.
        let pool = self.pools.contains(&found.block.address);
        let at_end = self.rank < Rank::Pooled && fits(inside + size, found.block.size);
        let share = self.rank < Rank::Pooled && size.saturating_mul(MOST_SHARE) >= found.block.size;
        let named = !pool && (at_end || share);
        if !named {
            return false;
        }
        self.say(found, inside, self.claim(waiting.to, waiting.from, Rank::Part, Shape::One))
    }

    /// Follows an object that lies behind the one whose type the block has: both were asked for with one call. It is there if it
    /// begins where the other ends, or if its own pointers prove it.
    fn further_object(&mut self, found: Found, waiting: &Waiting, old: &Claim) -> bool {
        let inside = waiting.value - found.block.address;
        let Ok(skip) = u16::try_from(inside) else { return false };
        let (size, plan) = (self.types().size(waiting.to), self.plans.of(self.debug, waiting.to));
        let claim = Claim { skip, ..self.claim(waiting.to, waiting.from, Rank::Part, Shape::One) };
        let room = inside.saturating_add(size) <= found.block.size && self.are_apart(old, &claim);
        if !room || old.disputed || self.placed.contains_key(&waiting.value) {
            return false;
        }
        let end = u64::from(old.skip).saturating_add(self.types().size(old.kind));
        let next = inside.saturating_sub(end) < 2 * self.word && self.plausible(waiting.value, size, 1, &plan);
        if !next && self.proof(waiting.value, &plan, 0).flatten().is_none() {
            self.may_be_part(waiting);
            return false;
        }
        let object = Object { kind: self.canonical(waiting.to), size, from: waiting.from, proofs: 0 };
        self.placed.insert(waiting.value, object);
        self.areas.push((waiting.value, size, 1, plan));
        true
    }

    /// Returns whether all blocks may have an object of a type at an offset.
    fn is_part(&mut self, kind: Id, inside: u64, all: &[Waiting]) -> bool {
        let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
        let mut sizes = [u64::MAX, 0];
        if size == 0 || inside > u64::from(u16::MAX) || inside % size == 0 || plan.slots.is_empty() {
            return false;
        }
        let mut at_end = true;
        for waiting in all {
            let Some(found) = self.blocks.at(waiting.value) else { return false };
            let usable = found.block.size;
            sizes = [sizes[0].min(usable), sizes[1].max(usable)];
            let end = inside.saturating_add(size);
            at_end &= fits(end, usable);
            let pool = self.pools.contains(&found.block.address);
            let fine = !pool && end <= usable && !self.is_explained(kind, inside, usable);
            if !fine || !self.plausible(waiting.value, size, 1, &plan) {
                return false;
            }
        }
        at_end || sizes[0] == sizes[1]
    }
}
