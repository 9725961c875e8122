//! The pass over the blocks of a part of the heap.

use super::brief::Brief;
use super::counted::Counted;
use super::places::{Place, Places};
use super::signature::{class_index, kind_of, size_class, word_kind as k, Form, WORDS};
use super::sums::Part;
use super::table::Table;
use super::targets::{Hints, Pointers, Targets};
use crate::blocks::index::{Block, Each, Tables};
use crate::blocks::number::Index;
use crate::blocks::runs::Kind;
use crate::blocks::states::{State, States};
use crate::hw;
use crate::image::Image;
use crate::keys::Keys;
use crate::words::word_at;

/// Bytes that are read at once.
const WINDOW: usize = 1 << 18;
/// Bytes at the start of a block that are needed: an exception's header has 128, with words of four bytes 96.
const HEAD: usize = 128;
const HEAD_32: usize = 96;
/// Blocks whose pointers are being loaded.
const PENDING: usize = 16;
/// After so many more blocks: what a block points to has been loaded, then its slot, then that of a coarser signature.
const RESOLVED: usize = 6;
const COARSENED: usize = 9;
const LOADED: usize = 12;
/// The first seven bytes of an exception class.
const GNU_CLASS: u64 = u64::from_be_bytes(*b"\0GNUCC++");
const CLANG_CLASS: u64 = u64::from_be_bytes(*b"\0CLNGC++");

/// What one step looks at.
pub(super) enum Step<'a, I> {
    /// Blocks of a run whose chunks begin at the granules `[from, end)`.
    Range { run: usize, from: usize, end: usize },
    /// The blocks that begin at these granules.
    List(&'a [I]),
}

/// A block that waits for memory to be loaded: first for the blocks that it points to, then for the table of signatures.
#[derive(Clone, Copy)]
struct Waiting {
    counted: Counted,
    raw: [u64; WORDS],
    address: u64,
    size: u64,
    part: Part,
    /// Which words are pointers into the heap, and the numbers of the words that they lead to.
    pointers: u8,
    targets: [usize; WORDS],
}

/// The pass over the blocks that one thread looks at.
pub(super) struct Pass<'a, I: Index, const P: usize> {
    states: States<'a, I>,
    tables: &'a Tables<I, P>,
    edges: &'a [I],
    pointers: Pointers<'a, I, P>,
    targets: Targets<'a, I, P>,
    image: &'a Image,
    places: Places<'a, P>,
    pub table: Table,
    pub of_block: Vec<u32>,
    pub missing: u64,
    window: Vec<u8>,
    window_at: u64,
    window_len: usize,
    /// The last blocks, as a ring. The oldest is at `queued % PENDING`.
    waiting: Box<[Waiting; PENDING]>,
    queued: usize,
}

impl<I: Index, const P: usize> Each for Pass<'_, I, P> {
    #[inline(always)]
    fn take(&mut self, block: Block) -> bool {
        self.look(&block);
        true
    }
}

impl<'a, I: Index, const P: usize> Pass<'a, I, P> {
    const WORD: usize = 16 / P;
    /// Bytes of the words that are looked at.
    const BYTES: usize = WORDS * Self::WORD;
    const HEAD: usize = if P == 2 { HEAD } else { HEAD_32 };

    pub fn new(
        tables: &'a Tables<I, P>,
        hints: &'a Hints,
        states: States<'a, I>,
        image: &'a Image,
        places: &'a [Place],
        keys: &Keys,
    ) -> Self {
        let none = Waiting {
            counted: Counted::EMPTY,
            raw: [0; WORDS],
            address: 0,
            size: 0,
            part: Part::Live,
            pointers: 0,
            targets: [0; WORDS],
        };
        Pass {
            states,
            tables,
            edges: tables.edges.as_slice(),
            pointers: Pointers::new(tables),
            targets: Targets::new(tables, hints),
            image,
            places: Places::new(image, places, keys),
            table: Table::new(keys),
            of_block: Vec::new(),
            missing: 0,
            window: vec![0; WINDOW + Self::BYTES],
            window_at: 0,
            window_len: 0,
            waiting: Box::new([none; PENDING]),
            queued: 0,
        }
    }

    #[inline(always)]
    pub fn step(&mut self, step: &Step<I>) {
        let tables = self.tables;
        match *step {
            Step::Range { run, from, end } => {
                tables.each_block_to(run, (from, end), self);
            }
            Step::List(granules) => {
                for granule in granules.iter().map(|granule| granule.get()) {
                    self.look(&tables.block(tables.word_map.run_of_granule(granule), granule));
                }
            }
        }
    }

    /// Reads the first words of a block in use, and queues it.
    #[inline(always)]
    fn look(&mut self, block: &Block) {
        let part = match self.states.of(block) {
            State::Free => return,
            State::Live => Part::Live,
            State::Own => Part::Own,
            State::LeakedDirectly | State::LeakedIndirectly => Part::Leaked,
        };
        let want = usize::try_from(block.size).unwrap_or(Self::HEAD).min(Self::HEAD);
        let kind = self.tables.word_map.runs[block.run].run.kind;
        let have = self.fetch(block.address, want, kind.is_single());
        let count = (want / Self::WORD).min(WORDS);
        let place = self.queued % PENDING;
        if self.queued >= PENDING {
            self.settle(place);
        }
        let waiting = &mut self.waiting[place];
        (waiting.counted.is_brief, waiting.counted.coarse, waiting.counted.index) = (false, false, 0);
        (waiting.address, waiting.size, waiting.part, waiting.pointers) = (block.address, block.size, part, 0);
        if have < count * Self::WORD {
            waiting.raw = [0; WORDS];
            self.missing += 1;
            waiting.counted.packed.begin(block.size);
            waiting.counted.packed.form = Form::Missing;
            return self.queue();
        }
        let at = (block.address - self.window_at) as usize;
        // What lies behind a short block is loaded with it, and dropped: the CPU does that for all words at once.
        let bytes = &self.window[at..at + Self::BYTES];
        match bytes.try_into() {
            Ok(bytes) => waiting.raw = hw::first_words(bytes, count),
            Err(_) => {
                for i in 0..WORDS {
                    let value = word_at::<P>(bytes, i * Self::WORD);
                    waiting.raw[i] = if i < count { value } else { 0 };
                }
            }
        }
        if want == Self::HEAD && self.exception(at, place) {
            return self.queue();
        }
        self.heap_pointers(block, kind, count, place);
        self.classify(place);
        self.queue();
    }

    /// Finds what the words are that do not point into the heap.
    #[inline(always)]
    fn classify(&mut self, place: usize) {
        let waiting = &mut self.waiting[place];
        // Most words are 0, numbers or text, and need no closer look.
        let found = self.places.special(&waiting.raw);
        let open = !found.zero & !waiting.pointers;
        // A text may go on in the next word, whatever that looks like alone.
        let goes_on = (found.full & open) << 1 & !found.text;
        if P == 2 && (found.special | goes_on) & open == 0 {
            let (class, text) = (class_index(size_class(waiting.size).0), found.text & open);
            waiting.counted.brief = Brief::new(class, open & !text, found.large, text);
            waiting.counted.is_brief = true;
        } else {
            self.classify_each(place, found, open);
        }
    }

    /// Does the same word by word.
    #[inline(always)]
    fn classify_each(&mut self, place: usize, found: hw::Eight, open: u8) {
        let waiting = &mut self.waiting[place];
        waiting.counted.packed.begin(waiting.size);
        waiting.counted.packed.set_numbers(open, found.large);
        let special = if P == 2 { found.special | found.text } else { !found.zero };
        let (mut todo, mut in_text, mut next) = (special & open, false, 0);
        while todo != 0 {
            let i = todo.trailing_zeros() as usize;
            todo &= todo - 1;
            in_text &= i == next;
            let (word, to_top) = self.places.classify(waiting.raw[i], &mut in_text);
            // Itanium C++ ABI, 2.5.2: the offset to top leads from a vtable pointer to the start of the whole object.
            if kind_of(word) == k::VTABLE && to_top == -((i * Self::WORD) as i64) {
                waiting.counted.packed.set_form(Form::Object, word);
                waiting.pointers = 0;
                break;
            }
            waiting.counted.packed.set(i, word);
            next = i + 1;
            if in_text && next < WORDS {
                todo |= open & 1 << next;
            }
        }
    }

    /// Makes sure that the window holds `want` bytes from `address` on. Returns how many of them are in the dump.
    #[inline(always)]
    fn fetch(&mut self, address: u64, want: usize, single: bool) -> usize {
        let offset = address.wrapping_sub(self.window_at);
        if offset < self.window_len as u64 && self.window_len - offset as usize >= want {
            return want;
        }
        let len = if single { want } else { WINDOW };
        self.window_len = self.image.read(address, &mut self.window[..len]);
        self.window_at = address;
        self.window_len.min(want)
    }

    /// Recognises an exception in flight. In libstdc++ (unwind-cxx.h, __cxa_refcounted_exception) and libc++abi
    /// (cxa_exception.h) 128 bytes stand before the object: the type_info at +16, the exception class at +96. With words
    /// of four bytes libstdc++ has 96, the type_info at +16 and the class at +64.
    #[inline(always)]
    fn exception(&mut self, at: usize, place: usize) -> bool {
        // The class is a number of eight bytes, whatever the size of a word.
        let class = word_at::<2>(&self.window, at + if P == 2 { 96 } else { 64 });
        // The last byte tells a dependent exception from a primary one.
        if !matches!(class >> 8, GNU_CLASS | CLANG_CLASS) {
            return false;
        }
        let waiting = &mut self.waiting[place];
        let Some(word) = self.places.type_info(waiting.raw[16 / Self::WORD]) else { return false };
        waiting.counted.packed.begin(waiting.size);
        waiting.counted.packed.set_form(Form::Exception, word);
        true
    }

    /// Finds the words that point into the heap, as marking sees them.
    #[inline(always)]
    fn heap_pointers(&mut self, block: &Block, kind: Kind, count: usize, place: usize) {
        let waiting = &mut self.waiting[place];
        if kind.is_single() {
            for i in 0..count {
                if let Some(target) = self.tables.word_map.word_of(waiting.raw[i]) {
                    waiting.pointers |= 1 << i;
                    waiting.targets[i] = target;
                }
            }
            return;
        }
        let (mut mask, first) = self.pointers.of(block.granule, count, kind == Kind::Slab);
        waiting.pointers = mask;
        if mask == 0 {
            return;
        }
        for edge in &self.edges[first..] {
            let target = edge.get();
            self.targets.load(target);
            waiting.targets[mask.trailing_zeros() as usize] = target;
            mask &= mask - 1;
            if mask == 0 {
                break;
            }
        }
    }

    /// Queues the block that stands at the end of the ring. The one in the middle has what it waited for.
    #[inline(always)]
    fn queue(&mut self) {
        self.queued += 1;
        if self.queued >= RESOLVED {
            self.resolve((self.queued - RESOLVED) % PENDING);
        }
        if self.queued >= COARSENED {
            self.table.coarsen(&mut self.waiting[(self.queued - COARSENED) % PENDING].counted);
        }
        if self.queued >= LOADED {
            self.table.load(&mut self.waiting[(self.queued - LOADED) % PENDING].counted);
        }
    }

    /// Settles all blocks that wait.
    pub fn drain(&mut self) {
        let queued = self.queued;
        for nth in queued.saturating_sub(RESOLVED - 1)..queued {
            self.resolve(nth % PENDING);
        }
        for nth in queued.saturating_sub(PENDING)..queued {
            self.settle(nth % PENDING);
        }
    }

    /// Resolves the pointers of a block. Then its signature is complete.
    #[inline(always)]
    fn resolve(&mut self, place: usize) {
        let waiting = &mut self.waiting[place];
        let mut mask = waiting.pointers;
        if waiting.counted.is_brief {
            while mask != 0 {
                let i = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                waiting.counted.brief.set_target(i, self.targets.class(waiting.targets[i]));
            }
        } else {
            while mask != 0 {
                let i = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                waiting.counted.packed.set_target(i, self.targets.class(waiting.targets[i]));
            }
            waiting.counted.shorten();
        }
        waiting.counted.hash = self.table.hash(&waiting.counted);
    }

    /// Counts a block whose signature is complete.
    #[inline(always)]
    fn settle(&mut self, place: usize) {
        let waiting = &self.waiting[place];
        let block = (waiting.address, waiting.size);
        self.of_block.push(self.table.add(&waiting.counted, &waiting.raw, block, waiting.part));
    }
}
