//! The heap, independent of the widths inside. [`super::build`] makes it.

use super::index::Block;
use super::leaks::Group;
use super::marking::Marking;
use super::pass::Found;
use super::runs::Run;
pub use super::sizes::SizeCount;
pub use super::states::State;
use super::widths::{Widths, WidthsMut};

/// A block with its state, and with how many blocks and usable bytes a direct leak keeps alive.
pub type Stated = (Block, State, u64, u64);

/// An indexed heap: what is asked of its blocks. [`super::build`] makes it. Then follow the free lists, and call
/// [`Marking::mark`].
pub trait Heap: Marking {
    /// Returns what the pass found.
    fn found(&self) -> &Found;
    /// Returns run number `index`.
    fn run(&self, index: usize) -> Run;
    /// Returns the block that `address` points into.
    fn find(&self, address: u64) -> Option<Stated>;
    /// Returns the block that `address` points into if the program has it in use, leaked or not. It is faster than
    /// [`Heap::find`], which looks up the leaks.
    fn in_use(&self, address: u64) -> Option<Block>;
    /// Returns up to `most` blocks in one of `states` from address `from` on, with what a direct leak keeps alive.
    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<Stated>;
    /// Returns only the addresses of up to `most` blocks in `from..end`, for listings of millions.
    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64>;
    /// Returns up to `most` direct leaks, in address order, from number `from` on.
    fn direct_leaks(&self, from: usize, most: usize) -> Vec<Stated>;
    /// Returns the direct leaks by size.
    fn groups(&self) -> Vec<Group>;
    /// Returns the sizes, over all runs or those of one arena.
    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount>;
    /// Returns the tables, for what works on them.
    fn widths(&self) -> Widths<'_>;
    /// Returns the tables, for what changes them.
    fn widths_mut(&mut self) -> WidthsMut<'_>;
}
