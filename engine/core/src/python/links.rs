//! The lists of CPython's collector: every container that it tracks is in one of them.
//!
//! A tracked object has two words before it (`PyGC_Head`): the next and the previous of its list. They keep nothing
//! alive. If they counted as pointers, no container could ever be unreachable.

use super::types::Types;
use super::Release;
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;

/// Bytes of a `PyGC_Head`.
pub const LINKS: u64 = 16;
/// The lower bits of both words are flags (Include/internal/pycore_gc.h).
const FLAGS: u64 = 3;
const CACHED: usize = 4096;
/// Where a dictionary has the address of its table.
const TABLE: u64 = 32;
/// The heads of an interpreter lie in so many bytes: some generations of 24 to 32 bytes each. What lies behind its state
/// may be objects, and each is a part of a list, too.
const GENERATIONS: u64 = 256;

/// The lists.
#[derive(Debug, Default)]
pub struct Links {
    /// The heads, in the states of interpreters.
    pub heads: Vec<u64>,
    /// The links of all tracked objects, sorted.
    pub nodes: Vec<u64>,
    /// Where a list is damaged.
    pub broken: Option<u64>,
}

impl Links {
    /// Returns whether the address lies in a link or a head.
    pub fn contains(&self, address: u64) -> bool {
        let inside = |list: &[u64]| {
            let next = list.partition_point(|&at| at <= address);
            next > 0 && address - list[next - 1] < LINKS
        };
        inside(&self.nodes) || inside(&self.heads)
    }

    /// Returns whether the links of a tracked object begin at the address.
    pub fn is_node(&self, address: u64) -> bool {
        self.nodes.binary_search(&address).is_ok()
    }

    /// Returns those of the `tables` that a tracked dictionary has. The table's address is the fifth word of a dictionary
    /// (`ma_keys`, Include/cpython/dictobject.h, until 3.13), and no other object has one.
    pub fn tables_in_use(&self, image: &Image, tables: &[u64], control: &Control) -> Vec<u64> {
        let mut reader = CachedReader::with_slots(image, CACHED);
        let mut found = Vec::new();
        for (count, node) in self.nodes.iter().enumerate() {
            if count % 65536 == 0 && control.cancelled() {
                break;
            }
            let table = node.checked_add(LINKS + TABLE).and_then(|at| reader.word(at, 8));
            found.extend(table.filter(|table| tables.contains(table)));
        }
        found
    }

    /// Returns the links as ranges.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.heads.iter().chain(&self.nodes).map(|&at| (at, at.saturating_add(LINKS)))
    }
}

/// Finds the lists whose heads lie in the `states` of interpreters, and follows them.
///
/// A head is two words that lead to nodes which lead back. Behind the links of the first node is an object.
pub fn find(image: &Image, states: &[(u64, u64)], release: Release, control: &Control) -> Links {
    let mut links = Links::default();
    let mut types = Types::new(CachedReader::new(image), release);
    let mut reader = CachedReader::with_slots(image, CACHED);
    // Every node has memory of its own.
    let most = image.size() / 32;
    for &(start, end) in states {
        let mut bytes = vec![0u8; (end.saturating_sub(start)).min(1 << 22) as usize];
        let got = image.read(start, &mut bytes);
        let mut near = u64::MAX;
        // The state of 3.13's collector is packed to 4 bytes (Debian's build for x86-64).
        for offset in (0..got.saturating_sub(15)).step_by(4) {
            let head = start + offset as u64;
            if head > near || control.cancelled() {
                break;
            }
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
            let (first, last) = (word(offset) & !FLAGS, word(offset + 8) & !FLAGS);
            if !is_head(&mut reader, &mut types, head, first, last) || links.heads.contains(&head) {
                continue;
            }
            near = near.min(head.saturating_add(GENERATIONS));
            links.heads.push(head);
            let mut at = first;
            while at != head {
                links.nodes.push(at);
                let next = reader.word(at, 8).map(|word| word & !FLAGS).filter(|next| *next >= 4096);
                let back = next.and_then(|next| reader.word(next.checked_add(8)?, 8)).map(|word| word & !FLAGS);
                let (Some(next), true) = (next, back == Some(at) && (links.nodes.len() as u64) < most) else {
                    links.broken = Some(at);
                    break;
                };
                if links.nodes.len() % 65536 == 0 && control.cancelled() {
                    return links;
                }
                at = next;
            }
        }
    }
    links.heads.sort_unstable();
    links.nodes.sort_unstable();
    links.nodes.dedup();
    links
}

/// Returns whether the two words at `head` lead to objects that lead back.
fn is_head(reader: &mut CachedReader<'_>, types: &mut Types<'_>, head: u64, first: u64, last: u64) -> bool {
    let proper = |at: u64| at >= 4096 && at % 8 == 0 && at != head;
    if !proper(first) || !proper(last) {
        return false;
    }
    let back = first.checked_add(8).and_then(|at| reader.word(at, 8)).map(|word| word & !FLAGS);
    let forth = reader.word(last, 8).map(|word| word & !FLAGS);
    let kind = first.checked_add(LINKS + 8).and_then(|at| reader.word(at, 8));
    back == Some(head) && forth == Some(head) && kind.is_some_and(|kind| types.at(kind).is_some())
}
