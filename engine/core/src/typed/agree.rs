//! Which types are the same, and which contain which.

use super::blocks::{Claim, Shape};
use super::propagate::Spread;
use crate::dwarf::model::{Form, Id};

/// Answers that are kept: 40 MiB. Pointers in millions of blocks ask the same.
const MOST_KNOWN: usize = 1 << 20;

impl Spread<'_, '_> {
    /// Returns one number for all types that are printed alike.
    pub(super) fn canonical(&mut self, id: Id) -> Id {
        let id = match self.types().get(id).form {
            Form::Alias(_) => self.types().bare(id),
            _ => id,
        };
        if let Some(&Some(known)) = self.names.get(id as usize) {
            return known;
        }
        let text = self.types().text(id);
        let first = *self.first_of_name.entry(text).or_insert(id);
        // Two structs may have one name and different members.
        let same = self.types().size(first) == self.types().size(id);
        let out = if same { first } else { id };
        if self.names.len() <= id as usize {
            self.names.resize(self.types().len().max(id as usize + 1), None);
        }
        self.names[id as usize] = Some(out);
        out
    }

    /// Returns whether the objects of one claim contain those of the other: both may be true.
    pub(super) fn holds(&mut self, outer: &Claim, inner: &Claim) -> bool {
        if inner.skip < outer.skip {
            return false;
        }
        let size = self.types().size(outer.kind);
        let mut at = u64::from(inner.skip - outer.skip);
        if outer.shape == Shape::Many && size > 0 {
            at %= size;
        }
        if at == 0 && outer.kind == inner.kind {
            return true;
        }
        self.contains(outer.kind, at, inner.kind, 16)
    }

    /// Returns whether the objects of two claims lie one behind the other: both may be true.
    pub(super) fn are_apart(&self, one: &Claim, other: &Claim) -> bool {
        let (first, second) = if one.skip <= other.skip { (one, other) } else { (other, one) };
        let end = u64::from(first.skip).saturating_add(self.types().size(first.kind));
        first.shape == Shape::One && end <= u64::from(second.skip)
    }

    /// Returns whether a type has an object of another type at an offset.
    pub(super) fn contains(&mut self, outer: Id, at: u64, inner: Id, depth: usize) -> bool {
        let key = (self.canonical(outer), at, self.canonical(inner), depth);
        if let Some(&known) = self.contained.get(&key) {
            return known;
        }
        let found = self.contains_within(outer, at, inner, depth, &mut 4096);
        if self.contained.len() >= MOST_KNOWN {
            self.contained.clear();
        }
        self.contained.insert(key, found);
        found
    }

    fn contains_within(&mut self, outer: Id, at: u64, inner: Id, depth: usize, steps: &mut usize) -> bool {
        let Some(left) = steps.checked_sub(1) else { return false };
        *steps = left;
        let outer = self.types().bare(outer);
        if at == 0 && self.canonical(outer) == self.canonical(inner) {
            return true;
        }
        if depth == 0 {
            return false;
        }
        if at == 0 && self.begins_with(outer, inner) {
            return true;
        }
        match self.types().get(outer).form.clone() {
            Form::Record(record) => record.members.iter().take(512).any(|member| {
                let size = self.types().size(member.kind).max(1);
                member.bits.is_none()
                    && (member.offset..member.offset.saturating_add(size)).contains(&at)
                    && self.contains_within(member.kind, at - member.offset, inner, depth - 1, steps)
            }),
            Form::Array(element, _) => {
                let size = self.types().size(element);
                size > 0 && self.contains_within(element, at % size, inner, depth - 1, steps)
            }
            _ => false,
        }
    }
}
