//! The search from the roots, tier by tier.
//!
//! The tiers, strongest first: the allocator's own words; a runtime's variables ([`super::parts`]); words of data to the first byte of a block; other words of data; the needed
//! words of stacks and registers; words that are the end of a block; the direct leaks. See [`super::search`].

use super::dense::Placed;
use super::numbering::{is_start, HeapGraph};
use super::parts::{self, BODY, VARIABLE};
use super::roots::{each_word, Home, Named, Word, DATA, END, LEAKED, OWN, UNALIGNED};
use super::search::{Found, Search};
use super::weak;
use crate::blocks::leaks::Leaks;
use crate::blocks::number::Index;
use crate::blocks::runs::REGION;
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;

/// A weak root, before it is known whether it is needed.
struct Weak {
    /// How far its thread's arena is from that of the block: 0: it is the same; 1: one of them is not known; 2: it is another.
    away: u8,
    is_variable: bool,
    interior: bool,
    rank: u32,
    root: u32,
    node: usize,
}

/// The search from the roots, tier by tier.
pub(super) struct Tiers<'g, I: Index, W: Index, const P: usize> {
    graph: &'g HeapGraph<'g, I, P>,
    /// What the search has numbered.
    pub search: Search<'g, HeapGraph<'g, I, P>, W>,
    /// (vertex, root), by vertex.
    pub roots: Vec<(u32, u32)>,
    /// Words of data that point into the middle of a block: (root, node).
    interior: Vec<(u32, I)>,
    weak: Vec<Weak>,
    /// Words that are the end of a block: (root, node).
    ends: Vec<(u32, I)>,
    homes: &'g [Home],
}

impl<'g, I: Index, W: Index, const P: usize> Tiers<'g, I, W, P> {
    /// No root has been followed yet. The blocks that are not to be followed are closed in `search`.
    pub fn new(graph: &'g HeapGraph<'g, I, P>, search: Search<'g, HeapGraph<'g, I, P>, W>, homes: &'g [Home]) -> Self {
        Tiers { graph, search, roots: Vec::new(), interior: Vec::new(), weak: Vec::new(), ends: Vec::new(), homes }
    }

    /// Returns how far a root's thread is from a block (see [`Weak`]), and whether the root is a variable.
    fn home(&self, root: u32, node: usize) -> (u8, bool) {
        let found = self.homes.binary_search_by_key(&root, |home| home.root);
        let Ok(home) = found.map(|index| self.homes[index]) else { return (1, false) };
        let word_map = &self.graph.tables.word_map;
        let arena = word_map.runs[word_map.run_of_granule(node)].run.owner.arena;
        let away = home.arena.map_or(1, |own| if own == arena { 0 } else { 2 });
        (away, home.is_variable)
    }

    fn reach(&mut self, root: u32, node: usize, control: &Control) -> Result<(), Stopped> {
        let vertex = match self.roots.last() {
            Some(&(vertex, last)) if last == root => vertex,
            _ => {
                let vertex = self.search.root()?;
                self.roots.push((vertex, root));
                vertex
            }
        };
        self.search.reach(vertex, node, control)
    }

    /// Takes a word of a root. Words of data are followed at once, and weaker words later.
    fn word(&mut self, target: usize, root: u32, rank: u32, control: &Control) -> Result<(), Stopped> {
        let Some(node) = self.graph.tables.chunk_of_word(target) else { return Ok(()) };
        if rank == END {
            self.ends.push((root, I::new(node)));
            return Ok(());
        }
        let interior = !is_start::<P>(target, node);
        if !interior && rank <= DATA {
            return self.reach(root, node, control);
        }
        // What stronger evidence has reached needs no more of it. A large mapping may be full of such words.
        if self.search.vertex(node) != 0 {
            return Ok(());
        }
        if rank > DATA {
            let (away, is_variable) = self.home(root, node);
            self.weak.push(Weak { away, is_variable, interior, rank, root, node });
        } else if !self.interior.last().is_some_and(|last| last.0 == root && last.1.get() == node) {
            self.interior.push((root, I::new(node)));
        }
        Ok(())
    }

    /// Follows all roots, then the direct leaks.
    #[inline(always)]
    pub fn all(
        &mut self,
        image: &Image,
        named: Named,
        leaks: Option<&Leaks<I>>,
        control: &Control,
    ) -> Result<(), Stopped> {
        let graph = self.graph;
        let value = |word: &Word| graph.tables.word_map.word_of(word.value);
        for word in named.values.iter().filter(|word| word.rank == OWN) {
            if let Some(node) = value(word).and_then(|target| graph.tables.chunk_of_word(target)) {
                self.reach(word.root, node, control)?;
            }
        }
        self.search.next_tier();
        self.variables(image, named, control)?;
        parts::each(graph.tables, image, named, |area, _, target| match area.rank {
            ..=VARIABLE => Ok(()),
            rank => self.word(target, area.root, rank, control),
        })?;
        each_word(graph.tables, image, named, control, |_, target, root, rank| self.word(target, root, rank, control))?;
        for word in named.values.iter().filter(|word| word.rank != OWN) {
            if let Some(target) = value(word) {
                self.word(target, word.root, word.rank, control)?;
            }
        }
        self.search.next_tier();
        let mut interior = std::mem::take(&mut self.interior);
        interior.sort_by_key(|&(root, _)| root);
        for (root, node) in interior {
            self.reach(root, node.get(), control)?;
        }
        self.search.next_tier();
        let mut waiting = std::mem::take(&mut self.weak);
        waiting.sort_by_key(|weak| (weak.away, !weak.is_variable, weak.interior, weak.rank, weak.root));
        self.needed(&waiting, control)?;
        self.search.next_tier();
        for (root, node) in std::mem::take(&mut self.ends) {
            if self.search.vertex(node.get()) == 0 {
                self.reach(root, node.get(), control)?;
            }
        }
        self.search.next_tier();
        let waiting = self.not_reached(leaks);
        self.needed(&waiting, control)?;
        self.search.next_tier();
        for granule in leaks.map_or(&[][..], |leaks| &leaks.direct) {
            self.reach(LEAKED, granule.get(), control)?;
        }
        Ok(())
    }

    /// Follows the variables of a runtime, where the heap has some: first what holds them, then what they lead to.
    fn variables(&mut self, image: &Image, named: Named, control: &Control) -> Result<(), Stopped> {
        let tables = self.graph.tables;
        for word in named.selves {
            let target = tables.word_map.word_of(word.value);
            if let Some(node) = target.and_then(|target| tables.chunk_of_word(target)) {
                self.reach(word.root, node, control)?;
            }
        }
        self.search.next_tier();
        for level in [BODY, VARIABLE] {
            parts::each(tables, image, named, |area, _, target| match tables.chunk_of_word(target) {
                Some(node) if area.rank == level => self.reach(area.root, node, control),
                _ => Ok(()),
            })?;
            self.search.next_tier();
        }
        Ok(())
    }

    /// Follows the words that nothing else makes needless.
    fn needed(&mut self, waiting: &[Weak], control: &Control) -> Result<(), Stopped> {
        let nodes: Vec<usize> = waiting.iter().map(|weak| weak.node).collect();
        let search = &self.search;
        let mut needed = weak::needed(self.graph, &nodes, |number| search.vertex_of(number) != 0, control)?;
        needed.sort_by_key(|&index| waiting[index].root);
        for index in needed {
            self.reach(waiting[index].root, waiting[index].node, control)?;
        }
        Ok(())
    }

    /// Returns the blocks in use that no tier has reached. Marking found pointers to them that are not in the tables.
    #[inline(always)]
    fn not_reached(&self, leaks: Option<&Leaks<I>>) -> Vec<Weak> {
        let tables = self.graph.tables;
        let mut leaked = leaks.map_or(&[][..], |leaks| &leaks.leaked);
        let mut found = Vec::new();
        for (number, (region, &free)) in tables.regions.iter().zip(&tables.free).enumerate() {
            let mut bits = region.start & !free;
            if let Some(&(_, mask)) = leaked.first().filter(|(at, _)| at.get() == number) {
                bits &= !mask;
                leaked = &leaked[1..];
            }
            while bits != 0 {
                let node = number * REGION + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.search.vertex(node) == 0 {
                    found.push(Weak { away: 0, is_variable: false, interior: false, rank: 0, root: UNALIGNED, node });
                }
            }
        }
        found
    }
}

/// The work of [`searched`].
struct Following<'t, 'g, 'a, I: Index, W: Index, const P: usize> {
    tiers: &'t mut Tiers<'g, I, W, P>,
    image: &'a Image,
    named: Named<'a>,
    leaks: Option<&'a Leaks<I>>,
    control: &'a Control,
}

impl<I: Index, W: Index, const P: usize> hw::Work for Following<'_, '_, '_, I, W, P> {
    type Out = Result<(), Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        self.tiers.all(self.image, self.named, self.leaks, self.control)
    }
}

/// Follows all roots. Returns what was found, and the roots as (vertex, root). `W` is the width of a place in the list of
/// the graph.
pub(super) fn searched<'g, I: Index, W: Index, const P: usize>(
    graph: &'g HeapGraph<'g, I, P>,
    placed: Placed<W>,
    image: &Image,
    named: Named<'g>,
    closed: &[usize],
    leaks: Option<&Leaks<I>>,
    control: &Control,
) -> Result<(Found, Vec<(u32, u32)>), Stopped> {
    let tables = graph.tables;
    let mut search = Search::new(graph, placed, control)?;
    for (region, &free) in tables.free.iter().enumerate() {
        let mut bits = free & tables.regions[region].start;
        while bits != 0 {
            search.close(region * REGION + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
    closed.iter().for_each(|&granule| search.close(granule));
    let mut tiers = Tiers::new(graph, search, named.homes);
    hw::fast_work(Following { tiers: &mut tiers, image, named, leaks, control })?;
    let Tiers { search, roots, .. } = tiers;
    Ok((search.finish(), roots))
}
