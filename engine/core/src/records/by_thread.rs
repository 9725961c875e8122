//! What some threads allocated and did not free, or what they freed, newest first.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::store::Records;

/// A record or a transaction: where it lies, and what happened to which block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Where the record or transaction lies.
    pub at: u64,
    /// The block.
    pub address: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// A key of the stacks.
    pub stack: u32,
    /// The recorder's number of the thread.
    pub thread: u32,
}

/// The sums are those of all events, not only of those listed in `events`.
#[derive(Debug, Default)]
pub struct Newest {
    /// How many events there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The newest of them.
    pub events: Vec<Event>,
}

/// Returns up to `most` of the threads' allocations, or of their frees as far as the log goes back.
pub fn newest(records: &Records, freed: bool, threads: &[u32], most: usize) -> Newest {
    let threads: HashSet<u32> = threads.iter().copied().collect();
    let mut events: Vec<Event> = if freed {
        let frees = records.log.all().iter().rev().filter(|t| t.freed && threads.contains(&t.thread));
        frees
            .map(|t| Event {
                at: t.at,
                address: t.address,
                size: t.size,
                time: t.time,
                stack: t.stack,
                thread: t.thread,
            })
            .collect()
    } else {
        let own = records.all().iter().filter(|r| threads.contains(&r.thread));
        own.map(|r| Event {
            at: r.at,
            address: r.address,
            size: r.size,
            time: r.time,
            stack: r.stack,
            thread: r.thread,
        })
        .collect()
    };
    let count = events.len() as u64;
    let bytes = events.iter().fold(0, |sum: u64, event| sum.saturating_add(event.size));
    events.sort_by_key(|event| Reverse(event.time));
    events.truncate(most);
    Newest { count, bytes, events }
}

#[cfg(test)]
mod tests {
    use super::super::log::{Log, Transaction};
    use super::super::stacks::Stacks;
    use super::super::Record;
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_sums_are_of_all() {
        let record = |address, time, thread| Record { address, size: 10, time, thread, ..Record::default() };
        let freed = |sequence, freed| Transaction {
            sequence,
            freed,
            time: sequence,
            size: 3,
            thread: 1,
            ..Transaction::default()
        };
        let log = Log::new(vec![freed(1, true), freed(2, false), freed(3, true)]);
        let all = vec![record(100, 5, 1), record(200, 9, 2), record(300, 7, 1), record(400, 6, 1)];
        let records = Records::new(all, Stacks::default(), log, 0);
        let found = newest(&records, false, &[1], 2);
        assert_eq!((found.count, found.bytes), (3, 30));
        assert_eq!(found.events.iter().map(|e| e.address).collect::<Vec<_>>(), [300, 400]);
        let found = newest(&records, true, &[1, 9], 9);
        assert_eq!((found.count, found.bytes), (2, 6));
        assert_eq!(found.events.iter().map(|e| e.time).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(newest(&records, true, &[2], 9).count, 0);
    }
}
