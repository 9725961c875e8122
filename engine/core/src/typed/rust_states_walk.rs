//! Follows values of Rust that are not always there, where they are.

use std::rc::Rc;

use super::follow::MOST_DEPTH;
use super::plan::Plan;
use super::propagate::Spread;
use super::rust::Container;
use super::rust_states::{Filled, Guarded, Stamped};

impl Spread<'_, '_> {
    /// Returns where the value is, and what is in it. None: the state says that no value is there.
    fn guarded_value(&mut self, at: u64, guarded: &Guarded) -> Option<(u64, Rc<Plan>)> {
        let (state, width) = guarded.state();
        let state = self.number(at.checked_add(state)?, width)?;
        let (inside, kind) = guarded.case(state)?;
        Some((at.checked_add(inside)?, self.plans.of(self.debug, kind)))
    }

    pub(super) fn plausible_guarded(&mut self, at: u64, guarded: &Guarded) -> bool {
        let Some((at, plan)) = self.guarded_value(at, guarded) else { return true };
        self.deeper(|spread| spread.plausible(at, 0, 1, &plan))
    }

    /// Asks `look` of a value in a value. A damaged file may have a type that contains itself.
    fn deeper(&mut self, look: impl FnOnce(&mut Self) -> bool) -> bool {
        if self.depth >= MOST_DEPTH {
            return false;
        }
        self.depth += 1;
        let fine = look(self);
        self.depth -= 1;
        fine
    }

    /// Returns whether a value that is there has something that leads somewhere. None: the container is another one.
    pub(super) fn convincing_state(&mut self, at: u64, container: &Container) -> Option<bool> {
        let look = |spread: &mut Self, at, size, length, plan: &Rc<Plan>| {
            length > 0 && spread.deeper(|spread| spread.convincing(at, size, length, plan))
        };
        match container {
            Container::Guarded(guarded) => {
                let value = self.guarded_value(at, guarded);
                Some(value.is_some_and(|(at, plan)| look(self, at, 0, 1, &plan)))
            }
            Container::Filled(filled) => {
                let mut any = false;
                self.each_filled(at, filled, |spread, at, size, length, plan| {
                    any |= look(spread, at, size, length, plan);
                    true
                });
                Some(any)
            }
            _ => None,
        }
    }

    pub(super) fn guarded(&mut self, at: u64, guarded: &Guarded) -> Option<()> {
        let (at, plan) = self.guarded_value(at, guarded)?;
        self.plausible(at, 0, 1, &plan).then(|| self.follow(at, &plan))
    }

    /// Returns how many elements are there. None: the number cannot be right.
    fn filled_length(&mut self, at: u64, filled: &Filled) -> Option<u64> {
        let (length, width) = filled.length;
        self.number(at.checked_add(length)?, width).filter(|&length| length <= filled.most)
    }

    /// Calls `each` with the place of the first element of each array, its size, how many are there, and what is in them.
    fn each_filled(
        &mut self,
        at: u64,
        filled: &Filled,
        mut each: impl FnMut(&mut Self, u64, u64, u64, &Rc<Plan>) -> bool,
    ) -> Option<bool> {
        let length = self.filled_length(at, filled)?;
        for &(inside, element) in &filled.arrays {
            let size = self.types().size(element);
            let plan = self.plans.of_initialized(self.debug, element);
            if !each(self, at.checked_add(inside)?, size, length, &plan) {
                return Some(false);
            }
        }
        Some(true)
    }

    pub(super) fn plausible_filled(&mut self, at: u64, filled: &Filled) -> bool {
        let fine = |spread: &mut Self, at, size, length, plan: &Rc<Plan>| {
            spread.deeper(|spread| spread.plausible(at, size, length, plan))
        };
        self.each_filled(at, filled, fine) == Some(true)
    }

    pub(super) fn filled(&mut self, at: u64, filled: &Filled) -> Option<()> {
        self.plausible_filled(at, filled).then_some(())?;
        self.each_filled(at, filled, |spread, at, size, length, plan| {
            spread.repeat(at, size, length, plan);
            true
        });
        Some(())
    }

    /// Follows the slots of a bounded queue that have a value (std/src/sync/mpmc/array.rs): the stamp of an empty slot has its
    /// index in its low bits, that of a full one the index and 1. Above is the lap.
    pub(super) fn stamped(&mut self, first: u64, count: u64, stride: u64, stamped: Stamped) -> Option<()> {
        let mask = count.checked_add(1)?.checked_next_power_of_two()? - 1;
        self.works(usize::try_from(count).ok()?).then_some(())?;
        let (inside, kind) = stamped.value;
        let plan = self.plans.of(self.debug, kind);
        for i in 0..count {
            let at = first.checked_add(i.checked_mul(stride)?)?;
            if self.read(at.checked_add(stamped.stamp)?)? & mask == i + 1 {
                let value = at.checked_add(inside)?;
                if self.plausible(value, 0, 1, &plan) {
                    self.follow(value, &plan);
                }
            }
        }
        Some(())
    }
}
