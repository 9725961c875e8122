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
}

impl Reserves {
    /// Reads the lists of all caches. When cancelled it leaves out the rest.
    pub fn read(table: &Table, layout: &SlabLayout, memory: &mut VirtualMemory, control: &Control) -> Reserves {
        let mut found = Reserves { counts: vec![0; table.caches.len()], ..Reserves::default() };
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
                None => self.broken.push(Broken { cache: number, cpu: Some(cpu as u32), after: 0, value: at }),
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
            let Some(word) = memory.word(word_at) else { break };
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
                if let Some(sheaf) = memory.word(at).filter(|sheaf| *sheaf != 0) {
                    self.sheaf(table, number, sheaf, sheaves, memory);
                }
            }
        }
    }

    fn barns(&mut self, table: &Table, number: u32, sheaves: &Sheaves, memory: &mut VirtualMemory, left: &mut u64) {
        for barn in &table.caches[number as usize].barns {
            for offset in &sheaves.of_barn {
                let head = barn.wrapping_add(*offset);
                let Some((mut node, _)) = memory.links(head) else { continue };
                let mut before = head;
                while node != head {
                    match memory.links(node) {
                        Some((next, prev)) if prev == before && *left > 0 => {
                            *left -= 1;
                            self.sheaf(table, number, node.wrapping_sub(sheaves.list), sheaves, memory);
                            (before, node) = (node, next);
                        }
                        _ => {
                            self.broken.push(Broken { cache: number, cpu: None, after: before, value: node });
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
        let size = memory.bytes::<4>(at(sheaves.size)).map_or(0, u32::from_le_bytes);
        if size == 0 {
            return;
        }
        let owner = memory.word(at(sheaves.cache)).unwrap_or(0);
        if owner != table.caches[number as usize].address || size > MOST_IN_SHEAF {
            self.broken.push(Broken { cache: number, cpu: None, after: sheaf, value: owner });
            return;
        }
        for index in 0..u64::from(size) {
            let object = memory.word(at(sheaves.objects).wrapping_add(index * 8)).unwrap_or(0);
            match table.exactly(object).filter(|(slab, _)| table.slabs[*slab as usize].cache == number) {
                Some((_, node)) => self.take(number, node, Reserve::Sheaf),
                None => {
                    self.broken.push(Broken { cache: number, cpu: None, after: sheaf, value: object });
                    return;
                }
            }
        }
    }
}
