//! Allocation records: who allocated a block, when, and from where, as a recorder inside the process kept them.
//!
//! * [`audit`]: reads the tables of dmods' own auditor (audit/format.h).
//! * [`stacks`]: stacks as a tree of return addresses.
//! * [`log`]: transactions: what happened to blocks, freed ones too.
//! * [`groups`]: records and leaks, added up by stack.
//! * [`newest`]: what some threads allocated or freed.
//!
//! Other recorders (a profiling allocator) hand their records over one by one: [`Records::new`].

pub mod audit;
pub mod groups;
pub mod log;
pub mod newest;
pub mod stacks;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use log::Log;
use stacks::Stacks;

/// A live block as its recorder knew it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What malloc returned.
    pub address: u64,
    /// Where the record itself lies: mdb's bufctl.
    pub at: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// A key of the stacks; 0: not known.
    pub stack: u32,
    /// The recorder's number of the thread; 0: not known.
    pub thread: u32,
}

/// All that one recorder kept. Immutable.
pub struct Records {
    records: Vec<Record>,
    by_at: OnceLock<Vec<u32>>,
    pub stacks: Stacks,
    pub log: Log,
    /// Mean bytes between two samples; 0: every block was recorded.
    pub mean: u64,
}

impl Records {
    /// Of several records for one address the first is kept.
    pub fn new(mut records: Vec<Record>, stacks: Stacks, log: Log, mean: u64) -> Records {
        if !records.windows(2).all(|pair| pair[0].address < pair[1].address) {
            records.sort_by_key(|record| record.address);
            records.dedup_by_key(|record| record.address);
        }
        Records { records, by_at: OnceLock::new(), stacks, log, mean }
    }

    /// Extends the log into the past by what freed blocks' own records say, of blocks that it has no transaction of. Inside a live
    /// block such a record is a leftover.
    pub fn remember(&mut self, freed: Vec<Record>) {
        let gone = |record: &Record| {
            let before = self.records.partition_point(|live| live.address <= record.address);
            before == 0 || record.address - self.records[before - 1].address >= self.records[before - 1].size.max(1)
        };
        let older: Vec<Record> =
            freed.into_iter().filter(|r| gone(r) && self.log.of_block(r.address).next().is_none()).collect();
        if !older.is_empty() {
            self.log.extend_back(older);
        }
    }

    /// By address.
    pub fn all(&self) -> &[Record] {
        &self.records
    }

    /// The record of the block that begins exactly at `address`.
    pub fn of_block(&self, address: u64) -> Option<&Record> {
        let index = self.records.binary_search_by_key(&address, |record| record.address).ok()?;
        self.records.get(index)
    }

    /// The record that lies at `at`.
    pub fn at(&self, at: u64) -> Option<&Record> {
        let order = self.by_at.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.records.len() as u32).collect();
            order.sort_by_key(|&index| self.records[index as usize].at);
            order
        });
        let index = order.binary_search_by_key(&at, |&index| self.records[index as usize].at).ok()?;
        self.records.get(order[index] as usize)
    }

    /// Up to `most` records from address `start` on; with `threads`, only theirs.
    pub fn from(&self, start: u64, most: usize, threads: Option<&[u32]>) -> Vec<Record> {
        let first = self.records.partition_point(|record| record.address < start);
        let wanted = self.records[first..].iter().filter(|r| threads.is_none_or(|all| all.contains(&r.thread)));
        wanted.take(most).copied().collect()
    }

    /// How many blocks of the size a record of one stands for: a sample is taken of each byte with a chance of 1 / mean
    /// (Poisson), so a block of `size` bytes is recorded with a chance of 1 - e^(-size / mean).
    pub fn weight(&self, size: u64) -> f64 {
        match self.mean {
            0 => 1.0,
            mean => 1.0 / -(-(size.max(1) as f64) / mean as f64).exp_m1(),
        }
    }
}

/// Pieces of memory that were taken for a table: no two may overlap, or a few bytes of a hostile dump could stand for any number of
/// tables.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<u64, u64>);

impl Claims {
    /// Whether `[start, start + size)` was free until now.
    pub fn claim(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else { return false };
        let before = self.0.range(..end).next_back();
        if size == 0 || before.is_some_and(|(_, &stop)| stop > start) {
            return false;
        }
        self.0.insert(start, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::log::Transaction;
    use super::*;

    #[test]
    fn claims_do_not_overlap() {
        let mut claims = Claims::default();
        assert!(claims.claim(100, 10));
        assert!(claims.claim(110, 10));
        assert!(claims.claim(90, 10));
        assert!(!claims.claim(95, 10));
        assert!(!claims.claim(119, 1));
        assert!(!claims.claim(0, 1000));
        assert!(!claims.claim(u64::MAX, 2));
        assert!(!claims.claim(500, 0));
    }

    #[test]
    fn a_sample_stands_for_more_the_smaller_it_is() {
        let exact = Records::new(vec![], Stacks::default(), Log::default(), 0);
        assert_eq!(exact.weight(10), 1.0);
        let sampled = Records::new(vec![], Stacks::default(), Log::default(), 1000);
        assert!((sampled.weight(1000) - 1.0 / (1.0 - (-1.0f64).exp())).abs() < 1e-12);
        assert!((sampled.weight(1) * 1.0 - 1000.5).abs() < 0.01);
        assert!(sampled.weight(0).is_finite());
        assert!((sampled.weight(u64::MAX) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn records_are_found_by_block_and_by_place() {
        let record = |address, at| Record { address, at, ..Record::default() };
        let records = vec![record(300, 7), record(100, 9), record(200, 8), Record { size: 5, ..record(100, 1) }];
        let all = Records::new(records, Stacks::default(), Log::default(), 0);
        assert_eq!(all.all().iter().map(|r| r.address).collect::<Vec<_>>(), [100, 200, 300]);
        assert_eq!(all.of_block(200).unwrap().at, 8);
        assert_eq!(all.at(7).unwrap().address, 300);
        assert!(all.of_block(201).is_none() && all.at(1).is_none());
        assert_eq!(all.from(101, 1, None)[0].address, 200);
        assert!(all.from(0, 9, Some(&[3])).is_empty());
    }

    #[test]
    fn a_freed_blocks_record_is_remembered_unless_something_newer_is_there() {
        let record = |address, size| Record { address, size, ..Record::default() };
        let log = Log::new(vec![Transaction { sequence: 9, address: 500, ..Transaction::default() }]);
        let mut all = Records::new(vec![record(100, 64)], Stacks::default(), log, 0);
        all.remember(vec![record(128, 8), record(164, 8), record(500, 8), record(90, 8)]);
        assert_eq!(all.log.all().iter().map(|t| t.address).collect::<Vec<_>>(), [164, 90, 500]);
    }
}
