//! The layout of the auditor's tables, as audit/format.h describes it.

use crate::image::Image;

/// A larger record is not valid. Records have 16 bytes at present.
const MOST_RECORD: u64 = 256;

/// Where a number lies inside the words of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bits {
    /// Which word of the record.
    pub word: u8,
    /// The lowest bit.
    pub shift: u8,
    /// How many bits.
    pub width: u8,
}

impl Bits {
    pub(super) fn of(self, record: &[u8]) -> u64 {
        word(record, self.word as usize * 8) >> self.shift & self.mask()
    }

    pub(super) fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    pub(super) fn fits(self, record_size: u64) -> bool {
        let inside = u64::from(self.word) < record_size / 8;
        inside && self.width >= 1 && u32::from(self.shift) + u32::from(self.width) <= 64
    }

    pub(super) fn is_set(self, record: &[u8]) -> bool {
        self.fits(record.len() as u64) && self.of(record) == 1
    }
}

/// `struct dmods_audit_shadow`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    /// The address of the top table.
    pub top: u64,
    /// log2 of the address space for each entry of the top table.
    pub top_shift: u32,
    /// Entries of the top table.
    pub top_count: u32,
    /// log2 of the address space for each entry of a middle table.
    pub middle_shift: u32,
    /// Entries of a middle table.
    pub middle_count: u32,
    /// log2 of the bytes of a granule.
    pub granule_shift: u32,
    /// Records of a leaf.
    pub leaf_records: u32,
    /// Bytes of a record.
    pub record_size: u32,
    /// log2 of the unit of `offset`.
    pub offset_shift: u32,
    /// Whether the block is live.
    pub live: Bits,
    /// For a record that is not live: the field says who freed the block. With guards only; older auditors do not have
    /// it.
    pub freed: Bits,
    /// The block's offset in its granule.
    pub offset: Bits,
    /// The key of the stack.
    pub stack: Bits,
    /// The thread.
    pub thread: Bits,
    /// The size.
    pub size: Bits,
    /// The time.
    pub time: Bits,
}

/// `struct dmods_audit_table`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    /// The address of the table of chunks.
    pub chunks: u64,
    /// log2 of the entries of a chunk.
    pub chunk_shift: u32,
    /// How many chunks there can be.
    pub chunk_count: u32,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// How many entries are used.
    pub count: u64,
}

/// `struct dmods_audit_ring`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    /// The address of the first entry.
    pub entries: u64,
    /// How many entries there is room for.
    pub capacity: u64,
    /// Bytes of an entry.
    pub entry_size: u32,
}

/// Converts a time to ns of CLOCK_MONOTONIC: `start + (time << shift) * numerator / denominator`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// CLOCK_MONOTONIC at time 0.
    pub start: u64,
    /// How far a time is shifted.
    pub shift: u32,
    /// The numerator of the rate.
    pub numerator: u64,
    /// The denominator of the rate.
    pub denominator: u64,
}

impl Clock {
    /// Returns a time as ns of CLOCK_MONOTONIC.
    pub fn monotonic(&self, time: u64) -> u64 {
        let ticks = u128::from(time) << self.shift.min(63);
        let passed = ticks.saturating_mul(self.numerator.into()) / u128::from(self.denominator.max(1));
        u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(self.start)
    }

    /// Returns the time that the recorder wrote, and how far it may be off, because ns are coarser than ticks.
    ///
    /// The rate is measured again and again, so two cores convert one time differently. What was written is the same.
    pub fn written(&self, time: u64) -> (u64, u64) {
        let (numerator, denominator) = (u128::from(self.numerator.max(1)), u128::from(self.denominator.max(1)));
        let ticks = u128::from(time.saturating_sub(self.start)) * denominator / numerator;
        let shift = self.shift.min(63);
        let off = ((denominator / numerator) >> shift) + 1;
        let fits = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        (fits(ticks >> shift), fits(off))
    }
}

/// Where all tables are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// The shadow: a record for each granule.
    pub shadow: Shadow,
    /// The stacks.
    pub stacks: Table,
    /// The log.
    pub log: Ring,
    /// The copies of freed blocks' first bytes.
    pub contents: Ring,
    /// The clock.
    pub clock: Clock,
    /// The most frames of a stack.
    pub frames: usize,
    /// Mean bytes between two samples.
    pub mean: u64,
}

impl Shadow {
    pub(super) fn fits(&self) -> bool {
        let size = u64::from(self.record_size);
        let fields = [self.live, self.offset, self.stack, self.thread, self.size, self.time];
        let granule = self.granule_shift;
        let power = |count: u32| count.is_power_of_two().then(|| count.trailing_zeros());
        let (Some(leaf), Some(middle)) = (power(self.leaf_records), power(self.middle_count)) else { return false };
        self.top != 0
            && size % 8 == 0
            && (8..=MOST_RECORD).contains(&size)
            && fields.iter().all(|bits| bits.fits(size))
            && (3..=16).contains(&granule)
            && self.offset_shift <= granule
            && self.middle_shift == granule + leaf
            && self.top_shift == self.middle_shift + middle
            && self.top_shift < 64
    }

    pub(super) fn leaf_size(&self) -> u64 {
        u64::from(self.leaf_records) * u64::from(self.record_size)
    }

    /// Returns where the record of a granule would lie.
    pub(super) fn record_at(&self, image: &Image, address: u64) -> Option<u64> {
        let top = address >> self.top_shift;
        if top >= self.top_count.into() {
            return None;
        }
        let middle = image.word(self.top.checked_add(top * 8)?, 8).filter(|&at| at != 0)?;
        let index = (address >> self.middle_shift) % u64::from(self.middle_count);
        let leaf = image.word(middle.checked_add(index * 8)?, 8).filter(|&at| at != 0)?;
        let index = (address >> self.granule_shift) % u64::from(self.leaf_records);
        leaf.checked_add(index * u64::from(self.record_size))
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
