//! How many blocks of each size are in which state.

use std::collections::HashMap;

use super::index::{Tables, EVERY};
use super::number::Index;
use super::states::{State, States};
use crate::hw;
use crate::keys::Keys;

/// Sizes below this are counted in a table. It has room for the sizes that there are: a small heap has few.
const SMALL: u64 = 1 << 12;

/// How many blocks of a size (usable bytes) are in use and free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCount {
    /// Usable bytes of each block.
    pub size: u64,
    /// Blocks in use and not leaked.
    pub live: u64,
    /// Free blocks.
    pub free: u64,
    /// Leaked blocks.
    pub leaked: u64,
    /// The allocator's own.
    pub own: u64,
}

/// Returns the sizes in order, over all runs or those of one arena.
pub(super) fn count<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    states: States<I>,
    arena: Option<u32>,
) -> Vec<SizeCount> {
    hw::fast_work(Counting { tables, states, arena })
}

/// The work of [`count`].
struct Counting<'a, I: Index, const P: usize> {
    tables: &'a Tables<I, P>,
    states: States<'a, I>,
    arena: Option<u32>,
}

impl<I: Index, const P: usize> hw::Work for Counting<'_, I, P> {
    type Out = Vec<SizeCount>;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> Self::Out {
        let Counting { tables, mut states, arena } = self;
        let mut small: Vec<SizeCount> = Vec::new();
        let mut large: HashMap<u64, SizeCount, Keys> = HashMap::default();
        for (index, placed) in tables.word_map.runs.iter().enumerate() {
            if arena.is_some_and(|arena| placed.run.owner.arena != arena) {
                continue;
            }
            tables.each_block(index, EVERY, |block| {
                let entry = if block.size < SMALL {
                    if block.size as usize >= small.len() {
                        small.resize((block.size as usize + 1).next_power_of_two(), SizeCount::default());
                    }
                    &mut small[block.size as usize]
                } else {
                    large.entry(block.size).or_default()
                };
                entry.size = block.size;
                match states.of(&block) {
                    State::Free => entry.free += 1,
                    State::Own => entry.own += 1,
                    State::Live => entry.live += 1,
                    State::LeakedDirectly | State::LeakedIndirectly => entry.leaked += 1,
                }
                true
            });
        }
        let seen = |count: &SizeCount| count.live + count.free + count.leaked + count.own > 0;
        let mut out: Vec<SizeCount> = small.into_iter().filter(seen).chain(large.into_values()).collect();
        out.sort_by_key(|count| count.size);
        out
    }
}
