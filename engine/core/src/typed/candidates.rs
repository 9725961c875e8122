//! The last pass: a block to which only pointers into its middle lead gets the one struct that has such a member there.

use std::rc::Rc;

use super::blocks::{Rank, Shape};
use super::maps::HashMap;
use super::propagate::{fitting, Outer, Spread, Waiting};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id};

/// Members of one struct, with those of its parts.
const MOST_PARTS: usize = 256;

impl Spread<'_, '_> {
    /// Returns which structs contain which others, from all debug information. It is made once.
    pub(super) fn outer_types(&mut self) -> Outer {
        if let Some(known) = &self.outer {
            return known.clone();
        }
        let mut out: HashMap<(Id, u64), Vec<(u64, Id)>> = HashMap::default();
        let mut flexible: HashMap<(Id, u64), Vec<(u64, Id)>> = HashMap::default();
        let records = self.debug.records();
        self.add_prefixes(&records, &mut out);
        for id in records {
            let outer = self.canonical(id);
            let outer = (self.types().size(outer), outer);
            let mut open = vec![(0u64, id, 0)];
            let mut parts = 0;
            while let Some((at, kind, depth)) = open.pop() {
                let Some(record) = self.types().record(kind).cloned() else { continue };
                for member in record.members.iter().filter(|member| member.bits.is_none()) {
                    parts += 1;
                    if parts > MOST_PARTS {
                        break;
                    }
                    let (inner, offset) = (self.types().bare(member.kind), at.saturating_add(member.offset));
                    if let Form::Array(element, _) = self.types().get(inner).form {
                        let element = self.types().bare(element);
                        if matches!(self.types().get(element).form, Form::Base(_)) {
                            out.entry((self.canonical(element), offset)).or_default().push(outer);
                        }
                    }
                    if self.types().record(inner).is_some() {
                        let key = (self.canonical(inner), offset);
                        out.entry(key).or_default().push(outer);
                        if depth < 8 {
                            open.push((offset, inner, depth + 1));
                        }
                    }
                }
            }
            let plan = self.plans.of(self.debug, id);
            if let Some((at, element)) = plan.flexible {
                let key = (self.canonical(element), at);
                flexible.entry(key).or_default().push(outer);
            }
        }
        for structs in out.values_mut().chain(flexible.values_mut()) {
            structs.sort_unstable();
            structs.dedup();
        }
        let types = &self.debug.types;
        self.families.fill(&out, |id| types.record(id).is_some_and(|record| !record.union));
        let out = Rc::new(out);
        self.outer = Some(out.clone());
        self.outer_flexible = Rc::new(flexible);
        out
    }

    /// Judges the pointers into the middle of blocks that have no type yet.
    pub(super) fn judge_inside(&mut self, control: &Control) -> Result<(), Stopped> {
        // A list is found node by node.
        loop {
            let mut waiting = std::mem::take(&mut self.inside);
            self.blocks.take(waiting.len());
            waiting.sort_unstable_by_key(|waiting| (waiting.value, waiting.from));
            let outer = self.outer_types();
            let mut at = 0;
            let mut any = false;
            while at < waiting.len() {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let Some(found) = self.blocks.at(waiting[at].value) else {
                    at += 1;
                    continue;
                };
                let end = found.block.address + found.block.size.max(1);
                let mut last = at;
                while last < waiting.len() && waiting[last].value < end {
                    last += 1;
                }
                let old = self.blocks.claim(found.number);
                if !old.is_some() || old.rank == Rank::Weak {
                    let new = self.last_candidate(&waiting[at..last], found, &outer);
                    if !new {
                        waiting[at..last].iter().for_each(|waiting| self.may_be_part(waiting));
                    }
                    any |= new;
                }
                at = last.max(at + 1);
            }
            if !any {
                any = self.judge_parts(control)?;
            }
            self.drain(control)?;
            self.judge_loose(control)?;
            self.judge_unions(control)?;
            if !any {
                return Ok(());
            }
        }
    }

    /// Returns whether a pointer at an offset may be one to an element of an array.
    pub(super) fn may_be_array(&mut self, element: Id, at: u64, found: super::blocks::Found) -> bool {
        let size = self.types().size(element);
        let usable = found.block.size;
        if size == 0 || at % size != 0 || usable % size >= 32.min(size) {
            return false;
        }
        let plan = self.plans.of(self.debug, element);
        self.plausible(found.block.address, size, (usable / size).saturating_sub(24 / size), &plan)
    }

    /// Gives a block the one type that explains all pointers into its middle.
    fn last_candidate(&mut self, pointers: &[Waiting], found: super::blocks::Found, outer: &Outer) -> bool {
        let usable = found.block.size;
        let mut left: Option<Vec<(Id, Shape)>> = None;
        let mut from = 0;
        for pointer in pointers.iter().take(16) {
            let at = pointer.value - found.block.address;
            let to = self.types().bare(pointer.to);
            let key = (self.canonical(to), at);
            let whole = matches!(self.types().get(to).form, Form::Record(_));
            let mut here: Vec<(Id, Shape)> = Vec::new();
            if whole && self.may_be_array(to, at, found) {
                return false;
            }
            let fit = outer.get(&key).map_or(&[][..], |structs| fitting(structs, usable));
            here.extend(fit.iter().map(|&(_, id)| (id, Shape::One)));
            let flexible = self.outer_flexible.clone();
            for &(_, id) in flexible.get(&key).into_iter().flatten() {
                here.retain(|&(other, _)| other != id);
                here.push((id, Shape::Flexible));
            }
            if here.is_empty() {
                // A pointer to a character may be anywhere in a text; one to a struct must be explained.
                if whole {
                    return false;
                }
                continue;
            }
            from = pointer.from;
            left = Some(match left {
                None => here,
                Some(mut before) => {
                    here.sort_unstable_by_key(|&(id, _)| id);
                    let shape = |id| here.binary_search_by_key(&id, |&(id, _)| id).ok().map(|index| here[index].1);
                    before.retain(|&(id, was)| shape(id) == Some(was));
                    before
                }
            });
        }
        let Some(candidates) = left else { return false };
        let mut fitting = Vec::new();
        for (id, shape) in candidates {
            let plan = self.plans.of(self.debug, id);
            let size = self.types().size(id);
            // A struct without pointers agrees with anything: only a flexible array member tells enough.
            let telling = match plan.flexible {
                Some((at, element)) if shape == Shape::Flexible && self.types().size(element) == 1 => {
                    !plan.slots.is_empty() || self.counts_text(found.block, id, at)
                }
                _ => !plan.slots.is_empty() || shape == Shape::Flexible,
            };
            if telling && !self.may_be_derived(id, usable) && self.plausible(found.block.address, size, 1, &plan) {
                fitting.push((id, shape));
            }
        }
        let [(kind, shape)] = fitting[..] else { return false };
        let claim = self.claim(kind, from, Rank::Candidate, shape);
        self.propose(found, claim)
    }
}
