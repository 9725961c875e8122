//! Damaged heaps: the engine never panics, never takes long, and reads the parts far from the damage as before.

use super::made::{Dice, Made, Sizes, World};
use super::reference::{solve, solve_so};
use dmods_engine::blocks::model::{Heap, State};
use dmods_engine::blocks::Way;

fn extents(heap: &dyn Heap) -> Vec<(u64, u64, bool)> {
    let states = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly];
    let found = heap.blocks(&states, 0, usize::MAX);
    found.iter().map(|(b, state, ..)| (b.address, b.size, *state == State::Free)).collect()
}

#[test]
fn one_bad_header_spoils_only_its_neighbourhood() {
    for seed in 0..4000u64 {
        let word = if seed % 2 == 0 { 8 } else { 4 };
        let mut dice = Dice(77 + seed);
        let mut world = World::new(&mut dice, word, Sizes::Small);
        world.holes.clear();
        let chunks: Vec<Made> = world.blocks.iter().filter(|b| !b.mmapped).cloned().collect();
        let victim = dice.below(chunks.len() as u64) as usize;
        let Made { chunk, run, .. } = chunks[victim];
        let (field, old) = (chunk + word, world.get(chunk + word).expect("a header"));
        let new = match dice.below(4) {
            0 => old ^ 1 << dice.below(8 * word),
            1 => *dice.choose(&[0, 1, 7, 16, 17, 0x21, 0x4141_4141, 0x20_0000, old + 16, old + 160, old - 16]),
            2 => old & !0xff,
            _ => dice.next() >> dice.below(56),
        };
        let new = if word == 4 { new & 0xffff_ffff } else { new };
        world.put(field, new);
        let heap = solve(&world, 1);
        same_in_parts(&*heap, &world);
        let said = extents(&*heap);
        let label = format!("seed {seed}: size of {chunk:#x} from {old:#x} to {new:#x}");
        // A possible size may cover other chunks, if it leads to a header.
        let next = chunks.get(victim + 1).filter(|n| n.run == run).map_or(world.runs[run].end, |n| n.chunk);
        let covers = chunk.saturating_add(new & !7).min(world.runs[run].end + 1);
        let reach =
            if new & !7 >= world.min_chunk() && covers <= world.runs[run].end { next.max(covers) } else { next };
        let mut before = if victim > 0 && chunks[victim - 1].run == run { chunks[victim - 1].chunk } else { chunk };
        // After foreign memory, only 16 good headers in a row prove that chunks begin again.
        if let Some(gap) = world.gaps.iter().find(|g| g.1 <= chunk && run == 0) {
            if chunks.iter().filter(|b| b.run == 0 && gap.1 <= b.chunk && b.chunk < chunk).count() < 16 {
                before = gap.1;
            }
        }
        for block in &chunks {
            let far = block.run != run || block.chunk < before || block.chunk > reach;
            let wanted = (block.address, block.usable, block.free);
            assert!(
                !far || said.contains(&wanted),
                "{label}: {wanted:x?} is gone; {:x?}",
                heap.found().reports[run].anomalies
            );
        }
    }
}

#[test]
fn random_bytes_anywhere() {
    for seed in 0..1500u64 {
        let word = if seed % 2 == 0 { 8 } else { 4 };
        let mut dice = Dice(99_000 + seed);
        let sizes = if seed % 50 == 0 { Sizes::Large } else { Sizes::Small };
        let mut world = World::new(&mut dice, word, sizes);
        for _ in 0..1 + dice.below(200) {
            let index = dice.below(world.memory.len() as u64) as usize;
            let bytes = &mut world.memory[index].bytes;
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.next() as u8;
        }
        for _ in 0..dice.below(5) {
            let start = dice.choose(&world.blocks).chunk + dice.below(64);
            world.holes.push((start, start + 1 + dice.below(3000)));
        }
        let heap = solve(&world, 1);
        same_in_parts(&*heap, &world);
        consistent(&*heap, &world);
    }
}

/// Several threads that share a run find the same blocks and the same damage as one thread.
fn same_in_parts(heap: &dyn Heap, world: &World) {
    let other = solve_so(world, 64, Way { part_bytes: 1024, wide: true });
    assert_eq!(extents(heap), extents(&*other));
    for (one, other) in heap.found().reports.iter().zip(&other.found().reports) {
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }
}

/// For any bytes: blocks do not overlap, lie in their runs, and are found where they are listed.
fn consistent(heap: &dyn Heap, world: &World) {
    let said = extents(heap);
    for pair in said.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0 - world.word, "blocks overlap: {pair:x?}");
    }
    for &(address, size, _) in &said {
        assert!(world.runs.iter().any(|r| r.start < address && address + size <= r.end + world.word));
        let found = heap.find(address).map(|f| (f.0.address, f.0.size));
        assert!(size == 0 || found == Some((address, size)), "{address:#x} of {size} is not found: {found:x?}");
    }
}
