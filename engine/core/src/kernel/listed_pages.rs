//! Pages that lists describe better than their own words: pages on per-CPU free lists, stacks of tasks, vmalloc, and
//! those whose owner the caller knows.
//!
//! Each kind is a set of page frames, which is gathered first. Then [`super::scan`] looks up the pages that are otherwise
//! just the kernel's. A set takes one bit for each page of the sections (16 MB with 4 KB pages) that have any. That is at
//! most 1/32768 of the machine's memory, and it is bounded.

use std::collections::HashSet;

use super::frame_set::FrameSet;
use super::kind::Kind;
use super::layout::Layout;
use super::virtual_memory::VirtualMemory;
use crate::control::Control;

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
    /// signal_struct.thread_head.
    pub thread_head: u64,
    /// THREAD_SIZE.
    pub stack_size: u64,
    /// Pages whose owner is known: what they are, the first page frame, how many. The kind that is named first decides.
    pub owned: Vec<(Kind, u64, u64)>,
    /// Virtual memory whose owner is known: what it is, its start and end. It need not all be mapped.
    pub areas: Vec<(Kind, u64, u64)>,
}

/// The pages that were found, and what was wrong.
#[derive(Default)]
pub struct ListedPages {
    sets: Vec<(Kind, FrameSet)>,
    /// The set whose pages have its kind whatever their own words say.
    firm: Option<(Kind, FrameSet)>,
    /// Lists that were left before their end, because a link led nowhere or its neighbour does not point back.
    pub broken: u64,
    /// The lists claim more mapped memory than the machine has.
    pub endless: bool,
    /// How many tasks were found.
    pub tasks: u64,
    /// How many vmap areas were found.
    pub vmap_areas: u64,
}

/// Fills a set with the frames that virtual memory is mapped to. The machine's size bounds the work that damaged
/// structures can cause.
struct Mapper<'r> {
    frames: FrameSet,
    /// The frames of memory, without those of devices.
    ram: &'r [(u64, u64)],
    page_bits: u32,
    /// Steps that are left.
    budget: u64,
}

/// How many gaps in the page tables vmalloc's areas may have: an area may be larger than what is mapped there.
const SPARE_REGIONS: u64 = 1 << 20;

/// The most steps, whatever the dump claims: 2 TiB of stacks, or of vmalloc, in pages of 4 KB.
const MOST_STEPS: u64 = 1 << 29;

/// How many steps a frame costs that was mapped before. Some frames are honestly mapped twice, as rings of BPF. Many of
/// them mean a damaged dump.
const AGAIN: u64 = 64;

impl ListedPages {
    /// Follows all the lists. `ram` are the page frames that will be looked up, sorted.
    pub fn gather(
        lists: &Lists,
        layout: &Layout,
        ram: &[(u64, u64)],
        memory: &mut VirtualMemory,
        control: &Control,
    ) -> ListedPages {
        let mut found = ListedPages::default();
        let pages: u64 = ram.iter().map(|(start, end)| end - start).sum();
        let budget = pages.saturating_mul(2).min(MOST_STEPS) + SPARE_REGIONS;
        let mapper = || Mapper { frames: FrameSet::default(), ram, page_bits: layout.page_bits, budget };
        // An owner may still name a page that is free by now. So the free lists come first.
        let free = found.per_cpu(lists, layout, memory, control);
        found.sets.extend((!free.is_empty()).then_some((Kind::PerCpuFree, free)));
        found.owned(lists, mapper(), memory, control);
        let firm = found.sets.iter().position(|(kind, _)| kind.is_always_listed());
        found.firm = firm.map(|at| found.sets.remove(at));
        let sets = [
            (Kind::Stack, found.stacks(lists, mapper(), memory, control)),
            (Kind::Vmalloc, found.vmalloc(lists, mapper(), memory, control)),
        ];
        found.sets.extend(sets.into_iter().filter(|(_, set)| !set.is_empty()));
        found
    }

    /// Returns the kind of a page by its owner, or None if no list has it.
    pub fn kind(&self, pfn: u64) -> Option<Kind> {
        self.sets.iter().find(|(_, set)| set.contains(pfn)).map(|(kind, _)| *kind)
    }

    /// Returns the kind of a page whose owner knows better than its `struct page`, or None.
    #[inline(always)]
    pub fn firm(&self, pfn: u64) -> Option<Kind> {
        self.firm.as_ref().filter(|(_, set)| set.contains(pfn)).map(|(kind, _)| *kind)
    }

    /// Calls `each` for every node's address. Each link must agree with the link back. So even a damaged list visits no
    /// node twice, and ends.
    fn follow(
        &mut self,
        head: u64,
        memory: &mut VirtualMemory,
        control: &Control,
        mut each: impl FnMut(&mut ListedPages, &mut VirtualMemory, u64),
    ) {
        let Some((first, _)) = memory.links(head) else {
            self.broken += 1;
            return;
        };
        let (mut node, mut before) = (first, head);
        while node != head && !control.cancelled() {
            match memory.links(node) {
                Some((next, prev)) if prev == before => {
                    each(self, memory, node);
                    (before, node) = (node, next);
                }
                _ => {
                    self.broken += 1;
                    return;
                }
            }
        }
    }

    fn per_cpu(&mut self, lists: &Lists, layout: &Layout, memory: &mut VirtualMemory, control: &Control) -> FrameSet {
        let (mut frames, mut budget) = (FrameSet::default(), MOST_STEPS);
        for (head, order) in &lists.per_cpu {
            let pages = 1 << order.min(&layout.orders);
            self.follow(*head, memory, control, |found, _, node| {
                match node.checked_sub(layout.lru as u64).and_then(|page| layout.pfn(page)) {
                    Some(pfn) if budget >= pages => {
                        budget -= pages;
                        found.endless |= !(0..pages).all(|i| frames.insert(pfn.saturating_add(i)).is_some());
                    }
                    Some(_) => found.endless = true,
                    None => found.broken += 1,
                }
            });
        }
        frames
    }

    /// Makes a set for each kind that owned pages have.
    fn owned(&mut self, lists: &Lists, mut mapper: Mapper, memory: &mut VirtualMemory, control: &Control) {
        for (kind, first, count) in &lists.owned {
            self.within(*kind, &mut mapper, |mapper| mapper.insert(*first, *count));
        }
        for (kind, start, end) in &lists.areas {
            self.within(*kind, &mut mapper, |mapper| mapper.add(memory, *start, *end, control));
        }
        self.endless |= mapper.budget == 0;
    }

    /// Has the mapper fill the set of that kind.
    fn within<'r>(&mut self, kind: Kind, mapper: &mut Mapper<'r>, fill: impl FnOnce(&mut Mapper<'r>)) {
        let at = self.sets.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            self.sets.push((kind, FrameSet::default()));
            self.sets.len() - 1
        });
        std::mem::swap(&mut mapper.frames, &mut self.sets[at].1);
        fill(mapper);
        std::mem::swap(&mut mapper.frames, &mut self.sets[at].1);
    }

    /// Finds the stacks of all threads, wherever they are mapped.
    fn stacks(&mut self, lists: &Lists, mut mapper: Mapper, memory: &mut VirtualMemory, control: &Control) -> FrameSet {
        if lists.first_task == 0 {
            return mapper.frames;
        }
        let [tasks, signal, thread_node, stack] = lists.task;
        let mut thread = |found: &mut ListedPages, memory: &mut VirtualMemory, task: u64| {
            found.tasks += 1;
            match task.checked_add(stack).and_then(|at| memory.word(at)) {
                Some(stack) => mapper.add(memory, stack, stack.saturating_add(lists.stack_size), control),
                None => found.broken += 1,
            }
        };
        // Every process has its own list of threads. If all led to one list, each would cost all of its threads.
        let mut known: HashSet<u64, foldhash::fast::FixedState> = HashSet::default();
        let mut process = |found: &mut ListedPages, memory: &mut VirtualMemory, task: u64| match task
            .checked_add(signal)
            .and_then(|at| memory.word(at)?.checked_add(lists.thread_head))
            .filter(|threads| known.insert(*threads))
        {
            Some(threads) => found.follow(threads, memory, control, |found, memory, node| {
                thread(found, memory, node.wrapping_sub(thread_node));
            }),
            None => found.broken += 1,
        };
        // init_task is the head of the list of processes, and also a thread.
        process(self, memory, lists.first_task);
        self.follow(lists.first_task.wrapping_add(tasks), memory, control, |found, memory, node| {
            process(found, memory, node.wrapping_sub(tasks));
        });
        self.endless |= mapper.budget == 0;
        mapper.frames
    }

    fn vmalloc(
        &mut self,
        lists: &Lists,
        mut mapper: Mapper,
        memory: &mut VirtualMemory,
        control: &Control,
    ) -> FrameSet {
        let [list, start, end] = lists.vmap_area;
        for head in &lists.vmap {
            self.follow(*head, memory, control, |found, memory, node| {
                let area = node.wrapping_sub(list);
                let at = |memory: &mut VirtualMemory, offset| memory.word(area.wrapping_add(offset));
                match (at(memory, start), at(memory, end)) {
                    (Some(start), Some(end)) => {
                        found.vmap_areas += 1;
                        mapper.add(memory, start, end, control);
                    }
                    _ => found.broken += 1,
                }
            });
        }
        self.endless |= mapper.budget == 0;
        mapper.frames
    }
}

impl Mapper<'_> {
    /// Adds the frames that `[start, end)` is mapped to.
    fn add(&mut self, memory: &mut VirtualMemory, start: u64, end: u64, control: &Control) {
        let page = 1u64 << self.page_bits;
        let mut at = start & !(page - 1);
        while at < end && self.budget > 0 && !control.cancelled() {
            self.budget -= 1;
            if let Some(behind) = memory.walker.gap(memory.physical, at) {
                at = behind;
                continue;
            }
            let mapped = memory.walker.translate(memory.physical, at);
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
