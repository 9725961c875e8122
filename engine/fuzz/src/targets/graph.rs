//! Dominators compared with a slow and obvious rule; and what blocks hold, with its sums, in two heaps.

use std::collections::HashMap;

use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::Heap;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run, SLOTS};
use dmods_engine::contents::{Census, Place, Section};
use dmods_engine::graph::dense::Placed;
use dmods_engine::graph::dominators::{immediate, Others};
use dmods_engine::graph::growth::{compare, By, Core};
use dmods_engine::graph::kinds::Kinds;
use dmods_engine::graph::search::{Found, Graph, Search};
use dmods_engine::graph::sums::View;
use dmods_engine::image::Image;
use dmods_engine::Control;

use super::{memory, width, Input};

/// The most nodes of a graph: each is taken away once.
const NODES: usize = 24;

/// The edges of each node.
struct Lists(Vec<Vec<usize>>);

impl Lists {
    fn place(&self, edge: usize) -> (usize, usize) {
        (edge / 256, edge % 256)
    }

    /// Returns which nodes the words lead to. Nothing leads through `without`.
    fn reached(&self, words: &[usize], without: Option<usize>) -> Vec<bool> {
        let mut found = vec![false; self.0.len()];
        let mut open: Vec<usize> = words.to_vec();
        while let Some(node) = open.pop() {
            if Some(node) != without && !std::mem::replace(&mut found[node], true) {
                open.extend(&self.0[node]);
            }
        }
        found
    }
}

impl Graph for Lists {
    type Edge = u32;
    fn count(&self) -> usize {
        self.0.len()
    }
    fn number(&self, node: usize) -> usize {
        node
    }
    fn edges(&self, node: usize) -> (usize, usize) {
        (node * 256, node * 256 + self.0[node].len())
    }
    fn target(&self, edge: usize) -> Option<usize> {
        let (node, nth) = self.place(edge);
        self.0[node].get(nth).copied()
    }
    fn each(&self, mut each: impl FnMut(usize, usize, usize) -> bool) {
        (0..self.0.len()).all(|node| each(node, node * 256, node * 256 + self.0[node].len()));
    }
}

/// A vertex dominates another if the other is not reached without it.
pub fn dominators(data: &[u8]) {
    let mut input = Input(data);
    let count = 1 + usize::from(input.byte()) % NODES;
    let node = |input: &mut Input| usize::from(input.byte()) % count;
    let roots: Vec<Vec<usize>> =
        (0..1 + input.byte() % 4).map(|_| (0..1 + input.byte() % 3).map(|_| node(&mut input)).collect()).collect();
    let mut graph = Lists(vec![Vec::new(); count]);
    while !input.0.is_empty() {
        let (from, to) = (node(&mut input), node(&mut input));
        if graph.0[from].len() < 255 {
            graph.0[from].push(to);
        }
    }
    let control = Control::default();
    let mut search = Search::<_, u32>::new(&graph, Placed::<u32>::new(&graph).expect("room"), &control).expect("room");
    let mut of_roots = Vec::new();
    for words in &roots {
        let vertex = search.root().expect("room");
        of_roots.push(vertex);
        words.iter().for_each(|&word| search.reach(vertex, word, &control).expect("not cancelled"));
    }
    let Found { vertices, parents, others, .. } = search.finish();
    let others = Others::new(parents.len(), others).expect("room");
    let found = immediate(&parents, &others, &control).expect("not cancelled");
    let above = |vertex: u32| {
        let chain = std::iter::successors(Some(vertex), |&at| Some(found[at as usize])).take_while(|&at| at != 0);
        chain.collect::<Vec<u32>>()
    };
    let all: Vec<usize> = roots.iter().flatten().copied().collect();
    let reached = graph.reached(&all, None);
    for (node, &is_reached) in reached.iter().enumerate() {
        assert_eq!(vertices[node] != 0, is_reached, "node {node}");
    }
    for without in (0..count).filter(|&node| reached[node]) {
        let left = graph.reached(&all, Some(without));
        for node in (0..count).filter(|&node| reached[node] && node != without) {
            assert_eq!(above(vertices[node]).contains(&vertices[without]), !left[node], "{without} above {node}");
        }
    }
    for (index, vertex) in of_roots.into_iter().enumerate() {
        let rest: Vec<usize> = roots.iter().enumerate().filter(|r| r.0 != index).flat_map(|r| r.1.clone()).collect();
        let left = graph.reached(&rest, None);
        for node in (0..count).filter(|&node| reached[node]) {
            assert_eq!(above(vertices[node]).contains(&vertex), !left[node], "root {index} above {node}");
        }
    }
}

/// Takes the signatures of all blocks of two heaps, and compares the heaps.
pub fn contents(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input);
    let control = Control::default();
    let sections = [Section::Code, Section::ReadOnly, Section::Data, Section::Elsewhere];
    let places: Vec<Place> = (0..input.byte() % 6)
        .map(|module| {
            let (start, section) = (input.address(), sections[usize::from(input.byte()) % sections.len()]);
            Place {
                start,
                end: start.saturating_add(input.short()),
                section,
                module: module.into(),
                bias: input.word(),
            }
        })
        .collect();
    let (values, runs) = ([input.word(), input.word()], [runs(&mut input), runs(&mut input)]);
    let image = memory(&mut input, word);
    let heaps: Vec<Box<dyn Heap>> = runs.into_iter().map(|runs| built(&image, word, runs, &values)).collect();
    let censuses: Vec<Census> = heaps
        .iter()
        .map(|heap| {
            let census = |direct, threads| {
                Census::take(&**heap, &image, &places, direct, threads, &control).expect("not cancelled")
            };
            let (one, two, direct) = (census(false, 1), census(false, 2), census(true, 1));
            let words = |census: &Census| -> Vec<_> {
                census.of_block.iter().map(|&entry| census.entries[entry as usize].signature).collect()
            };
            assert_eq!(words(&one), words(&two), "on two threads");
            assert_eq!(direct.of_block.len() as u64, heap.groups().iter().map(|group| group.count).sum::<u64>());
            one
        })
        .collect();
    let kinds = Kinds::new(&censuses.iter().collect::<Vec<_>>());
    let views: Vec<View> =
        heaps.iter().enumerate().map(|(i, heap)| View::new(&**heap, &censuses[i], &kinds, i)).collect();
    for (view, heap) in views.iter().zip(&heaps) {
        let sizes = heap.sizes(None);
        let sums = view.sums();
        assert_eq!(sums.iter().map(|sum| sum.live.0).sum::<u64>(), sizes.iter().map(|size| size.live).sum());
        assert_eq!(sums.iter().map(|sum| sum.leaked.0).sum::<u64>(), sizes.iter().map(|size| size.leaked).sum());
        assert_eq!(
            view.census.of_block.len() as u64,
            sizes.iter().map(|size| size.live + size.leaked + size.own).sum()
        );
    }
    let cores: Vec<Core> = views
        .iter()
        .map(|&view| Core {
            heap: view.heap,
            kinds: Some(view),
            records: Vec::new(),
            clocks: Vec::new(),
            threads: Vec::new(),
            arenas: HashMap::new(),
            keys: Vec::new(),
            modules: Vec::new(),
            whole: true,
        })
        .collect();
    for by in [By::Kind, By::Size, By::State, By::Arena] {
        for (_, row) in compare(&cores, by, true, &control).expect("not cancelled").rows {
            assert_eq!(row.totals[0].count + row.new.count, row.totals[1].count + row.gone.count);
        }
    }
}

fn runs(input: &mut Input) -> Vec<Run> {
    let kinds = [Kind::Main, Kind::Thread, Kind::Mmapped, Kind::Slab, Kind::Extent];
    let count = 1 + u32::from(input.byte() % 3);
    let run = |arena| {
        let start = input.address();
        let (end, kind) = (start.saturating_add(input.short()), kinds[usize::from(input.byte()) % kinds.len()]);
        Run { start, end, kind, owner: Owner::new(arena % 2, arena), usable: input.short(), map: 0 }
    };
    (0..count).map(run).collect()
}

fn built(image: &Image, word: usize, runs: Vec<Run>, values: &[u64]) -> Box<dyn Heap> {
    let maps = [0x5555_5555_5555_5555; SLOTS / 64];
    let request = Request { image, runs, dead: &[], watch: &[], maps: &maps, threads: 1 };
    let control = Control::default();
    let mut heap =
        dmods_engine::blocks::build(word as u64, request, &control).expect("tables in proportion to what is there");
    heap.own(&values[..1], false, &control).expect("not cancelled");
    heap.mark(image, Roots { values: &values[1..], ..Roots::default() }, &control).expect("not cancelled");
    heap
}
