//! Compares jemalloc's extents with the made-up trees that they are read from, and reads the same trees with words
//! overwritten.

use dmods_engine::allocators::jemalloc::{self, Layout};
use dmods_engine::blocks;
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::Owner;
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
const ROOT: u64 = 0x4000_0000;
const LEAVES: u64 = 0x4000_1000;
const RECORDS: u64 = 0x5000_0000;
const HEAP: u64 = 0x10_0000;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A tree of the usual shape, for few addresses: 2^10 pages.
fn layout() -> Layout {
    Layout {
        page: 12,
        levels: vec![4, 6],
        entry: 8,
        pointer: 0xffff_ffff_ffc0,
        leaf_szind: (48, 16),
        leaf_slab: (0, 1),
        leaf_state: (2, 3),
        alignment: 128,
        arena: (0, 12),
        slab: (12, 1),
        state: (17, 3),
        szind: (20, 8),
        nfree: (28, 10),
        sizes: vec![8, 16, 32, 48, 64, 80, 96, 112, 128, 4096, 8192, 16384, 20480],
        bins: 9,
    }
}

struct World {
    words: BTreeMap<u64, u64>,
    /// Address, usable bytes, free or not.
    blocks: Vec<(u64, u64, bool)>,
    end: u64,
}

/// Extents side by side: slabs, large ones (some begin inside their first page), and some that are not in use.
fn world(dice: &mut Dice) -> World {
    let layout = layout();
    let mut made = World { words: BTreeMap::new(), blocks: Vec::new(), end: HEAP };
    // A large block begins anywhere in its first page, which has room beside the bytes asked for, unless jemalloc was
    // built without that.
    let padded = dice.below(2) == 0;
    for index in 0..2 + dice.below(30) {
        let edata = RECORDS + index * 128;
        let start = made.end;
        let (mut address, mut map, mut nfree) = (start, [0u64; 8], 0);
        let state = if dice.below(4) == 0 { 1 + dice.below(3) } else { 0 };
        let slab = dice.below(2) == 0;
        let szind = if slab { dice.below(9) } else { 9 + dice.below(4) };
        let unit = layout.sizes[szind as usize];
        let mut size = unit.next_multiple_of(PAGE);
        if slab && state == 0 {
            size = if unit.is_power_of_two() { PAGE } else { 3 * PAGE };
            for slot in 0..(size / unit).min(512) {
                let free = dice.below(3) == 0;
                map[slot as usize / 64] |= u64::from(free) << (slot % 64);
                nfree += u64::from(free);
                made.blocks.push((start + slot * unit, unit, free));
            }
        } else if state == 0 {
            size += if padded { PAGE } else { 0 };
            address += if padded { 64 * dice.below(64) } else { 0 };
            made.blocks.push((address, unit, false));
        }
        let known = if state == 0 { szind } else { layout.sizes.len() as u64 };
        let bits = u64::from(slab) << 12 | state << 17 | known << 20 | nfree << 28 | 3;
        for (i, word) in [bits, address, size].into_iter().chain([0; 5]).chain(map).enumerate() {
            made.words.insert(edata + 8 * i as u64, word);
        }
        let entry = edata | known << 48 | state << 2 | u64::from(slab);
        let last = start + size - PAGE;
        let pages = (start..=last).step_by(PAGE as usize);
        for page in pages.filter(|&page| page == start || page == last || slab && state == 0) {
            let (high, low) = (page / PAGE / 64, page / PAGE % 64);
            let leaf = LEAVES + high * 512;
            made.words.insert(ROOT + 8 * high, leaf);
            made.words.insert(leaf + 8 * low, entry);
        }
        made.end += size + dice.below(2) * PAGE;
    }
    // Some words of blocks hold pointers into others. All other words are zero.
    let live: Vec<(u64, u64)> = made.blocks.iter().filter(|b| !b.2).map(|b| (b.0, b.1)).collect();
    for &(address, size) in &live {
        if dice.below(2) == 0 && !live.is_empty() {
            let (target, room) = live[dice.below(live.len() as u64) as usize];
            made.words.insert(address + 8 * dice.below(size / 8), target + dice.below(room));
        }
    }
    made
}

fn image(words: &BTreeMap<u64, u64>, heap_end: u64) -> Image {
    let parts = [(ROOT, ROOT + 128), (LEAVES, LEAVES + 16 * 512), (RECORDS, RECORDS + 64 * 128), (HEAP, heap_end)];
    let segments = parts.map(|(start, end)| {
        let mut data = vec![0u8; (end - start) as usize];
        for (&at, word) in words.range(start..end) {
            data[(at - start) as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }
        Segment { start, end, source: Source::Bytes(data.into()) }
    });
    Image::new(&[], segments.to_vec()).expect("no files")
}

/// The blocks that are reachable from a root that points to the first live block, computed slowly.
fn reachable(made: &World) -> Vec<u64> {
    let holding = |value: u64| made.blocks.iter().find(|b| !b.2 && b.0 <= value && value < b.0 + b.1);
    let mut found: Vec<u64> = made.blocks.iter().find(|b| !b.2).map(|b| b.0).into_iter().collect();
    let mut next = 0;
    while let Some(&at) = found.get(next) {
        next += 1;
        let size = holding(at).map_or(0, |b| b.1);
        for (_, &value) in made.words.range(at..at + size) {
            if let Some(block) = holding(value).filter(|b| !found.contains(&b.0)) {
                found.push(block.0);
            }
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn blocks_sizes_and_marking_are_those_of_the_made_up_heap() {
    for seed in 1..200 {
        let mut dice = Dice(seed * 7919);
        let made = world(&mut dice);
        let image = image(&made.words, made.end);
        let control = Control::default();
        let roots = jemalloc::find(&image, &[(ROOT, ROOT + 128)], &layout(), &control);
        assert_eq!(roots.first().map(|r| r.0), Some(ROOT), "seed {seed}");
        let found = jemalloc::collect(&image, &layout(), ROOT, usize::MAX, &control).expect("not cancelled");
        assert_eq!((found.fault_count, &found.faults[..]), (0, &[][..]), "seed {seed}");
        let request = Request {
            image: &image,
            runs: found.runs(Owner::new(1, 100), 0),
            dead: &[],
            watch: &[],
            maps: &found.maps,
            threads: 1 + seed as usize % 3,
        };
        let mut heap = blocks::build(8, request, &control).expect("not cancelled");
        let all = [State::Live, State::Free];
        let said: Vec<(u64, u64, bool)> =
            heap.blocks(&all, 0, usize::MAX).iter().map(|(b, _, _, _)| (b.address, b.size, b.free)).collect();
        assert!(said == made.blocks, "seed {seed}: {} blocks, not {}", said.len(), made.blocks.len());
        for &(address, size, _) in &made.blocks {
            for at in [address, address + dice.below(size), address + size - 1] {
                assert_eq!(heap.find(at).map(|(b, ..)| b.address), Some(address), "seed {seed}: {at:#x}");
            }
        }
        let first: Vec<u64> = made.blocks.iter().find(|b| !b.2).map(|b| b.0).into_iter().collect();
        heap.mark(&image, Roots { values: &first, ..Roots::default() }, &control).expect("not cancelled");
        let live: Vec<u64> = heap.blocks(&[State::Live], 0, usize::MAX).iter().map(|(b, ..)| b.address).collect();
        assert_eq!(live, reachable(&made), "seed {seed}");
    }
}

/// A program's own table of pointers to untouched memory lies before the root, and another one after it.
#[test]
fn a_tree_is_found_between_a_million_pointers_to_nothing() {
    const OWN: u64 = 0x8000_0000;
    const POINTERS: u64 = 1 << 20;
    const BLANK: u64 = 0x10_0000_0000;
    let layout = Layout { levels: vec![18, 18], ..layout() };
    let root = OWN + 8 * POINTERS;
    let (leaf, edata, heap) = (RECORDS + 4096, RECORDS, 0x7f00_1234_5000u64);
    let end = root + (8 << 18);
    let mut data = vec![0u8; 2 * 8 * POINTERS as usize + (8 << 18)];
    let mut put = |at: u64, word: u64| data[(at - OWN) as usize..][..8].copy_from_slice(&word.to_le_bytes());
    for i in 0..POINTERS {
        put(OWN + 8 * i, BLANK + 64 * (i % (1 << 18)));
        put(end + 8 * i, BLANK + 64 * (i % (1 << 18)));
    }
    // Leaves of memory that was returned.
    for i in 0..16000 {
        put(root + 8 * (1000 + i), BLANK + 64 * i);
    }
    put(root + 8 * (heap >> 30), leaf);
    let mut records = vec![0u8; 4096 + (8 << 18)];
    let mut put = |at: u64, word: u64| records[(at - RECORDS) as usize..][..8].copy_from_slice(&word.to_le_bytes());
    put(edata + 8, heap);
    put(leaf + 8 * (heap >> 12 & 0x3ffff), edata | 9 << 48);
    let parts = [(OWN, data), (RECORDS, records), (BLANK, vec![0u8; 32 << 20])];
    let segments = parts.map(|(start, data)| Segment {
        start,
        end: start + data.len() as u64,
        source: Source::Bytes(data.into()),
    });
    let image = Image::new(&[], segments.to_vec()).expect("no files");
    let control = Control::default();
    assert_eq!(jemalloc::find(&image, &[(OWN, end + 8 * POINTERS)], &layout, &control), [(root, 1)]);
}

#[test]
fn overwritten_words_cost_faults_but_no_time_and_no_panic() {
    for seed in 1..400 {
        let mut dice = Dice(seed * 104_729);
        let mut made = world(&mut dice);
        let places: Vec<u64> = made.words.keys().copied().collect();
        for _ in 0..1 + dice.below(8) {
            let at = places[dice.below(places.len() as u64) as usize];
            let value = match dice.below(5) {
                0 => dice.next(),
                1 => 0,
                2 => u64::MAX,
                3 => made.words[&places[dice.below(places.len() as u64) as usize]],
                _ => made.words[&at] ^ 1 << dice.below(64),
            };
            made.words.insert(at, value);
        }
        let image = image(&made.words, made.end);
        let control = Control::default();
        jemalloc::find(&image, &[(ROOT, ROOT + 128), (0, u64::MAX)], &layout(), &control);
        let found = jemalloc::collect(&image, &layout(), ROOT, usize::MAX, &control).expect("not cancelled");
        assert!(found.all.windows(2).all(|pair| pair[0].end() <= pair[1].start), "seed {seed}: they overlap");
        let runs = found.runs(Owner::default(), 0);
        let request = Request { image: &image, runs, dead: &[], watch: &[], maps: &found.maps, threads: 1 };
        let mut heap = blocks::build(8, request, &control).expect("not cancelled");
        heap.release(&[HEAP, HEAP + 8, 1, u64::MAX]);
        heap.own(&[HEAP + 4096, u64::MAX], seed % 2 == 0, &control).expect("not cancelled");
        let roots = Roots { ranges: &[(HEAP, made.end)], values: &[HEAP], ..Roots::default() };
        heap.mark(&image, roots, &control).expect("not cancelled");
        let blocks = heap.blocks(&[State::Live, State::Free, State::Own], 0, usize::MAX);
        assert!(blocks.windows(2).all(|pair| pair[0].0.address < pair[1].0.address), "seed {seed}: order");
        // The blocks are walked once and searched once.
        assert!(control.done() <= 4 * (made.end - HEAP), "seed {seed}: {} bytes", control.done());
    }
}
