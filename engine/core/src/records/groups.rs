//! Adds up records and leaks by stack.

use std::collections::HashMap;

use super::record::Record;
use super::store::Records;

/// What separates records besides their stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Nothing: one group for each stack.
    None,
    /// The thread that allocated the block.
    Thread,
    /// The size of the block.
    Size,
}

/// The records of one stack, and of one thread or size where they are split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct User {
    /// A key of the stacks.
    pub stack: u32,
    /// The thread or the size; 0 where records are not split.
    pub part: u64,
    /// How many records.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// How many blocks and bytes these stand for, where only samples were recorded.
    pub likely_count: f64,
    /// How many bytes these stand for.
    pub likely_bytes: f64,
    /// The least size.
    pub least: u64,
    /// The largest size.
    pub most: u64,
    /// The oldest record.
    pub oldest: Record,
}

const UNSEEN: u32 = u32::MAX;

/// The first key found with the same frames. Two threads may have entered one stack into the table twice.
pub(crate) struct Canon<'a> {
    records: &'a Records,
    /// By key; [`UNSEEN`] where it was not asked for.
    known: Vec<u32>,
    frames: HashMap<Vec<u64>, u32>,
}

impl<'a> Canon<'a> {
    pub(crate) fn new(records: &'a Records) -> Self {
        Canon { records, known: vec![UNSEEN; records.stacks.len()], frames: HashMap::new() }
    }

    pub(crate) fn key(&mut self, stack: u32) -> u32 {
        if let Some(&known) = self.known.get(stack as usize).filter(|&&known| known != UNSEEN) {
            return known;
        }
        let frames: Vec<u64> = self.records.stacks.nodes(stack).map(|node| node.pc).collect();
        let key = if frames.is_empty() { 0 } else { *self.frames.entry(frames).or_insert(stack) };
        if let Some(known) = self.known.get_mut(stack as usize) {
            *known = key;
        }
        key
    }
}

/// Returns the users of memory by stack, those with the most bytes first. Bytes of samples are estimates.
pub fn users(records: &Records, split: Split) -> Vec<User> {
    let mut canon = Canon::new(records);
    let mut users: HashMap<(u32, u64), User> = HashMap::new();
    for record in records.all() {
        let weight = records.weight(record.size);
        let stack = canon.key(record.stack);
        let part = match split {
            Split::None => 0,
            Split::Thread => u64::from(record.thread),
            Split::Size => record.size,
        };
        let user = users.entry((stack, part)).or_insert(User {
            stack,
            part,
            count: 0,
            bytes: 0,
            likely_count: 0.0,
            likely_bytes: 0.0,
            least: u64::MAX,
            most: 0,
            oldest: *record,
        });
        user.count += 1;
        user.bytes = user.bytes.saturating_add(record.size);
        user.likely_count += weight;
        user.likely_bytes += weight * record.size as f64;
        user.least = user.least.min(record.size);
        user.most = user.most.max(record.size);
        if record.time < user.oldest.time {
            user.oldest = *record;
        }
    }
    let mut users: Vec<User> = users.into_values().collect();
    users.sort_by(|a, b| {
        let first = (a.oldest.address, a.stack, a.part).cmp(&(b.oldest.address, b.stack, b.part));
        b.likely_bytes.total_cmp(&a.likely_bytes).then(first)
    });
    users
}

/// A block that leaked directly.
#[derive(Clone, Copy, Debug)]
pub struct Leak {
    /// The block's address.
    pub address: u64,
    /// Its usable bytes.
    pub size: u64,
    /// Whether it has its own mapping.
    pub mmapped: bool,
    /// How many blocks it keeps alive.
    pub kept_count: u64,
    /// The usable bytes of those.
    pub kept_bytes: u64,
}

/// The leaks of one size and stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakGroup {
    /// Usable bytes of each.
    pub size: u64,
    /// Whether each has its own mapping.
    pub mmapped: bool,
    /// Which of the recorders has the records. None where no recorder has one.
    pub recorder: Option<usize>,
    /// A key of that recorder's stacks.
    pub stack: u32,
    /// How many leaks.
    pub count: u64,
    /// The oldest block, or the lowest where there are no records.
    pub first: u64,
    /// The record of that block.
    pub record: Option<Record>,
    /// How many blocks they keep alive.
    pub kept_count: u64,
    /// The usable bytes of those.
    pub kept_bytes: u64,
}

/// Adds up leaks by size and stack. A block is looked up with each recorder in turn.
pub fn group(recorders: &[&Records], leaks: &[Leak]) -> Vec<LeakGroup> {
    let mut canons: Vec<Canon> = recorders.iter().map(|records| Canon::new(records)).collect();
    let mut groups: HashMap<(bool, u64, Option<usize>, u32), LeakGroup> = HashMap::new();
    for leak in leaks {
        let found = recorders.iter().enumerate().find_map(|(index, records)| {
            // The record has more bytes than the block. It belongs to an earlier block, or is damaged.
            Some((index, *records.of_block(leak.address).filter(|record| record.size <= leak.size)?))
        });
        let (recorder, record) = found.unzip();
        let stack = found.map_or(0, |(index, record)| canons[index].key(record.stack));
        let group = groups.entry((leak.mmapped, leak.size, recorder, stack)).or_insert(LeakGroup {
            size: leak.size,
            mmapped: leak.mmapped,
            recorder,
            stack,
            count: 0,
            first: leak.address,
            record,
            kept_count: 0,
            kept_bytes: 0,
        });
        group.count += 1;
        group.kept_count += leak.kept_count;
        group.kept_bytes = group.kept_bytes.saturating_add(leak.kept_bytes);
        let age = |address: u64, record: Option<Record>| (record.map_or(0, |r| r.time), address);
        if age(leak.address, record) < age(group.first, group.record) {
            (group.first, group.record) = (leak.address, record);
        }
    }
    let mut groups: Vec<LeakGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| (group.mmapped, group.size, group.first));
    groups
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::super::stacks::Stacks;
    use super::*;

    /// Two stacks that are one, and another.
    fn records(mean: u64) -> Records {
        let (stacks, keys) = Stacks::of_lists([&[1u64, 2][..], &[1, 2], &[7, 2]]);
        let record = |address, size, time, stack: usize| Record {
            address,
            at: address + 1,
            size,
            time,
            stack: keys[stack],
            thread: 1,
        };
        let all = vec![record(10, 5, 30, 0), record(20, 5, 20, 1), record(30, 8, 9, 2), record(40, 99, 1, 2)];
        Records::new(all, stacks, Log::default(), mean)
    }

    #[test]
    fn users_are_added_up_by_frames() {
        let users = users(&records(0), Split::None);
        assert_eq!(
            users.iter().map(|u| (u.count, u.bytes, u.least, u.most)).collect::<Vec<_>>(),
            [(2, 107, 8, 99), (2, 10, 5, 5)]
        );
        assert_eq!(users[1].oldest.address, 20);
        assert_eq!(users[0].likely_bytes, 107.0);
    }

    #[test]
    fn users_are_split_by_thread_and_size() {
        let parts = |split| users(&records(0), split).iter().map(|u| (u.part, u.count, u.bytes)).collect::<Vec<_>>();
        assert_eq!(parts(Split::Thread), [(1, 2, 107), (1, 2, 10)]);
        assert_eq!(parts(Split::Size), [(99, 1, 99), (5, 2, 10), (8, 1, 8)]);
    }

    #[test]
    fn samples_are_weighted() {
        let users = users(&records(10), Split::None);
        let expected: f64 = [8f64, 99.0].iter().map(|size| size / (1.0 - (-size / 10.0).exp())).sum();
        assert!((users[0].likely_bytes - expected).abs() < 1e-9);
    }

    #[test]
    fn leaks_are_added_up_by_size_and_frames() {
        let leak = |address, size| Leak { address, size, mmapped: false, kept_count: 1, kept_bytes: 100 };
        let leaks = [leak(10, 8), leak(20, 8), leak(30, 8), leak(40, 8), leak(60, 8), leak(50, 8)];
        let none = Records::new(vec![], Stacks::default(), Log::default(), 0);
        let found = group(&[&none, &records(0)], &leaks);
        let brief: Vec<_> = found.iter().map(|g| (g.recorder, g.count, g.first, g.kept_bytes)).collect();
        // 40's record says 99 bytes where the block has 8.
        assert_eq!(brief, [(Some(1), 2, 20, 200), (Some(1), 1, 30, 100), (None, 3, 40, 300)]);
        assert_eq!(found[0].record.unwrap().at, 21);
    }
}
