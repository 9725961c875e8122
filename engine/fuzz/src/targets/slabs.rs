//! The slab objects of a dead Linux machine: hostile struct pages, caches, freelists, sheaves and tracks.

use dmods_engine::kernel::layout::Layout;
use dmods_engine::kernel::listed_pages::{ListedPages, Lists};
use dmods_engine::kernel::page_tables::{Format, Tables};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::scan::Scan;
use dmods_engine::kernel::slabs::check::check;
use dmods_engine::kernel::slabs::freelists::{state, States};
use dmods_engine::kernel::slabs::heads::{Head, Heads};
use dmods_engine::kernel::slabs::holders::holders;
use dmods_engine::kernel::slabs::layout::{Bits, Cache, Guarded, Sheaves, SlabLayout};
use dmods_engine::kernel::slabs::leaks::find;
use dmods_engine::kernel::slabs::marking::{mark, set_aside, unsure};
use dmods_engine::kernel::slabs::reserves::Reserves;
use dmods_engine::kernel::slabs::sweep::{sweep, Memory};
use dmods_engine::kernel::slabs::table::Table;
use dmods_engine::kernel::slabs::tracks::{TrackLayout, Tracks, ALLOCATED};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::Kind;
use dmods_engine::Control;

use super::machine::{layout, Machine, DIRECT, ROOT};
use super::Input;

/// The page frames of the machine. What they have is the input, repeated.
const PAGES: u64 = 48;
/// The size of the input is odd to a page, so that pages differ.
const LEAST: usize = 64;

struct Repeated(Machine);

impl Physical for Repeated {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if address >= ROOT {
            return self.0.read(address, buf);
        }
        let there = (PAGES << 12).saturating_sub(address).min(buf.len() as u64) as usize;
        let size = self.0.bytes.len();
        for (at, byte) in buf[..there].iter_mut().enumerate() {
            *byte = self.0.bytes[(address as usize + at) % size];
        }
        there
    }
    fn granule(&self) -> usize {
        self.0.granule()
    }
}

fn direct(input: &mut Input) -> u64 {
    if input.byte() % 8 == 0 {
        return input.word();
    }
    DIRECT + input.short() * 8 % (PAGES << 12)
}

fn cache(input: &mut Input) -> Cache {
    let part = |input: &mut Input| 8 * (u32::from(input.byte()) % 40);
    let size = 8 * (1 + input.short() as u32 % 1100);
    let flags = input.byte();
    Cache {
        address: DIRECT + u64::from(input.byte()) * 8,
        size,
        object_size: 1 + part(input),
        inuse: part(input),
        offset: part(input),
        red_left: part(input),
        scanned: part(input),
        random: (flags & 1 != 0).then(|| input.word()),
        cpu_slab: if flags & 2 != 0 { direct(input) } else { 0 },
        cpu_sheaves: if flags & 4 != 0 { direct(input) } else { 0 },
        barns: (0..flags >> 6).map(|_| direct(input)).collect(),
        track: part(input),
        red_zone: flags & 8 != 0,
        poison: flags & 16 != 0,
        padded: flags & 32 != 0,
        rest: flags & 64 != 0,
    }
}

fn slab_layout(input: &mut Input, page: usize) -> SlabLayout {
    let word = |input: &mut Input| usize::from(input.byte()) % (page / 8) * 8;
    let offset = |input: &mut Input| u64::from(input.byte() % 32) * 8;
    SlabLayout {
        cache: word(input),
        freelist: word(input),
        inuse: Bits { word: word(input), shift: u32::from(input.byte() % 70), width: u32::from(input.byte() % 40) },
        objects: Bits { word: word(input), shift: u32::from(input.byte() % 70), width: u32::from(input.byte() % 40) },
        direct_map: if input.byte() % 16 == 0 { input.word() } else { DIRECT },
        cpus: (0..input.byte() % 3).map(|_| u64::from(input.byte()) * 8).collect(),
        cpu_freelist: (input.byte() % 2 == 0).then(|| offset(input)),
        sheaves: (input.byte() % 2 == 0).then(|| Sheaves {
            of_cpu: vec![offset(input), offset(input)],
            of_barn: vec![offset(input)],
            list: offset(input),
            cache: offset(input),
            size: offset(input),
            objects: offset(input),
        }),
        guarded: (0..input.byte() % 4).map(|_| guarded(input)).collect(),
    }
}

fn guarded(input: &mut Input) -> Guarded {
    Guarded { pfn: u64::from(input.byte()) % PAGES, cache: u32::from(input.byte() % 5), free: input.byte() % 2 == 0 }
}

/// Heads as no page array could give them, too.
fn head(input: &mut Input, caches: &[Cache]) -> Head {
    let which = usize::from(input.byte());
    Head {
        pfn: u64::from(input.byte()) % (PAGES + 8),
        pages: 1 + u32::from(input.byte() % 9),
        kind: [Kind::Slab, Kind::Kfence, Kind::LargeKmalloc, Kind::Kernel][which % 4],
        cache: caches.get(which / 4 % 4).map_or(0, |cache| cache.address),
        freelist: direct(input),
        inuse: input.short() as u32,
        objects: input.short() as u32,
    }
}

/// Finds all objects, their states, the leaks, their records, and the damage.
pub fn slabs(data: &[u8]) {
    let mut input = Input(data);
    let pages: Layout = layout(&mut input);
    if pages.problem().is_some() {
        return;
    }
    let mut own = slab_layout(&mut input, pages.size);
    own.guarded.sort_by_key(|one| one.pfn);
    let caches: Vec<Cache> = (0..1 + input.byte() % 4).map(|_| cache(&mut input)).filter(Cache::is_sane).collect();
    let mut made: Vec<Head> = (0..input.byte() % 6).map(|_| head(&mut input, &caches)).collect();
    let target = (direct(&mut input), u64::from(input.byte()));
    let aside: Vec<u64> = (0..input.byte() % 4).map(|_| direct(&mut input)).collect();
    let parts: [u32; 6] = std::array::from_fn(|_| u32::from(input.byte()));
    let track = TrackLayout {
        size: parts[0],
        addr: parts[1],
        stack: parts[2],
        stack_bytes: 4 + (parts[3] & 0xfc),
        cpu: parts[4],
        pid: parts[5],
        when: parts[5],
    };
    let track = if track.is_sane() { track } else { TrackLayout::default() };
    let granule = 64 << (input.byte() % 8);
    if input.0.len() < LEAST {
        return;
    }
    let memory = Repeated(Machine::new(input.0, granule));
    let tables = Tables::new(Format::X86 { clear: 0 }, ROOT, 12, 48).expect("as on every x86-64");
    let (mut space, control) = (VirtualMemory::new(&memory, tables), Control::default());
    let (ranges, mut kinds) = ([(0, PAGES)], Vec::new());
    let listed = ListedPages::gather(&Lists::default(), &pages, &ranges, &mut space, &control);
    let mut heads = Heads::new(&own);
    let scan = Scan::new(&pages, &listed, &mut space, 4, Some(&mut kinds)).with_heads(&mut heads);
    scan.run(&ranges, &control);
    made.append(&mut heads.found);
    made.sort_by_key(|head| head.pfn);
    let mut end = 0; // slabs do not overlap: the pass over the page array goes on behind each
    made.retain(|head| {
        let fits = head.pfn >= end;
        end = if fits { head.pfn + u64::from(head.pages) } else { end };
        fits
    });
    let table = Table::new(&made, caches, &own, 12, |head| head.pages >= 4);
    for slab in &table.slabs {
        for slot in 0..u32::from(slab.objects) {
            let (address, ..) = table.describe(slab.first + slot);
            assert_eq!(table.exactly(address).map(|(_, node)| node), Some(slab.first + slot));
        }
    }
    let reserves = Reserves::read(&table, &own, &mut space, &control);
    let mut states = States::new(&table, &reserves, &memory, &control).expect("not cancelled");
    assert_eq!(states.of.len() as u64, table.nodes);
    let what = Memory {
        layout: &pages,
        ranges: &ranges,
        kinds: &kinds,
        registers: &[DIRECT + 64],
        code: &[],
        ignored: &[0x1000, 0x1ff8, 0x2004],
        unread: &[(3, 5)],
    };
    let pointers = sweep(&table, &states, &mut space, &what, false, &control).expect("not cancelled");
    assert_eq!(pointers.starts.len() as u64, table.nodes + 1);
    let free = states.of.iter().filter(|state| **state >= state::FREE).count();
    mark(&mut states, &pointers, &control).expect("not cancelled");
    unsure(&table, &reserves, &mut states, &pointers, false, &control).expect("not cancelled");
    let nodes: Vec<u32> = aside.iter().filter_map(|address| table.exactly(*address)).map(|(_, node)| node).collect();
    set_aside(&mut states, &pointers, &nodes, &control).expect("not cancelled");
    assert_eq!(free, states.of.iter().filter(|state| **state >= state::FREE).count());
    let leaks = find(&table, &states, &pointers, &control).expect("not cancelled");
    assert_eq!(
        leaks.direct.len() as u64 + leaks.direct.iter().map(|one| one.kept).sum::<u64>(),
        leaks.all.len() as u64
    );
    let tracks = Tracks { table: &table, layout: track, physical: &memory };
    tracks.of_leaks(&leaks, &control).expect("not cancelled");
    tracks.of_states(&states, ALLOCATED, true, &[], &control).expect("not cancelled");
    check(&table, &states, &memory, &control).expect("not cancelled");
    let range = (target.0, target.0.saturating_add(target.1));
    let (found, count) = holders(&table, &states, &mut space, &what, range, 5, &control).expect("not cancelled");
    assert!(found.len() as u64 == count.min(5));
}
