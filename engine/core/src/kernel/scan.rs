//! Reads the page array from end to end, in pieces. So the memory needed does not depend on the machine's size.

use super::classify::{Page, Rules, Verdict, Words};
use super::identity::{Figures, Identity};
use super::kind::{Kind, KINDS};
use super::layout::Layout;
use super::listed_pages::ListedPages;
use super::shared::Shared;
use super::slabs::heads::Heads;
use super::virtual_memory::VirtualMemory;
use crate::control::Control;

/// Counts of what looks wrong in the page array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Pages whose `struct page` is not in the dump.
    pub missing: u64,
    /// Pages whose words contradict each other.
    pub nonsense: u64,
    /// Tails whose head is not a head, or not in the dump.
    pub lost_heads: u64,
    /// Free blocks of an impossible order. Each counts as one page.
    pub orders: u64,
    /// Pages within free blocks that say that they are used. Their own words are believed.
    pub used_in_free: u64,
    /// Pages that were left out, because the page tables lead to the same `struct page`s again and again.
    pub repeated: u64,
}

/// How often the page array is searched where it is mapped but missing in the dump. A dump is made for the page array, so
/// little of it should be missing: this many pages of it describe 4 TiB.
const PATIENCE: u64 = 1 << 24;

/// The result for all ranges.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Pages by number of the kind.
    pub kinds: [u64; KINDS.len()],
    /// What looks wrong.
    pub odd: Oddities,
    /// Figures of the cache of mappings.
    pub identity: Figures,
    /// Pages whose `struct page` was not read, because their free block was known.
    pub skipped: u64,
}

/// The head that was judged last, for its tails.
#[derive(Clone, Copy)]
struct Judged {
    head: u64,
    kind: Kind,
}

/// One pass over page frames in ascending order.
pub struct Scan<'a, 'p> {
    layout: &'a Layout,
    rules: Rules<'a>,
    listed: &'a ListedPages,
    memory: &'a mut VirtualMemory<'p>,
    identity: Identity,
    counts: Counts,
    /// Every page up to here (a page frame) belongs to a free block, of this kind.
    free_until: u64,
    free_kind: Kind,
    /// Something in that block is used, so each of its pages is read.
    doubted: bool,
    judged: Judged,
    /// The kind of each page, where asked for.
    each: Option<&'a mut Vec<u8>>,
    /// Slabs and other compound pages of the kernel, where asked for.
    heads: Option<&'a mut Heads<'p>>,
    /// How often the page array may still be searched in vain.
    patience: u64,
    shared: Shared,
    /// Tails that were met.
    tails: u64,
    /// `page._mapcount` and `._refcount` of a page that is neither mapped nor used, if they are one word.
    idle: Option<(usize, u64)>,
}

/// The piece of the page array that was read.
struct Piece<'w> {
    words: &'w Words,
    /// Words in a `struct page`.
    size: usize,
    first: u64,
    count: usize,
}

impl<'w> Piece<'w> {
    #[inline(always)]
    fn page(&self, index: usize) -> Option<Page<'w>> {
        if index >= self.count {
            return None;
        }
        self.words.get(index * self.size..(index + 1) * self.size).map(Page)
    }
}

impl<'a, 'p> Scan<'a, 'p> {
    /// Prepares a pass.
    pub fn new(
        layout: &'a Layout,
        listed: &'a ListedPages,
        memory: &'a mut VirtualMemory<'p>,
        remembered: usize,
        each: Option<&'a mut Vec<u8>>,
    ) -> Scan<'a, 'p> {
        let together = layout.mapcount % 8 == 0 && layout.refcount == layout.mapcount + 4;
        Scan {
            layout,
            rules: Rules::new(layout, &memory.walker.tables),
            listed,
            memory,
            identity: Identity::new(remembered),
            counts: Counts {
                kinds: [0; KINDS.len()],
                odd: Oddities::default(),
                identity: Figures::default(),
                skipped: 0,
            },
            free_until: 0,
            free_kind: Kind::Free,
            doubted: false,
            judged: Judged { head: 0, kind: Kind::Unknown },
            each,
            heads: None,
            patience: PATIENCE,
            shared: Shared::default(),
            tails: 0,
            idle: together.then_some((layout.mapcount, 0xffff_ffff)),
        }
    }

    /// Collects the heads of slabs, too.
    pub fn with_heads(mut self, heads: &'a mut Heads<'p>) -> Scan<'a, 'p> {
        self.heads = Some(heads);
        self
    }

    /// Classifies `[start, end)` of each range. The ranges must be sorted. When cancelled it leaves out the rest.
    pub fn run(mut self, ranges: &[(u64, u64)], control: &Control) -> Counts {
        let size = self.layout.size;
        let at_once = (self.memory.physical.granule() / size).next_power_of_two().max(2) as u64;
        let mut buffer = vec![0u64; at_once as usize * size / 8];
        for &(start, end) in ranges {
            let mut pfn = start;
            while pfn < end && !control.cancelled() {
                // Pieces end at multiples of the piece size, so a compound page's first two pages stay together.
                let until = (pfn / at_once + 1).saturating_mul(at_once).min(end);
                if self.free_until >= until {
                    self.counts.skipped += until - pfn;
                    self.add(self.free_kind, until - pfn);
                    pfn = until;
                } else {
                    pfn = self.piece(pfn, until, end, &mut buffer);
                }
                control.add((until - pfn.min(until)).saturating_mul(size as u64));
            }
        }
        self.counts.identity = self.identity.figures;
        self.counts
    }

    /// Reads and classifies some of `[pfn, until)`. Returns where to go on. That is beyond `until` where nothing is
    /// mapped up to there, at most `end`.
    fn piece(&mut self, pfn: u64, until: u64, end: u64, buffer: &mut [u64]) -> u64 {
        let size = self.layout.size;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer);
        let wanted = (until - pfn) as usize * size;
        if self.shared.is_a_lie() {
            self.counts.odd.repeated += end - pfn;
            self.add(Kind::Unknown, end - pfn);
            return end;
        }
        let Some(address) = self.layout.page(pfn) else {
            self.missing(end - pfn);
            return end;
        };
        let got = self.memory.read(address, &mut bytes[..wanted]) / size;
        if got == 0 {
            let lost = self.hole(address).div_ceil(size as u64).clamp(1, end - pfn);
            self.missing(lost);
            return pfn + lost;
        }
        let words = &buffer[..got * size / 8];
        // No kernel has a `struct page` of zeros: a page that is not used has a _mapcount of -1. A hole of a sparse file
        // is full of zeros.
        if words[..size / 8].iter().all(|word| *word == 0) {
            let empty = (self.empty(address) / size as u64).min(end - pfn);
            if empty > 0 {
                self.missing(empty);
                return pfn + empty;
            }
        }
        let (fresh, tails) = (self.show(address, got * size) / size as u64, self.tails);
        let piece = Piece { words, size: size / 8, first: pfn, count: got };
        let mut index = 0;
        while index < got {
            index += self.stretch(&piece, index);
        }
        self.shared.strange((got as u64 - (self.tails - tails)).saturating_sub(fresh));
        pfn + got as u64
    }

    /// Returns how many bytes from `address` on are a hole of the dump's file.
    fn empty(&mut self, address: u64) -> u64 {
        let Some(mapped) = self.memory.walker.translate(self.memory.physical, address) else { return 0 };
        self.memory.physical.hole(mapped.physical, mapped.left)
    }

    /// Notes where the page array's bytes lie that were read. Returns how many of them are new.
    fn show(&mut self, address: u64, bytes: usize) -> u64 {
        let (mut done, mut fresh) = (0, 0);
        while done < bytes as u64 {
            let Some(mapped) = self.memory.walker.translate(self.memory.physical, address + done) else { break };
            let length = mapped.left.min(bytes as u64 - done);
            fresh += self.shared.show(mapped.physical, mapped.physical.saturating_add(length));
            done += length;
        }
        fresh
    }

    /// Returns how many bytes of the page array from `address` on can be skipped, where the first is missing. These are
    /// whole pages of memory, everything that a missing page table would map, and the whole rest after too many searches
    /// in vain.
    fn hole(&mut self, address: u64) -> u64 {
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            return u64::MAX;
        }
        let page = 1u64 << self.layout.page_bits;
        let next = match self.memory.walker.gap(self.memory.physical, address) {
            Some(behind) => behind,
            None => (address | (page - 1)).saturating_add(1),
        };
        next - address
    }

    fn missing(&mut self, pages: u64) {
        self.counts.odd.missing += pages;
        self.add(Kind::Unknown, pages);
    }

    #[inline(always)]
    fn add(&mut self, kind: Kind, pages: u64) {
        self.counts.kinds[kind as usize] += pages;
        if let Some(each) = &mut self.each {
            each.extend(std::iter::repeat_n(kind as u8, pages as usize));
        }
    }

    /// Classifies the page at `index` and the pages that go with it. Returns how many pages that are.
    #[inline]
    fn stretch(&mut self, piece: &Piece, index: usize) -> usize {
        let pfn = piece.first + index as u64;
        if pfn < self.free_until && !self.doubted {
            let idle = self.idle_run(piece, index);
            if idle > 0 {
                self.add(self.free_kind, idle as u64);
                return idle;
            }
        }
        let Some(page) = piece.page(index) else { return 1 };
        if pfn >= self.free_until && self.rules.plainly_anonymous(page) {
            let more = (index + 1..piece.count).map_while(|i| piece.page(i));
            let run = 1 + more.take_while(|page| self.rules.plainly_anonymous(*page)).count();
            self.add(Kind::Anon, run as u64);
            return run;
        }
        let address = self.layout.page(pfn).unwrap_or(0);
        let next = piece.page(index + 1);
        match self.rules.head(page, address, next) {
            Some(head) if head == self.judged.head => self.tails(piece, index),
            Some(head) => {
                self.tails += 1;
                self.doubt(pfn);
                let kind = self.lost_head(head, pfn);
                self.count(kind, pfn);
                if let Some(heads) = &mut self.heads {
                    heads.add_lost(pfn, kind);
                }
                1
            }
            None => {
                let verdict = match (self.judge(page, pfn, next, address), self.listed.firm(pfn)) {
                    (Verdict::Is(_), Some(kind)) => Verdict::Is(kind),
                    (verdict, _) => verdict,
                };
                self.settle(verdict, page, pfn, address)
            }
        }
    }

    /// Returns how many pages from `index` on are idle and within the current free block.
    #[inline]
    fn idle_run(&self, piece: &Piece, index: usize) -> usize {
        let most = (self.free_until - piece.first).min(piece.count as u64) as usize;
        let Some((offset, idle)) = self.idle else { return 0 };
        let at = index * piece.size + offset / 8;
        let words = piece.words.get(at..).unwrap_or_default();
        words.iter().step_by(piece.size).take(most - index).take_while(|word| **word == u64::to_le(idle)).count()
    }

    /// Returns the tails from `index` on that name the head that was judged last.
    fn tails(&mut self, piece: &Piece, index: usize) -> usize {
        let mut count = 0;
        while let Some(page) = piece.page(index + count) {
            let pfn = piece.first + (index + count) as u64;
            let address = self.layout.page(pfn).unwrap_or(0);
            self.doubt(pfn);
            if self.rules.head(page, address, piece.page(index + count + 1)) != Some(self.judged.head) {
                break;
            }
            if self.judged.kind.may_be_listed() {
                self.count(self.judged.kind, pfn);
            } else {
                self.counts.kinds[self.judged.kind as usize] += 1;
                if let Some(each) = &mut self.each {
                    each.push(self.judged.kind as u8);
                }
            }
            count += 1;
        }
        if let (Some(heads), true) = (&mut self.heads, count > 0) {
            heads.add_tails(piece.first + index as u64, count as u64, self.judged.kind);
        }
        self.tails += count as u64;
        count.max(1)
    }

    /// Judges a page. `second` is read separately where the piece ends between the two.
    fn judge(&mut self, page: Page, pfn: u64, second: Option<Page>, address: u64) -> Verdict {
        let compound = page.word(self.layout.flags) & self.layout.compound != 0;
        if second.is_some() || !compound {
            return self.rules.judge(page, pfn, second, &mut self.identity, self.memory);
        }
        let words = self.struct_page(address.wrapping_add(self.layout.size as u64));
        self.rules.judge(page, pfn, words.as_deref().map(Page), &mut self.identity, self.memory)
    }

    /// Reads one `struct page`.
    fn struct_page(&mut self, address: u64) -> Option<Vec<u64>> {
        let mut words = vec![0u64; self.layout.size / 8];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        (self.memory.read(address, bytes) == self.layout.size).then_some(words)
    }

    /// Judges a tail whose head is before this piece, or is not valid.
    fn lost_head(&mut self, head: u64, tail: u64) -> Kind {
        let kind = self.distant_head(head, tail).unwrap_or_else(|| {
            self.counts.odd.lost_heads += 1;
            Kind::Unknown
        });
        if kind != Kind::Unknown {
            self.judged = Judged { head, kind };
        }
        kind
    }

    fn distant_head(&mut self, head: u64, tail: u64) -> Option<Kind> {
        let pfn = self.layout.pfn(head).filter(|pfn| *pfn < tail)?;
        let words = self.struct_page(head)?;
        let page = Page(&words);
        let flags = page.word(self.layout.flags);
        if page.word(self.layout.head) & 1 != 0 || (flags & self.layout.compound == 0 && flags != u64::MAX) {
            return None;
        }
        match self.judge(page, pfn, None, head) {
            Verdict::Is(kind) => Some(kind),
            _ => None,
        }
    }

    #[inline]
    fn settle(&mut self, verdict: Verdict, page: Page, pfn: u64, address: u64) -> usize {
        let inside = pfn < self.free_until;
        match verdict {
            // Blocks are aligned to their size, so one within another ends within it.
            Verdict::FreeBlock { kind, .. } if inside => self.add(kind, 1),
            Verdict::FreeBlock { order, sane, kind } => {
                self.counts.odd.orders += u64::from(!sane);
                self.free_until = pfn.saturating_add(1 << order);
                (self.free_kind, self.doubted) = (kind, false);
                self.add(kind, 1);
            }
            Verdict::Is(Kind::Kernel) if inside && self.unused(page) => self.add(self.free_kind, 1),
            Verdict::Is(kind) => {
                self.doubt(pfn);
                if page.word(self.layout.flags) & self.layout.compound != 0 {
                    self.judged = Judged { head: address, kind };
                }
                self.note_head(page, pfn, kind);
                self.count(kind, pfn);
            }
            Verdict::Nonsense => {
                self.doubt(pfn);
                self.counts.odd.nonsense += 1;
                self.add(Kind::Unknown, 1);
            }
        }
        1
    }

    /// Collects a slab, or another compound page that only the kernel uses.
    #[inline(always)]
    fn note_head(&mut self, page: Page, pfn: u64, kind: Kind) {
        let Some(heads) = &mut self.heads else { return };
        let compound = page.word(self.layout.flags) & self.layout.compound != 0;
        match kind {
            Kind::Slab | Kind::LargeKmalloc | Kind::Kfence => heads.add(page, pfn, kind),
            Kind::Kernel if compound && is_like_kmalloc(self.layout, page) && self.listed.kind(pfn).is_none() => {
                heads.add(page, pfn, kind);
            }
            _ => {}
        }
    }

    /// Counts a used page that lies within a free block.
    #[inline(always)]
    fn doubt(&mut self, pfn: u64) {
        if pfn < self.free_until {
            self.counts.odd.used_in_free += 1;
            self.doubted = true;
        }
    }

    fn unused(&self, page: Page) -> bool {
        page.half(self.layout.refcount) == 0 && page.word(self.layout.flags) & self.layout.compound == 0
    }

    /// Counts one page. The lists decide about one that is just the kernel's.
    #[inline]
    fn count(&mut self, kind: Kind, pfn: u64) {
        let listed = kind.may_be_listed().then(|| self.listed.kind(pfn)).flatten();
        self.add(listed.unwrap_or(kind), 1);
    }
}

/// Returns whether a compound page may be a block of kmalloc: nobody but its owner refers to it, and nothing is noted
/// in it. Page fragments for packets, rings and the like have more references, or words of their own.
fn is_like_kmalloc(layout: &Layout, page: Page) -> bool {
    let used = layout.has_private | layout.swapbacked | layout.swapcache | layout.kept | layout.reserved;
    page.half(layout.refcount) == 1 && page.word(layout.private) == 0 && page.word(layout.flags) & used == 0
}
