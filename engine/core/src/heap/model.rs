//! The heap as its users see it, whatever the widths inside.

use super::bins::{self, Bin};
use super::index::{Block, Tables};
use super::leaks::{self, Group, Leaks};
use super::lists::{self, Followed, List};
use super::mark::Marker;
use super::pass::{self, Request, RunReport};
use super::space::{Run, GRANULE};
use super::{Control, Index, Stopped};
use crate::image::Image;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Live,
    Free,
    LeakedDirectly,
    LeakedIndirectly,
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
}

/// A heap, indexed. Made by [`build`]; the free lists come next ([`Heap::follow`]), then [`Heap::mark`], then [`Heap::find_leaks`].
pub trait Heap: Send + Sync {
    fn reports(&self) -> &[RunReport];
    fn runs(&self) -> Vec<Run>;
    fn run(&self, index: usize) -> Run;
    /// Runs that were left out: they overlap another, or hardly anything of them is in the dump.
    fn dropped(&self) -> &[Run];
    fn follow(&mut self, image: &Image, list: List, set: bool, collect: bool) -> Followed;
    /// Chunks beyond a damaged link of the list: see [`lists::release_orphans`].
    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64;
    /// Follows the arenas' bins.
    fn bins(&self, image: &Image, bins: &[Bin], control: &Control) -> Result<bins::Followed, Stopped>;
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
    leaks: Option<Leaks<I>>,
}

/// The pass over a heap whose pointers have `word` bytes.
pub fn build(word: u64, request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    let words: u64 =
        request.runs.iter().map(|r| r.end.saturating_sub(r.start) / word + 256).fold(0, u64::saturating_add);
    match (word, words < <u32 as Index>::LIMIT) {
        (4, true) => model::<u32, 4>(request, control),
        (4, false) => model::<u64, 4>(request, control),
        (_, true) => model::<u32, 2>(request, control),
        (_, false) => model::<u64, 2>(request, control),
    }
}

fn model<I: Index + 'static, const P: usize>(request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    let pass::Built { tables, reports, dropped } = pass::build::<I, P>(request, control)?;
    Ok(Box::new(Model { tables, reports, dropped, leaks: None }))
}

impl<I: Index, const P: usize> Model<I, P> {
    fn state(&self, block: &Block) -> (State, u64, u64) {
        match &self.leaks {
            _ if block.free => (State::Free, 0, 0),
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
            let skip = from.saturating_sub(placed.run.start) / GRANULE;
            // A header's length back: `from` may be in the block of the chunk that begins before it.
            let first = placed.region * super::space::REGION + (skip as usize).saturating_sub(1);
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

    fn runs(&self) -> Vec<Run> {
        self.tables.space.runs.iter().map(|p| p.run).collect()
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
        for (placed, report) in self.tables.space.runs.iter().zip(&self.reports) {
            *free.entry(placed.run.arena).or_default() += report.free_chunks;
        }
        bins::follow(&self.tables, image, bins, &free, control)
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
