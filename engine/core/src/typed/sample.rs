//! The types of some leaked blocks of a large heap, in time that does not grow with the heap.
//!
//! A leaked block has the type of live objects that look like it (`leaked`). A few hundred objects of each type tell what such
//! objects look like. So pointers are followed as everywhere, but no further from a type of which enough objects were followed.
//! Of long arrays and containers, only a part is looked at. `reach` has what the passes do with it.

use super::maps::HashMap;
use crate::dwarf::model::Id;

/// Objects of one type that are followed.
const EACH_TYPE: usize = 256;
/// Elements of an array that are followed from its start; and as many of those behind, evenly chosen.
const ELEMENTS: u64 = 1 << 12;
/// Nodes of one container that are followed.
const NODES: usize = 1 << 9;
/// Places in objects that are looked at, in all.
pub(super) const WORK: u64 = 1 << 21;

/// The blocks of which the types are asked, and what was followed for them.
#[derive(Default)]
pub(super) struct Sample {
    /// The addresses of leaked blocks.
    pub(super) leaked: Vec<u64>,
    /// How many objects of each type were followed.
    counts: HashMap<Id, usize>,
    /// The addresses of the blocks in which they are.
    followed: Vec<u64>,
}

impl Sample {
    pub(super) fn new(leaked: &[u64]) -> Sample {
        Sample { leaked: leaked.to_vec(), ..Sample::default() }
    }

    /// Returns the addresses of the objects that are to be followed, evenly chosen. `kinds` has their types.
    pub(super) fn choose(&mut self, addresses: &[u64], kinds: &[Option<Id>]) -> Vec<u64> {
        let mut left: HashMap<Id, usize> = HashMap::default();
        for &kind in kinds.iter().flatten() {
            *left.entry(kind).or_default() += 1;
        }
        let mut chosen = Vec::new();
        for (&address, kind) in addresses.iter().zip(kinds) {
            let Some(left) = kind.and_then(|kind| left.get_mut(&kind)) else { continue };
            let count = kind.map(|kind| self.counts.entry(kind).or_default());
            let Some(count) = count.filter(|count| **count < EACH_TYPE) else { continue };
            // Of those that are left, one in so many.
            if *left % left.div_ceil(EACH_TYPE - *count) == 0 {
                *count += 1;
                chosen.push(address);
            }
            *left -= 1;
        }
        self.followed.extend(&chosen);
        chosen
    }

    /// Returns the distance from one element of an array that is followed to the next: this one is number `i` of `count`.
    pub(super) fn step(&self, i: u64, count: u64) -> u64 {
        match i < ELEMENTS {
            true => 1,
            false => (count / ELEMENTS).max(1),
        }
    }

    /// Returns whether so many nodes of a container are enough: the others are not looked at.
    pub(super) fn enough(&self, nodes: usize) -> bool {
        nodes >= NODES
    }

    /// Returns the addresses of the blocks that were followed, and of the leaked ones, sorted.
    pub(super) fn known(&self) -> Vec<u64> {
        let mut known: Vec<u64> = self.followed.iter().chain(&self.leaked).copied().collect();
        known.sort_unstable();
        known.dedup();
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_of_each_type_as_are_enough_are_chosen_evenly() {
        let mut sample = Sample::new(&[]);
        let addresses: Vec<u64> = (0..10_000).collect();
        let kinds: Vec<Option<Id>> = addresses.iter().map(|address| Some((address % 100 == 0).into())).collect();
        let chosen = sample.choose(&addresses, &kinds);
        let rare = chosen.iter().filter(|&address| address % 100 == 0).count();
        assert_eq!((rare, chosen.len() - rare), (100, EACH_TYPE));
        assert!(chosen.iter().any(|&address| address < 100) && chosen.iter().any(|&address| address > 9_800));
        assert_eq!(sample.choose(&addresses, &kinds).len(), 100, "of the rare one");
        assert_eq!(sample.known().len(), 100 + EACH_TYPE);
    }
}
