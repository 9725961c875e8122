//! Runs the pass, and answers over its tables.

use super::index::Block;
use super::leaks::Group;
use super::model::{Heap, State, Stated};
use super::number::{Index, Wide};
use super::pass::{self, Found, Request};
use super::runs::Run;
use super::sizes::{self, SizeCount};
use super::widths::{Indexed, Widths, WidthsMut};
use super::word_map::WordMap;
use crate::control::{Control, Stopped};
use std::sync::OnceLock;

/// Names the variant for a pair of widths.
trait Named<const P: usize>: Index + Sized {
    fn widths(heap: &Indexed<Self, P>) -> Widths<'_>;
    fn widths_mut(heap: &mut Indexed<Self, P>) -> WidthsMut<'_>;
}

macro_rules! named {
    ($number:ty, $parts:literal, $variant:ident) => {
        impl Named<$parts> for $number {
            fn widths(heap: &Indexed<Self, $parts>) -> Widths<'_> {
                Widths::$variant(heap)
            }
            fn widths_mut(heap: &mut Indexed<Self, $parts>) -> WidthsMut<'_> {
                WidthsMut::$variant(heap)
            }
        }
    };
}

named!(u32, 2, Few8);
named!(Wide, 2, Many8);
named!(u32, 4, Few4);
named!(Wide, 4, Many4);

/// Smaller parts of a run are not worth a search for their first chunk.
const PART_BYTES: u64 = 16 << 20;

/// How the tables are made. The answer is the same.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Threads take parts of runs that have at least so many bytes.
    pub part_bytes: u64,
    /// Numbers are wide, even if narrow ones would do.
    pub wide: bool,
}

/// Runs the pass over a heap whose pointers have `word` bytes.
pub fn build(word: u64, request: Request, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    build_so(word, request, Way { part_bytes: PART_BYTES, wide: false }, control)
}

/// Does the same in a certain way.
pub fn build_so(word: u64, request: Request, way: Way, control: &Control) -> Result<Box<dyn Heap>, Stopped> {
    match word {
        4 => of_words::<4>(request, way, control),
        _ => of_words::<2>(request, way, control),
    }
}

fn of_words<const P: usize>(request: Request, way: Way, control: &Control) -> Result<Box<dyn Heap>, Stopped>
where
    u32: Named<P>,
    Wide: Named<P>,
{
    let room = |run: &Run| WordMap::<P>::room(run, u32::APART);
    let words = request.runs.iter().map(room).fold(0, u64::saturating_add);
    match words < u32::LIMIT && !way.wide {
        true => indexed::<u32, P>(request, way.part_bytes, control),
        false => indexed::<Wide, P>(request, way.part_bytes, control),
    }
}

fn indexed<I: Named<P> + 'static, const P: usize>(
    request: Request,
    part_bytes: u64,
    control: &Control,
) -> Result<Box<dyn Heap>, Stopped> {
    let threads = request.threads;
    let pass::Built { tables, reports, dropped, missing } = pass::build::<I, P>(request, part_bytes, control)?;
    let chunk_runs = tables.word_map.runs.iter().map(|placed| placed.run).filter(|run| run.kind.has_chunks()).collect();
    Ok(Box::new(Indexed {
        tables,
        found: Found { chunk_runs, reports, missing, dropped },
        own: Vec::new(),
        leaks: None,
        sizes: OnceLock::new(),
        odd: None,
        threads,
        ends: None,
    }))
}

impl<I: Named<P>, const P: usize> Heap for Indexed<I, P> {
    fn found(&self) -> &Found {
        &self.found
    }

    fn run(&self, index: usize) -> Run {
        self.tables.word_map.runs[index].run
    }

    fn find(&self, address: u64) -> Option<Stated> {
        self.listing().find(address)
    }

    fn in_use(&self, address: u64) -> Option<Block> {
        let block = self.tables.find(address)?;
        (!block.free && self.own.binary_search(&block.granule).is_err()).then_some(block)
    }

    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<Stated> {
        self.listing().blocks(states, from, most)
    }

    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64> {
        self.listing().addresses(states, from, end, most)
    }

    fn direct_leaks(&self, from: usize, most: usize) -> Vec<(Block, State, u64, u64)> {
        self.listing().direct_leaks(from, most)
    }

    fn groups(&self) -> Vec<Group> {
        self.leaks.as_ref().map_or(Vec::new(), |leaks| leaks.groups(&self.tables))
    }

    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount> {
        match arena {
            None => self.sizes.get_or_init(|| sizes::count(&self.tables, self.states(), None)).clone(),
            Some(_) => sizes::count(&self.tables, self.states(), arena),
        }
    }

    fn widths(&self) -> Widths<'_> {
        I::widths(self)
    }

    fn widths_mut(&mut self) -> WidthsMut<'_> {
        I::widths_mut(self)
    }
}
