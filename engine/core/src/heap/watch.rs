//! Recognising a tcache by its content, while the pass has it in the cache.

use super::pass::word;
use super::space::GRANULE;
use crate::hw;

/// A structure to look for: `bins` counters of `width` bytes, then as many pointers into the heap (tcache_perthread_struct).
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub chunk: u64,
    pub bins: usize,
    pub width: usize,
}

impl Watch {
    /// Whether some pointer is set, all that are lead to aligned places in the heap, and the counters agree: set exactly where the
    /// pointers are (counts of chunks), or all alike where they are not (slots left, glibc 2.42).
    pub fn fits<const P: usize>(&self, content: &[u8], spans: &hw::Spans) -> bool {
        let width = 16 / P;
        let Some(entries) = content.get((self.bins * self.width).next_multiple_of(width)..) else { return false };
        if entries.len() < self.bins * width {
            return false;
        }
        let (mut filled, mut counts_agree, mut slots_agree, mut limit) = (0, true, true, 0);
        for i in 0..self.bins {
            let entry = word::<P>(entries, i);
            let counter = if self.width == 1 { u64::from(content[i]) } else { half(content, i) };
            counts_agree &= (entry != 0) == (counter != 0);
            if entry != 0 {
                filled += 1;
                if entry % GRANULE != 0 || !spans.contains(entry) {
                    return false;
                }
            } else {
                slots_agree &= counter != 0 && (limit == 0 || counter == limit);
                limit = counter;
            }
            if !counts_agree && !slots_agree {
                return false;
            }
        }
        filled > 0
    }
}

/// The 16-bit number `index` of `bytes`.
fn half(bytes: &[u8], index: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
}
