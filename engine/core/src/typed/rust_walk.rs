//! Follows the containers of Rust's library. Nothing is said of their blocks unless lengths, capacities and sizes agree.

use super::blocks::{Claim, Rank, Shape};
use super::propagate::{fits, Spread, SMALL};
use super::rust::{Container, Node};
use crate::dwarf::model::{Form, Id, Member, Number, Record, Type};

/// Buckets of one table.
const MOST: u64 = 1 << 32;
/// The height of a tree: 6 children and more in each node.
const MOST_HEIGHT: u64 = 26;
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
            Container::Slice { pointer, .. } | Container::Counted { pointer, .. } => {
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
            Container::Slice { pointer, length, element } => {
                let from = at + pointer;
                let (buffer, length, size) = (self.read(from)?, self.read(at + length)?, self.types().size(element));
                let found = self.exact(buffer, length.checked_mul(size)?)?;
                self.elements(found, element, from, length * size)
            }
            Container::Counted { pointer, length, kind, start, element } => {
                let (from, size) = (at + pointer, self.types().size(element));
                let (record, length) = (self.read(from)?, self.read(at + length)?);
                let found = self.exact(record, length.checked_mul(size)?.checked_add(start)?)?;
                let plan = self.plans.of(self.debug, element);
                let fine = self.read(record)? > 0 && self.plausible(record + start, size, length, &plan);
                if fine && self.held(found, kind, from, Shape::One) && self.forget_last(found) {
                    self.areas.push((record + start, size, length, plan));
                }
                Some(())
            }
            Container::Table { control, mask, items, element } => self.buckets(at, (control, mask, items), element),
            Container::Object { pointer, vtable, ref counted } => {
                self.trait_object(at + pointer, at + vtable, counted.as_deref())
            }
            Container::Tree { root, height, length, ref node } => {
                let node = node.clone();
                self.btree(at + root, at + height, at + length, &node)
            }
        }
    }

    /// The vtable says of which type the object is: debug information has a variable for each, and the type's size is in it.
    fn trait_object(&mut self, pointer: u64, vtable: u64, counted: Option<&str>) -> Option<()> {
        let (data, table) = (self.read(pointer)?, self.read(vtable)?);
        let concrete = (*self.concrete.get(&table)?)?;
        let size = self.types().size(concrete);
        if size == 0 || self.read(table.checked_add(self.word)?)? != size {
            return None;
        }
        let kind = match counted {
            Some(outer) => self.counted_record(outer, concrete)?,
            None => concrete,
        };
        let found = self.exact(data, self.types().size(kind))?;
        let plan = self.plans.of(self.debug, kind);
        self.plausible(data, 0, 1, &plan).then_some(())?;
        self.held(found, kind, pointer, Shape::One);
        Some(())
    }

    /// Returns what `Rc` or `Arc` allocates for an object: the record in the debug information, or else one that is made. Both
    /// have `repr(C)`: two counters, then the object.
    fn counted_record(&mut self, outer: &str, concrete: Id) -> Option<Id> {
        if let Some(&known) = self.made_counted.get(&(outer.to_string(), concrete)) {
            return Some(known);
        }
        let name = format!("{outer}<{}>", self.types().text(concrete));
        let size = self.types().size(concrete);
        let real = self.debug.find(&name).into_iter().find(|&id| {
            let argument = self.types().record(id).and_then(|record| record.arguments.first().copied());
            argument.is_some_and(|argument| self.types().bare(argument) == self.types().bare(concrete))
        });
        let kind = real.unwrap_or_else(|| {
            let (word, align) = (self.word, self.types().align(concrete).max(1));
            let at = (2 * word).next_multiple_of(align);
            let member = |name: &str, offset: u64, kind: Id| Member {
                name: name.to_string(),
                offset,
                kind,
                base: false,
                bits: None,
                variant: false,
                when: None,
            };
            let number = Type { name: "usize".to_string(), size: word, form: Form::Base(Number::Integer) };
            let number = self.debug.types.add(number);
            let members =
                vec![member("strong", 0, number), member("weak", word, number), member("value", at, concrete)];
            let record = Record { members, arguments: vec![concrete], ..Record::default() };
            let size = at.saturating_add(size).next_multiple_of(align.max(word));
            self.debug.types.add(Type { name, size, form: Form::Record(record) })
        });
        self.made_counted.insert((outer.to_string(), concrete), kind);
        Some(kind)
    }

    /// Follows a B-tree: parents, heights and counts must agree.
    fn btree(&mut self, root: u64, height: u64, length: u64, node: &Node) -> Option<()> {
        let (first, height, length) = (self.read(root)?, self.read(height)?, self.read(length)?);
        if first == 0 || height > MOST_HEIGHT {
            return None;
        }
        let (mut open, mut nodes, mut count) = (vec![(first, height, 0)], Vec::new(), 0u64);
        while let Some((at, height, parent)) = open.pop() {
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
        (count.abs_diff(length) <= 1).then_some(())?;
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
        if size == 0 || !buckets.is_power_of_two() || buckets > MOST || !fits || !self.works(buckets as usize / 8) {
            return None;
        }
        let mut full = Vec::new();
        for i in 0..buckets {
            if self.byte(control + i)? < 0x80 {
                full.push(control - (i + 1) * size);
            }
        }
        let plan = self.plans.of(self.debug, element);
        let right = full.len() as u64 == items;
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
