//! Which objects are free, by the freelists of their slabs.

use super::reserves::{Reserve, Reserves};
use super::slab_bytes::SlabBytes;
use super::table::{Node, Slab, Table, LARGE};
use crate::control::{Control, Stopped};
use crate::kernel::physical::Physical;

/// The state of an object, a byte each. Values below [`FREE`] are allocated objects; marking fills them in.
pub mod state {
    /// Allocated, and nothing is known to point to it.
    pub const LEAKED: u8 = 0;
    /// Held by a plain pointer.
    pub const PLAIN: u8 = 1;
    /// Held only by a task's stack.
    pub const STACK: u8 = 2;
    /// Held only by a pointer that is not aligned to 8 bytes.
    pub const UNALIGNED: u8 = 3;
    /// Held only by its physical address.
    pub const PHYSICAL: u8 = 4;
    /// A sheaf of the allocator itself.
    pub const OWN: u8 = 5;
    /// Dropped on purpose by the kernel, or held by such an object only.
    pub const SET_ASIDE: u8 = 6;
    /// Nothing points to it, and it may be free, or be held by a page that the dump lacks.
    pub const UNSURE: u8 = 7;
    /// Free, on the freelist of its slab.
    pub const FREE: u8 = 0x40;
    /// Free, on the freelist of a CPU.
    pub const FREE_CPU: u8 = 0x41;
    /// Free, in a sheaf.
    pub const FREE_SHEAF: u8 = 0x42;
    /// Free, in KFENCE's pool.
    pub const FREE_GUARDED: u8 = 0x43;
}

/// What is wrong with a freelist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A link leads out of the slab, or not to the beginning of an object.
    Leaves,
    /// An object is on a freelist twice.
    Twice,
    /// The page counts another number of allocated objects than its freelist leaves.
    Count,
}

/// A fault of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub fault: Fault,
    /// The index of the slab.
    pub slab: u32,
    /// The free object that holds the bad link. None: the page itself.
    pub object: Option<Node>,
    /// The bad link, or the number of allocated objects by the freelist.
    pub value: u64,
}

/// The most faults that are kept. All are counted.
const MOST_DAMAGE: usize = 1 << 16;

/// The states of all objects.
#[derive(Debug, Default)]
pub struct States {
    /// A byte for each node.
    pub of: Vec<u8>,
    /// What is damaged.
    pub damage: Vec<Damage>,
    /// How many faults there are.
    pub faults: u64,
    /// Pages of slabs with free objects that the dump lacks.
    pub missing_pages: u64,
    /// The indices of slabs whose freelist leads into such a page, in order. The rest of their free objects is not known.
    pub cut: Vec<u32>,
}

/// Why a freelist has no end.
enum Ended {
    /// It is damaged: (what, the object that holds the bad link, the link).
    Damaged(Fault, Option<Node>, u64),
    /// It leads into a page that the dump lacks.
    Lost,
}

impl States {
    /// Finds the free objects.
    pub fn new(
        table: &Table,
        reserves: &Reserves,
        physical: &dyn Physical,
        control: &Control,
    ) -> Result<States, Stopped> {
        let mut states = States::default();
        let nodes = table.nodes as usize;
        states.of.try_reserve_exact(nodes).map_err(|_| no_memory())?;
        states.of.resize(nodes, state::LEAKED);
        for (node, reserve) in &reserves.free {
            let wanted = if matches!(reserve, Reserve::Cpu(_)) { state::FREE_CPU } else { state::FREE_SHEAF };
            states.of[*node as usize] = wanted;
        }
        for node in &reserves.sheaves {
            if states.of[*node as usize] == state::LEAKED {
                states.of[*node as usize] = state::OWN;
            }
        }
        for node in &table.freed {
            states.of[*node as usize] = state::FREE_GUARDED;
        }
        let mut bytes = SlabBytes::default();
        for index in 0..table.slab_count {
            if index % 4096 == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            states.slab(table, index, physical, &mut bytes);
        }
        Ok(states)
    }

    fn note(&mut self, damage: Damage) {
        self.faults += 1;
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push(damage);
        }
    }

    fn slab(&mut self, table: &Table, index: usize, physical: &dyn Physical, bytes: &mut SlabBytes) {
        let slab = table.slabs[index];
        let damage = |fault, object, value| Damage { fault, slab: index as u32, object, value };
        let mut count = 0;
        if slab.freelist != 0 {
            bytes.read(table, &slab, physical);
            self.missing_pages += bytes.lost();
            count = match self.chain(table, &slab, bytes) {
                Ok(count) => count,
                Err(Ended::Lost) => {
                    self.cut.push(index as u32);
                    return;
                }
                Err(Ended::Damaged(fault, object, value)) => {
                    self.note(damage(fault, object, value));
                    return;
                }
            };
        }
        // All objects of a slab that a CPU uses count as allocated, and its freelist is empty.
        let allocated = u32::from(slab.objects) - count;
        if allocated != u32::from(slab.inuse) {
            self.note(damage(Fault::Count, None, u64::from(allocated)));
        }
    }

    /// Follows the freelist of a slab. Returns how many objects are on it.
    fn chain(&mut self, table: &Table, slab: &Slab, bytes: &SlabBytes) -> Result<u32, Ended> {
        debug_assert!(slab.cache != LARGE);
        let cache = &table.caches[slab.cache as usize];
        let base = table.address(slab.pfn << table.page_bits());
        let slot_of = |address: u64| {
            let offset = address.wrapping_sub(base).wrapping_sub(u64::from(cache.red_left));
            let slot = offset / u64::from(cache.size);
            (offset % u64::from(cache.size) == 0 && slot < u64::from(slab.objects)).then_some(slot as u32)
        };
        let (mut at, mut before, mut count) = (slab.freelist, None, 0);
        loop {
            let Some(slot) = slot_of(at) else { return Err(Ended::Damaged(Fault::Leaves, before, at)) };
            let node = slab.first + slot;
            let known = &mut self.of[node as usize];
            if *known == state::FREE {
                return Err(Ended::Damaged(Fault::Twice, before, at));
            }
            *known = state::FREE;
            count += 1;
            let word_at = at.wrapping_add(u64::from(cache.offset));
            let place = (word_at.wrapping_sub(base)) as usize;
            let Some(word) = bytes.get(place..place.saturating_add(8)).and_then(|b| b.first_chunk()) else {
                return Err(Ended::Lost);
            };
            let nexts = cache.next_free(u64::from_le_bytes(*word), word_at);
            if nexts.contains(&0) {
                return Ok(count);
            }
            before = Some(node);
            at = nexts.into_iter().find(|next| slot_of(*next).is_some()).unwrap_or(nexts[0]);
        }
    }
}

/// Returns the error for tables that do not fit into memory.
pub fn no_memory() -> Stopped {
    Stopped::NoMemory(std::io::ErrorKind::OutOfMemory.into())
}
