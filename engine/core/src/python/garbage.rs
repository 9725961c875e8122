//! Which unreachable objects the collector would free.
//!
//! A program that makes cycles leaves objects behind that nothing leads to, until the collector runs. They are no leaks.
//! An object is lost for good if it has more references than pointers to it exist: somebody took a reference and forgot
//! it. The collector decides by the same rule.

use super::census;
use super::links::Links;
use super::types::Types;
use super::Release;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;

const CACHED: usize = 1024;
/// Bytes of a block that are read. A larger container has its items in a buffer of its own, in pieces.
const PIECE: usize = 1 << 16;

/// Returns the addresses of the tracked objects among the unreachable `blocks` (address, bytes; sorted) that the collector
/// would free: those that no forgotten reference leads to. `unused` are words that are no pointers: sorted, disjoint.
pub fn find(
    image: &Image,
    blocks: &[(u64, u64)],
    links: &Links,
    unused: &[(u64, u64)],
    release: Release,
    control: &Control,
) -> Vec<u64> {
    let mut types = Types::new(CachedReader::with_slots(image, CACHED), release);
    let mut words = CachedReader::with_slots(image, CACHED);
    let objects: Vec<Option<census::Found>> = blocks
        .iter()
        .map(|&(at, size)| census::object(&mut types, &mut words, release, Some(links), at, size))
        .collect();
    let mut pointers = vec![0u64; blocks.len()];
    let mut held = vec![false; blocks.len()]; // another unreachable block points to it
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut buffer = vec![0u8; PIECE];
    for (index, &(start, size)) in blocks.iter().enumerate() {
        if control.cancelled() {
            return Vec::new();
        }
        let mut at = start;
        while at < start.saturating_add(size) {
            let want = (start + size - at).min(PIECE as u64) as usize;
            let got = image.read(at, &mut buffer[..want]);
            for (number, part) in buffer[..got].chunks_exact(8).enumerate() {
                let value = u64::from_le_bytes(part.try_into().unwrap_or_default());
                let next = blocks.partition_point(|block| block.0 <= value);
                if next == 0 || value - blocks[next - 1].0 >= blocks[next - 1].1 {
                    continue;
                }
                let place = at + number as u64 * 8;
                let dead = unused.get(unused.partition_point(|part| part.1 <= place));
                if links.contains(place) || dead.is_some_and(|part| part.0 <= place) {
                    continue;
                }
                edges.push((index as u32, next as u32 - 1));
                held[next - 1] |= next - 1 != index;
                if objects[next - 1].is_some_and(|object| object.address == value & !7) {
                    pointers[next - 1] += 1;
                }
            }
            if got < want {
                break;
            }
            at += want as u64;
        }
    }
    edges.sort_unstable();
    edges.dedup();
    let mut lost: Vec<u32> = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let forgotten = match object {
            Some(object) => words.word(object.address, 8).is_some_and(|count| {
                let (count, immortal) = release.references(count);
                !immortal && count > pointers[index]
            }),
            None => !held[index],
        };
        if forgotten {
            lost.push(index as u32);
        }
    }
    let mut reached = vec![false; blocks.len()];
    lost.iter().for_each(|&index| reached[index as usize] = true);
    while let Some(index) = lost.pop() {
        let first = edges.partition_point(|edge| edge.0 < index);
        for &(_, to) in edges[first..].iter().take_while(|edge| edge.0 == index) {
            if !std::mem::replace(&mut reached[to as usize], true) {
                lost.push(to);
            }
        }
    }
    let tracked = |index: usize| objects[index].filter(|object| object.tracked && !reached[index]);
    (0..blocks.len()).filter_map(|index| tracked(index).map(|object| object.address)).collect()
}
