//! The heap over the tables of the pass: the answers to what [`super::model::Heap`] asks.

use super::bins::{self, Bin};
use super::contents::{self, Census, Place};
use super::ends::{self, Hidden};
use super::holders::{self, Sources};
use super::index::{Block, Tables};
use super::leaks::{self, Group, Leaks};
use super::listing::Listing;
use super::lists::{self, Followed, List};
use super::mark::Marker;
use super::model::{Heap, Marked, SizeCount, State, Totals};
use super::number::Index;
use super::pass::{self, Request, RunReport};
use super::runs::{Run, REGION};
use super::sizes;
use super::states::States;
use super::unaligned::Unaligned;
use super::word_map::EDGES_APART;
use crate::control::{Control, Stopped};
use crate::graph::numbering::Numbering;
use crate::graph::owners::{Alike, Kept, Line, Owners, Scope};
use crate::graph::paths::{self, Origin, Wanted};
use crate::graph::reference::Reference;
use crate::graph::roots::Named;
use crate::image::Image;
use std::collections::HashMap;
use std::sync::OnceLock;

struct Model<I: Index, const P: usize> {
    tables: Tables<I, P>,
    reports: Vec<RunReport>,
    dropped: Vec<Run>,
    missing: Vec<(u64, u64)>,
    /// The granules of the allocator's own blocks, sorted.
    own: Vec<usize>,
    leaks: Option<Leaks<I>>,
    owners: Option<Owners>,
    /// The sizes over all runs. Emptied by what changes the state of a block.
    sizes: OnceLock<Vec<SizeCount>>,
    /// If present, pointers may begin at any byte; and memory inside blocks that is dead.
    unaligned: Option<Vec<(u64, u64)>>,
    /// If present, the ends of blocks that are hidden.
    ends: Option<Hidden<I>>,
}

/// Runs the pass over a heap whose pointers have `word` bytes.
pub fn build(word: u64, request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    let apart = |run: &Run| 256 + if run.is_large() { EDGES_APART as u64 } else { 0 };
    let words_of = |run: &Run| (run.granules() as u64).saturating_mul(16 / word).saturating_add(apart(run));
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
        ends: None,
        owners: None,
        sizes: OnceLock::new(),
    }))
}

impl<I: Index, const P: usize> Model<I, P> {
    fn listing(&self) -> Listing<'_, I, P> {
        Listing { tables: &self.tables, leaks: self.leaks.as_ref(), own: &self.own }
    }

    fn states(&self) -> States<'_, I> {
        States::new(self.leaks.as_ref(), &self.own)
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
        self.sizes.take();
        lists::follow(&mut self.tables, image, list, set, collect)
    }

    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64 {
        self.sizes.take();
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
        self.sizes.take();
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
        self.sizes.take();
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
        self.sizes.take();
        if let Some(leaks) = self.leaks.take() {
            leaks::undo(&mut self.tables, &leaks);
        }
        let mut marker = Marker::new(&mut self.tables);
        marker.unaligned = self.unaligned.as_deref().map(|dead| Unaligned::new(image, dead));
        marker.ends = self.ends.is_some().then(Vec::new);
        let mut candidates = values.iter().filter(|&&value| marker.root(value)).count() as u64;
        for &(start, end) in ranges {
            candidates += marker.roots(image, start, end, control)?;
        }
        marker.drain(control)?;
        let (reached, _) = marker.take_counts();
        let noted = marker.ends.take();
        if let (Some(hidden), Some(mut noted)) = (&mut self.ends, noted) {
            hidden.in_roots.append(&mut noted);
        }
        Ok(Marked { candidates, reached })
    }

    fn hide_ends(&mut self) {
        if let Some(hidden) = self.ends.take() {
            ends::restore(&mut self.tables, &hidden);
        }
        self.ends = Some(ends::hide(&mut self.tables));
    }

    fn reveal_ends(&mut self, control: &Control) -> Result<(Vec<u64>, Vec<u64>), Stopped> {
        self.sizes.take();
        let Some(hidden) = self.ends.take() else { return Ok((Vec::new(), Vec::new())) };
        let held = ends::reveal(&mut self.tables, &hidden, &self.own);
        let mut marker = Marker::new(&mut self.tables);
        marker.journal = Some(Vec::new());
        for &granule in &held {
            marker.reach(granule);
        }
        marker.drain(control)?;
        let mut kept = marker.journal.take().unwrap_or_default();
        kept.retain(|granule| held.binary_search(granule).is_err());
        kept.sort_unstable();
        let word_map = &self.tables.word_map;
        let address = |granule: usize| word_map.user(word_map.run_of_granule(granule), granule);
        Ok((held.into_iter().map(address).collect(), kept.into_iter().map(address).collect()))
    }

    fn find_leaks(&mut self, image: &Image, control: &Control) -> Result<Totals, Stopped> {
        self.sizes.take();
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
        self.listing().blocks(states, from, most)
    }

    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64> {
        self.listing().addresses(states, from, end, most)
    }

    fn find(&self, address: u64) -> Option<(Block, State, u64, u64)> {
        self.listing().find(address)
    }

    fn direct_leaks(&self, from: usize, most: usize) -> Vec<(Block, State, u64, u64)> {
        self.listing().direct_leaks(from, most)
    }

    fn numbering(&self) -> Option<Numbering> {
        Numbering::new(&self.tables.regions)
    }

    fn number_of(&self, numbering: &Numbering, granule: usize) -> usize {
        numbering.of(&self.tables.regions, granule)
    }

    fn census(
        &self,
        image: &Image,
        places: &[Place],
        direct: bool,
        threads: usize,
        control: &Control,
    ) -> Result<Census, Stopped> {
        let list = direct.then(|| self.leaks.as_ref().map_or(&[][..], |leaks| leaks.direct.as_slice()));
        contents::census(&self.tables, self.states(), list, image, places, threads, control)
    }

    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount> {
        match arena {
            None => self.sizes.get_or_init(|| sizes::count(&self.tables, self.states(), None)).clone(),
            Some(_) => sizes::count(&self.tables, self.states(), arena),
        }
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

    fn reference(&self, kind: &dyn Fn(usize) -> u32) -> Reference {
        self.owners.as_ref().map_or_else(Reference::default, |owners| owners.reference(&self.tables, kind))
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

    fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    fn vertices(&self) -> Vec<u32> {
        self.owners.as_ref().map_or(Vec::new(), |owners| owners.vertices(&self.tables))
    }

    fn within(&self, scope: Scope) -> Vec<bool> {
        self.owners.as_ref().map_or(Vec::new(), |owners| owners.within(&self.tables, scope))
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
        let leaked = leaks.is_some_and(|leaks| leaks.is_leaked(goal));
        // A path through the structures says more than one through a word that is left over.
        let cut = self.owners.as_ref().map(|owners| &owners.set_aside).filter(|cut| cut.count > 0);
        let search = |cut| {
            let wanted = Wanted { root, leaked, cut };
            paths::shortest(&self.tables, image, named, (&self.own, direct), wanted, goal, control)
        };
        let found = match (search(cut)?, cut) {
            (None, Some(_)) => search(None)?,
            (found, _) => found,
        };
        let word_map = &self.tables.word_map;
        let address = |granule: usize| word_map.user(word_map.run_of_granule(granule), granule);
        Ok(found.map(|(origin, path)| (origin, path.into_iter().map(address).collect())))
    }
}
