//! Blocks that only untyped pointers lead to: a struct is believed if it is the only one that explains every pointer in the
//! block, and that has one which leads to an object whose type is known.
//!
//! A struct that has the right size and pointers to anything proves nothing: libraries without debug information have lists,
//! too. So at least one pointer must lead to a block that already has the right type, or to a variable of it.

use std::collections::HashMap;
use std::rc::Rc;

use super::blocks::{Found, Rank, Shape};
use super::plan::{Plan, What};
use super::propagate::{fits, Spread, SMALL};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id, VOID};
use crate::graph::stream::Stream;

/// Words of a block that are looked at: a bit for each.
pub(super) const MOST_WORDS: u64 = 64;
/// Passes over all blocks: a block that got a type is evidence for others.
const ROUNDS: usize = 4;
/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 12;

/// A struct with pointers to structs, by its size.
pub(super) struct Candidate {
    size: u64,
    kind: Id,
    plan: Rc<Plan>,
    /// The words that may hold pointers, and those that hold pointers to structs.
    pointers: u64,
    to_structs: u64,
}

/// A struct with two pointers or more: a block that looks like it proves nothing behind its end.
pub(super) struct Lesser {
    size: u64,
    plan: Rc<Plan>,
}

/// Candidates by the usable size of a block.
type BySize = HashMap<u64, Rc<Vec<usize>>>;

impl Spread<'_, '_> {
    /// Looks at all blocks that have no type yet.
    pub(super) fn judge_structures(&mut self, control: &Control) -> Result<(), Stopped> {
        let (candidates, lesser) = self.candidates();
        if candidates.is_empty() {
            return Ok(());
        }
        let mut by_size = BySize::new();
        for _ in 0..ROUNDS {
            let mut any = false;
            let heap = self.blocks.heap();
            for (count, each) in Stream::new(heap).enumerate() {
                if count % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let Some(found) = self.blocks.at(each.block.address) else { continue };
                if !self.blocks.claim(found.number).is_some() {
                    any |= self.only_structure(found, (&candidates, &lesser), &mut by_size);
                }
            }
            if !any {
                break;
            }
            self.settle(control)?;
            self.judge_inside(control)?;
        }
        Ok(())
    }

    /// Returns the structs that have a pointer to a struct; and all that have two pointers or more.
    fn candidates(&mut self) -> (Vec<Candidate>, Vec<Lesser>) {
        let (mut out, mut lesser) = (Vec::new(), Vec::new());
        for id in self.debug.records() {
            let kind = self.canonical(id);
            let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
            let (pointers, to_structs) = self.pointer_words(&plan);
            let pairs = |slot: &&super::plan::Slot| matches!(slot.what, What::Pointer(_) | What::Choice(_));
            if size > 0 && size <= MOST_WORDS * self.word && plan.slots.iter().filter(pairs).count() >= 2 {
                lesser.push(Lesser { size, plan: plan.clone() });
            }
            let fixed = plan.vtable.is_none() && plan.flexible.is_none();
            if size > 0 && size <= MOST_WORDS * self.word && fixed && to_structs != 0 {
                out.push(Candidate { size, kind, plan, pointers, to_structs });
            }
        }
        out.sort_by_key(|candidate| (candidate.size, candidate.kind));
        out.dedup_by_key(|candidate| candidate.kind);
        lesser.sort_by_key(|lesser| lesser.size);
        lesser.dedup_by(|a, b| Rc::ptr_eq(&a.plan, &b.plan));
        (out, lesser)
    }

    /// Returns which words of an object may hold pointers, and which hold pointers to structs: a bit for each.
    pub(super) fn pointer_words(&self, plan: &Plan) -> (u64, u64) {
        let (mut pointers, mut to_structs) = (0, 0);
        for slot in &plan.slots {
            let count = match &slot.what {
                What::Pointer(_) | What::Choice(_) => 1,
                What::Repeat(stride, count, _) => stride.saturating_mul(*count) / self.word,
                // A container has pointers of its own, which are not listed here.
                What::Container(_) | What::Enum(..) => 32,
                What::Value(_) => 0,
            };
            let first = slot.at / self.word;
            for word in first..first.saturating_add(count).min(MOST_WORDS) {
                pointers |= 1 << word;
            }
            if let What::Pointer(to) = slot.what {
                if first < MOST_WORDS && self.types().record(to).is_some() {
                    to_structs |= 1 << first;
                }
            }
        }
        (pointers, to_structs)
    }

    /// Gives a block the one struct that explains it.
    fn only_structure(
        &mut self,
        found: Found,
        (candidates, lesser): (&[Candidate], &[Lesser]),
        by_size: &mut BySize,
    ) -> bool {
        let (address, usable) = (found.block.address, found.block.size);
        if usable >= 2 * MOST_WORDS * self.word {
            return false;
        }
        // Which words point to the start of a block, and which to something whose type is known.
        let (mut starts, mut known) = (0u64, 0u64);
        for word in 0..(usable / self.word).min(MOST_WORDS) {
            let Some(value) = self.read(address + word * self.word) else { return false };
            if value < SMALL {
                continue;
            }
            if let Some(other) = self.blocks.at(value) {
                starts |= u64::from(other.block.address == value) << word;
                let claim = self.blocks.claim(other.number);
                known |= u64::from(claim.is_some() && claim.rank != Rank::Weak && !claim.disputed) << word;
            } else if self.statics.binary_search_by_key(&value, |&(at, _)| at).is_ok() {
                known |= 1 << word;
            }
        }
        if known == 0 {
            return false;
        }
        let fitting = by_size.entry(usable).or_insert_with(|| {
            let fit = (0..candidates.len()).filter(|&i| fits(candidates[i].size, usable));
            Rc::new(fit.collect())
        });
        let mut only = None;
        for &i in fitting.clone().iter() {
            let candidate = &candidates[i];
            let words = candidate.size / self.word;
            let own = if words >= 64 { u64::MAX } else { (1 << words) - 1 };
            if candidate.to_structs & known == 0 || starts & own & !candidate.pointers != 0 {
                continue;
            }
            let common = self.common_members(candidate.kind, usable);
            let Some(from) = self.proof(address, &candidate.plan, common).flatten() else { continue };
            if only.is_some() {
                return false;
            }
            only = Some((candidate.kind, from));
        }
        let Some((kind, from)) = only else { return false };
        // A struct from which others are derived says too little.
        if self.may_be_derived(kind, usable) {
            return false;
        }
        // The proof may lie behind the end of a smaller object: the allocator has rounded up, and an earlier block was there.
        for lesser in lesser.iter().take_while(|lesser| address + lesser.size <= from) {
            if fits(lesser.size, usable) && self.plausible(address, lesser.size, 1, &lesser.plan) {
                return false;
            }
        }
        self.propose(found, self.claim(kind, from, Rank::Candidate, Shape::One))
    }

    /// Returns the address of a pointer that proves a plan; Some(None): all its pointers may be right. None: one is wrong. The
    /// first bytes, which other structs have, too, prove nothing.
    pub(super) fn proof(&mut self, address: u64, plan: &Rc<Plan>, common: u64) -> Option<Option<u64>> {
        if !self.works(plan.slots.len()) {
            return None;
        }
        let mut proof = None;
        for slot in &plan.slots {
            let at = address + slot.at;
            match &slot.what {
                What::Pointer(to) => {
                    let value = self.read(at)?;
                    if self.leads(value, *to)? && slot.at >= common {
                        proof.get_or_insert(at);
                    }
                }
                What::Container(container) => self.plausible_container(at, container).then_some(())?,
                What::Value(width) => self.plausible_value(at, *width).then_some(())?,
                What::Choice(_) | What::Repeat(..) | What::Enum(..) => {}
            }
        }
        Some(proof)
    }

    /// Returns whether a pointer of a type leads to an object that is known to have this type. None: it cannot be one.
    pub(super) fn leads(&mut self, value: u64, to: Id) -> Option<bool> {
        if value < SMALL {
            return (value == 0).then_some(false);
        }
        let to = self.types().bare(to);
        let is_record = matches!(self.types().get(to).form, Form::Record(_));
        // What has no members may be anywhere: an allocator is the base of many classes, and takes no room in them.
        let is_proof = self.types().size(to) > 1;
        if let Some(found) = self.blocks.at(value) {
            // No code is in a block of the heap.
            if matches!(self.types().get(to).form, Form::Function) {
                return None;
            }
            if !is_record {
                return Some(false);
            }
            let claim = self.blocks.claim(found.number);
            let inside = value - found.block.address;
            if claim.is_some() && claim.rank != Rank::Weak {
                let size = self.types().size(claim.kind);
                let at = inside.checked_sub(u64::from(claim.skip))?;
                if claim.shape == Shape::One && at >= size {
                    let placed = self.placed.get(&value).map(|object| object.kind);
                    return Some(placed.is_some_and(|kind| self.canonical(kind) == self.canonical(to)));
                }
                let at = if claim.shape == Shape::Many && size > 0 { at % size } else { at };
                return self.contains(claim.kind, at, to, 8).then_some(is_proof && !claim.disputed);
            }
            if let Some((at, kind)) = self.placed_at(value) {
                return self.contains(kind, value - at, to, 8).then_some(is_proof);
            }
            let size = self.types().size(to);
            let fine = inside > 0 || size <= found.block.size;
            return fine.then_some(false);
        }
        if !self.is_mapped(value) {
            return None;
        }
        if !is_record {
            return Some(false);
        }
        // A variable of this type.
        let known = self.statics.binary_search_by_key(&value, |&(at, _)| at).ok().map(|place| self.statics[place].1);
        let kind = known.unwrap_or(VOID);
        let same = kind != VOID && (self.canonical(kind) == self.canonical(to) || self.contains(kind, 0, to, 8));
        Some(same)
    }
}
