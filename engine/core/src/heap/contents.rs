//! What the first words of every block hold: the *signature* of each block, and how many blocks have it.
//!
//! One pass over the blocks in address order. [`Signature`] says for each of the first words whether it is zero, a number,
//! text or a pointer, and where the pointer leads. A block that begins with a vtable pointer has the signature of that
//! vtable. The pass tells nothing apart that needs the whole heap: `graph::kinds` merges signatures into kinds.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use super::cached_reader::CachedReader;
use super::index::{chunk_of_word, edges_of, Block, Tables};
use super::number::Index;
use super::runs::{Kind, REGION};
use crate::control::{Control, Stopped};
use crate::hw;
use crate::image::Image;
use crate::words::word_at;

/// So many words of a block are looked at.
pub const WORDS: usize = 8;
/// Signatures of one size class that are told apart, and those that are told apart coarsely after that. A crafted dump
/// cannot make the tables larger.
const FINE: u32 = 256;
const COARSE: u32 = 512;
/// Signatures of all size classes together.
const MOST: usize = 1 << 16;
/// Values that point into modules whose target is remembered.
const REMEMBERED: usize = 1 << 18;
/// Bytes that are read at once.
const WINDOW: usize = 1 << 18;
/// Bytes at the start of a block that are needed: an exception's header has 128.
const HEAD: usize = 128;
/// Blocks whose pointers are being loaded.
const PENDING: usize = 16;
/// Granules that one step looks at.
const STEP: usize = 1 << 16;
/// Blocks of a larger size are put into classes, four for each power of two.
const EXACT: u64 = 1024;
/// The distance from an object's vtable pointer to the object's start that is believed.
const MOST_TO_TOP: i64 = 1 << 20;
/// Bytes of a mangled name that are looked at.
const MOST_NAME: usize = 256;

/// The kind of a word: its top byte. The other bits are the detail.
pub mod word_kind {
    /// The word is zero, or the block ends before it.
    pub const ZERO: u8 = 0;
    /// It points to a free block or to a header: left over from an earlier use of the memory.
    pub const LEFT_OVER: u8 = 1;
    /// A number below 65,536.
    pub const SMALL: u8 = 2;
    /// Any other bits.
    pub const NUMBER: u8 = 3;
    /// Text.
    pub const TEXT: u8 = 4;
    /// A pointer to code. The detail is the module and the offset in it.
    pub const CODE: u8 = 5;
    /// A pointer to a table of functions in a module's data. The detail is the module and the offset.
    pub const TABLE: u8 = 6;
    /// A pointer to a vtable with type information. The detail is the module and the offset.
    pub const VTABLE: u8 = 7;
    /// A pointer to a module's read-only data.
    pub const READ_ONLY: u8 = 8;
    /// A pointer to a module's writable data.
    pub const DATA: u8 = 9;
    /// A pointer to a block. The detail is the size class of the block.
    pub const HEAP: u8 = 10;
    /// A pointer to other memory.
    pub const ELSEWHERE: u8 = 11;
    /// A word below 2^32 that may be a short text or a number.
    pub const SHORT: u8 = 12;
}
use word_kind as k;

/// Returns the kind of a word of a signature.
#[inline(always)]
pub fn kind_of(word: u64) -> u8 {
    (word >> 56) as u8
}

/// Makes a word of a signature.
#[inline(always)]
pub const fn of(kind: u8, detail: u64) -> u64 {
    (kind as u64) << 56 | (detail & ((1 << 56) - 1))
}

/// What a part of a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Executable.
    Code,
    /// Read-only.
    ReadOnly,
    /// Writable.
    Data,
    /// Not a module: another mapping.
    Elsewhere,
}

/// Memory outside the heap.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// What it is.
    pub section: Section,
    /// The caller's number of the module.
    pub module: u16,
    /// What is subtracted from an address to get the offset in the module.
    pub bias: u64,
}

/// What is known of a block without its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// The words say something.
    Shape,
    /// An object. The first word of the signature is its vtable.
    Object,
    /// A C++ exception in flight. The first word of the signature is its type_info.
    Exception,
    /// Not told apart: the size class has too many signatures.
    Various,
    /// The block is not in the dump.
    Missing,
}

/// What the first words of a block hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The least size of the size class.
    pub class: u64,
    /// What is known.
    pub form: Form,
    /// The words.
    pub words: [u64; WORDS],
}

/// The blocks of one signature.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The signature.
    pub signature: Signature,
    /// How many blocks have it.
    pub count: u64,
    /// The words of the first block.
    pub sample: [u64; WORDS],
    /// How many bytes of each word, from its first, are the same in all blocks.
    pub same: [u8; WORDS],
    /// The blocks by their states.
    pub sum: Sum,
}

/// What a block in use is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Live.
    Live,
    /// Leaked, directly or not.
    Leaked,
    /// The allocator's own.
    Own,
}

/// Blocks by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Count and usable bytes of live blocks.
    pub live: (u64, u64),
    /// Of leaked blocks, directly or not.
    pub leaked: (u64, u64),
    /// Of the allocator's own.
    pub own: (u64, u64),
    /// The least and the largest usable size.
    pub sizes: Option<(u64, u64)>,
    /// The block with the lowest address.
    pub first: Option<u64>,
    /// The lowest of those that leaked.
    pub first_leaked: Option<u64>,
}

impl Sum {
    #[inline(always)]
    fn count(&mut self, address: u64, size: u64, part: Part) {
        let leaked = part == Part::Leaked;
        let part = match part {
            Part::Own => &mut self.own,
            Part::Leaked => &mut self.leaked,
            Part::Live => &mut self.live,
        };
        part.0 += 1;
        part.1 = part.1.saturating_add(size);
        self.first.get_or_insert(address);
        if leaked {
            self.first_leaked.get_or_insert(address);
        }
        let (least, most) = self.sizes.unwrap_or((size, size));
        self.sizes = Some((least.min(size), most.max(size)));
    }

    /// Adds the blocks of another sum.
    pub fn add(&mut self, other: &Sum) {
        let parts = [(&mut self.live, other.live), (&mut self.leaked, other.leaked), (&mut self.own, other.own)];
        for (part, more) in parts {
            *part = (part.0 + more.0, part.1.saturating_add(more.1));
        }
        let lower = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        self.first = lower(self.first, other.first);
        self.first_leaked = lower(self.first_leaked, other.first_leaked);
        self.sizes = match (self.sizes, other.sizes) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

impl Entry {
    /// Adds blocks whose words begin with `sample` and have `same` bytes in common.
    pub fn add(&mut self, count: u64, sample: &[u64; WORDS], same: &[u8; WORDS]) {
        self.count += count;
        let mut open = u64::from_le_bytes(self.same);
        while open != 0 {
            let i = open.trailing_zeros() as usize / 8;
            open &= !(0xff << (8 * i));
            let common = ((self.sample[i] ^ sample[i]).trailing_zeros() / 8) as u8;
            self.same[i] = self.same[i].min(same[i]).min(common);
        }
    }
}

/// The signatures of all blocks in use of one heap.
#[derive(Debug, Default)]
pub struct Census {
    /// Each signature once, in the order of its first block.
    pub entries: Vec<Entry>,
    /// For each block in use, in address order: the index of its entry.
    pub of_block: Vec<u32>,
    /// Blocks whose first words are not in the dump.
    pub missing: u64,
    /// Whether only direct leaks were looked at.
    pub direct: bool,
}

/// Returns the least and the largest size of the size class that a size belongs to.
pub fn size_class(size: u64) -> (u64, u64) {
    if size <= EXACT {
        return (size, size);
    }
    let step = 1u64 << (size.ilog2() - 2);
    let low = size / step * step;
    (low, low + (step - 1))
}

/// Folds 128-bit products, with keys that a dump cannot know.
#[derive(Clone)]
pub struct Keys(u64, u64);

impl Default for Keys {
    fn default() -> Self {
        let random = std::collections::hash_map::RandomState::new();
        Keys(random.hash_one(1u8), random.hash_one(2u8))
    }
}

/// The state of [`Keys`].
pub struct Fold {
    state: u64,
    key: u64,
}

impl BuildHasher for Keys {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold { state: self.0, key: self.1 }
    }
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.state
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    #[inline(always)]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.key | 1);
        self.state = (product as u64) ^ (product >> 64) as u64;
    }
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

impl std::hash::Hash for Signature {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.class ^ (self.form as u64) << 56);
        for &word in &self.words {
            state.write_u64(word);
        }
    }
}

/// The signatures that one thread has met, or all of them.
struct Table {
    entries: Vec<Entry>,
    found: HashMap<Signature, u32, Keys>,
    of_class: HashMap<u64, u32, Keys>,
    last: u32,
}

impl Table {
    fn new(keys: &Keys) -> Table {
        Table {
            entries: Vec::new(),
            found: HashMap::with_hasher(keys.clone()),
            of_class: HashMap::with_hasher(keys.clone()),
            last: 0,
        }
    }

    /// Returns the index of the signature's entry. Where there are too many, a coarser signature stands for it.
    #[inline(always)]
    fn index(&mut self, signature: &Signature, sample: &[u64; WORDS]) -> u32 {
        if self.entries.get(self.last as usize).is_some_and(|entry| entry.signature == *signature) {
            return self.last;
        }
        self.last = match self.found.get(signature) {
            Some(&index) => index,
            None => self.insert(*signature, sample),
        };
        self.last
    }

    #[cold]
    fn insert(&mut self, signature: Signature, sample: &[u64; WORDS]) -> u32 {
        let of_class = self.of_class.get(&signature.class).copied().unwrap_or(0);
        let full = self.entries.len() >= MOST;
        let wanted = match signature.form {
            Form::Various | Form::Missing => signature,
            Form::Shape if (FINE..COARSE).contains(&of_class) && !full => coarse(signature),
            _ if of_class >= COARSE || full => Signature { form: Form::Various, words: [0; WORDS], ..signature },
            _ => signature,
        };
        if let Some(&index) = self.found.get(&wanted) {
            return index;
        }
        *self.of_class.entry(wanted.class).or_insert(0) += 1;
        let index = self.entries.len() as u32;
        let width = [8; WORDS];
        self.entries.push(Entry { signature: wanted, count: 0, sample: *sample, same: width, sum: Sum::default() });
        self.found.insert(wanted, index);
        index
    }

    #[inline(always)]
    fn add(&mut self, waiting: &Waiting) -> u32 {
        let index = self.index(&waiting.signature, &waiting.raw);
        let entry = &mut self.entries[index as usize];
        entry.add(1, &waiting.raw, &[8; WORDS]);
        entry.sum.count(waiting.address, waiting.size, waiting.part);
        index
    }
}

/// Returns a signature that says less: which words are pointers, and into what.
fn coarse(signature: Signature) -> Signature {
    let words = signature.words.map(|word| match kind_of(word) {
        k::SMALL | k::SHORT | k::LEFT_OVER => of(k::NUMBER, 0),
        k::READ_ONLY => of(k::DATA, 0),
        k::CODE => of(k::CODE, 0),
        k::HEAP => of(k::HEAP, 0),
        _ => word,
    });
    Signature { words, ..signature }
}

/// Takes the signatures of all blocks in use; with `direct`, only of the blocks that begin at these granules (sorted).
/// `counted` says which blocks have leaked, and which are the allocator's own.
pub fn census<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    counted: Counted<I>,
    direct: Option<&[I]>,
    image: &Image,
    places: &[Place],
    threads: usize,
    control: &Control,
) -> Result<Census, Stopped> {
    let mut sorted: Vec<Place> = places.iter().filter(|p| p.start < p.end).copied().collect();
    sorted.sort_by_key(|p| p.start);
    let keys = Keys::default();
    let shares: Vec<Vec<Step<I>>> = match direct {
        Some(list) => list.chunks(list.len().div_ceil(threads.max(1)).max(1)).map(listed).collect(),
        None => shares(tables, threads.max(1)),
    };
    let stopped = AtomicBool::new(false);
    let work = |share: &[Step<I>]| {
        let mut pass = Pass::new(tables, counted, image, &sorted, &keys);
        for step in share {
            if control.cancelled() {
                stopped.store(true, Ordering::Relaxed);
                break;
            }
            hw::fast(|| pass.step(step));
        }
        pass.drain(0);
        (pass.table.entries, pass.of_block, pass.missing)
    };
    let parts: Vec<(Vec<Entry>, Vec<u32>, u64)> = std::thread::scope(|scope| {
        let others: Vec<_> = shares.iter().skip(1).map(|share| scope.spawn(|| work(share))).collect();
        let mut parts: Vec<_> = shares.first().map(|share| work(share)).into_iter().collect();
        parts.extend(others.into_iter().filter_map(|other| other.join().ok()));
        parts
    });
    if stopped.load(Ordering::Relaxed) || parts.len() < shares.len() {
        return Err(Stopped::Cancelled);
    }
    Ok(Census { direct: direct.is_some(), ..joined(parts, &keys) })
}

/// Puts the parts of the threads together, in address order.
fn joined(parts: Vec<(Vec<Entry>, Vec<u32>, u64)>, keys: &Keys) -> Census {
    let mut table = Table::new(keys);
    let mut census = Census::default();
    for (entries, of_block, missing) in parts {
        let renumbered: Vec<u32> = entries
            .iter()
            .map(|entry| {
                let index = table.index(&entry.signature, &entry.sample);
                let all = &mut table.entries[index as usize];
                all.add(entry.count, &entry.sample, &entry.same);
                all.sum.add(&entry.sum);
                index
            })
            .collect();
        census.missing += missing;
        if census.of_block.is_empty() {
            census.of_block = of_block;
            for index in &mut census.of_block {
                *index = renumbered[*index as usize];
            }
        } else {
            census.of_block.extend(of_block.iter().map(|&index| renumbered[index as usize]));
        }
    }
    census.entries = table.entries;
    census
}

/// Which blocks are not live.
#[derive(Clone, Copy)]
pub struct Counted<'a, I> {
    /// Regions with leaked blocks, in order, each with one bit a granule: begins a leaked block.
    pub leaked: &'a [(I, u64)],
    /// The granules of the allocator's own blocks, sorted.
    pub own: &'a [usize],
}

impl<I: Index> Counted<'_, I> {
    /// Returns what a block counts as. Blocks are asked for in address order: what lies before them is dropped.
    #[inline(always)]
    fn part(&mut self, granule: usize) -> Part {
        let region = granule / REGION;
        while self.leaked.first().is_some_and(|&(first, _)| first.get() < region) {
            self.leaked = &self.leaked[1..];
        }
        while self.own.first().is_some_and(|&first| first < granule) {
            self.own = &self.own[1..];
        }
        if self.own.first() == Some(&granule) {
            return Part::Own;
        }
        match self.leaked.first() {
            Some(&(first, mask)) if first.get() == region && mask >> (granule % REGION) & 1 != 0 => Part::Leaked,
            _ => Part::Live,
        }
    }
}

/// What one step looks at.
enum Step<'a, I> {
    /// Blocks of a run whose chunks begin at the granules `[from, end)`.
    Range { run: usize, from: usize, end: usize },
    /// The blocks that begin at these granules.
    List(&'a [I]),
}

/// Returns the steps for a list of granules.
fn listed<I>(list: &[I]) -> Vec<Step<'_, I>> {
    list.chunks(STEP).map(Step::List).collect()
}

/// Deals the heap out to the threads: adjacent memory to each.
fn shares<'a, I: Index, const P: usize>(tables: &Tables<I, P>, threads: usize) -> Vec<Vec<Step<'a, I>>> {
    let runs = &tables.word_map.runs;
    let each = tables.word_map.regions.max(1).div_ceil(threads) * REGION;
    let mut out: Vec<Vec<Step<I>>> = (0..threads).map(|_| Vec::new()).collect();
    for (run, placed) in runs.iter().enumerate() {
        let (mut from, last) = (placed.region * REGION, tables.word_map.region_end(run) * REGION);
        while from < last {
            let end = last.min(from + STEP);
            out[(from / each).min(threads - 1)].push(Step::Range { run, from, end });
            from = end;
        }
    }
    out
}

/// A block whose pointers are not resolved yet.
#[derive(Clone, Copy)]
struct Waiting {
    signature: Signature,
    raw: [u64; WORDS],
    address: u64,
    size: u64,
    part: Part,
    /// Which words are pointers into the heap. Their place in the signature holds the number of the target word.
    pointers: u8,
}

struct Pass<'a, I: Index, const P: usize> {
    counted: Counted<'a, I>,
    tables: &'a Tables<I, P>,
    image: &'a Image,
    places: &'a [Place],
    table: Table,
    of_block: Vec<u32>,
    missing: u64,
    window: Vec<u8>,
    window_at: u64,
    window_len: usize,
    waiting: Vec<Waiting>,
    next: usize,
    known: HashMap<u64, (u64, i64), Keys>,
    reader: CachedReader<'a>,
    last_place: usize,
    last_run: usize,
}

impl<'a, I: Index, const P: usize> Pass<'a, I, P> {
    const WORD: usize = 16 / P;

    fn new(
        tables: &'a Tables<I, P>,
        counted: Counted<'a, I>,
        image: &'a Image,
        places: &'a [Place],
        keys: &Keys,
    ) -> Self {
        Pass {
            counted,
            tables,
            image,
            places,
            table: Table::new(keys),
            of_block: Vec::new(),
            missing: 0,
            window: vec![0; WINDOW],
            window_at: 0,
            window_len: 0,
            waiting: Vec::with_capacity(PENDING),
            next: 0,
            known: HashMap::with_hasher(keys.clone()),
            reader: CachedReader::new(image),
            last_place: 0,
            last_run: 0,
        }
    }

    #[inline(always)]
    fn step(&mut self, step: &Step<I>) {
        let tables = self.tables;
        match *step {
            Step::Range { run, from, end } => tables.each_block(run, from, |granule| {
                if granule < end && !tables.is_free(granule) {
                    self.look(tables.block(run, granule));
                }
                granule < end
            }),
            Step::List(granules) => {
                for granule in granules.iter().map(|granule| granule.get()) {
                    self.look(tables.block(tables.word_map.run_of_granule(granule), granule));
                }
            }
        }
    }

    /// Reads the first words of a block and queues it.
    #[inline(always)]
    fn look(&mut self, block: Block) {
        let size = block.size as usize;
        let want = size.min(HEAD);
        let kind = self.tables.word_map.runs[block.run].run.kind;
        let have = self.fetch(block.address, want, kind.is_single());
        let class = size_class(block.size).0;
        let count = (want / Self::WORD).min(WORDS);
        let mut waiting = Waiting {
            signature: Signature { class, form: Form::Shape, words: [0; WORDS] },
            raw: [0; WORDS],
            address: block.address,
            size: block.size,
            part: self.counted.part(block.granule),
            pointers: 0,
        };
        if have < count * Self::WORD {
            self.missing += 1;
            waiting.signature.form = Form::Missing;
            self.queue(waiting);
            return;
        }
        let at = (block.address - self.window_at) as usize;
        for i in 0..count {
            waiting.raw[i] = word_at::<P>(&self.window, at + i * Self::WORD);
        }
        if want == HEAD && self.exception(at, &mut waiting) {
            self.queue(waiting);
            return;
        }
        self.heap_pointers(&block, kind, count, &mut waiting);
        let mut in_text = false;
        for i in 0..count {
            if waiting.pointers >> i & 1 != 0 {
                in_text = false;
                continue;
            }
            let (word, to_top) = self.classify(waiting.raw[i], &mut in_text);
            waiting.signature.words[i] = word;
            // Itanium C++ ABI, 2.5.2: the offset to top leads from a vtable pointer to the start of the whole object.
            if kind_of(word) == k::VTABLE && to_top == -((i * Self::WORD) as i64) {
                waiting.signature.form = Form::Object;
                waiting.signature.words = [0; WORDS];
                waiting.signature.words[0] = word;
                waiting.pointers = 0;
                break;
            }
        }
        self.queue(waiting);
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
    /// (cxa_exception.h) 128 bytes stand before the object: the type_info at +16, the exception class at +96.
    fn exception(&mut self, at: usize, waiting: &mut Waiting) -> bool {
        if P != 2 {
            return false;
        }
        let class = word_at::<P>(&self.window, at + 96);
        if !matches!(&class.to_be_bytes()[..7], b"GNUCC++" | b"CLNGC++") {
            return false;
        }
        let info = waiting.raw[2];
        let Some(place) = self.place_of(info) else { return false };
        if !self.is_type_info(info) {
            return false;
        }
        waiting.signature.form = Form::Exception;
        waiting.signature.words[0] = of(k::VTABLE, detail(&self.places[place], info));
        true
    }

    /// Finds the words that point into the heap, as marking sees them.
    #[inline(always)]
    fn heap_pointers(&self, block: &Block, kind: Kind, count: usize, waiting: &mut Waiting) {
        let regions = &self.tables.regions[..];
        if kind.is_single() {
            for i in 0..count {
                if let Some(target) = self.tables.word_map.word_of(waiting.raw[i]) {
                    waiting.pointers |= 1 << i;
                    waiting.signature.words[i] = target as u64;
                }
            }
            return;
        }
        let (mut edge, end) = edges_of(regions, block.granule);
        let first = block.granule * P + if kind == Kind::Slab { P } else { 2 };
        let edges = self.tables.edges.as_slice();
        for i in 0..count {
            if edge >= end {
                return;
            }
            let word = first + i;
            let bit = word % (REGION * P);
            if regions[word / (REGION * P)].ptr[bit / 64] >> (bit % 64) & 1 != 0 {
                let target = edges[edge].get();
                edge += 1;
                hw::prefetch(regions, target / (REGION * P));
                waiting.pointers |= 1 << i;
                waiting.signature.words[i] = target as u64;
            }
        }
    }

    /// Returns the word of the signature for a value that does not point into the heap. For a vtable also the offset to
    /// top.
    #[inline(always)]
    fn classify(&mut self, value: u64, in_text: &mut bool) -> (u64, i64) {
        if value == 0 {
            *in_text = false;
            return (0, 1);
        }
        let low = value >> 32 == 0;
        let goes_on = std::mem::take(in_text);
        // Up to four letters may be a number, and a low address of a program without PIE.
        if low && Self::WORD == 8 {
            if let Some(more) = text(value, Self::WORD, goes_on) {
                *in_text = more;
                return (of(if goes_on { k::TEXT } else { k::SHORT }, 0), 1);
            }
        }
        if value < 1 << 16 {
            return (of(k::SMALL, 0), 1);
        }
        if let Some(place) = self.place_of(value) {
            return self.pointer(place, value);
        }
        if let Some(more) = text(value, Self::WORD, goes_on) {
            *in_text = more;
            return (of(k::TEXT, 0), 1);
        }
        (of(k::NUMBER, 0), 1)
    }

    #[inline(always)]
    fn place_of(&mut self, value: u64) -> Option<usize> {
        let inside = |place: &Place| place.start <= value && value < place.end;
        if self.places.get(self.last_place).is_some_and(inside) {
            return Some(self.last_place);
        }
        let (first, last) = (self.places.first()?, self.places.last()?);
        if value < first.start || value >= last.end {
            return None;
        }
        let index = self.places.partition_point(|place| place.end <= value);
        self.places.get(index).is_some_and(inside).then(|| {
            self.last_place = index;
            index
        })
    }

    /// Returns the word for a pointer to a place outside the heap.
    fn pointer(&mut self, place: usize, value: u64) -> (u64, i64) {
        let found = self.places[place];
        match found.section {
            Section::Elsewhere => (of(k::ELSEWHERE, 0), 1),
            Section::Code => (of(k::CODE, detail(&found, value)), 1),
            Section::ReadOnly | Section::Data => {
                if let Some(&known) = self.known.get(&value) {
                    return known;
                }
                let word = self.table_at(&found, value);
                if self.known.len() < REMEMBERED {
                    self.known.insert(value, word);
                }
                word
            }
        }
    }

    /// Tells what a pointer into a module's data points to: a vtable, a table of functions, or other data.
    fn table_at(&mut self, place: &Place, value: u64) -> (u64, i64) {
        let plain = if place.section == Section::Data { k::DATA } else { k::READ_ONLY };
        let size = Self::WORD as u64;
        if value % size != 0 || value < 2 * size {
            return (of(plain, 0), 1);
        }
        if let Some([to_top, info]) = self.reader.words::<2>(value - 2 * size, size) {
            let to_top = if size == 4 { i64::from(to_top as u32 as i32) } else { to_top as i64 };
            if to_top <= 0 && to_top > -MOST_TO_TOP && self.is_type_info(info) {
                return (of(k::VTABLE, detail(place, value)), to_top);
            }
        }
        let first = self.reader.word(value, size).unwrap_or(0);
        let code = self.place_of(first).is_some_and(|at| self.places[at].section == Section::Code);
        (if code { of(k::TABLE, detail(place, value)) } else { of(plain, 0) }, 1)
    }

    /// Returns whether a type_info may be at an address. Itanium C++ ABI, 2.9.5: it is an object with a vtable, and its
    /// second word points to the mangled name.
    fn is_type_info(&mut self, info: u64) -> bool {
        let size = Self::WORD as u64;
        let in_module = |pass: &mut Self, value: u64| {
            pass.place_of(value).is_some_and(|at| pass.places[at].section != Section::Elsewhere)
        };
        if info % size != 0 || !in_module(self, info) {
            return false;
        }
        let Some([vtable, name]) = self.reader.words::<2>(info, size) else { return false };
        // In ARM's variant of the ABI, the top bit says that names are compared by address.
        let name = name & (u64::MAX >> (65 - 8 * size));
        if !in_module(self, vtable) || !in_module(self, name) {
            return false;
        }
        let mut bytes = [0; MOST_NAME];
        let got = self.image.read(name, &mut bytes);
        let length = bytes[..got].iter().position(|&byte| byte == 0).unwrap_or(got);
        length > 1
            && bytes[..length].iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$' | b'*'))
    }

    #[inline(always)]
    fn queue(&mut self, waiting: Waiting) {
        if self.waiting.len() < PENDING {
            self.waiting.push(waiting);
            return;
        }
        let mut oldest = std::mem::replace(&mut self.waiting[self.next], waiting);
        self.next = (self.next + 1) % PENDING;
        self.settle(&mut oldest);
    }

    /// Settles the blocks that wait until `left` of them are left.
    fn drain(&mut self, left: usize) {
        self.waiting.rotate_left(self.next);
        self.next = 0;
        let rest = self.waiting.split_off(self.waiting.len() - left.min(self.waiting.len()));
        for mut waiting in std::mem::replace(&mut self.waiting, rest) {
            self.settle(&mut waiting);
        }
    }

    /// Resolves the pointers of a block and counts its signature.
    #[inline(always)]
    fn settle(&mut self, waiting: &mut Waiting) {
        let mut mask = waiting.pointers;
        while mask != 0 {
            let i = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            waiting.signature.words[i] = self.target(waiting.signature.words[i] as usize);
        }
        let index = self.table.add(waiting);
        self.of_block.push(index);
    }

    /// Returns the word for a pointer to a word of the heap.
    #[inline(always)]
    fn target(&mut self, word: usize) -> u64 {
        let tables = self.tables;
        let Some(granule) = chunk_of_word(&tables.regions, word) else { return of(k::LEFT_OVER, 0) };
        if tables.is_free(granule) {
            return of(k::LEFT_OVER, 0);
        }
        let runs = &tables.word_map.runs;
        let region = granule / REGION;
        let here = runs[self.last_run].region <= region && region < tables.word_map.region_end(self.last_run);
        if !here {
            self.last_run = tables.word_map.run_of_granule(granule);
        }
        of(k::HEAP, size_class(tables.block(self.last_run, granule).size).0)
    }
}

/// Returns the detail of a pointer into a module: its number and the offset in it. It is the same in every process that
/// the caller gives the same number for the module.
fn detail(place: &Place, value: u64) -> u64 {
    u64::from(place.module) << 40 | (value.wrapping_sub(place.bias) & ((1 << 40) - 1))
}

/// Returns whether the word is text, and then whether the text goes on after it. At least three printable characters
/// must stand in a word before the NUL that ends it; one is enough where a text goes on. Bytes from 0x80 on may be UTF-8,
/// if ASCII stands beside them.
#[inline(always)]
fn text(value: u64, width: usize, goes_on: bool) -> Option<bool> {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    if width == 8 && value & HIGH == 0 && value.wrapping_sub(0x2020_2020_2020_2020) & HIGH == 0 && !has_delete(value) {
        return Some(true);
    }
    let [first, second, third, ..] = value.to_le_bytes();
    let may = |byte: u8| byte >= 0x80 || is_printed(byte);
    if !may(first) || !(goes_on || may(second) && may(third)) {
        return None;
    }
    let bytes = value.to_le_bytes();
    let length = bytes[..width].iter().position(|&byte| byte == 0).unwrap_or(width);
    let ascii = bytes[..length].iter().filter(|&&byte| is_printed(byte)).count();
    let other = bytes[..length].iter().filter(|&&byte| byte >= 0x80).count();
    let enough = if goes_on { 1 } else { 3 };
    if ascii + other != length || ascii < enough || other > ascii {
        return None;
    }
    // Behind the NUL a number has more bits; text that was copied there has none, or what was there before.
    let rest = bytes[length.min(width)..width].iter().any(|&byte| byte != 0);
    (goes_on || !rest || length >= 5).then_some(length == width)
}

/// Returns whether a byte of ASCII characters is DEL.
fn has_delete(value: u64) -> bool {
    let flipped = value ^ 0x7f7f_7f7f_7f7f_7f7f;
    flipped.wrapping_sub(0x0101_0101_0101_0101) & !flipped & 0x8080_8080_8080_8080 != 0
}

#[inline(always)]
fn is_printed(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn text_is_told_from_numbers() {
        assert_eq!(text(word(b"user-123"), 8, false), Some(true));
        assert_eq!(text(word(b"user"), 8, false), Some(false));
        assert_eq!(text(word(b"ab"), 8, false), None);
        assert_eq!(text(word(b"b"), 8, true), Some(false));
        assert_eq!(text(word("Jürgen".as_bytes()), 8, false), Some(false));
        assert_eq!(text(0x1234_5678_9abc_def0, 8, false), None);
        assert_eq!(text(0x0000_0001_0041_4141, 8, false), None);
    }

    #[test]
    fn size_classes_do_not_overlap() {
        assert_eq!(size_class(24), (24, 24));
        assert_eq!(size_class(1024), (1024, 1024));
        let mut size = 1025;
        while size < 1 << 30 {
            let (low, high) = size_class(size);
            assert!(low <= size && size <= high && high - low < size / 4 + 1);
            assert_eq!(size_class(high + 1).0, high + 1);
            assert_eq!(size_class(high).0, low);
            size = high + 1;
        }
        assert_eq!(size_class(u64::MAX).1, u64::MAX);
    }

    #[test]
    fn a_class_with_too_many_signatures_is_not_told_apart() {
        let mut table = Table::new(&Keys(1, 2));
        for i in 0..10_000u64 {
            let mut words = [0; WORDS];
            words[0] = of(k::CODE, i);
            words[1] = of(k::TABLE, i);
            let index = table.index(&Signature { class: 72, form: Form::Shape, words }, &[0; WORDS]);
            table.entries[index as usize].add(1, &[0; WORDS], &[8; WORDS]);
        }
        assert!(table.entries.len() <= COARSE as usize + 1);
        assert_eq!(table.entries.iter().map(|entry| entry.count).sum::<u64>(), 10_000);
    }
}
