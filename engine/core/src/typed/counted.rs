//! Arrays of numbers: a pointer to the first element says nothing of the others. The object that holds the pointer often does: it
//! has a member with the number of elements.

use std::rc::Rc;

use super::blocks::Shape;
use super::plan::Plan;
use super::propagate::{Spread, Waiting};
use crate::dwarf::model::{Form, Id, Number, Record};

/// Elements, at least: of a few, chance may be the reason.
const LEAST: u64 = 8;
/// This many different numbers of elements prove that a member counts them. Then a few elements are believed, too.
const PROOFS: usize = 2;
/// Allocators give blocks from this size on whole pages.
pub(super) const LARGE: u64 = 1 << 17;
/// Members that are looked at.
const MOST_MEMBERS: usize = 256;

/// How sure it is that a member has the number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sure {
    Yes,
    /// There are so few that chance may be the reason.
    Perhaps,
}

/// Returns whether a block is as large as an allocator makes it for so many bytes. glibc rounds up to 16 bytes, jemalloc by a
/// fifth; one element more would not fit.
fn fills(bytes: u64, usable: u64, size: u64) -> bool {
    let slack = if usable >= LARGE { 4096 } else { 16 };
    bytes <= usable && usable - bytes < size.max(slack)
}

impl Spread<'_, '_> {
    /// Returns how sure it is that a number beside the pointer is how many elements the block has room for. None: no number is.
    pub(super) fn counted(&mut self, waiting: &Waiting, usable: u64, plan: &Rc<Plan>) -> Option<Sure> {
        let size = self.types().size(waiting.to);
        let (kind, record, base) = self.holder(waiting.from)?;
        let kind = self.canonical(kind);
        let at = waiting.from - base;
        let numbers: Vec<(u64, u64)> = record
            .members
            .iter()
            .take(MOST_MEMBERS)
            .filter(|member| {
                member.bits.is_none()
                    && matches!(self.form(member.kind), Form::Base(Number::Integer | Number::Character))
            })
            .map(|member| (member.offset, self.types().size(member.kind)))
            .collect();
        let mut sure = None;
        for (offset, width) in numbers {
            let Some(number) = self.number(base.saturating_add(offset), width) else { continue };
            // Hash tables have the logarithm of their size.
            let power = if number < 48 { 1 << number } else { 0 };
            for (count, is_power) in [(number, false), (power, true)] {
                let filled = count.checked_mul(size).is_some_and(|bytes| fills(bytes, usable, size));
                if count < 2 || !filled || !self.plausible(waiting.value, size, count, plan) {
                    continue;
                }
                let counts = self.counters.entry((kind, at, offset, is_power)).or_default();
                if count >= LEAST {
                    let before = counts.len();
                    if before < PROOFS {
                        counts.insert(count);
                        self.counters_grew |= counts.len() == PROOFS && before < PROOFS;
                    }
                    return Some(Sure::Yes);
                }
                if counts.len() >= PROOFS {
                    return Some(Sure::Yes);
                }
                sure = Some(Sure::Perhaps);
            }
        }
        sure
    }

    fn form(&self, kind: Id) -> &Form {
        &self.types().get(self.types().bare(kind)).form
    }

    /// Returns the struct that has the pointer at an address as a member, and where the struct begins.
    fn holder(&mut self, at: u64) -> Option<(Id, Record, u64)> {
        let (mut kind, mut base) = match self.blocks.at(at) {
            Some(found) if !self.blocks.claim(found.number).is_some() => {
                let (start, kind) = self.placed_at(at)?;
                (kind, start)
            }
            Some(found) => {
                let claim = self.blocks.claim(found.number);
                let start = found.block.address + u64::from(claim.skip);
                let (inside, size) = (at.checked_sub(start)?, self.types().size(claim.kind));
                let many = claim.shape == Shape::Many && size > 0;
                (claim.kind, if many { at - inside % size } else { start })
            }
            None => {
                let after = self.statics.partition_point(|&(start, _)| start <= at);
                let (start, kind) = *self.statics.get(after.checked_sub(1)?)?;
                (kind, start)
            }
        };
        for _ in 0..16 {
            let inside = at - base;
            match self.form(kind).clone() {
                Form::Record(record) => {
                    let member = record.members.iter().find(|member| {
                        let size = self.types().size(member.kind);
                        member.bits.is_none() && member.offset <= inside && inside - member.offset < size
                    })?;
                    if matches!(self.form(member.kind), Form::Pointer(_)) {
                        return Some((kind, record, base));
                    }
                    base += member.offset;
                    kind = member.kind;
                }
                Form::Array(element, _) => {
                    let size = self.types().size(element);
                    base = at - inside.checked_rem(size)?;
                    kind = element;
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the number of 1, 2, 4 or 8 bytes at an address.
    pub(super) fn number(&mut self, at: u64, width: u64) -> Option<u64> {
        let first = at & !(self.word - 1);
        let shift = 8 * (at - first);
        let low = self.read(first)?;
        if width == self.word && shift == 0 {
            return Some(low);
        }
        let high = if at - first + width > self.word { self.read(first.checked_add(self.word)?)? } else { 0 };
        let both = u128::from(low) | u128::from(high) << (8 * self.word);
        match width {
            1 | 2 | 4 | 8 => Some((both >> shift) as u64 & (u64::MAX >> (64 - 8 * width))),
            _ => None,
        }
    }
}
