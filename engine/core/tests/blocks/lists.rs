//! Free lists, sound and broken.

use super::made::{Dice, Sizes, World};
use dmods_engine::allocators::glibc::lists::{self, List, Problem};
use dmods_engine::blocks;
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::pass::Request;
use dmods_engine::Control;
use std::collections::BTreeSet;

/// How the last link is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Whole,
    Cycle,
    Wild,
    Unaligned,
    Free,
}

const ENDS: [End; 5] = [End::Whole, End::Cycle, End::Wild, End::Unaligned, End::Free];

#[test]
fn lists_end_where_they_break() {
    for seed in 0..3000u64 {
        let word = if seed % 2 == 0 { 8 } else { 4 };
        let mut dice = Dice(5000 + seed);
        let mut world = World::new(&mut dice, word, Sizes::Small);
        world.holes.clear();
        let (to_user, protected) = (dice.one_in(2), dice.one_in(2));
        let mut free: Vec<u64> = world.blocks.iter().filter(|b| !b.free && !b.mmapped).map(|b| b.address).collect();
        free.truncate(1 + dice.below(12) as usize);
        for i in (1..free.len()).rev() {
            free.swap(i, dice.below(i as u64 + 1) as usize);
        }
        let binned: Vec<u64> = world.blocks.iter().filter(|b| b.free).map(|b| b.address).collect();
        let mut end = *dice.choose(&ENDS);
        if (end == End::Free && binned.is_empty()) || free.is_empty() {
            end = End::Whole;
        }
        let link = |user: u64| if to_user { user } else { user - 2 * word };
        let last = match end {
            End::Whole => 0,
            End::Cycle => link(*dice.choose(&free)),
            End::Wild => 0x0100_0000_1230 & if word == 4 { 0xffff_ffff } else { u64::MAX },
            End::Unaligned => link(free[0]) + 1 + dice.below(15),
            End::Free => link(*dice.choose(&binned)),
        };
        for (i, &user) in free.iter().enumerate() {
            let next = free.get(i + 1).map_or(last, |&n| link(n));
            world.put(user, if protected { next ^ (user >> 12) } else { next });
        }
        let image = world.image();
        let control = Control::default();
        let request = Request { image: &image, runs: world.runs.clone(), dead: &[], watch: &[], maps: &[], threads: 1 };
        let mut heap = blocks::build(word, request, &control).expect("built");
        let head = free.first().map_or(last, |&f| link(f));
        let list = List { head, to_user, protected, least: 0, most: u64::MAX };
        let label = format!("seed {seed}: {end:?} of {}", free.len());
        // Without `set`, a cycle is noticed later.
        let looked = lists::follow(&mut *heap, &image, list, false, true);
        assert!(looked.blocks.len() <= 4 * free.len() + 4, "{label}: went round and round");
        assert_eq!(looked.blocks[..free.len()], free[..], "{label}");
        let followed = lists::follow(&mut *heap, &image, list, true, true);
        assert_eq!(followed.blocks, free, "{label}");
        let problem = match end {
            End::Whole => None,
            End::Cycle | End::Free => Some(Problem::AlreadyFree),
            End::Wild | End::Unaligned => Some(Problem::NotAChunk),
        };
        assert_eq!(followed.problem.map(|p| p.0), problem, "{label}");
        let now: BTreeSet<u64> = heap.blocks(&[State::Free], 0, usize::MAX).iter().map(|b| b.0.address).collect();
        assert_eq!(now, free.iter().chain(&binned).copied().collect(), "{label}: what is free");
    }
}
