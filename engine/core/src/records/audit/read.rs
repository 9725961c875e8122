//! Reads the tables of dmods' auditor (audit/format.h). The process may have died at any moment, with anything in its
//! memory.

use super::layout::{word, Layout, Shadow, Table};
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::records::claims::Claims;
use crate::records::format::{self, node, transaction};
use crate::records::log::{Log, Transaction};
use crate::records::record::Record;
use crate::records::stacks::{Node, Stacks};
use crate::records::store::Records;
use crate::words::grow_to;

/// Bytes of a table read at once.
const PART: u64 = 256 << 10;
const MOST_ENTRY: u64 = 4096;

/// What was not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The numbers of the shadow, the stacks or the log make no sense, so nothing of it was read.
    pub layout: bool,
    /// The numbers of the stacks make no sense.
    pub stacks_layout: bool,
    /// The numbers of the log make no sense.
    pub log_layout: bool,
    /// Tables that overlap others, or are not in the dump.
    pub tables: u64,
    /// Records, nodes and transactions that contradict themselves.
    pub entries: u64,
}

/// Reads all tables once.
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

/// Records of live blocks, and records that stayed when their block was freed. The latter have the stack, thread and time
/// of the free.
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
    /// Calls `each(address, bytes)` for the bytes of `[start, start + size)` in the dump, in parts that hold whole
    /// entries of `entry` bytes. Memory that was never written (a hole in the dump) is skipped. Returns false where the
    /// dump ends before the table does, or where the table overlaps another one.
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
            grow_to(&mut self.buffer, want as usize);
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

    /// Returns those of `count` pointers in a row that are not 0, with their places.
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

    /// Takes sizes that did not fit into their record from the following record.
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

    /// Does the same for freed blocks, from number `first` on. Where the following record serves another block, the size
    /// is lost.
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
        if !(node::SIZE as u64..=MOST_ENTRY).contains(&entry) || entry % 8 != 0 || table.chunk_shift > 32 {
            self.damage.stacks_layout = true;
            return Ok(Vec::new());
        }
        let mut nodes: Vec<Node> = Vec::new();
        let count = table.count.min(u64::from(u32::MAX));
        for (index, chunk) in self.pointers(table.chunks, table.chunk_count.into())? {
            // A chunk that is missing ends the table: the numbers of what follows would be wrong.
            let first = index << table.chunk_shift;
            if first >= count || first != nodes.len() as u64 {
                break;
            }
            let here = (count - first).min(1 << table.chunk_shift);
            self.parts(chunk, here * entry, entry, |at, bytes| {
                let index = first + (at - chunk) / entry;
                nodes.resize(index as usize, Node::default());
                for bytes in bytes.chunks_exact(entry as usize) {
                    nodes.push(Node { pc: word(bytes, node::PC_AT), parent: half(bytes, node::PARENT_AT) });
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
        let (true, Some(size)) = ((transaction::SIZE as u64..=MOST_ENTRY).contains(&entry) && entry % 8 == 0, size)
        else {
            self.damage.log_layout = ring.capacity != 0;
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut damaged = 0;
        self.parts(ring.entries, size, entry, |at, bytes| {
            let first = (at - ring.entries) / entry;
            for (index, bytes) in (first..).zip(bytes.chunks_exact(entry as usize)) {
                match read_transaction(bytes) {
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

/// Reads the records in `bytes`, which lie at `at` and belong to the granules from address `base` on. Returns how many
/// made no sense.
fn records(shadow: &Shadow, base: u64, at: u64, bytes: &[u8], out: &mut Found) -> u64 {
    let size = shadow.record_size as usize;
    let mut damaged = 0;
    for (index, bytes) in bytes.chunks_exact(size).enumerate() {
        let live = shadow.live.of(bytes) == 1;
        if !live && !shadow.freed.is_set(bytes) {
            continue;
        }
        // The record of a sample may lie some granules before its block.
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
            // A key with more bits than the tables can have entries is not known.
            stack: u32::try_from(shadow.stack.of(bytes)).unwrap_or(0),
            thread: u32::try_from(shadow.thread.of(bytes)).unwrap_or(0),
        });
    }
    damaged
}

/// Reads a `struct dmods_audit_transaction`. None where nothing was written.
fn read_transaction(bytes: &[u8]) -> Option<Transaction> {
    Some(Transaction {
        sequence: word(bytes, transaction::SEQUENCE_AT),
        address: word(bytes, transaction::ADDRESS_AT),
        size: word(bytes, transaction::SIZE_AT),
        time: word(bytes, transaction::TIME_AT),
        stack: half(bytes, transaction::STACK_AT),
        thread: half(bytes, transaction::THREAD_AT),
        freed: match half(bytes, transaction::EVENT_AT) {
            format::ALLOCATED => false,
            format::FREED => true,
            _ => return None,
        },
        contents_size: half(bytes, transaction::CONTENTS_AT).into(),
        alloc_time: word(bytes, transaction::ALLOC_TIME_AT),
        alloc_stack: half(bytes, transaction::ALLOC_STACK_AT),
        alloc_thread: half(bytes, transaction::ALLOC_THREAD_AT),
        ..Transaction::default()
    })
    .filter(|transaction| transaction.sequence != 0)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|bytes| word(bytes, 0))
}
