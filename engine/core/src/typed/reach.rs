//! Which blocks the passes look at: all, or a sample of a large heap.
//!
//! In a sample, a block of which nothing is said may be an object of any type. What a leaked block points to is therefore
//! compared with the objects that were followed, as the leaked block itself is.

use super::blocks::Found;
use super::likeness::MOST_WORDS;
use super::maps::HashSet;
use super::propagate::{Spread, CHECK, SMALL};
use crate::blocks::model::State;
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;
use crate::graph::stream::Stream;

/// Blocks that leaked blocks point to: for each of these, in all, and how far from it they are.
const EACH_LEAK: usize = 8;
const MOST_NEAR: usize = 1 << 15;
const FAR: usize = 3;

impl Spread<'_, '_> {
    /// Returns those of the blocks at these addresses that are to be followed. Of a large heap, enough objects of a type are.
    pub(super) fn thinned(&mut self, wave: Vec<u64>) -> Vec<u64> {
        let Some(mut sample) = self.sample.take() else { return wave };
        let kind_of = |address: &u64| self.blocks.at(*address).map(|found| self.blocks.claim(found.number).kind);
        let kinds: Vec<Option<Id>> = wave.iter().map(kind_of).collect();
        let chosen = sample.choose(&wave, &kinds);
        self.sample = Some(sample);
        chosen
    }

    /// Returns the distance from one element of an array that is followed to the next: this one is number `i` of `count`.
    pub(super) fn step(&self, i: u64, count: u64) -> u64 {
        self.sample.as_ref().map_or(1, |sample| sample.step(i, count))
    }

    /// Returns whether so many nodes of a container are enough: the others are not looked at.
    pub(super) fn enough(&self, nodes: usize) -> bool {
        self.sample.as_ref().is_some_and(|sample| sample.enough(nodes))
    }

    /// Calls `each` for every block in use; of a large heap, only for the leaked ones that are asked for.
    pub(super) fn each_block(
        &mut self,
        control: &Control,
        mut each: impl FnMut(&mut Self, Found),
    ) -> Result<(), Stopped> {
        self.each_listed(Stream::new(self.blocks.heap()), control, |spread, found| {
            each(spread, found);
            true
        })
    }

    /// Calls `each` for every leaked block, until it returns false; of a large heap, only for those that are asked for.
    pub(super) fn each_leaked(
        &mut self,
        control: &Control,
        each: impl FnMut(&mut Self, Found) -> bool,
    ) -> Result<(), Stopped> {
        self.each_listed(Stream::leaked(self.blocks.heap()), control, each)
    }

    /// Calls `each` for the blocks of a list until it returns false. A sample has a list of its own.
    fn each_listed(
        &mut self,
        blocks: Stream<'_>,
        control: &Control,
        mut each: impl FnMut(&mut Self, Found) -> bool,
    ) -> Result<(), Stopped> {
        if let Some(asked) = self.sample.as_ref().map(|sample| sample.leaked.clone()) {
            return self.each_of(&asked, control, |spread, found| {
                each(spread, found);
            });
        }
        for (count, block) in blocks.enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(found) = self.blocks.listed(&block) else { continue };
            if !each(self, found) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` for every block that may have a claim from which others are told; of a large heap, for those that were
    /// followed and for the leaked ones that are asked for.
    pub(super) fn each_known(&mut self, control: &Control, each: impl FnMut(&mut Self, Found)) -> Result<(), Stopped> {
        let Some(sample) = &self.sample else { return self.each_block(control, each) };
        let known = sample.known();
        self.each_of(&known, control, each)
    }

    /// Calls `each` for the blocks at these addresses.
    pub(super) fn each_of(
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
        let most = (leaked.len() * EACH_LEAK).min(MOST_NEAR);
        for _ in 0..FAR {
            let mut next = Vec::new();
            for found in last {
                for i in 0..(found.block.size / self.word).min(MOST_WORDS as u64) {
                    if out.len() >= most {
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

    /// Returns the block of unknown type to whose start the word at an address leads.
    fn unknown_object(&mut self, at: u64) -> Option<Found> {
        let value = self.read(at).filter(|&value| value >= SMALL)?;
        let other = self.blocks.at(value).filter(|other| other.block.address == value)?;
        (!self.blocks.claim(other.number).is_some()).then_some(other)
    }

    fn is_live(&self, found: Found) -> bool {
        self.blocks.heap().find(found.block.address).is_some_and(|(_, state, ..)| state == State::Live)
    }
}
