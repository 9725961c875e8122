//! A made-up machine: physical memory with page tables, a page array, files and lists of its own layout.

use std::collections::HashMap;
use std::sync::Arc;

use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::kernel::layout::{Files, Huge, Layout, MapCount};
use dmods_engine::kernel::page_tables::{Format, Tables};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::Kind;

pub const BASE: u64 = 0xffff_ea00_0000_0000;
pub const DIRECT: u64 = 0xffff_8880_0000_0000;
pub const PAGES: u64 = 16384;
pub const PAGE: u64 = 4096;

/// Where things lie in physical memory.
const ROOT: u64 = 0x1000;
const FILES: u64 = 0x10_0000;
const ARRAY: u64 = 0x40_0000;

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Memory by physical address, with holes, read in steps of any size.
pub struct Memory {
    pub image: Image,
    pub granule: usize,
}

impl Physical for Memory {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.image.read(address, buf)
    }
    fn granule(&self) -> usize {
        self.granule
    }
}

pub struct Machine {
    pub bytes: Vec<u8>,
    pub layout: Layout,
    pub tables: Tables,
    /// The kinds of the files, by mapping.
    pub files: HashMap<u64, Kind>,
    /// Whether the memmap is mapped in pages of 4 KB, in some order.
    shuffled: Vec<u64>,
}

pub fn layout(by_number: bool, size: usize) -> Layout {
    let bits = |bit: u32, kind| (0xffff_0000 | bit, 0xffff_0000, kind);
    let number = |value: u32, kind| (0xff00_0000, value << 24, kind);
    Layout {
        base: BASE,
        page_bits: 12,
        size,
        flags: 0,
        head: 8,
        mapping: 24,
        private: 40,
        mapcount: 48,
        refcount: 52,
        lru: 8,
        head_is_mask: false,
        reserved: 1 << 12,
        compound: 1 << 16,
        slab: if by_number { 0 } else { 1 << 9 },
        swapbacked: 1 << 19,
        swapcache: 1 << 10,
        kept: 1 << 3 | 1 << 15 | 1 << 20,
        has_private: 1 << 13,
        hwpoison: 1 << 23,
        types: if by_number {
            vec![
                number(0xf0, Kind::Free),
                number(0xf5, Kind::Slab),
                number(0xf2, Kind::PageTable),
                number(0xf4, Kind::Hugetlb),
            ]
        } else {
            vec![bits(0x80, Kind::Free), bits(0x100, Kind::Offline), bits(0x200, Kind::PageTable)]
        },
        huge: if by_number { Huge::ByType } else { Huge::SecondByte { offset: 16, value: 2 } },
        large_counts: vec![MapCount { offset: 20, unmapped: -1 }],
        movable: true,
        movers: vec![(DIRECT + 0x77000, Kind::Zsmalloc)],
        orders: 11,
        zfs: 0x02F5_ABDF_11EC_AC4E,
        page_pool: None,
        files: Files {
            host: 0,
            i_mmap: 64,
            i_sb: 40,
            left: 16,
            right: 8,
            to_flags: -32,
            exec: 4,
            special: vec![(DIRECT + 0x9000, Kind::BlockDevice)],
        },
    }
}

impl Machine {
    pub fn new(rng: &mut Rng, by_number: bool, size: usize) -> Machine {
        let array = (PAGES * size as u64).next_multiple_of(2 << 20);
        let mut shuffled: Vec<u64> = (0..array / PAGE).collect();
        if rng.chance(2) {
            for i in (1..shuffled.len()).rev() {
                shuffled.swap(i, rng.below(i as u64 + 1) as usize);
            }
        }
        let mut machine = Machine {
            bytes: vec![0; (ARRAY + array) as usize],
            layout: layout(by_number, size),
            tables: Tables::new(Format::X86 { clear: 0 }, ROOT, 12, 48).unwrap(),
            files: HashMap::new(),
            shuffled,
        };
        machine.map();
        for number in 0..24 {
            machine.file(rng, FILES + number * 0x1000);
        }
        machine
    }

    pub fn put(&mut self, physical: u64, value: u64) {
        self.bytes[physical as usize..physical as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Page tables: the direct map in one piece of 1 GB, the page array in pieces of 2 MB or, where it is shuffled, of 4 KB.
    fn map(&mut self) {
        let (upper, middle) = (0x2000, 0x3000);
        let index = |address: u64, shift: u32| (address >> shift & 511) * 8;
        self.put(ROOT + index(DIRECT, 39), upper | 3);
        self.put(upper + index(DIRECT, 30), 0x83);
        self.put(ROOT + index(BASE, 39), 0x4000 | 3);
        self.put(0x4000 + index(BASE, 30), middle | 3);
        let contiguous = self.shuffled.windows(2).all(|pair| pair[0] < pair[1]);
        for (large, frames) in self.shuffled.clone().chunks(512).enumerate() {
            let (large, table) = (large as u64, 0x1_0000 + large as u64 * PAGE);
            if contiguous {
                self.put(middle + large * 8, (ARRAY + large * (2 << 20)) | 0x83);
            } else {
                self.put(middle + large * 8, table | 3);
                for (small, frame) in frames.iter().enumerate() {
                    self.put(table + small as u64 * 8, (ARRAY + frame * PAGE) | 3);
                }
            }
        }
    }

    /// An address_space with its inode and VMAs, at a physical address.
    fn file(&mut self, rng: &mut Rng, at: u64) {
        let mapping = DIRECT + at;
        let (inode, vmas) = (at + 0x100, at + 0x200);
        self.put(at, DIRECT + inode);
        let special = rng.chance(5);
        self.put(inode + 40, DIRECT + if special { 0x9000 } else { 0xa000 });
        let mut kind = if special { Kind::BlockDevice } else { Kind::File };
        if rng.chance(2) {
            let count = 1 + rng.below(7);
            self.put(at + 64, DIRECT + vmas + 32);
            let executable = rng.chance(2).then(|| rng.below(count));
            for number in 0..count {
                let vma = vmas + number * 0x80;
                self.put(vma, if executable == Some(number) { 0x75 } else { 0x71 });
                let child = |place: u64| if place < count { DIRECT + vmas + place * 0x80 + 32 } else { 0 };
                // Sometimes a tree leads back to its root. It is searched all the same.
                let loops = rng.chance(12);
                self.put(vma + 32 + 16, if loops { DIRECT + vmas + 32 } else { child(2 * number + 1) });
                self.put(vma + 32 + 8, child(2 * number + 2));
            }
            if self.reaches(vmas, 4) {
                kind = Kind::Exec;
            }
        }
        self.files.insert(mapping, kind);
    }

    /// Returns whether a node with the flag can be reached from the first, whatever the tree's shape.
    fn reaches(&self, vmas: u64, flag: u64) -> bool {
        let (mut seen, mut todo) = (std::collections::HashSet::new(), vec![vmas + 32]);
        while let Some(node) = todo.pop() {
            if seen.insert(node) {
                if self.word(node - 32) & flag != 0 {
                    return true;
                }
                todo.extend([8, 16].iter().map(|o| self.word(node + o)).filter(|c| *c != 0).map(|c| c - DIRECT));
            }
        }
        false
    }

    pub fn word(&self, physical: u64) -> u64 {
        u64::from_le_bytes(self.bytes[physical as usize..physical as usize + 8].try_into().unwrap())
    }

    /// Physical address of the byte at this offset in the page array.
    pub fn place(&self, offset: u64) -> u64 {
        ARRAY + self.shuffled[(offset / PAGE) as usize] * PAGE + offset % PAGE
    }

    pub fn set(&mut self, pfn: u64, offset: usize, value: u64) {
        let place = self.place(pfn * self.layout.size as u64 + offset as u64);
        self.put(place, value);
    }

    pub fn get(&self, pfn: u64, offset: usize) -> u64 {
        self.word(self.place(pfn * self.layout.size as u64 + (offset & !7) as u64))
    }

    /// The dump, without the pieces of the page array (of 4 KB, numbered) that are missing.
    pub fn memory(&self, missing: &[u64], granule: usize) -> Memory {
        let data: Arc<[u8]> = self.bytes.as_slice().into();
        let mut holes: Vec<u64> = missing.iter().map(|number| self.place(number * PAGE)).collect();
        holes.sort_unstable();
        holes.push(self.bytes.len() as u64);
        let (mut segments, mut start) = (Vec::new(), 0);
        for hole in holes {
            let source = Source::Bytes(data[start as usize..hole as usize].into());
            segments.push(Segment { start, end: hole, source });
            start = hole + PAGE;
        }
        Memory { image: Image::new(&[], segments).unwrap(), granule }
    }
}
