//! Sets of edges of the heap's tables.

/// Words of a group: see [`Edges`].
const GROUP: usize = 64;

/// A set of edges. The numbers of edges have wide gaps, and what lies in them stays untouched.
#[derive(Debug, Default)]
pub struct Edges {
    bits: Vec<u64>,
    /// Which groups of words have had an edge, as bits.
    groups: Vec<u64>,
    /// How many there are.
    pub count: u64,
}

impl Edges {
    /// Adds an edge. `room` is one more than the largest number of an edge.
    pub fn add(&mut self, edge: usize, room: usize) {
        self.make_room(room.div_ceil(64));
        let (group, word, bit) = (edge / 64 / GROUP, &mut self.bits[edge / 64], 1 << (edge % 64));
        self.count += u64::from(*word & bit == 0);
        *word |= bit;
        self.groups[group / 64] |= 1 << (group % 64);
    }

    fn make_room(&mut self, words: usize) {
        if self.bits.is_empty() {
            (self.bits, self.groups) = (vec![0; words], vec![0; words.div_ceil(GROUP * 64)]);
        }
    }

    /// Adds the edges of another set of the same heap.
    pub fn extend(&mut self, other: &Edges) {
        self.make_room(other.bits.len());
        for index in other.words() {
            let (word, more) = (&mut self.bits[index], other.bits[index]);
            self.count += u64::from((more & !*word).count_ones());
            *word |= more;
        }
        for (groups, more) in self.groups.iter_mut().zip(&other.groups) {
            *groups |= more;
        }
    }

    /// Returns the numbers of the words that may not be 0.
    fn words(&self) -> impl Iterator<Item = usize> + '_ {
        let groups = (0..self.groups.len() * 64).filter(|group| self.groups[group / 64] >> (group % 64) & 1 != 0);
        groups.flat_map(|group| group * GROUP..((group + 1) * GROUP).min(self.bits.len()))
    }

    /// Takes an edge out of the set, if it is in it.
    pub fn remove(&mut self, edge: usize) {
        if self.contains(edge) {
            self.bits[edge / 64] &= !(1 << (edge % 64));
            self.count -= 1;
        }
    }

    /// Returns whether an edge is in the set.
    #[inline(always)]
    pub fn contains(&self, edge: usize) -> bool {
        self.bits.get(edge / 64).is_some_and(|word| word >> (edge % 64) & 1 != 0)
    }

    /// Calls `each` for the edges of the set.
    pub fn each(&self, mut each: impl FnMut(usize)) {
        for index in self.words() {
            let mut left = self.bits[index];
            while left != 0 {
                each(index * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}
