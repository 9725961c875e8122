//! A segment of mimalloc 2.x and a page map of 3.x, both sound, with words of them overwritten.

use std::sync::{Arc, OnceLock};

use dmods_engine::allocators::mimalloc;
use dmods_engine::blocks::runs::Owner;
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;

use super::Input;

const SLICE: u64 = 1 << 16;
const SEGMENT: u64 = 1 << 29;
const ROOT: u64 = 0x1000_0000;
const TABLE: u64 = 0x1100_0000;
const ARENA: u64 = 0x4000_0000;
const DATA: u64 = 0x1000;
const SECRET: u64 = 0x1234_5678_9abc_def0;
/// Pages of each, and the bytes of their blocks.
const PAGES: u64 = 4;
const BLOCK: u64 = 64;
const CAPACITY: u64 = 16;
/// Bytes of a page in the dump: its header and its blocks. And those of a segment: its header and its slices. Zeros are
/// compared word by word, and each comparison costs a call of libFuzzer.
const AREA: usize = 1280;
const HEADER: usize = 1024;
/// Where a segment's slices begin, and bytes of each.
const SLICES: u64 = 0x110;
const STRIDE: u64 = 96;

/// The memory, as (address, bytes).
#[derive(Clone)]
struct World(Vec<(u64, Arc<[u8]>)>);

impl World {
    fn put(&mut self, address: u64, value: u64, size: usize) {
        for (start, bytes) in &mut self.0 {
            if let Some(at) = address.checked_sub(*start).map(|at| at as usize) {
                if at + size <= bytes.len() {
                    Arc::make_mut(bytes)[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
                    return;
                }
            }
        }
    }

    /// Links every other block, and returns how many there are.
    fn list(&mut self, start: u64) -> u64 {
        for i in (0..CAPACITY).step_by(2) {
            let next = if i + 2 < CAPACITY { start + (i + 2) * BLOCK } else { 0 };
            self.put(start + i * BLOCK, next, 8);
        }
        CAPACITY / 2
    }
}

/// The sound memory. It is made once; an area is copied where an input changes it.
fn world() -> World {
    static SOUND: OnceLock<World> = OnceLock::new();
    SOUND.get_or_init(sound).clone()
}

fn sound() -> World {
    let zeros = |size: usize| -> Arc<[u8]> { vec![0; size].into() };
    let mut areas = vec![(DATA, zeros(64)), (SEGMENT, zeros(HEADER)), (ROOT, zeros(128)), (TABLE, zeros(128))];
    areas.extend((1..=PAGES).map(|i| (SEGMENT + i * SLICE, zeros(AREA))));
    areas.extend((1..=PAGES).map(|i| (ARENA + i * SLICE, zeros(AREA))));
    let mut world = World(areas);
    world.put(DATA, SECRET, 8);
    world.put(DATA + 8, ROOT, 8);
    let slices = SEGMENT + SLICES;
    let header = [PAGES, SEGMENT ^ SECRET, 512, 1, 0, 512, 0x7000];
    for (i, value) in header.into_iter().enumerate() {
        world.put(slices - 56 + 8 * i as u64, value, 8);
    }
    world.put(slices, 1, 8);
    for i in 1..=PAGES {
        let (page, start) = (slices + i * STRIDE, SEGMENT + i * SLICE);
        let used = CAPACITY - world.list(start);
        let fields =
            [(0, 1, 4), (10, CAPACITY, 2), (12, SLICE / BLOCK, 2), (16, start, 8), (32, used, 2), (40, BLOCK, 8)];
        for (at, value, size) in fields.into_iter().chain([(48, start, 8), (64, SEGMENT, 8)]) {
            world.put(page + at, value, size);
        }
    }
    world.put(slices + (PAGES + 1) * STRIDE, 511 - PAGES, 8);
    world.put(ROOT + 8 * (ARENA >> 29), TABLE, 8);
    for i in 1..=PAGES {
        let page = ARENA + i * SLICE;
        world.put(TABLE + 8 * i, page, 8);
        let start = page + 0x80;
        let used = CAPACITY - world.list(start);
        let fields = [(0, 0x7000, 8), (8, start, 8), (16, used, 2), (18, CAPACITY, 2), (20, SLICE / BLOCK - 2, 2)];
        for (at, value, size) in fields.into_iter().chain([(32, 1, 8), (40, BLOCK, 8), (48, start, 8)]) {
            world.put(page + at, value, size);
        }
        world.put(page + 96, ARENA, 8);
        world.put(page + 104, i | 1 << 32, 8);
    }
    world
}

/// Reads the pages, and checks that the answers agree with each other. An input without bytes has all pages.
pub fn mimalloc(data: &[u8]) {
    let mut input = Input(data);
    let mut world = world();
    let places = [SEGMENT, SEGMENT + SLICES, SEGMENT + SLICE, ARENA + SLICE, ARENA + 2 * SLICE, TABLE, ROOT, DATA];
    let near = [SEGMENT + SLICE, ARENA + SLICE, ARENA, TABLE, SEGMENT, u64::MAX - 0xffff, 1 << 47, 0];
    let damaged = !data.is_empty();
    while !input.0.is_empty() {
        let what = input.byte();
        let at = places[usize::from(what) % places.len()] + input.short();
        let size = [8, 8, 4, 2][usize::from(what >> 6)];
        let value = match input.byte() {
            choice if choice < 0xe0 => near[usize::from(choice) % near.len()].saturating_add(input.short()),
            choice if choice < 0xf0 => input.short(),
            _ => u64::from_le_bytes(std::array::from_fn(|_| input.byte())),
        };
        world.put(at, value, size);
    }
    let segments = world.0.into_iter().map(|(start, bytes)| {
        let end = start + bytes.len() as u64;
        Segment { start, end, source: Source::Bytes(bytes) }
    });
    let image = Image::new(&[], segments.collect()).expect("no files");
    let memory = [(SEGMENT, SEGMENT + (1 << 25)), (ARENA, ARENA + (1 << 25))];
    let (heaps, _) = mimalloc::find(&image, &[(DATA, DATA + 64)], &memory, &memory, &Control::default());
    assert!(damaged || heaps.len() == 2 && heaps.iter().all(|heap| heap.pages.len() as u64 == PAGES));
    for heap in &heaps {
        assert!(heap.pages.windows(2).all(|pair| pair[0].end() <= pair[1].start), "pages overlap");
        assert!(heap.owned.windows(2).all(|pair| pair[0].1 < pair[1].0), "owned memory is not merged");
        let slots = heap.slots(&image);
        let live: u64 = heap.pages.iter().map(|page| u64::from(page.live())).sum();
        assert_eq!(slots.len() as u64, live);
        assert!(damaged || live == PAGES * CAPACITY / 2);
        slots.runs(Owner::new(1, 1), 0);
        for page in heap.pages.iter().take(8) {
            assert!(heap.page_at(page.start).is_some_and(|same| same.address == page.address));
            let free = (0..page.capacity as usize).find(|&slot| page.is_free(slot));
            if let Some(slot) = free {
                assert!(page.list_of(&image, page.start + slot as u64 * page.block).is_some());
            }
        }
    }
}
