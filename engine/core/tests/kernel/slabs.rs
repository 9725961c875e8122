//! Slab objects of made-up memory: a plain one with known answers, and hostile ones.

use dmods_engine::kernel::frame_set::FrameSet;
use dmods_engine::kernel::layout::Layout;
use dmods_engine::kernel::page_tables::{Format, Tables};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::slabs::check::{check, Zone};
use dmods_engine::kernel::slabs::freelists::{state, Fault, States};
use dmods_engine::kernel::slabs::heads::Head;
use dmods_engine::kernel::slabs::holders::holders;
use dmods_engine::kernel::slabs::layout::{Cache, Guarded, Sheaves, SlabLayout};
use dmods_engine::kernel::slabs::leaks::{find, Leaks};
use dmods_engine::kernel::slabs::marking::{mark, unsure};
use dmods_engine::kernel::slabs::reserves::Reserves;
use dmods_engine::kernel::slabs::retained::{self, Retained};
use dmods_engine::kernel::slabs::sweep::{sweep, Memory as What};
use dmods_engine::kernel::slabs::table::Table;
use dmods_engine::kernel::slabs::tracks::{TrackLayout, Tracks, ALLOCATED};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::Kind;
use dmods_engine::Control;

use super::machine::{layout, Rng, BASE, DIRECT};

const PAGE: usize = 4096;
const RANDOM: u64 = 0x1234_5678_9abc_def0;

/// Memory from physical address 0 on. What `missing` has is not there.
struct Bytes {
    bytes: Vec<u8>,
    missing: FrameSet,
}

impl Physical for Bytes {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let at = address as usize + done;
            if at >= self.bytes.len() || self.missing.contains(at as u64 >> 12) {
                break;
            }
            let here = (buf.len() - done).min(PAGE - at % PAGE);
            buf[done..done + here].copy_from_slice(&self.bytes[at..at + here]);
            done += here;
        }
        done
    }
    fn granule(&self) -> usize {
        1 << 16
    }
}

/// Pages: 0 to 7 are the kernel's, 8 a stack, 16 and 17 slabs, 20 to 23 a large block, the rest is anonymous.
pub(super) struct Made {
    memory: Bytes,
    kinds: Vec<u8>,
    heads: Vec<Head>,
    pub(super) caches: Vec<Cache>,
    slabs: SlabLayout,
    layout: Layout,
    unsure: bool,
    ignored: Vec<u64>,
}

const PAGES: usize = 64;

fn cache(address: u64, size: u32, red_left: u32) -> Cache {
    Cache {
        address,
        size,
        object_size: size - red_left - 8,
        inuse: size - red_left - 8,
        offset: size - red_left - 8,
        red_left,
        scanned: size - red_left - 8,
        random: Some(RANDOM),
        ..Cache::default()
    }
}

pub(super) fn made() -> Made {
    let mut kinds = vec![Kind::Anon as u8; PAGES];
    kinds[..8].fill(Kind::Kernel as u8);
    kinds[8] = Kind::Stack as u8;
    kinds[16..18].fill(Kind::Slab as u8);
    kinds[20..24].fill(Kind::Kernel as u8);
    let head =
        |pfn, pages, kind, cache, objects| Head { pfn, pages, kind, cache, freelist: 0, inuse: objects, objects };
    Made {
        memory: Bytes { bytes: vec![0; PAGES * PAGE], missing: FrameSet::default() },
        kinds,
        heads: vec![
            head(16, 1, Kind::Slab, 0xaaa0, 16),
            head(17, 1, Kind::Slab, 0xbbb0, 16),
            head(20, 4, Kind::Kernel, 0, 0),
        ],
        caches: vec![cache(0xaaa0, 256, 0), cache(0xbbb0, 256, 64)],
        slabs: SlabLayout { direct_map: DIRECT, ..SlabLayout::default() },
        layout: layout(true, 64),
        unsure: false,
        ignored: Vec::new(),
    }
}

impl Made {
    pub(super) fn put(&mut self, at: usize, value: u64) {
        self.memory.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Writes a link between free objects.
    fn link(&mut self, from: u64, offset: u64, to: u64) {
        let at = from + offset;
        self.put((at - DIRECT) as usize, to ^ RANDOM ^ at.swap_bytes());
    }

    fn table(&self) -> Table {
        Table::new(&self.heads, self.caches.clone(), &self.slabs, 12, |head| head.pages >= 4)
    }

    fn leaks(&self) -> (Table, States, Leaks) {
        self.leaks_with_code(&[])
    }

    /// Runs everything. The page array is not in the memory.
    fn leaks_with_code(&self, code: &[(u64, u64)]) -> (Table, States, Leaks) {
        let (table, states, leaks, _) = self.searched(code);
        (table, states, leaks)
    }

    /// Does the same, and returns the dominator tree as well.
    pub(super) fn searched(&self, code: &[(u64, u64)]) -> (Table, States, Leaks, Retained) {
        let control = Control::default();
        let table = self.table();
        let tables = Tables::new(Format::X86 { clear: 0 }, 63 << 12, 12, 48).unwrap();
        let mut space = VirtualMemory::new(&self.memory, tables);
        let reserves = Reserves::read(&table, &self.slabs, &mut space, &control);
        let mut states = States::new(&table, &reserves, &self.memory, &control).unwrap();
        let ranges = [(0, PAGES as u64)];
        let what = What {
            layout: &self.layout,
            ranges: &ranges,
            kinds: &self.kinds,
            registers: &[],
            code,
            ignored: &self.ignored,
            unread: &[],
        };
        let pointers = sweep(&table, &states, &mut space, &what, false, &control).unwrap();
        assert_eq!(pointers.starts.len() as u64, table.nodes + 1);
        mark(&mut states, &pointers, &control).unwrap();
        unsure(&table, &reserves, &mut states, &pointers, self.unsure, &control).unwrap();
        let leaks = find(&table, &states, &pointers, &control).unwrap();
        let tracks = Tracks { table: &table, layout: TrackLayout::default(), physical: &self.memory };
        tracks.of_leaks(&leaks, &control).unwrap();
        tracks.of_states(&states, ALLOCATED, true, &[], &control).unwrap();
        check(&table, &states, &self.memory, &control).unwrap();
        let range = (DIRECT + 16 * 4096, DIRECT + 18 * 4096);
        holders(&table, &states, &mut space, &what, range, 5, &control).unwrap();
        let tree = retained::find(&table, &states, &pointers, &leaks, &control).unwrap();
        tree.by_cache(&table, &control).unwrap();
        (table, states, leaks, tree)
    }
}

/// The address of object `slot` of the slab in page `pfn`.
pub(super) fn object(pfn: u64, slot: u64, red_left: u64) -> u64 {
    DIRECT + pfn * 4096 + slot * 256 + red_left
}

fn state_of(table: &Table, states: &States, address: u64) -> u8 {
    states.of[table.exactly(address).unwrap().1 as usize]
}

/// Three pages of KFENCE's pool: an object at the end of its page, a freed one, and a page without one.
#[test]
fn guarded_objects_are_nodes_and_their_allocators_own_words_hold_none() {
    let mut made = made();
    for (pfn, cache, start) in [(40, 2, 4000), (41, 3, 0)] {
        made.kinds[pfn] = Kind::Kfence as u8;
        let alone = Cache { size: 4096, red_left: start, object_size: 96, inuse: 96, scanned: 96, ..Cache::default() };
        made.caches.push(alone);
        made.slabs.guarded.push(Guarded { pfn: pfn as u64, cache, free: pfn == 41 });
    }
    made.kinds[42] = Kind::Kfence as u8;
    for pfn in 40..43 {
        let head = Head { pfn, pages: 1, kind: Kind::Kfence, cache: 0xaaa0, freelist: 0, inuse: 0, objects: 0 };
        made.heads.insert(made.heads.len() - 1, head);
    }
    made.heads.sort_by_key(|head| head.pfn);
    let guarded = DIRECT + 40 * 4096 + 4000;
    made.put(0x1000, guarded); // the allocator's own record
    made.put(40 * PAGE + 4008, object(16, 2, 0));
    made.put(40 * PAGE + 8, object(16, 3, 0)); // beside the object
    made.put(41 * PAGE + 8, object(16, 4, 0)); // in a freed one
    let state = |made: &Made, address| {
        let (table, states, _) = made.leaks();
        state_of(&table, &states, address)
    };
    assert_eq!(state(&made, guarded), state::PLAIN);
    assert_eq!(state(&made, object(16, 2, 0)), state::PLAIN);
    made.ignored = vec![0x1000];
    assert_eq!(state(&made, guarded), state::LEAKED);
    assert_eq!(state(&made, object(16, 3, 0)), state::LEAKED);
    assert_eq!(state(&made, object(16, 4, 0)), state::LEAKED);
    assert_eq!(state(&made, DIRECT + 41 * 4096), state::FREE_GUARDED);
    let (table, states, leaks) = made.leaks();
    let direct = leaks.direct.iter().find(|d| table.describe(d.node).0 == guarded).unwrap();
    assert_eq!((direct.kept, table.describe(direct.node).1), (1, 96));
    assert!(states.damage.is_empty() && table.odd.unknown == 0);
    assert!(table.node(table.physical(DIRECT + 42 * 4096)).is_none());
    assert!(table.node(table.physical(guarded) - 1).is_none());
}

#[test]
fn each_object_has_its_state_and_its_evidence() {
    let mut made = made();
    // Free: 3 -> 1 -> 0 of the first slab.
    made.heads[0].freelist = object(16, 3, 0);
    made.heads[0].inuse = 13;
    made.link(object(16, 3, 0), 248, object(16, 1, 0));
    made.link(object(16, 1, 0), 248, object(16, 0, 0));
    made.link(object(16, 0, 0), 248, 0);
    made.put(0x1000, object(16, 2, 0) + 17); // a pointer into an object
    made.put(16 * PAGE + 2 * 256 + 8, object(17, 5, 64)); // that object leads to another
    made.put(8 * PAGE + 64, object(16, 4, 0));
    let unaligned = object(16, 5, 0).to_le_bytes();
    made.memory.bytes[0x2004..0x200c].copy_from_slice(&unaligned);
    made.put(0x3000, object(16, 6, 0) - DIRECT); // a descriptor
    made.put(0x3008, 7 << 32 | 200);
    made.put(0x3010, object(17, 7, 64) - 8); // in the red zone: no pointer to the object
    made.put(16 * PAGE + 8 * 256, object(16, 9, 0)); // a leaked object keeps another
    made.put(0x3020, BASE + 20 * 64); // the struct page of the large block
    made.put(22 * PAGE, object(16, 10, 0)); // in the middle of the large block
    made.put(30 * PAGE, object(16, 11, 0)); // of a program: no root
    let (table, states, leaks) = made.leaks();
    let first = |slot| state_of(&table, &states, object(16, slot, 0));
    let expected = [(0, state::FREE), (1, state::FREE), (3, state::FREE), (2, state::PLAIN), (4, state::STACK)];
    for (slot, wanted) in expected {
        assert_eq!(first(slot), wanted, "{slot}");
    }
    assert_eq!((first(5), first(6)), (state::UNALIGNED, state::PHYSICAL));
    assert_eq!((first(8), first(9), first(10), first(11)), (0, 0, state::PLAIN, 0));
    assert_eq!(state_of(&table, &states, object(17, 5, 64)), state::PLAIN);
    assert_eq!(state_of(&table, &states, object(17, 7, 64)), state::LEAKED);
    assert_eq!(state_of(&table, &states, DIRECT + 20 * 4096), state::PLAIN);
    assert!(states.damage.is_empty(), "{:?}", states.damage);
    let direct = leaks.direct.iter().find(|d| table.describe(d.node).0 == object(16, 8, 0)).unwrap();
    assert_eq!((direct.kept, direct.kept_bytes), (1, 248));
    assert!(leaks.direct.iter().all(|d| table.describe(d.node).0 != object(16, 9, 0)));
    // Allocated: 13 and 16 and the large block. Held: 2, 4, 5, 6, 10; one; one.
    assert_eq!(leaks.all.len(), 13 + 16 + 1 - 5 - 1 - 1);
}

#[test]
fn a_constant_in_the_code_is_a_pointer() {
    const CODE: u64 = 0xffff_ffff_8100_0000;
    let mut made = made();
    // Tables in pages 61 to 63: the first 2 MB, at CODE.
    made.put(63 * PAGE + 511 * 8, (62 << 12) | 3);
    made.put(62 * PAGE + 510 * 8, (61 << 12) | 3);
    made.put(61 * PAGE + 8 * 8, 0x83);
    let movabs = |slot| [&[0x49, 0xbf][..], &object(16, slot, 0).to_le_bytes()].concat();
    let moves = |slot, other: u32| {
        let value = object(16, slot, 0);
        let part = |n: u32, register: u32| ((value >> (16 * n)) as u32 & 0xffff) << 5 | n << 21 | register;
        let all = [
            0xd280_0000 | part(0, 7),
            0xf280_0000 | part(1, 7),
            0xf280_0000 | part(2, 7),
            0xf280_0000 | part(3, other),
        ];
        all.map(u32::to_le_bytes).concat()
    };
    let start = 24 * PAGE;
    let end = 58 * PAGE;
    // (where, what, whether it holds the object)
    let cases = [
        (start, movabs(1), true),
        (start + 65531, movabs(2), true), // over the end of a block
        (end - 10, movabs(3), true),
        (end, movabs(4), false),
        (start + 100, moves(5, 7), true),
        (start + 131032, moves(6, 7), true), // over the end of the next one
        (start + 202, moves(7, 7), false),   // no instruction begins there
        (start + 300, moves(8, 9), false),   // of another register
        (start + 401, [&[0x48, 0xc7][..], &object(16, 9, 0).to_le_bytes()].concat(), false),
    ];
    for (at, what, _) in &cases {
        made.memory.bytes[*at..*at + what.len()].copy_from_slice(what);
    }
    let (table, states, _) = made.leaks_with_code(&[(CODE + start as u64, CODE + end as u64)]);
    for (slot, (_, _, held)) in (1..).zip(&cases) {
        let wanted = if *held { state::PLAIN } else { state::LEAKED };
        assert_eq!(state_of(&table, &states, object(16, slot, 0)), wanted, "{slot}");
    }
    let (table, states, _) = made.leaks();
    assert_eq!(state_of(&table, &states, object(16, 1, 0)), state::LEAKED);
}

#[test]
fn a_number_is_an_address_only_if_its_neighbours_agree() {
    let physical = |slot: u64| object(16, slot, 0) - DIRECT;
    let page = |pfn: u64| pfn * PAGE as u64;
    // What lies in the kernel's memory from 0x1000 on, and whether it holds the object of the first word.
    let cases: [(&[u64], bool); 10] = [
        (&[physical(3)], false),
        (&[physical(3), 200], true),
        (&[physical(3), 0x7_0000_00c8], true), // flags beside the length
        (&[physical(3), 5], false),            // shorter than half of the object
        (&[physical(3), 300], false),
        (&[physical(3), 0, physical(5)], true),
        (&[physical(3), 0, physical(3)], false), // one number twice: the times of a file
        (&[physical(3), 0x10_008, 0x10_010, 0x10_018, physical(5)], false), // a table of numbers
        (&[page(16), page(17)], false),          // an area of a program
        (&[page(16), 0, physical(3), physical(4), physical(5)], true),
    ];
    for (words, held) in cases {
        let mut made = made();
        made.caches[1].red_left = 0;
        for (index, word) in words.iter().enumerate() {
            made.put(0x1000 + 8 * index, *word);
        }
        let (table, states, _) = made.leaks();
        let wanted = if held { state::PHYSICAL } else { state::LEAKED };
        assert_eq!(state_of(&table, &states, words[0] + DIRECT), wanted, "{words:x?}");
    }
}

#[test]
fn a_ring_is_one_leak_and_what_it_leads_to_is_not() {
    let mut made = made();
    for (from, to) in [(2, 3), (3, 4), (4, 2), (4, 9), (12, 2)] {
        made.put(16 * PAGE + from * 256 + to as usize * 8, object(16, to, 0));
    }
    let (table, _, leaks) = made.leaks();
    let slot = |node| (table.describe(node).0 - object(16, 0, 0)) / 256;
    let kept: Vec<(u64, u64)> =
        leaks.direct.iter().filter(|d| d.kept > 0).map(|direct| (slot(direct.node), direct.kept)).collect();
    assert_eq!(kept, [(12, 4)]);
    assert_eq!(leaks.direct.len(), leaks.all.len() - 4);
}

#[test]
fn a_link_that_leaves_its_slab_is_a_fault_with_the_object_that_holds_it() {
    for (to, fault) in
        [(object(17, 2, 64), Fault::Leaves), (object(16, 2, 0) + 8, Fault::Leaves), (object(16, 3, 0), Fault::Twice)]
    {
        let mut made = made();
        made.heads[0].freelist = object(16, 3, 0);
        made.link(object(16, 3, 0), 248, object(16, 1, 0));
        made.link(object(16, 1, 0), 248, to);
        let (table, states, _) = made.leaks();
        let damage = states.damage[0];
        assert_eq!(damage.fault, fault);
        let holder = table.describe(damage.object.unwrap()).0;
        assert_eq!(holder, object(16, 1, 0));
        assert_eq!(state_of(&table, &states, object(16, 3, 0)), state::FREE);
    }
}

#[test]
fn a_count_that_disagrees_is_a_fault() {
    let mut made = made();
    made.heads[0].inuse = 15;
    let (_, states, _) = made.leaks();
    assert_eq!((states.damage[0].fault, states.damage[0].value), (Fault::Count, 16));
}

#[test]
fn red_zones_and_poison_tell_what_was_overwritten() {
    let mut made = made();
    let zoned = &mut made.caches[1];
    (zoned.object_size, zoned.scanned, zoned.red_zone, zoned.poison) = (96, 96, true, true);
    made.memory.bytes[17 * PAGE..18 * PAGE].fill(0xcc);
    made.memory.bytes[17 * PAGE + 3 * 256 + 64 + 96] = 1;
    made.memory.bytes[17 * PAGE + 4 * 256 + 10] = 2;
    let table = made.table();
    let states = States::new(&table, &Reserves::default(), &made.memory, &Control::default()).unwrap();
    let (found, count) = check(&table, &states, &made.memory, &Control::default()).unwrap();
    let said: Vec<_> = found.iter().map(|one| (one.zone, table.describe(one.node).0, one.at, one.length)).collect();
    assert_eq!(
        said,
        [
            (Zone::Behind, object(17, 3, 64), object(17, 3, 64) + 96, 1),
            (Zone::Before, object(17, 4, 64), object(17, 4, 0) + 10, 1)
        ]
    );
    assert_eq!(count, 2);
}

/// A slab of two pages, whose second page the dump may lack: the objects 15 and 17 of it are free.
fn with_a_second_page() -> Made {
    let mut made = made();
    made.heads[1].kind = Kind::Kernel; // page 17 belongs to the first slab now
    made.heads[1].pages = 1;
    (made.heads[0].pages, made.heads[0].objects, made.heads[0].inuse) = (2, 32, 29);
    made.heads[0].freelist = object(16, 15, 0);
    made.link(object(16, 15, 0), 248, object(16, 17, 0));
    made.link(object(16, 17, 0), 248, object(16, 2, 0));
    made.link(object(16, 2, 0), 248, 0);
    made
}

#[test]
fn a_page_that_the_dump_lacks_is_no_damage_and_its_slab_has_no_leaks() {
    let (table, states, leaks) = with_a_second_page().leaks();
    assert_eq!((states.damage.len(), states.cut.len(), states.missing_pages), (0, 0, 0));
    assert_eq!(state_of(&table, &states, object(16, 2, 0)), state::FREE);
    assert_eq!(leaks.all.len(), 29 + 1); // and the large block
    let mut made = with_a_second_page();
    made.memory.missing.insert(17);
    made.put(0x1000, object(16, 4, 0));
    made.put(16 * PAGE + 6 * 256, object(16, 20, 0));
    let (table, states, leaks) = made.leaks();
    assert_eq!((states.damage.len(), &states.cut[..], states.missing_pages), (0, &[0][..], 1));
    assert_eq!(state_of(&table, &states, object(16, 17, 0)), state::FREE);
    assert_eq!(state_of(&table, &states, object(16, 2, 0)), state::UNSURE); // its link is in the other page
    assert_eq!(state_of(&table, &states, object(16, 4, 0)), state::PLAIN);
    assert_eq!(state_of(&table, &states, object(16, 20, 0)), state::UNSURE);
    assert_eq!(leaks.all.len(), 1);
}

#[test]
fn nothing_is_leaked_where_all_is_unsure() {
    let mut made = made();
    made.put(0x1000, object(16, 4, 0));
    made.unsure = true;
    let (table, states, leaks) = made.leaks();
    assert!(leaks.all.is_empty());
    assert_eq!(state_of(&table, &states, object(16, 4, 0)), state::PLAIN);
    assert_eq!(states.of.iter().filter(|found| **found == state::UNSURE).count(), 16 + 16 + 1 - 1);
}

#[test]
fn pages_behind_a_missing_one_are_read() {
    let mut made = with_a_second_page();
    (made.heads[0].pages, made.heads[0].objects, made.heads[0].inuse) = (3, 48, 46);
    made.kinds[18] = Kind::Slab as u8;
    made.memory.missing.insert(17);
    made.heads[0].freelist = object(16, 40, 0);
    made.link(object(16, 40, 0), 248, object(16, 41, 0));
    made.link(object(16, 41, 0), 248, 0);
    let (table, states, _) = made.leaks();
    assert_eq!((states.damage.len(), states.cut.len(), states.missing_pages), (0, 0, 1));
    assert_eq!(state_of(&table, &states, object(16, 41, 0)), state::FREE);
}

#[test]
fn red_zones_beside_a_missing_page_are_checked() {
    let mut made = with_a_second_page();
    made.memory.missing.insert(17);
    let zoned = &mut made.caches[0];
    (zoned.object_size, zoned.scanned, zoned.red_zone, zoned.inuse) = (96, 96, true, 104);
    made.memory.bytes[16 * PAGE..17 * PAGE].fill(0xcc);
    made.link(object(16, 15, 0), 248, object(16, 17, 0));
    for free in [15, 2] {
        made.memory.bytes[16 * PAGE + free * 256 + 96..][..8].fill(0xbb); // that 2 is free is not known here
    }
    made.memory.bytes[16 * PAGE + 3 * 256 + 97] = 1;
    let table = made.table();
    let states = States::new(&table, &Reserves::default(), &made.memory, &Control::default()).unwrap();
    let (found, count) = check(&table, &states, &made.memory, &Control::default()).unwrap();
    let said: Vec<_> = found.iter().map(|one| (one.zone, table.describe(one.node).0, one.at, one.length)).collect();
    assert_eq!((said, count), (vec![(Zone::Behind, object(16, 3, 0), object(16, 3, 0) + 97, 1)], 1));
}

#[test]
fn a_list_of_sheaves_in_a_missing_page_is_cut_and_one_that_leads_nowhere_is_damaged() {
    const SHEAF: u64 = 0x9000;
    // Tables in pages 61 to 63 map the first 2 MB of the direct map.
    for (missing, next, wanted) in [
        (None, DIRECT + SHEAF, (0, 0, 2)),
        (Some(SHEAF >> 12), DIRECT + SHEAF, (1, 0, 0)),
        (Some(SHEAF >> 12), 0xdead_0000_0000_0000, (0, 1, 0)),
    ] {
        let mut made = made();
        made.put(63 * PAGE + (DIRECT >> 39) as usize % 512 * 8, (62 << 12) | 3);
        made.put(62 * PAGE + (DIRECT >> 30) as usize % 512 * 8, (61 << 12) | 3);
        made.put(61 * PAGE + (DIRECT >> 21) as usize % 512 * 8, 0x83);
        made.slabs.sheaves =
            Some(Sheaves { of_barn: vec![0], list: 0, cache: 16, size: 24, objects: 32, of_cpu: vec![] });
        made.caches[0].barns = vec![DIRECT + 0x1000];
        made.put(0x1000, next);
        made.put(0x1008, DIRECT + SHEAF);
        let at = SHEAF as usize;
        made.put(at, DIRECT + 0x1000);
        made.put(at + 8, DIRECT + 0x1000);
        made.put(at + 16, made.caches[0].address);
        made.put(at + 24, 2);
        made.put(at + 32, object(16, 1, 0));
        made.put(at + 40, object(16, 5, 0));
        if let Some(pfn) = missing {
            made.memory.missing.insert(pfn);
        }
        let table = made.table();
        let tables = Tables::new(Format::X86 { clear: 0 }, 63 << 12, 12, 48).unwrap();
        let mut space = VirtualMemory::new(&made.memory, tables);
        let found = Reserves::read(&table, &made.slabs, &mut space, &Control::default());
        assert_eq!((found.cut[0], found.broken.len(), found.counts[0]), wanted, "{missing:?} {next:#x}");
    }
}

#[test]
fn hostile_memory_and_heads_do_no_harm() {
    let mut rng = Rng(0x5eed_0f51_ab5e_ed00);
    for _ in 0..300 {
        let mut made = made();
        for cache in &mut made.caches {
            let size = 8 * (1 + rng.below(600)) as u32;
            let within = |rng: &mut Rng, room: u32| 8 * rng.below(u64::from(room / 8).max(1)) as u32;
            cache.size = size;
            cache.red_left = within(&mut rng, size / 2);
            cache.object_size = 1 + within(&mut rng, size - cache.red_left);
            cache.scanned = within(&mut rng, size - cache.red_left);
            cache.inuse = rng.next() as u32;
            cache.offset = within(&mut rng, size - cache.red_left);
            cache.track = within(&mut rng, size - cache.red_left);
            (cache.red_zone, cache.poison, cache.padded) = (rng.chance(2), rng.chance(2), rng.chance(2));
            cache.rest = rng.chance(2);
        }
        made.caches.retain(Cache::is_sane);
        for head in &mut made.heads {
            head.pages = 1 + rng.below(6) as u32;
            head.objects = rng.below(40_000) as u32;
            head.inuse = rng.next() as u32;
            head.freelist = DIRECT + rng.below(64 * 4096);
        }
        for _ in 0..rng.below(4000) {
            let at = 8 * rng.below((PAGES * PAGE / 8) as u64) as usize;
            let value = if rng.chance(4) { rng.next() } else { DIRECT + rng.below(64 * 4096) };
            made.put(at, value);
        }
        for _ in 0..rng.below(6) {
            made.memory.missing.insert(rng.below(64));
        }
        let (table, states, leaks) = made.leaks();
        assert_eq!(states.of.len() as u64, table.nodes);
        let kept: u64 = leaks.direct.iter().map(|direct| direct.kept).sum();
        assert_eq!(leaks.direct.len() as u64 + kept, leaks.all.len() as u64);
    }
}
