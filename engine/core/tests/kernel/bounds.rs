//! Dumps made to cost time or memory: claims of 2^40 pages, bitmaps of terabytes, lists that lead to one another.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::kernel::kdump::Kdump;
use dmods_engine::kernel::layout::PagePool;
use dmods_engine::kernel::listed_pages::{ListedPages, Lists};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::scan::{Counts, Scan};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::Kind;
use dmods_engine::Control;

use super::machine::{Machine, Rng, BASE, DIRECT, PAGE, PAGES};

/// Most reads and bytes of one answer. The page array of the 2^40 pages that these dumps claim has 2^46 bytes, so an
/// answer that follows the claim reads far more.
const MOST_READS: u64 = 1 << 26;
const MOST_BYTES: u64 = 1 << 38;

/// Memory that counts what is read of it.
struct Counted<'a> {
    memory: &'a dyn Physical,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> Counted<'a> {
    fn new(memory: &'a dyn Physical) -> Self {
        Counted { memory, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Fails if more was read than what is there can need.
    fn check(&self) {
        let (reads, bytes) = (self.reads.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        assert!(reads < MOST_READS && bytes < MOST_BYTES, "{reads} reads of {bytes} bytes");
    }
}

impl Physical for Counted<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.memory.read(address, buf)
    }

    fn granule(&self) -> usize {
        self.memory.granule()
    }

    fn hole(&self, address: u64, most: u64) -> u64 {
        self.memory.hole(address, most)
    }
}

#[test]
fn pages_that_are_claimed_and_have_no_memmap_cost_nothing() {
    let machine = Machine::new(&mut Rng(7), true, 64);
    let memory = machine.memory(&[], 1 << 16);
    let counted = Counted::new(&memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let (listed, control) = (ListedPages::default(), Control::default());
    let counts = Scan::new(&machine.layout, &listed, &mut space, 10, None).run(&[(0, 1 << 40)], &control);
    assert_eq!(counts.kinds.iter().sum::<u64>(), 1 << 40);
    // The page array is mapped in whole pieces of 2 MB.
    let mapped = (PAGES * 64).next_multiple_of(2 << 20) / 64;
    assert_eq!(counts.odd.missing, (1 << 40) - mapped);
    counted.check();
}

#[test]
fn page_tables_that_lead_to_what_is_not_in_the_dump_try_ones_patience() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    cyclic(&mut machine, 0xff_0000_0000);
    let memory = machine.memory(&[], 1 << 16);
    let counted = Counted::new(&memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let (listed, control) = (ListedPages::default(), Control::default());
    let counts = Scan::new(&machine.layout, &listed, &mut space, 10, None).run(&[(0, 1 << 40)], &control);
    assert_eq!(counts.kinds[Kind::Unknown as usize], 1 << 40);
    counted.check();
}

/// Every entry above the last level leads to one table, and all entries of that table lead to the page.
fn cyclic(machine: &mut Machine, page: u64) {
    let (upper, middle, last) = (0x4000, 0x3000, 0x5000);
    for entry in 0..512 {
        machine.put(upper + entry * 8, middle | 3);
        machine.put(middle + entry * 8, last | 3);
        machine.put(last + entry * 8, page | 3);
    }
}

fn classified(machine: &Machine, memory: &dyn Physical) -> Counts {
    let counted = Counted::new(memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let (listed, control) = (ListedPages::default(), Control::default());
    let counts = Scan::new(&machine.layout, &listed, &mut space, 10, None).run(&[(0, 1 << 40)], &control);
    assert_eq!(counts.kinds.iter().sum::<u64>(), 1 << 40);
    counted.check();
    counts
}

#[test]
fn a_page_of_memory_that_is_all_of_the_page_array_is_a_lie() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let page = 0x6000;
    for at in (0..PAGE).step_by(64) {
        machine.put(page + at + machine.layout.mapcount as u64, 0x2_ffff_ffff);
    }
    cyclic(&mut machine, page);
    let counts = classified(&machine, &machine.memory(&[], 1 << 16));
    // What was read before the damage was noticed is believed.
    assert_eq!(counts.kinds[Kind::Unknown as usize], counts.odd.repeated);
    assert!(counts.kinds[Kind::Kernel as usize] < 1 << 22);
    assert!(counts.odd.repeated > (1 << 40) - (1 << 22));
}

#[test]
fn not_even_tails_are_shared_by_all_of_the_page_array() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let page = 0x6000;
    for at in (0..PAGE).step_by(64) {
        machine.put(page + at + machine.layout.head as u64, BASE + 1);
    }
    cyclic(&mut machine, page);
    let counts = classified(&machine, &machine.memory(&[], 1 << 16));
    assert!(counts.odd.repeated > (1 << 40) - (1 << 24), "{}", counts.odd.repeated);
}

#[test]
fn tails_of_huge_pages_may_share_their_memory() {
    // 64 pages of 1 GB (hugetlb), of each of which 4095 pages of page array are one (vmemmap_dedup): with a head of its own, all shared.
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let (heads, tails) = (machine.bytes.len() as u64, 0x6000);
    let tables = heads + 64 * PAGE;
    machine.bytes.resize((tables + 64 * 8 * PAGE) as usize, 0);
    machine.layout.head_is_mask = true;
    let mask = !((64u64 << 18) - 1) | 1;
    for at in (0..PAGE).step_by(64) {
        machine.put(tails + at + machine.layout.head as u64, mask);
    }
    let hugetlb = machine.layout.types.iter().find(|t| t.2 == Kind::Hugetlb).map_or(0, |t| u64::from(t.1 | 0xffff));
    for huge in 0..64 {
        let head = heads + huge * PAGE;
        for at in (64..PAGE).step_by(64) {
            machine.put(head + at + machine.layout.head as u64, mask);
        }
        machine.put(head, machine.layout.compound);
        machine.put(head + machine.layout.mapcount as u64, 1 << 32 | hugetlb);
        // Eight tables of the last level describe 1 GB: the first entry of the first is the head's.
        for table in 0..8 {
            machine.put(0x3000 + (huge * 8 + table) * 8, (tables + (huge * 8 + table) * PAGE) | 3);
            for entry in 0..512 {
                let page = if table == 0 && entry == 0 { head } else { tails };
                machine.put(tables + (huge * 8 + table) * PAGE + entry * 8, page | 3);
            }
        }
    }
    let memory = machine.memory(&[], 1 << 16);
    let mut space = VirtualMemory::new(&memory, machine.tables);
    let (listed, control) = (ListedPages::default(), Control::default());
    let counts = Scan::new(&machine.layout, &listed, &mut space, 10, None).run(&[(0, 64 << 18)], &control);
    assert_eq!(counts.kinds[Kind::Hugetlb as usize], 64 << 18);
    assert_eq!((counts.odd.repeated, counts.odd.lost_heads), (0, 0));
}

#[test]
fn a_page_array_that_is_a_hole_of_the_file_is_leapt_over() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    // In pieces of 1 GB, each of them elsewhere, as far as the entries reach.
    for entry in 0..512 {
        machine.put(0x4000 + entry * 8, (1 << 40) | entry << 30 | 0x83);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 40).unwrap();
    let path = file.path().to_owned();
    let bytes: Arc<[u8]> = machine.bytes.as_slice().into();
    let hole = Segment { start: 1 << 40, end: 2 << 40, source: Source::File { index: 0, offset: 0 } };
    let own = Segment { start: 0, end: bytes.len() as u64, source: Source::Bytes(bytes) };
    let counts = classified(&machine, &Image::new(&[path], vec![own, hole]).unwrap());
    assert_eq!(counts.kinds[Kind::Unknown as usize], 1 << 40);
    assert_eq!(counts.odd.missing, 1 << 40);
}

/// A list of one vmalloc area, which ends where the address space does.
fn one_endless_area(machine: &mut Machine) -> Lists {
    let (head, area) = (0x20_0000, 0x20_0100);
    for (at, next) in [(head, area), (area, head)] {
        machine.put(at, DIRECT + next);
        machine.put(at + 8, DIRECT + next);
    }
    machine.put(area + 16, BASE);
    machine.put(area + 24, u64::MAX);
    Lists { vmap: vec![DIRECT + head], vmap_area: [0, 16, 24], ..Lists::default() }
}

#[test]
fn an_area_that_cyclic_tables_map_everywhere_ends() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    cyclic(&mut machine, 0x6000);
    let lists = one_endless_area(&mut machine);
    let memory = machine.memory(&[], 1 << 16);
    let counted = Counted::new(&memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let listed = ListedPages::gather(&lists, &machine.layout, &[(0, 1 << 40)], &mut space, &Control::default());
    assert_eq!((listed.vmap_areas, listed.endless, listed.kind(6)), (1, true, Some(Kind::Vmalloc)));
    counted.check();
}

#[test]
fn pages_whose_owner_is_known_are_bounded_by_memory() {
    let machine = Machine::new(&mut Rng(7), true, 64);
    let owned = vec![(Kind::Ring, 3, 2), (Kind::Pipe, 4, 2), (Kind::Ring, 20, u64::MAX), (Kind::Socket, u64::MAX, 9)];
    let lists = Lists { owned, ..Lists::default() };
    let memory = machine.memory(&[], 1 << 16);
    let mut space = VirtualMemory::new(&memory, machine.tables);
    let listed = ListedPages::gather(&lists, &machine.layout, &[(0, PAGES)], &mut space, &Control::default());
    let kinds = [2, 3, 4, 5, 6, 19, 20, PAGES - 1, PAGES].map(|pfn| listed.kind(pfn));
    let ring = Some(Kind::Ring);
    assert_eq!(kinds, [None, ring, ring, Some(Kind::Pipe), None, None, ring, ring, None]);
    assert!(!listed.endless);
}

#[test]
fn pages_of_page_pools_are_known_by_their_mark() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    machine.layout.page_pool = Some(PagePool { offset: 8, mask: !0x7F_FFFF_FF83, value: 0xDEAD_0000_0000_0040 });
    let marked = |machine: &mut Machine, pfn: u64, mark: u64, pool: u64| {
        for (offset, value) in [(0, 0), (8, mark), (16, pool), (24, 0), (32, 0), (40, 0), (48, 0x1_FFFF_FFFF)] {
            machine.set(pfn, offset, value);
        }
    };
    marked(&mut machine, 8, 0xDEAD_0000_0000_0040, DIRECT + 0x100);
    marked(&mut machine, 9, 0xDEAD_0000_0000_2C40, DIRECT + 0x100); // the number of its mapping for DMA
    marked(&mut machine, 10, 0xDEAD_0000_0000_0100, DIRECT + 0x100); // LIST_POISON1
    marked(&mut machine, 11, 0xDEAD_0000_0000_0040, 0x100);
    marked(&mut machine, 12, 0xDEAD_0000_0000_0040, DIRECT + 0x100);
    let lists =
        Lists { owned: vec![(Kind::Socket, 12, 1)], areas: vec![(Kind::Bpf, BASE + 1, BASE + 2)], ..Lists::default() };
    let memory = machine.memory(&[], 1 << 16);
    let (mut space, mut each, control) = (VirtualMemory::new(&memory, machine.tables), Vec::new(), Control::default());
    let listed = ListedPages::gather(&lists, &machine.layout, &[(0, 1 << 40)], &mut space, &control);
    assert_eq!(listed.kind(machine.place(0) / PAGE), Some(Kind::Bpf));
    Scan::new(&machine.layout, &listed, &mut space, 10, Some(&mut each)).run(&[(8, 13)], &control);
    let (pool, kernel) = (Kind::PagePool, Kind::Kernel);
    assert_eq!(each, [pool, pool, kernel, kernel, Kind::Socket].map(|kind| kind as u8));
}

#[test]
fn an_area_as_large_as_the_address_space_is_leapt_through() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let lists = one_endless_area(&mut machine);
    let memory = machine.memory(&[], 1 << 16);
    let counted = Counted::new(&memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let listed = ListedPages::gather(&lists, &machine.layout, &[(0, PAGES)], &mut space, &Control::default());
    assert_eq!((listed.vmap_areas, listed.broken, listed.endless), (1, 0, false));
    counted.check();
}

#[test]
fn processes_that_share_one_list_of_threads_have_it_followed_once() {
    const MANY: u64 = 5000;
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let base = machine.bytes.len() as u64;
    machine.bytes.resize(machine.bytes.len() + (2 * MANY as usize + 1) * 64, 0);
    let (process, thread, signal) =
        (|n: u64| base + n % MANY * 64, |n: u64| base + (MANY + n) * 64, base + 2 * MANY * 64);
    // task_struct: tasks at 0, signal at 16, thread_node at 24, stack at 40. The list of threads begins in signal_struct.
    let node = |n: u64| if n % (MANY + 1) == MANY { signal } else { thread(n % (MANY + 1)) + 24 };
    for n in 0..MANY {
        machine.put(process(n), DIRECT + process(n + 1));
        machine.put(process(n) + 8, DIRECT + process(n + MANY - 1));
        machine.put(process(n) + 16, DIRECT + signal);
    }
    for n in 0..=MANY {
        machine.put(node(n), DIRECT + node(n + 1));
        machine.put(node(n) + 8, DIRECT + node(n + MANY));
    }
    let memory = machine.memory(&[], 1 << 16);
    let counted = Counted::new(&memory);
    let mut space = VirtualMemory::new(&counted, machine.tables);
    let lists = Lists { first_task: DIRECT + base, task: [0, 16, 24, 40], stack_size: 1 << 14, ..Lists::default() };
    let listed = ListedPages::gather(&lists, &machine.layout, &[(0, PAGES)], &mut space, &Control::default());
    assert_eq!((listed.tasks, listed.broken), (MANY, MANY - 1));
    counted.check();
}

#[test]
fn a_bitmap_of_terabytes_that_is_a_hole_is_leapt_over() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut head = [0; 464];
    head[..8].copy_from_slice(b"KDUMP   ");
    for (at, value) in [(8, 6u32), (428, 4096), (432, 1), (436, u32::MAX), (440, u32::MAX)] {
        head[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    file.as_file().write_all_at(&head, 0).unwrap();
    file.as_file().write_all_at(&u64::MAX.to_le_bytes(), 4096 + 96).unwrap();
    file.as_file().set_len(12 << 40).unwrap();
    let dump = Kdump::open(file.path()).unwrap();
    for address in [0, 1 << 20, 1 << 51, u64::MAX - 4096] {
        assert_eq!(dump.read(address, &mut [0; 64]), 0);
    }
}
