//! The model: it answers every question by looking at everything.

use super::made::{Made, World};
use std::collections::{BTreeMap, BTreeSet};

pub struct Plain<'a> {
    world: &'a World,
    /// Which block points to which, by index.
    pub links: Vec<BTreeSet<usize>>,
    pub reached: BTreeSet<usize>,
}

impl<'a> Plain<'a> {
    pub fn new(world: &'a World) -> Self {
        let mut plain = Plain { world, links: Vec::new(), reached: BTreeSet::new() };
        plain.links = world.blocks.iter().map(|b| plain.targets(b.address, b.address + b.usable)).collect();
        let mut todo: Vec<usize> = world.values.iter().filter_map(|&v| plain.pointee(v)).collect();
        for &(start, end) in world.roots.iter().chain(&world.gaps) {
            todo.extend(plain.targets(start, end));
        }
        while let Some(block) = todo.pop() {
            if plain.reached.insert(block) {
                todo.extend(&plain.links[block]);
            }
        }
        plain
    }

    /// Returns the block that holds the address. Its header and the bytes past its end do not count.
    pub fn holder(&self, value: u64) -> Option<usize> {
        self.world.blocks.iter().position(|b| b.address <= value && value < b.address + b.usable)
    }

    pub fn target(&self, value: u64) -> Option<usize> {
        self.holder(value).filter(|&i| !self.world.blocks[i].free)
    }

    /// Returns the block in use that a word points to, if need be without its tag.
    fn pointee(&self, word: u64) -> Option<usize> {
        let tags = if self.world.tagged { &[64, 48, 47][..] } else { &[64] };
        tags.iter()
            .find_map(|&bits| self.holder(if bits < 64 { word % (1 << bits) } else { word }))
            .and_then(|found| Some(found).filter(|&i| !self.world.blocks[i].free))
    }

    fn targets(&self, start: u64, end: u64) -> BTreeSet<usize> {
        let word = self.world.word;
        let step = if self.world.unaligned { 1 } else { word };
        (start.next_multiple_of(step)..)
            .step_by(step as usize)
            .take_while(|at| at + word <= end)
            .filter(|&at| !self.world.dead.iter().any(|d| d.0 < at + word && at < d.1))
            .filter_map(|at| self.pointee(self.world.get(at)?))
            .collect()
    }

    pub fn leaked(&self) -> Vec<usize> {
        (0..self.world.blocks.len()).filter(|i| !self.world.blocks[*i].free && !self.reached.contains(i)).collect()
    }

    /// Returns the blocks that a leaked block leads to, itself included.
    pub fn leads_to(&self, from: usize) -> BTreeSet<usize> {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        while let Some(block) = todo.pop() {
            if seen.insert(block) {
                todo.extend(self.links[block].iter().filter(|i| !self.reached.contains(i)));
            }
        }
        seen
    }

    /// The blocks that a path from the roots (for a leaked `barrier`, from the blocks of `leaks`) leads to without passing `barrier`.
    pub fn reached_without(&self, barrier: usize, leaks: &[usize]) -> BTreeSet<usize> {
        let mut todo: Vec<usize> = leaks.to_vec();
        if self.reached.contains(&barrier) {
            todo = self.world.values.iter().filter_map(|&v| self.target(v)).collect();
            for &(start, end) in self.world.roots.iter().chain(&self.world.gaps) {
                todo.extend(self.targets(start, end));
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(block) = todo.pop() {
            if block != barrier && seen.insert(block) {
                todo.extend(&self.links[block]);
            }
        }
        seen
    }

    /// Returns the direct leaks: no other leaked block leads to them. In a cycle that nothing else leads to, it is the
    /// lowest block. With each, the blocks that it leads to.
    pub fn direct(&self) -> BTreeMap<u64, BTreeSet<u64>> {
        let leaked = self.leaked();
        let reach: BTreeMap<usize, BTreeSet<usize>> = leaked.iter().map(|&i| (i, self.leads_to(i))).collect();
        let address = |i: usize| self.world.blocks[i].address;
        leaked
            .iter()
            .filter(|&&i| {
                let mut upstream = leaked.iter().filter(|&&u| u != i && reach[&u].contains(&i));
                upstream.all(|u| reach[&i].contains(u) && address(i) < address(*u))
            })
            .map(|&i| (address(i), reach[&i].iter().map(|&r| address(r)).collect()))
            .collect()
    }

    /// Returns the blocks that the blocks of `from` lead to, themselves included, without entering one that is `shut`.
    pub fn closure(&self, from: &[usize], shut: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let (mut seen, mut todo) = (BTreeSet::new(), from.to_vec());
        while let Some(block) = todo.pop() {
            if !shut(block) && seen.insert(block) {
                todo.extend(&self.links[block]);
            }
        }
        seen
    }

    pub fn block(&self, index: usize) -> &Made {
        &self.world.blocks[index]
    }
}
