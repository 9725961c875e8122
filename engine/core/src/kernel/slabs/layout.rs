//! Offsets in this kernel's slab structures, and its caches. All of them come from the debug information of the kernel
//! that died and from its memory (drgnext/kernel/slabs/caches.py).

/// A bit field in a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Where the word of 8 bytes begins that holds the field: a multiple of 8.
    pub word: usize,
    /// The field's lowest bit.
    pub shift: u32,
    /// How many bits it has.
    pub width: u32,
}

impl Bits {
    /// Returns the field's value in its word.
    pub fn of(self, word: u64) -> u32 {
        let mask = if self.width >= 32 { u64::from(u32::MAX) } else { (1 << self.width) - 1 };
        (word.checked_shr(self.shift).unwrap_or(0) & mask) as u32
    }
}

/// Offsets of one kernel.
#[derive(Clone, Debug, Default)]
pub struct SlabLayout {
    // Offsets in struct slab, or in struct page before 5.17.
    /// `slab_cache`.
    pub cache: usize,
    /// `freelist`.
    pub freelist: usize,
    /// `inuse`.
    pub inuse: Bits,
    /// `objects`.
    pub objects: Bits,

    /// The virtual address of physical address 0 in the map of all memory. It may wrap around.
    pub direct_map: u64,
    /// What each possible CPU adds to a per-CPU pointer.
    pub cpus: Vec<u64>,
    /// kmem_cache_cpu.freelist (None from 7.0 on).
    pub cpu_freelist: Option<u64>,
    /// Sheaves (6.18 and later).
    pub sheaves: Option<Sheaves>,
    /// The objects in KFENCE's pool, by page frame.
    pub guarded: Vec<Guarded>,
}

/// An object that KFENCE guards. It has a page to itself.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    /// The page frame.
    pub pfn: u64,
    /// The number of a cache that describes this object alone: its slot is the page.
    pub cache: u32,
    /// Whether it was freed.
    pub free: bool,
}

/// Offsets that lead to the objects in sheaves.
#[derive(Clone, Debug, Default)]
pub struct Sheaves {
    /// slub_percpu_sheaves: main, spare, rcu_free.
    pub of_cpu: Vec<u64>,
    /// node_barn: sheaves_full and sheaves_empty.
    pub of_barn: Vec<u64>,
    /// slab_sheaf.barn_list.
    pub list: u64,
    /// slab_sheaf.cache.
    pub cache: u64,
    /// slab_sheaf.size, a number of 4 bytes.
    pub size: u64,
    /// slab_sheaf.objects.
    pub objects: u64,
}

/// A `struct kmem_cache`.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Its address.
    pub address: u64,
    /// Bytes from one object to the next.
    pub size: u32,
    /// Bytes of an object.
    pub object_size: u32,
    /// Bytes of an object with what belongs to it: before the free pointer or the tracks outside it.
    pub inuse: u32,
    /// Where a free object has the pointer to the next.
    pub offset: u32,
    /// Bytes before an object, in its slot.
    pub red_left: u32,
    /// Bytes of an object that can hold pointers.
    pub scanned: u32,
    /// What the pointers between free objects are mixed with, or None where they are plain (not
    /// CONFIG_SLAB_FREELIST_HARDENED).
    pub random: Option<u64>,
    /// `cpu_slab`: the per-CPU pointer to kmem_cache_cpu; 0 for none.
    pub cpu_slab: u64,
    /// `cpu_sheaves`: the per-CPU pointer to slub_percpu_sheaves; 0 for none.
    pub cpu_sheaves: u64,
    /// The node_barn of each node that has one.
    pub barns: Vec<u64>,
    /// Where the first `struct track` lies in an object; 0 for none.
    pub track: u32,
    /// Whether there are red zones (SLAB_RED_ZONE).
    pub red_zone: bool,
    /// Whether free objects are filled with a pattern (__OBJECT_POISON).
    pub poison: bool,
    /// Whether the rest of a slab is filled with a pattern (SLAB_POISON).
    pub padded: bool,
    /// Whether pages of it may hold something else than objects behind the last object (extensions of objects, 7.0).
    pub rest: bool,
}

impl Cache {
    /// Returns whether the numbers are possible. A cache that passes cannot cause a panic.
    pub fn is_sane(&self) -> bool {
        let within = |offset: u32, bytes: u32| offset.checked_add(bytes).is_some_and(|end| end <= self.size);
        let after_pad =
            |offset: u32, bytes: u32| self.red_left.checked_add(offset).is_some_and(|offset| within(offset, bytes));
        (8..=1 << 22).contains(&self.size)
            && self.size % 8 == 0
            && self.red_left % 8 == 0
            && after_pad(0, self.object_size)
            && after_pad(0, self.scanned)
            && after_pad(self.offset, 8)
            && (self.track == 0 || after_pad(self.track, 8))
            && self.object_size > 0
    }

    /// Returns the possible next free objects that `word`, which lies at `at`, leads to.
    ///
    /// Since 5.7 the address is mixed in with its bytes swapped (mm/slub.c, freelist_ptr(); commit 1ad53d9fa3f6).
    pub fn next_free(&self, word: u64, at: u64) -> [u64; 2] {
        match self.random {
            None => [word; 2],
            Some(random) => [word ^ random ^ at.swap_bytes(), word ^ random ^ at],
        }
    }
}
