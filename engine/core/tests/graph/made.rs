//! Random graphs.

use crate::blocks::made::Dice;
use dmods_engine::graph::search::Graph;
use std::collections::BTreeSet;

/// A graph as lists of targets.
pub struct Lists {
    first: Vec<usize>,
    targets: Vec<usize>,
}

impl Lists {
    pub fn new(lists: &[Vec<usize>]) -> Lists {
        let mut first = vec![0];
        let mut targets = Vec::new();
        for list in lists {
            targets.extend(list);
            first.push(targets.len());
        }
        Lists { first, targets }
    }

    pub fn targets(&self, node: usize) -> &[usize] {
        &self.targets[self.first[node]..self.first[node + 1]]
    }

    /// Returns the nodes that paths from `from` reach without entering one that is `shut`.
    pub fn reached(&self, from: &[usize], shut: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let (mut seen, mut todo) = (BTreeSet::new(), from.to_vec());
        while let Some(node) = todo.pop() {
            if !shut(node) && seen.insert(node) {
                todo.extend(self.targets(node));
            }
        }
        seen
    }
}

impl Graph for Lists {
    type Edge = u32;
    fn count(&self) -> usize {
        self.first.len() - 1
    }
    fn number(&self, node: usize) -> usize {
        node
    }
    fn edges(&self, node: usize) -> (usize, usize) {
        (self.first[node], self.first[node + 1])
    }
    fn target(&self, edge: usize) -> Option<usize> {
        Some(self.targets[edge])
    }
    fn each(&self, mut each: impl FnMut(usize, usize, usize) -> bool) {
        (0..self.count()).all(|node| each(node, self.first[node], self.first[node + 1]));
    }
}

/// Returns a graph of a random kind: sparse, dense, lists with stray pointers, trees with parent pointers, layers.
pub fn random(dice: &mut Dice, count: usize) -> Lists {
    let mut lists = vec![Vec::new(); count];
    let kind = dice.below(5);
    let any = |dice: &mut Dice| dice.below(count as u64) as usize;
    for node in 0..count {
        match kind {
            0 => (0..dice.below(3)).for_each(|_| lists[node].push(any(dice))),
            1 => (0..dice.below(6)).for_each(|_| lists[node].push(any(dice))),
            2 if node + 1 < count && !dice.one_in(8) => {
                lists[node].push(node + 1);
                if dice.one_in(2) {
                    lists[node + 1].push(node);
                }
            }
            3 if node > 0 => {
                let parent = dice.below(node as u64) as usize;
                lists[parent].push(node);
                if dice.one_in(2) {
                    lists[node].push(parent);
                }
            }
            _ => {
                let from = (node + 1).min(count - 1);
                (0..dice.below(3)).for_each(|_| lists[node].push(from + dice.below((count - from) as u64) as usize));
            }
        }
        if dice.one_in(10) {
            lists[node].push(any(dice));
        }
    }
    Lists::new(&lists)
}
