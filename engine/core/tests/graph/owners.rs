//! The owners of random heaps, against a model that looks at everything.

use super::leading;
use crate::blocks::made::{Dice, Sizes, World};
use crate::blocks::plain::Plain;
use crate::blocks::reference::solve;
use dmods_engine::blocks::index::{edges_of, Tables};
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::number::Index;
use dmods_engine::blocks::widths::Widths;
use dmods_engine::contents::Census;
use dmods_engine::graph::kinds::Kinds;
use dmods_engine::graph::numbering::Numbering;
use dmods_engine::graph::owned_heap::{find_owners, path, OwnedHeap};
use dmods_engine::graph::owners::Scope;
use dmods_engine::graph::parts::{BODY, VARIABLE};
use dmods_engine::graph::retained::{by_group, in_scope};
use dmods_engine::graph::roots::{Area, Named, Word, DATA, LEAKED};
use dmods_engine::graph::sources::Sources;
use dmods_engine::graph::sums::View;
use dmods_engine::Control;
use std::collections::{BTreeMap, BTreeSet};

const FIRST_WEAK: u32 = 10;

/// Words of one root, as the model sees them: the tier, the root, the block.
struct Held {
    tier: usize,
    root: u32,
    block: usize,
}

/// Gives each root word a root: some of data, some of stacks. Values are registers.
fn name(world: &World, dice: &mut Dice) -> (Vec<Area>, Vec<Word>) {
    let (start, end) = world.roots[0];
    let mut areas = Vec::new();
    for at in (start..end).step_by(world.word as usize) {
        let rank = if dice.one_in(2) { DATA } else { FIRST_WEAK + dice.below(3) as u32 };
        // Root 0 has what no area covers.
        if !dice.one_in(5) {
            areas.push(Area { start: at, end: at + world.word, root: 1 + dice.below(4) as u32, rank });
        }
    }
    let values = world.values.iter().map(|&value| Word { value, root: 7, rank: 99 }).collect();
    (areas, values)
}

/// Returns how many lines there are, how many of them have several roots, and how many blocks words led to.
fn check(seed: u64, word: u64) -> (usize, usize, usize) {
    let mut dice = Dice(410_000 + seed);
    let world = World::new(&mut dice, word, Sizes::Small);
    let (areas, values) = name(&world, &mut dice);
    let (image, control, plain) = (world.image(), Control::default(), Plain::new(&world));
    let heap = solve(&world, 1);
    let mut ranges = world.roots.clone();
    heap.found().reports.iter().for_each(|report| ranges.extend(report.gaps.iter().chain(&report.lost)));
    let named = Named { ranges: &ranges, areas: &areas, values: &values, ..Named::default() };
    let owners = find_owners(&*heap, &image, named, &control).expect("found");
    let heap = OwnedHeap::new(&*heap, &owners);
    let label = format!("seed {seed}, words of {word}");

    // Every block in use is in exactly one line.
    let lines = heap.owner_lines();
    let in_use: Vec<usize> = (0..world.blocks.len()).filter(|&i| !world.blocks[i].free).collect();
    assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), in_use.len() as u64, "{label}");
    let sum: u64 = in_use.iter().map(|&i| world.blocks[i].usable).sum();
    assert_eq!(lines.iter().map(|line| line.bytes).sum::<u64>(), sum, "{label}");
    let mut seen = BTreeSet::new();
    for line in &lines {
        let found = heap.addresses_in(Scope::Set(line.set), 0, 10_000);
        assert_eq!(found.len() as u64, line.count, "{label}");
        let kinds = heap.alike(&image, Scope::Set(line.set), &[], &control).expect("listed");
        assert_eq!(kinds.iter().map(|kind| kind.count * kind.size).sum::<u64>(), line.bytes, "{label}");
        let leaked = line.roots == Some(vec![LEAKED]);
        assert_eq!(leaked, found.iter().all(|&at| is_leaked(&heap, at)), "{label}");
        assert!(found.iter().all(|&at| seen.insert(at)), "{label}: a block twice");
    }
    check_sources(&world, &heap, &label);
    let led_to = leading::check(&world, &heap, &label);
    check_retained(&world, &plain, &heap, &label);
    check_kinds(&world, &heap, &mut dice, &label);
    check_data(&world, &plain, &heap, (&areas, &ranges), &label);
    check_paths(&world, &plain, &heap, named, &image, &label);
    let several = lines.iter().filter(|line| line.roots.as_ref().is_some_and(|roots| roots.len() > 1)).count();
    (lines.len(), several, led_to)
}

/// The blocks in use that have edges, each with those that the tables have for it alone.
fn check_sources(world: &World, heap: &OwnedHeap, label: &str) {
    match heap.widths() {
        Widths::Few8(heap) => check_sources_of(world, heap.tables(), label),
        Widths::Many8(heap) => check_sources_of(world, heap.tables(), label),
        Widths::Few4(heap) => check_sources_of(world, heap.tables(), label),
        Widths::Many4(heap) => check_sources_of(world, heap.tables(), label),
    }
}

fn check_sources_of<I: Index, const P: usize>(world: &World, tables: &Tables<I, P>, label: &str) {
    let (control, numbering) = (Control::default(), Numbering::new(&tables.regions).expect("few blocks"));
    let mut sources = Sources::new(tables, &control);
    let mut found = Vec::new();
    while let Some(source) = sources.read().expect("not cancelled") {
        assert_eq!(source.number, numbering.of(&tables.regions, source.granule), "{label}");
        found.push((tables.block(source.run, source.granule).address, source.edges));
    }
    let in_use = world.blocks.iter().filter(|block| !block.free).map(|block| block.address);
    let edges = |address: u64| edges_of(&tables.regions, tables.find(address).expect("a block").granule);
    let mut wanted: Vec<_> = in_use.map(|at| (at, edges(at))).filter(|(_, edges)| edges.0 < edges.1).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted, "{label}");
}

/// Words of blocks that belong to roots: every block in use still has one owner, and what only such a word leads to is its.
#[test]
fn parts_of_blocks_are_roots() {
    for seed in 0..40 {
        let mut dice = Dice(430_000 + seed);
        let world = World::new(&mut dice, 8, Sizes::Small);
        let (image, control) = (world.image(), Control::default());
        let mut parts = Vec::new();
        for block in world.blocks.iter().filter(|block| !block.free && block.usable >= 32) {
            if dice.below(3) == 0 {
                let root = 100 + parts.len() as u32;
                let rank = if dice.below(2) == 0 { BODY } else { VARIABLE };
                parts.push(Area { start: block.address + 8, end: block.address + 24, root, rank });
            }
        }
        parts.sort_by_key(|part| part.start);
        let heap = solve(&world, 1);
        let mut ranges = world.roots.clone();
        heap.found().reports.iter().for_each(|report| ranges.extend(report.gaps.iter().chain(&report.lost)));
        let named = Named { ranges: &ranges, parts: &parts, ..Named::default() };
        let owners = find_owners(&*heap, &image, named, &control).expect("found");
        let heap = OwnedHeap::new(&*heap, &owners);
        let lines = heap.owner_lines();
        let in_use = world.blocks.iter().filter(|block| !block.free).count() as u64;
        assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), in_use, "seed {seed}");
    }
}

fn is_leaked(heap: &OwnedHeap, address: u64) -> bool {
    heap.find(address).is_some_and(|found| matches!(found.1, State::LeakedDirectly | State::LeakedIndirectly))
}

/// What a block dominates is in its scope, and counted with it.
fn check_retained(world: &World, plain: &Plain, heap: &OwnedHeap, label: &str) {
    for block in &world.blocks {
        let above = heap.owners_above(block.address + block.usable / 2, 1000);
        assert_eq!(above.is_none(), block.free, "{label}: {:#x}", block.address);
        let Some((chain, _)) = above else { continue };
        let below = heap.addresses_in(Scope::Below(block.address), 0, 10_000);
        assert_eq!(below.len() as u32, chain[0].count, "{label}");
        let size = |at: &u64| heap.find(*at).map_or(0, |found| found.0.size);
        assert_eq!(below.iter().map(size).sum::<u64>(), chain[0].bytes, "{label}");
        for outer in &chain[1..] {
            let all = heap.addresses_in(Scope::Below(outer.address), 0, 10_000);
            assert!(below.iter().all(|at| all.contains(at)), "{label}: not inside what is above");
        }
        let parts = heap.largest(Scope::Below(block.address), 10_000);
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>() + block.usable, chain[0].bytes, "{label}");
        // No pointer from a live block outside leads to the inside, unless weaker evidence reached it.
        let _ = plain;
    }
}

/// What each group of kinds keeps alive, and the kinds in a scope, by looking at every block's chain of dominators.
fn check_kinds(world: &World, heap: &OwnedHeap, dice: &mut Dice, label: &str) {
    let control = Control::default();
    let census = Census::take(&**heap, &world.image(), &[], false, 1, &control).expect("taken");
    let kinds = Kinds::new(&[&census]);
    let view = View::new(&**heap, &census, &kinds, 0);
    let groups: Vec<u32> = kinds.all.iter().map(|_| dice.below(3) as u32).collect();
    let blocks: BTreeMap<u64, u64> = world.blocks.iter().filter(|b| !b.free).map(|b| (b.address, b.usable)).collect();
    let addresses: Vec<u64> = blocks.keys().copied().collect();
    let kind_of: BTreeMap<u64, u32> = addresses
        .iter()
        .zip(view.kinds_at(&addresses, &control).expect("found"))
        .map(|(&at, kind)| (at, kind.expect("in use")))
        .collect();
    let mut expected = vec![(0u64, 0u64); 3];
    let mut live: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for (&address, &size) in &blocks {
        let Some((chain, _)) = heap.owners_above(address, 1000) else { continue };
        let above: BTreeSet<u32> = chain.iter().map(|kept| groups[kind_of[&kept.address] as usize]).collect();
        for group in above {
            let sum = &mut expected[group as usize];
            *(if is_leaked(heap, address) { &mut sum.1 } else { &mut sum.0 }) += size;
        }
        if !is_leaked(heap, address) {
            *live.entry((kind_of[&address], size)).or_default() += 1;
        }
    }
    assert_eq!(by_group(&view, heap.owners, &groups, 3, &control).expect("summed"), expected, "{label}: by group");
    let held = in_scope(&view, heap.owners, Scope::Live, &control).expect("listed");
    let found: BTreeMap<(u32, u64), u64> = held.iter().map(|h| ((h.kind, h.size), h.count)).collect();
    assert_eq!(found, live, "{label}: in scope");
}

/// Blocks that data reaches: taking one away, by the slow model, takes away what the engine says it keeps.
fn check_data(world: &World, plain: &Plain, heap: &OwnedHeap, (areas, ranges): (&[Area], &[(u64, u64)]), label: &str) {
    let mut held: Vec<Held> = Vec::new();
    for &(start, end) in ranges {
        let mut at = start.next_multiple_of(world.word);
        while at + world.word <= end {
            let area = areas.iter().find(|area| area.start <= at && at < area.end);
            let (root, rank) = area.map_or((0, DATA), |area| (area.root, area.rank));
            let dead = world.dead.iter().any(|d| d.0 <= at && at < d.1);
            if let Some(block) = world.get(at).and_then(|value| plain.target(value)).filter(|_| !dead) {
                let value = world.get(at).unwrap_or(0);
                let start = heap_start(world, value, block);
                let tier = if rank > DATA { 2 } else { usize::from(!start) };
                held.push(Held { tier, root, block });
            }
            at += world.word;
        }
    }
    let mut taken = BTreeSet::new();
    for tier in 0..2 {
        let words = |skip: Option<u32>| -> Vec<usize> {
            held.iter().filter(|h| h.tier == tier && Some(h.root) != skip).map(|h| h.block).collect()
        };
        let reached = plain.closure(&words(None), |block| taken.contains(&block));
        let mut sets: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for root in held.iter().filter(|h| h.tier == tier).map(|h| h.root).collect::<BTreeSet<u32>>() {
            let own: Vec<usize> = held.iter().filter(|h| h.tier == tier && h.root == root).map(|h| h.block).collect();
            for block in plain.closure(&own, |block| taken.contains(&block)) {
                sets.entry(block).or_default().insert(root);
            }
        }
        for &gone in &reached {
            let left = plain.closure(&words(None), |block| block == gone || taken.contains(&block));
            let dies: BTreeSet<u64> = reached.difference(&left).map(|&i| plain.block(i).address).collect();
            let said: BTreeSet<u64> =
                heap.addresses_in(Scope::Below(plain.block(gone).address), 0, 10_000).into_iter().collect();
            assert_eq!(said, dies, "{label}: without {:#x}", plain.block(gone).address);
            let (_, set) = heap.owners_above(plain.block(gone).address, 1).expect("held");
            let line = heap.owner_lines().into_iter().find(|line| line.set == set).expect("a line");
            assert_eq!(line.roots.map(BTreeSet::from_iter), sets.remove(&gone), "{label}: the roots");
        }
        taken.extend(reached);
    }
}

/// Returns whether the value counts as a pointer to the first byte. In a block with a run of its own, every pointer does; where words have 4
/// bytes, the first 8 bytes after a header do.
fn heap_start(world: &World, value: u64, block: usize) -> bool {
    let made = &world.blocks[block];
    let first = if world.word == 4 { 3 * world.word } else { world.word };
    made.mmapped || value < made.address + first
}

fn check_paths(
    world: &World,
    plain: &Plain,
    heap: &OwnedHeap,
    named: Named,
    image: &dmods_engine::image::Image,
    label: &str,
) {
    let control = Control::default();
    for (index, block) in world.blocks.iter().enumerate() {
        let found = path(&**heap, Some(heap.owners), image, named, None, block.address, &control).expect("searched");
        assert_eq!(found.is_none(), block.free, "{label}: a path to {:#x}", block.address);
        let Some((_, path)) = found else { continue };
        assert_eq!(path.last(), Some(&block.address), "{label}");
        let indexes: Vec<usize> = path.iter().filter_map(|&at| plain.holder(at)).collect();
        assert_eq!(indexes.len(), path.len(), "{label}");
        assert!(indexes.windows(2).all(|pair| plain.links[pair[0]].contains(&pair[1])), "{label}: {index}");
        assert_eq!(indexes.iter().collect::<BTreeSet<_>>().len(), path.len(), "{label}: a circle");
    }
}

#[test]
fn random_heaps() {
    let (mut lines, mut several, mut led_to) = (0, 0, 0);
    for seed in 0..500u64 {
        let (all, shared, to) = check(seed, if seed % 2 == 0 { 8 } else { 4 });
        lines += all;
        several += shared;
        led_to += to;
    }
    assert!(lines > 1000 && several > 20 && led_to > 1000, "{lines} {several} {led_to}");
}
