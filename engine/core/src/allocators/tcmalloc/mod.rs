//! Reads the heap of gperftools' tcmalloc from a core, without symbols and without debug information.
//!
//! tcmalloc keeps a radix tree from page number to `Span`. A span says where it begins and how long it is, and the tree
//! leads back to it at both ends. Spans of small objects name a size class. The free objects of a size class hang on the
//! span, in the slots of the central cache, or in the cache of a thread (gperftools 2.7 to 2.18: span.h, pagemap.h,
//! central_freelist.h, thread_cache.h, common.h).
//!
//! * [`central`]: the array of central caches. Its list heads point to themselves and to spans.
//! * [`sizes`]: the table of size classes.
//! * [`page_map`]: the tree, with two or three levels, and the size of a page.
//! * [`spans`]: all spans of the tree.
//! * [`caches`]: the caches of threads.
//! * [`free`]: follows the lists of free objects.
//! * [`owned`]: tcmalloc's own memory.
//! * [`sampled`]: the stacks of sampled blocks.

mod caches;
mod central;
mod free;
mod owned;
mod page_map;
mod read;
mod sampled;
mod sizes;
mod spans;

pub use caches::Cache;
pub use central::Central;
pub use free::{Kind, List, Problem};
pub use page_map::{PageMap, Shape};
pub use read::{find, walk, Refused, Tcmalloc};
pub use sampled::{samples, Sample, Samples};
pub use sizes::SizeMap;
pub use spans::{Fault, Span};

/// Bytes of a word: the layouts are those of 64-bit machines.
const WORD: u64 = 8;
/// Bytes read at once from a module's data and from tables.
const BLOCK: usize = 1 << 16;
/// The most size classes (kClassSizesMax; 96 until 2.7).
const MOST_CLASSES: usize = 128;
