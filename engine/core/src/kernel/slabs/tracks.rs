//! Who allocated and who freed an object: the two `struct track` behind each object of a cache with SLAB_STORE_USER.

use super::freelists::{state, States};
use super::leaks::Leaks;
use super::table::{Node, Slab, Table, LARGE};
use crate::control::{Control, Stopped};
use crate::kernel::physical::Physical;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};

/// Offsets in `struct track`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackLayout {
    /// Its size.
    pub size: u32,
    /// `addr`: the caller of the allocator.
    pub addr: u32,
    /// `handle` (the number of a stack in the stack depot, 4 bytes), or `addrs` (16 return addresses).
    pub stack: u32,
    /// The bytes of that.
    pub stack_bytes: u32,
    /// `cpu`.
    pub cpu: u32,
    /// `pid`.
    pub pid: u32,
    /// `when`, in jiffies.
    pub when: u32,
}

/// The most bytes of a `struct track`.
const MOST_TRACK: u32 = 512;

impl TrackLayout {
    /// Returns whether all members lie within the structure.
    pub fn is_sane(&self) -> bool {
        let within = |offset: u32, bytes: u32| offset.checked_add(bytes).is_some_and(|end| end <= self.size);
        self.size <= MOST_TRACK
            && within(self.addr, 8)
            && within(self.stack, self.stack_bytes)
            && within(self.cpu, 4)
            && within(self.pid, 4)
            && within(self.when, 8)
    }
}

/// The stack of a track as it lies there: `addr`, then the handle or the addresses.
pub type Key = Vec<u8>;

/// A `struct track` that was filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// The address of the track itself.
    pub at: u64,
    /// The stack.
    pub key: Key,
    /// The CPU.
    pub cpu: i32,
    /// The pid.
    pub pid: i32,
    /// In jiffies.
    pub when: u64,
}

/// Objects of one cache and one stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The number of the cache, or LARGE.
    pub cache: u32,
    /// The bytes of each object.
    pub size: u64,
    /// The stack. None: no track.
    pub key: Option<Key>,
    /// How many objects.
    pub count: u64,
    /// What they keep alive: objects, and their bytes.
    pub kept: (u64, u64),
    /// The oldest, or the first one without tracks: its address, and its time.
    pub oldest: (u64, u64),
}

/// A row of [`Tracks::newest`]: (when, address of the object, its number, the track).
pub type Row = (u64, u64, Node, Track);

/// Reads tracks.
pub struct Tracks<'a> {
    /// All objects.
    pub table: &'a Table,
    /// Offsets. A size of 0: this kernel has no tracks.
    pub layout: TrackLayout,
    /// The dump.
    pub physical: &'a dyn Physical,
}

impl Tracks<'_> {
    /// Returns where the track of an object's allocation (`false`) or last free (`true`) lies, as a physical address.
    fn place(&self, node: Node, freed: bool) -> Option<u64> {
        let slab = self.table.slab_of(node);
        let cache = self.table.caches.get(slab.cache as usize).filter(|cache| cache.track != 0)?;
        let second = if freed { self.layout.size } else { 0 };
        Some(self.table.start(slab, node - slab.first) + u64::from(cache.track) + u64::from(second))
    }

    /// Returns the track of an object's allocation or last free. None where nothing was tracked.
    pub fn of(&self, node: Node, freed: bool) -> Option<Track> {
        if self.layout.size == 0 {
            return None;
        }
        let at = self.place(node, freed)?;
        let mut bytes = vec![0; self.layout.size as usize];
        (self.physical.read(at, &mut bytes) == bytes.len()).then_some(())?;
        self.decode(&bytes, self.table.address(at))
    }

    fn decode(&self, bytes: &[u8], at: u64) -> Option<Track> {
        let l = &self.layout;
        let half = |offset: u32| {
            bytes.get(offset as usize..).and_then(|b| b.first_chunk()).map_or(0, |b| i32::from_le_bytes(*b))
        };
        let word = |offset: u32| {
            bytes.get(offset as usize..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
        };
        if word(l.addr) == 0 {
            return None;
        }
        let mut key = word(l.addr).to_le_bytes().to_vec();
        key.extend_from_slice(bytes.get(l.stack as usize..l.stack.saturating_add(l.stack_bytes) as usize)?);
        Some(Track { at, key, cpu: half(l.cpu), pid: half(l.pid), when: word(l.when) })
    }

    /// Adds up the direct leaks by cache and stack.
    pub fn of_leaks(&self, leaks: &Leaks, control: &Control) -> Result<Vec<Group>, Stopped> {
        let mut groups = Groups::default();
        for (number, direct) in leaks.direct.iter().enumerate() {
            if number % 4096 == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            groups.add(self, direct.node, self.of(direct.node, false), (direct.kept, direct.kept_bytes));
        }
        Ok(groups.all())
    }

    /// Adds up all objects whose state is one of `wanted`, by cache and stack. Objects without a track are left out
    /// unless `untracked`. So are those of `others`, which are sorted.
    pub fn of_states(
        &self,
        all: &States,
        wanted: &[u8],
        untracked: bool,
        others: &[Node],
        control: &Control,
    ) -> Result<Vec<Group>, Stopped> {
        let mut groups = Groups::default();
        self.each(all, wanted, untracked, false, control, |node, track| {
            if others.binary_search(&node).is_err() {
                groups.add(self, node, track, (0, 0));
            }
        })?;
        Ok(groups.all())
    }

    /// Returns (objects, bytes, the newest `most` rows) of the objects that a task allocated and that are still there,
    /// or that it freed.
    pub fn newest(
        &self,
        all: &States,
        freed: bool,
        pid: Option<i32>,
        most: usize,
        control: &Control,
    ) -> Result<(u64, u64, Vec<Row>), Stopped> {
        let mut rows: BinaryHeap<std::cmp::Reverse<(u64, u64, Node)>> = BinaryHeap::new();
        let (mut count, mut bytes) = (0, 0);
        let wanted: &[u8] = if freed { FREE } else { ALLOCATED };
        self.each(all, wanted, false, freed, control, |node, track| {
            let Some(track) = track.filter(|track| pid.is_none_or(|pid| pid == track.pid)) else { return };
            let (address, size, _) = self.table.describe(node);
            (count, bytes) = (count + 1, bytes + size);
            rows.push(std::cmp::Reverse((track.when, address, node)));
            if rows.len() > most {
                rows.pop();
            }
        })?;
        let sorted = rows.into_sorted_vec().into_iter().map(|row| row.0);
        let found = sorted.filter_map(|(when, address, node)| Some((when, address, node, self.of(node, freed)?)));
        Ok((count, bytes, found.collect()))
    }

    /// Calls `each` for the objects in these states, with their tracks.
    fn each(
        &self,
        all: &States,
        wanted: &[u8],
        untracked: bool,
        freed: bool,
        control: &Control,
        mut each: impl FnMut(Node, Option<Track>),
    ) -> Result<(), Stopped> {
        let mut bytes = Vec::new();
        for (index, slab) in self.table.slabs.iter().enumerate() {
            if index % 1024 == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let track = self.table.caches.get(slab.cache as usize).map_or(0, |cache| cache.track);
            let tracked = track != 0 && self.layout.size != 0;
            if !tracked && !untracked {
                continue;
            }
            if tracked {
                self.read(slab, &mut bytes);
            }
            for node in slab.first..slab.first + u32::from(slab.objects) {
                if !wanted.contains(&all.of[node as usize]) {
                    continue;
                }
                let found = if tracked { self.within(slab, node, freed, &bytes) } else { None };
                if found.is_some() || untracked {
                    each(node, found);
                }
            }
        }
        Ok(())
    }

    fn read(&self, slab: &Slab, bytes: &mut Vec<u8>) {
        bytes.resize((slab.pages as usize) << self.table.page_bits(), 0);
        let got = self.physical.read(slab.pfn << self.table.page_bits(), bytes);
        bytes.truncate(got);
    }

    fn within(&self, slab: &Slab, node: Node, freed: bool, bytes: &[u8]) -> Option<Track> {
        let at = self.place(node, freed)?;
        let from = (at - (slab.pfn << self.table.page_bits())) as usize;
        self.decode(bytes.get(from..from + self.layout.size as usize)?, self.table.address(at))
    }
}

/// The states of allocated objects.
pub const ALLOCATED: &[u8] = &[
    state::LEAKED,
    state::PLAIN,
    state::STACK,
    state::UNALIGNED,
    state::PHYSICAL,
    state::OWN,
    state::SET_ASIDE,
    state::UNSURE,
];
/// The states of free objects.
pub const FREE: &[u8] = &[state::FREE, state::FREE_CPU, state::FREE_SHEAF, state::FREE_GUARDED];

#[derive(Default)]
struct Groups {
    found: HashMap<(u32, u64, Option<Key>), Group>,
}

impl Groups {
    fn add(&mut self, tracks: &Tracks, node: Node, track: Option<Track>, kept: (u64, u64)) {
        let (address, size, cache) = tracks.table.describe(node);
        let (key, when) = match track {
            Some(track) => (Some(track.key), track.when),
            None => (None, 0),
        };
        // The size tells large blocks apart.
        let size_key = if cache == LARGE { size } else { 0 };
        match self.found.entry((cache, size_key, key)) {
            Entry::Occupied(mut entry) => {
                let group = entry.get_mut();
                group.count += 1;
                group.kept = (group.kept.0 + kept.0, group.kept.1 + kept.1);
                if (when, address) < (group.oldest.1, group.oldest.0) {
                    group.oldest = (address, when);
                }
            }
            Entry::Vacant(entry) => {
                let key = entry.key().2.clone();
                entry.insert(Group { cache, size, key, count: 1, kept, oldest: (address, when) });
            }
        }
    }

    fn all(self) -> Vec<Group> {
        let mut all: Vec<Group> = self.found.into_values().collect();
        all.sort_by(|a, b| (a.cache, a.size, &a.key).cmp(&(b.cache, b.size, &b.key)));
        all
    }
}
