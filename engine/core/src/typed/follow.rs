//! Follows objects: the pointers in them say what other blocks are.

use std::rc::Rc;

use super::blocks::{Claim, Found, Rank, Shape};
use super::containers::is_link;
use super::plan::{Plan, What};
use super::propagate::{fits, Spread, Waiting, CHECK, MOST_WAITING, SMALL};
use super::texts::MOST_HEADER;
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id, VOID};

/// Elements of one array that are followed. A block ends before; static data may claim anything.
const MOST_ELEMENTS: u64 = 1 << 28;
/// Objects in objects that are followed.
pub(super) const MOST_DEPTH: usize = 48;
/// What an allocator may add to a block, in bytes: the last elements of an array may lie there.
const ROUNDED: u64 = 24;

impl Spread<'_, '_> {
    /// Follows what was said, until nothing new is said.
    pub(super) fn drain(&mut self, control: &Control) -> Result<(), Stopped> {
        let mut count = 0usize;
        while !self.open.is_empty() || !self.areas.is_empty() {
            let mut areas = std::mem::take(&mut self.areas);
            areas.sort_unstable_by_key(|area| area.0);
            self.blocks.take(areas.len());
            for (address, stride, length, plan) in areas {
                count += 1;
                if count % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                self.repeat(address, stride, length, &plan);
            }
            // In the order of memory: neighbours are read together.
            let mut wave = std::mem::take(&mut self.open);
            wave.sort_unstable();
            wave.dedup();
            self.blocks.take(wave.len());
            for address in self.thinned(wave) {
                count += 1;
                if count % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                if let Some(found) = self.blocks.at(address) {
                    self.expand(found);
                }
            }
        }
        Ok(())
    }

    fn expand(&mut self, found: Found) {
        let claim = self.blocks.claim(found.number);
        let (address, end) = (found.block.address + u64::from(claim.skip), found.block.address + found.block.size);
        let plan = self.plans.of(self.debug, claim.kind);
        let size = self.types().size(claim.kind);
        match claim.shape {
            Shape::Many => {
                let length = end.saturating_sub(address);
                self.fill(address, size, length.checked_div(size).unwrap_or(0), &plan);
            }
            Shape::One | Shape::Flexible => {
                self.follow(address, &plan);
                if let Some((at, element)) = plan.flexible.filter(|_| claim.shape == Shape::Flexible) {
                    let (each, inner) = (self.types().size(element), self.plans.of(self.debug, element));
                    let length = end.saturating_sub(address.saturating_add(at));
                    let count = length.checked_div(each).unwrap_or(0);
                    if self.plausible(address + at, each, count, &inner) {
                        self.repeat(address + at, each, count, &inner);
                    }
                }
            }
        }
    }

    /// Follows the elements of an array that fills a block. The last ones may lie in what the allocator has rounded up: there
    /// is what an earlier block left.
    fn fill(&mut self, address: u64, stride: u64, count: u64, plan: &Rc<Plan>) {
        let sure = count - count.min(ROUNDED.checked_div(stride).unwrap_or(0));
        self.repeat(address, stride, sure, plan);
        self.doubtful = true;
        self.repeat(address.saturating_add(sure.saturating_mul(stride)), stride, count - sure, plan);
        self.doubtful = false;
    }

    pub(super) fn repeat(&mut self, address: u64, stride: u64, count: u64, plan: &Rc<Plan>) {
        if plan.slots.is_empty() || stride == 0 {
            return;
        }
        let (mut i, count) = (0, count.min(MOST_ELEMENTS));
        while i < count {
            let at = address.saturating_add(i.saturating_mul(stride));
            // A large static array of which nothing is in the dump ends here.
            if !self.is_mapped(at) {
                break;
            }
            self.follow(at, plan);
            i += self.step(i, count);
        }
    }

    /// Follows what is in an object.
    pub(super) fn follow(&mut self, address: u64, plan: &Rc<Plan>) {
        // Types nest; a damaged file may have one that contains itself.
        if self.depth >= MOST_DEPTH {
            return;
        }
        self.depth += 1;
        self.follow_slots(address, plan);
        self.depth -= 1;
    }

    fn follow_slots(&mut self, address: u64, plan: &Rc<Plan>) {
        if !self.works(plan.slots.len()) {
            return;
        }
        for slot in &plan.slots {
            let Some(at) = address.checked_add(slot.at) else { continue };
            match &slot.what {
                What::Pointer(to) => {
                    if let Some(value) = self.read(at) {
                        self.point(value, *to, at);
                    }
                }
                What::Choice(to) => {
                    let value = self.read(at).unwrap_or(0);
                    if value >= SMALL && self.unions.len() < MOST_WAITING && self.blocks.at(value).is_some() {
                        self.unions.push((value, to.clone(), at));
                    }
                }
                What::Container(container) => self.container(at, &container.clone()),
                What::Repeat(stride, count, inner) => self.repeat(at, *stride, *count, &inner.clone()),
                What::Enum(offset, width, cases) => {
                    if let Some(case) = self.case(at.saturating_add(*offset), *width, cases) {
                        self.follow(at, &case);
                    }
                }
                What::Value(_) => {}
            }
        }
    }

    /// Takes a pointer of a type. `from` is where it is.
    pub(super) fn point(&mut self, value: u64, to: Id, from: u64) {
        if value < SMALL {
            return;
        }
        let Some(found) = self.blocks.at(value) else { return };
        let to = self.types().bare(to);
        if to == VOID || matches!(self.types().get(to).form, Form::Declared) {
            self.may_be_untold(value, from);
            self.vouch(found);
        }
        let skip = self.header(found, value - found.block.address, to);
        let object = found.behind(skip);
        let inside = value - object.block.address;
        let kind = self.types().get(to);
        let size = kind.size;
        match kind.form {
            Form::Record(_) if is_link(self.types(), to) => {}
            Form::Record(_) => {
                let plan = self.plans.of(self.debug, to);
                if let Some(at) = plan.vtable {
                    self.dynamic(value, at, to, from);
                } else if inside == 0 && self.meet(object, to, from) {
                } else if inside == 0 && fits(size, object.block.size) && plan.flexible.is_none() {
                    let sure = !self.doubtful || self.convincing(value, size, 1, &plan);
                    if sure && self.plausible(value, size, 1, &plan) {
                        self.say(found, skip, self.claim(to, from, self.rank, Shape::One));
                    }
                } else if self.loose.len() < MOST_WAITING {
                    self.loose.push(Waiting { value, to, from });
                    self.may_be_pooled(value, to, from);
                }
                let old = self.blocks.claim(found.number);
                if old.is_some() && old.shape == Shape::One && inside >= self.types().size(old.kind) {
                    self.may_be_part(&Waiting { value, to, from });
                }
            }
            Form::Pointer(_) | Form::Array(..) if self.loose.len() < MOST_WAITING => {
                self.loose.push(Waiting { value, to, from });
            }
            // is_text() needs all of `self`, which a guard cannot have.
            #[allow(clippy::collapsible_match)]
            Form::Base(_) if self.doubtful && size == 1 && inside == 0 => {
                if self.is_text(object.block) {
                    self.say(found, skip, self.claim(to, from, Rank::Weak, Shape::Many));
                }
            }
            Form::Base(_) | Form::Enum | Form::Declared if self.doubtful => {}
            Form::Base(_) | Form::Enum if inside == 0 => {
                self.say(found, skip, self.claim(to, from, Rank::Weak, Shape::Many));
            }
            Form::Base(_) if self.inside.len() < MOST_WAITING && !self.blocks.claim(found.number).is_some() => {
                self.inside.push(Waiting { value, to, from });
                if size == 1 && inside <= MOST_HEADER && self.texts.len() < MOST_WAITING {
                    self.texts.push((value, from));
                }
            }
            Form::Declared if inside == 0 => {
                self.say(found, skip, self.claim(to, from, Rank::Weak, Shape::One));
            }
            _ => {}
        }
    }

    /// Proposes a type for what is in a block behind a header.
    pub(super) fn say(&mut self, found: Found, skip: u64, claim: Claim) -> bool {
        u16::try_from(skip).is_ok_and(|skip| self.propose(found, Claim { skip, ..claim }))
    }

    pub(super) fn claim(&self, kind: Id, from: u64, rank: Rank, shape: Shape) -> Claim {
        Claim { kind, rank, shape, from, ..Claim::default() }
    }

    /// Takes a pointer to an object that has a vtable: its dynamic type counts.
    fn dynamic(&mut self, value: u64, at: u64, to: Id, from: u64) {
        let Some(vtable) = self.read(value.saturating_add(at)) else { return };
        let Some((kind, top)) = self.vtables.class(self.debug, &mut self.reader, vtable) else { return };
        let Some(start) = value.saturating_add(at).checked_add_signed(top) else { return };
        let Some(found) = self.blocks.at(start) else { return };
        let _ = to;
        let size = self.types().size(kind);
        let inside = start - found.block.address;
        if found.block.address == start && size > 0 && size <= found.block.size {
            self.propose(found, self.claim(kind, from, Rank::Vtable, Shape::One));
        } else if inside > 0 && self.is_counted(start, inside, size, found.block.size) {
            self.say(found, inside, self.claim(kind, from, self.rank.max(Rank::Loose), Shape::Many));
        } else if found.block.address != start {
            self.may_be_pooled(start, kind, from);
        }
    }
    /// Returns whether the number of elements that operator new[] puts before objects with destructors stands there, and they
    /// fill the block (Itanium C++ ABI, 2.7).
    pub(super) fn is_counted(&mut self, start: u64, inside: u64, size: u64, usable: u64) -> bool {
        if size == 0 || (inside != self.word && inside != 2 * self.word) {
            return false;
        }
        let count = self.read(start - self.word).unwrap_or(0);
        count > 0 && count.checked_mul(size).is_some_and(|bytes| fits(bytes.saturating_add(inside), usable))
    }
}
