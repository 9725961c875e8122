//! Which blocks are reachable without one block: the engine's answer against the model's. And a heap that is marked
//! twice.

use super::made::{Dice, Sizes, World};
use super::plain::Plain;
use super::reference::{solve, unmarked};
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::State;
use dmods_engine::Control;

const ALL: [State; 4] = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly];

#[test]
fn paths_that_avoid_a_block() {
    let (mut alive, mut leaked, mut cut) = (0, 0, 0);
    for seed in 0..600u64 {
        let word = if seed % 2 == 0 { 8 } else { 4 };
        let mut dice = Dice(77_000 + seed);
        let world = World::new(&mut dice, word, Sizes::Small);
        let (image, control) = (world.image(), Control::default());
        let plain = Plain::new(&world);
        let direct: Vec<usize> = plain.direct().keys().filter_map(|&address| plain.holder(address)).collect();
        let mut heap = solve(&world, 1);
        let mut roots = world.roots.clone();
        for report in &heap.found().reports {
            roots.extend(report.gaps.iter().chain(&report.lost));
        }
        let states = |heap: &dyn dmods_engine::blocks::model::Heap| heap.blocks(&ALL, 0, 100_000);
        let before = states(&*heap);
        let asked: Vec<u64> = world.blocks.iter().map(|b| b.address + b.usable / 2).collect();
        for barrier in 0..world.blocks.len() {
            if world.blocks[barrier].free {
                continue;
            }
            let at = world.blocks[barrier].address;
            let said = heap.reached_without(&image, &roots, &world.values, at, &asked, &control).expect("marked");
            let expected = plain.reached_without(barrier, &direct);
            for (index, &reached) in said.iter().enumerate() {
                let truth = expected.contains(&index) && !world.blocks[index].free;
                assert_eq!(reached, truth, "seed {seed}: block {index} without {barrier}");
            }
            // Marking ends early where all blocks that are asked for are reached: one, or all that can be.
            let can: Vec<u64> = said.iter().zip(&asked).filter(|(&reached, _)| reached).map(|(_, &at)| at).collect();
            for few in [&can[..], can.get(..1).unwrap_or(&[]), can.last().map_or(&[], std::slice::from_ref)] {
                let again = heap.reached_without(&image, &roots, &world.values, at, few, &control).expect("marked");
                assert_eq!(again, vec![true; few.len()], "seed {seed}: without {barrier}");
            }
            alive += usize::from(plain.reached.contains(&barrier));
            leaked += usize::from(!plain.reached.contains(&barrier));
            cut += usize::from(plain.reached.contains(&barrier) && expected.len() + 1 < plain.reached.len());
        }
        assert_eq!(states(&*heap), before, "seed {seed}: the states have changed");
    }
    assert!(alive > 1000 && leaked > 1000 && cut > 100, "{alive} {leaked} {cut}");
}

/// A marking that nobody took the answer of leaves no trace in the next.
#[test]
fn marking_begins_anew() {
    let mut reached = 0;
    for seed in 0..600u64 {
        let word = if seed % 2 == 0 { 8 } else { 4 };
        let world = World::new(&mut Dice(81_000 + seed), word, Sizes::Small);
        let (image, control) = (world.image(), Control::default());
        let mut heap = unmarked(&world);
        let ends_last = seed % 3 == 0;
        let roots = Roots { ranges: &world.roots, values: &world.values, ends_last, ..Roots::default() };
        let states = |heap: &dyn dmods_engine::blocks::model::Heap| heap.blocks(&ALL, 0, 100_000);
        let first = heap.mark(&image, roots.clone(), &control).expect("marked");
        let said = states(&*heap);
        let again = heap.mark(&image, roots, &control).expect("marked");
        assert_eq!(again.reached, first.reached, "seed {seed}");
        assert_eq!(said, states(&*heap), "seed {seed}");
        reached += first.reached;
    }
    assert!(reached > 1000, "{reached}");
}
