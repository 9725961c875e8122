//! The heap, independent of the widths inside. [`super::build`] makes it.

use super::bins::{self, Bin};
use super::contents::{Census, Place};
use super::index::Block;
use super::leaks::Group;
use super::lists::{Followed, List};
use super::pass::RunReport;
use super::runs::Run;
pub use super::states::State;
use crate::control::{Control, Stopped};
use crate::graph::numbering::Numbering;
use crate::graph::owners::{Alike, Kept, Line, Owners, Scope};
use crate::graph::paths::Origin;
use crate::graph::reference::Reference;
use crate::graph::roots::Named;
use crate::image::Image;

/// The result of marking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marked {
    /// Words of roots that were candidate pointers.
    pub candidates: u64,
    /// Blocks reached.
    pub reached: u64,
}

/// The sums over all leaks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// How many direct leaks.
    pub direct_count: u64,
    /// Their usable bytes.
    pub direct_bytes: u64,
    /// How many indirect leaks.
    pub indirect_count: u64,
    /// Their usable bytes.
    pub indirect_bytes: u64,
}

/// How many blocks of a size (usable bytes) are in use and free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCount {
    /// Usable bytes of each block.
    pub size: u64,
    /// Blocks in use and not leaked.
    pub live: u64,
    /// Free blocks.
    pub free: u64,
    /// Leaked blocks.
    pub leaked: u64,
    /// The allocator's own.
    pub own: u64,
}

/// An indexed heap. [`build`] makes it. Then call [`Heap::follow`] for the free lists, [`Heap::mark`], and
/// [`Heap::find_leaks`].
pub trait Heap: Send + Sync {
    /// One for each of [`Heap::chunk_runs`].
    fn reports(&self) -> &[RunReport];
    /// The runs of chunks.
    fn chunk_runs(&self) -> Vec<Run>;
    /// Parts of slabs and extents that are not in the dump.
    fn missing(&self) -> &[(u64, u64)];
    /// Returns run number `index`.
    fn run(&self, index: usize) -> Run;
    /// Runs that were left out: they overlap another, or almost nothing of them is in the dump.
    fn dropped(&self) -> &[Run];
    /// Follows a free list. With `set` its chunks become free; with `collect` their blocks' addresses are returned.
    fn follow(&mut self, image: &Image, list: List, set: bool, collect: bool) -> Followed;
    /// Sets free the chunks after a damaged link: see [`super::lists::release_orphans`].
    fn release_orphans(&mut self, image: &Image, list: List, key: Option<u64>) -> u64;
    /// Follows the arenas' bins.
    fn bins(&self, image: &Image, bins: &[Bin], control: &Control) -> Result<bins::Followed, Stopped>;
    /// Sets free the block that begins at each address, in a run without chunks. Returns the addresses where no block in
    /// use begins.
    fn release(&mut self, addresses: &[u64]) -> Vec<u64>;
    /// Makes the blocks that the values lead to the allocator's own: neither leaked nor followed. With `closure`, also
    /// what those blocks lead to. Call it before anything else is marked. Returns how many blocks became the allocator's.
    fn own(&mut self, values: &[u64], closure: bool, control: &Control) -> Result<u64, Stopped>;
    /// From now on a pointer may begin at any byte, of blocks and of roots. `dead` is the memory inside blocks that holds
    /// none, sorted. Call it before [`Heap::mark`].
    fn take_unaligned(&mut self, dead: Vec<(u64, u64)>);
    /// Marks what the words of `ranges` and the `values` lead to.
    fn mark(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        control: &Control,
    ) -> Result<Marked, Stopped>;
    /// From now on until [`Heap::reveal_ends`], words that are a block's end are no pointers: see [`super::ends`]. Call
    /// it before [`Heap::mark`].
    fn hide_ends(&mut self);
    /// Marks what only ends of blocks lead to. Returns the addresses of these blocks, and of others that those keep alive.
    fn reveal_ends(&mut self, control: &Control) -> Result<(Vec<u64>, Vec<u64>), Stopped>;
    /// Finds the leaks, once marking is complete.
    fn find_leaks(&mut self, image: &Image, control: &Control) -> Result<Totals, Stopped>;
    /// Says for each of `asked` whether a path that avoids the block at `barrier` leads to the block that holds this address. Paths begin
    /// at the roots. If the block at `barrier` is leaked, they begin at the direct leaks instead. All false if no block is there.
    /// For a heap whose leaks have been found: the marks stay as they are.
    fn reached_without(
        &mut self,
        image: &Image,
        ranges: &[(u64, u64)],
        values: &[u64],
        barrier: u64,
        asked: &[u64],
        control: &Control,
    ) -> Result<Vec<bool>, Stopped>;
    /// Returns the direct leaks by size.
    fn groups(&self) -> Vec<Group>;
    /// Returns up to `most` blocks in one of `states` from address `from` on, with what a direct leak keeps alive.
    fn blocks(&self, states: &[State], from: u64, most: usize) -> Vec<(Block, State, u64, u64)>;
    /// Returns only the addresses of up to `most` blocks in `from..end`, for listings of millions.
    fn addresses(&self, states: &[State], from: u64, end: u64, most: usize) -> Vec<u64>;
    /// Returns the block that `address` points into.
    fn find(&self, address: u64) -> Option<(Block, State, u64, u64)>;
    /// Returns the sizes, over all runs or those of one arena.
    fn sizes(&self, arena: Option<u32>) -> Vec<SizeCount>;
    /// Finds the owners of all blocks, once the leaks have been found. Before that, the questions below have empty answers.
    fn find_owners(&mut self, image: &Image, named: Named, control: &Control) -> Result<(), Stopped>;
    /// See [`Owners::lines`].
    fn owner_lines(&self) -> Vec<Line>;
    /// See [`Owners::above`].
    fn owners_above(&self, address: u64, most: usize) -> Option<(Vec<Kept>, u32)>;
    /// Returns the stacks of holders: see [`Owners::reference`].
    fn reference(&self, kind: &dyn Fn(usize) -> u32) -> Reference;
    /// See [`Owners::largest`].
    fn largest(&self, scope: Scope, most: usize) -> Vec<Kept>;
    /// See [`Owners::addresses`].
    fn addresses_in(&self, scope: Scope, from: u64, most: usize) -> Vec<u64>;
    /// See [`Owners::alike`].
    fn alike(
        &self,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped>;
    /// Returns the owners, once they have been found.
    fn owners(&self) -> Option<&Owners>;
    /// See [`Owners::vertices`].
    fn vertices(&self) -> Vec<u32>;
    /// Returns for each vertex whether it is in the scope.
    fn within(&self, scope: Scope) -> Vec<bool>;
    /// Returns a shortest path to the block at `address`: its origin, and the addresses of the blocks. See [`crate::graph::paths`].
    fn path(
        &self,
        image: &Image,
        named: Named,
        root: Option<u32>,
        address: u64,
        control: &Control,
    ) -> Result<Option<(Origin, Vec<u64>)>, Stopped>;
    /// Returns up to `most` direct leaks, in address order, from number `from` on.
    fn direct_leaks(&self, from: usize, most: usize) -> Vec<(Block, State, u64, u64)>;
    /// Returns dense numbers for the blocks. None: there are too many.
    fn numbering(&self) -> Option<Numbering>;
    /// Returns the number of the block whose chunk begins at `granule`.
    fn number_of(&self, numbering: &Numbering, granule: usize) -> usize;
    /// Takes the signatures of all blocks in use, or of direct leaks only: what their first words hold. Find the leaks
    /// before.
    fn census(
        &self,
        image: &Image,
        places: &[Place],
        direct: bool,
        threads: usize,
        control: &Control,
    ) -> Result<Census, Stopped>;
}
