//! Pointers of the C++ library that own more than their type says: arrays, and what a `std::any` holds.

use super::blocks::{Rank, Shape};
use super::propagate::{Spread, SMALL};
use crate::dwarf::model::{Form, Id};

/// What an allocator may add to a block, in bytes: the last elements of an array may lie there.
const ROUNDED: u64 = 24;

impl Spread<'_, '_> {
    /// Follows a `std::shared_ptr<T[]>`. `std::make_shared<T[]>` of libstdc++ puts the control block behind the elements: their
    /// number follows its vtable pointer and its counts (bits/shared_ptr_base.h, _Sp_counted_array_base).
    pub(super) fn shared_array(&mut self, at: u64, object: u64, control: u64, (element, base): (Id, Id)) -> Option<()> {
        let (value, behind) = (self.read(at + object)?, self.read(at + control)?);
        let found = self.blocks.at(value).filter(|_| value >= SMALL);
        let inside = found.is_some_and(|found| behind > value && behind - found.block.address < found.block.size);
        if !inside {
            if behind >= SMALL {
                self.point(behind, base, at + control);
            }
            return self.owned_array(value, element, at + object);
        }
        let found = found.filter(|found| found.block.address == value)?;
        let count = self.read(behind.checked_add(self.word + 8)?)?;
        let used = count.checked_mul(self.types().size(element))?;
        let padding = (behind - value).checked_sub(used)?;
        (used > 0 && padding < self.word).then_some(())?;
        self.elements(found, element, at + object, used)
    }

    /// Takes a pointer to an array that fills a block: of how many elements, nothing says.
    pub(super) fn owned_array(&mut self, value: u64, element: Id, from: u64) -> Option<()> {
        let element = self.types().bare(element);
        if matches!(self.types().get(element).form, Form::Base(_) | Form::Enum) {
            // Buffers of bytes hold anything.
            self.point(value, element, from);
            return Some(());
        }
        let found = self.blocks.at(value).filter(|_| value >= SMALL)?;
        let (usable, size) = (found.block.size, self.types().size(element));
        let inside = value - found.block.address;
        let claim = self.claim(element, from, self.rank.max(Rank::Loose), Shape::Many);
        if inside > 0 {
            self.is_counted(value, inside, size, usable).then(|| self.say(found, inside, claim))?;
            return Some(());
        }
        let count = usable.checked_div(size).filter(|&count| count > 0)?;
        let sure = count.saturating_sub(ROUNDED / size).max(1);
        let plan = self.plans.of(self.debug, element);
        self.plausible(value, size, sure, &plan).then(|| self.say(found, 0, claim))?;
        Some(())
    }

    /// Follows a `std::any`: the function that manages its value tells of which type it is.
    pub(super) fn any(&mut self, at: u64, manager: u64, pointer: u64) -> Option<()> {
        let manager = self.read(at + manager)?;
        let from = at + pointer;
        let value = self.read(from)?;
        let Some(&kind) = self.managed.get(&manager) else {
            if self.blocks.at(value).is_some() {
                self.may_be_untold(value, from);
            }
            return None;
        };
        let found = self.exact(value, self.types().size(kind))?;
        let plan = self.plans.of(self.debug, kind);
        self.plausible(value, 0, 1, &plan).then(|| self.held(found, kind, from, Shape::One))?;
        Some(())
    }
}
