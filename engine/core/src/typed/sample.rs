//! The types of some leaked blocks of a large heap, in time that does not grow with the heap.
//!
//! A leaked block has the type of live objects that look like it (`leaked`). A few hundred objects of each type tell what such
//! objects look like. So pointers are followed as everywhere, but no further from a type of which enough objects were followed.
//! Of long arrays and containers, only a part is looked at.
//!
//! A block of which nothing is said may then be an object of any type. What a leaked block points to is therefore compared
//! with the objects that were followed, as the leaked block itself is.

use super::blocks::{Claim, Found};
use super::likeness::MOST_WORDS;
use super::maps::{HashMap, HashSet};
use super::propagate::{Spread, CHECK, SMALL};
use crate::blocks::model::State;
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;
use crate::graph::stream::Stream;

/// Objects of one type that are followed.
const EACH_TYPE: u32 = 256;
/// Elements of an array that are followed from its start; and as many of those behind, evenly chosen.
const ELEMENTS: u64 = 1 << 12;
/// Nodes of one container that are followed.
const NODES: usize = 1 << 9;
/// Places in objects that are looked at, in all.
pub(super) const WORK: u64 = 1 << 21;
/// Blocks that leaked blocks point to, for each of these, and how far from it they are.
const EACH_LEAK: usize = 4;
const FAR: usize = 3;

/// The blocks of which the types are asked, and what was followed for them.
#[derive(Default)]
pub(super) struct Sample {
    /// The addresses of leaked blocks.
    pub(super) leaked: Vec<u64>,
    /// How many objects of each type were followed.
    counts: HashMap<Id, u32>,
    /// The addresses of the blocks in which they are.
    followed: Vec<u64>,
}

impl Sample {
    pub(super) fn new(leaked: &[u64]) -> Sample {
        Sample { leaked: leaked.to_vec(), ..Sample::default() }
    }
}

impl Spread<'_, '_> {
    /// Returns whether a block is to be followed. Of a large heap, enough objects of its type may have been.
    pub(super) fn may_follow(&mut self, found: Found, claim: &Claim) -> bool {
        let Some(sample) = &mut self.sample else { return true };
        let count = sample.counts.entry(claim.kind).or_default();
        if *count >= EACH_TYPE {
            return false;
        }
        *count += 1;
        sample.followed.push(found.block.address);
        true
    }

    /// Returns the distance from one element of an array that is followed to the next: this one is number `i` of `count`.
    pub(super) fn step(&self, i: u64, count: u64) -> u64 {
        match self.sample {
            Some(_) if i >= ELEMENTS => (count / ELEMENTS).max(1),
            _ => 1,
        }
    }

    /// Returns whether so many nodes of a container are enough: the others are not looked at.
    pub(super) fn enough(&self, nodes: usize) -> bool {
        self.sample.is_some() && nodes >= NODES
    }

    /// Calls `each` for every block in use; of a large heap, only for the leaked ones that are asked for.
    pub(super) fn each_block(
        &mut self,
        control: &Control,
        mut each: impl FnMut(&mut Self, Found, State) -> bool,
    ) -> Result<(), Stopped> {
        if let Some(asked) = self.sample.as_ref().map(|sample| sample.leaked.clone()) {
            return self.each_of(&asked, control, |spread, found| {
                each(spread, found, State::LeakedDirectly);
            });
        }
        let heap = self.blocks.heap();
        for (count, block) in Stream::new(heap).enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(found) = self.blocks.listed(&block) else { continue };
            if !each(self, found, block.state) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` for every block that may have a claim from which others are told; of a large heap, for those that were
    /// followed and for the leaked ones that are asked for.
    pub(super) fn each_known(
        &mut self,
        control: &Control,
        mut each: impl FnMut(&mut Self, Found),
    ) -> Result<(), Stopped> {
        let Some(sample) = &self.sample else {
            return self.each_block(control, |spread, found, _| {
                each(spread, found);
                true
            });
        };
        let mut known: Vec<u64> = sample.followed.iter().chain(&sample.leaked).copied().collect();
        known.sort_unstable();
        known.dedup();
        self.each_of(&known, control, each)
    }

    fn each_of(
        &mut self,
        addresses: &[u64],
        control: &Control,
        mut each: impl FnMut(&mut Self, Found),
    ) -> Result<(), Stopped> {
        self.blocks.take(addresses.len());
        for (count, &address) in addresses.iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if let Some(found) = self.blocks.at(address) {
                each(self, found);
            }
        }
        Ok(())
    }

    /// Returns the blocks of unknown type to which the leaked blocks lead, and whether each is live.
    pub(super) fn neighbours(&mut self, leaked: &[Found]) -> Vec<(Found, bool)> {
        let mut listed: HashSet<usize> = leaked.iter().map(|found| found.number).collect();
        let (mut out, mut last) = (Vec::new(), leaked.to_vec());
        for _ in 0..FAR {
            let mut next = Vec::new();
            for found in last {
                for i in 0..(found.block.size / self.word).min(MOST_WORDS as u64) {
                    if out.len() >= leaked.len() * EACH_LEAK {
                        return out;
                    }
                    let Some(other) = self.unknown_object(found.block.address + i * self.word) else { continue };
                    if listed.insert(other.number) {
                        out.push((other, self.is_live(other)));
                        next.push(other);
                    }
                }
            }
            last = next;
        }
        out
    }

    /// Returns the block of unknown type to whose start the word at an address leads. A text is no object.
    fn unknown_object(&mut self, at: u64) -> Option<Found> {
        let value = self.read(at).filter(|&value| value >= SMALL)?;
        let other = self.blocks.at(value).filter(|other| other.block.address == value)?;
        let unknown = !self.blocks.claim(other.number).is_some() && !self.begins_with_text(value);
        unknown.then_some(other)
    }

    fn is_live(&self, found: Found) -> bool {
        self.blocks.heap().find(found.block.address).is_some_and(|(_, state, ..)| state == State::Live)
    }
}
