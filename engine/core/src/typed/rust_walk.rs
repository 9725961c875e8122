//! Follows the containers of Rust's library. Nothing is said of their blocks unless lengths, capacities and sizes agree.

use super::blocks::{Claim, Rank, Shape};
use super::concrete::Ending;
use super::propagate::{fits, Spread, SMALL};
use super::rust::{Container, Node};
use crate::dwarf::model::Id;

/// Buckets of one table.
const MOST: u64 = 1 << 32;
/// The height of a tree: 6 children and more in each node.
const MOST_HEIGHT: u64 = 26;
/// Buckets of a table that are looked at where only a sample is asked for.
const MOST_SAMPLED: u64 = 1 << 14;
/// Elements that are checked before a table is believed.
const CHECKED: usize = 64;
/// The alignment of the buckets, and control bytes behind them (hashbrown, Group::WIDTH): at most and at least.
const GROUP: u64 = 16;
const LEAST_GROUP: u64 = 8;

impl Spread<'_, '_> {
    /// Returns whether the memory may be such a container. Cheap checks only.
    pub(super) fn plausible_rust(&mut self, at: u64, container: &Container) -> bool {
        match *container {
            Container::Buffer { pointer, capacity, length, .. } => {
                let (Some(pointer), Some(length)) = (self.read(at + pointer), self.read(at + length)) else {
                    return false;
                };
                let capacity = self.read(at + capacity).unwrap_or(0) & (u64::MAX >> 1);
                // Without memory the pointer is the alignment. The capacity of elements without a size is 0.
                pointer != 0
                    && (self.is_mapped(pointer) || (capacity == 0 && pointer < SMALL))
                    && (length <= capacity || capacity == 0)
            }
            Container::Slice { pointer, .. } | Container::Sliced { pointer, .. } => {
                self.read(at + pointer).is_some_and(|pointer| pointer != 0)
            }
            Container::Table { control, mask, .. } => {
                let (Some(control), Some(mask)) = (self.read(at + control), self.read(at + mask)) else { return false };
                self.is_mapped(control) && mask.wrapping_add(1).is_power_of_two()
            }
            Container::Object { pointer, vtable, .. } => {
                let (Some(pointer), Some(vtable)) = (self.read(at + pointer), self.read(at + vtable)) else {
                    return false;
                };
                pointer == 0 || self.is_mapped(vtable)
            }
            Container::Guarded(ref guarded) => self.plausible_guarded(at, guarded),
            Container::Filled(ref filled) => self.plausible_filled(at, filled),
            Container::Tree { root, .. } => self.read(at + root).is_some_and(|root| self.may_point(root)),
        }
    }

    /// Follows a container. None: something does not agree.
    pub(super) fn rust(&mut self, at: u64, container: &Container) -> Option<()> {
        match *container {
            Container::Buffer { pointer, capacity, head, length, element } => {
                let from = at + pointer;
                let (buffer, capacity) = (self.read(from)?, self.read(at + capacity)?);
                let length = self.read(at + length)?;
                let head = head.map_or(Some(0), |head| self.read(at + head))?;
                let size = self.types().size(element);
                if capacity == 0 || size == 0 || length > capacity || head >= capacity {
                    return None;
                }
                let found = self.exact(buffer, capacity.checked_mul(size)?)?;
                if head == 0 {
                    return self.elements(found, element, from, length * size);
                }
                let plan = self.plans.of(self.debug, element);
                let first = length.min(capacity - head);
                let start = buffer + head * size;
                let fine =
                    self.plausible(start, size, first, &plan) && self.plausible(buffer, size, length - first, &plan);
                if fine && self.held(found, element, from, Shape::Many) && self.forget_last(found) {
                    self.areas.push((start, size, first, plan.clone()));
                    self.areas.push((buffer, size, length - first, plan));
                }
                Some(())
            }
            Container::Slice { pointer, length, element, stamped } => {
                let from = at + pointer;
                let (buffer, length, size) = (self.read(from)?, self.read(at + length)?, self.types().size(element));
                let found = self.exact(buffer, length.checked_mul(size)?)?;
                self.elements(found, element, from, length * size)?;
                stamped.and_then(|stamped| self.stamped(buffer, length, size, stamped))
            }
            Container::Guarded(ref guarded) => self.guarded(at, guarded),
            Container::Filled(ref filled) => self.filled(at, filled),
            Container::Sliced { pointer, length, kind, start, element, counted } => {
                let (from, size) = (at + pointer, self.types().size(element));
                let (record, length) = (self.read(from)?, self.read(at + length)?);
                let found = self.exact(record, length.checked_mul(size)?.checked_add(start)?)?;
                let (plan, own) = (self.plans.of(self.debug, element), self.plans.of(self.debug, kind));
                let gone = counted && self.read(record)? == 0;
                let fine = gone || self.plausible(record + start, size, length, &plan);
                if fine && self.held(found, kind, from, Shape::One) && self.forget_last(found) && !gone {
                    // Of the record only what comes before the elements: they may be none.
                    self.areas.push((record, 1, 1, super::plan::before(&own, start)));
                    self.areas.push((record + start, size, length, plan));
                }
                Some(())
            }
            Container::Table { control, mask, items, element } => self.buckets(at, (control, mask, items), element),
            Container::Object { pointer, vtable, record, counted } => {
                self.trait_object((at + pointer, at + vtable), record, counted)
            }
            Container::Tree { root, height, length, ref node } => {
                let node = node.clone();
                self.btree(at + root, at + height, at + length, &node)
            }
        }
    }

    /// The vtable says of which type the object is: debug information has a variable for each, and the type's size is in it.
    fn trait_object(&mut self, (from, vtable): (u64, u64), record: Option<Id>, counted: bool) -> Option<()> {
        let (data, table) = (self.read(from)?, self.read(vtable)?);
        let kind = (*self.concrete.get(&table)?)?;
        let size = self.types().size(kind);
        if size == 0 || self.read(table.checked_add(self.word)?)? != size {
            return None;
        }
        let kind = match record {
            // rustc_middle/src/ty/vtable.rs: drop_in_place, the size, the alignment.
            Some(record) => {
                let align = self.read(table.checked_add(2 * self.word)?)?;
                self.record_with(record, Ending { kind, size, align })?
            }
            None => kind,
        };
        let found = self.exact_object(data, kind)?;
        let plan = self.plans.of(self.debug, kind);
        // A weak pointer keeps the memory after the object is gone.
        let gone = counted && self.read(data)? == 0;
        let fine = gone || self.plausible(data, 0, 1, &plan);
        if fine && self.held(found, kind, from, Shape::One) && gone {
            self.forget_last(found);
        }
        Some(())
    }

    /// Follows a B-tree: parents, heights and counts must agree.
    fn btree(&mut self, root: u64, height: u64, length: u64, node: &Node) -> Option<()> {
        let (first, height, length) = (self.read(root)?, self.read(height)?, self.read(length)?);
        if first == 0 || height > MOST_HEIGHT {
            return None;
        }
        let (mut open, mut nodes, mut count) = (vec![(first, height, 0)], Vec::new(), 0u64);
        while let Some((at, height, parent)) = open.pop() {
            if self.enough(nodes.len()) {
                break;
            }
            let kind = if height == 0 { node.leaf } else { node.inner?.0 };
            let found = self.exact(at, self.types().size(kind))?;
            self.budget = self.budget.checked_sub(1)?;
            let used = u64::from(self.byte(at + node.length)?) | u64::from(self.byte(at + node.length + 1)?) << 8;
            count += used;
            if self.read(at + node.parent)? != parent || used > node.most || count > length.saturating_add(1) {
                return None;
            }
            if height > 0 {
                let edges = at + node.inner?.1;
                for i in 0..=used {
                    open.push((self.read(edges + i * self.word)?, height - 1, at));
                }
            }
            nodes.push((found, kind, used));
        }
        // The thread may have died between the two.
        (self.enough(nodes.len()) || count.abs_diff(length) <= 1).then_some(())?;
        let mut parts = Vec::new();
        for (at, kind) in [node.keys, node.values] {
            let plan = self.plans.of(self.debug, kind);
            parts.push((at, self.types().size(kind), plan));
        }
        let sample = nodes.len().div_ceil(CHECKED);
        for (found, _, used) in nodes.iter().step_by(sample) {
            for (at, size, plan) in &parts {
                self.plausible(found.block.address + at, *size, *used, plan).then_some(())?;
            }
        }
        for (found, kind, used) in nodes {
            // Only the first keys and values are in use.
            if self.held(found, kind, root, Shape::One) && self.forget_last(found) {
                for (at, size, plan) in &parts {
                    self.areas.push((found.block.address + at, *size, used, plan.clone()));
                }
            }
        }
        Some(())
    }

    /// hashbrown's RawTableInner: the buckets, the last one first; then a byte for each, whose highest bit says that it is free.
    fn buckets(&mut self, at: u64, (control, mask, items): (u64, u64, u64), element: Id) -> Option<()> {
        let from = at + control;
        let (control, items) = (self.read(from)?, self.read(at + items)?);
        let buckets = self.read(at + mask)?.checked_add(1)?;
        let size = self.types().size(element);
        let found = self.blocks.at(control)?;
        let before = control - found.block.address;
        let bytes = buckets.checked_mul(size).filter(|&bytes| bytes <= before && before - bytes < 4 * GROUP)?;
        let whole = before.checked_add(buckets)?;
        let fits = [LEAST_GROUP, GROUP].iter().any(|group| fits(whole + group, found.block.size));
        let looked_at = if self.sample.is_some() { buckets.min(MOST_SAMPLED) } else { buckets };
        if size == 0 || !buckets.is_power_of_two() || buckets > MOST || !fits || !self.works(looked_at as usize / 8) {
            return None;
        }
        let mut full = Vec::new();
        for i in 0..looked_at {
            if self.enough(full.len()) {
                break;
            }
            if self.byte(control + i)? < 0x80 {
                full.push(control - (i + 1) * size);
            }
        }
        let plan = self.plans.of(self.debug, element);
        let right = full.len() as u64 == items || self.enough(full.len()) || looked_at < buckets;
        if !right || !full.iter().take(CHECKED).all(|&at| self.plausible(at, size, 1, &plan)) {
            return None;
        }
        let rank = if self.rank >= Rank::Frame { Rank::Frame } else { Rank::Container };
        let skip = (before - bytes) as u16;
        let claim = Claim { skip, ..self.claim(element, from, rank, Shape::Many) };
        if self.propose(found, claim) && self.forget_last(found) {
            for at in full {
                self.areas.push((at, size, 1, plan.clone()));
            }
        }
        Some(())
    }
}
