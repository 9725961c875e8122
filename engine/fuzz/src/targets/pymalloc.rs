//! pymalloc and CPython's objects: pools that the input fills in an arena, built-in types, and the heap that they make.

use dmods_engine::allocators::pymalloc::{self, search, Sizes, HEADER};
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::Heap;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::Owner;
use dmods_engine::graph::owned_heap::find_owners;
use dmods_engine::graph::parts::{BODY, VARIABLE};
use dmods_engine::graph::roots::{Area, Named, Word};
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::python::unused::{self, Process};
use dmods_engine::python::{census, garbage, links, survey, Release};
use dmods_engine::Control;

use super::heaps::answers;
use super::Input;

const SIZES: Sizes = Sizes { arena: 1 << 18, pool: 4096 };
const BASE: u64 = 0x7f00_0000_0000;
/// Bytes of a type, and of what the state of an interpreter has.
const TYPE: u64 = 0x400;
const STATE: u64 = BASE + 0x8000;
const STATE_END: u64 = STATE + 0x200;
const ARRAY: u64 = BASE + 0x9000;
const ARENA: u64 = BASE + 0x1_0000;
const POOLS: u64 = 3;
const END: u64 = ARENA + POOLS * SIZES.pool;
/// Name, basic size, item size, and flags of the types. `type` comes first, `object` next.
const TYPES: [(&[u8], u64, u64, u64); 17] = [
    (b"type", 880, 40, 1 << 31 | 1 << 14),
    (b"object", 16, 0, 0),
    (b"int", 24, 4, 1 << 24),
    (b"list", 40, 0, 1 << 25 | 1 << 14),
    (b"tuple", 24, 8, 1 << 26 | 1 << 14),
    (b"bytes", 33, 1, 1 << 27),
    (b"str", 64, 0, 1 << 28),
    (b"dict", 48, 0, 1 << 29 | 1 << 14),
    (b"float", 24, 0, 0),
    (b"frame", 72, 8, 1 << 14),
    (b"set", 200, 0, 1 << 14),
    (b"generator", 96, 8, 1 << 14),
    (b"code", 176, 0, 0),
    (b"frame", 368, 8, 1 << 14),
    (b"collections.deque", 216, 0, 1 << 14),
    (b"module", 56, 0, 1 << 14),
    (b"weakref", 72, 0, 1 << 14),
];

struct Memory(Vec<u8>);

impl Memory {
    fn put(&mut self, at: u64, value: u64) {
        let from = (at - BASE) as usize;
        self.0[from..from + 8].copy_from_slice(&value.to_le_bytes());
    }
    fn put_int(&mut self, at: u64, value: u32) {
        let from = (at - BASE) as usize;
        self.0[from..from + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A word: a number, a type, an address in the pools or in the state.
fn word(input: &mut Input) -> u64 {
    match input.byte() {
        kind @ 0..=99 => u64::from(kind % 50),
        100..=139 => BASE + u64::from(input.byte()) % TYPES.len() as u64 * TYPE,
        140..=209 => ARENA + input.short() % (POOLS * SIZES.pool) / 16 * 16,
        210..=219 => ARENA + input.short() % (POOLS * SIZES.pool),
        220..=229 => STATE + input.short() % 0x200 / 8 * 8,
        230..=239 => input.short() << 16 | input.short(),
        _ => u64::from_le_bytes(std::array::from_fn(|_| input.byte())),
    }
}

fn types(memory: &mut Memory) {
    for (number, &(name, basic, item, flags)) in TYPES.iter().enumerate() {
        let at = BASE + number as u64 * TYPE;
        let base = if number == 1 { 0 } else { BASE + TYPE };
        let fields = [(0, 1), (8, BASE), (24, at + 0x380), (32, basic), (40, item), (168, flags), (256, base)];
        for (offset, value) in fields {
            memory.put(at + offset, value);
        }
        let from = (at + 0x380 - BASE) as usize;
        memory.0[from..from + name.len()].copy_from_slice(name);
    }
}

/// Reads pools and objects, and makes a heap of the blocks.
pub fn pymalloc(data: &[u8]) {
    let mut input = Input(data);
    let release = Release { minor: 9 + u32::from(input.byte()) % 6 };
    let mut memory = Memory(vec![0; (END - BASE) as usize]);
    types(&mut memory);
    memory.put(ARRAY, if input.byte() == 0xff { word(&mut input) } else { ARENA });
    memory.put(ARRAY + 8, END);
    memory.put(ARRAY + 16, (64 - POOLS) | 64 << 32);
    memory.put(STATE, ARRAY);
    for at in (STATE + 8..STATE_END).step_by(8).take(usize::from(input.byte() % 32)) {
        memory.put(at, word(&mut input));
    }
    for pool in (ARENA..END).step_by(SIZES.pool as usize) {
        let class = u32::from(input.byte() % 32);
        let size = u64::from(class + 1) * 16;
        let blocks = (SIZES.pool - HEADER) / size;
        let cut = 1 + u64::from(input.byte()) % blocks;
        let odd = input.byte();
        for (offset, value) in [(0, cut as u32), (32, 0), (36, class), (40, (HEADER + cut * size) as u32)] {
            memory.put_int(pool + offset, value);
        }
        memory.put_int(pool + 44, (SIZES.pool - size) as u32);
        let most = input.byte();
        let places = (pool + HEADER..pool + HEADER + cut * size).step_by(8);
        for (_, at) in (0..most).zip(places) {
            memory.put(at, word(&mut input));
        }
        if odd % 4 == 0 {
            memory.put_int(pool, cut as u32 - u32::from(odd & 4 != 0));
            memory.put(pool + 8, word(&mut input));
        }
    }
    let source = Source::Bytes(memory.0.into());
    let image = Image::new(&[], vec![Segment { start: BASE, end: END + SIZES.arena, source }]).expect("no file");
    check(&image, release, input.word());
}

fn check(image: &Image, release: Release, seed: u64) {
    let control = Control::default();
    let inside = [(ARENA, ARENA + SIZES.arena)];
    let pools = search::pools(image, &inside, SIZES, &control);
    let arrays: Vec<u64> = search::arrays(image, &[(STATE, STATE_END)], &pools, SIZES, &control).into_iter().collect();
    let heap = pymalloc::read(image, &arrays, &inside, SIZES, &control);
    let (used, known) = (heap.slots.len() as u64, heap.classes.iter().map(|class| class.1).sum::<u64>());
    assert_eq!(used, known, "blocks in use");
    assert!(heap.arenas.windows(2).all(|pair| pair[0].end <= pair[1].start), "arenas overlap");
    let slots = [&heap.slots];
    let lists = links::find(image, &[(STATE, STATE_END)], release, &control);
    let counted = census::take(image, &slots, &[], release, Some(&lists), (&[BASE + 6 * TYPE], 9), &control);
    assert!(counted.rows.values().map(|row| row.count).sum::<u64>() <= counted.blocks);
    let process = Process {
        slots: &slots,
        release,
        links: Some(&lists),
        interpreter: &[(BASE, STATE)],
        heads: &[(STATE, STATE + 0xe0)],
        stacks: &[(STATE + 0xc0, STATE + 0xe0)],
        threads: &[(STATE + 0xe0, STATE + 0x100)],
        registers: &[seed],
        frames: &[seed],
        chunks: &[(ARENA, END)],
    };
    let unused = unused::find(image, &process, &control);
    assert!(unused.iter().all(|part| part.0 < part.1), "an empty range");
    assert!(unused.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges touch");
    let mut dead: Vec<(u64, u64)> = lists.ranges().collect();
    dead.extend(&unused);
    let dead = unused::merged(dead);
    let runs = heap.slots.runs(Owner::new(1, 3), 0);
    let request = Request { image, runs, dead: &dead, watch: &[], maps: &heap.slots.maps, threads: 1 };
    let mut index = dmods_engine::blocks::build(8, request, &control).expect("tables in proportion to what is there");
    let roots = Roots { ranges: &[(STATE, STATE_END)], values: &[seed], ..Roots::default() };
    let totals = index.mark(image, roots, &control).expect("not cancelled").totals;
    answers(&*index, totals.direct_count, totals.indirect_count);
    let leaked: Vec<(u64, u64)> = index
        .blocks(&[dmods_engine::blocks::model::State::LeakedDirectly], 0, 1 << 16)
        .iter()
        .map(|(block, ..)| (block.address, block.size))
        .collect();
    for garbage in garbage::find(image, &leaked, &lists, &unused, release, &control) {
        assert!(leaked.iter().any(|block| block.0 <= garbage && garbage < block.0 + block.1));
    }
    owners(&*index, image, release, &lists);
}

/// Every block in use has one owner, whatever modules and classes the input has.
fn owners(heap: &dyn Heap, image: &Image, release: Release, lists: &links::Links) {
    let control = Control::default();
    let found = survey::look(heap, image, release, Some(lists), &control).expect("not cancelled");
    assert!(found.blocks.windows(2).all(|pair| pair[0] < pair[1]), "a block twice");
    let (mut parts, mut selves) = (Vec::new(), Vec::new());
    for (holder, root) in found.holders.iter().zip(1..) {
        assert!(!holder.name.is_empty() && !holder.name.chars().any(char::is_control), "a name that nobody can read");
        selves.push(Word { value: holder.address, root, rank: BODY });
        parts.push(Area { start: holder.body.0, end: holder.body.1, root, rank: BODY });
        let variables = holder.variables.iter();
        parts.extend(variables.map(|one| Area { start: one.start, end: one.value + 8, root, rank: VARIABLE }));
    }
    parts.sort_by_key(|part| (part.start, part.rank));
    let mut end = 0;
    parts.retain(|part| {
        let fits = part.start >= end && part.start < part.end;
        end = if fits { part.end } else { end };
        fits
    });
    let proven: Vec<u64> = found.blocks.iter().map(|block| block.0).collect();
    let (ranges, borrowed) = ([(STATE, STATE_END)], &found.borrowed[..]);
    let (parts, selves, proven) = (&parts[..], &selves[..], &proven[..]);
    let named = Named { ranges: &ranges, parts, selves, borrowed, proven, ..Named::default() };
    let owners = find_owners(heap, image, named, &control).expect("not cancelled");
    let in_use: u64 = heap.sizes(None).iter().map(|size| size.live + size.leaked).sum();
    assert_eq!(owners.lines().iter().map(|line| line.count).sum::<u64>(), in_use);
}
