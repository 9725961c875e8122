//! Random heaps, written as glibc writes them.

use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::image::{Image, Segment, Source, KERNEL, PROCESS};

/// splitmix64: a few lines that give the same numbers on every machine.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A block of the heap. `chunk` is its header's address.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub chunk: u64,
    pub address: u64,
    pub usable: u64,
    pub free: bool,
    pub mmapped: bool,
    pub run: usize,
}

/// A piece of memory.
#[derive(Clone)]
pub struct Memory {
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Memory {
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    pub fn holds(&self, address: u64, size: u64) -> bool {
        address >= self.start && address + size <= self.end()
    }
}

/// A heap, and the memory around it.
#[derive(Clone)]
pub struct World {
    pub word: u64,
    pub memory: Vec<Memory>,
    pub runs: Vec<Run>,
    pub blocks: Vec<Made>,
    pub dead: Vec<(u64, u64)>,
    pub roots: Vec<(u64, u64)>,
    pub values: Vec<u64>,
    pub gaps: Vec<(u64, u64)>,
    pub holes: Vec<(u64, u64)>,
    /// Whether a pointer may begin at any byte.
    pub unaligned: bool,
    /// Whether a pointer may have a tag above its 47 or 48 bits.
    pub tagged: bool,
    /// Where blocks and roots may lie.
    pub addresses: (u64, u64),
}

/// Which pointers a program stores besides plain ones.
#[derive(Clone, Copy, PartialEq)]
enum Odd {
    None,
    Unaligned,
    Tagged,
}

/// How large the chunks are.
#[derive(Clone, Copy)]
pub enum Sizes {
    Small,
    /// Sizes up to more than the engine reads at once (256 KiB).
    Large,
}

impl World {
    pub fn new(dice: &mut Dice, word: u64, sizes: Sizes) -> World {
        World::made(dice, word, sizes, Odd::None, PROCESS)
    }

    /// A heap where a kernel has its memory.
    pub fn kernel(dice: &mut Dice, sizes: Sizes) -> World {
        World::made(dice, 8, sizes, Odd::None, KERNEL)
    }

    /// A heap whose program stores pointers at any byte.
    pub fn unaligned(dice: &mut Dice, word: u64, sizes: Sizes) -> World {
        World::made(dice, word, sizes, Odd::Unaligned, PROCESS)
    }

    /// A heap whose program stores tags in pointers.
    pub fn tagged(dice: &mut Dice, sizes: Sizes) -> World {
        World::made(dice, 8, sizes, Odd::Tagged, PROCESS)
    }

    fn made(dice: &mut Dice, word: u64, sizes: Sizes, odd: Odd, addresses: (u64, u64)) -> World {
        let mut world = World {
            word,
            memory: Vec::new(),
            runs: Vec::new(),
            blocks: Vec::new(),
            dead: Vec::new(),
            roots: Vec::new(),
            values: Vec::new(),
            gaps: Vec::new(),
            holes: Vec::new(),
            unaligned: odd == Odd::Unaligned,
            tagged: odd == Odd::Tagged,
            addresses,
        };
        let bases = match word {
            8 if addresses == KERNEL => [0xffff_8880_0000_0000, 0xffff_ffff_ff00_0000],
            8 => [0x5555_5555_0000, 0x7f00_0000_0000],
            _ => [0x0804_0000, 0xb700_0000],
        };
        world.main_run(dice, bases[0], sizes);
        let mut at = bases[1];
        for index in 0..dice.below(4) {
            at = if dice.one_in(2) {
                // The last chunk has its last word behind the end.
                world.chunk_run(dice, at + 0x890, Kind::Thread, index as u32 + 1, sizes) + word
            } else {
                world.mapped_run(dice, at, sizes)
            };
            at = at.next_multiple_of(0x1000) + 0x1000 * dice.below(3);
        }
        world.fill(dice);
        world.add_roots(dice, at + 0x10000);
        world
    }

    pub fn header(&self) -> u64 {
        2 * self.word
    }
    pub fn min_chunk(&self) -> u64 {
        (4 * self.word).next_multiple_of(16)
    }

    pub fn put(&mut self, address: u64, value: u64) {
        let word = self.word;
        let memory = self.memory.iter_mut().find(|m| m.holds(address, word)).expect("within the heap");
        let at = (address - memory.start) as usize;
        memory.bytes[at..at + word as usize].copy_from_slice(&value.to_le_bytes()[..word as usize]);
    }

    pub fn get(&self, address: u64) -> Option<u64> {
        if self.holes.iter().any(|h| h.0 < address + self.word && address < h.1) {
            return None;
        }
        let memory = self.memory.iter().find(|m| m.holds(address, self.word))?;
        let mut bytes = [0u8; 8];
        let at = (address - memory.start) as usize;
        bytes[..self.word as usize].copy_from_slice(&memory.bytes[at..at + self.word as usize]);
        Some(u64::from_le_bytes(bytes))
    }

    fn size(&self, dice: &mut Dice, sizes: Sizes) -> u64 {
        let most = match sizes {
            Sizes::Small => *dice.choose(&[2, 6, 40, 200]),
            Sizes::Large => *dice.choose(&[6, 400, 9000, 20000]),
        };
        self.min_chunk() + 16 * dice.below(most)
    }

    fn main_run(&mut self, dice: &mut Dice, base: u64, sizes: Sizes) {
        self.chunk_run(dice, base, Kind::Main, 0, sizes);
        if !dice.one_in(3) {
            return;
        }
        // Another caller took memory with sbrk: a double fencepost, foreign bytes, then chunks again, in one run.
        let (word, header) = (self.word, self.header());
        let first = self.runs.pop().expect("just made");
        let fence = first.end;
        let foreign = 16 * (1 + dice.below(64));
        let next = (fence + 2 * header + foreign + header).next_multiple_of(16) - header;
        let wanted = (next - self.memory[0].start) as usize;
        self.memory[0].bytes.resize(wanted, 0);
        let last_in_use = self.get(fence + word).expect("the old top") & 1;
        self.put(fence + word, header | last_in_use);
        self.put(fence + header + word, header | 1);
        for at in (fence + 2 * header..next).step_by(word as usize) {
            self.put(at, 0);
        }
        self.gaps.push((fence + 2 * header, next));
        let tail = self.memory.pop().expect("one piece");
        self.chunk_run(dice, next, Kind::Main, 0, sizes);
        let second = self.memory.pop().expect("just made");
        let mut joined = tail;
        joined.bytes.truncate((second.start - joined.start) as usize);
        joined.bytes.extend(second.bytes);
        self.memory.push(joined);
        let second = self.runs.pop().expect("just made");
        self.blocks.iter_mut().for_each(|b| b.run = 0);
        self.runs.push(Run { start: first.start, ..second });
    }

    /// Writes a stretch of chunks from `base` on, and top after it. Returns where it ends.
    fn chunk_run(&mut self, dice: &mut Dice, base: u64, kind: Kind, arena: u32, sizes: Sizes) -> u64 {
        let (word, header) = (self.word, self.header());
        let start = (base + header).next_multiple_of(16) - header;
        let flag = if kind == Kind::Thread { 4 } else { 0 };
        let mut chunks = Vec::new();
        let (mut at, mut before_free) = (start, false);
        for _ in 0..1 + dice.below(40) {
            let size = self.size(dice, sizes);
            let free = !before_free && dice.one_in(4);
            chunks.push((at, size, free));
            before_free = free;
            at += size;
        }
        let fenced = kind == Kind::Thread && dice.one_in(2);
        let end = if fenced { (at + 2 * header).next_multiple_of(16) } else { at }; // a heap ends with a page
        self.memory.push(Memory { start, bytes: vec![0; (end + 4 * header - start) as usize] });
        let run = self.runs.len();
        let mut in_use = 1;
        for &(chunk, size, free) in &chunks {
            // _int_free takes NON_MAIN_ARENA from a chunk that it puts into a bin.
            let mine = if free { 0 } else { flag };
            self.put(chunk + word, size | in_use | mine);
            in_use = u64::from(!free);
            if free {
                self.put(chunk + size, size);
            }
            let (address, usable) = (chunk + header, size - word);
            self.blocks.push(Made { chunk, address, usable, free, mmapped: false, run });
        }
        if fenced {
            // sysmalloc (malloc.c): the old top of a heap that cannot grow is freed between two fenceposts.
            self.put(at + word, header | in_use);
            self.put(at + header + word, 1);
        }
        self.put(end + word, 0x1000 | if fenced { 1 } else { in_use });
        self.runs.push(Run::of_chunks(start, end, kind, Owner::new(0, arena), 0));
        end
    }

    fn mapped_run(&mut self, dice: &mut Dice, base: u64, sizes: Sizes) -> u64 {
        let (word, header) = (self.word, self.header());
        let chunk = (base + header).next_multiple_of(16) - header;
        let size = (self.size(dice, sizes) + header).next_multiple_of(0x1000);
        let end = base + size;
        self.memory.push(Memory { start: base, bytes: vec![0; size as usize] });
        self.put(chunk + word, (end - chunk) | 2);
        let usable = end - chunk - header;
        let run = self.runs.len();
        self.runs.push(Run::of_chunks(chunk, end, Kind::Mmapped, Owner::new(0, u32::MAX), usable));
        self.blocks.push(Made { chunk, address: chunk + header, usable, free: false, mmapped: true, run });
        end
    }

    /// Returns a value of one of the kinds that matter: no address, into a block, its header, one past its end, near it,
    /// anywhere.
    fn value(&self, dice: &mut Dice) -> u64 {
        let block = dice.choose(&self.blocks);
        let value = match dice.below(16) {
            0..=2 => block.address,
            3 => block.address + dice.below(block.usable),
            4 => block.address + block.usable,
            5 => block.address + block.usable - 1,
            6 => block.chunk + dice.below(2 * self.word),
            7 => block.address.wrapping_sub(1),
            8 => dice.choose(&self.runs).end,
            9 => dice.next(),
            _ => 0,
        };
        match self.word {
            4 => value & 0xffff_ffff,
            _ if self.tagged && dice.one_in(2) => value | dice.next() << (47 + dice.below(2)),
            _ => value,
        }
    }

    /// Writes pointers and other values into every block and gap, free ones too. Then makes parts dead or missing.
    fn fill(&mut self, dice: &mut Dice) {
        for block in self.blocks.clone() {
            let words = block.usable / self.word;
            // A free chunk's last word is the next one's prev_size.
            let words = if block.free { words - 1 } else { words };
            for _ in 0..words.min(1 + dice.below(4)) {
                let at = block.address + self.place(dice, words);
                let value = self.value(dice);
                self.put(at, value);
            }
        }
        for (start, end) in self.gaps.clone() {
            let at = start + self.place(dice, (end - start) / self.word);
            let value = dice.choose(&self.blocks).address;
            self.put(at, value);
        }
        if dice.one_in(3) {
            let block = dice.choose(&self.blocks).clone();
            let start = block.address / self.word * self.word;
            self.dead.push((start, start + self.word * (1 + dice.below(block.usable / self.word))));
        } else if let Some(last) = self.blocks.iter().max_by_key(|block| block.address).filter(|last| !last.free) {
            // The last word of the last chunk stands where the run ends.
            let at = last.address / self.word * self.word + last.usable - self.word;
            let value = dice.choose(&self.blocks).address;
            self.put(at, value);
            self.dead.push((at, at + self.word));
        }
        // The missing part lies within one block, so every header is known. (The last word may be the next one's.)
        if dice.one_in(3) {
            let block = dice.choose(&self.blocks).clone();
            let start = block.address + dice.below(block.usable / 2);
            let end = start + 1 + dice.below(block.usable / 2 - 1);
            self.holes.push((start / self.word * self.word, end / self.word * self.word));
            self.holes.retain(|h| h.0 < h.1);
        }
    }

    /// Returns an offset in `words` words where a pointer may begin.
    fn place(&self, dice: &mut Dice, words: u64) -> u64 {
        if self.unaligned && dice.one_in(2) {
            return dice.below(self.word * (words - 1) + 1);
        }
        self.word * dice.below(words)
    }

    fn add_roots(&mut self, dice: &mut Dice, at: u64) {
        let count = 1 + dice.below(12);
        self.memory.push(Memory { start: at, bytes: vec![0; (count * self.word) as usize] });
        for i in 0..count {
            let value = self.value(dice);
            let place = if self.unaligned { self.place(dice, count) } else { i * self.word };
            self.put(at + place, value);
        }
        self.roots.push((at, at + count * self.word));
        for _ in 0..dice.below(3) {
            let value = self.value(dice);
            self.values.push(value);
        }
    }

    /// The memory without its holes.
    pub fn image(&self) -> Image {
        let mut segments = Vec::new();
        for memory in &self.memory {
            let mut at = memory.start;
            let mut cuts: Vec<_> = self.holes.iter().filter(|h| memory.holds(h.0, h.1 - h.0)).collect();
            cuts.sort();
            for &&(start, end) in cuts.iter().chain(&[&(memory.end(), memory.end())]) {
                if at < start {
                    let bytes = memory.bytes[(at - memory.start) as usize..(start - memory.start) as usize].into();
                    segments.push(Segment { start: at, end: start, source: Source::Bytes(bytes) });
                }
                at = at.max(end);
            }
        }
        Image::new(&[], segments).expect("no files").with_addresses(self.addresses)
    }
}
