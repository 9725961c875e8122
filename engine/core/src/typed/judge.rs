//! What is less certain than a pointer to a block of the right size: larger blocks, and arrays. And whether memory looks like
//! a type.

use std::rc::Rc;

use super::blocks::{Claim, Found, Rank, Shape};
use super::containers::Container;
use super::counted::{Sure, LARGE};
use super::plan::{Plan, Slot, What};
use super::propagate::{fits, fitting, Spread, Waiting, CHECK, MOST_WAITING, SMALL};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id, VOID};

/// Elements of an array whose pointers are checked before the array is believed.
const CHECKED: u64 = 64;
/// Elements among which one must say something.
const LOOKED_AT: u64 = 1 << 12;
/// What is below is a number where it stands in a `void *` of 64 bits: programs keep integers of 32 bits there.
const NUMBER: u64 = 1 << 32;

impl Spread<'_, '_> {
    /// Judges the pointers that wait: blocks that are larger than the type, and arrays.
    pub(super) fn judge_loose(&mut self, control: &Control) -> Result<(), Stopped> {
        while !self.loose.is_empty() {
            self.blocks.take(self.loose.len());
            for (count, waiting) in std::mem::take(&mut self.loose).into_iter().enumerate() {
                if count % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                self.judge(&waiting);
            }
            self.drain(control)?;
        }
        Ok(())
    }

    fn judge(&mut self, waiting: &Waiting) {
        let &Waiting { value, to, from } = waiting;
        let Some(found) = self.blocks.at(value) else { return };
        if self.leads_back(value, to, from) {
            return;
        }
        let rank = self.rank.max(Rank::Loose);
        let skip = self.header(found, value - found.block.address, to);
        let object = found.behind(skip);
        let inside = value - object.block.address;
        let size = self.types().size(to);
        let plan = self.plans.of(self.debug, to);
        if size == 0 {
            return;
        }
        let usable = object.block.size;
        let room = usable - inside.min(usable);
        if inside > 0 {
            // What operator new[] puts before objects that have destructors: their number.
            let count = self.read(value.wrapping_sub(self.word)).unwrap_or(0);
            let cookie = inside == self.word || inside == 2 * self.word;
            let whole = count.checked_mul(size).is_some_and(|bytes| bytes <= room && fits(bytes + inside, usable));
            let destructor = self.types().record(to).is_some_and(|record| record.destructor);
            let cookie = cookie && destructor && !self.is_explained(to, inside, usable);
            if cookie && count > 0 && whole && self.plausible(value, size, count, &plan) {
                self.propose(found, Claim { skip: inside as u16, ..self.claim(to, from, rank, Shape::Many) });
            } else if !self.blocks.claim(found.number).is_some() && self.inside.len() < MOST_WAITING {
                self.inside.push(waiting.clone());
            } else {
                self.may_be_pool(waiting, found, inside);
            }
            return;
        }
        let old = self.blocks.claim(found.number);
        if old.is_some()
            && old.rank < Rank::Weak
            && self.holds(&old, &Claim { skip: skip as u16, ..self.claim(to, from, rank, Shape::One) })
        {
            return;
        }
        if let Some((at, element)) = plan.flexible {
            if self.pools.contains(&found.block.address) {
                return;
            }
            let each = self.types().size(element).max(1);
            if at <= room && (room - at < each * 64 || self.plausible(value, size, 1, &plan)) {
                self.say(found, skip, self.claim(to, from, rank, Shape::Flexible));
            }
            return;
        }
        let pointers = matches!(self.types().get(to).form, Form::Pointer(_) | Form::Array(..));
        if !pointers && size <= room && room < 2 * size {
            if self.plausible(value, size, 1, &plan) && self.begins_nothing_larger(to, usable) {
                self.say(found, skip, self.claim(to, from, rank, Shape::One));
            }
            return;
        }
        let count = room / size;
        // The allocator rounds up, to 16 bytes; a remainder that is too small for a chunk stays with the block.
        let slack = if room >= LARGE { 0 } else { room - count * size };
        if count < 2 && !pointers || slack >= size.min(32).max(self.word) {
            self.may_be_part(waiting);
            return;
        }
        if !pointers && !self.begins_nothing_larger(to, usable) {
            return;
        }
        if self.no_arrays.contains(&found.block.address) {
            self.may_be_part(waiting);
            return;
        }
        // The first element alone says nothing of the others, and a chain is made of single nodes.
        let others = pointers || count > 1 && self.convincing(value + size, size, count - 1, &plan);
        // The tail of such a chain has a pointer to the last link, which is no array either.
        let link = self.types().pointee(to).unwrap_or(to);
        let convincing = others && !self.is_bare_link(link) && self.convincing(value, size, count, &plan);
        let sure = if convincing { Some(Sure::Yes) } else { self.counted(waiting, usable, &plan) };
        match sure {
            Some(Sure::Yes) => {
                self.say(found, skip, self.claim(to, from, rank, Shape::Many));
            }
            Some(Sure::Perhaps) => {
                self.say(found, skip, self.claim(to, from, Rank::Weak, Shape::Many));
                self.wait(waiting);
            }
            None if plan.slots.iter().any(|slot| matches!(slot.what, What::Choice(_))) => self.wait(waiting),
            None => self.may_be_part(waiting),
        }
    }

    /// Returns whether a pointer to a pointer leads to the one that leads back: the link of a list to the place where the object
    /// before has its address (`pprev` of Linux, `le_prev` of BSD). No array begins there.
    fn leads_back(&mut self, value: u64, to: Id, from: u64) -> bool {
        let Some(object) = self.types().pointee(to) else { return false };
        let size = self.types().size(object);
        self.read(value).is_some_and(|back| back > 0 && back <= from && from - back < size)
    }

    /// Takes a pointer of the same type into what would be the flexible array member of an object: the block is a pool of such
    /// objects, as the pages of a slab allocator are. No single object names it.
    fn may_be_pool(&mut self, waiting: &Waiting, found: Found, inside: u64) {
        let claim = self.blocks.claim(found.number);
        let plan = self.plans.of(self.debug, waiting.to);
        let behind = plan.flexible.is_some_and(|(at, _)| inside >= at + u64::from(claim.skip));
        if claim.shape == Shape::Flexible
            && claim.rank > Rank::Taught
            && behind
            && self.canonical(waiting.to) == claim.kind
            && self.pools.insert(found.block.address)
        {
            self.blocks.set(found.number, Claim::default());
        }
    }

    /// Returns whether a struct is no more than a pointer to the next one.
    pub(super) fn is_bare_link(&mut self, to: Id) -> bool {
        let plan = self.plans.of(self.debug, to);
        match plan.slots[..] {
            [Slot { at: 0, what: What::Pointer(next) }] if self.types().size(to) == self.word => {
                self.canonical(next) == self.canonical(to)
            }
            _ => false,
        }
    }

    /// Keeps a pointer to an array until more is known.
    fn wait(&mut self, waiting: &Waiting) {
        if self.doubtful_arrays.len() < MOST_WAITING {
            self.doubtful_arrays.push(waiting.clone());
        }
    }

    /// Returns whether no other struct of about the block's size begins with this one: C's way to derive a type.
    fn begins_nothing_larger(&mut self, inner: Id, usable: u64) -> bool {
        !self.is_explained(inner, 0, usable)
    }

    /// Returns whether a struct of about the block's size has this one at an offset.
    pub(super) fn is_explained(&mut self, inner: Id, at: u64, usable: u64) -> bool {
        let key = (self.canonical(inner), at);
        self.outer_types().get(&key).is_some_and(|structs| !fitting(structs, usable).is_empty())
    }

    /// Returns whether the pointers of an array are plausible, and some of them lead somewhere.
    pub(super) fn convincing(&mut self, address: u64, stride: u64, count: u64, plan: &Rc<Plan>) -> bool {
        // Nothing but numbers, which agree with anything.
        if plan.slots.is_empty() {
            return false;
        }
        // Where the block is larger than what was asked for, its last bytes are left over from an earlier use.
        let sure = count - count.min(24 / stride.max(1));
        let sure = sure.max(1);
        if !self.plausible(address, stride, sure, plan) {
            return false;
        }
        // A hash table may have empty buckets only at its beginning, while it moves.
        (0..sure.min(LOOKED_AT)).any(|i| {
            plan.slots.iter().any(|slot| match slot.what {
                What::Pointer(_) => self.read(address + i * stride + slot.at).is_some_and(|value| value >= SMALL),
                What::Value(8) => self.read(address + i * stride + slot.at).is_some_and(|value| value != 0),
                What::Container(ref container) => self.convincing_container(address + i * stride + slot.at, container),
                What::Choice(ref choices) => {
                    let value = self.read(address + i * stride + slot.at).unwrap_or(0);
                    value >= SMALL && choices.iter().any(|&to| self.leads(value, to) == Some(true))
                }
                What::Enum(offset, width, ref cases) => {
                    let at = address + i * stride + slot.at;
                    let case = self.case(at.saturating_add(offset), width, cases);
                    case.is_some_and(|case| self.convincing(at, 0, 1, &case))
                }
                _ => false,
            })
        })
    }

    fn convincing_container(&mut self, at: u64, container: &Container) -> bool {
        match container {
            Container::Owned { .. } => self.read(at).is_some_and(|value| value >= SMALL),
            Container::Rust(container) => self.convincing_state(at, container).unwrap_or(true),
            _ => true,
        }
    }

    /// Returns what is there for the value of a discriminant. None: nothing is there for it, or it is not in the dump.
    pub(super) fn case(&mut self, at: u64, width: u64, cases: &super::plan::Cases) -> Option<Rc<Plan>> {
        let value = self.number(at, width)?;
        let mask = if width >= 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        let exact = cases.iter().find(|(when, _)| when.is_some_and(|when| when & mask == value));
        exact.or_else(|| cases.iter().find(|(when, _)| when.is_none())).map(|(_, plan)| plan.clone())
    }

    /// Returns whether a number can be one that a program computes with.
    pub(super) fn plausible_value(&mut self, at: u64, width: u64) -> bool {
        let Some(word) = self.read(at & !(self.word - 1)) else { return false };
        let bits = word >> (8 * (at & (self.word - 1)));
        match width {
            1 => bits & 0xff <= 1,
            // Exponents far from 1 come of bits that are something else. Infinities and NaNs are used as marks.
            4 => bits as u32 == 0 || matches!(bits >> 23 & 0xff, 64..=192 | 255),
            _ if self.word == 8 => bits == 0 || matches!(bits >> 52 & 0x7ff, 0x300..=0x500 | 0x7ff),
            _ => true,
        }
    }

    /// Returns whether the pointers in objects of a type are 0 or lead to memory.
    pub(super) fn plausible(&mut self, address: u64, stride: u64, count: u64, plan: &Rc<Plan>) -> bool {
        let step = (count / CHECKED).max(1);
        let mut i = 0;
        while i < count {
            if !self.works(plan.slots.len()) {
                return false;
            }
            let base = address.saturating_add(i.saturating_mul(stride));
            for slot in &plan.slots {
                let at = base.saturating_add(slot.at);
                let fine = match &slot.what {
                    What::Pointer(to) => self.read(at).is_some_and(|value| self.may_be_in_pointer(value, *to)),
                    What::Container(container) => self.plausible_container(at, container),
                    What::Value(width) => self.plausible_value(at, *width),
                    What::Enum(offset, width, cases) => {
                        let case = self.case(at.saturating_add(*offset), *width, cases);
                        case.is_some_and(|case| self.plausible(at, 0, 1, &case))
                    }
                    _ => true,
                };
                if !fine {
                    return false;
                }
            }
            i += step;
        }
        true
    }

    /// Returns whether a pointer to a type may have this value.
    fn may_be_in_pointer(&self, value: u64, to: Id) -> bool {
        // Programs keep whole numbers in a `void *`, as Redis does with integers. A typed pointer holds no such number.
        let number = self.word == 8 && value < NUMBER && self.types().bare(to) == VOID;
        number || self.may_point(value)
    }

    pub(super) fn may_point(&self, value: u64) -> bool {
        let top = if self.word == 4 { 1 << 32 } else { 0u64 };
        // Programs keep flags in the lowest bits of pointers.
        value < SMALL || value >= top.wrapping_sub(SMALL) || self.is_mapped(value & !7)
    }
}
