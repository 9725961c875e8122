//! Reads the words of roots, and keeps the candidate pointers.

use super::pass::{in_spans, PART};
use super::text::is_text;
use super::word_map::WordMap;
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::words::word;

/// Bytes of roots read at once.
pub(super) const BLOCK: usize = 1 << 20;

/// Reads the words of a range of roots, a part at a time.
pub struct RootReader {
    left: std::vec::IntoIter<(u64, u64)>,
    at: u64,
    to: u64,
    buffer: Vec<u8>,
    /// The candidates of the part that was read: where each lies, and the number of the word that it names.
    pub found: Vec<(u64, usize)>,
}

impl RootReader {
    /// Begins to read `[start, end)`, where the image has it.
    pub fn new(image: &Image, start: u64, end: u64) -> RootReader {
        let left = image.usable(start, end).into_iter();
        RootReader { left, at: 0, to: 0, buffer: Vec::new(), found: Vec::new() }
    }

    /// Reads the next part. Returns false after the last.
    pub fn read<const P: usize>(
        &mut self,
        image: &Image,
        word_map: &WordMap<P>,
        control: &Control,
    ) -> Result<bool, Stopped> {
        let width = WordMap::<P>::WORD;
        while self.at >= self.to {
            let Some((from, to)) = self.left.next() else { return Ok(false) };
            // Pointers are aligned in memory, even if the range is not.
            (self.at, self.to) = (from.next_multiple_of(width), to);
        }
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let want = (self.to - self.at).min(BLOCK as u64) as usize;
        self.buffer.resize(want.next_multiple_of(512), 0);
        let got = image.read(self.at, &mut self.buffer[..want]) / width as usize * width as usize;
        self.buffer[got..].fill(0);
        self.find(word_map);
        let next = self.at + want as u64;
        // Untouched memory is a hole in the dump and is not read.
        let empty = self.found.is_empty();
        let next = if empty { image.data_from(next, self.to).next_multiple_of(width) } else { next };
        control.add(next - self.at);
        self.at = next;
        Ok(true)
    }

    fn find<const P: usize>(&mut self, word_map: &WordMap<P>) {
        self.found.clear();
        for (i, part) in self.buffer.chunks_exact(PART * 16 / P).enumerate() {
            let mut mask = in_spans::<P>(part, &word_map.spans);
            while mask != 0 {
                let bit = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                if is_text(word_map, &self.buffer, i * PART + bit) {
                    continue;
                }
                if let Some(target) = word_map.word_of(word::<P>(part, bit)) {
                    self.found.push((self.at + (i * PART + bit) as u64 * WordMap::<P>::WORD, target));
                }
            }
        }
    }
}
