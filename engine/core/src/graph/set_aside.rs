//! Which of the edges that are not regular lead nowhere new, and are not followed.

use super::edges::Edges;
use super::extents::unused;
use super::numbering::HeapGraph;
use super::parts::{self, VARIABLE};
use super::regular::irregular;
use super::roots::{each_word, Named, DATA, END};
use super::search::Graph;
use super::weak::Marks;
use crate::blocks::ends;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// Blocks that a field leads to, at most, if it is an optional field and no word that is left over.
const FEW: usize = 16;

/// Returns the edges that are not followed: they are not regular, or the end of another block, or in the unused room of an
/// array, and regular ones lead to their blocks. `closed` are the granules of the allocator's own blocks. `taken` are
/// edges that nothing follows: they are among those that are returned.
pub fn set_aside<I: Index, const P: usize>(
    graph: &HeapGraph<I, P>,
    image: &Image,
    named: Named,
    closed: &[usize],
    taken: &Edges,
    control: &Control,
) -> Result<Edges, Stopped> {
    let mut irregular = irregular(graph, image, named, control)?;
    let mut no_fields = ends::edges(graph.tables);
    no_fields.extend(unused(graph, image, named, control)?);
    no_fields.sort_unstable();
    no_fields.iter().for_each(|&edge| irregular.add(edge, graph.tables.edges.as_slice().len()));
    parts::take_out(graph.tables, named.proven, &mut irregular);
    irregular.extend(taken);
    if irregular.count == taken.count {
        return Ok(irregular);
    }
    let shut = shut(graph, closed);
    let is_shut = |number: usize| shut[number / 64] >> (number % 64) & 1 != 0;
    let regular = HeapGraph { cut: Some(&irregular), ..*graph };
    let mut marks = Marks::new(&regular, &is_shut);
    let mut weak = Vec::new();
    let mut take = |target: usize, rank: u32| -> Result<(), Stopped> {
        if let Some(node) = graph.tables.chunk_of_word(target).filter(|_| rank != END) {
            if rank > DATA {
                weak.push(I::new(node));
            } else {
                marks.reach(node, control)?;
            }
        }
        Ok(())
    };
    for word in named.values {
        if let Some(target) = graph.tables.word_map.word_of(word.value) {
            take(target, word.rank)?;
        }
    }
    for word in named.selves {
        if let Some(target) = graph.tables.word_map.word_of(word.value) {
            take(target, DATA)?;
        }
    }
    parts::each(graph.tables, named, |area, _, target| {
        take(target, if area.rank <= VARIABLE { DATA } else { area.rank })
    })?;
    each_word(graph.tables, image, named, control, |_, target, _, rank| take(target, rank))?;
    // What data holds by a rare field is data's, whatever stacks say. Words that are left over lead to whole structures.
    let mut few = Edges::default();
    if !weak.is_empty() {
        irregular.each(|edge| {
            let is_field = no_fields.binary_search(&edge).is_err();
            let few_follow = |node| leads_to_few(&regular, node, |n| marks.has(n) || is_shut(n));
            if is_field && !taken.contains(edge) && graph.target(edge).is_some_and(few_follow) {
                few.add(edge, graph.tables.edges.as_slice().len());
            }
        });
    }
    for node in weak {
        marks.reach(node.get(), control)?;
    }
    let reached = |edge: usize| graph.target(edge).is_some_and(|node| marks.has(graph.number(node)));
    let mut kept = Edges::default();
    irregular.each(|edge| {
        if taken.contains(edge) || (reached(edge) && !few.contains(edge)) {
            kept.add(edge, graph.tables.edges.as_slice().len());
        }
    });
    Ok(kept)
}

/// Returns the numbers that no search enters, as bits: free blocks, and the allocator's own.
fn shut<I: Index, const P: usize>(graph: &HeapGraph<I, P>, closed: &[usize]) -> Vec<u64> {
    let tables = graph.tables;
    let mut bits = vec![0u64; graph.count().div_ceil(64)];
    let mut shut = |granule: usize| {
        let number = graph.number(granule);
        bits[number / 64] |= 1 << (number % 64);
    };
    for (region, &free) in tables.free.iter().enumerate() {
        let mut left = free & tables.regions[region].start;
        while left != 0 {
            shut(region * REGION + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
    closed.iter().for_each(|&granule| shut(granule));
    bits
}

/// Returns whether a node that is not `taken` leads to few nodes that are not.
fn leads_to_few<G: Graph>(graph: &G, node: usize, taken: impl Fn(usize) -> bool) -> bool {
    if taken(graph.number(node)) {
        return false;
    }
    let mut found = vec![node];
    let mut next = 0;
    while next < found.len() {
        let (first, end) = graph.edges(found[next]);
        next += 1;
        for edge in first..end {
            let Some(target) = graph.target(edge) else { continue };
            if !found.contains(&target) && !taken(graph.number(target)) {
                if found.len() == FEW {
                    return false;
                }
                found.push(target);
            }
        }
    }
    true
}
