//! One pass over all memory of the kernel that can hold pointers to objects. It collects the pointers.
//!
//! A pointer between objects is an edge, 4 bytes. A pointer from elsewhere is a bit of its target. Pointers are words at
//! multiples of 8 bytes. Words at 4 beyond a multiple of 8 (packed structures), and words that hold an object's physical
//! address (what devices get), are weak evidence, and are kept apart.

use super::batch::{Batch, Taker};
use super::code::constants;
use super::device_address;
use super::freelists::{no_memory, state, States};
use super::node_set::NodeSet;
use super::plan::{has_struct_page, is_large, pieces, Source};
use super::table::{Node, Table};
use crate::control::{Control, Stopped};
use crate::kernel::frame_set::FrameSet;
use crate::kernel::layout::Layout;
use crate::kernel::virtual_memory::VirtualMemory;

/// Weak evidence of one kind.
#[derive(Debug, Default)]
pub struct Weak {
    /// What roots hold.
    pub roots: NodeSet,
    /// What objects hold: (holder, target), sorted.
    pub edges: Vec<(Node, Node)>,
}

/// All pointers that were found.
#[derive(Debug, Default)]
pub struct Pointers {
    /// For each node, where its edges begin; one more at the end.
    pub starts: Vec<u32>,
    /// The targets of all edges.
    pub targets: Vec<Node>,
    /// What roots hold.
    pub roots: NodeSet,
    /// What stacks hold.
    pub stacks: NodeSet,
    /// What is held by words at 4 beyond a multiple of 8.
    pub unaligned: Weak,
    /// What is held by physical addresses.
    pub physical: Weak,
    /// Large blocks that an address holds, and those that the address of their `struct page` holds.
    pub addressed: NodeSet,
    /// See `addressed`.
    pub paged: NodeSet,
    /// There was more weak evidence than the memory allowed: it was not kept.
    pub overflow: bool,
    /// Bytes read.
    pub bytes: u64,
    /// Pages that should have been read and are not in the dump: of slabs, and others.
    pub missing: [u64; 2],
}

impl Pointers {
    /// Returns the large blocks, sorted, that only the address of their `struct page` holds. They are not kmalloc's, which
    /// gives its caller the address of the memory.
    pub fn only_paged(&self, table: &Table) -> Vec<Node> {
        let large = table.slabs[table.slab_count..].iter().map(|slab| slab.first);
        large.filter(|node| self.paged.has(*node) && !self.addressed.has(*node)).collect()
    }

    /// Returns the range of a node's edges.
    #[inline(always)]
    pub fn range(&self, node: Node) -> (usize, usize) {
        (self.starts[node as usize] as usize, self.starts[node as usize + 1] as usize)
    }

    /// Returns the weak evidence, the stronger first.
    pub fn weak(&self) -> [&Weak; 2] {
        [&self.unaligned, &self.physical]
    }
}

/// Where words come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Object(Node),
    Root,
    Stack,
    PageArray,
}

/// What there is to read.
pub struct Memory<'a> {
    /// The page array.
    pub layout: &'a Layout,
    /// Page frames, sorted.
    pub ranges: &'a [(u64, u64)],
    /// A byte for each page of the ranges.
    pub kinds: &'a [u8],
    /// Values of registers.
    pub registers: &'a [u64],
    /// Virtual addresses of the kernel's code.
    pub code: &'a [(u64, u64)],
    /// Physical addresses of words that the allocator keeps for itself, sorted: they hold no object.
    pub ignored: &'a [u64],
    /// Page frames that no pointer of this kernel can lie in: they are reserved for a crash kernel, which dumps leave out.
    pub unread: &'a [(u64, u64)],
}

impl Memory<'_> {
    /// Returns whether a page frame is one of `unread`.
    #[inline(always)]
    pub fn is_unread(&self, pfn: u64) -> bool {
        self.unread.iter().any(|(start, end)| (*start..*end).contains(&pfn))
    }
}

pub(super) struct Sweep<'a> {
    pub(super) table: &'a Table,
    states: &'a [u8],
    pub(super) found: Pointers,
    /// Only weak evidence for objects that are still not held is wanted.
    again: bool,
    /// The room for weak edges.
    room: usize,
    span: u64,
    /// The virtual address of the page array, its bytes, and those of a struct page. 0 bytes: there are no large blocks.
    page_array: (u64, u64, u64),
    last: Node,
}

/// Collects all pointers. With `again`, it collects only weak evidence for objects whose state is LEAKED.
pub fn sweep(
    table: &Table,
    states: &States,
    memory: &mut VirtualMemory,
    what: &Memory,
    again: bool,
    control: &Control,
) -> Result<Pointers, Stopped> {
    let mut found =
        Pointers { roots: NodeSet::new(table.nodes)?, stacks: NodeSet::new(table.nodes)?, ..Pointers::default() };
    found.unaligned.roots = NodeSet::new(table.nodes)?;
    (found.addressed, found.paged) = (NodeSet::new(table.nodes)?, NodeSet::new(table.nodes)?);
    found.physical.roots = NodeSet::new(table.nodes)?;
    found.starts.try_reserve_exact(table.nodes as usize + 1).map_err(|_| no_memory())?;
    let pages = table.span() >> table.page_bits();
    let large = (table.slab_count < table.slabs.len()).then_some(pages * what.layout.size as u64);
    let mut sweep = Sweep {
        table,
        states: &states.of,
        found,
        again,
        room: if again { usize::MAX } else { table.nodes as usize / 4 + (1 << 16) },
        span: table.span(),
        page_array: (what.layout.base, large.unwrap_or(0), what.layout.size as u64),
        last: Node::MAX,
    };
    for value in what.registers {
        sweep.word(*value, From::Stack);
    }
    for range in what.code {
        let read = constants(memory, *range, |_, value| sweep.word(value, From::Root));
        sweep.found.bytes += read;
        control.add(read);
    }
    let own = sweep.page_array(memory, what, control)?;
    let granule = memory.physical.granule().clamp(1 << 16, 1 << 20) as u64 >> table.page_bits();
    let mut batch = Batch::new(granule, what.ignored);
    let (mut large, mut cancelled) = (Vec::new(), false);
    pieces(
        table,
        what.ranges,
        what.kinds,
        |pfn| own.contains(pfn) || what.is_unread(pfn),
        |piece| match piece.source {
            Source::Slab(index) if is_large(table, index) => large.push(piece),
            _ if cancelled => {}
            _ => {
                cancelled = control.cancelled();
                batch.add(&mut sweep, memory.physical, piece, control);
            }
        },
    );
    for piece in large {
        batch.add(&mut sweep, memory.physical, piece, control);
        if control.cancelled() {
            break;
        }
    }
    batch.flush(&mut sweep, memory.physical, control);
    if cancelled || control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    sweep.begin(table.nodes);
    let end = sweep.found.targets.len() as u32;
    sweep.found.starts.push(end);
    for weak in [&mut sweep.found.unaligned, &mut sweep.found.physical] {
        weak.edges.sort_unstable();
        weak.edges.dedup();
    }
    Ok(sweep.found)
}

impl Taker for Sweep<'_> {
    fn page_bits(&self) -> u32 {
        self.table.page_bits()
    }

    fn take(&mut self, source: Source, bytes: &[u8], missing: u64) {
        self.found.bytes += bytes.len() as u64;
        self.found.missing[usize::from(!matches!(source, Source::Slab(_)))] += missing;
        match source {
            Source::Slab(index) => self.slab(index, bytes),
            Source::Pages => self.words(bytes, From::Root),
            Source::Stack => self.words(bytes, From::Stack),
        }
    }
}

impl Sweep<'_> {
    /// All nodes below this one have no further edges.
    fn begin(&mut self, node: u64) {
        let at = self.found.targets.len() as u32;
        if self.found.starts.len() < node as usize {
            self.found.starts.resize(node as usize, at);
        }
    }

    #[inline(always)]
    fn wanted(&self, physical: u64) -> Option<Node> {
        let node = self.table.node(physical)?;
        (self.states[node as usize] == state::LEAKED).then_some(node)
    }

    /// Takes an aligned word that is no physical address.
    #[inline(always)]
    fn word(&mut self, value: u64, from: From) {
        let physical = self.table.physical(value);
        if physical < self.span {
            if !self.again {
                if let Some(node) = self.wanted(physical) {
                    if u64::from(node) >= self.table.objects && from != From::Object(node) {
                        self.found.addressed.add(node);
                    }
                    self.plain(node, from);
                }
            }
        } else if value.wrapping_sub(self.page_array.0) < self.page_array.1 && from != From::PageArray && !self.again {
            self.page(value, from);
        }
    }

    #[inline(always)]
    fn plain(&mut self, node: Node, from: From) {
        match from {
            From::Object(holder) => {
                if holder != node && self.last != node {
                    self.last = node;
                    if self.found.targets.len() < u32::MAX as usize {
                        self.found.targets.push(node);
                    } else {
                        self.found.roots.add(node); // better held by mistake than leaked by mistake
                    }
                }
            }
            From::Stack => self.found.stacks.add(node),
            From::Root | From::PageArray => self.found.roots.add(node),
        }
    }

    /// Takes a pointer to the `struct page` of a large block.
    #[cold]
    fn page(&mut self, value: u64, from: From) {
        let pfn = (value - self.page_array.0) / self.page_array.2;
        if let Some(index) = self.table.slab_of_frame(pfn).filter(|index| is_large(self.table, *index)) {
            let node = self.table.slabs[index as usize].first;
            if self.states[node as usize] == state::LEAKED {
                self.found.paged.add(node);
                self.plain(node, from);
            }
        }
    }

    /// Takes the word at an index, whose value lies where physical addresses of objects do.
    #[inline(never)]
    fn device_address(&mut self, bytes: &[u8], index: usize, value: u64, from: From) {
        if let Some(node) = self.wanted(value) {
            if device_address::is_meant(self.table, self.states, bytes, index, value) {
                self.weak(node, from, true);
            }
        }
    }

    #[inline(never)]
    fn unaligned(&mut self, physical: u64, from: From) {
        if let Some(node) = self.wanted(physical) {
            self.weak(node, from, false);
        }
    }

    fn weak(&mut self, node: Node, from: From, by_physical: bool) {
        let found = &mut self.found;
        let weak = if by_physical { &mut found.physical } else { &mut found.unaligned };
        match from {
            From::Object(holder) if holder == node => {}
            From::Object(holder) => {
                if weak.edges.last() == Some(&(holder, node)) {
                } else if weak.edges.len() < self.room {
                    weak.edges.push((holder, node));
                } else {
                    found.overflow = true;
                }
            }
            _ => weak.roots.add(node),
        }
    }

    /// Takes all words of some bytes that begin at a multiple of 8.
    pub(super) fn words(&mut self, bytes: &[u8], from: From) {
        let mut before = 0u64;
        for (index, word) in bytes.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
            if value != 0 {
                if value < self.span {
                    if value >= device_address::LEAST {
                        self.device_address(bytes, index, value, from);
                    }
                } else {
                    self.word(value, from);
                }
                let physical = self.table.physical(before >> 32 | value << 32);
                if physical < self.span {
                    self.unaligned(physical, from);
                }
            }
            before = value;
        }
    }

    /// Takes the `struct page` of each page that is in use. Returns the page frames that hold the page array.
    fn page_array(
        &mut self,
        memory: &mut VirtualMemory,
        what: &Memory,
        control: &Control,
    ) -> Result<FrameSet, Stopped> {
        let mut own = FrameSet::default();
        let size = what.layout.size;
        let at_once = (memory.physical.granule() / size).max(1) as u64;
        let mut bytes = vec![0u8; at_once as usize * size];
        let mut before = 0;
        for &(start, end) in what.ranges {
            let mut pfn = start;
            while pfn < end {
                if control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let count = at_once.min(end - pfn);
                let at = (before + pfn - start) as usize;
                let kinds = what.kinds.get(at..at + count as usize).unwrap_or_default();
                let Some(address) = what.layout.page(pfn) else { break };
                let wanted = count as usize * size;
                show(self.table, memory, address, wanted as u64, &mut own);
                if kinds.iter().any(|kind| has_struct_page(*kind)) {
                    let got = memory.read(address, &mut bytes[..wanted]) / size;
                    self.found.bytes += (got * size) as u64;
                    for (page, _) in
                        bytes[..got * size].chunks_exact(size).zip(kinds).filter(|(_, kind)| has_struct_page(**kind))
                    {
                        self.words(page, From::PageArray);
                    }
                    control.add((got * size) as u64);
                }
                pfn += count;
            }
            before += end - start;
        }
        Ok(own)
    }
}

/// Notes the page frames behind a part of the page array.
pub fn show(table: &Table, memory: &mut VirtualMemory, address: u64, length: u64, own: &mut FrameSet) {
    let mut done = 0;
    while done < length {
        let Some(mapped) = memory.walker.translate(memory.physical, address + done) else {
            let Some(next) = memory.walker.gap(memory.physical, address + done) else {
                done += 1 << table.page_bits();
                continue;
            };
            done = next.saturating_sub(address).max(done + 1);
            continue;
        };
        let here = mapped.left.min(length - done).max(1);
        let first = mapped.physical >> table.page_bits();
        for pfn in first..=(mapped.physical + here - 1) >> table.page_bits() {
            own.insert(pfn);
        }
        done += here;
    }
}

impl Sweep<'_> {
    /// Takes the allocated objects of a slab.
    pub(super) fn slab(&mut self, index: u32, bytes: &[u8]) {
        let table = self.table;
        let slab = table.slabs[index as usize];
        self.begin(u64::from(slab.first));
        if is_large(table, index) {
            self.object(slab.first, bytes);
            return;
        }
        let cache = &table.caches[slab.cache as usize];
        let size = cache.size as usize;
        for slot in 0..u32::from(slab.objects) {
            let node = slab.first + slot;
            let start = slot as usize * size + cache.red_left as usize;
            let allocated = self.states[node as usize] < state::OWN;
            let object = bytes.get(start..start + cache.scanned as usize).filter(|_| allocated);
            self.object(node, object.unwrap_or_default());
        }
        // What lies behind the last object belongs to the allocator: extensions of objects.
        if cache.rest {
            let rest = bytes.get(usize::from(slab.objects) * size..).unwrap_or_default();
            self.words(rest, From::Root);
        }
    }

    fn object(&mut self, node: Node, bytes: &[u8]) {
        self.begin(u64::from(node));
        let at = self.found.targets.len() as u32;
        self.found.starts.push(at);
        self.last = Node::MAX;
        self.words(bytes, From::Object(node));
    }
}
