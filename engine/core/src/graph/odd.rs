//! Pointers that the structure of their block does not have.
//!
//! [`super::regular`] compares blocks of one size. Where many structures have that size, a word that is left over in
//! one may stand where another has a field. Here blocks of one structure are compared: see [`super::structures`] and
//! [`super::families`]. It also tells which pointers that are not regular are good evidence all the same: see
//! [`super::waves`].

use super::edges::Edges;
use super::families::{Enough, Families, FINAL, PROVISIONAL};
use super::kinds_of_targets::Kinds;
use super::links::Links;
use super::shapes::Shapes;
use super::structures::{place, Heap, Structures, FEWER};
use crate::blocks::number::Index;
use crate::contents::CLASSES;
use crate::control::{Control, Stopped};
use crate::hw;

/// The rounds before the last one: see [`Heap::round`] and [`Families`]. A block with several words that are left over
/// is told from others of its size when what leads to it has been told.
const ROUNDS: [(u64, Enough); 2] = [(u64::MAX, PROVISIONAL), (FEWER, FINAL)];

/// Edges by what is known of them. Those of the first sets are followed before those of the last.
#[derive(Default)]
pub struct Grades {
    /// The edge is not regular, but it is what most blocks of its target's structure are held by.
    pub own: Edges,
    /// The blocks of its size do not have such edges, those of its structure do.
    pub of_structure: Edges,
    /// The structure is rare. Blocks of its size have such edges, and those of no other structure of that size do.
    pub of_size: Edges,
    /// The blocks of its size have such edges, those of its structure do not.
    pub odd: Edges,
}

impl Grades {
    /// Forgets what is known of an edge.
    pub fn remove(&mut self, edge: usize) {
        let Grades { own, of_structure, of_size, odd } = self;
        for set in [own, of_structure, of_size, odd] {
            set.remove(edge);
        }
    }
}

/// Grades the edges that are in `irregular`, and those that the structures of their blocks do not have. `kinds` are the
/// size classes of the blocks. For each class, `counts` has how many blocks in use there are, and `is_common` whether
/// its blocks are compared.
#[inline(always)]
pub(super) fn graded<I: Index, const P: usize>(
    kinds: &Kinds<I, P>,
    counts: &[u32],
    is_common: Vec<bool>,
    irregular: &Edges,
    control: &Control,
) -> Result<Grades, Stopped> {
    let graph = kinds.graph;
    let links = Links::new(graph, control)?;
    let shapes = Shapes::new(kinds, &links, counts, |kind| is_common[usize::from(kind)], control)?;
    let heap = Heap { graph, kinds, is_common, links, shapes, irregular, control };
    let mut before = Structures::of_sizes(kinds.all().to_vec());
    for (fewer, enough) in ROUNDS {
        let mut found = heap.round(&before, fewer)?;
        Families::new(&heap, &found, enough)?.name(&mut found);
        before = found;
    }
    let structures = heap.round(&before, FEWER)?;
    let families = Families::new(&heap, &structures, FINAL)?;
    let mut grades = Grades::default();
    let room = graph.tables.edges.as_slice().len();
    let load = |target: usize| hw::prefetch(&structures.of, target);
    heap.each(load, |source, offset, edge, link| {
        let (Some(target), Some(offset)) = (link.target(), offset) else { return };
        let (from, to) = (structures.of[source.number], structures.of[target]);
        let (is_irregular, is_compared) = (irregular.contains(edge), families.is_compared(from));
        let has_field = match is_compared {
            true => families.has_field(from, offset, link, to),
            false => is_irregular || families.size_has_field(kinds.of(source.number), offset, link, to),
        };
        if has_field && !is_irregular {
            return;
        }
        let held_by = structures.fields[usize::from(to)];
        let set = match () {
            () if usize::from(to) >= CLASSES && held_by == (before.of[source.number], place(Some(offset), link)) => {
                &mut grades.own
            }
            () if is_irregular && !(is_compared && has_field) => return,
            () if is_irregular => &mut grades.of_structure,
            () if is_compared => &mut grades.odd,
            () => &mut grades.of_size,
        };
        set.add(edge, room);
    })?;
    Ok(grades)
}
