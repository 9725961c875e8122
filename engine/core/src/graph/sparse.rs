//! Large blocks with few pointers, of which many have one size: the pieces of libc++'s deque, tables that are nearly empty.
//!
//! One such block says nothing of its pointers. All of one size do. A pointer is regular
//!
//! * if enough of the blocks have, at that offset, a pointer to a block of the same kind: they are structures;
//! * if enough of all their words lead to that kind: they are arrays;
//! * if most of their pointers lead to that kind: they are tables with few entries.
//!
//! The other pointers are left over, in members that nobody writes.

use super::fields::{Counts, SMALL};
use super::kinds_of_targets::Kinds;
use crate::blocks::index::{each_edge, edges_of, Block, Tables};
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};

/// The largest block that is judged with the others of its size.
const LARGE: u64 = 1 << 16;
/// Sizes are told apart by so many bytes.
const STEP: u64 = 8;
/// Blocks of a size, at least, that are judged together.
const COMMON: u32 = 64;
/// Blocks of a size that are looked at to learn their fields.
const SAMPLE: usize = 4096;

/// Large blocks with few pointers.
#[derive(Default)]
pub(super) struct Sparse<I> {
    /// For each size: how many blocks are in use.
    in_use: Vec<u32>,
    /// The size and the granule of each block with few pointers.
    blocks: Vec<(u32, I)>,
}

impl<I: Index> Sparse<I> {
    /// No block is known yet.
    pub fn new() -> Self {
        Sparse { in_use: vec![0; (LARGE / STEP) as usize + 1], blocks: Vec::new() }
    }

    /// Counts a block in use.
    #[inline(always)]
    pub fn count(&mut self, size: u64) {
        if size > SMALL && size <= LARGE {
            self.in_use[(size / STEP) as usize] += 1;
        }
    }

    /// Adds a block with few pointers, if many blocks have its size.
    pub fn add(&mut self, block: &Block) {
        if block.size > SMALL && block.size <= LARGE && self.in_use[(block.size / STEP) as usize] >= COMMON {
            self.blocks.push(((block.size / STEP) as u32, I::new(block.granule)));
        }
    }

    /// Calls `take` for each edge of the blocks that is not regular.
    pub fn judge<const P: usize>(
        &mut self,
        tables: &Tables<I, P>,
        kinds: &Kinds<I, P>,
        control: &Control,
        mut take: impl FnMut(usize),
    ) -> Result<(), Stopped> {
        self.blocks.sort_unstable_by_key(|(size, granule)| (*size, granule.get()));
        for of_size in self.blocks.chunk_by(|one, other| one.0 == other.0) {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let each = |(_, granule): &(u32, I), each: &mut dyn FnMut(usize, usize)| {
                let edges = edges_of(&tables.regions, granule.get());
                each_edge(&tables.regions, granule.get(), edges, each);
            };
            let mut counts = Counts::default();
            let (step, mut looked_at) = ((of_size.len() / SAMPLE).max(1), 0u32);
            for block in of_size.iter().step_by(step) {
                looked_at += 1;
                each(block, &mut |offset, edge| {
                    if let Some(target) = kinds.target(edge) {
                        counts.add(offset as u16, target);
                    }
                });
            }
            let words = u64::from(of_size[0].0) * STEP / (16 / P as u64) * u64::from(looked_at);
            let (fields, anywhere) = (counts.fields_of_large(looked_at), counts.anywhere(words));
            for block in of_size {
                each(block, &mut |offset, edge| {
                    let is = |target| {
                        anywhere.is_regular(target) || fields.get(offset).is_some_and(|field| field.is_regular(target))
                    };
                    if kinds.target(edge).is_some_and(|target| !is(target)) {
                        take(edge);
                    }
                });
            }
        }
        Ok(())
    }
}
