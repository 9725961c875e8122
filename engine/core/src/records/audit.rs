//! The tables of dmods' auditor, as audit/format.h describes them, out of a process that may have died at any moment, with anything
//! in its memory.

use super::log::{Log, Transaction};
use super::stacks::{Node, Stacks};
use super::{Claims, Record, Records};
use crate::heap::{at_least, Control, Stopped};
use crate::image::Image;

/// Bytes of a table that are read at once.
const PART: u64 = 256 << 10;
/// A record of more bytes than this is none (16 at the time of writing).
const MOST_RECORD: u64 = 256;
const MOST_ENTRY: u64 = 4096;

/// Where a number lies inside the words of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bits {
    pub word: u8,
    pub shift: u8,
    pub width: u8,
}

impl Bits {
    fn of(self, record: &[u8]) -> u64 {
        word(record, self.word as usize * 8) >> self.shift & self.mask()
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    fn fits(self, record_size: u64) -> bool {
        let inside = u64::from(self.word) < record_size / 8;
        inside && self.width >= 1 && u32::from(self.shift) + u32::from(self.width) <= 64
    }

    fn is_set(self, record: &[u8]) -> bool {
        self.fits(record.len() as u64) && self.of(record) == 1
    }
}

/// `struct dmods_audit_shadow`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    pub top: u64,
    pub top_shift: u32,
    pub top_count: u32,
    pub middle_shift: u32,
    pub middle_count: u32,
    pub granule_shift: u32,
    pub leaf_records: u32,
    pub record_size: u32,
    pub offset_shift: u32,
    pub live: Bits,
    /// Of a record that is not live: it says who freed the block (with guards; older auditors have no such field).
    pub freed: Bits,
    pub offset: Bits,
    pub stack: Bits,
    pub thread: Bits,
    pub size: Bits,
    pub time: Bits,
}

/// `struct dmods_audit_table`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    pub chunks: u64,
    pub chunk_shift: u32,
    pub chunk_count: u32,
    pub entry_size: u32,
    pub count: u64,
}

/// `struct dmods_audit_ring`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    pub entries: u64,
    pub capacity: u64,
    pub entry_size: u32,
}

/// What a time is in ns of CLOCK_MONOTONIC: `start + (time << shift) * numerator / denominator`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub start: u64,
    pub shift: u32,
    pub numerator: u64,
    pub denominator: u64,
}

impl Clock {
    pub fn monotonic(&self, time: u64) -> u64 {
        let ticks = u128::from(time) << self.shift.min(63);
        let passed = ticks.saturating_mul(self.numerator.into()) / u128::from(self.denominator.max(1));
        u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(self.start)
    }
}

/// Everything that is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    pub shadow: Shadow,
    pub stacks: Table,
    pub log: Ring,
    pub contents: Ring,
    pub clock: Clock,
    pub frames: usize,
    pub mean: u64,
}

/// What could not be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The numbers of the shadow (or of the stacks, or the log) make no sense: nothing of it was read.
    pub layout: bool,
    pub stacks_layout: bool,
    pub log_layout: bool,
    /// Tables that overlap others, or are not in the dump.
    pub tables: u64,
    /// Records, nodes and transactions that contradict themselves.
    pub entries: u64,
}

/// Reads all of it once.
pub fn read(image: &Image, layout: &Layout, control: &Control) -> Result<(Records, Damage), Stopped> {
    let mut reader =
        Reader { image, control, claims: Claims::default(), damage: Damage::default(), buffer: Vec::new() };
    let stacks = Stacks::new(reader.nodes(&layout.stacks)?, layout.frames);
    let mut found = Found::default();
    if layout.shadow.fits() {
        reader.shadow(&layout.shadow, &mut found)?;
    } else {
        reader.damage.layout = layout.shadow.top != 0;
    }
    for record in found.live.iter_mut().chain(&mut found.freed) {
        record.time = layout.clock.monotonic(record.time);
        record.stack = stacks.known(record.stack.into());
    }
    let log = Log::new(reader.log(layout, &stacks)?);
    let damage = reader.damage;
    let mut records = Records::new(found.live, stacks, log, layout.mean);
    records.remember(found.freed);
    Ok((records, damage))
}

impl Shadow {
    fn fits(&self) -> bool {
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

    fn leaf_size(&self) -> u64 {
        u64::from(self.leaf_records) * u64::from(self.record_size)
    }

    /// Where the record of a granule would lie.
    fn record_at(&self, image: &Image, address: u64) -> Option<u64> {
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

/// Records of blocks that are there, and such as stayed when their block was freed: with the stack, thread and time of the free.
#[derive(Default)]
struct Found {
    live: Vec<Record>,
    freed: Vec<Record>,
}

struct Reader<'a> {
    image: &'a Image,
    control: &'a Control,
    claims: Claims,
    damage: Damage,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Calls `each(address, bytes)` for what is in the dump of `[start, start + size)`, in parts that hold whole entries of `entry` bytes;
    /// what was never written (a hole in the dump) is left out. False where the dump ends before the table does, or where the table lies
    /// in another one.
    fn parts(&mut self, start: u64, size: u64, entry: u64, mut each: impl FnMut(u64, &[u8])) -> Result<bool, Stopped> {
        if !self.claims.claim(start, size) {
            return Ok(size == 0);
        }
        let (end, part) = (start + size, PART / entry * entry);
        let pieces = self.image.covered(start, end);
        let covered: u64 = pieces.iter().map(|(from, to)| to - from).sum();
        let last = pieces.last().map_or(start, |(_, to)| *to);
        let mut at = start;
        while at < end {
            if self.control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            at += (self.image.data_from(at, end) - at) / entry * entry;
            if end - at < entry {
                break;
            }
            let want = part.min(end - at).min(last.saturating_sub(at).next_multiple_of(entry)) / entry * entry;
            at_least(&mut self.buffer, want as usize);
            let got = self.image.read(at, &mut self.buffer[..want as usize]) as u64 / entry * entry;
            each(at, &self.buffer[..got as usize]);
            self.control.add(got);
            at += got;
            if got < want || got == 0 {
                return Ok(false);
            }
        }
        Ok(covered == size)
    }

    /// `count` pointers in a row, those that are 0 left out, with their places.
    fn pointers(&mut self, start: u64, count: u64) -> Result<Vec<(u64, u64)>, Stopped> {
        let mut found = Vec::new();
        let complete = self.parts(start, count * 8, 8, |at, bytes| {
            for (index, word) in (0u64..).zip(words(bytes)) {
                if word != 0 {
                    found.push(((at - start) / 8 + index, word));
                }
            }
        })?;
        self.damage.tables += u64::from(!complete);
        Ok(found)
    }

    fn shadow(&mut self, shadow: &Shadow, out: &mut Found) -> Result<(), Stopped> {
        let count = u64::from(shadow.top_count).min(1 << (64 - shadow.top_shift));
        for (top, middle) in self.pointers(shadow.top, count)? {
            for (index, leaf) in self.pointers(middle, shadow.middle_count.into())? {
                let base = (top << shadow.top_shift) + (index << shadow.middle_shift);
                let first = (out.live.len(), out.freed.len());
                let mut damaged = 0;
                let record_size = u64::from(shadow.record_size);
                let complete = self.parts(leaf, shadow.leaf_size(), record_size, |at, bytes| {
                    let granule = (at - leaf) / record_size;
                    damaged += records(shadow, base + (granule << shadow.granule_shift), at, bytes, out);
                })?;
                self.damage.tables += u64::from(!complete);
                self.damage.entries += damaged;
                self.large(shadow, &mut out.live[first.0..]);
                self.large_freed(shadow, &mut out.freed, first.1);
            }
        }
        Ok(())
    }

    /// Sizes that did not fit into their record stand in the following one.
    fn large(&mut self, shadow: &Shadow, records: &mut [Record]) {
        for record in records.iter_mut().filter(|record| record.size == shadow.size.mask()) {
            let next = record.address.checked_add(1 << shadow.granule_shift);
            let at = next.and_then(|next| shadow.record_at(self.image, next));
            match at.and_then(|at| self.image.word(at.checked_add(8)?, 8)) {
                Some(size) if size >= record.size => record.size = size,
                _ => self.damage.entries += 1,
            }
        }
    }

    /// The same of freed blocks, from number `first` on: where the following record serves another block, the size is gone, and the
    /// block's memory with it.
    fn large_freed(&mut self, shadow: &Shadow, records: &mut Vec<Record>, first: usize) {
        let size_of = |record: &Record| {
            let next = shadow.record_at(self.image, record.address.checked_add(1 << shadow.granule_shift)?)?;
            let unused = self.image.word(next, 8)? == 0;
            self.image.word(next.checked_add(8)?, 8).filter(|&size| unused && size >= record.size)
        };
        let mut kept = first;
        for index in first..records.len() {
            let mut record = records[index];
            if record.size == shadow.size.mask() {
                let Some(size) = size_of(&record) else { continue };
                record.size = size;
            }
            records[kept] = record;
            kept += 1;
        }
        records.truncate(kept);
    }

    fn nodes(&mut self, table: &Table) -> Result<Vec<Node>, Stopped> {
        let entry = u64::from(table.entry_size);
        if table.chunks == 0 || table.count <= 1 {
            return Ok(Vec::new());
        }
        if !(16..=MOST_ENTRY).contains(&entry) || entry % 8 != 0 || table.chunk_shift > 32 {
            self.damage.stacks_layout = true;
            return Ok(Vec::new());
        }
        let mut nodes: Vec<Node> = Vec::new();
        let count = table.count.min(u64::from(u32::MAX));
        for (index, chunk) in self.pointers(table.chunks, table.chunk_count.into())? {
            // A chunk that is not there ends the table: the numbers of what follows would be wrong.
            let first = index << table.chunk_shift;
            if first >= count || first != nodes.len() as u64 {
                break;
            }
            let here = (count - first).min(1 << table.chunk_shift);
            self.parts(chunk, here * entry, entry, |at, bytes| {
                let index = first + (at - chunk) / entry;
                nodes.resize(index as usize, Node::default());
                for bytes in bytes.chunks_exact(entry as usize) {
                    nodes.push(Node { pc: word(bytes, 0), parent: word(bytes, 8) as u32 });
                }
            })?;
        }
        let missing = count.saturating_sub(nodes.len() as u64);
        self.damage.tables += u64::from(missing > 0);
        Ok(nodes)
    }

    fn log(&mut self, layout: &Layout, stacks: &Stacks) -> Result<Vec<Transaction>, Stopped> {
        let (ring, contents) = (&layout.log, &layout.contents);
        let entry = u64::from(ring.entry_size);
        let size = ring.capacity.checked_mul(entry);
        let (true, Some(size)) = ((64..=MOST_ENTRY).contains(&entry) && entry % 8 == 0, size) else {
            self.damage.log_layout = ring.capacity != 0;
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut damaged = 0;
        self.parts(ring.entries, size, entry, |at, bytes| {
            let first = (at - ring.entries) / entry;
            for (index, bytes) in (first..).zip(bytes.chunks_exact(entry as usize)) {
                match transaction(bytes) {
                    None => {}
                    Some(mut one) if (one.sequence - 1) % ring.capacity == index => {
                        one.at = ring.entries + index * entry;
                        one.time = layout.clock.monotonic(one.time);
                        one.alloc_time = if one.alloc_time == 0 { 0 } else { layout.clock.monotonic(one.alloc_time) };
                        one.stack = stacks.known(one.stack.into());
                        one.alloc_stack = stacks.known(one.alloc_stack.into());
                        one.contents_size = one.contents_size.min(contents.entry_size.into());
                        let place = index.checked_mul(contents.entry_size.into());
                        one.contents = match place.and_then(|place| contents.entries.checked_add(place)) {
                            Some(place) if one.contents_size > 0 && index < contents.capacity => place,
                            _ => 0,
                        };
                        found.push(one);
                    }
                    Some(_) => damaged += 1,
                }
            }
        })?;
        self.damage.entries += damaged;
        Ok(found)
    }
}

/// The records in `bytes`, which lie at `at` and are those of the granules from address `base` on. Says how many made no sense.
fn records(shadow: &Shadow, base: u64, at: u64, bytes: &[u8], out: &mut Found) -> u64 {
    let size = shadow.record_size as usize;
    let mut damaged = 0;
    for (index, bytes) in bytes.chunks_exact(size).enumerate() {
        let live = shadow.live.of(bytes) == 1;
        if !live && !shadow.freed.is_set(bytes) {
            continue;
        }
        // A sample may lie some granules before its block's.
        let skip = shadow.offset.of(bytes).checked_mul(1 << shadow.offset_shift);
        let granule = base + ((index as u64) << shadow.granule_shift);
        let Some(address) = skip.and_then(|skip| granule.checked_add(skip)) else {
            damaged += 1;
            continue;
        };
        let of_its_kind = if live { &mut out.live } else { &mut out.freed };
        of_its_kind.push(Record {
            address,
            at: at + (index * size) as u64,
            size: shadow.size.of(bytes),
            time: shadow.time.of(bytes),
            // More bits than the tables can have entries: known to none of them.
            stack: u32::try_from(shadow.stack.of(bytes)).unwrap_or(0),
            thread: u32::try_from(shadow.thread.of(bytes)).unwrap_or(0),
        });
    }
    damaged
}

/// `struct dmods_audit_transaction`; None where nothing was written.
fn transaction(bytes: &[u8]) -> Option<Transaction> {
    let half = |at: usize| (word(bytes, at / 8 * 8) >> (at % 8 * 8)) as u32;
    Some(Transaction {
        sequence: word(bytes, 0),
        address: word(bytes, 8),
        size: word(bytes, 16),
        time: word(bytes, 24),
        stack: half(32),
        thread: half(36),
        freed: match half(40) {
            1 => false,
            2 => true,
            _ => return None,
        },
        contents_size: half(44).into(),
        alloc_time: word(bytes, 48),
        alloc_stack: half(56),
        alloc_thread: half(60),
        ..Transaction::default()
    })
    .filter(|transaction| transaction.sequence != 0)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|bytes| word(bytes, 0))
}
