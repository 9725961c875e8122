//! Free objects that are not on their slab's freelist: those of each CPU, and those in sheaves.
//!
//! All *possible* CPUs count. A panic stops the other CPUs and takes them offline, and their free objects stay where they
//! are.

use super::layout::Sheaves;
use super::layout::SlabLayout;
use super::table::{Node, Table};
use crate::control::Control;
use crate::kernel::virtual_memory::VirtualMemory;

/// The most objects in a sheaf. Kernels choose at most some hundred.
const MOST_IN_SHEAF: u32 = 1 << 12;
/// The most sheaves of all nodes together.
const MOST_SHEAVES: u64 = 1 << 22;

/// Where a free object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// On the freelist of this CPU (its number).
    Cpu(u32),
    /// In a sheaf.
    Sheaf,
}

/// A freelist, a sheaf or a list that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The number of the cache.
    pub cache: u32,
    /// The CPU whose freelist it is. None: a sheaf, or a list of sheaves.
    pub cpu: Option<u32>,
    /// The last object before the damage, as an address; 0 for none.
    pub after: u64,
    /// The word that is not valid.
    pub value: u64,
}

/// The free objects that CPUs and nodes keep.
#[derive(Debug, Default)]
pub struct Reserves {
    /// The objects, with where they were.
    pub free: Vec<(Node, Reserve)>,
    /// Objects that are sheaves. Their entries are no references, and the entries behind the last are stale.
    pub sheaves: Vec<Node>,
    /// How many free objects each cache has there.
    pub counts: Vec<u64>,
    /// What is damaged.
    pub broken: Vec<Broken>,
    /// How many lists, of each cache, lead into memory that the dump lacks. Free objects on their rest count as allocated.
    pub cut: Vec<u64>,
}

impl Reserves {
    /// Reads the lists of all caches. When cancelled it leaves out the rest.
    pub fn read(table: &Table, layout: &SlabLayout, memory: &mut VirtualMemory, control: &Control) -> Reserves {
        let none = vec![0; table.caches.len()];
        let mut found = Reserves { counts: none.clone(), cut: none, ..Reserves::default() };
        let mut left = MOST_SHEAVES;
        for number in 0..table.caches.len() {
            if control.cancelled() {
                break;
            }
            if let Some(offset) = layout.cpu_freelist {
                found.cpu_lists(table, layout, number as u32, offset, memory);
            }
            if let Some(sheaves) = &layout.sheaves {
                found.cpu_sheaves(table, layout, number as u32, sheaves, memory);
                found.barns(table, number as u32, sheaves, memory, &mut left);
            }
        }
        found.sheaves.sort_unstable();
        found.sheaves.dedup();
        found
    }

    fn cpu_lists(&mut self, table: &Table, layout: &SlabLayout, number: u32, offset: u64, memory: &mut VirtualMemory) {
        let cache = &table.caches[number as usize];
        if cache.cpu_slab == 0 {
            return;
        }
        for (cpu, shift) in layout.cpus.iter().enumerate() {
            let at = cache.cpu_slab.wrapping_add(*shift).wrapping_add(offset);
            match memory.word(at) {
                Some(0) => {}
                Some(first) => self.chain(table, number, cpu as u32, first, memory),
                None => self.unread(Broken { cache: number, cpu: Some(cpu as u32), after: 0, value: at }, at, memory),
            }
        }
    }

    /// Follows a CPU's freelist. All its objects lie in one slab.
    fn chain(&mut self, table: &Table, number: u32, cpu: u32, first: u64, memory: &mut VirtualMemory) {
        let cache = &table.caches[number as usize];
        let mut broken = Broken { cache: number, cpu: Some(cpu), after: 0, value: first };
        let Some((slab, mut node)) =
            table.exactly(first).filter(|(slab, _)| table.slabs[*slab as usize].cache == number)
        else {
            self.broken.push(broken);
            return;
        };
        let mut at = first;
        for _ in 0..table.slabs[slab as usize].objects {
            self.take(number, node, Reserve::Cpu(cpu));
            broken.after = at;
            let word_at = at.wrapping_add(u64::from(cache.offset));
            let Some(word) = memory.word(word_at) else { return self.unread(broken, word_at, memory) };
            let nexts = cache.next_free(word, word_at);
            if nexts.contains(&0) {
                return;
            }
            let next = nexts
                .into_iter()
                .find_map(|next| table.exactly(next).filter(|(other, _)| *other == slab).map(|(_, node)| (next, node)));
            match next {
                Some(next) => (at, node) = next,
                None => {
                    broken.value = nexts[0];
                    break;
                }
            }
        }
        self.broken.push(broken); // it does not end, or it leads elsewhere
    }

    /// Notes that a list leads to an address that cannot be read. It is damaged where nothing is mapped: no kernel has such
    /// a link. Where something is mapped, the dump lacks that page.
    fn unread(&mut self, broken: Broken, at: u64, memory: &mut VirtualMemory) {
        if memory.is_mapped(at) {
            self.cut[broken.cache as usize] += 1;
        } else {
            self.broken.push(broken);
        }
    }

    fn take(&mut self, cache: u32, node: Node, reserve: Reserve) {
        self.free.push((node, reserve));
        self.counts[cache as usize] += 1;
    }

    fn cpu_sheaves(
        &mut self,
        table: &Table,
        layout: &SlabLayout,
        number: u32,
        sheaves: &Sheaves,
        memory: &mut VirtualMemory,
    ) {
        let base = table.caches[number as usize].cpu_sheaves;
        if base == 0 {
            return;
        }
        for shift in &layout.cpus {
            for offset in &sheaves.of_cpu {
                let at = base.wrapping_add(*shift).wrapping_add(*offset);
                match memory.word(at) {
                    Some(0) => {}
                    Some(sheaf) => self.sheaf(table, number, sheaf, sheaves, memory),
                    None => self.cut[number as usize] += 1,
                }
            }
        }
    }

    fn barns(&mut self, table: &Table, number: u32, sheaves: &Sheaves, memory: &mut VirtualMemory, left: &mut u64) {
        for barn in &table.caches[number as usize].barns {
            for offset in &sheaves.of_barn {
                let head = barn.wrapping_add(*offset);
                let Some((mut node, _)) = memory.links(head) else {
                    self.cut[number as usize] += 1;
                    continue;
                };
                let mut before = head;
                while node != head {
                    match memory.links(node) {
                        Some((next, prev)) if prev == before && *left > 0 => {
                            *left -= 1;
                            self.sheaf(table, number, node.wrapping_sub(sheaves.list), sheaves, memory);
                            (before, node) = (node, next);
                        }
                        links => {
                            let broken = Broken { cache: number, cpu: None, after: before, value: node };
                            match links {
                                None => self.unread(broken, node, memory),
                                Some(_) => self.broken.push(broken),
                            }
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Takes the objects of a sheaf. A sheaf that belongs to another cache is damaged; a static one is empty.
    fn sheaf(&mut self, table: &Table, number: u32, sheaf: u64, sheaves: &Sheaves, memory: &mut VirtualMemory) {
        let at = |offset: u64| sheaf.wrapping_add(offset);
        if let Some((_, node)) = table.exactly(sheaf) {
            self.sheaves.push(node);
        }
        let broken = Broken { cache: number, cpu: None, after: sheaf, value: sheaf };
        let Some(size) = memory.bytes::<4>(at(sheaves.size)).map(u32::from_le_bytes) else {
            return self.unread(broken, at(sheaves.size), memory);
        };
        if size == 0 {
            return;
        }
        let Some(owner) = memory.word(at(sheaves.cache)) else {
            return self.unread(broken, at(sheaves.cache), memory);
        };
        if owner != table.caches[number as usize].address || size > MOST_IN_SHEAF {
            self.broken.push(Broken { value: owner, ..broken });
            return;
        }
        for index in 0..u64::from(size) {
            let place = at(sheaves.objects).wrapping_add(index * 8);
            let Some(object) = memory.word(place) else { return self.unread(broken, place, memory) };
            match table.exactly(object).filter(|(slab, _)| table.slabs[*slab as usize].cache == number) {
                Some((_, node)) => self.take(number, node, Reserve::Sheaf),
                None => {
                    self.broken.push(Broken { value: object, ..broken });
                    return;
                }
            }
        }
    }
}
