//! Follows free lists whose chunks carry the in-use bit: tcache and fastbins.

use crate::blocks::index::{Tables, EVERY};
use crate::blocks::model::Heap;
use crate::blocks::number::Index;
use crate::blocks::widths::by_width;
use crate::blocks::word_map::WordMap;
use crate::cached_reader::CachedReader;
use crate::image::Image;
use std::collections::HashMap;

/// A singly linked list of free chunks.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// What the bin's head points to; 0 for an empty list. With `to_user` it is a pointer as malloc returns it (tcache),
    /// else it points to the chunk's header (fastbin).
    pub head: u64,
    /// Whether links point to what malloc returned.
    pub to_user: bool,
    /// Safe-linking (glibc 2.32): what is stored is `next ^ (address of the link >> 12)`.
    pub protected: bool,
    /// The chunk sizes that belong here.
    pub least: u64,
    /// The largest chunk size that belongs here.
    pub most: u64,
}

/// What is wrong with a link of a free list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not the address of a chunk.
    NotAChunk,
    /// A chunk of another size.
    WrongSize,
    /// The chunk is free already: a cycle, a double free, or a chunk on two lists.
    AlreadyFree,
    /// The link is not in the dump.
    Missing,
}

/// The result of following a list.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// How many chunks.
    pub count: u64,
    /// Chunk bytes (headers included), as glibc's own statistics count them.
    pub bytes: u64,
    /// The bad link, and where it leads.
    pub problem: Option<(Problem, u64)>,
    /// The blocks' addresses, if asked for.
    pub blocks: Vec<u64>,
}

/// Follows a list. With `set` every chunk on it becomes free, and a chunk that is free already ends the list. With
/// `collect` the blocks' addresses are returned.
pub fn follow(heap: &mut dyn Heap, image: &Image, list: List, set: bool, collect: bool) -> Followed {
    by_width!(WidthsMut, heap.widths_mut(), heap => follow_in(heap.tables_mut(), image, list, set, collect))
}

fn follow_in<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    image: &Image,
    list: List,
    set: bool,
    collect: bool,
) -> Followed {
    let mut window = CachedReader::new(image);
    let mut out = Followed::default();
    let header = WordMap::<P>::HEADER;
    let mut at = list.head;
    // Without `set` no chunk is marked as visited. Brent's algorithm finds cycles.
    let (mut anchor, mut steps, mut power) = (0, 0u64, 1u64);
    while at != 0 {
        let chunk = if list.to_user { at.wrapping_sub(header) } else { at };
        let Some(block) = tables.chunk_at(chunk) else {
            out.problem = Some((Problem::NotAChunk, at));
            break;
        };
        let size = chunk_size::<P>(&block);
        if size < list.least || size > list.most {
            out.problem = Some((Problem::WrongSize, at));
            break;
        }
        if (set && block.free) || at == anchor {
            out.problem = Some((Problem::AlreadyFree, at));
            break;
        }
        if set {
            tables.set_free(block.granule);
        } else {
            steps += 1;
            if steps == power {
                (anchor, steps, power) = (at, 0, power * 2);
            }
        }
        out.count += 1;
        out.bytes += size;
        if collect {
            out.blocks.push(block.address);
        }
        let Some(stored) = window.word(block.address, WordMap::<P>::WORD) else {
            out.problem = Some((Problem::Missing, at));
            break;
        };
        at = if list.protected { stored ^ (block.address >> 12) } else { stored };
    }
    out
}

/// Returns the chunk's size, given the block's usable size.
fn chunk_size<const P: usize>(block: &crate::blocks::index::Block) -> u64 {
    block.size + WordMap::<P>::WORD
}

/// Sets free the chunks after a damaged link, and returns how many. The tables show them as live. But their first word is
/// a link to another chunk of their kind, and so on to the end of the list (0) or to a chunk that is known to be free.
/// With safe-linking no live block looks like that by chance. Without it any zeroed block would, so nothing is done.
///
/// `key` (tcache, glibc 2.29) is the second word of each chunk where it is known. Then the links do not matter.
pub fn release_orphans(heap: &mut dyn Heap, image: &Image, list: List, key: Option<u64>) -> u64 {
    by_width!(WidthsMut, heap.widths_mut(), heap => release_in(heap.tables_mut(), image, list, key))
}

fn release_in<I: Index, const P: usize>(tables: &mut Tables<I, P>, image: &Image, list: List, key: Option<u64>) -> u64 {
    let mut window = CachedReader::new(image);
    let (word, header) = (WordMap::<P>::WORD, WordMap::<P>::HEADER);
    let mut links: HashMap<u64, u64> = HashMap::new();
    let mut found = Vec::new();
    for run in 0..tables.word_map.runs.len() {
        tables.each_block(run, EVERY, |block| {
            let size = chunk_size::<P>(&block);
            if block.free || size < list.least || size > list.most {
                return true;
            }
            match (key, window.word(block.address + word, word)) {
                (Some(key), Some(second)) if second == key => found.push(block.granule),
                (Some(_), _) => {}
                (None, _) if !list.protected => {}
                (None, _) => {
                    if let Some(stored) = window.word(block.address, word) {
                        let next = stored ^ (block.address >> 12);
                        links.insert(
                            block.address,
                            if list.to_user || next == 0 { next } else { next.wrapping_add(header) },
                        );
                    }
                }
            }
            true
        });
    }
    // A block belongs to the list when its links lead to the end. Each block is decided once.
    let mut settled: HashMap<u64, bool> = HashMap::from([(0, true)]);
    for &first in links.keys() {
        let mut path = Vec::new();
        let mut at = first;
        let verdict = loop {
            if let Some(&known) = settled.get(&at) {
                break known;
            }
            // While a block is not decided, meeting it again is a cycle.
            settled.insert(at, false);
            path.push(at);
            match links.get(&at) {
                Some(&next) => at = next,
                None => {
                    path.pop();
                    break tables.find(at).is_some_and(|b| b.free && b.address == at && in_class::<P>(&b, &list));
                }
            }
        };
        for address in path {
            settled.insert(address, verdict);
            if verdict {
                found.extend(tables.find(address).map(|block| block.granule));
            }
        }
    }
    for &granule in &found {
        tables.set_free(granule);
    }
    found.len() as u64
}

fn in_class<const P: usize>(block: &crate::blocks::index::Block, list: &List) -> bool {
    (list.least..=list.most).contains(&chunk_size::<P>(block))
}
