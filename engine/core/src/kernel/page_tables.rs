//! Walks the kernel's page tables.
//!
//! x86-64: Intel SDM volume 3, 4.5 (4- and 5-level paging). AArch64: Arm ARM D8.3 (VMSAv8-64 descriptors).

use super::physical::Physical;

/// The format of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Intel's and AMD's.
    X86 {
        /// Bits of an entry that lie among the address but do not belong to it (AMD's memory encryption bit).
        clear: u64,
    },
    /// Arm's.
    Aarch64,
}

/// The root and shape of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The format of the entries.
    pub format: Format,
    /// Physical address of the first table.
    pub root: u64,
    /// log2 of the page size.
    pub page_bits: u32,
    /// Virtual addresses have this many bits. All bits above them are equal.
    pub va_bits: u32,
}

/// A range of memory that is contiguous both virtually and physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The physical address.
    pub physical: u64,
    /// Bytes from the address asked for to the end of the leaf.
    pub left: u64,
}

/// A decoded entry.
enum Entry {
    Absent,
    Table(u64),
    Leaf(u64),
}

impl Tables {
    /// Returns the tables if their shape is possible. Everything below relies on it.
    pub fn new(format: Format, root: u64, page_bits: u32, va_bits: u32) -> Option<Tables> {
        let fits = match format {
            Format::X86 { .. } => page_bits == 12 && (va_bits == 48 || va_bits == 57),
            // From CONFIG_ARM64_VA_BITS_36 on. The upper half begins with a table's first entry, and `Walker` relies on
            // that.
            Format::Aarch64 => matches!(page_bits, 12 | 14 | 16) && (36..=52).contains(&va_bits),
        };
        fits.then_some(Tables { format, root, page_bits, va_bits })
    }

    /// Returns how many bits of the address one level decides.
    fn stride(&self) -> u32 {
        self.page_bits - 3
    }

    fn top_shift(&self) -> u32 {
        let levels = (self.va_bits - self.page_bits).div_ceil(self.stride());
        self.page_bits + (levels - 1) * self.stride()
    }

    /// Returns where the kernel's half begins. All addresses from there on are canonical.
    pub fn kernel_start(&self) -> u64 {
        // On x86 the topmost of the va_bits is copied upwards. AArch64's TTBR1 half has ones above them.
        u64::MAX
            << match self.format {
                Format::X86 { .. } => self.va_bits - 1,
                Format::Aarch64 => self.va_bits,
            }
    }

    fn entry(&self, entry: u64, shift: u32) -> Entry {
        let last = shift == self.page_bits;
        let address = match self.format {
            Format::X86 { clear } => entry & 0x000f_ffff_ffff_f000 & !clear,
            Format::Aarch64 => {
                let low = entry & (0x0000_ffff_ffff_ffff >> self.page_bits << self.page_bits);
                // 64 KB pages: bits 15:12 hold bits 51:48 (FEAT_LPA).
                low | if self.page_bits == 16 { (entry >> 12 & 15) << 48 } else { 0 }
            }
        };
        let leaf = |bits: u32| Entry::Leaf(address >> bits << bits);
        match self.format {
            _ if entry & 1 == 0 => Entry::Absent,
            Format::X86 { .. } if last => leaf(shift),
            // Bit 7 is the page size bit in the two levels above the last.
            Format::X86 { .. } if entry & 0x80 != 0 && shift <= 30 => leaf(shift),
            Format::Aarch64 if last => {
                if entry & 2 != 0 {
                    leaf(shift)
                } else {
                    Entry::Absent
                }
            }
            Format::Aarch64 if entry & 2 == 0 => leaf(shift),
            _ => Entry::Table(address),
        }
    }

    /// Returns the physical address of some last-level table in the lower (a process's) half below another root.
    pub fn some_last_table(&self, physical: &dyn Physical, root: u64) -> Option<u64> {
        let mut budget = 64;
        self.last_below(physical, root, self.top_shift(), &mut budget)
    }

    fn last_below(&self, physical: &dyn Physical, table: u64, shift: u32, budget: &mut u32) -> Option<u64> {
        if shift == self.page_bits {
            return Some(table);
        }
        *budget = budget.checked_sub(1)?;
        let mut entries = vec![0; 8 << self.stride()];
        let got = physical.read(table, &mut entries);
        // x86 has one root for both halves. The upper half is the kernel's.
        let half = if shift == self.top_shift() { got / 2 } else { got };
        entries[..half].chunks_exact(8).find_map(|entry| {
            match self.entry(u64::from_le_bytes(*entry.first_chunk()?), shift) {
                Entry::Table(next) => self.last_below(physical, next, shift - self.stride(), budget),
                _ => None,
            }
        })
    }

    /// Finds the last-level table that maps the address, or the leaf above it.
    fn descend(&self, physical: &dyn Physical, address: u64) -> Above {
        let start = self.kernel_start();
        if address < start {
            return Above::Nothing { next: Some(start) };
        }
        let (mut table, mut shift) = (self.root, self.top_shift());
        loop {
            if shift == self.page_bits {
                return Above::Table(table);
            }
            // The top level decides the remaining bits of va_bits.
            let bits = if shift == self.top_shift() { self.va_bits - shift } else { self.stride() };
            let index = address >> shift & ((1 << bits) - 1);
            let mut entry = [0; 8];
            let there = table.checked_add(index * 8).is_some_and(|at| physical.read(at, &mut entry) == 8);
            match self.entry(if there { u64::from_le_bytes(entry) } else { 0 }, shift) {
                Entry::Absent => {
                    let behind = (address >> shift).checked_add(1).and_then(|number| number.checked_mul(1 << shift));
                    return Above::Nothing { next: behind };
                }
                Entry::Leaf(start) => return Above::Leaf { start, shift },
                Entry::Table(next) => table = next,
            }
            shift -= self.stride();
        }
    }
}

/// The result of walking the levels above the last.
#[derive(Clone, Copy, Debug)]
enum Above {
    Table(u64),
    Leaf {
        start: u64,
        shift: u32,
    },
    /// Nothing is mapped before `next`, which is the end of what the missing entry would map, at any level.
    Nothing {
        next: Option<u64>,
    },
}

/// How many walks are remembered, each for the memory of one last-level table (2 MB with 4 KB pages).
const REMEMBERED: usize = 1024;

/// Translates addresses, and remembers the walks.
pub struct Walker {
    /// The page tables.
    pub tables: Tables,
    /// By number of the region: the region, and the result of its walk.
    above: Vec<(u64, Above)>,
    /// The entries of last-level tables read last: (their physical address, their values).
    entries: (u64, [u8; 64]),
}

impl Walker {
    /// Makes a walker that remembers nothing yet.
    pub fn new(tables: Tables) -> Walker {
        Walker {
            tables,
            above: vec![(u64::MAX, Above::Nothing { next: None }); REMEMBERED],
            entries: (u64::MAX, [0; 64]),
        }
    }

    /// Returns where the byte is, and how many bytes follow it there. None where nothing is mapped.
    pub fn translate(&mut self, physical: &dyn Physical, address: u64) -> Option<Mapped> {
        let tables = self.tables;
        match self.above(physical, address) {
            Above::Nothing { .. } => None,
            Above::Leaf { start, shift } => {
                let offset = address & ((1 << shift) - 1);
                Some(Mapped { physical: start.checked_add(offset)?, left: (1 << shift) - offset })
            }
            Above::Table(table) => {
                let index = address >> tables.page_bits & ((1 << tables.stride()) - 1);
                let entry = self.last_entry(physical, table.checked_add(index * 8)?)?;
                let Entry::Leaf(start) = tables.entry(entry, tables.page_bits) else { return None };
                let offset = address & ((1 << tables.page_bits) - 1);
                Some(Mapped { physical: start.checked_add(offset)?, left: (1 << tables.page_bits) - offset })
            }
        }
    }

    /// Returns the first address after the region that may be mapped, if no table or leaf maps the region around the
    /// address (u64::MAX: no such address). Where a table is missing, all memory that it would map is skipped.
    pub fn gap(&mut self, physical: &dyn Physical, address: u64) -> Option<u64> {
        match self.above(physical, address) {
            Above::Nothing { next } => Some(next.filter(|next| *next > address).unwrap_or(u64::MAX)),
            _ => None,
        }
    }

    fn above(&mut self, physical: &dyn Physical, address: u64) -> Above {
        let region = address >> (self.tables.page_bits + self.tables.stride());
        let remembered = &mut self.above[region as usize % REMEMBERED];
        if remembered.0 != region {
            *remembered = (region, self.tables.descend(physical, address));
        }
        remembered.1
    }

    /// Reads entries eight at a time, because neighbours are needed next.
    fn last_entry(&mut self, physical: &dyn Physical, at: u64) -> Option<u64> {
        let block = at & !63;
        if self.entries.0 != block {
            self.entries.0 = u64::MAX;
            if physical.read(block, &mut self.entries.1) != 64 {
                return None;
            }
            self.entries.0 = block;
        }
        let from = (at - block) as usize;
        Some(u64::from_le_bytes(*self.entries.1.get(from..from + 8)?.first_chunk()?))
    }
}
