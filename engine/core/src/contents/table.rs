//! The table of signatures. Its size has a bound.

use super::brief::Brief;
use super::folds::Folds;
use super::packed::Packed;
use super::signature::{class_index, coarse, kind_of, word_kind as k, Form, Signature, CLASSES, WORDS};
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
    entries: Vec<Entry>,
    /// For each entry: what nearly every block changes.
    often: Vec<Often>,
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

/// What nearly every block changes: the live blocks of an entry. It is two cache lines, the second for few blocks only.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Often {
    count: u64,
    bytes: u64,
    least: u64,
    most: u64,
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

/// A signature that waits to be counted. One that can be [`Brief`] always is: the hash depends on it.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    /// The signature, where it can be brief.
    pub brief: Brief,
    /// The signature, where it cannot.
    pub packed: Packed,
    /// Which of the two it is.
    pub is_brief: bool,
    /// Its hash.
    pub hash: u64,
    /// Whether it stands for others of its size class, which has too many.
    pub coarse: bool,
    /// The index of its entry plus 1; 0 where that has not been found.
    pub index: u32,
}

impl Counted {
    pub const EMPTY: Counted =
        Counted { brief: Brief::EMPTY, packed: Packed::EMPTY, is_brief: false, hash: 0, coarse: false, index: 0 };

    fn of(packed: Packed) -> Counted {
        let mut counted = Counted { packed, ..Counted::EMPTY };
        counted.shorten();
        counted
    }

    /// Makes it brief where it can be. Call it when `packed` is complete.
    #[inline(always)]
    pub fn shorten(&mut self) {
        if let Some(brief) = self.packed.brief() {
            (self.brief, self.is_brief) = (brief, true);
        }
    }

    #[inline(always)]
    fn class_index(&self) -> usize {
        if self.is_brief {
            self.brief.class_index()
        } else {
            self.packed.class_index()
        }
    }

    #[inline(always)]
    fn is_shape(&self) -> bool {
        self.is_brief || self.packed.form == Form::Shape
    }

    /// Puts the coarser signature in its place.
    #[inline(always)]
    fn coarsen(&mut self) {
        self.coarse = true;
        if self.is_brief {
            self.brief.coarsen();
        } else {
            self.packed.coarsen();
            self.shorten();
        }
    }

    fn signature(&self) -> Signature {
        if self.is_brief {
            self.brief.signature()
        } else {
            self.packed.signature()
        }
    }
}

impl Table {
    /// The table is empty.
    pub fn new(keys: &Keys) -> Table {
        let often = Vec::with_capacity(MOST);
        Table {
            entries: Vec::new(),
            often,
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
        let crowded = counted.is_shape() && self.of_class[counted.class_index()] >= FINE;
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
        let full = |table: &Self| table.of_class[counted.class_index()] >= COARSE || table.entries.len() >= MOST;
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

    /// Returns the signature that a new one is counted with.
    fn wanted(&self, signature: &Signature) -> Signature {
        let of_class = self.of_class[class_index(signature.class)];
        let full = self.entries.len() >= MOST;
        match signature.form {
            Form::Various | Form::Missing => *signature,
            Form::Shape if (FINE..COARSE).contains(&of_class) && !full => coarse(*signature),
            _ if of_class >= COARSE || full => Signature { form: Form::Various, words: [0; WORDS], ..*signature },
            _ => *signature,
        }
    }

    /// Returns the index of the entry that stands for a signature which the table does not have.
    #[inline(never)]
    fn coarser(&mut self, counted: &Counted, sample: &[u64; WORDS]) -> u32 {
        let wanted = self.wanted(&counted.signature());
        let hash = self.hash(&Counted::of(Packed::from(&wanted)));
        match self.find(hash) {
            Ok(slot) => self.slots[slot].index - 1,
            Err(slot) => self.append(wanted, (hash, slot), sample),
        }
    }

    fn append(&mut self, wanted: Signature, (hash, slot): (u64, usize), sample: &[u64; WORDS]) -> u32 {
        self.of_class[class_index(wanted.class)] += 1;
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            signature: wanted,
            count: 0,
            sample: [0; WORDS],
            same: [0; WORDS],
            sum: Sum::default(),
        });
        // A word that is zero in the signature of a shape is zero in all its blocks.
        let zero = |i: usize| wanted.form == Form::Shape && kind_of(wanted.words[i]) == k::ZERO;
        let open = (0..WORDS).filter(|&i| !zero(i)).fold(0, |open, i| open | 1 << i);
        let sample = Sample(*sample);
        if self.often.len() == MANY {
            hw::huge_pages(self.often.spare_capacity_mut());
        }
        self.often.push(Often { least: u64::MAX, open, same: [8; WORDS], sample, ..Often::default() });
        self.slots[slot] = Slot { hash, index: index + 1 };
        if self.entries.len() * 2 > self.slots.len() {
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

    /// Counts the first live block of an entry, or one that is not live.
    fn first(&mut self, at: usize, (address, size): (u64, u64), part: Part) {
        let entry = &mut self.entries[at];
        entry.sum.first.get_or_insert(address);
        if part == Part::Live {
            let often = &mut self.often[at];
            (often.count, often.bytes, often.least, often.most) = (1, size, size, size);
        } else {
            entry.sum.count(address, size, part);
        }
    }

    /// Adds the blocks of another table's entry. Returns the index of the entry here.
    pub fn join(&mut self, other: &Entry) -> u32 {
        let mut counted = Counted::of(Packed::from(&other.signature));
        counted.hash = self.hash(&counted);
        let index = self.index(&counted, &other.sample);
        let often = &mut self.often[index as usize];
        add_same(&mut often.same, &often.sample.0, &other.sample, &other.same);
        self.entries[index as usize].sum.add(&other.sum);
        index
    }

    /// Returns the entries, in the order of their first blocks.
    pub fn into_entries(mut self) -> Vec<Entry> {
        for (entry, live) in self.entries.iter_mut().zip(&self.often) {
            if live.count > 0 {
                let (live, sizes) = ((live.count, live.bytes), Some((live.least, live.most)));
                entry.sum.add(&Sum { live, sizes, ..Sum::default() });
            }
            (entry.sample, entry.same) = (live.sample.0, live.same);
            entry.count = entry.sum.live.0 + entry.sum.leaked.0 + entry.sum.own.0;
        }
        self.entries
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
        assert_eq!(table.entries.len(), 5_000);
    }
}
