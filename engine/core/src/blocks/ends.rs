//! Words that are the end of one block, and by chance the beginning of the next.
//!
//! Where blocks have no headers, one past the end of a block is the beginning of its neighbour. Containers keep such ends: a
//! vector has its begin, its end and the end of its room, and an iterator of a deque three words about one block. So of
//! three neighbouring words, of which the first leads into a block, the second there or to its end, and the third to its
//! end, those that are the end say nothing about the block behind. (Two words are not enough: the links of a tree's node
//! may lead to two blocks side by side.)
//!
//! [`hide`] takes these words out of the edges, before anything is marked. What then is not reached, and such a word leads
//! to it, is held by ends alone. [`reveal`] puts the words back.

use super::index::{next_start, Tables};
use super::number::Index;
use super::runs::REGION;
use super::word_map::WordMap;
use crate::hw;

/// Bytes between a block and its end at most. Slabs have smaller blocks: 14 KiB in jemalloc, 256 KiB in tcmalloc.
const REACH: u64 = 256 << 10;
/// Edges that are looked at together.
const PART: usize = 64;

/// An end among the edges.
#[derive(Clone, Copy, Debug)]
struct End<I> {
    /// The number of the edge.
    edge: usize,
    /// Where it leads.
    target: I,
    /// The granule of the block that holds it.
    source: usize,
}

/// The ends that are hidden.
#[derive(Debug, Default)]
pub struct Hidden<I> {
    ends: Vec<End<I>>,
    /// The words that ends in roots lead to. Marking notes them.
    pub in_roots: Vec<usize>,
}

/// Hides the ends among the edges of all blocks: each leads to the block that holds it.
pub fn hide<I: Index, const P: usize>(tables: &mut Tables<I, P>) -> Hidden<I> {
    let found = all(tables);
    let edges = tables.edges.as_mut_slice();
    for end in &found {
        edges[end.edge] = I::new(end.source * P + P);
    }
    Hidden { ends: found, in_roots: Vec::new() }
}

/// Returns the ends among the edges of all blocks.
fn all<I: Index, const P: usize>(tables: &Tables<I, P>) -> Vec<End<I>> {
    let mut found: Vec<End<I>> = Vec::new();
    if has_ends(tables) {
        hw::fast(|| (0..tables.word_map.runs.len()).for_each(|run| in_run(tables, run, &mut found)));
    }
    found
}

/// Returns whether a block's end may be the beginning of another block.
pub fn has_ends<I: Index, const P: usize>(tables: &Tables<I, P>) -> bool {
    !tables.word_map.runs.iter().all(|placed| placed.run.kind.has_chunks())
}

/// Returns the numbers of the edges that are ends. Call it while none is hidden.
pub fn edges<I: Index, const P: usize>(tables: &Tables<I, P>) -> Vec<usize> {
    all(tables).into_iter().map(|end| end.edge).collect()
}

/// Puts the ends back. Returns the granules of the blocks that are not marked and that an end leads to, sorted: an end in a
/// root, or in a block that is marked and that the marking follows. (It does not follow `own`.)
pub fn reveal<I: Index, const P: usize>(tables: &mut Tables<I, P>, hidden: &Hidden<I>, own: &[usize]) -> Vec<usize> {
    restore(tables, hidden);
    let held = |end: &&End<I>| {
        tables.is_marked(end.source) && !tables.is_free(end.source) && own.binary_search(&end.source).is_err()
    };
    let targets = hidden.ends.iter().filter(held).map(|end| end.target.get()).chain(hidden.in_roots.iter().copied());
    let mut found: Vec<usize> =
        targets.filter_map(|word| tables.chunk_of_word(word)).filter(|&granule| !tables.is_marked(granule)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Puts the ends back.
pub fn restore<I: Index, const P: usize>(tables: &mut Tables<I, P>, hidden: &Hidden<I>) {
    let edges = tables.edges.as_mut_slice();
    for end in &hidden.ends {
        edges[end.edge] = end.target;
    }
}

/// Returns which of the candidates of a part of the roots are ends, by their place in `found`. See
/// [`super::root_reader::RootReader::found`].
pub fn in_roots<I: Index, const P: usize>(tables: &Tables<I, P>, found: &[(u64, usize)]) -> Vec<usize> {
    let mut triples = Vec::new();
    for (at, three) in found.windows(3).enumerate() {
        let words = [three[0].1, three[1].1, three[2].1];
        let adjacent = three[0].0 + 2 * WordMap::<P>::WORD == three[2].0;
        if adjacent && is_near::<P>(words) && is_triple(tables, words) {
            triples.push(Triple { first: at, full: words[1] == words[2], source: 0 });
        }
    }
    chosen(&triples).into_iter().flat_map(Triple::ends).collect()
}

/// Three words about one block: its end is the third.
#[derive(Clone, Copy, Debug)]
struct Triple {
    /// The place of its first word.
    first: usize,
    /// Whether its second word is the end, too.
    full: bool,
    /// The block that holds the words, if any.
    source: usize,
}

impl Triple {
    fn ends(self) -> impl Iterator<Item = usize> {
        [self.full.then_some(self.first + 1), Some(self.first + 2)].into_iter().flatten()
    }
}

/// Returns triples that share no word: as many as there can be, and among those the most of full vectors.
///
/// In an array of vectors whose blocks are neighbours, the end of one and the begin of the next look like a triple, too. The
/// true ones are the most. Where two triples overlap alone, the one of a full vector is more likely than one of an empty one.
fn chosen(triples: &[Triple]) -> Vec<Triple> {
    // The best of the first i triples: (how many, how many of full vectors), and the triple before the last one taken.
    let mut best: Vec<(u64, u64)> = vec![(0, 0)];
    let before = |i: usize| {
        let near = i.min(2);
        i - (1..=near).take_while(|&back| triples[i].first - triples[i - back].first < 3).count()
    };
    for (i, triple) in triples.iter().enumerate() {
        let (count, full) = best[before(i)];
        best.push(best[i].max((count + 1, full + u64::from(triple.full))));
    }
    let mut found = Vec::new();
    let mut i = triples.len();
    while i > 0 {
        if best[i] == best[i - 1] {
            i -= 1;
        } else {
            found.push(triples[i - 1]);
            i = before(i - 1);
        }
    }
    found.reverse();
    found
}

#[inline(always)]
fn in_run<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize, found: &mut Vec<End<I>>) {
    let placed = &tables.word_map.runs[run];
    let last = &tables.regions[tables.word_map.region_end(run) - 1];
    let end = last.edge.get() + last.rank(REGION * P);
    let Some(edges) = tables.edges.as_slice().get(placed.edge..end) else { return };
    let mut triples = Vec::new();
    // Most parts have none that is near: that is found out without a branch for each.
    for begin in (0..edges.len().saturating_sub(2)).step_by(PART) {
        let part = &edges[begin..edges.len().min(begin + PART + 2)];
        let near = |three: &[I]| is_near::<P>([three[0].get(), three[1].get(), three[2].get()]);
        if part.windows(3).fold(false, |any, three| any | near(three)) {
            triples.extend(in_part(tables, run, placed.edge + begin, part));
        }
    }
    for triple in chosen(&triples) {
        let end = |edge: usize| End { edge, target: edges[edge - placed.edge], source: triple.source };
        found.extend(triple.ends().map(end));
    }
}

/// Returns the triples among some edges of a run; `first` is the number of the first edge.
fn in_part<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize, first: usize, part: &[I]) -> Vec<Triple> {
    let mut triples = Vec::new();
    for (at, three) in part.windows(3).enumerate() {
        let words = [three[0].get(), three[1].get(), three[2].get()];
        if is_near::<P>(words) && is_triple(tables, words) {
            let source = neighbours(tables, run, first + at);
            triples.extend(source.map(|source| Triple { first: first + at, full: words[1] == words[2], source }));
        }
    }
    triples
}

/// Returns whether the third of three words may be the end of a block that the others lead into: a test without lookups.
#[inline(always)]
fn is_near<const P: usize>([first, second, end]: [usize; 3]) -> bool {
    let reach = (REACH / WordMap::<P>::WORD) as usize * 2; // small blocks take twice their words
    (end % P == 0) & (end.wrapping_sub(first).wrapping_sub(1) < reach) & (end.wrapping_sub(second) <= reach)
}

/// Returns whether the first of three words leads into a block, the second there or to its end, and the third to its end.
fn is_triple<I: Index, const P: usize>(tables: &Tables<I, P>, [first, second, end]: [usize; 3]) -> bool {
    let Some(block) = tables.chunk_of_word(first) else { return false };
    if second != end && second != first && tables.chunk_of_word(second) != Some(block) {
        return false;
    }
    let Some(behind) = (end / P).checked_sub(1).filter(|&behind| tables.is_start(behind)) else { return false };
    let word_map = &tables.word_map;
    if next_start(&tables.regions, block) == behind {
        let run = word_map.run_of_granule(behind);
        return !word_map.runs[run].run.kind.has_chunks(); // a header would lie between two chunks
    }
    // The first block of a run, right behind the last one of the run before?
    if behind % REGION != 0 {
        return false;
    }
    let (before, run) = (word_map.run_of_granule(block), word_map.run_of_granule(behind));
    let [placed, next] = [before, run].map(|run| &word_map.runs[run]);
    before + 1 == run
        && behind == next.region * REGION
        && !placed.run.kind.has_chunks()
        && !next.run.kind.has_chunks()
        && word_map.user(before, block) + placed.run.usable == word_map.user(run, behind)
}

/// Returns the granule of the block that holds edge number `first` and the next two in neighbouring words, or None.
///
/// Of a run that is one block, no table says where its words are.
fn neighbours<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize, first: usize) -> Option<usize> {
    let placed = &tables.word_map.runs[run];
    if placed.run.kind.is_single() {
        return Some(placed.region * REGION);
    }
    let word = word_of_edge(tables, run, first)?;
    let is_next = |i: usize| word_of_edge(tables, run, first + i) == Some(word + i);
    let source = tables.chunk_of_word(word)?;
    (is_next(1) && is_next(2) && tables.chunk_of_word(word + 2) == Some(source)).then_some(source)
}

/// Returns the number of the word that holds an edge.
pub fn word_of_edge<I: Index, const P: usize>(tables: &Tables<I, P>, run: usize, edge: usize) -> Option<usize> {
    let from = tables.word_map.runs[run].region;
    let regions = &tables.regions[from..tables.word_map.region_end(run)];
    let place = regions.partition_point(|region| region.edge.get() <= edge).checked_sub(1)?;
    let region = &regions[place];
    let mut left = edge - region.edge.get();
    for i in 0..P {
        let mut bits = region.pointers(i);
        let count = bits.count_ones() as usize;
        if left >= count {
            left -= count;
            continue;
        }
        for _ in 0..left {
            bits &= bits - 1;
        }
        return Some((from + place) * REGION * P + i * 64 + bits.trailing_zeros() as usize);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the triples that are chosen among those at `places`, where a negative number is of a full vector.
    fn chosen_of(places: &[i64]) -> Vec<usize> {
        let triple = |&at: &i64| Triple { first: at.unsigned_abs() as usize, full: at < 0, source: 0 };
        chosen(&places.iter().map(triple).collect::<Vec<_>>()).iter().map(|triple| triple.first).collect()
    }

    #[test]
    fn most_triples_win_then_those_of_full_vectors() {
        assert_eq!(chosen_of(&[]), []);
        assert_eq!(chosen_of(&[9]), [9]);
        assert_eq!(chosen_of(&[-3, 4, -6, 7, -9]), [3, 6, 9]); // an array of full vectors
        assert_eq!(chosen_of(&[3, -5, 6, -8, 9]), [3, 6, 9]); // of empty ones
        assert_eq!(chosen_of(&[-4, 6, -8, 10]), [4, 8]); // each with a pointer behind it
        assert_eq!(chosen_of(&[-4, 5]), [4]);
        assert_eq!(chosen_of(&[4, -6]), [6]);
    }
}
