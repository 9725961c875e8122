//! A dead Linux machine: its page tables, its page array, and every question to them.

use dmods_engine::kernel::layout::{Files, Huge, Layout, MapCount, PagePool};
use dmods_engine::kernel::listed_pages::{ListedPages, Lists};
use dmods_engine::kernel::page_tables::{Format, Tables, Walker};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::scan::Scan;
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::{Kind, KINDS};
use dmods_engine::Control;

use super::Input;

/// Physical memory in which every page holds the input, repeated, each from another word on. So a page table at any place
/// has entries.
struct Everywhere {
    page: Vec<u8>,
    end: u64,
}

impl Everywhere {
    fn new(data: &[u8], end: u64) -> Everywhere {
        Everywhere { page: data.iter().copied().cycle().take(if data.is_empty() { 0 } else { 4096 }).collect(), end }
    }
}

impl Physical for Everywhere {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let there = self.end.saturating_sub(address).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < there && !self.page.is_empty() {
            let at = address + done as u64;
            let from = ((at + (at >> 12) * 8) % 4096) as usize;
            let length = (there - done).min(4096 - from).min(4096 - (at % 4096) as usize);
            buf[done..done + length].copy_from_slice(&self.page[from..from + length]);
            done += length;
        }
        done
    }
    fn granule(&self) -> usize {
        512
    }
}

/// Page tables of both machines, of any shape. A remembered walk must lead where a fresh one does.
pub fn pagetables(data: &[u8]) {
    let mut input = Input(data);
    let clear = if input.byte() % 4 == 0 { input.word() } else { 0 };
    let format = if input.byte() % 2 == 0 { Format::X86 { clear } } else { Format::Aarch64 };
    let page_bits = [12, 12, 14, 16, 13, 0][usize::from(input.byte()) % 6];
    let va_bits = [48, 57, 39, 42, 52, u32::from(input.byte())][usize::from(input.byte()) % 6];
    let root = input.short() << (input.byte() % 32);
    let end = input.short() << 8;
    let addresses: [u64; 6] = std::array::from_fn(|_| (u64::MAX << 57 >> (input.byte() % 32)) | input.word() >> 7);
    let physical = Everywhere::new(input.0, end);
    let Some(tables) = Tables::new(format, root, page_bits, va_bits) else { return };
    let mut walker = Walker::new(tables);
    for address in addresses {
        let found = walker.translate(&physical, address);
        assert_eq!(found, walker.translate(&physical, address));
        if let Some(mapped) = found {
            assert!(address >= tables.kernel_start() && mapped.left > 0);
            let last = walker.translate(&physical, address + (mapped.left - 1)).expect("of the same leaf");
            assert_eq!((last.physical, last.left), (mapped.physical + (mapped.left - 1), 1));
        }
        if let Some(behind) = walker.gap(&physical, address) {
            assert!(found.is_none() && (behind > address || behind == u64::MAX));
            let within = address + (behind - address) / 2;
            assert_eq!(Walker::new(tables).translate(&physical, within), None);
        }
    }
    if page_bits == 12 {
        tables.some_last_table(&physical, root);
    }
}

/// The direct map and the page array. Each is a piece of 1 GiB that begins with the input.
pub(super) const DIRECT: u64 = 0xffff_8880_0000_0000;
const ARRAY: u64 = 0xffff_ea00_0000_0000;
/// Where the page tables for that lie. The one below is missing where the input ends.
pub(super) const ROOT: u64 = 1 << 32;
const GIB: u64 = 0x80 | 3;

/// Memory that begins with the input, and sound page tables.
pub(super) struct Machine {
    pub(super) bytes: Vec<u8>,
    granule: usize,
}

impl Machine {
    /// Words whose last byte is 0xad become addresses in the direct map or in the page array, with any low bits.
    pub(super) fn new(data: &[u8], granule: usize) -> Machine {
        let mut bytes = data.to_vec();
        for word in bytes.chunks_exact_mut(8) {
            if word[7] == 0xad {
                let place = if word[6] & 1 == 0 { DIRECT } else { ARRAY };
                let value = place + u64::from(u16::from_le_bytes([word[0], word[1]]) & 0x1fff);
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        Machine { bytes, granule }
    }

    fn table(at: u64) -> u64 {
        let index = |address: u64, shift: u32| address >> shift & 511;
        match (at >> 12, at % 4096 / 8) {
            (0, entry) if entry == index(DIRECT, 39) => (ROOT + 0x1000) | 3,
            (0, entry) if entry == index(ARRAY, 39) => (ROOT + 0x2000) | 3,
            (1, entry) if entry == index(DIRECT, 30) => GIB,
            (2, entry) if entry == index(ARRAY, 30) => GIB,
            _ => 0,
        }
    }
}

impl Physical for Machine {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if (ROOT..ROOT + 0x3000).contains(&address) {
            for (word, at) in buf.chunks_exact_mut(8).zip(((address - ROOT) & !7..0x3000).step_by(8)) {
                word.copy_from_slice(&Machine::table(at).to_le_bytes());
            }
            return buf.len() / 8 * 8;
        }
        let from = self.bytes.len().min(usize::try_from(address).unwrap_or(usize::MAX));
        let there = buf.len().min(self.bytes.len() - from);
        buf[..there].copy_from_slice(&self.bytes[from..from + there]);
        there
    }
    fn granule(&self) -> usize {
        self.granule
    }
}

/// Follows the lists and classifies all pages. No page may be counted twice or forgotten.
pub fn memmap(data: &[u8]) {
    let mut input = Input(data);
    let layout = layout(&mut input);
    let lists = lists(&mut input);
    let (first, second) = (input.short() % 64, input.short() % 256);
    let huge = if input.byte() == 0xff { 1 << 40 } else { input.short() % 64 };
    let ranges = [(first % 8, first), (first, first + second), (1 << 36, (1 << 36) + huge)];
    let memory = Machine::new(input.0, 64 << (input.byte() % 4));
    let tables = Tables::new(Format::X86 { clear: 0 }, ROOT, 12, 48).expect("as on every x86-64");
    if layout.problem().is_some() {
        return;
    }
    let (mut space, control) = (VirtualMemory::new(&memory, tables), Control::default());
    let found = ListedPages::gather(&lists, &layout, &ranges, &mut space, &control);
    let mut each = Vec::new();
    let pages: u64 = ranges.iter().map(|range| range.1 - range.0).sum();
    let wanted = (pages <= 1 << 12).then_some(&mut each);
    let listed = wanted.is_some();
    let counts = Scan::new(&layout, &found, &mut space, 4, wanted).run(&ranges, &control);
    assert_eq!(counts.kinds.iter().sum::<u64>(), pages);
    for (number, count) in counts.kinds.iter().enumerate().filter(|_| listed) {
        assert_eq!(each.iter().filter(|kind| usize::from(**kind) == number).count() as u64, *count);
    }
}

/// An address in the direct map or the page array.
fn address(input: &mut Input) -> u64 {
    if input.byte() % 8 == 0 {
        return input.word();
    }
    let place = input.short();
    (if place & 1 == 0 { DIRECT } else { ARRAY }) + (place & 0x1ffe)
}

fn lists(input: &mut Input) -> Lists {
    let offset = |input: &mut Input| u64::from(input.byte() % 16) * 8;
    Lists {
        per_cpu: (0..input.byte() % 3).map(|order| (address(input), u32::from(order) * 4)).collect(),
        vmap: (0..input.byte() % 3).map(|_| address(input)).collect(),
        vmap_area: std::array::from_fn(|_| offset(input)),
        first_task: if input.byte() % 2 == 0 { 0 } else { address(input) },
        task: std::array::from_fn(|_| offset(input)),
        thread_head: offset(input),
        stack_size: input.short(),
        owned: (0..input.byte() % 3).map(|_| (Kind::Ring, u64::from(input.byte()), input.short())).collect(),
        areas: (0..input.byte() % 3).map(|_| (Kind::Bpf, address(input), address(input))).collect(),
    }
}

/// The layout of a kernel that dmods knows, or any offsets.
pub(super) fn layout(input: &mut Input) -> Layout {
    let how = input.byte();
    let mut layout = Layout {
        base: ARRAY,
        page_bits: 12,
        size: [64, 64, 56, 128][usize::from(how) % 4],
        flags: 0,
        head: 8,
        mapping: 24,
        private: 40,
        mapcount: 48,
        refcount: 52,
        lru: 8,
        head_is_mask: how & 4 != 0,
        reserved: 1 << 12,
        compound: 1 << 16,
        slab: 1 << 9,
        swapbacked: 1 << 19,
        swapcache: 1 << 10,
        kept: 1 << 3 | 1 << 15 | 1 << 20,
        has_private: 1 << 13,
        hwpoison: 1 << 23,
        types: vec![
            (0xff00_0080, 0xff00_0000, Kind::Free),
            (0xff00_0100, 0xff00_0000, Kind::Offline),
            (0xff00_0000, 0xf500_0000, Kind::Slab),
            (0xff00_0000, 0xf400_0000, Kind::Hugetlb),
            (0xff00_0000, 0xf300_0000, Kind::Unaccepted),
        ],
        huge: [Huge::ByType, Huge::SecondByte { offset: 16, value: 2 }, Huge::SecondFlags(1 << 8)]
            [usize::from(how >> 3) % 3],
        large_counts: vec![MapCount { offset: 20, unmapped: -1 }],
        movable: how & 64 != 0,
        movers: vec![(DIRECT + 0x770, Kind::Zsmalloc)],
        orders: 11,
        zfs: 0x5a5a,
        page_pool: (how & 8 != 0).then_some(PagePool { offset: 8, mask: !3, value: 0xdead_0000_0000_0040 }),
        files: Files {
            host: 0,
            i_mmap: 64,
            i_sb: 40,
            left: 16,
            right: 8,
            to_flags: -32,
            exec: 4,
            special: vec![(DIRECT + 0x90, Kind::BlockDevice)],
        },
    };
    if how & 128 != 0 {
        for field in [&mut layout.flags, &mut layout.head, &mut layout.mapping, &mut layout.private, &mut layout.lru] {
            *field = usize::from(input.byte() % 32) * 4;
        }
        (layout.mapcount, layout.refcount) = (usize::from(input.byte()), usize::from(input.byte()));
        (layout.base, layout.orders) = (address(input), u32::from(input.byte() % 64));
    }
    assert!(layout.types.iter().all(|kind| (kind.2 as usize) < KINDS.len()));
    layout
}
