//! Words in blocks that are roots, or that own nothing.
//!
//! The variables of a language with a runtime lie in blocks: those of a module of Python in the table of its dictionary. The
//! functions of the module lead to that table, and so does every object that has a function. So a variable would own
//! nothing alone. Here such words belong to roots of their own, as words of data do, and the block does not lead on from there.
//!
//! Three steps, each of which closes what it has reached: what holds variables ([`Named::selves`]), the rest of its memory
//! ([`BODY`]), and the variables ([`VARIABLE`]). A part of another rank is a word of a stack.

use super::edges::Edges;
use super::offsets::offsets;
use super::roots::{Area, Named};
use crate::blocks::index::{edges_of, Tables};
use crate::blocks::number::Index;
use crate::blocks::word_map::WordMap;
use crate::control::Stopped;
use crate::image::Image;

/// The rank of the memory of what holds variables: a module, a class.
pub const BODY: u32 = 0;
/// The rank of a variable.
pub const VARIABLE: u32 = 1;

/// Calls `found` with (index of the range, address of the word, edge) for each pointer in the ranges, which are sorted.
fn each_in<I: Index, const P: usize, R>(
    tables: &Tables<I, P>,
    image: &Image,
    ranges: &[R],
    limits: impl Fn(&R) -> (u64, u64),
    mut found: impl FnMut(usize, u64, usize) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let mut next = 0;
    while let Some(range) = ranges.get(next) {
        let Some(block) = tables.find(limits(range).0).filter(|block| !block.free) else {
            next += 1;
            continue;
        };
        let (mut at, mut answer) = (next, Ok(()));
        let edges = edges_of(&tables.regions, block.granule);
        for (offset, edge) in offsets(tables, image, &block, edges).into_iter().zip(edges.0..) {
            let address = block.address.saturating_add(offset as u64 * WordMap::<P>::WORD);
            while ranges.get(at).is_some_and(|range| limits(range).1 <= address) {
                at += 1;
            }
            if answer.is_ok() && ranges.get(at).is_some_and(|range| limits(range).0 <= address) {
                answer = found(at, address, edge);
            }
        }
        answer?;
        let end = block.address.saturating_add(block.size);
        next += ranges[next..].partition_point(|range| limits(range).0 < end).max(1);
    }
    Ok(())
}

/// Calls `each` with (part, address of the word, target word) for each pointer in the parts, but for words that own nothing.
pub(super) fn each<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    Named { parts, borrowed, .. }: Named,
    mut each: impl FnMut(&Area, u64, usize) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let limits = |area: &Area| (area.start, area.end);
    each_in(tables, image, parts, limits, |index, address, edge| {
        let next = borrowed.partition_point(|range| range.1 <= address);
        if borrowed.get(next).is_some_and(|range| range.0 <= address) {
            return Ok(());
        }
        each(&parts[index], address, tables.edges.as_slice()[edge].get())
    })
}

/// Returns the edges that no block has: those of words that belong to roots, and of words that own nothing.
pub(super) fn taken<I: Index, const P: usize>(tables: &Tables<I, P>, image: &Image, named: Named) -> Edges {
    let mut taken = Edges::default();
    let room = tables.edges.as_slice().len();
    // Neither stops: nothing in them can be cancelled.
    let _ = each_in(
        tables,
        image,
        named.parts,
        |area| (area.start, area.end),
        |_, _, edge| {
            taken.add(edge, room);
            Ok(())
        },
    );
    let _ = each_in(
        tables,
        image,
        named.borrowed,
        |&range| range,
        |_, _, edge| {
            taken.add(edge, room);
            Ok(())
        },
    );
    taken
}

/// Takes the edges of some blocks out of a set.
pub(super) fn take_out<I: Index, const P: usize>(tables: &Tables<I, P>, blocks: &[u64], edges: &mut Edges) {
    for &address in blocks {
        if let Some(block) = tables.find(address) {
            let (first, end) = edges_of(&tables.regions, block.granule);
            (first..end).for_each(|edge| edges.remove(edge));
        }
    }
}
