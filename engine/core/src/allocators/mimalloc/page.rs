//! One page: blocks of one size side by side, and three lists of those that are free.

use super::shape::{Shape, Start, PAGE_BYTES, SLICE};
use crate::cached_reader::CachedReader;
use crate::image::Image;
use crate::words::USER_END;

/// The largest size of a block that is believed.
const MOST_BLOCK: u64 = 1 << 46;

/// `MI_PADDING_SIZE`.
const PADDING: u64 = 8;

/// The lists of a page, in the order of [`Page::heads`], and that of a heap.
pub const FREE: usize = 0;
/// Blocks that their thread freed, and that malloc does not give out yet.
pub const LOCAL: usize = 1;
/// Blocks that other threads freed.
pub const THREAD: usize = 2;
/// Blocks of full pages that other threads freed: a list of the heap (2.x).
pub const DELAYED: usize = 3;

/// What is wrong with a page or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A list leads out of the page's blocks, or into the middle of one.
    Link,
    /// A list has a block twice, or two lists have it.
    Twice,
    /// The lists and the count of blocks in use do not add up to the capacity.
    Count,
    /// The fields of the page contradict each other.
    Page,
    /// The page lies across another.
    Overlap,
    /// The slices of a segment do not follow each other.
    Slices,
    /// The cookie of a segment is not that of its address.
    Cookie,
    /// The dump does not have the block that a list leads to.
    Missing,
}

impl Fault {
    /// Returns its name for the Python side.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Link => "link",
            Fault::Twice => "twice",
            Fault::Count => "count",
            Fault::Page => "page",
            Fault::Overlap => "overlap",
            Fault::Slices => "slices",
            Fault::Cookie => "cookie",
            Fault::Missing => "missing",
        }
    }
}

/// A page as its `mi_page_t` describes it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The address of its `mi_page_t`.
    pub address: u64,
    /// The first block.
    pub start: u64,
    /// Bytes of a block.
    pub block: u64,
    /// How many blocks have been made. Memory behind them has not been used yet.
    pub capacity: u32,
    /// How many blocks fit.
    pub reserved: u32,
    /// How many blocks are in neither `free` nor `local_free`.
    pub used: u32,
    /// The thread that owns it; 0 if that thread is gone.
    pub thread: u64,
    /// `xheap`, without its flags (2.x).
    pub heap: u64,
    /// The first block of each list.
    pub heads: [u64; 3],
    /// How many blocks each list has, and how many are in a heap's delayed list.
    pub counts: [u32; 4],
    /// The keys of encoded links.
    pub keys: Option<[u64; 2]>,
    /// Bit i is set if block i is free. Empty if no block is.
    pub map: Vec<u64>,
}

impl Page {
    /// Reads a page whose memory is `area`. None: the dump does not have it, or its fields contradict each other.
    pub(super) fn read(image: &Image, shape: &Shape, address: u64, area: (u64, u64)) -> Option<Page> {
        let mut bytes = [0; PAGE_BYTES];
        let got = image.read(address, &mut bytes);
        if got < shape.thread_free + 16 {
            return None;
        }
        let field = |at: usize, size: usize| -> u64 {
            bytes.get(at..at + size).map_or(0, |b| b.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
        };
        let whole = area.1.checked_sub(area.0)?;
        let mut block = field(shape.block.0, shape.block.1);
        if shape.block.1 == 4 && block >= 1 << 31 {
            block = whole; // MI_HUGE_BLOCK_SIZE: the size of the page
        }
        let start = match shape.start {
            Start::Pointer(at) => field(at, 8),
            Start::Words(at) => address.checked_add(8 * field(at, 4))?,
            Start::Bytes(at) => address.checked_add(field(at, 8))?,
            Start::Fixed(bytes) if block <= 1024 => area.0 + bytes,
            Start::Blocks if block <= 64 => area.0 + 3 * block,
            Start::Blocks if block <= 512 => area.0 + block,
            Start::Fixed(_) | Start::Blocks => area.0,
        };
        let page = Page {
            address,
            start,
            block,
            capacity: field(shape.capacity, 2) as u32,
            reserved: field(shape.reserved, 2) as u32,
            used: field(shape.used.0, shape.used.1) as u32,
            thread: if shape.in_segments() { 0 } else { field(shape.thread, 8) & !7 },
            heap: if shape.in_segments() { field(shape.heap(), 8) & !3 } else { 0 },
            heads: [field(shape.free, 8), field(shape.local, 8), field(shape.thread_free, 8) & !3],
            counts: [0; 4],
            keys: shape.keys.map(|at| [field(at, 8), field(at + 8, 8)]).filter(|_| shape.coded),
            map: Vec::new(),
        };
        page.is_sound(shape, area).then_some(page)
    }

    fn is_sound(&self, shape: &Shape, area: (u64, u64)) -> bool {
        let sized = self.block >= 8 && self.block % 8 == 0 && self.block < MOST_BLOCK && self.start % 8 == 0;
        let counted = self.reserved > 0 && self.capacity <= self.reserved && self.used <= self.capacity;
        let fits = self.start >= area.0 && self.end() <= area.1.min(USER_END);
        // All room is used: that is the proof of where the first block is, and that the block has that size.
        let room = area.1.saturating_sub(self.start);
        let full = match shape.start {
            Start::Fixed(_) | Start::Blocks => u64::from(self.reserved) == room / self.block.max(1),
            _ if self.reserved == 1 => true,
            _ if shape.in_segments() => u64::from(self.reserved) == room / self.block.max(1),
            _ => self.start - area.0.min(self.start) <= SLICE,
        };
        sized && counted && fits && full
    }

    /// Returns the address after the last block that fits.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.reserved).saturating_mul(self.block))
    }

    /// Returns the address after the last block that has been made.
    pub fn made(&self) -> u64 {
        self.start.saturating_add(u64::from(self.capacity).saturating_mul(self.block))
    }

    /// Returns the number of the block that begins at the address.
    pub(super) fn slot(&self, address: u64) -> Option<usize> {
        let from = address.checked_sub(self.start)?;
        (from % self.block == 0 && from / self.block < u64::from(self.capacity)).then_some((from / self.block) as usize)
    }

    /// Returns whether the block is in a list.
    pub fn is_free(&self, slot: usize) -> bool {
        self.map.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// Returns how many blocks are in use.
    pub fn live(&self) -> u32 {
        self.capacity - self.counts.iter().sum::<u32>().min(self.capacity)
    }

    /// Follows the three lists. Every block in one is free.
    pub(super) fn follow(&mut self, reader: &mut CachedReader<'_>) -> Result<(), (Fault, u64)> {
        let mut worst = Ok(());
        for list in [FREE, LOCAL, THREAD] {
            let links = Links { keys: self.keys, null: self.address };
            let mut at = self.heads[list];
            while at != 0 {
                if let Err(fault) = self.put(at, list) {
                    worst = worst.and(Err((fault, at)));
                    break;
                }
                match links.next(reader, at) {
                    Some(next) => at = next,
                    None => {
                        worst = worst.and(Err((Fault::Missing, at)));
                        break;
                    }
                }
            }
        }
        worst?;
        match u64::from(self.capacity) == self.in_no_list() + u64::from(self.used) {
            true => Ok(()),
            false => Err((Fault::Count, self.address)),
        }
    }

    /// Returns how many blocks the owner's own two lists have.
    pub(super) fn in_no_list(&self) -> u64 {
        u64::from(self.counts[FREE]) + u64::from(self.counts[LOCAL])
    }

    /// Marks the block as free.
    pub(super) fn put(&mut self, address: u64, list: usize) -> Result<(), Fault> {
        let slot = self.slot(address).ok_or(Fault::Link)?;
        if self.map.is_empty() {
            self.map = vec![0; (self.capacity as usize).div_ceil(64)];
        }
        if self.is_free(slot) {
            return Err(Fault::Twice);
        }
        self.map[slot / 64] |= 1 << (slot % 64);
        self.counts[list] += 1;
        Ok(())
    }

    /// Returns the bytes that the program asked for, from the padding at the end of a block (`mi_padding_t`: a check
    /// value, and how many bytes before it are padding, too). None: there is no padding, or it was overwritten.
    pub(super) fn asked(&self, reader: &mut CachedReader<'_>, start: u64) -> Option<u64> {
        let [shift, mask] = self.keys?;
        let room = self.block - PADDING;
        let word = reader.word(start.checked_add(room)?, 8)?;
        let (canary, delta) = (word & 0xffff_ffff, word >> 32);
        let right = (start ^ mask).rotate_left((shift % 64) as u32).wrapping_add(shift) & 0xffff_ffff;
        // The lowest byte is 0 since 2.1.9.
        let fits = canary == right || canary == right & !0xff;
        (fits && delta <= room).then(|| room - delta)
    }

    /// Returns which list has the free block.
    pub fn list_of(&self, image: &Image, address: u64) -> Option<usize> {
        let mut reader = CachedReader::new(image);
        let links = Links { keys: self.keys, null: self.address };
        for list in [FREE, LOCAL, THREAD] {
            let mut at = self.heads[list];
            for _ in 0..self.capacity {
                if at == address {
                    return Some(list);
                }
                at = links.next(&mut reader, at).unwrap_or(0);
                if self.slot(at).is_none() {
                    break;
                }
            }
        }
        self.slot(address).filter(|&slot| self.is_free(slot)).map(|_| DELAYED)
    }
}

/// Returns whether the page at the address holds nothing: it has no block and no list.
///
/// `mi_segment_page_clear` zeroes a page from `capacity` on when its last block is freed. `mi_span_queue_delete` gives a
/// free span the block size 1 (segment.c of 2.0.3 to 2.4.1): `mi_segment_free` does so for all spans of a segment before
/// it goes back to its arena or to the cache. The segment may stay mapped there, with its cookie.
pub(super) fn is_cleared(image: &Image, shape: &Shape, address: u64) -> bool {
    let zero = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        let from = address.checked_add(at as u64);
        from.is_some_and(|from| image.read(from, &mut bytes[..size]) == size) && bytes == [0; 8]
    };
    let counts = [(shape.capacity, 2), (shape.reserved, 2), shape.used];
    let lists = [shape.free, shape.local, shape.thread_free].map(|at| (at, 8));
    counts.into_iter().chain(lists).all(|(at, size)| zero(at, size))
}

/// How the links of a list are read.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) keys: Option<[u64; 2]>,
    /// What stands for the end of an encoded list: the page, or the heap.
    pub(super) null: u64,
}

impl Links {
    /// Returns the block after the one at the address; 0 at the end. None: the dump does not have it.
    pub(super) fn next(&self, reader: &mut CachedReader<'_>, at: u64) -> Option<u64> {
        let word = reader.word(at, 8)?;
        Some(match self.keys {
            None => word,
            Some([shift, mask]) => {
                let next = word.wrapping_sub(shift).rotate_right((shift % 64) as u32) ^ mask;
                if next == self.null {
                    0
                } else {
                    next
                }
            }
        })
    }
}
