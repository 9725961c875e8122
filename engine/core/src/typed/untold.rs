//! Objects to which only untyped pointers lead: `void *`, or a pointer to a struct that is only declared.
//!
//! The object itself must prove what it is. A struct is believed if it is the only one of which several pointers lead to
//! objects that are known to have the right types, and none contradicts what is known.

use std::rc::Rc;

use super::blocks::{Object, Rank};
use super::content::Content;
use super::maps::HashSet;
use super::plan::What;
use super::pools::Possible;
use super::propagate::{Spread, CHECK, SMALL};
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;

/// Pointers that wait: 32 MiB.
const MOST_POINTERS: usize = 1 << 21;
/// Pointers in an object that must lead to known objects.
const PROOFS: usize = 3;
/// To so many types.
const KINDS: usize = 2;
/// Places that are compared with all structs, in one pass.
const MOST_TRIES: usize = 1 << 16;
/// Bytes of a struct, at most.
const MOST_SIZE: u64 = 1 << 14;
/// Words of an object whose pointers are compared at once.
const WORDS: u64 = 64;

impl Spread<'_, '_> {
    /// Keeps a pointer that does not tell to what it leads.
    pub(super) fn may_be_untold(&mut self, value: u64, from: u64) {
        if self.doubtful || self.rank == Rank::Frame || value % self.word != 0 {
            return;
        }
        if self.untold.len() >= MOST_POINTERS && !self.untold_tidied {
            let mut untold = std::mem::take(&mut self.untold);
            untold.retain(|&(value, _)| self.blocks.at(value).is_some_and(|found| self.may_hold_many(found)));
            self.untold = untold;
            self.sort_untold();
            // A list that does not get much shorter is not sorted again and again.
            self.untold_tidied = self.untold.len() > MOST_POINTERS / 2;
        }
        if self.untold.len() >= MOST_POINTERS {
            self.exhausted = true;
            return;
        }
        self.untold.push((value, from));
    }

    fn sort_untold(&mut self) {
        self.untold.sort_unstable();
        self.untold.dedup_by_key(|&mut (value, _)| value);
    }

    /// Returns the objects that prove themselves.
    pub(super) fn objects_by_content(&mut self, control: &Control) -> Result<Vec<Possible>, Stopped> {
        let contents = self.contents();
        self.sort_untold();
        self.blocks.take(self.untold.len());
        let (mut out, mut tries) = (Vec::new(), MOST_TRIES);
        // They are kept: objects that become known may prove more of them.
        for (count, (at, from)) in self.untold.clone().into_iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if let Some((kind, size, proofs)) = self.object_by_content(at, &contents, &mut tries) {
                let proofs = u16::try_from(proofs).unwrap_or(u16::MAX);
                out.push(Possible { at, object: Object { kind, size, from, proofs }, proven: true });
            }
        }
        Ok(self.without_contradictions(out))
    }

    fn contents(&mut self) -> Rc<Vec<Content>> {
        if let Some(known) = &self.contents {
            return known.clone();
        }
        let mut out = Vec::new();
        for id in self.debug.records() {
            let kind = self.canonical(id);
            let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
            let (pointers, to_structs) = self.pointer_words(&plan);
            let union = self.types().record(kind).is_none_or(|record| record.union);
            let enough = to_structs.count_ones() as usize >= PROOFS;
            if !union && enough && size <= MOST_SIZE && plan.vtable.is_none() && plan.flexible.is_none() {
                out.push(Content { kind, size, plan, pointers, to_structs });
            }
        }
        out.sort_by_key(|content| content.kind);
        out.dedup_by_key(|content| content.kind);
        let out = Rc::new(out);
        self.contents = Some(out.clone());
        out
    }

    /// Returns the one struct that the words at an address prove, its size, and how many pointers do.
    fn object_by_content(
        &mut self,
        at: u64,
        contents: &Rc<Vec<Content>>,
        tries: &mut usize,
    ) -> Option<(Id, u64, usize)> {
        let found = self.blocks.at(at)?;
        let block = found.block;
        let disputed = self.untyped.contains(&block.address) || self.barred.contains(&block.address);
        if disputed || !self.may_hold_many(found) || self.placed_at(at).is_some() {
            return None;
        }
        let room = block.address + block.size - at;
        let (mut starts, mut known) = (0u64, 0u64);
        for word in 0..(room / self.word).min(WORDS) {
            let value = self.read(at + word * self.word)?;
            if value < SMALL {
                continue;
            }
            if let Some(other) = self.blocks.at(value) {
                let claim = self.blocks.claim(other.number);
                let typed = claim.is_some() && claim.rank != Rank::Weak && !claim.disputed;
                let is_known = typed || self.placed.contains_key(&value);
                starts |= u64::from(typed && other.block.address == value) << word;
                known |= u64::from(is_known) << word;
            } else if self.variable_at(value).is_some() {
                known |= 1 << word;
            }
        }
        if known == 0 {
            return None;
        }
        let Some(left) = tries.checked_sub(1) else {
            self.exhausted = true;
            return None;
        };
        *tries = left;
        let mut best: Option<(Id, u64, usize)> = None;
        for content in contents.iter() {
            let words = content.size / self.word;
            let own = if words >= WORDS { u64::MAX } else { (1 << words) - 1 };
            if content.to_structs & known == 0 || content.size > room || starts & own & !content.pointers != 0 {
                continue;
            }
            let Some(proofs) = self.agreeing(at, content) else { continue };
            best = match best {
                None => Some((content.kind, content.size, proofs)),
                // A struct and its first member may both be right: the larger one must prove more.
                Some((kind, _, other)) if proofs > other && self.contains(content.kind, 0, kind, 8) => {
                    Some((content.kind, content.size, proofs))
                }
                Some((kind, _, other)) if other > proofs && self.contains(kind, 0, content.kind, 8) => best,
                Some(_) => return None,
            };
        }
        best
    }

    /// Returns whether there is an object of a type in a block of which nothing is known, and its pointers prove it.
    fn proves_itself(&mut self, at: u64, to: Id) -> bool {
        let Some(found) = self.blocks.at(at) else { return false };
        let (to, size) = (self.canonical(to), self.types().size(to));
        if self.blocks.claim(found.number).is_some() || size == 0 || self.types().record(to).is_none() {
            return false;
        }
        let room = found.block.address + found.block.size - at;
        let plan = self.plans.of(self.debug, to);
        size <= room && self.proof(at, &plan, 0).flatten().is_some()
    }

    /// Returns how many pointers of an object lead to known objects of their types, if they are enough. None: they are not, or
    /// one pointer is wrong.
    fn agreeing(&mut self, at: u64, content: &Content) -> Option<usize> {
        let plan = &content.plan;
        self.proof(at, plan, 0)??;
        let mut kinds = HashSet::default();
        let mut proofs = 0;
        for slot in &plan.slots {
            let What::Pointer(to) = slot.what else { continue };
            let value = self.read(at + slot.at)?;
            let own = value == at && self.canonical(to) == content.kind;
            if self.leads(value, to)? || own || self.proves_itself(value, to) {
                proofs += 1;
                kinds.insert(self.canonical(to));
            }
        }
        (proofs >= PROOFS && kinds.len() >= KINDS).then_some(proofs)
    }
}
