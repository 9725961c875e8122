//! Finds the words of memory that point to given places.
//!
//! In the large heaps of chunks the tables know every candidate pointer, so these are not read again. All other memory is.

use super::index::Tables;
use super::model::Heap;
use super::number::Index;
use super::runs::{Kind, REGION};
use super::widths::by_width;
use super::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::search::{self, Found};

/// Regions between two looks at [`Control`].
const CHECK: usize = 1 << 16;

/// What is searched for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The memory that is searched. Sorted.
    pub ranges: &'a [(u64, u64)],
    /// Memory of which the tables know no pointers. It is searched where it lies in `ranges`, too. Sorted.
    pub dead: &'a [(u64, u64)],
    /// The places `[lo, hi)`, sorted. They do not overlap.
    pub wanted: &'a [(u64, u64)],
    /// For each place, no more words than this.
    pub most: usize,
}

/// Returns for each of the places the addresses of words whose value lies in it, in order.
pub fn pointers(heap: &dyn Heap, image: &Image, asked: Asked, control: &Control) -> Result<Vec<Vec<u64>>, Stopped> {
    by_width!(Widths, heap.widths(), heap => in_memory(heap.tables(), image, asked, control))
}

fn in_memory<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    asked: Asked,
    control: &Control,
) -> Result<Vec<Vec<u64>>, Stopped> {
    let Asked { ranges, dead, wanted, most } = asked;
    let known: Vec<(u64, u64)> = tables
        .word_map
        .runs
        .iter()
        .filter(|placed| is_known(placed.run.kind))
        .map(|p| (p.run.start, p.run.end))
        .collect();
    let mut read = Vec::new();
    for &range in ranges {
        let mut at = range.0;
        for part in overlapping(&known, range) {
            read.push((at, part.0));
            at = part.1;
            read.extend(overlapping(dead, part));
        }
        read.push((at, range.1));
    }
    read.retain(|(start, end)| start < end);
    let mut found = search::pointers(image, &read, WordMap::<P>::WORD, wanted, most, control)?;
    let mut inside = Found::new(wanted, most);
    let targets = targets(&tables.word_map, wanted);
    let mut words = CachedReader::new(image);
    let mut meet = |at: u64| {
        // A single block has one word in the tables, whatever its size: the value tells whether it is meant.
        if let Some(value) =
            words.word(at, WordMap::<P>::WORD).filter(|_| overlapping(ranges, (at, at + 1)).next().is_some())
        {
            inside.take(at, value);
        }
        !inside.is_filled()
    };
    hw::fast_work(Looking { tables, targets: &targets, meet: &mut meet, control })?;
    for (found, inside) in found.iter_mut().zip(inside.places) {
        found.extend(inside);
        found.sort_unstable();
        found.dedup();
        found.truncate(most);
    }
    Ok(found)
}

/// Returns whether the tables know which words of such a run hold candidate pointers. Of a single block they know the
/// pointers, but not their places, and of a slab they leave out free blocks.
fn is_known(kind: Kind) -> bool {
    matches!(kind, Kind::Main | Kind::Thread)
}

/// Returns the parts of sorted ranges within a range.
fn overlapping(ranges: &[(u64, u64)], (start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> + '_ {
    let first = ranges.partition_point(|range| range.1 <= start);
    ranges[first..]
        .iter()
        .take_while(move |range| range.0 < end)
        .map(move |range| (range.0.max(start), range.1.min(end)))
}

/// Returns the numbers of the words in the places, as pairs of the first and the last one, in order.
fn targets<const P: usize>(word_map: &WordMap<P>, wanted: &[(u64, u64)]) -> Vec<(usize, usize)> {
    let mut targets = Vec::new();
    for &(lo, hi) in wanted {
        let first = word_map.runs.partition_point(|placed| placed.hi <= lo);
        for placed in word_map.runs[first..].iter().take_while(|placed| placed.lo < hi) {
            let (lo, hi) = (lo.max(placed.lo), hi.min(placed.hi));
            if lo < hi {
                targets.push((WordMap::<P>::word_in(placed, lo), WordMap::<P>::word_in(placed, hi - 1)));
            }
        }
    }
    targets
}

/// Looks for edges to the targets, as work that is inlined.
struct Looking<'a, I: Index, const P: usize, M> {
    tables: &'a Tables<I, P>,
    targets: &'a [(usize, usize)],
    /// Takes the address of a word. Returns whether more are wanted.
    meet: &'a mut M,
    control: &'a Control,
}

impl<I: Index, const P: usize, M: FnMut(u64) -> bool> hw::Work for Looking<'_, I, P, M> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Looking { tables, targets, meet, control } = self;
        let (Some(&(low, _)), Some(&(_, high))) = (targets.first(), targets.last()) else { return Ok(()) };
        let (word_map, edges) = (&tables.word_map, tables.edges.as_slice());
        for (index, placed) in word_map.runs.iter().enumerate().filter(|(_, placed)| is_known(placed.run.kind)) {
            for number in placed.region..word_map.region_end(index) {
                if number % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let region = &tables.regions[number];
                let (first, count) = (region.edge.get(), region.rank(REGION * P));
                for (place, edge) in edges[first..first + count].iter().enumerate() {
                    let target = edge.get();
                    if target.wrapping_sub(low) > high - low {
                        continue;
                    }
                    let near = targets.partition_point(|target_of| target_of.0 <= target);
                    if near == 0 || targets[near - 1].1 < target {
                        continue;
                    }
                    let word = (number - placed.region) * REGION * P + region.pointer(place);
                    if !meet(placed.run.start + word as u64 * WordMap::<P>::WORD) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
