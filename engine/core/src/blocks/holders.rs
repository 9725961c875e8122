//! Which blocks are reachable without one given block.
//!
//! A block that points to `barrier` keeps it alive only if a path from a root leads to that block and avoids `barrier`. The children of
//! `barrier` that point back to it are reachable too, but only through it. Marking again, with `barrier` closed, tells the two apart.

use super::index::{Region, Tables};
use super::mark::Marker;
use super::number::Index;
use super::odd::{Kinds, Odd};
use super::runs::REGION;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// Where a marking starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// Memory whose words are roots.
    pub ranges: &'a [(u64, u64)],
    /// Single roots, such as registers.
    pub values: &'a [u64],
    /// Granules of blocks that count as reached. (The direct leaks, for a question about leaked blocks.)
    pub granules: &'a [usize],
    /// If present, these odd pointers are followed, too.
    pub odd: Option<&'a Kinds>,
}

/// Returns for each granule in `asked` whether a path from `sources` that avoids `barrier` leads to its block.
///
/// Marking ends as soon as all of `asked` are reached, so the usual question takes a part of the time of a whole marking.
/// `closed` are blocks that no marking follows (the allocator's own), sorted. The marks are afterwards what they were before.
pub fn reached_without<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    image: &Image,
    sources: Sources,
    closed: &[usize],
    barrier: usize,
    asked: &[usize],
    control: &Control,
) -> Result<Vec<bool>, Stopped> {
    let unmarked: Vec<(usize, u64)> =
        tables.regions.iter().map(Region::unmarked).enumerate().filter(|&(_, mask)| mask != 0).collect();
    unmark(tables, closed);
    tables.regions[barrier / REGION].mark(barrier % REGION);
    let open = |granule: &usize| *granule != barrier && closed.binary_search(granule).is_err();
    let goals = asked.iter().copied().filter(open).collect();
    let finished = mark(tables, image, sources, goals, control);
    let reached = |granule: &usize| open(granule) && tables.is_marked(*granule);
    let found = asked.iter().map(reached).collect();
    for region in &mut tables.regions {
        set_marks(region, region.start, true);
    }
    for (region, mask) in unmarked {
        set_marks(&mut tables.regions[region], mask, false);
    }
    finished.map(|()| found)
}

/// Takes the marks of all blocks in use away, but for those of `closed`: what nothing has marked yet.
pub fn unmark<I: Index, const P: usize>(tables: &mut Tables<I, P>, closed: &[usize]) {
    let Tables { regions, free, .. } = tables;
    for (region, free) in regions.iter_mut().zip(free.iter()) {
        set_marks(region, region.start & !free, false);
    }
    for &granule in closed {
        regions[granule / REGION].mark(granule % REGION);
    }
}

fn mark<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    image: &Image,
    sources: Sources,
    goals: Vec<usize>,
    control: &Control,
) -> Result<(), Stopped> {
    let mut marker = Marker::new(tables);
    marker.goals = Some(goals);
    marker.odd = sources.odd.map(|kinds| Odd::new(image, kinds));
    for &granule in sources.granules {
        marker.reach(granule);
    }
    for &value in sources.values {
        marker.register(value);
    }
    for &(start, end) in sources.ranges {
        marker.roots(image, start, end, control)?;
        if marker.is_enough() {
            return Ok(());
        }
    }
    marker.drain(control)
}

/// Sets or clears the marks of the chunks that begin at the granules of `mask`.
fn set_marks<I: Index, const P: usize>(region: &mut Region<I, P>, mask: u64, to: bool) {
    let marks = Region::<I, P>::of_chunks(mask);
    for i in 0..P {
        if to {
            *region.bits_mut(i) |= marks.size_words(i);
        } else {
            *region.bits_mut(i) &= !marks.size_words(i);
        }
    }
}
