//! Blocks that are judged one by one: arrays, blocks of rare kinds, and chunks that are larger than they have to be. See
//! [`super::regular`].

use super::edges::Edges;
use super::fields::{element_of, smaller, Counts, Field, Target, ARRAY, SLACK, SMALL};
use super::offsets::offsets;
use super::regular::{kind, Judge, SAMPLE};
use crate::blocks::ends::word_of_edge;
use crate::blocks::index::{each_edge, edges_of, Block};
use crate::blocks::number::Index;
use crate::image::Image;
use std::cmp::Ordering;

/// Pointers of an array that are counted.
const SAMPLE_OF_ARRAY: usize = 1 << 16;
/// The pointers of an array take one in so many of its words, at least.
const ARRAY_ONE_IN: usize = 5;

impl<I: Index, const P: usize, const FAST: bool> Judge<'_, I, P, FAST> {
    /// Judges blocks again that have some pointers as the smaller kind has them: by the kind that has more of them. `edges` are
    /// such pointers. Calls `take` for each edge that is not regular.
    pub(super) fn by_one_kind(&self, edges: &[usize], fields: &[Vec<Field>], mut take: impl FnMut(usize)) {
        let runs = &self.tables.word_map.runs;
        let mut seen = None;
        for &edge in edges {
            let Some(run) = runs.partition_point(|placed| placed.edge <= edge).checked_sub(1) else { continue };
            let granule = word_of_edge(self.tables, run, edge).and_then(|word| self.tables.chunk_of_word(word));
            let Some(granule) = granule.filter(|_| granule != seen) else { continue };
            seen = Some(granule);
            let block = self.tables.block(run, granule);
            let own = Some(&fields[usize::from(kind(block.size))][..]);
            let edges = edges_of(&self.tables.regions, granule);
            let [own, other] = [own, self.smaller_kind(run, block.size, fields)].map(|fields| {
                let (fields, mut others) = (fields.unwrap_or(&[]), Vec::new());
                self.others(fields, &block, edges, &mut others);
                (self.loose(fields, &block, edges) + others.len(), others)
            });
            match (own.0, own.1.len()).cmp(&(other.0, other.1.len())) {
                Ordering::Less => own.1.into_iter().for_each(&mut take),
                Ordering::Greater => other.1.into_iter().for_each(&mut take),
                Ordering::Equal => {}
            }
        }
    }

    /// Takes the pointers of a block out of `found` that lead to blocks of one kind, if they are enough for an array.
    pub(super) fn array_of_one_kind(&self, block: &Block, edges: (usize, usize), found: &mut Edges) {
        let to = |edge: usize| self.kinds.target(edge).filter(|_| found.contains(edge));
        let mut targets: Vec<(Target, usize)> = (edges.0..edges.1).filter_map(|edge| Some((to(edge)?, edge))).collect();
        targets.sort_unstable();
        let words = block.size as usize / (16 / P);
        for of_kind in targets.chunk_by(|one, other| one.0 == other.0) {
            if of_kind.len() >= ARRAY && of_kind.len() * ARRAY_ONE_IN >= words {
                of_kind.iter().for_each(|&(_, edge)| found.remove(edge));
            }
        }
    }

    /// Returns the fields of the kind that a block of a run has if its chunk is larger than it has to be.
    #[inline(always)]
    pub(super) fn smaller_kind<'f>(&self, run: usize, size: u64, fields: &'f [Vec<Field>]) -> Option<&'f [Field]> {
        let chunks = P == 2 && self.tables.word_map.runs[run].run.kind.has_chunks();
        let smaller = size.checked_sub(SLACK).filter(|_| chunks && size <= SMALL)?;
        Some(&fields[usize::from(kind(smaller))][..]).filter(|fields| !fields.is_empty())
    }

    /// Judges the pointers of one block by the fields of a kind, if most of them are such fields. Calls `take` for each edge that is
    /// not regular.
    pub(super) fn like(&self, fields: &[Field], block: &Block, edges: (usize, usize), take: impl FnMut(usize)) {
        let mut others = Vec::new();
        self.others(fields, block, edges, &mut others);
        if 2 * others.len() < edges.1 - edges.0 {
            others.into_iter().for_each(take);
        }
    }

    /// Notes the pointers of one block that are no fields of a kind.
    fn others(&self, fields: &[Field], block: &Block, edges: (usize, usize), others: &mut Vec<usize>) {
        each_edge(&self.tables.regions, block.granule, edges, |offset, edge| {
            let is = |target: Target| fields.get(offset).is_some_and(|f| f.is_regular_or(target, smaller(target)));
            if self.kinds.target(edge).is_some_and(|target| !is(target)) {
                others.push(edge);
            }
        });
    }

    /// Returns how many pointers of one block are regular only because a field leads to blocks of any kind.
    fn loose(&self, fields: &[Field], block: &Block, edges: (usize, usize)) -> usize {
        let mut count = 0;
        each_edge(&self.tables.regions, block.granule, edges, |offset, edge| {
            let is = |target: Target| fields.get(offset).is_some_and(|f| f.is_loose(target, smaller(target)));
            count += usize::from(self.kinds.target(edge).is_some_and(is));
        });
        count
    }

    /// Judges the pointers of one block as those of an array. Calls `take` for each edge that is not regular. The block begins with
    /// `text` bytes of text: it holds bytes, unless the first element holds all of the text.
    pub(super) fn array(
        &self,
        image: &Image,
        block: &Block,
        edges: (usize, usize),
        text: usize,
        mut take: impl FnMut(usize),
    ) {
        let offsets = offsets(self.tables, image, block, edges);
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return };
        let element = element_of(&offsets[..offsets.len().min(SAMPLE)]);
        if text > 0 && text >= element * (16 / P) {
            return (edges.0..edges.1).for_each(take);
        }
        let targets = self.kinds.targets(edges.0..edges.0 + offsets.len());
        let step = (offsets.len() / SAMPLE_OF_ARRAY).max(1);
        let place = |offset: usize| ((offset - first) % element) as u16;
        let mut counts = Counts::default();
        for (&target, &offset) in targets.iter().zip(&offsets).step_by(step) {
            if let Some(target) = target {
                counts.add(place(offset), target);
            }
        }
        let elements = (last - first) / element + 1;
        let fields = counts.fields(u32::try_from(elements / step).unwrap_or(u32::MAX).max(1));
        for ((edge, &target), &offset) in (edges.0..edges.1).zip(&targets).zip(&offsets) {
            let field = fields.get(usize::from(place(offset)));
            if target.is_some_and(|target| !field.is_some_and(|field| field.is_regular(target))) {
                take(edge);
            }
        }
    }
}
