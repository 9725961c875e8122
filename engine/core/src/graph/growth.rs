//! Compares the blocks of several cores, the oldest first.
//!
//! The lists of blocks in use are sorted by address, and are merged in one pass. A block of one core is the block of the
//! next core if it has the same address and size, unless something proves that it is another one: its record has another
//! time, or it is an object of another class. A record with the same time proves that it is the same. A core whose heap
//! is not whole does not say that a block was not there: the core before it decides.
//!
//! Under every key, the bytes of the first core, minus what has gone, plus what is new, are the bytes of the last.

use std::collections::HashMap;

use super::by_stack::Cursor;
use super::growth_rows::Rows;
pub use super::growth_rows::{Amount, Row};
use super::stream::{InUse, Stream};
use super::sums::View;
use crate::blocks::model::{Heap, State};
use crate::contents::size_class;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::records::audit::Clock;
use crate::records::Records;

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
    /// The key that is given for each block: [`Core::keys`].
    Given,
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
    /// The key of each block in use, in address order, for [`By::Given`].
    pub keys: Vec<u64>,
    /// Module parts as (start, end, what to add to an address to make it comparable), sorted.
    pub modules: Vec<(u64, u64, u64)>,
    /// Whether all of its heap is in the dump.
    pub whole: bool,
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
        rows: Rows::new(cores.len()),
        cursors: cores.iter().map(|core| Cursor::new(&core.records)).collect(),
    };
    hw::fast_work(Comparing { comparison: &mut comparison, control })?;
    Ok(Growth { rows: comparison.rows.finish(), stacks: comparison.stacks.places })
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
    leaked: bool,
    /// ns of CLOCK_MONOTONIC, and the time as it was written, and how far that may be off.
    time: Option<(u64, (u64, u64))>,
}

impl Seen {
    /// Returns whether the others are the same block, which no record knows and which has not leaked.
    #[inline(always)]
    fn stays(&self, others: &[Option<Seen>]) -> bool {
        let alike = |other: &Seen| {
            let same = (self.size, self.key, self.kind) == (other.size, other.key, other.kind);
            same && other.time.is_none() && !other.leaked
        };
        self.time.is_none()
            && !self.leaked
            && !others.is_empty()
            && others.iter().all(|other| other.as_ref().is_some_and(alike))
    }
}

fn is_leaked(state: State) -> bool {
    matches!(state, State::LeakedDirectly | State::LeakedIndirectly)
}

struct Comparison<'a, 'b> {
    cores: &'b [Core<'a>],
    by: By,
    aligned: bool,
    stacks: Stacks,
    rows: Rows,
    cursors: Vec<Cursor<'a>>,
}

/// The comparison, as work that is inlined.
struct Comparing<'c, 'a, 'b> {
    comparison: &'c mut Comparison<'a, 'b>,
    control: &'c Control,
}

impl hw::Work for Comparing<'_, '_, '_> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        self.comparison.run(self.control)
    }
}

impl Comparison<'_, '_> {
    #[inline(always)]
    fn run(&mut self, control: &Control) -> Result<(), Stopped> {
        let cores = self.cores;
        let mut streams: Vec<Stream> = cores.iter().map(|core| Stream::new(core.heap)).collect();
        let mut heads: Vec<Option<u64>> = streams.iter_mut().map(Stream::next_address).collect();
        let mut here: Vec<Option<Seen>> = vec![None; cores.len()];
        let mut steps = 0u64;
        let mut step = || {
            steps += 1;
            if steps % CHECK == 0 {
                control.add(CHECK);
            }
            steps % CHECK == 0 && control.cancelled()
        };
        let quick = self.aligned && cores.iter().all(|core| core.records.is_empty());
        loop {
            if quick && matches!(self.by, By::Kind | By::Size) {
                while self.pass_alike(&mut streams) {
                    if step() {
                        return Err(Stopped::Cancelled);
                    }
                }
                heads.iter_mut().zip(&mut streams).for_each(|(head, stream)| *head = stream.next_address());
            }
            let Some(address) = heads.iter().flatten().min().copied() else { return Ok(()) };
            if step() {
                return Err(Stopped::Cancelled);
            }
            for index in 0..cores.len() {
                here[index] = None;
                if heads[index] == Some(address) {
                    here[index] = streams[index].next().map(|found| self.seen(index, &found));
                    heads[index] = streams[index].next_address();
                }
            }
            self.meet(&here);
        }
    }

    /// Takes the next block of each core, where all are the same. Most are, and no record matters.
    #[inline(always)]
    fn pass_alike(&mut self, streams: &mut [Stream]) -> bool {
        let kind = |core: usize, number: usize| self.cores[core].kinds.as_ref().and_then(|kinds| kinds.kind(number));
        let Some(first) = streams[0].peek() else { return false };
        let (address, size, known) = (first.block.address, first.block.size, kind(0, first.number));
        if is_leaked(first.state) {
            return false;
        }
        for (core, stream) in streams.iter_mut().enumerate().skip(1) {
            let Some(other) = stream.peek() else { return false };
            if (other.block.address, other.block.size) != (address, size)
                || kind(core, other.number) != known
                || is_leaked(other.state)
            {
                return false;
            }
        }
        streams.iter_mut().for_each(Stream::pass);
        let key = if self.by == By::Size { size_class(size).0 } else { known.map_or(UNKNOWN, u64::from) };
        self.rows.add_same(key, size);
        true
    }

    #[inline(always)]
    fn seen(&mut self, core: usize, found: &InUse) -> Seen {
        let cores = self.cores;
        let (address, size) = (found.block.address, found.block.size);
        let recorded = !cores[core].records.is_empty();
        let record = if recorded { self.cursors[core].of(address, size) } else { None };
        let kind = cores[core].kinds.as_ref().and_then(|kinds| kinds.kind(found.number));
        let key = match self.by {
            By::Size => size_class(size).0,
            By::State => match found.state {
                State::Own => 2,
                state => u64::from(is_leaked(state)),
            },
            By::Arena => {
                let arena = cores[core].heap.run(found.block.run).owner.arena;
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
            By::Given => cores[core].keys.get(found.number).copied().unwrap_or(UNKNOWN),
        };
        let time = record.filter(|(_, record)| record.time != 0).map(|(recorder, record)| {
            let written = cores[core].clocks.get(recorder).map_or((record.time, 0), |clock| clock.written(record.time));
            (record.time, written)
        });
        Seen { address, size, key, kind, leaked: is_leaked(found.state), time }
    }

    /// Adds up what lies at one address.
    #[inline(always)]
    fn meet(&mut self, here: &[Option<Seen>]) {
        // Most blocks are in all cores, and nothing about them has changed. See below for the others.
        if let Some(seen) = here[0].filter(|seen| self.aligned && seen.stays(&here[1..])) {
            self.rows.add_same(seen.key, seen.size);
            return;
        }
        for (core, seen) in here.iter().enumerate() {
            if let Some(seen) = seen {
                let row = self.rows.of(seen.key);
                row.totals[core].add(seen.size);
                if seen.leaked {
                    row.leaked[core].add(seen.size);
                }
            }
        }
        if !self.aligned {
            return;
        }
        let last = here.len() - 1;
        let mut since = last; // the core from which on the block of the last core is there
        let mut proven = true;
        while let (Some(before), Some(after)) = (self.before(here, since), &here[since]) {
            match here[before].as_ref().and_then(|earlier| self.same(earlier, after)) {
                Some(is_proven) => proven &= is_proven,
                None => break,
            }
            since = before;
        }
        let survives = here[last].is_some() && since == 0;
        let moved = survives && here[0].map(|b| b.key) != here[last].map(|b| b.key);
        if let Some(first) = here[0].filter(|_| !survives || moved) {
            self.rows.of(first.key).gone.add(first.size);
        }
        let Some(seen) = here[last] else { return };
        let row = self.rows.of(seen.key);
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

    /// Returns the last core before core `since` that has a block there. None: a whole core shows that there was none.
    #[inline(always)]
    fn before(&self, here: &[Option<Seen>], since: usize) -> Option<usize> {
        (0..since).rev().find(|&core| here[core].is_some() || self.cores[core].whole)
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
