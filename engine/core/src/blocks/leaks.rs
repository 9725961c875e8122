//! The unreachable blocks: which are leaked directly, and what each of those keeps alive. [`crate::direct_leaks`] has the method.

use super::index::{Region, Tables};
use super::mark::Marker;
use super::number::Index;
use super::odd::Odd;
use super::runs::REGION;
use crate::control::{Control, Stopped};
use crate::direct_leaks::{self, Leaked, Visited};
use crate::hw;
use std::collections::BTreeMap;

/// What a direct leak keeps alive besides itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The direct leak's granule.
    pub granule: usize,
    /// How many blocks it keeps alive.
    pub count: u64,
    /// Their usable bytes.
    pub bytes: u64,
}

/// What direct leaks keep alive, asked for in address order. A search for each leak would take the most time of a listing.
pub struct KeptInOrder<'a> {
    left: &'a [Kept],
    begun: bool,
}

impl KeptInOrder<'_> {
    /// Returns what the direct leak at a granule keeps alive. No leak before it is asked for again.
    pub fn of(&mut self, granule: usize) -> Kept {
        if !std::mem::replace(&mut self.begun, true) {
            self.left = &self.left[self.left.partition_point(|kept| kept.granule < granule)..];
        }
        while self.left.first().is_some_and(|kept| kept.granule < granule) {
            self.left = &self.left[1..];
        }
        let nothing = Kept { granule, count: 0, bytes: 0 };
        self.left.first().filter(|kept| kept.granule == granule).copied().unwrap_or(nothing)
    }
}

/// The leaked blocks.
pub struct Leaks<I: Index> {
    /// Regions with leaked blocks, in order, each with one bit a granule: begins a leaked block.
    pub leaked: Vec<(I, u64)>,
    /// The direct leaks' granules, in address order.
    pub direct: Vec<I>,
    /// For the direct leaks that keep something alive, in address order.
    pub kept: Vec<Kept>,
    /// How many blocks are leaked.
    pub count: u64,
    /// Their usable bytes.
    pub bytes: u64,
    /// The usable bytes of the direct leaks.
    pub direct_bytes: u64,
}

/// Direct leaks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Usable bytes of each.
    pub size: u64,
    /// Their allocator: see [`super::runs::Owner`].
    pub allocator: u32,
    /// Whether each has its own mapping or extent.
    pub single: bool,
    /// How many direct leaks.
    pub count: u64,
    /// The block with the lowest address.
    pub first: u64,
    /// How many blocks they keep alive.
    pub kept_count: u64,
    /// The usable bytes of those.
    pub kept_bytes: u64,
}

/// Makes the leaked blocks unreachable again, as they were before [`find`]. More can then be marked.
pub fn undo<I: Index, const P: usize>(tables: &mut Tables<I, P>, leaks: &Leaks<I>) {
    for granule in bits(&leaks.leaked) {
        tables.regions[granule / REGION].unmark(granule % REGION);
    }
}

/// Finds the leaks. Call it when marking from the roots is complete.
pub fn find<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    odd: Option<Odd>,
    control: &Control,
) -> Result<Leaks<I>, Stopped> {
    let leaked: Vec<(I, u64)> = hw::fast(|| {
        let masks = tables.regions.iter().map(Region::unmarked).enumerate();
        masks.filter(|&(_, mask)| mask != 0).map(|(region, mask)| (I::new(region), mask)).collect()
    });
    let mut marker = Marker::new(tables);
    marker.odd = odd;
    marker.count_bytes = true;
    let (mut direct, mut kept, mut direct_bytes) = (Vec::new(), Vec::new(), 0);
    let mut graph = Unmarked { marker, leaked: &leaked };
    let nodes = bits(&leaked).map(I::new);
    let (count, bytes) = direct_leaks::find(&mut graph, nodes, control, |node, found| {
        direct.push(node);
        direct_bytes += found.own;
        if found.kept > 0 {
            kept.push(Kept { granule: node.get(), count: found.kept, bytes: found.kept_bytes });
        }
    })?;
    direct.reverse();
    kept.reverse();
    direct.shrink_to_fit();
    Ok(Leaks { leaked, direct, kept, count, bytes, direct_bytes })
}

/// The leaked blocks: those that are not marked. A visit marks them.
struct Unmarked<'a, I: Index, const P: usize> {
    marker: Marker<'a, I, P>,
    leaked: &'a [(I, u64)],
}

impl<I: Index, const P: usize> Leaked for Unmarked<'_, I, P> {
    type Node = I;

    fn is_visited(&self, node: I) -> bool {
        self.marker.tables.is_marked(node.get())
    }

    fn visit(&mut self, node: I, control: &Control) -> Result<Visited, Stopped> {
        self.marker.reach(node.get());
        let (_, own) = self.marker.take_counts();
        self.marker.drain(control)?;
        let (kept, kept_bytes) = self.marker.take_counts();
        Ok(Visited { own, kept, kept_bytes })
    }

    fn forget(&mut self) {
        for granule in bits(self.leaked) {
            self.marker.tables.regions[granule / REGION].unmark(granule % REGION);
        }
    }
}

/// The granules of the set bits, in order.
fn bits<I: Index>(masks: &[(I, u64)]) -> impl Iterator<Item = usize> + '_ {
    masks.iter().flat_map(|&(region, mask)| {
        (0..REGION).filter(move |&bit| mask >> bit & 1 != 0).map(move |bit| region.get() * REGION + bit)
    })
}

impl<I: Index> Leaks<I> {
    /// Returns whether the block whose chunk begins at a granule is leaked.
    pub fn is_leaked(&self, granule: usize) -> bool {
        match self.leaked.binary_search_by_key(&(granule / REGION), |(region, _)| region.get()) {
            Ok(i) => self.leaked[i].1 >> (granule % REGION) & 1 != 0,
            Err(_) => false,
        }
    }

    /// Returns the granules of the leaked blocks from `granule` on, in order.
    pub(super) fn from(&self, granule: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.leaked.partition_point(|(region, _)| region.get() < granule / REGION);
        bits(&self.leaked[first..]).filter(move |&each| each >= granule)
    }

    /// Returns what direct leaks keep alive, for those that ask in address order.
    pub fn in_order(&self) -> KeptInOrder<'_> {
        KeptInOrder { left: &self.kept, begun: false }
    }

    /// Returns the direct leaks by size: those with mappings of their own last, then by the numbers of their allocators, the smallest first.
    pub fn groups<const P: usize>(&self, tables: &Tables<I, P>) -> Vec<Group> {
        let mut groups: BTreeMap<(bool, u32, u64), Group> = BTreeMap::new();
        let (mut run, mut in_order) = (0, self.in_order());
        for granule in self.direct.iter().map(|g| g.get()) {
            while granule / REGION >= tables.word_map.region_end(run) {
                run += 1;
            }
            let block = tables.block(run, granule);
            let found = &tables.word_map.runs[run].run;
            let (allocator, single) = (found.owner.allocator, found.is_oversized());
            let kept = in_order.of(granule);
            let group = groups.entry((single, allocator, block.size)).or_insert(Group {
                size: block.size,
                allocator,
                single,
                count: 0,
                first: block.address,
                kept_count: 0,
                kept_bytes: 0,
            });
            group.count += 1;
            group.kept_count += kept.count;
            group.kept_bytes += kept.bytes;
        }
        groups.into_values().collect()
    }
}
