//! Damage to objects: red zones and poison that were overwritten (slub_debug=Z and P).

use super::freelists::{state, States};
use super::layout::Cache;
use super::slab_bytes::SlabBytes;
use super::table::{Node, Slab, Table};
use crate::control::{Control, Stopped};
use crate::kernel::physical::Physical;

// include/linux/poison.h. They have never changed.
const RED_INACTIVE: u8 = 0xbb;
const RED_ACTIVE: u8 = 0xcc;
const POISON_INUSE: u8 = 0x5a;
const POISON_FREE: u8 = 0x6b;
const POISON_END: u8 = 0xa5;

/// What was overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The red zone before an object.
    Before,
    /// The red zone behind an object.
    Behind,
    /// A free object.
    Freed,
    /// What is behind the last object of a slab.
    Rest,
}

/// Bytes that were overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten {
    /// Where.
    pub zone: Zone,
    /// The object.
    pub node: Node,
    /// The direct-map address of the first such byte.
    pub at: u64,
    /// How many bytes there are from there to the last such byte.
    pub length: u32,
    /// The byte that should be there.
    pub expected: u8,
    /// The first eight bytes that are there.
    pub found: [u8; 8],
}

/// The most that is reported. All are counted.
const MOST: usize = 1 << 14;

/// Checks all objects of caches that have red zones or poison. Returns what was found, and how many there are.
pub fn check(
    table: &Table,
    states: &States,
    physical: &dyn Physical,
    control: &Control,
) -> Result<(Vec<Overwritten>, u64), Stopped> {
    let mut found = Found { all: Vec::new(), count: 0 };
    let mut bytes = SlabBytes::default();
    for (index, slab) in table.slabs.iter().enumerate() {
        if index % 1024 == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let Some(cache) = table.caches.get(slab.cache as usize) else { continue };
        if !(cache.red_zone || cache.poison || cache.padded) {
            continue;
        }
        bytes.read(table, slab, physical);
        let cut = states.cut.binary_search(&(index as u32)).is_ok();
        found.slab(table, slab, cache, &bytes, (states, cut));
    }
    Ok((found.all, found.count))
}

struct Found {
    all: Vec<Overwritten>,
    count: u64,
}

impl Found {
    /// Checks a slab. `cut`: the rest of its freelist is not known, so that any other object may be free.
    fn slab(&mut self, table: &Table, slab: &Slab, cache: &Cache, bytes: &SlabBytes, (states, cut): (&States, bool)) {
        // Where a damaged dump has the direct map at the end of memory, addresses wrap.
        let base = table.address(slab.pfn << table.page_bits());
        let size = cache.size as usize;
        for slot in 0..u32::from(slab.objects) {
            let node = slab.first + slot;
            let object = slot as usize * size + cache.red_left as usize;
            let free = states.of[node as usize] >= state::FREE;
            let mut zone = |zone, from: usize, to: usize, expected: u8| {
                let part = bytes.get(from..to);
                part.is_some_and(|part| self.compare(zone, node, base.wrapping_add(from as u64), part, expected))
            };
            let end = object + cache.object_size as usize;
            if cache.red_zone {
                let first = bytes.get(end..end + 1).and_then(|byte| byte.first());
                let inactive = free || (cut && first == Some(&RED_INACTIVE));
                let expected = if inactive { RED_INACTIVE } else { RED_ACTIVE };
                zone(Zone::Before, object - cache.red_left as usize, object, expected);
                zone(Zone::Behind, end, object + cache.inuse as usize, expected);
            }
            if cache.poison && free {
                // The last byte differs, so that a write beyond it is seen.
                let last = end.saturating_sub(1).max(object);
                let _ = zone(Zone::Freed, object, last, POISON_FREE) || zone(Zone::Freed, last, end, POISON_END);
            }
        }
        let last = usize::from(slab.objects) * size;
        if let (true, Some(rest)) = (cache.padded && slab.objects > 0, bytes.get(last..bytes.size())) {
            let node = slab.first + u32::from(slab.objects) - 1;
            self.compare(Zone::Rest, node, base.wrapping_add(last as u64), rest, POISON_INUSE);
        }
    }

    /// Returns whether something was overwritten.
    fn compare(&mut self, zone: Zone, node: Node, at: u64, bytes: &[u8], expected: u8) -> bool {
        let Some(first) = bytes.iter().position(|byte| *byte != expected) else { return false };
        let last = bytes.iter().rposition(|byte| *byte != expected).unwrap_or(first);
        self.count += 1;
        if self.all.len() < MOST {
            let mut found = [0; 8];
            let there = &bytes[first..bytes.len().min(first + 8)];
            found[..there.len()].copy_from_slice(there);
            let length = (last - first + 1) as u32;
            let at = at.wrapping_add(first as u64);
            self.all.push(Overwritten { zone, node, at, length, expected, found });
        }
        true
    }
}
