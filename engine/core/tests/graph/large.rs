//! Dominators of large graphs, against petgraph's (Cooper, Harvey and Kennedy's algorithm).

use super::made::random;
use crate::blocks::made::Dice;
use dmods_engine::graph::dense::Placed;
use dmods_engine::graph::dominators::{immediate, Others};
use dmods_engine::graph::search::{Found, Search, ROOT};
use dmods_engine::Control;
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

#[test]
fn another_implementation_agrees() {
    for (seed, count) in [(1, 100_000), (2, 100_000), (3, 50_000), (4, 50_000), (5, 20_000), (6, 20_000), (7, 2_000)] {
        let mut dice = Dice(910_000 + seed);
        let graph = random(&mut dice, count);
        let roots: Vec<usize> = (0..1 + count / 50).map(|_| dice.below(count as u64) as usize).collect();
        let control = Control::default();
        let mut search =
            Search::<_, u32>::new(&graph, Placed::<u32>::new(&graph).expect("room"), &control).expect("room");
        for &node in &roots {
            let root = search.root().expect("room");
            search.reach(root, node, &control).expect("not cancelled");
        }
        let Found { vertices, numbers, parents, others } = search.finish();
        let others = Others::new(numbers.len(), others).expect("room");
        let dominators = immediate(&parents, &others, &control).expect("not cancelled");

        let mut other = DiGraph::<(), ()>::new();
        for _ in 0..=count {
            other.add_node(()); // the last one leads to all roots
        }
        for node in 0..count {
            for &target in graph.targets(node) {
                other.add_edge(NodeIndex::new(node), NodeIndex::new(target), ());
            }
        }
        for &node in &roots {
            other.add_edge(NodeIndex::new(count), NodeIndex::new(node), ());
        }
        let expected = simple_fast(&other, NodeIndex::new(count));
        for node in 0..count {
            let said = (vertices[node] != 0).then(|| {
                // Here a root is a vertex of its own; there it is no vertex.
                let number = numbers[dominators[vertices[node] as usize] as usize];
                if number == ROOT {
                    count
                } else {
                    number as usize
                }
            });
            let truth = expected.immediate_dominator(NodeIndex::new(node)).map(|index| index.index());
            assert_eq!(said, truth, "seed {seed}: node {node}");
        }
    }
}
