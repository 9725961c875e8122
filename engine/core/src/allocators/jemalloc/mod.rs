//! Reads jemalloc's extents from a core, without symbols. The caller tries layouts and this module checks them.
//!
//! jemalloc keeps a radix tree from page to `edata_t` (`extent_t` until 5.2). A slab is in the tree at each of its pages,
//! any other extent at its first and last page. An extent is believed when it leads back. Its own address and size must
//! name the page that led to it. The copies of size class, state and slab flag in the tree must be those of the extent.
//!
//! * [`layout`]: the layout of a release.
//! * [`search`]: finds such a tree.
//! * [`tree`]: reads all extents of a tree.
//! * [`extents`]: the extents, as blocks and as sums.

mod extents;
mod layout;
mod search;
mod tree;

pub use extents::{Extent, Extents, Sum};
pub use layout::{Fault, Layout};
pub use search::find;
pub use tree::collect;
