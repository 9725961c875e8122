//! Runs: stretches of memory that hold the blocks of one allocator side by side.
//!
//! A run of chunks is the main arena's brk area up to `top`, one heap of a thread arena, or one mmapped chunk. An
//! allocator without headers has slabs (blocks of one size side by side) and extents of a single block.

/// Granules in a region.
pub const REGION: usize = 64;
/// Bytes in a granule: MALLOC_ALIGNMENT of every 64-bit port, and of i386 since glibc 2.26.
pub const GRANULE: u64 = 16;
/// The most blocks in a slab: jemalloc's SC_LG_SLAB_MAXREGS with pages of 64 KiB. With pages of 4 KiB it is 512.
pub const SLOTS: usize = 8192;
/// The least large size of jemalloc: SC_LARGE_MINCLASS with pages of 4 KiB.
const LEAST_LARGE: u64 = 1 << 14;
/// A run of chunks from so many bytes on is large. The last huge page of its edges stays empty in part.
const LARGE: u64 = 32 << 20;
/// Bytes in a region.
pub const REGION_BYTES: u64 = GRANULE * REGION as u64;

/// What a run consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Chunks of the main arena: NON_MAIN_ARENA is clear.
    Main,
    /// Chunks of a thread arena: NON_MAIN_ARENA is set.
    Thread,
    /// One chunk of its own mapping.
    Mmapped,
    /// Blocks of one size without headers.
    Slab,
    /// One block without a header, which begins at `start`. An address below `end` is in the block.
    Extent,
}

impl Kind {
    /// Returns whether the run is one block.
    #[inline]
    pub fn is_single(self) -> bool {
        matches!(self, Kind::Mmapped | Kind::Extent)
    }
    /// Returns whether the blocks have glibc's headers.
    #[inline]
    pub fn has_chunks(self) -> bool {
        matches!(self, Kind::Main | Kind::Thread | Kind::Mmapped)
    }
}

/// Who gives out blocks, by the caller's numbers. The engine only tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The allocator.
    pub allocator: u32,
    /// The arena. No two allocators have arenas of the same number.
    pub arena: u32,
}

impl Owner {
    /// Makes one.
    pub fn new(allocator: u32, arena: u32) -> Owner {
        Owner { allocator, arena }
    }
}

/// A run as it was found. It begins with the first chunk and ends with `top`, or with the heap or the mapping. Where
/// blocks have no headers, it is the blocks alone.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// What the run consists of.
    pub kind: Kind,
    /// Who gives out its blocks.
    pub owner: Owner,
    /// The usable bytes of the one block of a `Mmapped` run or an `Extent`, and of each block of a `Slab`. 0 for others.
    pub usable: u64,
    /// Where the map of a `Slab`'s free blocks begins in [`super::pass::report::Request::maps`].
    pub map: u32,
}

impl Run {
    /// Makes a run of chunks.
    pub fn of_chunks(start: u64, end: u64, kind: Kind, owner: Owner, usable: u64) -> Run {
        Run { start, end, kind, owner, usable, map: 0 }
    }

    /// Returns whether the block is a large one: it has its own mapping, or it is an extent of a large size. (jemalloc
    /// gives a small block an extent when its profiler samples it.)
    pub fn is_oversized(&self) -> bool {
        self.kind == Kind::Mmapped || (self.kind == Kind::Extent && self.usable >= LEAST_LARGE)
    }

    /// Returns whether the edges of the run take huge pages.
    pub fn is_large(&self) -> bool {
        self.kind.has_chunks() && self.end.saturating_sub(self.start) >= LARGE
    }

    /// Returns how many blocks a slab has room for.
    pub fn slots(&self) -> usize {
        (self.end.saturating_sub(self.start) / self.usable.max(1)) as usize
    }

    /// Returns how many granules a block of a slab takes in the numbering of [`super::word_map`].
    pub fn stride(&self) -> usize {
        1 + self.usable.div_ceil(GRANULE) as usize
    }

    /// Returns how many granules the whole run takes in the numbering. One more is the sentinel that bounds its last
    /// block.
    pub fn granules(&self) -> usize {
        match self.kind {
            Kind::Slab => self.slots().saturating_mul(self.stride()),
            // Where words have 4 bytes, a heap ends half a granule after its last whole one.
            _ => self.end.saturating_sub(self.start).div_ceil(GRANULE) as usize,
        }
    }
}
