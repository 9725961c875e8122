//! What the words of blocks lead to: the blocks of a size, and the blocks that one block alone keeps alive.

use super::owners::{Kept, Owners, Scope};
use crate::blocks::index::{Block, Tables};
use crate::blocks::number::Index;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 12;
/// Blocks of two kinds may follow each other by turns: equal steps would see only one. So each step ends so many blocks later.
const TURN: usize = 3;
const MOST_TURNS: usize = 256;

/// Blocks whose words are read: those that one block keeps alive, itself included.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    /// The address of that block.
    pub by: u64,
    /// The addresses of blocks below it: what they keep alive is left out.
    pub without: &'a [u64],
    /// One in so many blocks is read.
    pub step: usize,
    /// Words that are read in all, the same number of each block: at least one.
    pub words: u64,
}

/// Returns `most` places of a list that has more than so many, from all over it, in order: the first one is 0.
pub fn spread(count: usize, most: usize) -> Vec<usize> {
    let turns = (count / most.max(1)).clamp(1, MOST_TURNS);
    (0..most).map(|place| count * place / most + place * TURN % turns).collect()
}

impl Owners {
    /// Returns the blocks of some sizes that words of `held` lead to and that `held.by` does not keep alive: (address, usable
    /// bytes), in address order. What the image lacks leads nowhere.
    pub fn led_to<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        image: &Image,
        held: Held,
        sizes: &[u64],
        control: &Control,
    ) -> Result<Vec<(u64, u64)>, Stopped> {
        let below = self.within(tables, Scope::Below(held.by));
        let sources = self.held_blocks(tables, &held, &below);
        let (word, step) = (16 / P as u64, held.step.max(1));
        let each = (held.words / (sources.len().div_ceil(step) as u64).max(1)).max(1);
        let mut reader = CachedReader::new(image);
        let mut found = Vec::new();
        for (count, block) in sources.iter().step_by(step).enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            reader.each_word(block.address, (block.size / word).min(each), word, |_at, value| {
                let target = tables.find(value).filter(|target| sizes.contains(&target.size));
                found.extend(target.map(|target| (target.address, target.size)));
            });
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|target| !self.vertex(tables, target.0).is_some_and(|vertex| below[vertex as usize]));
        Ok(found)
    }

    /// Returns the blocks that are read. `below` has for each vertex whether it is one of what `held.by` keeps alive.
    fn held_blocks<I: Index, const P: usize>(&self, tables: &Tables<I, P>, held: &Held, below: &[bool]) -> Vec<Block> {
        let mut own = below.to_vec();
        let without: Vec<u32> = held.without.iter().filter_map(|&address| self.vertex(tables, address)).collect();
        if let (Some(top), Some(&first)) = (self.vertex(tables, held.by), without.iter().min()) {
            for vertex in first.max(top + 1) as usize..own.len() {
                own[vertex] &= own[self.dominators[vertex] as usize] && !without.contains(&(vertex as u32));
            }
        }
        let mut found = Vec::new();
        self.each_vertex(tables, |block, vertex| {
            if own[vertex as usize] {
                found.push(block);
            }
            true
        });
        found
    }

    /// Returns (offset, block) of the first `most` words of the block at `address` that lead to blocks which it alone keeps
    /// alive directly.
    pub fn held_by_words<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        image: &Image,
        address: u64,
        most: u64,
    ) -> Vec<(u64, Kept)> {
        let (Some(holder), Some(block)) = (self.vertex(tables, address), tables.find(address)) else {
            return Vec::new();
        };
        let word = 16 / P as u64;
        let mut found = Vec::new();
        CachedReader::new(image).each_word(block.address, (block.size / word).min(most), word, |at, value| {
            let below = self.vertex(tables, value).filter(|&vertex| self.dominators[vertex as usize] == holder);
            let kept = below.and_then(|vertex| self.kept(tables, vertex));
            found.extend(kept.map(|kept| (at - block.address, kept)));
        });
        found
    }

    /// Returns the addresses of up to `most` blocks of a size, from all over the scope from address `from` on, in order.
    pub fn spread<I: Index, const P: usize>(
        &self,
        tables: &Tables<I, P>,
        scope: Scope,
        (from, size): (u64, u64),
        most: usize,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        self.each(tables, scope, |block| {
            if block.size == size && block.address >= from {
                found.push(block.address);
            }
            true
        });
        if found.len() <= most {
            return found;
        }
        spread(found.len(), most).into_iter().map(|place| found[place]).collect()
    }
}
