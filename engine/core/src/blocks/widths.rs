//! The heap with its widths: of the numbers that name words, and of words.
//!
//! What works on the tables is compiled for each of the four. `by_width` calls it for the heap at hand.

use super::ends::Hidden;
use super::index::Tables;
use super::leaks::Leaks;
use super::listing::Listing;
use super::number::{Index, Wide};
use super::odd::Kinds;
use super::pass::Found;
use super::sizes::SizeCount;
use super::states::States;
use std::sync::OnceLock;

/// A heap over the tables of the pass.
pub struct Indexed<I: Index, const P: usize> {
    pub(super) tables: Tables<I, P>,
    /// What the pass found besides the blocks.
    pub found: Found,
    /// The granules of the allocator's own blocks, sorted.
    pub own: Vec<usize>,
    /// The leaks, once they have been found.
    pub leaks: Option<Leaks<I>>,
    /// The sizes over all runs. Emptied by what changes the state of a block.
    pub(super) sizes: OnceLock<Vec<SizeCount>>,
    /// If present, these odd pointers are followed, too.
    pub(super) odd: Option<Kinds>,
    /// How many threads mark.
    pub(super) threads: usize,
    /// If present, the ends of blocks that are hidden.
    pub(super) ends: Option<Hidden<I>>,
}

/// A heap of any widths.
pub enum Widths<'a> {
    /// Few words of 8 bytes.
    Few8(&'a Indexed<u32, 2>),
    /// Many words of 8 bytes.
    Many8(&'a Indexed<Wide, 2>),
    /// Few words of 4 bytes.
    Few4(&'a Indexed<u32, 4>),
    /// Many words of 4 bytes.
    Many4(&'a Indexed<Wide, 4>),
}

/// A heap of any widths, to be changed.
pub enum WidthsMut<'a> {
    /// Few words of 8 bytes.
    Few8(&'a mut Indexed<u32, 2>),
    /// Many words of 8 bytes.
    Many8(&'a mut Indexed<Wide, 2>),
    /// Few words of 4 bytes.
    Few4(&'a mut Indexed<u32, 4>),
    /// Many words of 4 bytes.
    Many4(&'a mut Indexed<Wide, 4>),
}

/// Does the same for a heap ([`Widths`] or [`WidthsMut`]) of any widths: `by_width!(Widths, heap.widths(), it => it.own.len())`.
macro_rules! by_width {
    ($kind:ident, $widths:expr, $heap:ident => $does:expr) => {
        match $widths {
            $crate::blocks::widths::$kind::Few8($heap) => $does,
            $crate::blocks::widths::$kind::Many8($heap) => $does,
            $crate::blocks::widths::$kind::Few4($heap) => $does,
            $crate::blocks::widths::$kind::Many4($heap) => $does,
        }
    };
}
pub(crate) use by_width;

impl<I: Index, const P: usize> Indexed<I, P> {
    /// Returns the tables.
    pub fn tables(&self) -> &Tables<I, P> {
        &self.tables
    }

    /// Returns the tables, for what changes the states of blocks.
    pub fn tables_mut(&mut self) -> &mut Tables<I, P> {
        self.sizes.take();
        &mut self.tables
    }

    /// Forgets what was added up: the states of blocks change.
    pub(super) fn change(&mut self) {
        self.sizes.take();
    }

    /// Returns the states of the blocks.
    pub fn states(&self) -> States<'_, I> {
        States::new(self.leaks.as_ref(), &self.own)
    }

    /// Returns the granules of the direct leaks.
    pub fn direct(&self) -> &[I] {
        self.leaks.as_ref().map_or(&[], |leaks| leaks.direct.as_slice())
    }

    /// Returns the listing of the blocks.
    pub(super) fn listing(&self) -> Listing<'_, I, P> {
        Listing { tables: &self.tables, leaks: self.leaks.as_ref(), own: &self.own }
    }
}
