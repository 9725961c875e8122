//! What slab objects keep alive, against what a slow search reaches without them.

use dmods_engine::Control;

use super::machine::{Rng, DIRECT};
use super::slabs::{made, object};

/// Marks what `from` leads to along `edges`, without `without`.
fn reached(edges: &[(usize, usize)], from: &[usize], without: Option<usize>) -> Vec<bool> {
    let mut seen = vec![false; 32];
    let mut todo: Vec<usize> = from.to_vec();
    while let Some(one) = todo.pop() {
        if Some(one) != without && !std::mem::replace(&mut seen[one], true) {
            todo.extend(edges.iter().filter(|edge| edge.0 == one).map(|edge| edge.1));
        }
    }
    seen
}

#[test]
fn an_object_keeps_alive_what_nothing_reaches_without_it() {
    let mut random = Rng(7);
    for round in 0..60 {
        let mut made = made();
        let second = &mut made.caches[1];
        (second.red_left, second.object_size, second.scanned) = (0, 248, 248);
        let mut number = || random.below(32) as usize;
        let at = |one: usize| object(16 + one as u64 / 16, one as u64 % 16, 0);
        let edges: Vec<(usize, usize)> = (0..10 + round % 30).map(|_| (number(), number())).collect();
        let roots: Vec<usize> = (0..2 + round % 4).map(|_| number()).collect();
        for (nth, (from, to)) in edges.iter().enumerate() {
            let slot = edges[..nth].iter().filter(|edge| edge.0 == *from).count();
            made.put((at(*from) - DIRECT) as usize + 8 * slot, at(*to) + 8 * (nth as u64 % 3));
        }
        for (nth, root) in roots.iter().enumerate() {
            made.put(0x1000 + 8 * nth, at(*root));
        }
        let (table, _, leaks, tree) = made.searched(&[]);
        let node = |one: usize| table.exactly(at(one)).unwrap().1;
        let held = reached(&edges, &roots, None);
        let direct: Vec<usize> =
            (0..32).filter(|one| leaks.direct.iter().any(|leak| leak.node == node(*one))).collect();
        let (mut sums, mut cut) = ([(0, 0); 2], vec![false; 32]);
        for one in 0..32 {
            let with: Vec<bool> = reached(&edges, if held[one] { &roots } else { &direct }, None);
            let without = reached(&edges, if held[one] { &roots } else { &direct }, Some(one));
            let kept: Vec<usize> =
                (0..32).filter(|&other| with[other] && !without[other] && held[other] == held[one]).collect();
            let (first, all) = (tree.above(node(one), 1)[0], tree.above(node(one), 40));
            assert_eq!((first.node, first.count, first.bytes), (node(one), kept.len() as u32, 248 * kept.len() as u64));
            assert_eq!(tree.is_leaked(node(one)), !held[one]);
            let by_cache = tree.caches_of(&table, node(one));
            let in_second = kept.iter().filter(|other| **other >= 16).count() as u64;
            let second = by_cache.iter().find(|sum| sum.0 == 1).map_or(0, |sum| sum.1);
            assert_eq!((second, by_cache.iter().map(|sum| sum.2).sum()), (in_second, first.bytes));
            assert!(kept.iter().all(|other| tree.above(node(*other), 40).iter().any(|kept| kept.node == node(one))));
            // An object below another one of its cache adds nothing to the sum of the cache.
            let outer = all[1..].iter().all(|kept| table.describe(kept.node).2 as usize != one / 16);
            if outer {
                let sum = &mut sums[one / 16];
                *(if held[one] { &mut sum.0 } else { &mut sum.1 }) += first.bytes;
            }
            cut[one] = outer;
        }
        assert_eq!(tree.by_cache(&table, &Control::default()).unwrap()[..2], sums);
        for cache in 0..2 {
            let found = tree.largest(&table, cache, 40);
            let wanted = (0..32).filter(|one| one / 16 == cache as usize && cut[*one]).count();
            assert_eq!(found.len(), wanted);
            assert!(found.windows(2).all(|two| two[0].bytes >= two[1].bytes));
        }
    }
}
