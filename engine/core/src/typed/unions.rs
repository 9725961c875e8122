//! Pointers in unions: what they lead to must fit one of the types, and no other.

use super::blocks::{Claim, Found, Rank, Shape};
use super::plan::{Plan, What};
use super::propagate::{fits, Spread, CHECK};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id};

/// Elements of an array that are looked at.
const LOOKED_AT: u64 = 64;
/// Bytes by which an allocator may round up: there is what an earlier block left.
const ROUNDED: u64 = 24;

impl Spread<'_, '_> {
    /// Judges the pointers in unions: exactly one of the types must fit.
    pub(super) fn judge_unions(&mut self, control: &Control) -> Result<(), Stopped> {
        let unions = std::mem::take(&mut self.unions);
        self.blocks.take(unions.len());
        for (count, (value, choices, from)) in unions.into_iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(found) = self.blocks.at(value).filter(|found| found.block.address == value) else { continue };
            let (mut fitting, mut bases) = (Vec::new(), Vec::new());
            for to in choices {
                let to = self.types().bare(to);
                if self.may_be_derived(to, found.block.size) {
                    bases.push(to);
                } else if let Some((rank, shape)) = self.choice(found, to) {
                    fitting.push((to, rank, shape));
                }
            }
            match (&fitting[..], &bases[..]) {
                ([], [base]) => {
                    self.meet(found, *base, from);
                }
                (&[(to, rank, shape)], []) => {
                    self.propose(found, Claim { shape, ..self.claim(to, from, rank, shape) });
                }
                _ => {}
            }
        }
        self.drain(control)
    }

    /// Returns how a block can be what one of the pointers in a union leads to: a struct, one with a flexible array member, an
    /// array of pointers, or text. None: it cannot.
    fn choice(&mut self, found: Found, to: Id) -> Option<(Rank, Shape)> {
        let (address, usable) = (found.block.address, found.block.size);
        let (size, plan) = (self.types().size(to), self.plans.of(self.debug, to));
        let rank = self.rank.max(Rank::Union);
        match self.types().get(to).form {
            Form::Record(_) => {
                if let Some((at, element)) = plan.flexible.filter(|&(at, _)| at <= usable) {
                    let (each, inner) = (self.types().size(element), self.plans.of(self.debug, element));
                    let count = (usable - at).checked_div(each)?;
                    let fine = self.has_no_other(address, at, &plan) && self.agree(address + at, each, count, &inner);
                    return fine.then_some((rank, Shape::Flexible));
                }
                let fine = fits(size, usable) && self.convincing(address, size, 1, &plan);
                fine.then_some((rank, Shape::One))
            }
            Form::Pointer(_) => {
                self.agree(address, size, usable.checked_div(size)?, &plan).then_some((rank, Shape::Many))
            }
            Form::Base(_) if size == 1 => self.is_text(found.block).then_some((Rank::Weak, Shape::Many)),
            _ => None,
        }
    }

    /// Returns whether no word before an offset is a pointer to a block, where the plan has no pointer.
    fn has_no_other(&mut self, address: u64, end: u64, plan: &Plan) -> bool {
        let (pointers, _) = self.pointer_words(plan);
        (0..(end / self.word).min(64)).filter(|word| pointers >> word & 1 == 0).all(|word| {
            let value = self.read(address + word * self.word);
            value.is_some_and(|value| self.blocks.at(value).is_none())
        })
    }

    /// Returns whether all pointers of an array lead to what their types say, and one of them to a block of just this size or
    /// type.
    fn agree(&mut self, address: u64, stride: u64, count: u64, plan: &Plan) -> bool {
        if stride == 0 || plan.slots.is_empty() {
            return false;
        }
        let sure = (count - count.min(ROUNDED / stride)).max(1).min(count);
        let mut proven = false;
        for i in (0..sure).step_by((sure / LOOKED_AT).max(1) as usize) {
            for slot in &plan.slots {
                let What::Pointer(to) = slot.what else { continue };
                let Some(value) = self.read(address.saturating_add(i * stride + slot.at)) else { return false };
                match self.agrees(value, to) {
                    Some(proof) => proven |= proof,
                    None => return false,
                }
            }
        }
        proven
    }

    /// Returns whether a pointer leads to an object of its type, or to a block of no type that has its size. None: it cannot be a
    /// pointer of this type.
    fn agrees(&mut self, value: u64, to: Id) -> Option<bool> {
        if self.leads(value, to)? {
            return Some(true);
        }
        let to = self.types().bare(to);
        let Some(found) = self.blocks.at(value).filter(|found| found.block.address == value) else {
            return Some(false);
        };
        let claim = self.blocks.claim(found.number);
        if self.types().record(to).is_none() || (claim.is_some() && claim.rank != Rank::Weak) {
            return Some(false);
        }
        if self.plans.of(self.debug, to).flexible.is_some() || self.may_be_derived(to, found.block.size) {
            return Some(false);
        }
        fits(self.types().size(to), found.block.size).then_some(true)
    }
}
