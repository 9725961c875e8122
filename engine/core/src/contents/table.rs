//! The table of signatures. Its size has a bound.

use super::counted::Counted;
use super::folds::Folds;
use super::packed::Packed;
use super::signature::{class_index, kind_of, word_kind as k, Form, Signature, CLASSES, WORDS};
use super::sums::{add_same, Entry, Part, Sum};
use crate::hw;
use crate::keys::Keys;

/// Signatures of one size class that are told apart, and those that are told apart coarsely after that. A crafted dump
/// cannot make the tables larger.
const FINE: u32 = 256;
const COARSE: u32 = 512;
/// Signatures of all size classes together.
const MOST: usize = 1 << 16;
/// From so many signatures on, what nearly every block changes has huge pages: it is read at random.
const MANY: usize = 1 << 12;
/// Slots of a new table.
const SLOTS: usize = 1 << 10;

/// The signatures that one thread has met, or all of them.
pub(super) struct Table {
    signatures: Vec<Signature>,
    /// For each of them: what nearly every block changes.
    often: Vec<Often>,
    /// The blocks that are not live: few signatures have some.
    others: Vec<Sum>,
    /// A hash table.
    slots: Vec<Slot>,
    folds: Folds,
    /// How many signatures each size class has.
    of_class: Vec<u32>,
    /// For each size class that has too many: the index plus 1 of the entry for those that are not told apart; 0 where
    /// none has been met.
    various: Vec<u32>,
}

/// A place of the hash table. Two signatures have the same 64 bits of a hash, with keys that a dump cannot know, once in
/// 10^19 pairs: the signatures themselves are not compared.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    /// The entry's index plus 1; 0 where the slot is free.
    index: u32,
}

/// What nearly every block changes: the live blocks of a signature. It is two cache lines, the second for few blocks only.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Often {
    count: u64,
    bytes: u64,
    least: u64,
    most: u64,
    /// The address of the first.
    first: u64,
    /// The place of the sum of the blocks that are not live, plus 1; 0 where all are live.
    others: u32,
    /// See [`Entry::same`].
    same: [u8; WORDS],
    /// The words of which some bytes are the same in all blocks. Words that are zero are not among them.
    open: u8,
    /// See [`Entry::sample`].
    sample: Sample,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Sample([u64; WORDS]);

impl Often {
    /// Adds the live blocks of another one.
    fn add(&mut self, other: &Often) {
        if self.count == 0 {
            (self.count, self.bytes, self.first) = (other.count, other.bytes, other.first);
            (self.least, self.most) = (other.least, other.most);
        } else if other.count > 0 {
            (self.count, self.bytes) = (self.count + other.count, self.bytes.saturating_add(other.bytes));
            (self.least, self.most) = (self.least.min(other.least), self.most.max(other.most));
            self.first = self.first.min(other.first);
        }
    }

    /// Returns the sum of the live blocks.
    fn live(&self) -> Sum {
        match self.count {
            0 => Sum::default(),
            _ => Sum {
                live: (self.count, self.bytes),
                sizes: Some((self.least, self.most)),
                first: Some(self.first),
                ..Sum::default()
            },
        }
    }
}

impl Table {
    /// The table is empty.
    pub fn new(keys: &Keys) -> Table {
        let often = Vec::with_capacity(MOST);
        Table {
            signatures: Vec::new(),
            often,
            others: Vec::new(),
            slots: vec![Slot::default(); SLOTS],
            folds: Folds::new(keys),
            of_class: vec![0; CLASSES],
            various: vec![0; CLASSES],
        }
    }

    /// Returns the hash of a signature, for [`Table::index`]. The CPU is asked to load what that needs.
    #[inline(always)]
    pub fn hash(&self, counted: &Counted) -> u64 {
        let hash = match counted.is_brief {
            true => counted.brief.hash(&self.folds),
            false => counted.packed.hash(&self.folds),
        };
        hw::prefetch(&self.slots, self.slot(hash));
        hash
    }

    /// Where a coarser signature will stand for this one, puts that in its place: a class that has too many signatures gets
    /// no more of them. The slot has been loaded.
    #[inline(always)]
    pub fn coarsen(&self, counted: &mut Counted) {
        let crowded = counted.form() == Form::Shape && self.of_class[counted.class_index()] >= FINE;
        if !crowded {
            return;
        }
        match self.find(counted.hash) {
            Ok(slot) => counted.index = self.slots[slot].index,
            Err(_) => {
                counted.coarsen();
                counted.hash = self.hash(counted);
            }
        }
    }

    /// Finds the entry, once the slot has been loaded. Asks the CPU to load what [`Table::add`] needs.
    #[inline(always)]
    pub fn load(&self, counted: &mut Counted) {
        if counted.index == 0 {
            if let Ok(slot) = self.find(counted.hash) {
                counted.index = self.slots[slot].index;
            }
        }
        let index = (counted.index as usize).wrapping_sub(1);
        hw::prefetch(&self.often, index);
        if let Some(often) = self.often.get(index) {
            hw::prefetch(&often.sample.0, 0);
        }
    }

    #[inline(always)]
    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    /// Returns the index of the signature's entry. Where there are too many, a coarser signature stands for it.
    #[inline(always)]
    fn index(&mut self, counted: &Counted, sample: &[u64; WORDS]) -> u32 {
        let full = |table: &Self| table.of_class[counted.class_index()] >= COARSE || table.signatures.len() >= MOST;
        if counted.coarse && full(self) {
            let class = counted.class_index();
            if self.various[class] == 0 {
                self.various[class] = self.coarser(counted, sample) + 1;
            }
            return self.various[class] - 1;
        }
        if counted.index != 0 {
            return counted.index - 1;
        }
        match self.find(counted.hash) {
            Ok(slot) => self.slots[slot].index - 1,
            Err(_) => self.coarser(counted, sample),
        }
    }

    /// Returns the slot of a hash: Err where it would be.
    #[inline(always)]
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let mut at = self.slot(hash);
        loop {
            let slot = &self.slots[at];
            if slot.index == 0 {
                return Err(at);
            }
            if slot.hash == hash {
                return Ok(at);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns what a new signature is counted with: itself, a coarser one, or the one of all that are not told apart.
    fn wanted(&self, counted: &Counted) -> Counted {
        let of_class = self.of_class[counted.class_index()];
        let full = self.signatures.len() >= MOST;
        let mut wanted = *counted;
        match counted.form() {
            Form::Various | Form::Missing => return wanted,
            Form::Shape if (FINE..COARSE).contains(&of_class) && !full => wanted.coarsen(),
            _ if of_class >= COARSE || full => wanted = counted.various(),
            _ => return wanted,
        }
        wanted.hash = self.hash(&wanted);
        wanted
    }

    /// Returns the index of the entry that stands for a signature which the table does not have.
    #[inline(never)]
    fn coarser(&mut self, counted: &Counted, sample: &[u64; WORDS]) -> u32 {
        let wanted = self.wanted(counted);
        match self.find(wanted.hash) {
            Ok(slot) => self.slots[slot].index - 1,
            Err(slot) => self.append(wanted.signature(), (wanted.hash, slot), sample),
        }
    }

    fn append(&mut self, wanted: Signature, (hash, slot): (u64, usize), sample: &[u64; WORDS]) -> u32 {
        self.of_class[class_index(wanted.class)] += 1;
        let index = self.signatures.len() as u32;
        self.signatures.push(wanted);
        // A word that is zero in the signature of a shape is zero in all its blocks.
        let zero = |i: usize| wanted.form == Form::Shape && kind_of(wanted.words[i]) == k::ZERO;
        let open = (0..WORDS).filter(|&i| !zero(i)).fold(0, |open, i| open | 1 << i);
        let sample = Sample(*sample);
        if self.often.len() == MANY {
            hw::huge_pages(self.often.spare_capacity_mut());
        }
        self.often.push(Often { least: u64::MAX, open, same: [8; WORDS], sample, ..Often::default() });
        self.slots[slot] = Slot { hash, index: index + 1 };
        if self.signatures.len() * 2 > self.slots.len() {
            self.grow();
        }
        index
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = hw::table(Slot::default(), old.len() * 2);
        for found in old.into_iter().filter(|found| found.index != 0) {
            let mut slot = self.slot(found.hash);
            while self.slots[slot].index != 0 {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = found;
        }
    }

    /// Counts a block: its signature, its first words, its address and size. Returns the index of the
    /// entry.
    #[inline(always)]
    pub fn add(&mut self, counted: &Counted, raw: &[u64; WORDS], (address, size): (u64, u64), part: Part) -> u32 {
        let index = self.index(counted, raw);
        let at = index as usize;
        let often = &mut self.often[at];
        if part == Part::Live && often.count > 0 {
            often.count += 1;
            often.bytes = often.bytes.saturating_add(size);
            (often.least, often.most) = (often.least.min(size), often.most.max(size));
        } else {
            self.first(at, (address, size), part);
        }
        let often = &mut self.often[at];
        let mut open = often.open;
        while open != 0 {
            let i = open.trailing_zeros() as usize;
            open &= open - 1;
            let same = often.same[i].min(((often.sample.0[i] ^ raw[i]).trailing_zeros() / 8) as u8);
            often.same[i] = same;
            if same == 0 {
                often.open &= !(1 << i);
            }
        }
        index
    }

    /// Counts the first live block of a signature, or one that is not live.
    fn first(&mut self, at: usize, (address, size): (u64, u64), part: Part) {
        if part == Part::Live {
            let often = &mut self.often[at];
            (often.count, often.bytes, often.least, often.most, often.first) = (1, size, size, size, address);
        } else {
            self.others_of(at).count(address, size, part);
        }
    }

    /// Returns the sum of the blocks of a signature that are not live.
    fn others_of(&mut self, at: usize) -> &mut Sum {
        let place = &mut self.often[at].others;
        if *place == 0 {
            self.others.push(Sum::default());
            *place = self.others.len() as u32;
        }
        &mut self.others[*place as usize - 1]
    }

    /// Adds the blocks of another table. Returns for each of its entries the index of the entry here.
    pub fn join(&mut self, other: &Table) -> Vec<u32> {
        let entries = other.signatures.iter().zip(&other.often);
        entries.map(|(signature, often)| self.join_one(signature, often, &other.others)).collect()
    }

    fn join_one(&mut self, signature: &Signature, other: &Often, others: &[Sum]) -> u32 {
        let mut counted = Counted::of(Packed::from(signature));
        counted.hash = self.hash(&counted);
        let index = self.index(&counted, &other.sample.0);
        let often = &mut self.often[index as usize];
        add_same(&mut often.same, &often.sample.0, &other.sample.0, &other.same);
        often.add(other);
        if other.others != 0 {
            self.others_of(index as usize).add(&others[other.others as usize - 1]);
        }
        index
    }

    /// Returns the entries, in the order of their first blocks.
    pub fn into_entries(self) -> Vec<Entry> {
        let entry = |(signature, often): (&Signature, &Often)| {
            let mut sum = often.live();
            if often.others != 0 {
                sum.add(&self.others[often.others as usize - 1]);
            }
            let count = sum.live.0 + sum.leaked.0 + sum.own.0;
            Entry { signature: *signature, count, sample: often.sample.0, same: often.same, sum }
        };
        self.signatures.iter().zip(&self.often).map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::of;
    use super::*;

    fn counted(table: &Table, signature: &Signature) -> Counted {
        let mut counted = Counted::of(Packed::from(signature));
        counted.hash = table.hash(&counted);
        counted
    }

    #[test]
    fn a_class_with_too_many_signatures_is_not_told_apart() {
        let mut table = Table::new(&Keys::default());
        for i in 0..10_000u64 {
            let mut words = [0; WORDS];
            words[0] = of(k::CODE, i);
            words[1] = of(k::TABLE, i);
            let made = counted(&table, &Signature { class: 72, form: Form::Shape, words });
            let part = if i % 3 == 0 { Part::Leaked } else { Part::Live };
            table.add(&made, &[i; WORDS], (16 * i, 72), part);
        }
        let entries = table.into_entries();
        assert!(entries.len() <= COARSE as usize + 1);
        assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 10_000);
        assert_eq!(entries.iter().map(|entry| entry.sum.leaked.0).sum::<u64>(), 3_334);
    }

    #[test]
    fn a_table_that_grew_finds_every_signature() {
        let mut table = Table::new(&Keys::default());
        let signature = |i: u64| Signature { class: i % 1000, form: Form::Shape, words: [of(k::CODE, i); WORDS] };
        for round in 0..2 {
            for i in 0..5_000 {
                let made = counted(&table, &signature(i));
                assert_eq!(u64::from(table.index(&made, &[0; WORDS])), i, "round {round}");
            }
        }
        assert_eq!(table.signatures.len(), 5_000);
    }
}
