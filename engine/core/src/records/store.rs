//! All that one recorder kept.

use std::sync::OnceLock;

use super::log::Log;
use super::record::Record;
use super::stacks::Stacks;

/// All records and transactions of one recorder. Immutable.
pub struct Records {
    records: Vec<Record>,
    by_at: OnceLock<Vec<u32>>,
    /// The stacks that the records and the log name.
    pub stacks: Stacks,
    /// The transactions.
    pub log: Log,
    /// Mean bytes between two samples. 0: every block was recorded.
    pub mean: u64,
}

impl Records {
    /// Makes a store. If several records have one address, the first is kept.
    pub fn new(mut records: Vec<Record>, stacks: Stacks, log: Log, mean: u64) -> Records {
        if !records.windows(2).all(|pair| pair[0].address < pair[1].address) {
            records.sort_by_key(|record| record.address);
            records.dedup_by_key(|record| record.address);
        }
        Records { records, by_at: OnceLock::new(), stacks, log, mean }
    }

    /// Extends the log into the past by the records of freed blocks, for blocks without a transaction. Inside a live
    /// block such a record is stale.
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

    /// Returns the records, sorted by address.
    pub fn all(&self) -> &[Record] {
        &self.records
    }

    /// Returns the record of the block that begins exactly at `address`.
    pub fn of_block(&self, address: u64) -> Option<&Record> {
        let index = self.records.binary_search_by_key(&address, |record| record.address).ok()?;
        self.records.get(index)
    }

    /// Returns the record that lies at `at`.
    pub fn at(&self, at: u64) -> Option<&Record> {
        let order = self.by_at.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.records.len() as u32).collect();
            order.sort_by_key(|&index| self.records[index as usize].at);
            order
        });
        let index = order.binary_search_by_key(&at, |&index| self.records[index as usize].at).ok()?;
        self.records.get(order[index] as usize)
    }

    /// Returns up to `most` records from address `start` on; with `threads`, only theirs.
    pub fn from(&self, start: u64, most: usize, threads: Option<&[u32]>) -> Vec<Record> {
        let first = self.records.partition_point(|record| record.address < start);
        let wanted = self.records[first..].iter().filter(|r| threads.is_none_or(|all| all.contains(&r.thread)));
        wanted.take(most).copied().collect()
    }

    /// Returns how many blocks of that size one record stands for. Each byte is sampled with a chance of 1 / mean
    /// (Poisson), so a block of `size` bytes is recorded with a chance of 1 - e^(-size / mean).
    pub fn weight(&self, size: u64) -> f64 {
        match self.mean {
            0 => 1.0,
            mean => 1.0 / -(-(size.max(1) as f64) / mean as f64).exp_m1(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Transaction;
    use super::*;

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
