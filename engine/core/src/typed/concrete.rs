//! Records that end in a trait object, with the object that is there: the vtable says which, and debug information may have no
//! such record.

use super::blocks::Found;
use super::propagate::{fits, Spread};
use super::unsized_tails::{is_dyn, last, with_argument, MOST_DEPTH};
use crate::dwarf::model::{Form, Id, Record, Type};

/// The largest alignment of a type (rustc, repr(align)).
const MOST_ALIGN: u64 = 1 << 29;

/// An object at the end of a record, as its vtable tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) kind: Id,
    pub(super) size: u64,
    pub(super) align: u64,
}

impl Spread<'_, '_> {
    /// Returns the block of an object that may be aligned to more than the allocator's 16 bytes: what glibc's memalign() takes off
    /// at its end is larger than the smallest chunk (malloc.c, MINSIZE).
    pub(super) fn exact_object(&mut self, address: u64, kind: Id) -> Option<Found> {
        let size = self.types().size(kind);
        let found = self.exact(address, size);
        if found.is_some() || self.types().align(kind) <= 2 * self.word {
            return found;
        }
        let rest = 4 * self.word;
        let found = self.blocks.at(address).filter(|found| found.block.address == address)?;
        let usable = found.block.size;
        (size <= usable && fits(size, usable - rest.min(usable - size))).then_some(found)
    }

    /// Returns the type of a record that ends in a trait object, for the object that is there. None: it cannot be named.
    pub(super) fn record_with(&mut self, id: Id, object: Ending) -> Option<Id> {
        if !object.align.is_power_of_two() || object.align > MOST_ALIGN {
            return None;
        }
        let key = (self.types().bare(id), object.kind);
        if let Some(&known) = self.made_records.get(&key) {
            return known;
        }
        let made = self.ended(id, object, MOST_DEPTH, &mut Vec::new()).map(|ending| ending.kind);
        self.made_records.insert(key, made);
        made
    }

    /// rustc lays a record out with such a member last, and moves only this member to where its alignment allows it
    /// (rustc_codegen_ssa/src/size_of_val.rs). Debug information has the place before that. `changed` has the types from the
    /// end of the record on, and what they become.
    fn ended(&mut self, id: Id, object: Ending, depth: usize, changed: &mut Vec<(Id, Id)>) -> Option<Ending> {
        let (id, depth) = (self.types().bare(id), depth.checked_sub(1)?);
        let ending = match is_dyn(self.types(), id) {
            true => object,
            false => self.ended_record(id, object, depth, changed)?,
        };
        changed.push((id, ending.kind));
        Some(ending)
    }

    fn ended_record(&mut self, id: Id, object: Ending, depth: usize, changed: &mut Vec<(Id, Id)>) -> Option<Ending> {
        let mut record = self.types().record(id).filter(|record| !record.union)?.clone();
        let (number, member) = last(&record)?;
        let (inner, before) = (member.kind, member.offset);
        let inner = self.ended(inner, object, depth, changed)?;
        let at = before.checked_next_multiple_of(inner.align)?;
        let align = self.types().align(id).max(inner.align);
        let size = at.checked_add(inner.size)?.checked_next_multiple_of(align)?;
        let (argument, new) = self.changed_argument(&record, changed)?;
        let old = self.types().text(record.arguments[argument]);
        let name = with_argument(&self.types().get(id).name, &old, &self.types().text(new))?;
        let real = self.debug.find(&name).into_iter().find(|&kind| {
            let types = self.types();
            let end = types.record(kind).and_then(last).map(|(_, member)| (member.offset, types.bare(member.kind)));
            types.size(kind) == size && end == Some((at, types.bare(inner.kind)))
        });
        let kind = real.unwrap_or_else(|| {
            let member = &mut record.members[number];
            (member.offset, member.kind) = (at, inner.kind);
            (record.align, record.arguments[argument]) = (align, new);
            self.debug.types.add(Type { name, size, form: Form::Record(record) })
        });
        Some(Ending { kind, size, align })
    }

    /// Returns which argument of a record has no size, and what it becomes. A type with several is not understood.
    fn changed_argument(&self, record: &Record, changed: &[(Id, Id)]) -> Option<(usize, Id)> {
        let types = self.types();
        let becomes = |argument: Id| changed.iter().find(|&&(old, _)| old == types.bare(argument)).map(|&(_, new)| new);
        let mut open = record.arguments.iter().enumerate().filter_map(|(i, &kind)| Some((i, becomes(kind)?)));
        open.next().filter(|_| open.next().is_none())
    }
}
