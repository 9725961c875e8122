//! Free lists whose chunks carry the in-use bit: tcache and fastbins.

use super::index::Tables;
use super::space::Space;
use super::window::Window;
use super::Index;
use crate::image::Image;

/// A singly linked list of free chunks.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// What the bin's head points to; 0: empty. With `to_user` a pointer as malloc returns it (tcache), else to the chunk's header (fastbin).
    pub head: u64,
    pub to_user: bool,
    /// Safe-linking (glibc 2.32): what is stored is `next ^ (address of the link >> 12)`.
    pub protected: bool,
    /// The chunk sizes that belong here.
    pub least: u64,
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not the address of a chunk.
    NotAChunk,
    /// A chunk of another size.
    WrongSize,
    /// Free already: a cycle, a double free, or on two lists.
    AlreadyFree,
    /// The link is not in the dump.
    Missing,
}

/// What following a list gave.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    pub count: u64,
    /// Chunk bytes (headers included), as glibc's own statistics count them.
    pub bytes: u64,
    /// The link that leads astray, and where it leads.
    pub problem: Option<(Problem, u64)>,
    /// The blocks' addresses, when asked for.
    pub blocks: Vec<u64>,
}

/// Follows a list. With `set` every chunk on it becomes free in the tables (and a chunk that already is free ends it).
pub fn follow<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    image: &Image,
    list: List,
    set: bool,
    collect: bool,
) -> Followed {
    let mut window = Window::new(image);
    let mut out = Followed::default();
    let header = Space::<P>::HEADER;
    let mut at = list.head;
    // Without `set` nothing marks what was seen; Brent's cycle check does.
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
        let Some(stored) = window.word(block.address, Space::<P>::WORD) else {
            out.problem = Some((Problem::Missing, at));
            break;
        };
        at = if list.protected { stored ^ (block.address >> 12) } else { stored };
    }
    out
}

/// The chunk's size from the block's usable size.
fn chunk_size<const P: usize>(block: &super::index::Block) -> u64 {
    block.size + Space::<P>::WORD
}
