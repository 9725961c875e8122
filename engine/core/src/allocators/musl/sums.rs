//! The blocks of a mallocng as the heap takes them, the memory that it manages, and its figures.

use super::layout::AREA;
use super::walk::Walked;
use crate::blocks::slots::{Single, Slots};
use std::collections::BTreeMap;

/// The figures of one mallocng. Bytes of slots count the four that are the next slot's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The bytes that the program asked for, of all blocks in use.
    pub asked: u64,
    /// The bytes of the slots that hold them.
    pub used: u64,
    /// The bytes of slots that hold no block.
    pub free: u64,
    /// The bytes of all mappings of groups.
    pub mapped: u64,
    /// The bytes that the dynamic linker gave away.
    pub donated: u64,
}

/// The slots of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSum {
    /// How many groups.
    pub groups: u64,
    /// How many slots they have, without those that hold a group.
    pub slots: u64,
    /// How many hold a block.
    pub live: u64,
}

impl Walked {
    /// Returns the blocks for the heap. Free slots are spans.
    ///
    /// What the program did not ask for holds nothing of it, so a block ends with its last byte.
    pub fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        for free in &self.free {
            slots.add(free.start, free.stride, free.count, [u64::MAX]);
        }
        let single = |start: u64, size: u64| Single { start, size, end: start + size.max(1) };
        slots.singles = self.blocks.iter().map(|block| single(block.start, block.size)).collect();
        slots
    }

    /// Returns all memory that it manages, sorted: groups, and areas of metas.
    pub fn owned(&self) -> Vec<(u64, u64)> {
        let groups = self.groups.iter().filter(|group| group.is_outermost()).map(|group| (group.start, group.end));
        let mut all: Vec<(u64, u64)> = groups.chain(self.areas.iter().map(|&area| (area, area + AREA))).collect();
        all.sort_unstable();
        all
    }

    /// Returns the figures.
    pub fn figures(&self) -> Figures {
        let outermost = || self.groups.iter().filter(|group| group.is_outermost());
        let size = |mapped: bool| outermost().filter(|g| g.mapped == mapped).map(|g| g.end - g.start).sum();
        let free = self.free.iter().map(|free| free.stride * u64::from(free.count)).sum();
        let mut slots = 0;
        for group in &self.groups {
            slots += group.stride * u64::from(group.count - group.nested.count_ones());
        }
        let asked = self.blocks.iter().map(|block| block.size).sum();
        Figures { asked, used: slots.saturating_sub(free), free, mapped: size(true), donated: size(false) }
    }

    /// Returns the sums by bytes of a slot. Mappings of one block are together under 0.
    pub fn classes(&self) -> BTreeMap<u64, ClassSum> {
        let mut sums: BTreeMap<u64, ClassSum> = BTreeMap::new();
        for group in &self.groups {
            let alone = group.mapped && group.count == 1;
            let sum = sums.entry(if alone { 0 } else { group.stride }).or_default();
            sum.groups += 1;
            sum.slots += u64::from(group.count - group.nested.count_ones());
            sum.live +=
                (0..group.count).filter(|&slot| group.in_use(slot) && group.nested >> slot & 1 == 0).count() as u64;
        }
        sums
    }
}
