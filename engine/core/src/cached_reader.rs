//! Small reads at random addresses through a few cached blocks.

use crate::image::Image;

const BLOCK: usize = 4096;
const SLOTS: usize = 64;

/// A reader with a direct-mapped cache of blocks of 4 KiB: 64 of them, or as many as asked for.
pub struct CachedReader<'a> {
    image: &'a Image,
    blocks: Vec<Slot>,
}

struct Slot {
    start: u64,
    valid: usize,
    /// Empty until the slot is first used.
    bytes: Vec<u8>,
}

impl<'a> CachedReader<'a> {
    /// Makes a reader with an empty cache.
    pub fn new(image: &'a Image) -> Self {
        CachedReader::with_slots(image, SLOTS)
    }

    /// Makes a reader that keeps so many blocks of 4 KiB, for reads all over the heap.
    pub fn with_slots(image: &'a Image, slots: usize) -> Self {
        // A small image does not fill them.
        let bytes = image
            .segments()
            .iter()
            .map(|segment| segment.end.saturating_sub(segment.start))
            .fold(0, u64::saturating_add);
        let most = usize::try_from(bytes / BLOCK as u64 + 1).unwrap_or(usize::MAX);
        let blocks =
            (0..slots.min(most).max(1)).map(|_| Slot { start: u64::MAX, valid: 0, bytes: Vec::new() }).collect();
        CachedReader { image, blocks }
    }

    /// Returns the image that it reads.
    pub fn image(&self) -> &'a Image {
        self.image
    }

    /// Returns a little-endian word of `word` (4 or 8) bytes. The address need not be aligned.
    pub fn word(&mut self, address: u64, word: u64) -> Option<u64> {
        let at = (address % BLOCK as u64) as usize;
        if at + word as usize > BLOCK {
            return self.image.word(address, word as usize);
        }
        let start = address - at as u64;
        let count = self.blocks.len();
        let slot = &mut self.blocks[(start / BLOCK as u64) as usize % count];
        if slot.start != start {
            slot.bytes.resize(BLOCK, 0);
            slot.valid = self.image.read(start, &mut slot.bytes);
            slot.start = start;
        }
        if at + word as usize > slot.valid {
            // A segment need not begin at a block's start.
            return self.image.word(address, word as usize);
        }
        let mut bytes = [0u8; 8];
        bytes[..word as usize].copy_from_slice(&slot.bytes[at..at + word as usize]);
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns `N` words in a row, or None where one of them is missing.
    pub fn words<const N: usize>(&mut self, address: u64, word: u64) -> Option<[u64; N]> {
        let mut out = [0; N];
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.word(address.checked_add(i as u64 * word)?, word)?;
        }
        Some(out)
    }
}
