//! What a page's own words do not tell: per-CPU free lists, tasks' stacks, vmalloc.
//!
//! Each overlay is a set of page frames, gathered first; [`super::scan`] asks it about pages that are otherwise just the kernel's. A set takes
//! one bit for each page of the sections (16 MB with 4 KB pages) that have any: at most 1/32768 of the machine's memory, and a bound.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::layout::Layout;
use super::space::Space;
use super::Kind;
use crate::heap::Control;

const SECTION_BITS: u32 = 12;
const WORDS: usize = (1 << SECTION_BITS) / 64;

/// 8 TiB of pages of 4 KB, in 280 MB. An entry of a page table, eight bytes that may lie, can ask for a section of its own.
const MOST_SECTIONS: usize = 1 << 19;

/// A set of page frames.
#[derive(Default)]
pub struct Frames {
    sections: HashMap<u64, Box<[u64; WORDS]>, foldhash::fast::FixedState>,
}

impl Frames {
    /// Whether it was not there yet. None where there is no room for it: that many are a lie.
    pub fn insert(&mut self, pfn: u64) -> Option<bool> {
        let room = self.sections.len() < MOST_SECTIONS;
        let section = match self.sections.entry(pfn >> SECTION_BITS) {
            Entry::Occupied(section) => section.into_mut(),
            Entry::Vacant(place) if room => place.insert(Box::new([0; WORDS])),
            Entry::Vacant(_) => return None,
        };
        let bit = pfn as usize % (1 << SECTION_BITS);
        let fresh = section[bit / 64] >> (bit % 64) & 1 == 0;
        section[bit / 64] |= 1 << (bit % 64);
        Some(fresh)
    }

    pub fn contains(&self, pfn: u64) -> bool {
        let bit = pfn as usize % (1 << SECTION_BITS);
        self.sections.get(&(pfn >> SECTION_BITS)).is_some_and(|section| section[bit / 64] >> (bit % 64) & 1 != 0)
    }
}

/// Where the lists begin, and the offsets that lead through them.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Heads of per-CPU free lists (`struct list_head`), with the order of the pages on them.
    pub per_cpu: Vec<(u64, u32)>,
    /// Heads of the lists of vmap areas.
    pub vmap: Vec<u64>,
    /// vmap_area.list, .va_start, .va_end.
    pub vmap_area: [u64; 3],
    /// `init_task`; 0 for no tasks.
    pub first_task: u64,
    /// task_struct.tasks, .signal, .thread_node, .stack; signal_struct.thread_head.
    pub task: [u64; 4],
    pub thread_head: u64,
    /// THREAD_SIZE.
    pub stack_size: u64,
}

/// What was gathered, and what was wrong on the way.
#[derive(Default)]
pub struct Overlay {
    sets: Vec<(Kind, Frames)>,
    /// Lists that were left before their end, because a link led nowhere or its neighbour does not point back.
    pub broken: u64,
    /// More was said to be mapped than there is memory.
    pub endless: bool,
    pub tasks: u64,
    pub vmap_areas: u64,
}

/// Fills a set with the frames that virtual memory is mapped to. What lying structures can make it do is bounded by the machine's size.
struct Mapper<'r> {
    frames: Frames,
    /// The frames that anybody will ask about: not those of devices.
    ram: &'r [(u64, u64)],
    page_bits: u32,
    /// Steps that are left.
    budget: u64,
}

/// Virtual memory of vmalloc may be larger than what is mapped there, by so many gaps in its page tables.
const SPARE_REGIONS: u64 = 1 << 20;

/// However much memory a dump claims: 2 TiB of stacks, or of vmalloc, in pages of 4 KB.
const MOST_STEPS: u64 = 1 << 29;

/// Steps that a frame costs which was mapped before. Some are mapped twice, as rings of BPF; all of them again and again are a lie.
const AGAIN: u64 = 64;

impl Overlay {
    /// Follows all the lists. `ram` are the page frames that will be asked about, sorted.
    pub fn gather(lists: &Lists, layout: &Layout, ram: &[(u64, u64)], space: &mut Space, control: &Control) -> Overlay {
        let mut overlay = Overlay::default();
        let pages: u64 = ram.iter().map(|(start, end)| end - start).sum();
        let budget = pages.saturating_mul(2).min(MOST_STEPS) + SPARE_REGIONS;
        let mapper = || Mapper { frames: Frames::default(), ram, page_bits: layout.page_bits, budget };
        let sets = [
            (Kind::PerCpuFree, overlay.per_cpu(lists, layout, space, control)),
            (Kind::Stack, overlay.stacks(lists, mapper(), space, control)),
            (Kind::Vmalloc, overlay.vmalloc(lists, mapper(), space, control)),
        ];
        overlay.sets.extend(sets.into_iter().filter(|(_, set)| !set.sections.is_empty()));
        overlay
    }

    /// What the lists say of a page that is the kernel's by its own word.
    pub fn kind(&self, pfn: u64) -> Kind {
        self.sets.iter().find(|(_, set)| set.contains(pfn)).map_or(Kind::Kernel, |(kind, _)| *kind)
    }

    /// Calls `each` for every node's address. Every link is checked against the one back, so that no list, however damaged, is followed twice
    /// through the same node: it ends.
    fn follow(
        &mut self,
        head: u64,
        space: &mut Space,
        control: &Control,
        mut each: impl FnMut(&mut Overlay, &mut Space, u64),
    ) {
        let Some((first, _)) = space.links(head) else {
            self.broken += 1;
            return;
        };
        let (mut node, mut before) = (first, head);
        while node != head && !control.cancelled() {
            match space.links(node) {
                Some((next, prev)) if prev == before => {
                    each(self, space, node);
                    (before, node) = (node, next);
                }
                _ => {
                    self.broken += 1;
                    return;
                }
            }
        }
    }

    fn per_cpu(&mut self, lists: &Lists, layout: &Layout, space: &mut Space, control: &Control) -> Frames {
        let (mut frames, mut budget) = (Frames::default(), MOST_STEPS);
        for (head, order) in &lists.per_cpu {
            let pages = 1 << order.min(&layout.orders);
            self.follow(*head, space, control, |overlay, _, node| {
                match node.checked_sub(layout.lru as u64).and_then(|page| layout.pfn(page)) {
                    Some(pfn) if budget >= pages => {
                        budget -= pages;
                        overlay.endless |= !(0..pages).all(|i| frames.insert(pfn.saturating_add(i)).is_some());
                    }
                    Some(_) => overlay.endless = true,
                    None => overlay.broken += 1,
                }
            });
        }
        frames
    }

    /// The stacks of all threads, wherever they are mapped.
    fn stacks(&mut self, lists: &Lists, mut mapper: Mapper, space: &mut Space, control: &Control) -> Frames {
        if lists.first_task == 0 {
            return mapper.frames;
        }
        let [tasks, signal, thread_node, stack] = lists.task;
        let mut thread = |overlay: &mut Overlay, space: &mut Space, task: u64| {
            overlay.tasks += 1;
            match task.checked_add(stack).and_then(|at| space.word(at)) {
                Some(stack) => mapper.add(space, stack, stack.saturating_add(lists.stack_size), control),
                None => overlay.broken += 1,
            }
        };
        // Every process has a list of threads of its own: were all led to one, each would cost all of its threads.
        let mut known: HashSet<u64, foldhash::fast::FixedState> = HashSet::default();
        let mut process = |overlay: &mut Overlay, space: &mut Space, task: u64| match task
            .checked_add(signal)
            .and_then(|at| space.word(at)?.checked_add(lists.thread_head))
            .filter(|threads| known.insert(*threads))
        {
            Some(threads) => overlay.follow(threads, space, control, |overlay, space, node| {
                thread(overlay, space, node.wrapping_sub(thread_node));
            }),
            None => overlay.broken += 1,
        };
        // init_task is the head of the list of processes, and itself a thread.
        process(self, space, lists.first_task);
        self.follow(lists.first_task.wrapping_add(tasks), space, control, |overlay, space, node| {
            process(overlay, space, node.wrapping_sub(tasks));
        });
        self.endless |= mapper.budget == 0;
        mapper.frames
    }

    fn vmalloc(&mut self, lists: &Lists, mut mapper: Mapper, space: &mut Space, control: &Control) -> Frames {
        let [list, start, end] = lists.vmap_area;
        for head in &lists.vmap {
            self.follow(*head, space, control, |overlay, space, node| {
                let area = node.wrapping_sub(list);
                let at = |space: &mut Space, offset| space.word(area.wrapping_add(offset));
                match (at(space, start), at(space, end)) {
                    (Some(start), Some(end)) => {
                        overlay.vmap_areas += 1;
                        mapper.add(space, start, end, control);
                    }
                    _ => overlay.broken += 1,
                }
            });
        }
        self.endless |= mapper.budget == 0;
        mapper.frames
    }
}

impl Mapper<'_> {
    /// Adds the frames that `[start, end)` is mapped to.
    fn add(&mut self, space: &mut Space, start: u64, end: u64, control: &Control) {
        let page = 1u64 << self.page_bits;
        let mut at = start & !(page - 1);
        while at < end && self.budget > 0 && !control.cancelled() {
            self.budget -= 1;
            if let Some(behind) = space.walker.gap(space.physical, at) {
                at = behind;
                continue;
            }
            let mapped = space.walker.translate(space.physical, at);
            let length = mapped.map_or(page, |mapped| mapped.left.max(page));
            if let Some(mapped) = mapped {
                self.insert(mapped.physical >> self.page_bits, length.min(end - at).div_ceil(page));
            }
            at = at.saturating_add(length);
        }
    }

    /// Adds those of the frames that are memory.
    fn insert(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count);
        let from = self.ram.partition_point(|(_, end)| *end <= first);
        for (a, b) in self.ram[from..].iter().take_while(|(start, _)| *start < end) {
            for pfn in first.max(*a)..end.min(*b) {
                self.budget = match self.frames.insert(pfn) {
                    Some(fresh) => self.budget.saturating_sub(if fresh { 1 } else { AGAIN }),
                    None => 0,
                };
                if self.budget == 0 {
                    return;
                }
            }
        }
    }
}
