//! Heaps of glibc, of jemalloc and of tcmalloc, and searches for structures.

use dmods_engine::allocators::glibc::bins::{self, Bin};
use dmods_engine::allocators::glibc::find;
use dmods_engine::allocators::glibc::lists::{self, List};
use dmods_engine::allocators::jemalloc::{self, Layout};
use dmods_engine::allocators::tcmalloc::{self, Central, PageMap, Shape, SizeMap};
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::{self, State};
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run, SLOTS};
use dmods_engine::blocks::tcache::TcacheShape;
use dmods_engine::graph::owned_heap::{find_owners, path, OwnedHeap};
use dmods_engine::graph::owners::Scope;
use dmods_engine::graph::roots::{Area, Named, Word, DATA};
use dmods_engine::image::Image;
use dmods_engine::tcb;
use dmods_engine::Control;

use super::{memory, width, Input, PLACES};

/// The most words of a slab's bitmap.
const MAP: u32 = SLOTS as u32 / 64;

/// Runs the pass, the free lists, the bins, marking, leaks, and lookups in the tables.
pub fn heap(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input);
    let kinds = [Kind::Main, Kind::Thread, Kind::Mmapped, Kind::Slab, Kind::Extent];
    let runs: Vec<Run> = (0..1 + u32::from(input.byte() % 4))
        .map(|arena| {
            let start = input.address();
            let end = if input.byte() == 0xff { far(start, input.word()) } else { start.saturating_add(input.short()) };
            let kind = kinds[usize::from(input.byte()) % kinds.len()];
            Run {
                start,
                end,
                kind,
                owner: Owner::new(arena % 2, arena % 3),
                usable: input.short(),
                map: arena % 2 * MAP,
            }
        })
        .collect();
    let heads: Vec<u64> = (0..4).map(|_| input.word()).collect();
    let sizes = (16 * input.short(), 16 * input.short());
    let flags = input.byte();
    let roots = [(input.address(), input.address()), (input.address(), u64::MAX)];
    let dead = [(input.address() & !15, input.address())];
    let maps = [[u64::MAX; MAP as usize], [0x5555_5555_5555_5555; MAP as usize]].concat();
    let image = memory(&mut input, word);
    let control = Control::default();
    let watch = [TcacheShape { chunk: 0x290, bins: 64, width: 2 }, TcacheShape { chunk: 0x40, bins: 2, width: 2 }];
    let request = Request { image: &image, runs, dead: &dead, watch: &watch, maps: &maps, threads: 1 };
    let mut heap =
        dmods_engine::blocks::build(word as u64, request, &control).expect("tables in proportion to what is there");
    for (n, &head) in heads.iter().enumerate() {
        let (to_user, protected) = (flags & 1 != 0, flags & 2 != 0);
        let list = List { head, to_user, protected, least: sizes.0, most: sizes.1 };
        let (seen, set) = (lists::follow(&mut *heap, &image, list, false, true), n % 2 == 0);
        assert_eq!(seen.count as usize, seen.blocks.len());
        lists::follow(&mut *heap, &image, list, set, false);
        lists::release_orphans(&mut *heap, &image, list, (flags & 4 != 0).then_some(head));
    }
    let bins: Vec<Bin> = heads
        .iter()
        .zip(0u32..)
        .map(|(&head, arena)| Bin { head, arena: arena % 3, least: sizes.0, most: sizes.1, sorted: flags & 8 != 0 })
        .collect();
    let followed = bins::follow(&*heap, &image, &bins, &control).expect("not cancelled");
    assert_eq!(followed.held.len(), bins.len());
    let from = Roots { ranges: &roots, values: &heads, ends_last: flags & 16 != 0, ..Roots::default() };
    let totals = heap.mark(&image, from, &control).expect("not cancelled").totals;
    answers(&*heap, totals.direct_count, totals.indirect_count);
    owners(&*heap, &image, &roots, &heads);
}

/// Every block in use has one owner, and a path.
fn owners(heap: &dyn model::Heap, image: &Image, roots: &[(u64, u64)], heads: &[u64]) {
    let control = Control::default();
    let areas = [Area { start: roots[0].0, end: roots[0].1, root: 1, rank: DATA }];
    let values: Vec<Word> = heads.iter().zip(2..).map(|(&value, root)| Word { value, root, rank: root }).collect();
    let named = Named { ranges: roots, areas: &areas, values: &values, ..Named::default() };
    let owners = find_owners(heap, image, named, &control).expect("not cancelled");
    let heap = OwnedHeap::new(heap, &owners);
    let in_use: u64 = heap.sizes(None).iter().map(|size| size.live + size.leaked).sum();
    assert_eq!(heap.owner_lines().iter().map(|line| line.count).sum::<u64>(), in_use);
    for kept in heap.largest(Scope::Live, 4) {
        assert_eq!(heap.addresses_in(Scope::Below(kept.address), 0, usize::MAX).len(), kept.count as usize);
        assert!(heap.owners_above(kept.address, 64).is_some());
        assert!(path(&*heap, Some(&owners), image, named, None, kept.address, &control)
            .expect("not cancelled")
            .is_some());
    }
}

/// Some runs are believed though almost nothing of them is in the dump (4 GiB in all). They cost a second each.
/// tests/test_bounds.py has such runs.
fn far(start: u64, end: u64) -> u64 {
    let near = (0x1_0000..8 << 30).contains(&end.saturating_sub(start));
    if near {
        start.saturating_add(end & 0xffff)
    } else {
        end
    }
}

/// Every lookup must agree with the others.
pub(super) fn answers(heap: &dyn model::Heap, direct: u64, indirect: u64) {
    let states = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly, State::Own];
    let blocks = heap.blocks(&states, 0, 1 << 20);
    let of = |state: State| blocks.iter().filter(|(_, s, _, _)| *s == state).count() as u64;
    assert_eq!((of(State::LeakedDirectly), of(State::LeakedIndirectly)), (direct, indirect));
    assert_eq!(heap.groups().iter().map(|group| group.count).sum::<u64>(), direct);
    let counted = heap.sizes(None).iter().map(|s| s.live + s.free + s.leaked).sum::<u64>();
    assert_eq!(counted, blocks.len() as u64 - of(State::Own));
    for pair in blocks.windows(2) {
        assert!(pair[0].0.address < pair[1].0.address, "blocks in the order of their addresses");
    }
    for (block, state, _, _) in blocks.iter().take(64) {
        if let Some((found, same, _, _)) = heap.find(block.address) {
            assert_eq!((found.address, same), (block.address, *state));
        }
    }
    heap.find(u64::MAX);
}

/// Runs every search for structures.
pub fn search(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input) as u64;
    let mut ranges: Vec<(u64, u64)> = (0..input.byte() % 4).map(|_| (input.address(), input.address())).collect();
    ranges.push((0, u64::MAX));
    let (top, low, high) = (input.word(), input.word(), input.word());
    let image = memory(&mut input, word as usize);
    let _ = find::bins(&image, &ranges, word, &Control::default());
    for deep in [false, true] {
        for mapped in find::mapped(&image, &ranges, &ranges, word, 4096, deep) {
            assert!(mapped.base <= mapped.chunk && mapped.chunk < mapped.end);
        }
    }
    assert!(find::stretches(&image, &ranges, word, 4096, top).iter().all(|s| s.0 < s.1));
    let found = dmods_engine::search::pointers(&image, &ranges, word, &[(low, high)], 7, &Control::default());
    assert!(found.is_ok_and(|found| found[0].len() <= 7));
    assert!(tcb::find_self_pointers(&image, &ranges, 4, 9, || false).len() <= 9);
    assert!(tcb::find_self_pointers(&image, &ranges, 8, 9, || false).len() <= 9);
    assert!(tcb::find_dtv_pointers(&image, &ranges, 9, || false).len() <= 9);
    let (start, end) = (low.min(high), low.max(high));
    for (from, to) in image.covered(start, end) {
        assert!(start <= from && from < to && to <= end);
    }
}

/// jemalloc's radix tree, its extents, and the heap that they make. The root lies at the first of the four places.
pub fn jemalloc(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let layout = tree(how);
    let roots = [(PLACES[0] - 0x100, PLACES[0] + 0x1000), (input.address(), input.address())];
    let (root, seeds) = (PLACES[0] + u64::from(input.byte()) * 8, [input.word(), input.word()]);
    let image = memory(&mut input, 8);
    let control = Control::default();
    for (root, votes) in jemalloc::find(&image, &roots, &layout, &control) {
        assert!(votes > 0 && roots.iter().any(|range| range.0 <= root && root < range.1));
    }
    let found = jemalloc::collect(&image, &layout, root, usize::from(how) + 1, &control).expect("not cancelled");
    assert!(found.all.windows(2).all(|pair| pair[0].end() <= pair[1].start), "they overlap");
    assert!(found.faults.len() as u64 <= found.fault_count);
    for extent in &found.all {
        assert!(found.at(extent.start).is_some_and(|same| same.edata == extent.edata));
    }
    let (live, slots) = found.classes().values().fold((0, 0), |sum, one| (sum.0 + one.live, sum.1 + one.slots));
    assert!(live <= slots && found.ranges().len() <= found.all.len());
    found.states();
    found.metadata();
    let request = Request {
        image: &image,
        runs: found.runs(Owner::new(1, 3), 0),
        dead: &[],
        watch: &[],
        maps: &found.maps,
        threads: 1,
    };
    let mut heap = dmods_engine::blocks::build(8, request, &control).expect("tables in proportion to what is there");
    heap.release(&seeds);
    heap.own(&seeds[..1], how & 1 != 0, &control).expect("not cancelled");
    let from = Roots { ranges: &roots[1..], values: &seeds[1..], ..Roots::default() };
    let totals = heap.mark(&image, from, &control).expect("not cancelled").totals;
    answers(&*heap, totals.direct_count, totals.indirect_count);
}

/// The shapes that jemalloc's tree has had, with few entries in a table, so that a small input can have all of them.
fn tree(how: u8) -> Layout {
    let wide = how & 4 != 0;
    Layout {
        page: 12,
        levels: if how & 8 != 0 { vec![4, 2, 2] } else { vec![4, 4] },
        entry: if wide { 16 } else { 8 },
        pointer: if wide { u64::MAX } else { 0xffff_ffff_ffc0 },
        leaf_szind: if wide { (1, 8) } else { (48, 16) },
        leaf_slab: (0, 1),
        leaf_state: if how & 16 != 0 { (2, 3) } else { (0, 0) },
        alignment: 64,
        arena: (0, 12),
        slab: (12, 1),
        state: (17, 3),
        szind: (20, 8),
        nfree: (28, 10),
        sizes: vec![8, 16, 32, 48, 64, 80, 96, 112, 128, 4096, 8192, 16384, 20480],
        bins: 9,
    }
}

/// tcmalloc's structures, and the heap that they make. The page map's root lies at the first of the four places. It has
/// few entries in a table, so that a small input can have all of them.
pub fn tcmalloc(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let levels = if how & 1 != 0 { vec![4, 2, 2] } else { vec![4, 4] };
    let map = PageMap { root: PLACES[0] + u64::from(input.byte()) * 8, shape: Shape { shift: 12, levels } };
    let sizes = SizeMap { address: PLACES[0], bytes: vec![0, 8, 16, 48, 4096], pages: vec![0, 1, 1, 1, 3] };
    let central = Central { base: input.address(), stride: 192, classes: 5, slots: 4 };
    let ranges = [(PLACES[0] - 0x100, PLACES[0] + 0x1000), (input.address(), input.address())];
    let seeds = [input.word(), input.word()];
    let image = memory(&mut input, 8);
    let control = Control::default();
    for found in tcmalloc::find(&image, &ranges, &ranges[1..], &control) {
        assert!(found.is_err(), "no input is as large as a page map");
    }
    let Ok(found) = tcmalloc::walk(&image, &ranges, &ranges[1..], (central, map, sizes), &control) else { return };
    assert!(found.spans.windows(2).all(|pair| pair[0].end() <= pair[1].start), "they overlap");
    assert!(found.faults.len() as u64 <= found.fault_count && found.problems.len() as u64 <= found.problem_count);
    assert!(found.owned.windows(2).all(|pair| pair[0].1 < pair[1].0), "not sorted");
    let objects: u64 = found.spans.iter().map(|span| found.objects(span)).map(|(size, count)| size * count).sum();
    assert!(found.free.iter().sum::<u64>() <= objects, "more is free than there is");
    if let Ok(sampled) = tcmalloc::samples(&image, &found, &ranges, &control) {
        assert!(sampled.all.iter().all(|one| found.span(one.address).is_some_and(|span| span.start == one.address)));
        assert!(sampled.all.iter().all(|one| one.stack < sampled.stacks.len()));
        assert!(sampled.unsound <= sampled.all.len() as u64);
    }
    let slots = found.slots();
    for &seed in &seeds {
        assert!(found.span(seed).is_none_or(|span| span.start <= seed && seed < span.end()));
        found.holder(&image, seed, &control);
    }
    let request = Request {
        image: &image,
        runs: slots.runs(Owner::new(1, 3), 0),
        dead: &[],
        watch: &[],
        maps: &slots.maps,
        threads: 1,
    };
    let mut heap = dmods_engine::blocks::build(8, request, &control).expect("tables in proportion to what is there");
    let from = Roots { ranges: &ranges[1..], values: &seeds[1..], ..Roots::default() };
    let totals = heap.mark(&image, from, &control).expect("not cancelled").totals;
    answers(&*heap, totals.direct_count, totals.indirect_count);
}
