//! Which of the edges that are not regular lead nowhere new, and are not followed.

use std::collections::HashMap;

use super::edges::Edges;
use super::extents::unused;
use super::numbering::HeapGraph;
use super::odd::Grades;
use super::parts::{self, VARIABLE};
use super::regular::{irregular, Irregular};
use super::roots::{each_word, Named, DATA, END};
use super::search::Graph;
use super::waves::{Waves, OF_STRUCTURE, REST};
use super::weak::Marks;
use crate::blocks::ends;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// Blocks that a field leads to, at most, if it is an optional field and no word that is left over.
const FEW: usize = 16;
/// Edges of a block, from which on it is looked at once: millions of words may lead to one large buffer, as in sort(1).
const LARGE: usize = 64;

/// What is known of the edges of a heap before any is set aside.
pub(super) struct Aside<'a, I: Index, const P: usize> {
    graph: &'a HeapGraph<'a, I, P>,
    image: &'a Image,
    named: Named<'a>,
    /// The edges that nothing follows.
    taken: &'a Edges,
    irregular: Irregular<'a, I, P>,
    /// Edges that are no fields: the ends of other blocks, and those in the unused room of arrays. They are sorted.
    no_fields: Vec<usize>,
    /// The numbers that no search enters, as bits.
    shut: Vec<u64>,
    control: &'a Control,
}

impl<'a, I: Index, const P: usize> Aside<'a, I, P> {
    /// Compares the blocks of each size. `closed` are the granules of the allocator's own blocks.
    pub fn new(
        graph: &'a HeapGraph<'a, I, P>,
        image: &'a Image,
        named: Named<'a>,
        closed: &[usize],
        taken: &'a Edges,
        control: &'a Control,
    ) -> Result<Self, Stopped> {
        let irregular = irregular(graph, image, named, control)?;
        let mut no_fields = ends::edges(graph.tables);
        no_fields.extend(unused(graph, image, named, control)?);
        no_fields.sort_unstable();
        Ok(Aside { graph, image, named, taken, irregular, no_fields, shut: shut(graph, closed), control })
    }

    /// Returns the edges that are not followed: they are not regular among the blocks of a size, or the end of another
    /// block, or in the unused room of an array, and regular ones lead to their blocks.
    pub fn by_sizes(&self) -> Result<Edges, Stopped> {
        self.not_followed(self.irregular(&[]), None)
    }

    /// As [`Aside::by_sizes`], but structures of one size are told apart, and the better one of two edges that are not
    /// regular is followed.
    pub fn by_structures(&self) -> Result<Edges, Stopped> {
        let mut grades = self.irregular.grades(self.control)?;
        self.no_fields.iter().for_each(|&edge| grades.remove(edge));
        let irregular = self.irregular(&[&grades.own, &grades.of_size, &grades.odd]);
        self.not_followed(irregular, Some(&grades))
    }

    /// Returns the edges that are not regular, and those that nothing follows.
    fn irregular(&self, graded: &[&Edges]) -> Edges {
        let mut found = Edges::default();
        for edges in [&self.irregular.edges].into_iter().chain(graded.iter().copied()) {
            found.extend(edges);
        }
        let room = self.graph.tables.edges.as_slice().len();
        self.no_fields.iter().for_each(|&edge| found.add(edge, room));
        parts::take_out(self.graph.tables, self.named.proven, &mut found);
        found.extend(self.taken);
        found
    }

    /// Returns those of the edges that are not followed.
    fn not_followed(&self, irregular: Edges, grades: Option<&Grades>) -> Result<Edges, Stopped> {
        let &Aside { graph, image, named, taken, control, .. } = self;
        if irregular.count == taken.count {
            return Ok(irregular);
        }
        let is_shut = |number: usize| self.shut[number / 64] >> (number % 64) & 1 != 0;
        let regular = HeapGraph { cut: Some(&irregular), ..*graph };
        let mut waves = Waves::new(Marks::new(&regular, &is_shut), graph, grades, taken);
        let marks = &mut waves.marks;
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
        parts::each(graph.tables, image, named, |area, _, target| {
            take(target, if area.rank <= VARIABLE { DATA } else { area.rank })
        })?;
        each_word(graph.tables, image, named, control, |_, target, _, rank| take(target, rank))?;
        waves.follow(OF_STRUCTURE, control)?;
        let marks = &mut waves.marks;
        // What data holds by a rare field is data's, whatever stacks say. Words that are left over lead to whole
        // structures.
        let mut few = Edges::default();
        if !weak.is_empty() {
            let mut large = HashMap::new();
            irregular.each(|edge| {
                let is_field = self.no_fields.binary_search(&edge).is_err();
                let few_follow = |node| leads_to_few(&regular, node, |n| marks.has(n) || is_shut(n), &mut large);
                if is_field && !taken.contains(edge) && graph.target(edge).is_some_and(few_follow) {
                    few.add(edge, graph.tables.edges.as_slice().len());
                }
            });
        }
        for node in weak {
            marks.reach(node.get(), control)?;
        }
        waves.follow(REST, control)?;
        let Waves { marks, followed, .. } = waves;
        let reached = |edge: usize| graph.target(edge).is_some_and(|node| marks.has(graph.number(node)));
        let mut kept = Edges::default();
        irregular.each(|edge| {
            if taken.contains(edge) || (reached(edge) && !few.contains(edge) && !followed.contains(edge)) {
                kept.add(edge, graph.tables.edges.as_slice().len());
            }
        });
        Ok(kept)
    }
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

/// Returns whether a node that is not `taken` leads to few nodes that are not. `large` has what `untaken` returned for
/// nodes with many edges: each of them is looked at once.
fn leads_to_few<G: Graph>(
    graph: &G,
    node: usize,
    taken: impl Fn(usize) -> bool,
    large: &mut HashMap<usize, Vec<usize>>,
) -> bool {
    if taken(graph.number(node)) {
        return false;
    }
    let mut found = vec![node];
    let mut next = 0;
    while next < found.len() {
        let node = found[next];
        next += 1;
        let (first, end) = graph.edges(node);
        let small;
        let targets = if end.saturating_sub(first) < LARGE {
            small = untaken(graph, node, &taken);
            &small
        } else {
            large.entry(node).or_insert_with(|| untaken(graph, node, &taken))
        };
        for &target in targets {
            if !found.contains(&target) {
                if found.len() == FEW {
                    return false;
                }
                found.push(target);
            }
        }
    }
    true
}

/// Returns the first nodes that a node leads to and that are not `taken`, each once. They are one more than `FEW` at
/// most.
fn untaken<G: Graph>(graph: &G, node: usize, taken: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut found = Vec::new();
    let (first, end) = graph.edges(node);
    for target in (first..end).filter_map(|edge| graph.target(edge)) {
        if !found.contains(&target) && !taken(graph.number(target)) {
            found.push(target);
            if found.len() > FEW {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A graph by lists. It counts the edges that are looked at.
    struct Counted {
        first: Vec<usize>,
        targets: Vec<usize>,
        looked_at: Cell<usize>,
    }

    impl Counted {
        fn new(lists: &[Vec<usize>]) -> Self {
            let mut first = vec![0];
            lists.iter().for_each(|list| first.push(first.last().unwrap() + list.len()));
            Counted { first, targets: lists.concat(), looked_at: Cell::new(0) }
        }
    }

    impl Graph for Counted {
        type Edge = u32;
        fn count(&self) -> usize {
            self.first.len() - 1
        }
        fn number(&self, node: usize) -> usize {
            node
        }
        fn edges(&self, node: usize) -> (usize, usize) {
            (self.first[node], self.first[node + 1])
        }
        fn target(&self, edge: usize) -> Option<usize> {
            self.looked_at.set(self.looked_at.get() + 1);
            Some(self.targets[edge])
        }
        fn each(&self, _each: impl FnMut(usize, usize, usize) -> bool) {}
    }

    #[test]
    fn a_large_block_is_looked_at_once() {
        // Node 0 is a buffer with pointers into itself, and all others lead to it.
        let mut lists = vec![vec![0; 10_000]];
        lists.extend((0..1000).map(|_| vec![0]));
        let graph = Counted::new(&lists);
        let mut large = HashMap::new();
        for node in 0..lists.len() {
            assert!(leads_to_few(&graph, node, |_| false, &mut large));
        }
        assert_eq!(graph.looked_at.get(), 10_000 + 1000);
    }

    #[test]
    fn few_are_sixteen() {
        // A chain, and a table of as many as it has.
        let chain = |count: usize| (0..count).map(move |node| if node + 1 < count { vec![node + 1] } else { vec![] });
        let table = |count: usize| vec![(1..count).cycle().take(LARGE.max(count)).collect(), vec![]];
        for (count, few) in [(FEW, true), (FEW + 1, false)] {
            let chain: Vec<_> = chain(count).collect();
            let mut table: Vec<Vec<usize>> = table(count);
            table.resize(count, vec![]);
            for lists in [chain, table] {
                let graph = Counted::new(&lists);
                assert_eq!(leads_to_few(&graph, 0, |_| false, &mut HashMap::new()), few);
                assert!(leads_to_few(&graph, 0, |node| node == 1, &mut HashMap::new()));
                assert!(!leads_to_few(&graph, 0, |node| node == 0, &mut HashMap::new()));
            }
        }
    }
}
