//! The heap as its users see it, whatever the widths inside.

use super::bins::{self, Bin};
use super::index::{Block, Tables};
use super::leaks::{self, Group, Leaks};
use super::lists::{self, Followed, List};
use super::mark::Marker;
use super::pass::{self, Request, RunReport};
use super::space::{Run, REGION};
use super::{Control, Index, Stopped};
use crate::image::Image;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Live,
    Free,
    LeakedDirectly,
    LeakedIndirectly,
    /// The allocator's own.
    Own,
}

/// What the marking did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marked {
    /// Words of roots that were candidate pointers.
    pub candidates: u64,
    /// Blocks reached.
    pub reached: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub direct_count: u64,
    pub direct_bytes: u64,
    pub indirect_count: u64,
    pub indirect_bytes: u64,
}

/// How many blocks of a size there are (usable bytes), in use and free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCount {
    pub size: u64,
    pub live: u64,
    pub free: u64,
    pub leaked: u64,
    /// The allocator's own.
    pub own: u64,
}

/// A heap, indexed. Made by [`build`]; the free lists come next ([`Heap::follow`]), then [`Heap::mark`], then [`Heap::find_leaks`].
pub trait Heap: Send + Sync {
    /// One for each of [`Heap::chunk_runs`].
    fn reports(&self) -> &[RunReport];
    /// The runs of chunks.
    fn chunk_runs(&self) -> Vec<Run>;
    /// Parts of slabs and extents that are not in the dump.
    fn missing(&self) -> &[(u64, u64)];
    fn run(&self, index: usize) -> Run;
    /// Runs that were left out: they overlap another, or hardly anything of them is in the dump.
    fn dropped(&self) -> &[Run];
    fn follow(&mut self, image: &Image, list: List, set: bool, collect: bool) -> Followed;
    /// Chunks beyond a damaged link of the list: see [`lists::release_orphans`].
    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64;
    /// Follows the arenas' bins.
    fn bins(&self, image: &Image, bins: &[Bin], control: &Control) -> Result<bins::Followed, Stopped>;
    /// Sets free the block that begins at each address, in a run without chunks. Returns the addresses where none does, or a free one.
    fn release(&mut self, addresses: &[u64]) -> Vec<u64>;
    /// The blocks that the values lead to are the allocator's own: neither leaked nor followed. With `closure`, what they lead to, too;
    /// before anything else is marked. Returns how many that are.
    fn own(&mut self, values: &[u64], closure: bool, control: &Control) -> Result<u64, Stopped>;
    /// Marks what the words of `ranges` and the `values` lead to.
    fn mark(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<Marked, Stopped>;
    fn find_leaks(&mut self, control: &Control) -> Result<Totals, Stopped>;
    fn groups(&self) -> Vec<Group>;
    /// Up to `most` blocks in one of `states` from address `from` on, with what a direct leak keeps alive.
    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<(Block, State, u64, u64)>;
    /// The addresses alone of up to `most` blocks in `from..end`, for listings of millions.
    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64>;
    /// The block that `address` points into.
    fn find(&self, address: u64) -> Option<(Block, State, u64, u64)>;
    /// By size, over all runs or those of one arena.
    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount>;
}

struct Model<I: Index, const P: usize> {
    tables: Tables<I, P>,
    reports: Vec<RunReport>,
    dropped: Vec<Run>,
    missing: Vec<(u64, u64)>,
    /// The granules of the allocator's own blocks, sorted.
    own: Vec<usize>,
    leaks: Option<Leaks<I>>,
}

/// The pass over a heap whose pointers have `word` bytes.
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
    Ok(Box::new(Model { tables, reports, dropped, missing, own: Vec::new(), leaks: None }))
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
    /// Calls `each` for every block from address `from` on, in address order, until it says stop.
    fn each_from(&self, from: u64, mut each: impl FnMut(Block) -> bool) {
        let runs = &self.tables.space.runs;
        let mut more = true;
        for (index, placed) in runs.iter().enumerate().skip(runs.partition_point(|p| p.run.end <= from)) {
            let first = self.tables.space.granule_near(index, from.max(placed.run.start));
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
        self.tables.space.runs.iter().map(|p| p.run).filter(|run| run.kind.has_chunks()).collect()
    }

    fn missing(&self) -> &[(u64, u64)] {
        &self.missing
    }

    fn run(&self, index: usize) -> Run {
        self.tables.space.runs[index].run
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
            let bare = |run: usize| !self.tables.space.runs[run].run.kind.has_chunks();
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

    fn mark(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<Marked, Stopped> {
        let mut marker = Marker::new(&mut self.tables);
        let mut candidates = values.iter().filter(|&&value| marker.root(value)).count() as u64;
        for &(start, end) in ranges {
            candidates += marker.roots(image, start, end, control)?;
        }
        marker.drain(control)?;
        let (reached, _) = marker.take_counts();
        Ok(Marked { candidates, reached })
    }

    fn find_leaks(&mut self, control: &Control) -> Result<Totals, Stopped> {
        let leaks = leaks::find(&mut self.tables, control)?;
        let totals = Totals {
            direct_count: leaks.direct.len() as u64,
            direct_bytes: leaks.direct_bytes,
            indirect_count: leaks.count - leaks.direct.len() as u64,
            indirect_bytes: leaks.bytes - leaks.direct_bytes,
        };
        self.leaks = Some(leaks);
        Ok(totals)
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
        for index in 0..self.tables.space.runs.len() {
            if arena.is_some_and(|arena| self.tables.space.runs[index].run.arena != arena) {
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
}
