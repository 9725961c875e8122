//! The heap, independent of the widths inside.

use super::bins::{self, Bin};
use super::holders::{self, Sources};
use super::index::{Block, Tables};
use super::leaks::{self, Group, Leaks};
use super::lists::{self, Followed, List};
use super::mark::{Marker, Unaligned};
use super::number::Index;
use super::pass::{self, Request, RunReport};
use super::runs::{Run, REGION};
use crate::control::{Control, Stopped};
use crate::graph::owners::{Alike, Kept, Line, Named, Owners, Scope};
use crate::graph::paths::{self, Origin, Wanted};
use crate::image::Image;
use std::collections::HashMap;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use and reachable, or not yet decided.
    Live,
    /// Free.
    Free,
    /// Leaked, and no other leaked block leads to it.
    LeakedDirectly,
    /// Leaked, and another leaked block leads to it.
    LeakedIndirectly,
    /// The allocator's own.
    Own,
}

/// The result of marking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marked {
    /// Words of roots that were candidate pointers.
    pub candidates: u64,
    /// Blocks reached.
    pub reached: u64,
}

/// The sums over all leaks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// How many direct leaks.
    pub direct_count: u64,
    /// Their usable bytes.
    pub direct_bytes: u64,
    /// How many indirect leaks.
    pub indirect_count: u64,
    /// Their usable bytes.
    pub indirect_bytes: u64,
}

/// How many blocks of a size (usable bytes) are in use and free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCount {
    /// Usable bytes of each block.
    pub size: u64,
    /// Blocks in use and not leaked.
    pub live: u64,
    /// Free blocks.
    pub free: u64,
    /// Leaked blocks.
    pub leaked: u64,
    /// The allocator's own.
    pub own: u64,
}

/// An indexed heap. [`build`] makes it. Then call [`Heap::follow`] for the free lists, [`Heap::mark`], and
/// [`Heap::find_leaks`].
pub trait Heap: Send + Sync {
    /// One for each of [`Heap::chunk_runs`].
    fn reports(&self) -> &[RunReport];
    /// The runs of chunks.
    fn chunk_runs(&self) -> Vec<Run>;
    /// Parts of slabs and extents that are not in the dump.
    fn missing(&self) -> &[(u64, u64)];
    /// Returns run number `index`.
    fn run(&self, index: usize) -> Run;
    /// Runs that were left out: they overlap another, or almost nothing of them is in the dump.
    fn dropped(&self) -> &[Run];
    /// Follows a free list. With `set` its chunks become free; with `collect` their blocks' addresses are returned.
    fn follow(&mut self, image: &Image, list: List, set: bool, collect: bool) -> Followed;
    /// Sets free the chunks after a damaged link: see [`lists::release_orphans`].
    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64;
    /// Follows the arenas' bins.
    fn bins(&self, image: &Image, bins: &[Bin], control: &Control) -> Result<bins::Followed, Stopped>;
    /// Sets free the block that begins at each address, in a run without chunks. Returns the addresses where no block in
    /// use begins.
    fn release(&mut self, addresses: &[u64]) -> Vec<u64>;
    /// Makes the blocks that the values lead to the allocator's own: neither leaked nor followed. With `closure`, also
    /// what those blocks lead to. Call it before anything else is marked. Returns how many blocks became the allocator's.
    fn own(&mut self, values: &[u64], closure: bool, control: &Control) -> Result<u64, Stopped>;
    /// From now on a pointer may begin at any byte, of blocks and of roots. `dead` is the memory inside blocks that holds
    /// none, sorted. Call it before [`Heap::mark`].
    fn take_unaligned(&mut self, dead: Vec<(u64, u64)>);
    /// Marks what the words of `ranges` and the `values` lead to.
    fn mark(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<Marked, Stopped>;
    /// Finds the leaks, once marking is complete.
    fn find_leaks(&mut self, image: &Image, control: &Control) -> Result<Totals, Stopped>;
    /// Says for each of `asked` whether a path that avoids the block at `barrier` leads to the block that holds this address. Paths begin
    /// at the roots. If the block at `barrier` is leaked, they begin at the direct leaks instead. All false if no block is there.
    /// For a heap whose leaks have been found: the marks stay as they are.
    fn reached_without(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        barrier: u64,
        asked: &[u64],
        control: &Control,
    ) -> Result<Vec<bool>, Stopped>;
    /// Returns the direct leaks by size.
    fn groups(&self) -> Vec<Group>;
    /// Returns up to `most` blocks in one of `states` from address `from` on, with what a direct leak keeps alive.
    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<(Block, State, u64, u64)>;
    /// Returns only the addresses of up to `most` blocks in `from..end`, for listings of millions.
    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64>;
    /// Returns the block that `address` points into.
    fn find(&self, address: u64) -> Option<(Block, State, u64, u64)>;
    /// Returns the sizes, over all runs or those of one arena.
    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount>;
    /// Finds the owners of all blocks, once the leaks have been found. Before that, the questions below have empty answers.
    fn find_owners(&mut self, image: &Image, named: Named, control: &Control) -> Result<(), Stopped>;
    /// See [`Owners::lines`].
    fn owner_lines(&self) -> Vec<Line>;
    /// See [`Owners::above`].
    fn owners_above(&self, address: u64, most: usize) -> Option<(Vec<Kept>, u32)>;
    /// See [`Owners::largest`].
    fn largest(&self, scope: Scope, most: usize) -> Vec<Kept>;
    /// See [`Owners::addresses`].
    fn addresses_in(&self, scope: Scope, from: u64, most: usize) -> Vec<u64>;
    /// See [`Owners::alike`].
    fn alike(
        &self,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped>;
    /// Returns a shortest path to the block at `address`: its origin, and the addresses of the blocks. See [`paths`].
    fn path(
        &self,
        image: &Image,
        named: Named,
        root: Option<u32>,
        address: u64,
        control: &Control,
    ) -> Result<Option<(Origin, Vec<u64>)>, Stopped>;
}

struct Model<I: Index, const P: usize> {
    tables: Tables<I, P>,
    reports: Vec<RunReport>,
    dropped: Vec<Run>,
    missing: Vec<(u64, u64)>,
    /// The granules of the allocator's own blocks, sorted.
    own: Vec<usize>,
    leaks: Option<Leaks<I>>,
    owners: Option<Owners>,
    /// If present, pointers may begin at any byte; and memory inside blocks that is dead.
    unaligned: Option<Vec<(u64, u64)>>,
}

/// Runs the pass over a heap whose pointers have `word` bytes.
pub fn build(word: u64, request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    let words_of = |run: &Run| (run.granules() as u64).saturating_mul(16 / word).saturating_add(256);
    let words: u64 = request.runs.iter().map(words_of).fold(0, u64::saturating_add);
    match (word, words < <u32 as Index>::LIMIT) {
        (4, true) => model::<u32, 4>(request, control),
        (4, false) => model::<u64, 4>(request, control),
        (_, true) => model::<u32, 2>(request, control),
        (_, false) => model::<u64, 2>(request, control),
    }
}

fn model<I: Index + 'static, const P: usize>(request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    let pass::Built { tables, reports, dropped, missing } = pass::build::<I, P>(request, control)?;
    Ok(Box::new(Model {
        tables,
        reports,
        dropped,
        missing,
        own: Vec::new(),
        leaks: None,
        unaligned: None,
        owners: None,
    }))
}

impl<I: Index, const P: usize> Model<I, P> {
    fn is_own(&self, granule: usize) -> bool {
        self.own.binary_search(&granule).is_ok()
    }

    fn state(&self, block: &Block) -> (State, u64, u64) {
        match &self.leaks {
            _ if block.free => (State::Free, 0, 0),
            _ if self.is_own(block.granule) => (State::Own, 0, 0),
            Some(leaks) if leaks.is_leaked(block.granule) => {
                if leaks.is_direct(block.granule) {
                    let kept = leaks.kept_by(block.granule);
                    (State::LeakedDirectly, kept.count, kept.bytes)
                } else {
                    (State::LeakedIndirectly, 0, 0)
                }
            }
            _ => (State::Live, 0, 0),
        }
    }
}

impl<I: Index, const P: usize> Model<I, P> {
    /// Calls `each` for every block from address `from` on, in address order, until it returns false.
    fn each_from(&self, from: u64, mut each: impl FnMut(Block) -> bool) {
        let runs = &self.tables.word_map.runs;
        let mut more = true;
        for (index, placed) in runs.iter().enumerate().skip(runs.partition_point(|p| p.run.end <= from)) {
            let first = self.tables.word_map.granule_near(index, from.max(placed.run.start));
            self.tables.each_block(index, first, |granule| {
                let block = self.tables.block(index, granule);
                more = block.address < from || each(block);
                more
            });
            if !more {
                return;
            }
        }
    }
}

impl<I: Index, const P: usize> Heap for Model<I, P> {
    fn reports(&self) -> &[RunReport] {
        &self.reports
    }

    fn chunk_runs(&self) -> Vec<Run> {
        self.tables.word_map.runs.iter().map(|p| p.run).filter(|run| run.kind.has_chunks()).collect()
    }

    fn missing(&self) -> &[(u64, u64)] {
        &self.missing
    }

    fn run(&self, index: usize) -> Run {
        self.tables.word_map.runs[index].run
    }

    fn dropped(&self) -> &[Run] {
        &self.dropped
    }

    fn follow(&mut self, image: &Image, list: List, set: bool, collect: bool) -> Followed {
        lists::follow(&mut self.tables, image, list, set, collect)
    }

    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64 {
        lists::release_orphans(&mut self.tables, image, list, key)
    }

    fn bins(&self, image: &Image, bins: &[Bin], control: &Control) -> Result<bins::Followed, Stopped> {
        let mut free: HashMap<u32, u64> = HashMap::new();
        for (run, report) in self.chunk_runs().iter().zip(&self.reports) {
            *free.entry(run.arena).or_default() += report.free_chunks;
        }
        bins::follow(&self.tables, image, bins, &free, control)
    }

    fn release(&mut self, addresses: &[u64]) -> Vec<u64> {
        let mut wrong = Vec::new();
        for &address in addresses {
            let bare = |run: usize| !self.tables.word_map.runs[run].run.kind.has_chunks();
            match self.tables.find(address) {
                Some(block) if block.address == address && !block.free && bare(block.run) => {
                    self.tables.set_free(block.granule);
                }
                _ => wrong.push(address),
            }
        }
        wrong
    }

    fn own(&mut self, values: &[u64], closure: bool, control: &Control) -> Result<u64, Stopped> {
        let mut found = Vec::new();
        let mut marker = Marker::new(&mut self.tables);
        marker.journal = Some(Vec::new());
        for &value in values {
            if closure {
                marker.root(value);
            } else if let Some(block) = marker.tables.find(value).filter(|block| !block.free) {
                marker.tables.regions[block.granule / REGION].mark(block.granule % REGION);
                found.push(block.granule);
            }
        }
        marker.drain(control)?;
        found.append(&mut marker.journal.take().unwrap_or_default());
        self.own.append(&mut found);
        self.own.sort_unstable();
        self.own.dedup();
        Ok(self.own.len() as u64)
    }

    fn take_unaligned(&mut self, dead: Vec<(u64, u64)>) {
        self.unaligned = Some(dead);
    }

    fn mark(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<Marked, Stopped> {
        let mut marker = Marker::new(&mut self.tables);
        marker.unaligned = self.unaligned.as_deref().map(|dead| Unaligned::new(image, dead));
        let mut candidates = values.iter().filter(|&&value| marker.root(value)).count() as u64;
        for &(start, end) in ranges {
            candidates += marker.roots(image, start, end, control)?;
        }
        marker.drain(control)?;
        let (reached, _) = marker.take_counts();
        Ok(Marked { candidates, reached })
    }

    fn find_leaks(&mut self, image: &Image, control: &Control) -> Result<Totals, Stopped> {
        let unaligned = self.unaligned.as_deref().map(|dead| Unaligned::new(image, dead));
        let leaks = leaks::find(&mut self.tables, unaligned, control)?;
        let totals = Totals {
            direct_count: leaks.direct.len() as u64,
            direct_bytes: leaks.direct_bytes,
            indirect_count: leaks.count - leaks.direct.len() as u64,
            indirect_bytes: leaks.bytes - leaks.direct_bytes,
        };
        self.leaks = Some(leaks);
        Ok(totals)
    }

    fn reached_without(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        barrier: u64,
        asked: &[u64],
        control: &Control,
    ) -> Result<Vec<bool>, Stopped> {
        let Some(barrier) = self.tables.find(barrier).map(|block| block.granule) else {
            return Ok(vec![false; asked.len()]);
        };
        let granules: Vec<Option<usize>> =
            asked.iter().map(|&address| self.tables.find(address).filter(|b| !b.free).map(|b| b.granule)).collect();
        let direct: Vec<usize>;
        let unaligned = self.unaligned.as_deref();
        let sources = match &self.leaks {
            Some(leaks) if leaks.is_leaked(barrier) => {
                direct = leaks.direct.iter().map(|granule| granule.get()).collect();
                Sources { granules: &direct, unaligned, ..Default::default() }
            }
            _ => Sources { ranges, values, unaligned, ..Default::default() },
        };
        let known: Vec<usize> = granules.iter().flatten().copied().collect();
        let reached = holders::reached_without(&mut self.tables, image, sources, &self.own, barrier, &known, control)?;
        let mut reached = reached.into_iter();
        Ok(granules.iter().map(|granule| granule.is_some() && reached.next().unwrap_or(false)).collect())
    }

    fn groups(&self) -> Vec<Group> {
        self.leaks.as_ref().map_or(Vec::new(), |leaks| leaks.groups(&self.tables))
    }

    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<(Block, State, u64, u64)> {
        let mut out = Vec::new();
        self.each_from(from, |block| {
            let (state, count, bytes) = self.state(&block);
            if states.contains(&state) {
                out.push((block, state, count, bytes));
            }
            out.len() < most
        });
        out
    }

    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64> {
        let mut out = Vec::new();
        self.each_from(from, |block| {
            if block.address < end && states.contains(&self.state(&block).0) {
                out.push(block.address);
            }
            block.address < end && out.len() < most
        });
        out
    }

    fn find(&self, address: u64) -> Option<(Block, State, u64, u64)> {
        let block = self.tables.find(address)?;
        let (state, count, bytes) = self.state(&block);
        Some((block, state, count, bytes))
    }

    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount> {
        let mut counts: HashMap<u64, SizeCount> = HashMap::new();
        for index in 0..self.tables.word_map.runs.len() {
            if arena.is_some_and(|arena| self.tables.word_map.runs[index].run.arena != arena) {
                continue;
            }
            self.tables.each_block(index, 0, |granule| {
                let block = self.tables.block(index, granule);
                let entry = counts.entry(block.size).or_insert(SizeCount { size: block.size, ..Default::default() });
                if block.free {
                    entry.free += 1;
                } else if self.is_own(granule) {
                    entry.own += 1;
                } else if self.leaks.as_ref().is_some_and(|leaks| leaks.is_leaked(granule)) {
                    entry.leaked += 1;
                } else {
                    entry.live += 1;
                }
                true
            });
        }
        let mut out: Vec<SizeCount> = counts.into_values().collect();
        out.sort_by_key(|c| c.size);
        out
    }

    fn find_owners(&mut self, image: &Image, named: Named, control: &Control) -> Result<(), Stopped> {
        let leaks = self.leaks.as_ref();
        self.owners = Some(Owners::find(&self.tables, image, named, &self.own, leaks, control)?);
        Ok(())
    }

    fn owner_lines(&self) -> Vec<Line> {
        self.owners.as_ref().map_or(Vec::new(), Owners::lines)
    }

    fn owners_above(&self, address: u64, most: usize) -> Option<(Vec<Kept>, u32)> {
        self.owners.as_ref()?.above(&self.tables, address, most)
    }

    fn largest(&self, scope: Scope, most: usize) -> Vec<Kept> {
        self.owners.as_ref().map_or(Vec::new(), |owners| owners.largest(&self.tables, scope, most))
    }

    fn addresses_in(&self, scope: Scope, from: u64, most: usize) -> Vec<u64> {
        self.owners.as_ref().map_or(Vec::new(), |owners| owners.addresses(&self.tables, scope, from, most))
    }

    fn alike(
        &self,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped> {
        let Some(owners) = &self.owners else { return Ok(Vec::new()) };
        owners.alike(&self.tables, image, scope, ranges, control)
    }

    fn path(
        &self,
        image: &Image,
        named: Named,
        root: Option<u32>,
        address: u64,
        control: &Control,
    ) -> Result<Option<(Origin, Vec<u64>)>, Stopped> {
        let Some(goal) = self.tables.find(address).filter(|block| !block.free).map(|block| block.granule) else {
            return Ok(None);
        };
        let leaks = self.leaks.as_ref();
        let direct = leaks.map_or(&[][..], |leaks| &leaks.direct);
        let wanted = Wanted { root, leaked: leaks.is_some_and(|leaks| leaks.is_leaked(goal)) };
        let found = paths::shortest(&self.tables, image, named, (&self.own, direct), wanted, goal, control)?;
        let word_map = &self.tables.word_map;
        let address = |granule: usize| word_map.user(word_map.run_of_granule(granule), granule);
        Ok(found.map(|(origin, path)| (origin, path.into_iter().map(address).collect())))
    }
}
