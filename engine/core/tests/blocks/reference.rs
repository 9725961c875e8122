//! The engine must give the model's answer for any heap.

use super::made::{Dice, Sizes, World};
use super::plain::Plain;
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::{Heap, State};
use dmods_engine::blocks::odd::Kinds;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::{self, Way};
use dmods_engine::Control;
use std::collections::{BTreeMap, BTreeSet};

const ALL: [State; 4] = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly];

/// No run is shared.
const WHOLE: u64 = u64::MAX / 2;

type Row = (u64, u64, State, u64, u64);

/// All that the engine says of its blocks.
fn rows(heap: &dyn Heap, batch: usize) -> Vec<Row> {
    let (mut out, mut from): (Vec<Row>, u64) = (Vec::new(), 0);
    loop {
        let found = heap.blocks(&ALL, from, batch);
        out.extend(found.iter().map(|(b, state, count, bytes)| (b.address, b.size, *state, *count, *bytes)));
        match found.last() {
            Some((last, ..)) if found.len() == batch => from = last.address + 1,
            _ => return out,
        }
    }
}

pub fn solve(world: &World, threads: usize) -> Box<dyn Heap> {
    solve_so(world, threads, Way { part_bytes: WHOLE, wide: false })
}

/// Returns the heap of a world before marking.
pub fn unmarked(world: &World) -> Box<dyn Heap> {
    built(world, 1, Way { part_bytes: WHOLE, wide: false })
}

fn built(world: &World, threads: usize, way: Way) -> Box<dyn Heap> {
    let image = world.image();
    let (runs, dead) = (world.runs.clone(), &world.dead[..]);
    let request = Request { image: &image, runs, dead, watch: &[], maps: &[], threads };
    blocks::build_so(world.word, request, way, &Control::default()).expect("built")
}

pub fn solve_so(world: &World, threads: usize, way: Way) -> Box<dyn Heap> {
    let (image, control) = (world.image(), Control::default());
    let mut heap = built(world, threads, way);
    let mut roots = world.roots.clone();
    for report in &heap.found().reports {
        roots.extend(report.gaps.iter().chain(&report.lost));
    }
    let kinds = Kinds { unaligned: world.unaligned, tagged: world.tagged, dead: world.dead.clone() };
    let odd = (world.unaligned || world.tagged).then_some(kinds);
    let roots = Roots { ranges: &roots, values: &world.values, odd, ..Roots::default() };
    heap.mark(&image, roots, &control).expect("marked");
    heap
}

fn check(world: &World, dice: &mut Dice, label: &str) {
    let plain = Plain::new(world);
    let heap = solve(world, 1);
    let said = rows(&*heap, 7);
    let ways = [(2, WHOLE, false), (4, WHOLE, true), (64, 1024, dice.one_in(2)), (64, 8192, false)];
    for (threads, part_bytes, wide) in ways {
        let other = rows(&*solve_so(world, threads, Way { part_bytes, wide }), 1000);
        assert_eq!(said, other, "{label}: {threads} threads say something else, with parts of {part_bytes}, {wide}");
    }
    let mut expected: Vec<(u64, u64, bool)> = world.blocks.iter().map(|b| (b.address, b.usable, b.free)).collect();
    expected.sort_unstable();
    let found: Vec<_> = said.iter().map(|r| (r.0, r.1, r.2 == State::Free)).collect();
    assert_eq!(found, expected, "{label}: blocks");
    let reached: BTreeSet<u64> = plain.reached.iter().map(|&i| plain.block(i).address).collect();
    let live: BTreeSet<u64> = said.iter().filter(|r| r.2 == State::Live).map(|r| r.0).collect();
    assert_eq!(live, reached, "{label}: reached");
    check_leaks(&plain, &*heap, &said, label);
    // Half of the heaps are asked with wide numbers.
    let asked = dice.one_in(2).then(|| solve_so(world, 1, Way { part_bytes: WHOLE, wide: true }));
    check_questions(world, &plain, &**asked.as_ref().unwrap_or(&heap), dice, label);
    let gaps: Vec<_> = heap.found().reports.iter().flat_map(|r| r.gaps.clone()).collect();
    assert_eq!(gaps, world.gaps, "{label}: gaps");
    assert!(heap.found().reports.iter().all(|r| r.anomaly_count == 0 && r.lost.is_empty()), "{label}: damage seen");
}

fn check_leaks(plain: &Plain, heap: &dyn Heap, said: &[Row], label: &str) {
    let expected = plain.direct();
    let direct: Vec<&Row> = said.iter().filter(|r| r.2 == State::LeakedDirectly).collect();
    let addresses: Vec<u64> = direct.iter().map(|r| r.0).collect();
    assert_eq!(addresses, expected.keys().copied().collect::<Vec<_>>(), "{label}: direct leaks");
    // Every indirect leak is counted with exactly one direct leak that leads to it.
    let indirect: BTreeMap<u64, u64> =
        said.iter().filter(|r| r.2 == State::LeakedIndirectly).map(|r| (r.0, r.1)).collect();
    assert_eq!(direct.iter().map(|r| r.3).sum::<u64>(), indirect.len() as u64, "{label}: kept blocks");
    assert_eq!(direct.iter().map(|r| r.4).sum::<u64>(), indirect.values().sum::<u64>(), "{label}: kept bytes");
    for row in &direct {
        let leads: BTreeSet<u64> = expected[&row.0].iter().copied().filter(|a| *a != row.0).collect();
        let others = expected.iter().filter(|(a, _)| **a != row.0);
        let shared: BTreeSet<u64> = others.flat_map(|(_, set)| set.iter().copied()).collect();
        let alone = leads.difference(&shared).count() as u64;
        assert!(alone <= row.3 && row.3 <= leads.len() as u64, "{label}: {:#x} keeps {}", row.0, row.3);
    }
    let groups = heap.groups();
    assert_eq!(groups.iter().map(|g| g.count).sum::<u64>(), direct.len() as u64, "{label}: groups");
    for group in groups {
        let of_size = direct.iter().filter(|r| r.1 == group.size);
        assert!(of_size.clone().any(|r| r.0 == group.first), "{label}: the representative");
        assert!(of_size.count() as u64 >= group.count, "{label}: the group's count");
    }
}

fn check_questions(world: &World, plain: &Plain, heap: &dyn Heap, dice: &mut Dice, label: &str) {
    for block in &world.blocks {
        let edges = [block.chunk, block.address - 1, block.address, block.address + block.usable - 1];
        let inside = [block.address + block.usable, block.address + dice.below(block.usable)];
        for address in edges.into_iter().chain(inside) {
            let expected = plain.holder(address).map(|i| plain.block(i).address);
            assert_eq!(heap.find(address).map(|f| f.0.address), expected, "{label}: find {address:#x}");
        }
    }
    for run in &world.runs {
        for address in (run.end.saturating_sub(4 * world.header())..run.end + world.word).step_by(world.word as usize) {
            let expected = plain.holder(address).map(|i| plain.block(i).address);
            assert_eq!(heap.find(address).map(|f| f.0.address), expected, "{label}: find {address:#x} near an end");
        }
    }
    let mut sizes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for block in &world.blocks {
        let entry = sizes.entry(block.usable).or_default();
        *(if block.free { &mut entry.1 } else { &mut entry.0 }) += 1;
    }
    let said: BTreeMap<u64, (u64, u64)> =
        heap.sizes(None).iter().map(|c| (c.size, (c.live + c.leaked, c.free))).collect();
    assert_eq!(said, sizes, "{label}: sizes");
}

#[test]
fn small_heaps() {
    for seed in 0..3000u64 {
        for word in [8, 4] {
            let mut dice = Dice(seed * 2 + word / 8);
            let world = World::new(&mut dice, word, Sizes::Small);
            check(&world, &mut dice, &format!("seed {seed}, words of {word}"));
        }
    }
}

#[test]
fn heaps_of_a_kernel() {
    for seed in 0..600u64 {
        let mut dice = Dice(3_000_000 + seed);
        let world = World::kernel(&mut dice, Sizes::Small);
        check(&world, &mut dice, &format!("seed {seed}, of a kernel"));
    }
}

#[test]
fn pointers_at_any_byte() {
    for (sizes, seeds) in [(Sizes::Small, 600), (Sizes::Large, 20)] {
        for seed in 0..seeds {
            for word in [8, 4] {
                let mut dice = Dice(2_000_000 + seed * 2 + word / 8);
                let world = World::unaligned(&mut dice, word, sizes);
                check(&world, &mut dice, &format!("seed {seed}, words of {word}, unaligned"));
            }
        }
    }
}

#[test]
fn pointers_with_tags() {
    for (sizes, seeds) in [(Sizes::Small, 300), (Sizes::Large, 5)] {
        for seed in 0..seeds {
            let mut dice = Dice(5_000_000 + seed);
            let world = World::tagged(&mut dice, sizes);
            check(&world, &mut dice, &format!("seed {seed}, with tags"));
        }
    }
}

#[test]
fn chunks_across_what_is_read_at_once() {
    for seed in 0..60u64 {
        for word in [8, 4] {
            let mut dice = Dice(1_000_000 + seed * 2 + word / 8);
            let world = World::new(&mut dice, word, Sizes::Large);
            check(&world, &mut dice, &format!("seed {seed}, words of {word}, large"));
        }
    }
}
