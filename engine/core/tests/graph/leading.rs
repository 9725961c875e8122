//! What the words of blocks lead to, in random heaps, against a model that looks at everything.

use crate::blocks::made::{Dice, World};
use dmods_engine::graph::leading::Held;
use dmods_engine::graph::owned_heap::OwnedHeap;
use dmods_engine::graph::owners::Scope;
use dmods_engine::Control;
use std::collections::BTreeSet;

const MANY: u64 = 1 << 20;

/// Compares the answers for a heap whose owners are known. Returns how many blocks words led to.
pub fn check(world: &World, heap: &OwnedHeap, label: &str) -> usize {
    let image = world.image();
    let in_use: Vec<u64> = {
        let mut found: Vec<u64> = world.blocks.iter().filter(|block| !block.free).map(|block| block.address).collect();
        found.sort_unstable();
        found
    };
    let words = |address: u64| -> Vec<(u64, u64)> {
        let size = heap.find(address).expect("a block").0.size;
        let at = |word: u64| Some((word * world.word, world.get(address + word * world.word)?));
        (0..size / world.word).map_while(at).collect()
    };

    for &holder in &in_use {
        let below = |value: u64| {
            let (above, _set) = heap.owners_above(value, 2)?;
            (above.len() == 2 && above[1].address == holder).then(|| above[0])
        };
        let wanted: Vec<_> = words(holder).into_iter().filter_map(|(at, value)| Some((at, below(value)?))).collect();
        assert_eq!(heap.held_by_words(&image, holder, MANY), wanted, "{label}");
        assert_eq!(heap.held_by_words(&image, holder, 1), at_start(wanted), "{label}");
    }

    let sizes: Vec<u64> = in_use.iter().step_by(3).filter_map(|&at| Some(heap.find(at)?.0.size)).collect();
    let target = |value: u64| heap.find(value).map(|found| (found.0.address, found.0.size));
    let below =
        |at: u64| -> BTreeSet<u64> { heap.addresses_in(Scope::Below(at), 0, MANY as usize).into_iter().collect() };
    let mut count = 0;
    for &by in in_use.iter().filter(|&&at| heap.owners_above(at, 1).is_some()) {
        let all = below(by);
        let children: Vec<u64> = heap.largest(Scope::Below(by), 2).iter().map(|kept| kept.address).collect();
        for without in [&[][..], &children[..]] {
            let left_out: BTreeSet<u64> = without.iter().flat_map(|&at| below(at)).collect();
            let wanted: BTreeSet<(u64, u64)> = all
                .difference(&left_out)
                .flat_map(|&at| words(at))
                .filter_map(|(_at, value)| target(value))
                .filter(|(address, size)| sizes.contains(size) && !all.contains(address))
                .collect();
            let held = Held { by, without, step: 1, words: MANY };
            let found = heap.led_to(&image, held, &sizes, &Control::default()).expect("not cancelled");
            assert_eq!(found, wanted.iter().copied().collect::<Vec<_>>(), "{label}: below {by:#x}");
            let held = Held { step: 2, ..held };
            let some = heap.led_to(&image, held, &sizes, &Control::default()).expect("not cancelled");
            assert!(some.iter().all(|each| wanted.contains(each)), "{label}");
            count += found.len();
        }
    }
    check_spread(heap, label);
    count
}

fn at_start<T>(words: Vec<(u64, T)>) -> Vec<(u64, T)> {
    words.into_iter().filter(|word| word.0 == 0).collect()
}

fn check_spread(heap: &OwnedHeap, label: &str) {
    for line in heap.owner_lines() {
        let scope = Scope::Set(line.set);
        let all = heap.addresses_in(scope, 0, MANY as usize);
        let size_of = |at: u64| heap.find(at).expect("a block").0.size;
        for &first in &all {
            let wanted: Vec<u64> =
                all.iter().copied().filter(|&at| at >= first && size_of(at) == size_of(first)).collect();
            let some = heap.spread(scope, (first, size_of(first)), 3);
            assert_eq!(some.len(), wanted.len().min(3), "{label}");
            assert_eq!(some.first(), Some(&first), "{label}");
            assert!(some.windows(2).all(|two| two[0] < two[1]) && some.iter().all(|at| wanted.contains(at)), "{label}");
            assert_eq!(heap.spread(scope, (first, size_of(first)), MANY as usize), wanted, "{label}");
        }
    }
}

/// Many blocks of a size: those that are taken come from all over them.
#[test]
fn a_few_blocks_come_from_all_over() {
    let places = dmods_engine::graph::leading::spread(1000, 8);
    assert_eq!(places.len(), 8);
    assert!(places.iter().enumerate().all(|(nth, &place)| place / 125 == nth));
    let steps: BTreeSet<usize> = places.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(steps.contains(&128), "equal steps of an even number see one kind of two that follow each other by turns");
    let mut dice = Dice(1);
    assert!((0..100).map(|_| dice.below(5000) as usize + 9).all(|count| {
        let places = dmods_engine::graph::leading::spread(count, 8);
        places.len() == 8 && places.windows(2).all(|two| two[0] < two[1]) && places[7] < count
    }));
}
