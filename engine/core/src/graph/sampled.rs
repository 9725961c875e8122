//! The direct leaks by kind and size, with some blocks of each group.

use std::collections::BTreeMap;

use super::stream::InUse;
use super::sums::View;
use crate::blocks::leaks::Group;
use crate::blocks::model::State;
use crate::control::{Control, Stopped};

/// Blocks of one group; and of all groups together.
const MOST_EACH: usize = 256;
const MOST: usize = 1 << 15;

/// A group of direct leaks.
pub struct Sampled {
    /// What all of its blocks have.
    pub group: Group,
    /// Their kind.
    pub kind: u32,
    /// Some of them, evenly chosen, in address order. All, if there are few.
    pub blocks: Vec<InUse>,
}

impl View<'_> {
    /// Returns the direct leaks by kind and size, as [`View::groups`] does, with some blocks of each group.
    pub fn sampled_groups(&self, control: &Control) -> Result<Vec<Sampled>, Stopped> {
        let mut groups: BTreeMap<(bool, u32, u64, u32), (Group, Evenly)> = BTreeMap::new();
        self.each(control, |found, kind| {
            if found.state != State::LeakedDirectly {
                return true;
            }
            let alike = self.of_leak(&found);
            let (group, chosen) =
                groups.entry((alike.single, alike.allocator, alike.size, kind)).or_insert((alike, Evenly::default()));
            group.add(&found);
            chosen.see(found);
            true
        })?;
        let most = (MOST / groups.len().max(1)).clamp(1, MOST_EACH);
        let row = |((.., kind), (group, chosen)): ((bool, u32, u64, u32), (Group, Evenly))| {
            let step = chosen.taken.len().div_ceil(most).max(1);
            Sampled { group, kind, blocks: chosen.taken.into_iter().step_by(step).collect() }
        };
        Ok(groups.into_iter().map(row).collect())
    }

    /// Returns the group of leaks like this one, with none in it.
    pub fn of_leak(&self, found: &InUse) -> Group {
        let run = self.heap.run(found.block.run);
        Group {
            size: found.block.size,
            allocator: run.owner.allocator,
            single: run.is_oversized(),
            count: 0,
            first: found.block.address,
            kept_count: 0,
            kept_bytes: 0,
        }
    }
}

impl Group {
    /// Adds a block.
    pub fn add(&mut self, found: &InUse) {
        self.count += 1;
        self.first = self.first.min(found.block.address);
        self.kept_count += found.kept.0;
        self.kept_bytes = self.kept_bytes.saturating_add(found.kept.1);
    }
}

/// Blocks at equal distances, of a list whose length is not known before its end.
#[derive(Default)]
struct Evenly {
    taken: Vec<InUse>,
    seen: usize,
    /// Every block is taken whose number has these bits clear.
    mask: usize,
}

impl Evenly {
    fn see(&mut self, found: InUse) {
        if self.seen & self.mask == 0 {
            if self.taken.len() == MOST_EACH {
                let mut place = 0;
                self.taken.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.mask = self.mask << 1 | 1;
            }
            if self.seen & self.mask == 0 {
                self.taken.push(found);
            }
        }
        self.seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::index::Block;

    fn numbers(count: usize) -> Vec<usize> {
        let mut chosen = Evenly::default();
        for number in 0..count {
            let block = Block { address: 0, size: 0, granule: 0, run: 0, free: false };
            chosen.see(InUse { block, state: State::LeakedDirectly, kept: (0, 0), number });
        }
        chosen.taken.iter().map(|found| found.number).collect()
    }

    #[test]
    fn all_of_a_few_and_equal_distances_of_many() {
        assert_eq!(numbers(MOST_EACH), (0..MOST_EACH).collect::<Vec<_>>());
        for count in [MOST_EACH + 1, 1000, 4095, 4096, 4097] {
            let found = numbers(count);
            let distance = found[1];
            assert!(found.len() > MOST_EACH / 2 && found.len() <= MOST_EACH, "{count}");
            assert_eq!(found, (0..count).step_by(distance).collect::<Vec<_>>());
        }
    }
}
