//! Adds up records by stack, thread and size, and by what the heap says of their blocks.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::blocks::model::{Heap, State};
use crate::control::{Control, Stopped};
use crate::graph::owned_heap::OwnedHeap;
use crate::graph::owners::Owners;
use crate::graph::stream::Stream;
use crate::graph::sums::View;
use crate::records::groups::Canon;
use crate::records::Records;

/// Groups that are kept apart. With more, sizes are no longer told apart, then owners, types and threads. If the stacks
/// alone are too many, those that come later have the stack [`UNKNOWN`].
pub const MOST: usize = 100_000;
/// What is not known of a block.
pub const UNKNOWN: u32 = u32::MAX;
/// Records between two looks at [`Control`].
const CHECK: usize = 1 << 16;

/// What all records of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// A key of the stacks; [`UNKNOWN`] where there are too many of them.
    pub stack: u32,
    /// The recorder's number of the thread; [`UNKNOWN`] where threads are not told apart.
    pub thread: u32,
    /// The size; `u64::MAX` where sizes are not told apart.
    pub size: u64,
    /// What the heap says of the block; None where no heap was asked or no block begins there.
    pub state: Option<State>,
    /// The kind of the block, or [`UNKNOWN`].
    pub kind: u32,
    /// The set of roots that hold it, or [`UNKNOWN`].
    pub owners: u32,
}

/// The sums of a group. `likely` is what samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Records.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many blocks they stand for.
    pub likely_count: f64,
    /// How many bytes.
    pub likely_bytes: f64,
}

/// A heap whose leaks have been found, for what it says of a block.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The heap.
    pub heap: &'a dyn Heap,
    /// The kinds of its blocks.
    pub kinds: Option<View<'a>>,
    /// Its owners, where they are wanted.
    pub owners: Option<&'a Owners>,
}

/// The groups so far, and what they no longer tell apart.
struct Groups {
    sums: HashMap<Key, Sum, RandomState>,
    level: u8,
    most: usize,
}

impl Groups {
    fn coarse(&self, mut key: Key) -> Key {
        if self.level > 0 {
            key.size = u64::MAX;
        }
        if self.level > 1 {
            key.owners = UNKNOWN;
        }
        if self.level > 2 {
            key.kind = UNKNOWN;
        }
        if self.level > 3 {
            key.thread = UNKNOWN;
        }
        key
    }

    fn add(&mut self, key: Key, sum: &Sum) {
        let mut key = self.coarse(key);
        if self.level > 3 && self.sums.len() > self.most && !self.sums.contains_key(&key) {
            key.stack = UNKNOWN;
        }
        let own = self.sums.entry(key).or_default();
        own.count += sum.count;
        own.bytes = own.bytes.saturating_add(sum.bytes);
        own.likely_count += sum.likely_count;
        own.likely_bytes += sum.likely_bytes;
        while self.sums.len() > self.most && self.level < 4 {
            self.level += 1;
            let finer = std::mem::take(&mut self.sums);
            for (key, sum) in finer {
                let key = self.coarse(key);
                let own = self.sums.entry(key).or_default();
                own.count += sum.count;
                own.bytes = own.bytes.saturating_add(sum.bytes);
                own.likely_count += sum.likely_count;
                own.likely_bytes += sum.likely_bytes;
            }
        }
    }
}

/// Blocks of one stack, thread and size, counted. The table is small, so that most records find their place in a cache.
struct Counts<'a> {
    records: &'a Records,
    counts: HashMap<(u64, u64), u64, RandomState>,
}

impl Counts<'_> {
    #[inline]
    fn add(&mut self, key: &Key, groups: &mut Groups) {
        let place = (u64::from(key.stack) << 32 | u64::from(key.thread), key.size);
        *self.counts.entry(place).or_default() += 1;
        if self.counts.len() > groups.most {
            self.flush(groups);
        }
    }

    fn flush(&mut self, groups: &mut Groups) {
        for ((place, size), count) in self.counts.drain() {
            let (stack, thread) = ((place >> 32) as u32, place as u32);
            let key = Key { stack, thread, size, state: None, kind: UNKNOWN, owners: UNKNOWN };
            groups.add(key, &sum_of(self.records, size, count));
        }
    }
}

fn sum_of(records: &Records, size: u64, count: u64) -> Sum {
    let likely_count = records.weight(size) * count as f64;
    Sum { count, bytes: size.saturating_mul(count), likely_count, likely_bytes: likely_count * size as f64 }
}

/// Returns the groups, those with the most bytes first.
pub fn samples(
    records: &Records,
    asked: Option<Asked>,
    most: usize,
    control: &Control,
) -> Result<Vec<(Key, Sum)>, Stopped> {
    let mut canon = Canon::new(records);
    let mut groups = Groups { sums: HashMap::default(), level: 0, most };
    let mut counts = Counts { records, counts: HashMap::default() };
    let mut blocks = asked.map(|asked| Stream::new(asked.heap).peekable());
    for (index, record) in records.all().iter().enumerate() {
        if index % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let mut key = Key {
            stack: canon.key(record.stack),
            thread: record.thread,
            size: record.size,
            state: None,
            kind: UNKNOWN,
            owners: UNKNOWN,
        };
        let (Some(blocks), Some(asked)) = (&mut blocks, asked) else {
            counts.add(&key, &mut groups);
            continue;
        };
        // Both are sorted by address.
        while blocks.peek().is_some_and(|block| block.block.address < record.address) {
            blocks.next();
        }
        if let Some(found) = blocks.peek().filter(|found| found.block.address == record.address) {
            key.state = Some(found.state);
            key.kind = asked.kinds.and_then(|view| view.kind(found.number)).unwrap_or(UNKNOWN);
            if let Some(owners) = asked.owners {
                let above = OwnedHeap::new(asked.heap, owners).owners_above(record.address, 0);
                key.owners = above.map_or(UNKNOWN, |above| above.1);
            }
        }
        groups.add(key, &sum_of(records, record.size, 1));
    }
    counts.flush(&mut groups);
    let mut all: Vec<(Key, Sum)> = groups.sums.into_iter().collect();
    all.sort_by(|(a, left), (b, right)| {
        let order = |key: &Key| (key.stack, key.thread, key.size, key.kind, key.owners, key.state.map(|s| s as u8));
        right.likely_bytes.total_cmp(&left.likely_bytes).then_with(|| order(a).cmp(&order(b)))
    });
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::log::Log;
    use crate::records::stacks::Stacks;
    use crate::records::Record;

    fn records(mean: u64) -> Records {
        let (stacks, keys) = Stacks::of_lists([&[1u64, 2][..], &[1, 2], &[7, 2]]);
        let record = |address, size, thread, stack: usize| Record {
            address,
            size,
            thread,
            stack: keys[stack],
            ..Record::default()
        };
        let all = vec![record(10, 5, 1, 0), record(20, 5, 1, 1), record(30, 8, 2, 2), record(40, 9, 1, 2)];
        Records::new(all, stacks, Log::default(), mean)
    }

    #[test]
    fn equal_stacks_threads_and_sizes_are_one_group() {
        let found = samples(&records(0), None, MOST, &Control::default()).unwrap();
        let brief: Vec<_> = found.iter().map(|(k, s)| (k.size, k.thread, s.count, s.bytes)).collect();
        assert_eq!(brief, [(5, 1, 2, 10), (9, 1, 1, 9), (8, 2, 1, 8)]);
        assert!(found.iter().all(|(_, sum)| sum.likely_bytes == sum.bytes as f64));
    }

    #[test]
    fn samples_are_weighted_once() {
        let found = samples(&records(100), None, MOST, &Control::default()).unwrap();
        let likely: f64 = found.iter().map(|(_, sum)| sum.likely_bytes).sum();
        let weight = |size: f64| 1.0 / (1.0 - (-size / 100.0).exp());
        assert!((likely - [5.0, 5.0, 8.0, 9.0].map(|size| size * weight(size)).iter().sum::<f64>()).abs() < 1e-6);
    }

    #[test]
    fn too_many_groups_are_merged_and_nothing_is_lost() {
        for most in 1..4 {
            let found = samples(&records(0), None, most, &Control::default()).unwrap();
            assert_eq!(found.iter().map(|(_, sum)| sum.bytes).sum::<u64>(), 27);
            assert!(found.len() <= most + 3);
        }
    }
}
