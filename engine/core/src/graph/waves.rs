//! Edges that are not regular, followed in waves: those for which there is better evidence first.
//!
//! Such an edge is followed only where nothing better leads to its block. Once it has been, regular edges lead on from
//! there. So the rest of a list belongs to its own first part, if the field that leads there is a little unusual, and
//! not to a word that is left over.

use super::edges::Edges;
use super::numbering::HeapGraph;
use super::odd::Grades;
use super::search::Graph;
use super::weak::Marks;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};

/// The waves: see [`Grades`].
const OWN: usize = 0;
pub(super) const OF_STRUCTURE: usize = 1;
const OF_SIZE: usize = 2;
const ODD: usize = 3;
pub(super) const REST: usize = 4;

/// Marks, and the edges that were followed besides the regular ones.
pub(super) struct Waves<'a, 'g, I: Index, const P: usize, T> {
    /// Follows regular edges.
    pub marks: Marks<'a, HeapGraph<'g, I, P>, T>,
    graph: &'a HeapGraph<'g, I, P>,
    /// None: no edge is followed but regular ones.
    grades: Option<&'a Grades>,
    /// Edges that nothing follows.
    taken: &'a Edges,
    /// For each wave: the edges of marked blocks that wait for it.
    waiting: [Vec<I>; REST + 1],
    pub followed: Edges,
}

impl<'a, 'g, I: Index, const P: usize, T: Fn(usize) -> bool> Waves<'a, 'g, I, P, T> {
    /// Nothing is marked yet. `graph` has all edges; `marks` follow the regular ones.
    pub fn new(
        mut marks: Marks<'a, HeapGraph<'g, I, P>, T>,
        graph: &'a HeapGraph<'g, I, P>,
        grades: Option<&'a Grades>,
        taken: &'a Edges,
    ) -> Self {
        if grades.is_some() {
            marks.aside();
        }
        Waves { marks, graph, grades, taken, waiting: Default::default(), followed: Edges::default() }
    }

    fn wave(grades: &Grades, edge: usize) -> usize {
        let Grades { own, of_structure, of_size, odd } = grades;
        let sets = [(own, OWN), (of_structure, OF_STRUCTURE), (of_size, OF_SIZE), (odd, ODD)];
        sets.into_iter().find(|(set, _)| set.contains(edge)).map_or(REST, |(_, wave)| wave)
    }

    /// Returns the block that an edge leads to, if nothing leads to it yet.
    fn new_target(&self, edge: usize) -> Option<usize> {
        self.graph.target(edge).filter(|&node| !self.marks.has(self.graph.number(node)))
    }

    /// Follows the edges of marked blocks up to the last wave that is asked for. All edges of one wave that lead to a
    /// block are followed.
    pub fn follow(&mut self, last: usize, control: &Control) -> Result<(), Stopped> {
        let Some(grades) = self.grades else { return Ok(()) };
        let room = self.graph.tables.edges.as_slice().len();
        loop {
            for edge in self.marks.aside() {
                if !self.taken.contains(edge.get()) && self.new_target(edge.get()).is_some() {
                    self.waiting[Self::wave(grades, edge.get())].push(edge);
                }
            }
            let Some(wave) = (0..=last).find(|&wave| !self.waiting[wave].is_empty()) else { return Ok(()) };
            let mut edges = std::mem::take(&mut self.waiting[wave]);
            edges.retain(|edge| self.new_target(edge.get()).is_some());
            for edge in edges {
                self.followed.add(edge.get(), room);
                if let Some(node) = self.graph.target(edge.get()) {
                    self.marks.reach(node, control)?;
                }
            }
        }
    }
}
