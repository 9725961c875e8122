//! Compares the blocks of several cores, the oldest first.
//!
//! The lists of blocks in use are sorted by address, and are merged in one pass. A block of one core is the block of the
//! next core if it has the same address and size, unless something proves that it is another one: its record has another
//! time, or it is an object of another class. A record with the same time proves that it is the same.
//!
//! Under every key, the bytes of the first core, minus what has gone, plus what is new, are the bytes of the last.

use std::collections::HashMap;

use super::stream::{InUse, Stream};
use super::sums::View;
use crate::control::{Control, Stopped};
use crate::heap::contents::{size_class, Keys};
use crate::heap::model::{Heap, State};
use crate::records::audit::Clock;
use crate::records::{Record, Records};

/// Blocks between two looks at [`Control`].
const CHECK: u64 = 1 << 16;
/// The key of a block that the records do not know.
pub const UNKNOWN: u64 = u64::MAX;

/// What blocks are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Size class.
    Size,
    /// Live, leaked, or the allocator's own.
    State,
    /// The arena's number.
    Arena,
    /// The kind.
    Kind,
    /// The stack that allocated the block.
    Stack,
    /// The thread that allocated the block.
    Thread,
}

/// One core.
pub struct Core<'a> {
    /// Its heap.
    pub heap: &'a dyn Heap,
    /// Its kinds, where they are known.
    pub kinds: Option<View<'a>>,
    /// Its records.
    pub records: Vec<&'a Records>,
    /// For each of them: its clock.
    pub clocks: Vec<Clock>,
    /// For each of them: the caller's key of each thread, by the recorder's number.
    pub threads: Vec<Vec<u64>>,
    /// The caller's key of each arena, by the heap's number. Others keep their number.
    pub arenas: HashMap<u32, u64>,
    /// Module parts as (start, end, what to add to an address to make it comparable), sorted.
    pub modules: Vec<(u64, u64, u64)>,
}

/// How many blocks and how many usable bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Blocks.
    pub count: u64,
    /// Usable bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, size: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

/// The blocks of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// In each core.
    pub totals: Vec<Amount>,
    /// In the first core and not in the last one, or there under another key.
    pub gone: Amount,
    /// In the last core and not in the first one, or there under another key.
    pub new: Amount,
    /// Of the new ones: those that a core between has already.
    pub kept: Amount,
    /// In all cores.
    pub survived: Amount,
    /// Of `survived` and `kept`: those whose records prove that they are the same.
    pub proven: u64,
    /// A block of the last core: the first that was kept, else the first that is new.
    pub example: Option<u64>,
    /// Whether the example was kept.
    example_kept: bool,
    /// The oldest and the newest record of a new block.
    pub times: Option<(u64, u64)>,
}

/// The result.
#[derive(Debug, Default)]
pub struct Growth {
    /// The rows by key.
    pub rows: Vec<(u64, Row)>,
    /// For each key of a stack: the core, its recorder and the stack's key there.
    pub stacks: Vec<(usize, usize, u32)>,
}

/// Compares the cores. `aligned`: their addresses mean the same. Otherwise only the sums are compared.
pub fn compare(cores: &[Core], by: By, aligned: bool, control: &Control) -> Result<Growth, Stopped> {
    let mut comparison = Comparison {
        cores,
        by,
        aligned,
        stacks: Stacks::default(),
        rows: HashMap::default(),
        cursors: cores.iter().map(|core| vec![0; core.records.len()]).collect(),
    };
    comparison.run(control)?;
    let mut rows: Vec<(u64, Row)> = comparison.rows.into_iter().collect();
    rows.sort_by_key(|(key, _)| *key);
    Ok(Growth { rows, stacks: comparison.stacks.places })
}

/// Stacks by their frames, over all cores.
#[derive(Default)]
struct Stacks {
    known: HashMap<(usize, usize, u32), u64>,
    frames: HashMap<Vec<u64>, u64>,
    places: Vec<(usize, usize, u32)>,
}

impl Stacks {
    fn key(&mut self, cores: &[Core], place: (usize, usize, u32)) -> u64 {
        if let Some(&key) = self.known.get(&place) {
            return key;
        }
        let core = &cores[place.0];
        let comparable = |pc: u64| {
            let index = core.modules.partition_point(|part| part.1 <= pc);
            core.modules.get(index).filter(|part| part.0 <= pc).map_or(pc, |part| pc.wrapping_add(part.2))
        };
        let frames: Vec<u64> = core.records[place.1].stacks.nodes(place.2).map(|node| comparable(node.pc)).collect();
        let key = if frames.is_empty() {
            UNKNOWN
        } else {
            let next = self.places.len() as u64;
            let key = *self.frames.entry(frames).or_insert(next);
            if key == next {
                self.places.push(place);
            }
            key
        };
        self.known.insert(place, key);
        key
    }
}

/// A block of one core with what is compared.
#[derive(Clone, Copy)]
struct Seen {
    address: u64,
    size: u64,
    key: u64,
    kind: Option<u32>,
    /// ns of CLOCK_MONOTONIC, and the time as it was written, and how far that may be off.
    time: Option<(u64, (u64, u64))>,
}

struct Comparison<'a, 'b> {
    cores: &'b [Core<'a>],
    by: By,
    aligned: bool,
    stacks: Stacks,
    rows: HashMap<u64, Row, Keys>,
    cursors: Vec<Vec<usize>>,
}

impl Comparison<'_, '_> {
    fn run(&mut self, control: &Control) -> Result<(), Stopped> {
        let cores = self.cores;
        let mut streams: Vec<Stream> = cores.iter().map(|core| Stream::new(core.heap)).collect();
        let mut heads: Vec<Option<InUse>> = streams.iter_mut().map(Iterator::next).collect();
        let mut here: Vec<Option<Seen>> = vec![None; cores.len()];
        let mut steps = 0u64;
        while let Some(address) = heads.iter().flatten().map(|head| head.block.address).min() {
            steps += 1;
            if steps % CHECK == 0 {
                control.add(CHECK);
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
            }
            for index in 0..cores.len() {
                here[index] = None;
                if let Some(head) = heads[index].filter(|head| head.block.address == address) {
                    here[index] = Some(self.seen(index, &head));
                    heads[index] = streams[index].next();
                }
            }
            self.meet(&here);
        }
        Ok(())
    }

    fn seen(&mut self, core: usize, found: &InUse) -> Seen {
        let cores = self.cores;
        let (address, size) = (found.block.address, found.block.size);
        let record = self.record(core, address, size);
        let kind = cores[core].kinds.as_ref().and_then(|kinds| kinds.kind(found.number));
        let key = match self.by {
            By::Size => size_class(size).0,
            By::State => match found.state {
                State::Own => 2,
                State::LeakedDirectly | State::LeakedIndirectly => 1,
                _ => 0,
            },
            By::Arena => {
                let arena = cores[core].heap.run(found.block.run).arena;
                cores[core].arenas.get(&arena).copied().unwrap_or(u64::from(arena))
            }
            By::Kind => kind.map_or(UNKNOWN, u64::from),
            By::Stack => match record {
                Some((recorder, record)) => self.stacks.key(cores, (core, recorder, record.stack)),
                None => UNKNOWN,
            },
            By::Thread => record
                .and_then(|(recorder, record)| cores[core].threads.get(recorder)?.get(record.thread as usize))
                .map_or(UNKNOWN, |&key| key),
        };
        let time = record.filter(|(_, record)| record.time != 0).map(|(recorder, record)| {
            let written = cores[core].clocks.get(recorder).map_or((record.time, 0), |clock| clock.written(record.time));
            (record.time, written)
        });
        Seen { address, size, key, kind, time }
    }

    /// Returns the record of a block. Blocks come in address order, and so do records.
    fn record(&mut self, core: usize, address: u64, size: u64) -> Option<(usize, Record)> {
        for (recorder, records) in self.cores[core].records.iter().enumerate() {
            let all = records.all();
            let cursor = &mut self.cursors[core][recorder];
            while all.get(*cursor).is_some_and(|record| record.address < address) {
                *cursor += 1;
            }
            // A record of more bytes than the block has belongs to an earlier block.
            if let Some(record) = all.get(*cursor).filter(|r| r.address == address && r.size <= size) {
                return Some((recorder, *record));
            }
        }
        None
    }

    fn row(&mut self, key: u64) -> &mut Row {
        let cores = self.cores.len();
        self.rows.entry(key).or_insert_with(|| Row { totals: vec![Amount::default(); cores], ..Row::default() })
    }

    /// Adds up what lies at one address.
    fn meet(&mut self, here: &[Option<Seen>]) {
        for (core, seen) in here.iter().enumerate() {
            if let Some(seen) = seen {
                self.row(seen.key).totals[core].add(seen.size);
            }
        }
        if !self.aligned {
            return;
        }
        let last = here.len() - 1;
        let mut since = last; // the core from which on the block of the last core is there
        let mut proven = true;
        while since > 0 {
            let (Some(before), Some(after)) = (&here[since - 1], &here[since]) else { break };
            match self.same(before, after) {
                Some(is_proven) => proven &= is_proven,
                None => break,
            }
            since -= 1;
        }
        let survives = here[last].is_some() && since == 0;
        let moved = survives && here[0].map(|b| b.key) != here[last].map(|b| b.key);
        if let Some(first) = here[0].filter(|_| !survives || moved) {
            self.row(first.key).gone.add(first.size);
        }
        let Some(seen) = here[last] else { return };
        let row = self.row(seen.key);
        if survives && !moved {
            row.survived.add(seen.size);
            row.proven += u64::from(proven && last > 0);
            return;
        }
        row.new.add(seen.size);
        let kept = since < last;
        if kept {
            row.kept.add(seen.size);
            row.proven += u64::from(proven);
        }
        if row.example.is_none() || (kept && !row.example_kept) {
            (row.example, row.example_kept) = (Some(seen.address), kept);
        }
        if let Some((time, _)) = seen.time {
            let (oldest, newest) = row.times.unwrap_or((time, time));
            row.times = Some((oldest.min(time), newest.max(time)));
        }
    }

    /// Returns whether a block of one core is that of the next: None where it is not, else whether that is proven.
    fn same(&self, before: &Seen, after: &Seen) -> Option<bool> {
        if before.size != after.size {
            return None;
        }
        match (before.time, after.time) {
            (Some((_, a)), Some((_, b))) => return (a.0.abs_diff(b.0) <= a.1 + b.1).then_some(true),
            // The recorder knows the block of one core only. A recorder that samples may have missed the other.
            (None, Some(_)) | (Some(_), None) => return None,
            (None, None) => {}
        }
        (before.kind == after.kind || !self.object(before) || !self.object(after)).then_some(false)
    }

    fn object(&self, seen: &Seen) -> bool {
        // Only the kinds of objects are certain. A structure may change its shape.
        seen.kind.is_some_and(|kind| self.cores[0].kinds.as_ref().is_some_and(|view| view.is_object(kind)))
    }
}
