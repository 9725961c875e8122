//! Blocks that hold many objects: the pools, slabs and arenas of programs that have an allocator of their own.
//!
//! A typed pointer into such a block tells what lies there, and only there. Each object must be possible: it lies within the
//! block, it is not empty, and no pointer in it contradicts what is known. Two objects that overlap and do not contain one
//! another contradict each other: neither is believed, unless pointers of one of them prove it.

use std::collections::BTreeMap;

use super::blocks::{Claim, Found, Object, Rank, Shape};
use super::maps::HashMap;
use super::plan::What;
use super::propagate::{fits, Spread, Waiting, CHECK};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id};

/// Pointers into blocks without a type that wait: 96 MiB.
const MOST_POINTERS: usize = 1 << 22;
/// Objects that are kept: 192 MiB.
const MOST_OBJECTS: usize = 1 << 22;
/// An object does not name its block if the block is more than so many times as large, and has other objects.
const NAMES_SHARE: u64 = 16;
/// Words of an object that are looked at to see whether it is empty.
const MOST_WORDS: u64 = 1 << 10;
/// Objects of a block, at least, from which the distance between them is learned.
const LEAST_OF_STRIDE: u64 = 4;
/// Objects must cover one of so many bytes of a block that a pointer to characters names.
const LEAST_SHARE: u64 = 8;

/// The objects of the blocks that hold many, sorted by address.
#[derive(Debug, Default)]
pub struct Pools {
    objects: Vec<(u64, Object)>,
}

impl Pools {
    /// Returns the objects in a range of addresses.
    pub fn within(&self, start: u64, size: u64) -> &[(u64, Object)] {
        let first = self.objects.partition_point(|&(at, _)| at < start);
        let last = self.objects.partition_point(|&(at, _)| at < start.saturating_add(size));
        &self.objects[first..last]
    }

    /// Returns the objects in a range of addresses by type: the name, how many there are, their bytes, and the distance between
    /// any two neighbours, or 0 where it varies.
    pub fn contents(&self, start: u64, size: u64, name: impl Fn(Id) -> String) -> Vec<(String, u64, u64, u64)> {
        let mut found: BTreeMap<Id, (u64, u64, u64, Option<u64>)> = BTreeMap::new();
        for &(at, object) in self.within(start, size) {
            let (count, bytes, last, stride) = found.entry(object.kind).or_insert((0, 0, at, None));
            if *count > 0 {
                let distance = at - *last;
                *stride = Some(if stride.is_none_or(|stride| stride == distance) { distance } else { 0 });
            }
            (*count, *bytes, *last) = (*count + 1, bytes.saturating_add(object.size), at);
        }
        let row = |(kind, (count, bytes, _, stride)): (Id, (u64, u64, u64, Option<u64>))| {
            (name(kind), count, bytes, stride.unwrap_or(0))
        };
        let mut rows: Vec<_> = found.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        rows
    }

    /// Returns the object that has an address, and where it begins.
    pub fn at(&self, address: u64) -> Option<(u64, Object)> {
        let after = self.objects.partition_point(|&(at, _)| at <= address);
        let found = *self.objects.get(after.checked_sub(1)?)?;
        (address - found.0 < found.1.size).then_some(found)
    }
}

/// An object that may be there.
pub(super) struct Possible {
    pub(super) at: u64,
    pub(super) object: Object,
    pub(super) proven: bool,
}

impl Spread<'_, '_> {
    /// Keeps a pointer that names no block. What frames and old objects hold proves too little.
    pub(super) fn may_be_pooled(&mut self, value: u64, to: Id, from: u64) {
        if self.doubtful || self.rank == Rank::Frame {
            return;
        }
        if self.pooled.len() >= MOST_POINTERS && !self.pooled_tidied {
            let mut pooled = std::mem::take(&mut self.pooled);
            pooled.retain(|waiting| self.may_matter(waiting));
            self.pooled = without_doubles(pooled);
            // A list that does not get much shorter is not sorted again and again.
            self.pooled_tidied = self.pooled.len() > MOST_POINTERS / 2;
        }
        if self.pooled.len() >= MOST_POINTERS {
            self.exhausted = true;
            return;
        }
        self.pooled.push(Waiting { value, to, from });
    }

    /// Returns whether a pointer into a block may still tell of objects in it, or that it is no array.
    fn may_matter(&self, waiting: &Waiting) -> bool {
        let Some(found) = self.blocks.at(waiting.value) else { return false };
        let claim = self.blocks.claim(found.number);
        claim.shape != Shape::One || claim.disputed || self.may_hold_many(found)
    }

    /// Judges the pointers into blocks that have no type, and follows the objects to which they lead.
    pub(super) fn judge_pools(&mut self, control: &Control) -> Result<(), Stopped> {
        loop {
            // A list is found object by object: what takes longer waits until its end.
            while self.judge_pointers(control)? {
                self.drain(control)?;
            }
            self.settle(control)?;
            self.judge_inside(control)?;
            if !self.pooled.is_empty() {
                continue;
            }
            let mut any = false;
            for one in self.objects_by_content(control)? {
                any |= self.place(&one);
            }
            if !any {
                return Ok(());
            }
            self.drain(control)?;
        }
    }

    /// Takes the objects to which the pointers lead. Returns whether there is a new one.
    fn judge_pointers(&mut self, control: &Control) -> Result<bool, Stopped> {
        let pointers = without_doubles(std::mem::take(&mut self.pooled));
        self.pooled_tidied = false;
        self.blocks.take(pointers.len());
        let mut possible = Vec::new();
        for (count, waiting) in pointers.iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            self.doubt_array(waiting);
            possible.extend(self.possible_object(waiting));
        }
        let mut any = false;
        for one in self.without_contradictions(possible) {
            any |= self.place(&one);
        }
        Ok(any)
    }

    /// Notes that a block is no array although it looked like one: a typed pointer leads to something else in it. Pools begin
    /// with an object, too, and zeros agree with anything.
    fn doubt_array(&mut self, waiting: &Waiting) {
        let Some(found) = self.blocks.at(waiting.value) else { return };
        let claim = self.blocks.claim(found.number);
        let size = self.types().size(claim.kind);
        let start = found.block.address + u64::from(claim.skip);
        let guessed = claim.shape == Shape::Many && (Rank::Loose..Rank::Weak).contains(&claim.rank);
        if !guessed || size == 0 || waiting.value <= start || self.types().record(claim.kind).is_none() {
            return;
        }
        let to = self.types().bare(waiting.to);
        let inside = (waiting.value - start) % size;
        let (record, size_of_it) = (self.types().record(to).is_some(), self.types().size(to));
        // The allocator's own pointers lead to headers of chunks. Such a header begins in the last word of the block before.
        let room = found.block.address + found.block.size - waiting.value;
        let same = self.contains(claim.kind, inside, to, 16) || inside == 0 && self.contains(to, 0, claim.kind, 16);
        if record && (1..=room).contains(&size_of_it) && !same {
            self.no_arrays.insert(found.block.address);
        }
    }

    /// Returns whether a block may hold many objects: nothing names it, or an object that is much smaller.
    pub(super) fn may_hold_many(&self, found: Found) -> bool {
        let claim = self.blocks.claim(found.number);
        !claim.is_some() || claim.rank == Rank::Weak || self.is_small_part(&claim, found)
    }

    fn is_small_part(&self, claim: &Claim, found: Found) -> bool {
        let size = self.types().size(claim.kind);
        let small = size.saturating_mul(NAMES_SHARE) < found.block.size;
        claim.rank == Rank::Part && claim.shape == Shape::One && small
    }

    fn possible_object(&mut self, waiting: &Waiting) -> Option<Possible> {
        let at = waiting.value;
        let found = self.blocks.at(at)?;
        let disputed = self.untyped.contains(&found.block.address) || self.barred.contains(&found.block.address);
        if disputed || self.placed.contains_key(&at) || !self.may_hold_many(found) {
            return None;
        }
        let claim = self.blocks.claim(found.number);
        let claimed = found.block.address + u64::from(claim.skip);
        if self.is_small_part(&claim, found) && (claimed..claimed + self.types().size(claim.kind)).contains(&at) {
            return None;
        }
        let to = self.types().bare(waiting.to);
        let kind = self.canonical(to);
        let size = self.types().size(kind);
        let plan = self.plans.of(self.debug, kind);
        let pointers = plan.slots.iter().any(|slot| !matches!(slot.what, What::Value(_)));
        let room = found.block.address + found.block.size - at;
        let record = matches!(self.types().get(to).form, Form::Record(_));
        if !record || size == 0 || size > room || (pointers && at % self.word != 0) || self.is_bare_link(to) {
            return None;
        }
        let inside = at - found.block.address;
        // One object that the block was made for, and that was not believed.
        if fits(size, found.block.size) || self.is_explained(to, inside, found.block.size) {
            return None;
        }
        let proven = self.proof(at, &plan, 0)?.is_some();
        if !proven && self.is_empty(at, size) {
            return None;
        }
        Some(Possible { at, object: Object { kind, size, from: waiting.from, proofs: 0 }, proven })
    }

    /// Returns the object in a pool that has an address: where it begins, and its type.
    pub(super) fn placed_at(&self, address: u64) -> Option<(u64, Id)> {
        let (&at, object) = self.placed.range(..=address).next_back()?;
        (address - at < object.size).then_some((at, object.kind))
    }

    /// Returns whether an object has nothing but zeros. A pointer behind the last element of an array leads to such memory.
    fn is_empty(&mut self, at: u64, size: u64) -> bool {
        let first = at & !(self.word - 1);
        let words = (size / self.word).clamp(1, MOST_WORDS);
        (0..words).all(|i| self.read(first + i * self.word).is_none_or(|value| value == 0))
    }

    /// Leaves out the objects that lie in others, and those that overlap without doing so.
    pub(super) fn without_contradictions(&mut self, mut all: Vec<Possible>) -> Vec<Possible> {
        all.sort_by_key(|one| (one.at, std::cmp::Reverse(one.object.size), one.object.kind));
        let mut out: Vec<Possible> = Vec::new();
        // The objects up to here are contradicted.
        let mut torn_to = 0;
        for one in all {
            let end = one.at + one.object.size;
            let Some(last) = out.last() else {
                out.push(one);
                continue;
            };
            let last_end = last.at + last.object.size;
            if one.at >= last_end.max(torn_to) {
                out.push(one);
            } else if one.at < last_end {
                if self.contains(last.object.kind, one.at - last.at, one.object.kind, 16) || last.proven && !one.proven
                {
                    continue;
                }
                let larger = one.at == last.at && self.contains(one.object.kind, 0, last.object.kind, 16);
                if larger || one.proven && !last.proven {
                    out.pop();
                    out.push(one);
                } else {
                    torn_to = torn_to.max(last_end).max(end);
                    out.pop();
                }
            } else {
                torn_to = torn_to.max(end);
            }
        }
        out
    }

    /// Takes an object, and follows it. Returns whether it is new.
    fn place(&mut self, one: &Possible) -> bool {
        let Some(found) = self.blocks.at(one.at) else { return false };
        if self.placed.len() >= MOST_OBJECTS {
            self.exhausted = true;
            return false;
        }
        let old = self.blocks.claim(found.number);
        if self.is_small_part(&old, found) {
            let size = self.types().size(old.kind);
            let object = Object { kind: old.kind, size, from: old.from, proofs: 0 };
            self.blocks.set(found.number, Claim::default());
            self.placed.insert(found.block.address + u64::from(old.skip), object);
        }
        self.pools.insert(found.block.address);
        let end = one.at + one.object.size;
        if let Some((&at, before)) = self.placed.range(..=one.at).next_back() {
            if at + before.size > one.at {
                let kind = before.kind;
                let larger = at == one.at && kind != one.object.kind && self.contains(one.object.kind, 0, kind, 16);
                if !larger {
                    return false;
                }
                self.placed.remove(&at);
            }
        }
        let inner: Vec<(u64, Id)> = self.placed.range(one.at..end).map(|(&at, object)| (at, object.kind)).collect();
        if !inner.iter().all(|&(at, kind)| self.contains(one.object.kind, at - one.at, kind, 16)) {
            return false;
        }
        for (at, _) in inner {
            self.placed.remove(&at);
        }
        self.placed.insert(one.at, one.object);
        let plan = self.plans.of(self.debug, one.object.kind);
        self.areas.push((one.at, one.object.size, 1, plan));
        true
    }

    /// Returns the objects of all blocks that hold many. A block that has a type of its own is left out.
    pub(super) fn finish_pools(&mut self) -> Pools {
        let mut blocks: HashMap<u64, (Found, Vec<(u64, Object)>)> = HashMap::default();
        for (at, object) in std::mem::take(&mut self.placed) {
            let Some(found) = self.blocks.at(at) else { continue };
            blocks.entry(found.block.address).or_insert((found, Vec::new())).1.push((at, object));
        }
        let mut out = Vec::new();
        for (found, mut objects) in blocks.into_values() {
            let claim = self.blocks.claim(found.number);
            self.widen(found, &mut objects);
            let covered: u64 = objects.iter().map(|(_, object)| object.size).sum();
            let weak = claim.rank == Rank::Weak && covered.saturating_mul(LEAST_SHARE) >= found.block.size;
            if !claim.is_some() || weak && !self.is_array_of(&claim, found, &objects) {
                self.blocks.set(found.number, Claim::default());
                out.append(&mut objects);
            }
        }
        out.sort_unstable_by_key(|&(at, _)| at);
        Pools { objects: out }
    }

    /// Returns whether all objects are elements of the array that the block seems to be.
    fn is_array_of(&self, claim: &Claim, found: Found, objects: &[(u64, Object)]) -> bool {
        let (start, size) = (found.block.address + u64::from(claim.skip), self.types().size(claim.kind));
        let is_element =
            |at: u64, kind: Id| kind == claim.kind && at >= start && (at - start).checked_rem(size) == Some(0);
        claim.shape == Shape::Many && objects.iter().all(|&(at, object)| is_element(at, object.kind))
    }

    /// Gives objects of one type that stand at equal distances all bytes up to the next, as the chunks of a slab have. The
    /// objects must be half of those for which there is room: else the distance may be that of two.
    fn widen(&mut self, found: Found, objects: &mut [(u64, Object)]) {
        let mut strides: HashMap<Id, (u64, u64, u64)> = HashMap::default();
        for &(at, object) in objects.iter() {
            let (count, last, stride) = strides.entry(object.kind).or_insert((0, at, 0));
            (*count, *stride, *last) = (*count + 1, gcd(*stride, at - *last), at);
        }
        let end = found.block.address + found.block.size;
        let mut next = end;
        for (at, object) in objects.iter_mut().rev() {
            let (count, _, stride) = strides[&object.kind];
            let flexible = self.plans.of(self.debug, object.kind).flexible.is_some();
            let near = flexible || object.size.saturating_mul(4) >= stride.saturating_mul(3);
            let dense = stride > object.size && count >= LEAST_OF_STRIDE && count * 2 >= found.block.size / stride;
            if near && dense {
                object.size = stride.min(next - *at).max(object.size);
            }
            next = *at;
        }
    }
}

/// Sorts pointers, and keeps each once.
fn without_doubles(mut pointers: Vec<Waiting>) -> Vec<Waiting> {
    pointers.sort_unstable_by_key(|waiting| (waiting.value, waiting.to, waiting.from));
    pointers.dedup_by_key(|waiting| (waiting.value, waiting.to));
    pointers
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
