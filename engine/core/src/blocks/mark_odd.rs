//! Marking with odd pointers: at any byte, or with a tag. The tables only have plain words at multiples of their size.

use super::mark::Marker;
use super::number::Index;
use super::odd::Kinds;
use super::root_reader::BLOCK;
use crate::control::{Control, Stopped};
use crate::words::{grow_to, word_at};

/// Blocks from so many on are read in long pieces, in the order of their addresses.
const MANY: usize = 64;
/// Bytes read ahead for many blocks, and for few.
const AHEAD: [usize; 2] = [1 << 18, 1 << 12];
/// The bits of a word that may be an address below a tag.
const ADDRESSES: [u64; 2] = [(1 << 48) - 1, (1 << 47) - 1];

impl<I: Index, const P: usize> Marker<'_, I, P> {
    /// Takes the odd pointers of the blocks, which are in address order.
    pub(super) fn read_blocks(&mut self, blocks: Vec<usize>, control: &Control) -> Result<(), Stopped> {
        let ahead = AHEAD[usize::from(blocks.len() < MANY)];
        blocks.into_iter().try_for_each(|granule| self.read_block(granule, ahead, control))
    }

    /// Takes the odd pointers of a block.
    fn read_block(&mut self, granule: usize, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let block = self.tables.block(self.tables.word_map.run_of_granule(granule), granule);
        let (mut at, end) = (block.address, block.address.saturating_add(block.size));
        let Some(kinds) = self.odd.as_ref().map(|odd| odd.kinds) else { return Ok(()) };
        for &(from, to) in &kinds.dead[kinds.dead.partition_point(|d| d.1 <= at)..] {
            if from >= end {
                break;
            }
            self.read_part(at, from.max(at), ahead, control)?;
            at = at.max(to.min(end));
        }
        self.read_part(at, end, ahead, control)
    }

    fn read_part(&mut self, start: u64, end: u64, ahead: usize, control: &Control) -> Result<(), Stopped> {
        let Some(odd) = &mut self.odd else { return Ok(()) };
        let Some(place) = odd.place(start, end, ahead) else {
            return self.odd_words(start, end, control).map(|_| ());
        };
        let window = std::mem::take(&mut odd.window);
        let kinds = odd.kinds;
        self.take_odd(&window[place], start, kinds);
        if let Some(odd) = &mut self.odd {
            odd.window = window;
        }
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        Ok(())
    }

    /// Takes the odd pointers in `bytes`, which lie at `address`. Returns how many were candidates.
    fn take_odd(&mut self, bytes: &[u8], address: u64, kinds: &Kinds) -> u64 {
        let width = 16 / P;
        let mut candidates = 0;
        for offset in 0..(bytes.len() + 1).saturating_sub(width) {
            let aligned = (address + offset as u64) % width as u64 == 0;
            if !aligned && kinds.unaligned {
                candidates += u64::from(self.root(word_at::<P>(bytes, offset)));
            } else if aligned && kinds.tagged {
                candidates += u64::from(self.tagged_root(word_at::<P>(bytes, offset)));
            }
        }
        candidates
    }

    /// Takes the address below a tag as a root. Returns whether it was a candidate.
    pub(super) fn tagged_root(&mut self, word: u64) -> bool {
        ADDRESSES.iter().any(|bits| word & bits != word && self.root(word & bits))
    }

    /// Does the same for `[start, end)`, as far as the image has it. Only with `odd`.
    pub(super) fn odd_words(&mut self, start: u64, end: u64, control: &Control) -> Result<u64, Stopped> {
        let Some((image, kinds)) = self.odd.as_ref().map(|odd| (odd.image, odd.kinds)) else { return Ok(0) };
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
                let found = self.take_odd(&buffer[..got], at, kinds);
                candidates += found;
                let next = (at + BLOCK as u64).min(to);
                // Untouched memory is a hole in the dump and is not read.
                at = if found == 0 { image.data_from(next, to).saturating_sub(width as u64).max(next) } else { next };
            }
        }
        Ok(candidates)
    }
}
