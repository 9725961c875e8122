//! The signatures of blocks, and growth between two heaps, compared with a slow and obvious model.

use super::made::{Dice, Sizes, World};
use super::plain::Plain;
use super::reference::solve;
use dmods_engine::blocks::model::{Heap, State};
use dmods_engine::contents::{kind_of, of, size_class, word_kind, Census, Entry, Form, Sum, WORDS};
use dmods_engine::graph::by_stack::{labels, Known};
use dmods_engine::graph::growth::{compare, Amount, By, Core};
use dmods_engine::graph::kinds::Kinds;
use dmods_engine::graph::named::{named, Name};
use dmods_engine::graph::sums::View;
use dmods_engine::records::log::Log;
use dmods_engine::records::stacks::Stacks;
use dmods_engine::records::{Record, Records};
use dmods_engine::Control;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

fn census(world: &World, heap: &dyn Heap, direct: bool, threads: usize) -> Census {
    Census::take(heap, &world.image(), &[], direct, threads, &Control::default()).expect("not stopped")
}

/// The blocks in use as (address, usable bytes), by address.
fn in_use(world: &World) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = world.blocks.iter().filter(|b| !b.free).map(|b| (b.address, b.usable)).collect();
    all.sort_unstable();
    all
}

/// The leaked blocks as (address, usable bytes).
fn leaked(world: &World) -> BTreeSet<(u64, u64)> {
    let block = |i: usize| (world.blocks[i].address, world.blocks[i].usable);
    Plain::new(world).leaked().into_iter().map(block).collect()
}

fn check_words(world: &World, plain: &Plain, found: &Census, label: &str) {
    for (&(address, usable), &entry) in in_use(world).iter().zip(&found.of_block) {
        let signature = &found.entries[entry as usize].signature;
        assert_eq!(signature.class, size_class(usable).0, "{label}: class");
        for (i, &word) in signature.words.iter().enumerate().take((usable / world.word) as usize) {
            let at = address + i as u64 * world.word;
            let target = world.get(at).and_then(|value| plain.holder(value));
            let expected = target.map(|i| plain.block(i)).map(|block| match block.free {
                true => of(word_kind::LEFT_OVER, 0),
                false => of(word_kind::HEAP, size_class(block.usable).0),
            });
            let dead = world.dead.iter().any(|d| d.0 < at + world.word && at < d.1);
            match expected {
                Some(expected) if !dead => assert_eq!(word, expected, "{label}: {at:#x}"),
                Some(_) => {}
                None => assert_ne!(kind_of(word), word_kind::HEAP, "{label}: {at:#x}"),
            }
        }
    }
}

#[test]
fn the_census_says_what_the_words_are() {
    for round in 0..60 {
        let mut dice = Dice(round);
        let word = if round % 3 == 2 { 4 } else { 8 };
        let world = World::new(&mut dice, word, if round % 2 == 0 { Sizes::Small } else { Sizes::Large });
        let (plain, heap) = (Plain::new(&world), solve(&world, 1));
        let label = format!("round {round}");
        let found = census(&world, &*heap, false, 1);
        let blocks = in_use(&world);
        assert_eq!(found.of_block.len(), blocks.len(), "{label}: blocks");
        assert_eq!(found.entries.iter().map(|entry| entry.count).sum::<u64>(), blocks.len() as u64, "{label}: counts");
        if found.missing == 0 && world.holes.is_empty() {
            check_words(&world, &plain, &found, &label);
        }
        let of_each = |census: &Census| -> Vec<[u64; WORDS]> {
            census.of_block.iter().map(|&entry| census.entries[entry as usize].signature.words).collect()
        };
        for threads in [2, 4] {
            assert_eq!(of_each(&census(&world, &*heap, false, threads)), of_each(&found), "{label}: {threads} threads");
        }
        check_groups(&world, &*heap, &found, &label);
        check_examples(&blocks, &*heap, &found, &label);
        let each = |entry: &Entry| {
            let signature = entry.signature;
            (signature.class, signature.form, signature.words)
        };
        let signatures: HashSet<_> = found.entries.iter().map(each).collect();
        assert_eq!(signatures.len(), found.entries.len(), "{label}: each signature once");
    }
}

/// The first blocks of each kind are those that all blocks show.
fn check_examples(blocks: &[(u64, u64)], heap: &dyn Heap, found: &Census, label: &str) {
    const STATES: [State; 4] = [State::Live, State::LeakedDirectly, State::LeakedIndirectly, State::Own];
    let kinds = Kinds::new(&[found]);
    let wanted: Vec<u32> = (0..kinds.all.len() as u32).rev().step_by(2).chain([u32::MAX]).collect();
    let view = View::new(heap, found, &kinds, 0);
    for most in [0, 1, 3] {
        let examples = view.examples(&wanted, &STATES, most, &Control::default()).expect("not stopped");
        for (&kind, examples) in wanted.iter().zip(examples) {
            let of_kind = blocks.iter().enumerate().filter(|&(i, _)| view.kind(i) == Some(kind));
            let expected: Vec<u64> = of_kind.map(|(_, block)| block.0).take(most).collect();
            assert_eq!(examples, expected, "{label}: {most} of kind {kind}");
        }
    }
}

/// A census with names counts each block once, in the same states.
#[test]
fn names_move_blocks_and_lose_none() {
    for round in 0..40 {
        let mut dice = Dice(7000 + round);
        let world = World::new(&mut dice, 8, Sizes::Small);
        let heap = solve(&world, 1);
        let (plain, control) = (census(&world, &*heap, false, 1), Control::default());
        let blocks = in_use(&world);
        let mut names: Vec<Name> = Vec::new();
        for &(address, _) in &blocks {
            if dice.one_in(3) {
                names.push((address, dice.below(3) as u32, dice.one_in(2)));
            }
        }
        let made = named(&plain, &*heap, &names, &control).expect("not stopped");
        let (before, after) = (Kinds::new(&[&plain]), Kinds::new(&[&made]));
        let sums = |found: &Census, kinds: &Kinds| {
            let mut all = Sum::default();
            View::new(&*heap, found, kinds, 0).sums().iter().for_each(|sum| all.add(sum));
            all
        };
        assert_eq!(sums(&plain, &before), sums(&made, &after), "round {round}");
        assert_eq!(made.entries.iter().map(|entry| entry.count).sum::<u64>(), blocks.len() as u64);
        let by_address: HashMap<u64, u32> = names.into_iter().map(|name| (name.0, name.1)).collect();
        for (&(address, usable), &entry) in blocks.iter().zip(&made.of_block) {
            let signature = &made.entries[entry as usize].signature;
            assert_eq!(signature.class, size_class(usable).0);
            match by_address.get(&address) {
                Some(&name) => assert_eq!((signature.form, signature.words[0]), (Form::Named, u64::from(name))),
                None => assert_ne!(signature.form, Form::Named),
            }
        }
    }
}

/// A caller gives its type to blocks of the same size and shape, if it makes no other.
#[test]
fn a_caller_that_makes_one_type_says_what_its_blocks_are() {
    let mut found = 0;
    for round in 0..60 {
        let mut dice = Dice(9000 + round);
        let world = World::new(&mut dice, 8, Sizes::Small);
        let heap = solve(&world, 1);
        let (plain, control) = (census(&world, &*heap, false, 1), Control::default());
        let blocks = in_use(&world);
        let mut names: Vec<Name> = Vec::new();
        let mut records = Vec::new();
        let (stacks, keys) = Stacks::of_lists([&[1u64][..], &[2, 3], &[2, 4], &[5]]);
        let callers: HashMap<u32, u32> = keys[..3].iter().copied().zip([7, 8, 8]).collect();
        for &(address, size) in &blocks {
            if dice.one_in(4) {
                names.push((address, dice.below(12) as u32 / 5, false)); // 0 and 1 often, 2 seldom
            }
            let stack = keys[dice.below(4) as usize];
            records.push(Record { address, size, stack, ..Record::default() });
        }
        let of_block: HashMap<u64, u32> = records.iter().map(|record| (record.address, record.stack)).collect();
        let records = Records::new(records, stacks, Log::default(), 0);
        let made = named(&plain, &*heap, &names, &control).expect("not stopped");
        let (shapes, kinds) = (Kinds::new(&[&plain]), Kinds::new(&[&made]));
        let (of_shapes, view) = (View::new(&*heap, &plain, &shapes, 0), View::new(&*heap, &made, &kinds, 0));
        let known = |kind: &dmods_engine::graph::kinds::Kind| match kind.entry.signature {
            signature if signature.form != Form::Named => Known::Nothing,
            signature if signature.words[0] == 2 => Known::Itself,
            signature => Known::Type(signature.words[0] as u32),
        };
        let known: Vec<Known> = kinds.all.iter().map(known).collect();
        let said = labels(&view, &of_shapes, &[(&records, callers.clone())], &known, &control).expect("not stopped");
        let said: BTreeMap<u64, u32> = said.rows.iter().map(|row| (row.address, row.label)).collect();

        let names: HashMap<u64, u32> = names.into_iter().map(|name| (name.0, name.1)).collect();
        let addresses: Vec<u64> = blocks.iter().map(|block| block.0).collect();
        let shape: HashMap<u64, Option<u32>> =
            addresses.iter().copied().zip(of_shapes.kinds_at(&addresses, &control).expect("found")).collect();
        let key = |&(address, size): &(u64, u64)| Some((callers.get(&of_block[&address])?, size));
        let mut expected = BTreeMap::new();
        for block in blocks.iter().filter(|block| !names.contains_key(&block.0)) {
            let Some(own) = key(block) else { continue };
            let sisters: Vec<u64> = blocks.iter().filter(|b| key(b) == Some(own)).map(|b| b.0).collect();
            let typed: Vec<u64> = sisters.into_iter().filter(|at| names.contains_key(at)).collect();
            let types: BTreeSet<u32> = typed.iter().map(|at| names[at]).collect();
            let alike = typed.iter().any(|at| shape[at] == shape[&block.0]);
            if let (Some(&name), 1, true) = (types.first(), types.len(), alike) {
                if name != 2 {
                    expected.insert(block.0, name);
                }
            }
        }
        assert_eq!(said, expected, "round {round}");
        found += said.len();
    }
    assert!(found > 20, "{found}");
}

/// The groups of direct leaks have the same sums, whether all blocks or only direct leaks were looked at.
fn check_groups(world: &World, heap: &dyn Heap, all: &Census, label: &str) {
    let direct = census(world, heap, true, 2);
    let control = Control::default();
    let expected: BTreeMap<(u64, bool), (u64, u64)> =
        heap.groups().iter().map(|g| ((g.size, g.single), (g.count, g.kept_bytes))).collect();
    for found in [all, &direct] {
        let kinds = Kinds::new(&[found]);
        let mut sums: BTreeMap<(u64, bool), (u64, u64)> = BTreeMap::new();
        for (group, _kind) in View::new(heap, found, &kinds, 0).groups(&control).expect("not stopped") {
            let sum = sums.entry((group.size, group.single)).or_default();
            *sum = (sum.0 + group.count, sum.1 + group.kept_bytes);
        }
        assert_eq!(sums, expected, "{label}: groups");
    }
}

#[test]
fn growth_is_what_two_lists_of_blocks_say() {
    for round in 0..40 {
        let mut dice = Dice(1000 + round);
        let worlds = [(); 3].map(|()| World::new(&mut dice, 8, Sizes::Small));
        let heaps: Vec<_> = worlds.iter().map(|world| solve(world, 1)).collect();
        let core = |heap| Core {
            heap,
            kinds: None,
            records: Vec::new(),
            clocks: Vec::new(),
            threads: Vec::new(),
            arenas: HashMap::new(),
            modules: Vec::new(),
            keys: Vec::new(),
            whole: true,
        };
        let cores: Vec<Core> = heaps.iter().map(|heap| core(&**heap)).collect();
        let found = compare(&cores, By::Size, true, &Control::default()).expect("not stopped");
        let lists: Vec<BTreeSet<(u64, u64)>> = worlds.iter().map(|world| in_use(world).into_iter().collect()).collect();
        let leaked: Vec<BTreeSet<(u64, u64)>> = worlds.iter().map(leaked).collect();
        for (class, row) in &found.rows {
            let amount = |blocks: &mut dyn Iterator<Item = &(u64, u64)>| {
                let of_class = blocks.filter(|block| size_class(block.1).0 == *class);
                of_class.fold(Amount::default(), |a, block| Amount { count: a.count + 1, bytes: a.bytes + block.1 })
            };
            let totals: Vec<Amount> = lists.iter().map(|list| amount(&mut list.iter())).collect();
            let lost: Vec<Amount> = leaked.iter().map(|list| amount(&mut list.iter())).collect();
            assert_eq!(row.leaked, lost, "round {round}: leaked");
            let [first, middle, last] = [&lists[0], &lists[1], &lists[2]];
            let stays = |block: &&(u64, u64)| middle.contains(*block) && last.contains(*block);
            assert_eq!(row.totals, totals, "round {round}: totals");
            assert_eq!(row.survived, amount(&mut first.iter().filter(stays)), "round {round}: survived");
            assert_eq!(row.gone, amount(&mut first.iter().filter(|b| !stays(b))), "round {round}: gone");
            let is_new = |block: &&(u64, u64)| !(first.contains(*block) && middle.contains(*block));
            assert_eq!(row.new, amount(&mut last.iter().filter(is_new)), "round {round}: new");
            let is_kept = |block: &&(u64, u64)| is_new(block) && middle.contains(*block);
            assert_eq!(row.kept, amount(&mut last.iter().filter(is_kept)), "round {round}: kept");
            assert_eq!(totals[0].bytes - row.gone.bytes + row.new.bytes, totals[2].bytes);
        }
        let classes: BTreeSet<u64> = lists.iter().flatten().map(|block| size_class(block.1).0).collect();
        assert_eq!(found.rows.iter().map(|(class, _)| *class).collect::<BTreeSet<u64>>(), classes);
    }
}
