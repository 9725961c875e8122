//! Marking from the roots of a heap, step by step, and what has leaked.

use super::ends;
use super::holders::{self, Sources};
use super::leaks;
use super::mark::Marker;
use super::number::Index;
use super::odd::{Kinds, Odd};
use super::runs::REGION;
use super::widths::Indexed;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// What marking starts from, and which words count as pointers.
#[derive(Clone, Debug, Default)]
pub struct Roots<'a> {
    /// Memory whose words are roots.
    pub ranges: &'a [(u64, u64)],
    /// Registers, and other words that stand in none of the ranges.
    pub values: &'a [u64],
    /// Words of vector registers. What each alone reaches is counted.
    pub vectors: &'a [u64],
    /// Odd pointers of blocks and of roots that are followed, too.
    pub odd: Option<Kinds>,
    /// Whether words that are a block's end are followed last, and what only they lead to is listed: see [`super::ends`].
    pub ends_last: bool,
}

/// The result of marking.
#[derive(Clone, Debug, Default)]
pub struct Marked {
    /// Words of roots that were candidate pointers.
    pub candidates: u64,
    /// Blocks reached.
    pub reached: u64,
    /// The words of vector registers that alone reach blocks, each with their number.
    pub by_vectors: Vec<(u64, u64)>,
    /// The addresses of the blocks that only ends of blocks lead to.
    pub by_ends: Vec<u64>,
    /// The addresses of others that those keep alive.
    pub beside_ends: Vec<u64>,
    /// The blocks that were not reached.
    pub totals: Totals,
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

/// What changes the states of blocks, in this order. The types of `engine/py` hold each caller to it.
pub trait Marking: Send + Sync {
    /// Sets free the block that begins at each address, in a run without chunks. Returns the addresses where no block in
    /// use begins.
    fn release(&mut self, addresses: &[u64]) -> Vec<u64>;
    /// Makes the blocks that the values lead to the allocator's own: neither leaked nor followed. With `closure`, also
    /// what those blocks lead to. Call it before anything else is marked. Returns how many blocks became the allocator's.
    fn own(&mut self, values: &[u64], closure: bool, control: &Control) -> Result<u64, Stopped>;
    /// Marks what the roots lead to, and finds the leaks. It begins anew: what was marked before does not count. If it is
    /// stopped, nothing is marked.
    fn mark(&mut self, image: &Image, roots: Roots, control: &Control) -> Result<Marked, Stopped>;
    /// Marks what further values lead to, and finds the leaks again. Returns the counts of these values alone. If it is
    /// stopped, nothing is marked any more.
    fn mark_more(&mut self, image: &Image, values: &[u64], control: &Control) -> Result<Marked, Stopped>;
    /// Says for each of `asked` whether a path that avoids the block at `barrier` leads to the block that holds this address. Paths begin
    /// at the roots. If the block at `barrier` is leaked, they begin at the direct leaks instead. All false if no block is there.
    /// For a heap that is marked: the marks stay as they are.
    fn reached_without(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        barrier: u64,
        asked: &[u64],
        control: &Control,
    ) -> Result<Vec<bool>, Stopped>;
}

/// The steps of marking.
impl<I: Index, const P: usize> Indexed<I, P> {
    fn mark_all(&mut self, image: &Image, roots: Roots, control: &Control) -> Result<Marked, Stopped> {
        self.odd = roots.odd;
        self.ends = roots.ends_last.then(|| ends::hide(&mut self.tables));
        let (mut candidates, mut reached) = self.mark_from(image, roots.ranges, roots.values, control)?;
        let mut by_vectors = Vec::new();
        for &value in roots.vectors {
            let (met, alone) = self.mark_from(image, &[], &[value], control)?;
            candidates += met;
            reached += alone;
            if alone > 0 {
                by_vectors.push((value, alone));
            }
        }
        let (by_ends, beside_ends) = self.reveal_ends(control)?;
        reached += (by_ends.len() + beside_ends.len()) as u64;
        let totals = self.find_leaks(image, control)?;
        Ok(Marked { candidates, reached, by_vectors, by_ends, beside_ends, totals })
    }

    /// Makes the heap what it was before [`Marking::mark`]. A marking that was stopped has marked blocks whose pointers
    /// were not followed: another one would pass by what they lead to.
    fn unmark(&mut self) {
        self.change();
        self.leaks = None;
        if let Some(hidden) = self.ends.take() {
            ends::restore(&mut self.tables, &hidden);
        }
        holders::unmark(&mut self.tables, &self.own);
    }

    /// Marks what the words of the ranges and the values lead to. Returns (words that were candidates, blocks reached).
    fn mark_from(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<(u64, u64), Stopped> {
        self.change();
        if let Some(leaks) = self.leaks.take() {
            leaks::undo(&mut self.tables, &leaks);
        }
        let mut marker = Marker::new(&mut self.tables);
        marker.threads = self.threads;
        marker.odd = self.odd.as_ref().map(|kinds| Odd::new(image, kinds));
        marker.ends = self.ends.is_some().then(Vec::new);
        let mut candidates = values.iter().filter(|&&value| marker.register(value)).count() as u64;
        for &(start, end) in ranges {
            candidates += marker.roots(image, start, end, control)?;
        }
        marker.drain(control)?;
        let (reached, _) = marker.take_counts();
        let noted = marker.ends.take();
        if let (Some(hidden), Some(mut noted)) = (&mut self.ends, noted) {
            hidden.in_roots.append(&mut noted);
        }
        Ok((candidates, reached))
    }

    /// Marks what only ends of blocks lead to. Returns the addresses of these blocks, and of others that they keep alive.
    fn reveal_ends(&mut self, control: &Control) -> Result<(Vec<u64>, Vec<u64>), Stopped> {
        self.change();
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

    /// Finds the leaks, once marking is complete.
    fn find_leaks(&mut self, image: &Image, control: &Control) -> Result<Totals, Stopped> {
        self.change();
        let odd = self.odd.as_ref().map(|kinds| Odd::new(image, kinds));
        let leaks = leaks::find(&mut self.tables, odd, control)?;
        let totals = Totals {
            direct_count: leaks.direct.len() as u64,
            direct_bytes: leaks.direct_bytes,
            indirect_count: leaks.count - leaks.direct.len() as u64,
            indirect_bytes: leaks.bytes - leaks.direct_bytes,
        };
        self.leaks = Some(leaks);
        Ok(totals)
    }
}

impl<I: Index, const P: usize> Marking for Indexed<I, P> {
    fn release(&mut self, addresses: &[u64]) -> Vec<u64> {
        self.change();
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
        self.change();
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

    fn mark(&mut self, image: &Image, roots: Roots, control: &Control) -> Result<Marked, Stopped> {
        if self.leaks.is_some() {
            self.unmark();
        }
        self.mark_all(image, roots, control).inspect_err(|_| self.unmark())
    }

    fn mark_more(&mut self, image: &Image, values: &[u64], control: &Control) -> Result<Marked, Stopped> {
        let marked = self.mark_from(image, &[], values, control);
        let found = marked.and_then(|counts| Ok((counts, self.find_leaks(image, control)?)));
        let ((candidates, reached), totals) = found.inspect_err(|_| self.unmark())?;
        Ok(Marked { candidates, reached, totals, ..Marked::default() })
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
        let odd = self.odd.as_ref();
        let sources = match &self.leaks {
            Some(leaks) if leaks.is_leaked(barrier) => {
                direct = leaks.direct.iter().map(|granule| granule.get()).collect();
                Sources { granules: &direct, odd, ..Default::default() }
            }
            _ => Sources { ranges, values, odd, ..Default::default() },
        };
        let known: Vec<usize> = granules.iter().flatten().copied().collect();
        let reached = holders::reached_without(&mut self.tables, image, sources, &self.own, barrier, &known, control)?;
        let mut reached = reached.into_iter();
        Ok(granules.iter().map(|granule| granule.is_some() && reached.next().unwrap_or(false)).collect())
    }
}
