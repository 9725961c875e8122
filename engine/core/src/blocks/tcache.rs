//! Recognises a tcache by its content while the pass reads it.

use super::runs::GRANULE;
use crate::hw;
use crate::words::word;

/// The structure to look for (tcache_perthread_struct): `bins` counters of `width` bytes, then as many pointers into the
/// heap.
#[derive(Clone, Copy, Debug)]
pub struct TcacheShape {
    /// The size of its chunk.
    pub chunk: u64,
    /// How many counters it has.
    pub bins: usize,
    /// The bytes of a counter.
    pub width: usize,
}

impl TcacheShape {
    /// Returns whether the content fits. At least one pointer must be set, and every pointer that is set must be an
    /// aligned address in the heap. The counters must agree. Either they are set exactly where the pointers are (counts
    /// of chunks), or they are all equal where the pointers are not set (free slots, glibc 2.42).
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

/// Returns the 16-bit number `index` of `bytes`.
fn half(bytes: &[u8], index: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
}
