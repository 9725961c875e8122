//! Marking with pointers at every byte. The tables only have those at multiples of the word size.

use super::mark::Marker;
use super::number::Index;
use super::root_reader::BLOCK;
use crate::control::{Control, Stopped};
use crate::words::{grow_to, word_at};

/// Blocks from so many on are read in long pieces, in the order of their addresses.
const MANY: usize = 64;
/// Bytes read ahead for many blocks, and for few.
const AHEAD: [usize; 2] = [1 << 18, 1 << 12];

impl<I: Index, const P: usize> Marker<'_, I, P> {
    /// Takes what begins at the unaligned bytes of the blocks, which are in address order.
    pub(super) fn read_blocks(&mut self, blocks: Vec<usize>, control: &Control) -> Result<(), Stopped> {
        let ahead = AHEAD[usize::from(blocks.len() < MANY)];
        blocks.into_iter().try_for_each(|granule| self.read_block(granule, ahead, control))
    }

    /// Takes what begins at the unaligned bytes of a block.
    fn read_block(&mut self, granule: usize, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let block = self.tables.block(self.tables.word_map.run_of_granule(granule), granule);
        let (mut at, end) = (block.address, block.address.saturating_add(block.size));
        let Some(dead) = self.unaligned.as_ref().map(|unaligned| unaligned.dead) else { return Ok(()) };
        for &(from, to) in &dead[dead.partition_point(|d| d.1 <= at)..] {
            if from >= end {
                break;
            }
            self.read_part(at, from.max(at), ahead, control)?;
            at = at.max(to.min(end));
        }
        self.read_part(at, end, ahead, control)
    }

    fn read_part(&mut self, start: u64, end: u64, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let Some(unaligned) = &mut self.unaligned else { return Ok(()) };
        let Some(place) = unaligned.place(start, end, ahead) else {
            return self.unaligned_words(start, end, control).map(|_| ());
        };
        let window = std::mem::take(&mut unaligned.window);
        self.take_unaligned(&window[place], start);
        if let Some(unaligned) = &mut self.unaligned {
            unaligned.window = window;
        }
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        Ok(())
    }

    /// Takes the values that begin at the unaligned bytes of `bytes`, which lie at `address`. Returns how many were
    /// candidates.
    fn take_unaligned(&mut self, bytes: &[u8], address: u64) -> u64 {
        let width = 16 / P;
        let mut candidates = 0;
        for offset in 0..(bytes.len() + 1).saturating_sub(width) {
            if (address + offset as u64) % width as u64 != 0 {
                candidates += u64::from(self.root(word_at::<P>(bytes, offset)));
            }
        }
        candidates
    }

    /// Does the same for `[start, end)`, as far as the image has it. Only with `unaligned`.
    pub(super) fn unaligned_words(&mut self, start: u64, end: u64, control: &Control) -> Result<u64, Stopped> {
        let Some(image) = self.unaligned.as_ref().map(|unaligned| unaligned.image) else { return Ok(0) };
        let width = 16 / P;
        let mut candidates = 0;
        let mut buffer = Vec::new();
        for (from, to) in image.usable(start, end) {
            let mut at = from;
            while at < to {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                // The last words of a piece reach into the next one.
                let want = (to - at).min((BLOCK + width - 1) as u64) as usize;
                grow_to(&mut buffer, want);
                let got = image.read(at, &mut buffer[..want]);
                let found = self.take_unaligned(&buffer[..got], at);
                candidates += found;
                let next = (at + BLOCK as u64).min(to);
                // Untouched memory is a hole in the dump and is not read.
                at = if found == 0 { image.data_from(next, to).saturating_sub(width as u64).max(next) } else { next };
            }
        }
        Ok(candidates)
    }
}
