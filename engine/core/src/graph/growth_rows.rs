//! What the comparison of cores adds up, by key.

use std::collections::HashMap;

use crate::keys::Keys;

/// Keys below this have a table.
const SMALL: usize = 1 << 16;

/// How many blocks and how many usable bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Blocks.
    pub count: u64,
    /// Usable bytes.
    pub bytes: u64,
}

impl Amount {
    #[inline(always)]
    pub(super) fn add(&mut self, size: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

/// The blocks of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// In each core.
    pub totals: Vec<Amount>,
    /// Of these: those that have leaked.
    pub leaked: Vec<Amount>,
    /// In the first core and not in the last one, or there under another key.
    pub gone: Amount,
    /// In the last core and not in the first one, or there under another key.
    pub new: Amount,
    /// Of the new ones: those that a core between has already.
    pub kept: Amount,
    /// In the first core and the last, and in all between whose heap is whole.
    pub survived: Amount,
    /// Of `survived` and `kept`: those whose records prove that they are the same.
    pub proven: u64,
    /// A block of the last core: the first that was kept, else the first that is new.
    pub example: Option<u64>,
    /// Whether the example was kept.
    pub(super) example_kept: bool,
    /// The oldest and the newest record of a new block.
    pub times: Option<(u64, u64)>,
}

impl Row {
    /// Adds blocks that are in all cores, and of which nothing proves that they are the same.
    fn stays(&mut self, same: &Amount) {
        for total in self.totals.iter_mut().chain([&mut self.survived]) {
            total.count += same.count;
            total.bytes = total.bytes.saturating_add(same.bytes);
        }
    }
}

/// The rows by key.
pub(super) struct Rows {
    cores: usize,
    all: Vec<(u64, Row)>,
    /// For each small key: the index of its row plus 1, or 0. Kinds, sizes, arenas and threads are small numbers.
    small: Vec<u32>,
    others: HashMap<u64, u32, Keys>,
    /// For each small key: blocks that are the same in all cores and are not yet in its row. This table fits in a cache,
    /// the rows do not.
    same: Vec<Amount>,
}

impl Rows {
    pub fn new(cores: usize) -> Rows {
        Rows {
            cores,
            all: Vec::new(),
            small: vec![0; SMALL],
            others: HashMap::default(),
            same: vec![Amount::default(); SMALL],
        }
    }

    #[inline(always)]
    pub fn of(&mut self, key: u64) -> &mut Row {
        let known = match self.small.get(key as usize) {
            Some(&known) => known,
            None => self.others.get(&key).copied().unwrap_or(0),
        };
        let index = if known > 0 { known as usize - 1 } else { self.add(key) };
        &mut self.all[index].1
    }

    /// Adds a block that is the same in all cores.
    #[inline(always)]
    pub fn add_same(&mut self, key: u64, size: u64) {
        match self.same.get_mut(key as usize) {
            Some(same) => same.add(size),
            None => self.of(key).stays(&Amount { count: 1, bytes: size }),
        }
    }

    /// Returns the rows by key.
    pub fn finish(mut self) -> Vec<(u64, Row)> {
        for (key, same) in std::mem::take(&mut self.same).iter().enumerate().filter(|(_, same)| same.count > 0) {
            self.of(key as u64).stays(same);
        }
        self.all.sort_by_key(|(key, _)| *key);
        self.all
    }

    #[cold]
    fn add(&mut self, key: u64) -> usize {
        let index = self.all.len();
        let none = vec![Amount::default(); self.cores];
        self.all.push((key, Row { totals: none.clone(), leaked: none, ..Row::default() }));
        match self.small.get_mut(key as usize) {
            Some(slot) => *slot = index as u32 + 1,
            None => {
                self.others.insert(key, index as u32 + 1);
            }
        }
        index
    }
}
