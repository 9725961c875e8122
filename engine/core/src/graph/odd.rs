//! Pointers that the structure of their block does not have.
//!
//! [`super::regular`] compares blocks of one size. Where many structures have that size, a word that is left over in one may
//! stand where another has a field. Here blocks of one structure are compared: see [`super::structures`] and
//! [`super::families`].

use super::edges::Edges;
use super::families::Families;
use super::links::Links;
use super::kinds_of_targets::Kinds;
use super::numbering::HeapGraph;
use super::shapes::Shapes;
use super::structures::Heap;
use crate::blocks::number::Index;
use crate::control::{Control, Stopped};
use crate::hw;

/// Finds the edges that are not in `irregular` and that the structures of their blocks do not have. `kinds` are the size classes of
/// the blocks, and `counts` how many blocks in use each has. `is_common` says of a size class whether its blocks are compared.
#[inline(always)]
pub(super) fn odd<I: Index, const P: usize>(
    graph: &HeapGraph<I, P>,
    kinds: &Kinds<I, P>,
    counts: &[u32],
    is_common: impl Fn(u16) -> bool,
    irregular: &Edges,
    control: &Control,
) -> Result<Edges, Stopped> {
    let is_common: Vec<bool> = (0..counts.len()).map(|kind| is_common(kind as u16)).collect();
    let shapes = Shapes::new(graph.tables, kinds, counts, |kind| is_common[usize::from(kind)], control)?;
    let links = Links::new(graph, control)?;
    let heap = Heap { graph, kinds, is_common, links, shapes, control };
    let (_first, structures) = heap.structures()?;
    let families = Families::new(&heap, &structures)?;
    let mut odd = Edges::default();
    let room = graph.tables.edges.as_slice().len();
    let load = |target: usize| hw::prefetch(&structures.of, target);
    heap.each(load, |source, offset, edge, link| {
        let structure = structures.of[source.number];
        let (Some(target), Some(offset)) = (link.target(), offset) else { return };
        if !families.is_compared(structure) || irregular.contains(edge) {
            return;
        }
        if !families.has_field(structure, offset, link, structures.of[target]) {
            odd.add(edge, room);
        }
    })?;
    if let Some(path) = std::env::var_os("ODD_DUMP") {
        use std::io::Write;
        let mut out = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
        let mut last = usize::MAX;
        heap.each(load, |source, offset, edge, link| {
            let offset = offset.unwrap_or(9999);
            if last != source.number {
                last = source.number;
                let s = structures.of[last];
                let b = graph.tables.block(source.run, source.granule);
                writeln!(out, "B {} {} {} {} {} {} {}", last, b.address, b.size, s, families.family_of(s), u8::from(families.is_compared(s)), heap.shapes.of[last]).unwrap();
            }
            if let Some(t) = link.target() {
                let s = structures.of[t];
                writeln!(out, "E {} {} {} {} {} {}", offset, t, u8::from(link.is_start()), u8::from(irregular.contains(edge)) + 2 * u8::from(odd.contains(edge)), s, families.family_of(s)).unwrap();
            }
        })?;
        let numbering = graph.numbering;
        for (number, &s) in structures.of.iter().enumerate() {
            let granule = numbering.granule(&graph.tables.regions, number);
            let run = graph.tables.word_map.run_of_granule(granule);
            let b = graph.tables.block(run, granule);
            writeln!(out, "N {} {} {} {} {}", number, b.address, b.size, s, families.family_of(s)).unwrap();
        }
        for (s, f) in structures.fields.iter().enumerate() {
            writeln!(out, "S {} {} {} {} {:?} {:?}", s, structures.kinds[s], f.0, f.1, _first.fields.get(usize::from(f.0)), families.show(s as u16)).unwrap();
        }
    }
    Ok(odd)
}
