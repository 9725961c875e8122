//! Heaps that are large enough for several threads to mark them, against a search in breadth of the same graph.

use super::made::Dice;
use dmods_engine::blocks;
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::{Heap, State};
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;
use std::collections::BTreeSet;

const BASE: u64 = 0x0900_0000;
const ROOTS: u64 = 0x0800_0000;

/// A heap of one run, as a list of what each block points to.
struct Graph {
    word: u64,
    targets: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl Graph {
    /// A chunk with room for the pointers behind its header.
    fn chunk_size(&self, block: usize) -> u64 {
        (self.word * (self.targets[block].len() as u64 + 2)).next_multiple_of(16).max(32)
    }

    /// Returns the address of each block, and where the run ends.
    fn addresses(&self) -> (Vec<u64>, u64) {
        let mut at = BASE;
        let place = |block| {
            let address = at + 2 * self.word;
            at += self.chunk_size(block);
            address
        };
        let addresses = (0..self.targets.len()).map(place).collect();
        (addresses, at)
    }

    /// The heap as glibc writes it, and the run.
    fn image(&self) -> (Image, Run) {
        let (addresses, end) = self.addresses();
        let mut heap = Vec::new();
        let word = |to: &mut Vec<u8>, value: u64| to.extend(&value.to_le_bytes()[..self.word as usize]);
        for (block, targets) in self.targets.iter().enumerate() {
            word(&mut heap, 0);
            word(&mut heap, self.chunk_size(block) | 1);
            targets.iter().for_each(|&to| word(&mut heap, addresses[to]));
            let next = addresses.get(block + 1).map_or(end, |next| next - 2 * self.word);
            heap.resize((next - BASE) as usize, 0);
        }
        word(&mut heap, 0);
        word(&mut heap, 0x1001);
        heap.resize(heap.len() + 64, 0);
        let mut roots = Vec::new();
        self.roots.iter().for_each(|&to| word(&mut roots, addresses[to]));
        let segment = |start, bytes: Vec<u8>| Segment {
            start,
            end: start + bytes.len() as u64,
            source: Source::Bytes(bytes.into()),
        };
        let image = Image::new(&[], vec![segment(ROOTS, roots), segment(BASE, heap)]).expect("no files");
        (image, Run::of_chunks(BASE, end, Kind::Main, Owner::new(0, 0), 0))
    }

    fn reached(&self) -> BTreeSet<usize> {
        let (mut seen, mut todo) = (BTreeSet::new(), self.roots.clone());
        while let Some(block) = todo.pop() {
            if seen.insert(block) {
                todo.extend(&self.targets[block]);
            }
        }
        seen
    }

    fn mark(&self, threads: usize) -> (u64, Box<dyn Heap>) {
        let control = Control::default();
        let (image, run) = self.image();
        let request = Request { image: &image, runs: vec![run], dead: &[], watch: &[], maps: &[], threads };
        let mut heap = blocks::build(self.word, request, &control).expect("built");
        let roots = (ROOTS, ROOTS + self.roots.len() as u64 * self.word);
        // A marking that was stopped leaves no trace: it has reached some blocks, and followed none of them.
        let (values, stopped) = (self.addresses().0, Control::default());
        stopped.cancel();
        let some = Roots { ranges: &[roots], values: &values[..values.len() / 2], ..Roots::default() };
        assert!(heap.mark(&image, some, &stopped).is_err());
        let marked = heap.mark(&image, Roots { ranges: &[roots], ..Roots::default() }, &control).expect("marked");
        (marked.reached, heap)
    }

    fn check(&self, label: &str) {
        let reached = self.reached();
        assert!(reached.len() > 50_000 && reached.len() < self.targets.len(), "{label}: {} reached", reached.len());
        let (addresses, _) = self.addresses();
        let live: Vec<u64> = reached.iter().map(|&block| addresses[block]).collect();
        for threads in [1, 2, 3, 8] {
            let (count, heap) = self.mark(threads);
            assert_eq!(count, live.len() as u64, "{label}: {threads} threads");
            let said = heap.addresses(&[State::Live], 0, u64::MAX, usize::MAX);
            assert!(said == live, "{label}: {threads} threads, {} are live, not {}", said.len(), live.len());
        }
    }
}

/// Each block points to up to 3 others anywhere. Nothing leads to the last tenth.
fn random(dice: &mut Dice, word: u64) -> Graph {
    let count = 120_000;
    let targets = |_| (0..dice.below(4)).map(|_| dice.below(count / 10 * 9) as usize).collect();
    Graph { word, targets: (0..count).map(targets).collect(), roots: (0..100).collect() }
}

/// A table of a hundred thousand pointers, each to a list of one or two blocks. Some of the lists are not in it.
fn table(dice: &mut Dice, word: u64) -> Graph {
    let lists = 100_000;
    let mut targets = vec![Vec::new()];
    for _ in 0..lists {
        let head = targets.len();
        if !dice.one_in(10) {
            targets[0].push(head);
        }
        targets.push(if dice.one_in(2) { vec![head + 1] } else { Vec::new() });
        if !targets[head].is_empty() {
            targets.push(Vec::new());
        }
    }
    Graph { word, targets, roots: vec![0] }
}

/// A tree whose branches end in lists of thousands of blocks: what is shared is sometimes much and sometimes nothing.
fn tree(dice: &mut Dice, word: u64) -> Graph {
    let mut targets: Vec<Vec<usize>> = (0..10_000).map(|node| vec![2 * node + 1, 2 * node + 2]).collect();
    targets.resize(20_001, Vec::new());
    for leaf in 10_000..20_001 {
        let length = if dice.one_in(100) { 2000 } else { dice.below(8) as usize };
        let first = targets.len();
        if length > 0 {
            targets[leaf].push(first);
            targets.extend((1..length).map(|i| vec![first + i]));
            targets.push(Vec::new());
        }
    }
    targets.extend(vec![vec![0]; 5000]); // they lead to the tree, and nothing leads to them
    Graph { word, targets, roots: vec![0] }
}

#[test]
fn any_number_of_threads_reaches_the_same() {
    for word in [8, 4] {
        let mut dice = Dice(word);
        random(&mut dice, word).check("random");
        table(&mut dice, word).check("table");
        tree(&mut dice, word).check("tree");
    }
}
