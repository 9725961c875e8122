//! Dominators by taking each vertex away, on thousands of small graphs.

use super::made::{random, Lists};
use crate::blocks::made::Dice;
use dmods_engine::blocks::number::Index;
use dmods_engine::graph::dense::Placed;
use dmods_engine::graph::dominators::{add_up, immediate, Others};
use dmods_engine::graph::search::{Found, Search, CLOSED, ROOT};
use dmods_engine::graph::{sets, weak};
use dmods_engine::Control;
use std::collections::BTreeSet;

/// A root: its tier, and the nodes that its words point to.
type Root = (usize, Vec<usize>);

struct Solved {
    vertices: Vec<u32>,
    numbers: Vec<u32>,
    dominators: Vec<u32>,
    sets: Vec<u32>,
    members: Vec<Vec<u32>>,
    /// The vertex of each root.
    roots: Vec<u32>,
}

fn solve(graph: &Lists, roots: &[Root], shut: &BTreeSet<usize>) -> Solved {
    solve_with::<u32>(graph, roots, shut)
}

/// `W` is the width of a place in the list of the graph.
fn solve_with<W: Index>(graph: &Lists, roots: &[Root], shut: &BTreeSet<usize>) -> Solved {
    let control = Control::default();
    let mut search = Search::<_, W>::new(graph, Placed::<W>::new(graph).expect("room"), &control).expect("room");
    shut.iter().for_each(|&node| search.close(node));
    let mut made = Vec::new();
    for (index, (tier, words)) in roots.iter().enumerate() {
        if index > 0 && roots[index - 1].0 != *tier {
            search.next_tier();
        }
        let vertex = search.root().expect("room");
        made.push((vertex, index as u32));
        for &node in words {
            search.reach(vertex, node, &control).expect("not cancelled");
        }
    }
    let Found { vertices, numbers, parents, others } = search.finish();
    let others = Others::new(numbers.len(), others).expect("room");
    let dominators = immediate(&parents, &others, &control).expect("not cancelled");
    let (sets, of) = sets::of_vertices(&dominators, &parents, &others, &made, &control).expect("not cancelled");
    let roots = made.iter().map(|&(vertex, _)| vertex).collect();
    Solved { vertices, numbers, dominators, sets: of, members: sets.members, roots }
}

#[test]
fn a_graph_of_more_words_gives_the_same() {
    for seed in 0..300u64 {
        let mut dice = Dice(77_000 + seed);
        let count = 1 + dice.below(60) as usize;
        let graph = random(&mut dice, count);
        let shut: BTreeSet<usize> = (0..dice.below(3)).map(|_| dice.below(count as u64) as usize).collect();
        let roots: Vec<Root> =
            (0..1 + dice.below(5) as usize).map(|tier| (tier, vec![dice.below(count as u64) as usize])).collect();
        let (one, other) = (solve_with::<u32>(&graph, &roots, &shut), solve_with::<u64>(&graph, &roots, &shut));
        assert_eq!((one.vertices, one.numbers), (other.vertices, other.numbers), "seed {seed}");
        assert_eq!((one.dominators, one.sets), (other.dominators, other.sets), "seed {seed}");
    }
}

#[test]
fn dominators_by_removal() {
    let (mut dominated, mut shared) = (0, 0);
    for seed in 0..6000u64 {
        let mut dice = Dice(31_000 + seed);
        let count = 1 + dice.below(24) as usize;
        let graph = random(&mut dice, count);
        let shut: BTreeSet<usize> = (0..dice.below(3)).map(|_| dice.below(count as u64) as usize).collect();
        let mut roots: Vec<Root> = (0..1 + dice.below(5))
            .map(|_| {
                let words = (0..1 + dice.below(3)).map(|_| dice.below(count as u64) as usize).collect();
                (dice.below(3) as usize, words)
            })
            .collect();
        roots.sort_by_key(|root| root.0);
        let solved = solve(&graph, &roots, &shut);
        let mut taken = shut.clone();
        for tier in 0..3 {
            let words: Vec<&Root> = roots.iter().filter(|root| root.0 == tier).collect();
            let all: Vec<usize> = words.iter().flat_map(|root| root.1.clone()).collect();
            let reached = graph.reached(&all, |node| taken.contains(&node));
            check_tier(&graph, &roots, tier, &taken, &reached, &solved, seed);
            for &node in &reached {
                let vertex = solved.vertices[node] as usize;
                dominated += usize::from(solved.numbers[solved.dominators[vertex] as usize] != ROOT);
                shared += usize::from(solved.members[solved.sets[vertex] as usize].len() > 1);
            }
            taken.extend(reached);
        }
        for node in 0..count {
            let held = !matches!(solved.vertices[node], 0 | CLOSED);
            assert_eq!(held, taken.contains(&node) && !shut.contains(&node), "seed {seed}: node {node}");
        }
        check_sums(&solved, seed);
    }
    assert!(dominated > 10_000 && shared > 5_000, "{dominated} {shared}");
}

/// Every node of the tier: which others die with each, and which roots lead to it.
fn check_tier(
    graph: &Lists,
    roots: &[Root],
    tier: usize,
    taken: &BTreeSet<usize>,
    reached: &BTreeSet<usize>,
    solved: &Solved,
    seed: u64,
) {
    let words = |skip: Option<usize>| -> Vec<usize> {
        let of_tier = roots.iter().enumerate().filter(|(index, root)| root.0 == tier && Some(*index) != skip);
        of_tier.flat_map(|(_, root)| root.1.clone()).collect()
    };
    let below = |ancestor: u32, mut vertex: u32| {
        while vertex > ancestor {
            vertex = solved.dominators[vertex as usize];
        }
        vertex == ancestor
    };
    for &gone in reached {
        let left = graph.reached(&words(None), |node| node == gone || taken.contains(&node));
        for &node in reached {
            let dies = !left.contains(&node);
            let said = below(solved.vertices[gone], solved.vertices[node]);
            assert_eq!(said, dies, "seed {seed}: {node} without {gone}");
        }
    }
    for (index, _) in roots.iter().enumerate().filter(|(_, root)| root.0 == tier) {
        let left = graph.reached(&words(Some(index)), |node| taken.contains(&node));
        let mine = graph.reached(&roots[index].1, |node| taken.contains(&node));
        for &node in reached {
            let vertex = solved.vertices[node];
            assert_eq!(below(solved.roots[index], vertex), !left.contains(&node), "seed {seed}: {node}, root {index}");
            let set = &solved.members[solved.sets[vertex as usize] as usize];
            assert_eq!(
                set.contains(&(index as u32)),
                mine.contains(&node),
                "seed {seed}: {node} in the set of {index}"
            );
        }
    }
}

fn check_sums(solved: &Solved, seed: u64) {
    let mut counts: Vec<u32> = solved.numbers.iter().map(|&number| u32::from(number != ROOT)).collect();
    let mut bytes: Vec<u64> = counts.iter().map(|&count| 16 * u64::from(count)).collect();
    let all: u32 = counts.iter().sum();
    add_up(&solved.dominators, &mut counts, &mut bytes);
    assert_eq!((counts[0], bytes[0]), (all, 16 * u64::from(all)), "seed {seed}");
}

#[test]
fn needed_words_reach_the_same() {
    let mut dropped = 0;
    for seed in 0..3000u64 {
        let mut dice = Dice(53_000 + seed);
        let count = 1 + dice.below(24) as usize;
        let graph = random(&mut dice, count);
        let taken: BTreeSet<usize> = (0..dice.below(4)).map(|_| dice.below(count as u64) as usize).collect();
        let words: Vec<usize> = (0..1 + dice.below(8)).map(|_| dice.below(count as u64) as usize).collect();
        let control = Control::default();
        let kept = weak::needed(&graph, &words, |node| taken.contains(&node), &control).expect("not cancelled");
        let nodes: Vec<usize> = kept.iter().map(|&index| words[index]).collect();
        let reach = |from: &[usize]| graph.reached(from, |node| taken.contains(&node));
        assert_eq!(reach(&nodes), reach(&words), "seed {seed}");
        assert!(kept.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: the order");
        for (index, &word) in words.iter().enumerate() {
            let needed = kept.contains(&index);
            // Needless if an earlier word of the same cycle, or any word from outside the cycle, leads there.
            let leads = |other: usize| reach(&[words[other]]).contains(&word);
            let back = |other: usize| reach(&[word]).contains(&words[other]);
            let otherwise =
                (0..words.len()).any(|other| other != index && leads(other) && (!back(other) || other < index));
            assert_eq!(needed, !otherwise && !taken.contains(&word), "seed {seed}: word {index}");
            dropped += usize::from(!needed);
        }
    }
    assert!(dropped > 3000, "{dropped}");
}
