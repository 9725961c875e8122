//! The roots, with names and ranks.

use crate::blocks::ends;
use crate::blocks::index::Tables;
use crate::blocks::number::Index;
use crate::blocks::root_reader::RootReader;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// The root that holds the leaked blocks.
pub const LEAKED: u32 = u32::MAX;
/// The root of blocks in use that no aligned word leads to: see [`crate::blocks::marking::Roots::odd`].
pub const UNALIGNED: u32 = u32::MAX - 1;
/// The rank of the allocator's own words.
pub const OWN: u32 = 0;
/// The rank of data. What is above is weak: the lower, the more it counts.
pub const DATA: u32 = 1;

/// The rank of a word that is the end of a block and by chance the beginning of the next: see [`crate::blocks::ends`]. It holds
/// only what nothing else does.
pub const END: u32 = u32::MAX;

/// Memory of one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// The caller's number for the root.
    pub root: u32,
    /// [`OWN`], [`DATA`], or the rank of a stack.
    pub rank: u32,
}

/// A single word that is a root, such as a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// What it holds.
    pub value: u64,
    /// The caller's number for the root.
    pub root: u32,
    /// As in [`Area`].
    pub rank: u32,
}

/// The roots, with names. `areas` are sorted and do not overlap. Of a range that they leave out, root 0 has the words, as data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    /// Memory whose words are roots, as for marking.
    pub ranges: &'a [(u64, u64)],
    /// Whose memory it is.
    pub areas: &'a [Area],
    /// Single roots.
    pub values: &'a [Word],
    /// What else is known of roots on stacks, sorted by root.
    pub homes: &'a [Home],
    /// Addresses of blocks that hold bytes, sorted: their pointers are left over.
    pub leaves: &'a [u64],
    /// Memory in blocks that belongs to roots, sorted: see [`super::parts`]. The blocks themselves do not lead on from there.
    pub parts: &'a [Area],
    /// Blocks that are a root's own.
    pub selves: &'a [Word],
    /// Words in blocks that own nothing, sorted and disjoint.
    pub borrowed: &'a [(u64, u64)],
    /// Blocks whose pointers are all regular, sorted: something proves what they are.
    pub proven: &'a [u64],
    /// Whether pointers count that are not regular: see [`super::regular`].
    pub all_edges: bool,
}

/// What is known of a root on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The caller's number for the root.
    pub root: u32,
    /// The arena that its thread allocates from.
    pub arena: Option<u32>,
    /// Whether it is a variable. Other words of a stack may be left over.
    pub is_variable: bool,
}

/// Calls `each` with (address, target word, root, rank) for every candidate pointer in the roots' memory. The rank of one that
/// is a block's end is [`END`].
pub(super) fn each_word<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    named: Named,
    control: &Control,
    mut each: impl FnMut(u64, usize, u32, u32) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let mut last = Area { start: 1, end: 0, root: 0, rank: DATA };
    let has_ends = !named.all_edges && ends::has_ends(tables);
    for &(start, end) in named.ranges {
        let mut reader = RootReader::new(image, start, end);
        while reader.read(image, &tables.word_map, control)? {
            let ends = if has_ends { ends::in_roots(tables, &reader.found) } else { Vec::new() };
            let mut next_end = ends.into_iter().peekable();
            for (at, &(address, target)) in reader.found.iter().enumerate() {
                if address < last.start || address >= last.end {
                    last = area_of(named.areas, address);
                }
                let is_end = next_end.next_if_eq(&at).is_some();
                each(address, target, last.root, if is_end { END } else { last.rank })?;
            }
        }
    }
    Ok(())
}

/// Returns the area that holds the address, or the gap between two as root 0's.
fn area_of(areas: &[Area], address: u64) -> Area {
    let next = areas.partition_point(|area| area.start <= address);
    let before = next.checked_sub(1).map(|index| areas[index]);
    match before {
        Some(area) if address < area.end => area,
        _ => Area {
            start: before.map_or(0, |area| area.end),
            end: areas.get(next).map_or(u64::MAX, |area| area.start),
            root: 0,
            rank: DATA,
        },
    }
}
