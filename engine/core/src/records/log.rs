//! Transactions: what happened to blocks, oldest first.

use super::record::Record;
use std::cmp::Reverse;
use std::sync::OnceLock;

/// One allocation or free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Where it lies in the process.
    pub at: u64,
    /// Rises from one transaction to the next.
    pub sequence: u64,
    /// Whether the block was freed; else it was allocated.
    pub freed: bool,
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
    /// For a freed block: how it had been allocated. Zeros where that is not known.
    pub alloc_time: u64,
    /// The stack of the allocation.
    pub alloc_stack: u32,
    /// The thread of the allocation.
    pub alloc_thread: u32,
    /// Where a copy of the block's first bytes lies, and how many there are.
    pub contents: u64,
    /// How many bytes the copy has.
    pub contents_size: u64,
}

impl Transaction {
    fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|skip| skip < self.size.max(1))
    }
}

/// The transactions of one recorder.
#[derive(Debug, Default)]
pub struct Log {
    transactions: Vec<Transaction>,
    /// Sorted by address, and newest first for one address.
    by_address: OnceLock<Vec<u32>>,
    by_at: OnceLock<Vec<u32>>,
}

impl Log {
    /// Makes a log. Sorts the transactions.
    pub fn new(mut transactions: Vec<Transaction>) -> Log {
        transactions.sort_by_key(|t| t.sequence);
        Log { transactions, ..Log::default() }
    }

    /// Adds frees that came before all transactions of the log, or of blocks that it does not have. They get the numbers
    /// before its first.
    pub fn extend_back(&mut self, mut freed: Vec<Record>) {
        freed.sort_by_key(|record| record.time);
        let first = self.transactions.first().map_or(freed.len() as u64 + 1, |t| t.sequence);
        let before = first.saturating_sub(freed.len() as u64);
        let older = freed.iter().zip(before..).map(|(record, sequence)| Transaction {
            at: record.at,
            sequence: sequence.max(1),
            freed: true,
            address: record.address,
            size: record.size,
            time: record.time,
            stack: record.stack,
            thread: record.thread,
            ..Transaction::default()
        });
        *self = Log::new(older.chain(std::mem::take(&mut self.transactions)).collect());
    }

    /// Returns all transactions, oldest first.
    pub fn all(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Returns those of the block that began at `address`, newest first.
    pub fn of_block(&self, address: u64) -> impl Iterator<Item = &Transaction> {
        let order = self.by_address.get_or_init(|| self.order(|t| (t.address, Reverse(t.sequence))));
        let first = order.partition_point(|&i| self.transactions[i as usize].address < address);
        order[first..].iter().map(|&i| &self.transactions[i as usize]).take_while(move |t| t.address == address)
    }

    /// Returns the transaction that lies at `at`.
    pub fn at(&self, at: u64) -> Option<&Transaction> {
        let order = self.by_at.get_or_init(|| self.order(|t| t.at));
        let index = order.binary_search_by_key(&at, |&i| self.transactions[i as usize].at).ok()?;
        self.transactions.get(order[index] as usize)
    }

    /// Returns the newest transaction of a block that held `address`.
    pub fn holding(&self, address: u64) -> Option<&Transaction> {
        self.transactions.iter().rev().find(|t| t.holds(address))
    }

    /// The newest free of a block that held `address`.
    pub fn freed_holding(&self, address: u64) -> Option<&Transaction> {
        self.transactions.iter().rev().find(|t| t.freed && t.holds(address))
    }

    /// Returns up to `most` transactions older than `before`, newest first, of one kind and of some threads where asked.
    pub fn before(&self, before: u64, most: usize, freed: Option<bool>, threads: Option<&[u32]>) -> Vec<Transaction> {
        let end = self.transactions.partition_point(|t| t.sequence < before);
        let wanted = self.transactions[..end].iter().rev().filter(|t| {
            freed.is_none_or(|freed| freed == t.freed) && threads.is_none_or(|all| all.contains(&t.thread))
        });
        wanted.take(most).copied().collect()
    }

    fn order<K: Ord>(&self, key: impl Fn(&Transaction) -> K) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.transactions.len() as u32).collect();
        order.sort_by_key(|&i| key(&self.transactions[i as usize]));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_asked_in_many_ways() {
        let entry = |sequence, address, freed| Transaction {
            at: 1000 - sequence,
            sequence,
            address,
            size: 10,
            freed,
            thread: sequence as u32 % 2,
            ..Transaction::default()
        };
        let log = Log::new(vec![entry(4, 50, true), entry(1, 50, false), entry(2, 95, false), entry(3, 90, false)]);
        let sequences = |all: Vec<Transaction>| all.iter().map(|t| t.sequence).collect::<Vec<_>>();
        assert_eq!(sequences(log.of_block(50).copied().collect()), [4, 1]);
        assert_eq!(log.at(997).unwrap().sequence, 3);
        assert_eq!(log.holding(96).unwrap().sequence, 3);
        assert_eq!(log.holding(104).unwrap().sequence, 2);
        assert!(log.holding(60).is_none() && log.holding(0).is_none());
        assert_eq!(log.freed_holding(59).unwrap().sequence, 4);
        assert!(log.freed_holding(96).is_none());
        assert_eq!(sequences(log.before(u64::MAX, 2, None, None)), [4, 3]);
        assert_eq!(sequences(log.before(3, 2, None, None)), [2, 1]);
        assert_eq!(sequences(log.before(u64::MAX, 9, Some(true), None)), [4]);
        assert_eq!(sequences(log.before(u64::MAX, 9, None, Some(&[1]))), [3, 1]);
    }

    #[test]
    fn frees_that_only_their_records_tell_of_come_before() {
        let freed = |address, time| Record { address, time, at: address + 7, size: 8, ..Record::default() };
        let mut log = Log::default();
        log.extend_back(vec![freed(30, 9), freed(10, 5)]);
        assert_eq!(
            log.all().iter().map(|t| (t.sequence, t.address, t.freed)).collect::<Vec<_>>(),
            [(1, 10, true), (2, 30, true)]
        );
        assert_eq!(log.at(37).unwrap().address, 30);
        let mut log = Log::new(vec![Transaction { sequence: 6, address: 50, ..Transaction::default() }]);
        log.extend_back(vec![freed(30, 9), freed(10, 5)]);
        assert_eq!(log.all().iter().map(|t| (t.sequence, t.address)).collect::<Vec<_>>(), [(4, 10), (5, 30), (6, 50)]);
        assert_eq!(log.holding(12).unwrap().address, 10);
    }
}
