//! Structs of which no object is known, and that explain leaked blocks as well as the type that these look like.

use super::blocks::{Found, Rank};
use super::containers::Container;
use super::family::sampled;
use super::likeness::MOST_WORDS;
use super::maps::HashSet;
use super::plan::What;
use super::propagate::{fits, Spread, CHECK, SMALL};
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Id, VOID};

/// Blocks with which a struct is compared of which no object is known.
const MOST_COMPARED: usize = 64;
/// What a pointer to an object of the right type proves, where one that may be right proves 1.
const PROVEN: usize = 2;
/// Words of a container among which is the pointer to its memory.
const CONTAINER: u64 = 3;

impl Spread<'_, '_> {
    /// Returns the structs of each module's debug information.
    pub(super) fn structs_by_module(&mut self) -> Vec<HashSet<Id>> {
        let mut out = Vec::new();
        for records in self.debug.records_by_module() {
            let structs = records.into_iter().filter(|&id| self.types().record(id).is_some_and(|record| !record.union));
            let structs: Vec<Id> = structs.collect();
            out.push(structs.into_iter().map(|id| self.canonical(id)).collect());
        }
        out
    }

    /// Returns whether another one of the structs explains most of the blocks as well as their type does. Perhaps all objects of
    /// that one have leaked.
    pub(super) fn has_rival(
        &mut self,
        kind: Id,
        structs: &[Id],
        usable: u64,
        blocks: &[Found],
        control: &Control,
    ) -> Result<bool, Stopped> {
        let blocks = sampled(blocks, MOST_COMPARED);
        let own: Vec<usize> = blocks.iter().map(|found| self.explained(found, kind, kind).unwrap_or(0)).collect();
        for (count, &other) in structs.iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if !fits(self.types().size(other), usable) || other == kind {
                continue;
            }
            let mut as_well = 0;
            for (found, &own) in blocks.iter().zip(&own) {
                as_well += usize::from(self.explained(found, other, kind).is_some_and(|all| all >= own.max(1)));
            }
            if as_well * 2 > blocks.len() && !self.contains(other, 0, kind, 8) && !self.contains(kind, 0, other, 8) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how much of a block proves that it is an object of a struct: pointers to objects of the right types, numbers with
    /// a fraction, containers. None: something in it is no part of such
    /// an object. The block has the type `said`.
    fn explained(&mut self, found: &Found, kind: Id, said: Id) -> Option<usize> {
        let (at, size, plan) = (found.block.address, self.types().size(kind), self.plans.of(self.debug, kind));
        let pointers = self.pointer_words(&plan).0;
        for i in (0..(found.block.size / self.word).min(MOST_WORDS as u64)).filter(|i| pointers >> i & 1 == 0) {
            let value = self.read(at + i * self.word)?;
            // The allocator may have left a pointer behind the object.
            if i * self.word < size && value >= SMALL && (self.blocks.at(value).is_some() || self.is_mapped(value)) {
                return None;
            }
        }
        if !self.plausible(at, size, 1, &plan) {
            return None;
        }
        let mut all = 0;
        for slot in &plan.slots {
            let value = self.read(at.saturating_add(slot.at) & !(self.word - 1))?;
            all += match &slot.what {
                // What leads to others of its own type would do so if all of them were of another one.
                What::Pointer(to) if self.canonical(*to) == kind && self.is_alike(value, said) => PROVEN,
                What::Pointer(to) => match self.leads(value, *to)? {
                    true => PROVEN,
                    false => usize::from(value >= SMALL && self.types().bare(*to) != VOID),
                },
                What::Value(8) => usize::from(value != 0),
                What::Container(container) => {
                    let text = matches!(**container, Container::Text { .. });
                    usize::from(text || self.has_memory(at.saturating_add(slot.at)))
                }
                _ => 0,
            };
        }
        Some(all)
    }

    /// Returns whether one of the first words of a container leads to the start of a block.
    fn has_memory(&mut self, at: u64) -> bool {
        (0..CONTAINER).any(|i| {
            let value = self.read(at.saturating_add(i * self.word));
            value.is_some_and(|value| self.blocks.at(value).is_some_and(|other| other.block.address == value))
        })
    }

    /// Returns whether a leaked block is said to be of a type because it looks so.
    fn is_alike(&self, address: u64, kind: Id) -> bool {
        let claim = self.blocks.at(address).map(|found| self.blocks.claim(found.number)).unwrap_or_default();
        claim.rank == Rank::Alike && claim.kind == kind
    }
}
