//! Small reads at random addresses through a few cached blocks.

use crate::image::Image;

const BLOCK: usize = 4096;
const SLOTS: usize = 64;
/// Blocks that are read at once where one was asked for after the other.
const AHEAD: usize = 16;
/// Places in memory at which reading may go on.
const STREAMS: usize = 4;

/// A reader with a direct-mapped cache of blocks of 4 KiB: 64 of them, or as many as asked for.
pub struct CachedReader<'a> {
    image: &'a Image,
    slots: Vec<Slot>,
    /// The bytes of all slots. What was never written takes no memory.
    bytes: Vec<u8>,
    /// Where the blocks end that were read last: who asks for the next one will ask for those behind it, too.
    streams: [u64; STREAMS],
    stream: usize,
    filled: u64,
}

/// The block in a slot: where it begins, and how many of its bytes are known.
#[derive(Clone, Copy)]
struct Slot {
    start: u64,
    valid: usize,
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
        let count = slots.min(most).max(1);
        CachedReader {
            image,
            slots: vec![Slot { start: u64::MAX, valid: 0 }; count],
            bytes: vec![0; count * BLOCK],
            streams: [u64::MAX; STREAMS],
            stream: 0,
            filled: 0,
        }
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
        let image = self.image;
        match self.block(address - at as u64).get(at..at + word as usize) {
            Some(bytes) => Some(word_of(bytes, word)),
            // A segment need not begin at a block's start.
            None => image.word(address, word as usize),
        }
    }

    /// Calls `each` with the address and the value of up to `count` words in a row, up to the first one that is missing.
    pub fn each_word(&mut self, address: u64, count: u64, word: u64, mut each: impl FnMut(u64, u64)) {
        let (mut next, end) = (address, address.saturating_add(count.saturating_mul(word)));
        while next < end {
            let at = (next % BLOCK as u64) as usize;
            let known = self.block(next - at as u64);
            let last = known.len().min(at.saturating_add(usize::try_from(end - next).unwrap_or(usize::MAX)));
            let known = known.get(at..last).unwrap_or_default().chunks_exact(word as usize);
            let mut any = false;
            for bytes in known {
                each(next, word_of(bytes, word));
                next = next.saturating_add(word);
                any = true;
            }
            if !any {
                // It is not wholly in the slot.
                let Some(value) = self.word(next, word) else { return };
                each(next, value);
                next = next.saturating_add(word);
            }
        }
    }

    /// Returns how often memory was read.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Returns what is known of the block of 4 KiB that begins at an address.
    #[inline(always)]
    fn block(&mut self, start: u64) -> &[u8] {
        let index = (start / BLOCK as u64) as usize % self.slots.len();
        if self.slots[index].start != start {
            self.fill(start, index);
        }
        &self.bytes[index * BLOCK..][..self.slots[index].valid]
    }

    /// Reads a block, and some behind it where the one before was read, too.
    #[inline(never)]
    fn fill(&mut self, start: u64, index: usize) {
        let stream = self.streams.iter().position(|&next| next == start);
        let ahead = if stream.is_some() { AHEAD } else { 1 };
        // No more than a part of all slots, and not beyond the last one.
        let count = ahead.min(self.slots.len() / (2 * AHEAD)).min(self.slots.len() - index).max(1);
        let read = self.image.read(start, &mut self.bytes[index * BLOCK..][..count * BLOCK]);
        for i in 0..count {
            let valid = read.saturating_sub(i * BLOCK).min(BLOCK);
            let start = start.saturating_add((i * BLOCK) as u64);
            // What is not known at all is read once more when it is asked for.
            self.slots[index + i] = Slot { start: if i > 0 && valid == 0 { u64::MAX } else { start }, valid };
        }
        self.filled = self.filled.wrapping_add(1);
        let place = stream.unwrap_or(self.stream);
        if stream.is_none() {
            self.stream = (self.stream + 1) % STREAMS;
        }
        self.streams[place] = start.saturating_add((count * BLOCK) as u64);
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

/// Returns the little-endian word of 4 or 8 bytes with which these begin.
#[inline(always)]
fn word_of(bytes: &[u8], word: u64) -> u64 {
    let mut whole = [0u8; 8];
    whole[..word as usize].copy_from_slice(&bytes[..word as usize]);
    u64::from_le_bytes(whole)
}
