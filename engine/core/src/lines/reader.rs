//! A reader of DWARF sections that bounds time, memory and recursion.
//!
//! `addr2line` checks what it reads, but it does not bound how often it reads it. A small file can name the same large table a
//! million times, and nested inlined functions recurse. Each step of the parser reads through [`Bounded`], so a limit here
//! bounds them all.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gimli::{EndianSlice, Error, Reader, ReaderOffsetId, Result, RunTimeEndian};

/// The longest string that is read: the same bound as for a name to demangle.
const MAX_STRING: usize = 1 << 14;

/// The cost of a LEB128 number and of a byte. Memory grows with them: each entry of .debug_info, and each abbreviation, begins
/// with a LEB128 number (up to 120 bytes of tables), each row of the line table with a byte (24 bytes).
const LEB128: u64 = 16;
const BYTE: u64 = 8;

/// Each byte of a section allows this much work. The whole of honest debug information needs less than half of it.
const WORK_PER_BYTE: u64 = 16;
const WORK_AT_LEAST: u64 = 4 << 20;

/// Stack that must be free at every read. The code below a read needs much less.
const STACK_RESERVE: usize = 256 << 10;

/// What is left of the bounds. Shared by all sections of a file and of the files that it needs.
#[derive(Debug)]
pub(crate) struct Limits {
    work: AtomicU64,
    /// All the work that was ever allowed.
    allowed: AtomicU64,
    lowest_stack: AtomicUsize,
}

impl Limits {
    pub(crate) fn new() -> Limits {
        let [work, allowed] = [WORK_AT_LEAST; 2].map(AtomicU64::new);
        Limits { work, allowed, lowest_stack: AtomicUsize::new(0) }
    }

    /// Allows the work that a section of this many bytes may need.
    pub(crate) fn allow(&self, bytes: usize) {
        for each in [&self.work, &self.allowed] {
            let work = each.load(Ordering::Relaxed).saturating_add((bytes as u64).saturating_mul(WORK_PER_BYTE));
            each.store(work, Ordering::Relaxed);
        }
    }

    /// Returns the work that was done. It does not depend on the machine.
    pub(crate) fn done(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed).saturating_sub(self.work.load(Ordering::Relaxed))
    }

    /// Says that this thread was started with `size` bytes of stack, of which little is used yet.
    pub(crate) fn on_stack_of(&self, size: usize) {
        self.lowest_stack.store(stack_pointer().saturating_sub(size.saturating_sub(STACK_RESERVE)), Ordering::Relaxed);
    }

    fn charge(&self, cost: u64) -> Result<()> {
        // One lookup at a time: nobody else writes between the two.
        let left = self.work.load(Ordering::Relaxed).checked_sub(cost).ok_or(Error::TooManyIterations)?;
        self.work.store(left, Ordering::Relaxed);
        Ok(())
    }

    fn check_stack(&self) -> Result<()> {
        if stack_pointer() < self.lowest_stack.load(Ordering::Relaxed) {
            return Err(Error::StackFull);
        }
        Ok(())
    }
}

/// An address close to the stack pointer.
#[inline(always)]
fn stack_pointer() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)) as usize
}

/// A part of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded<'a> {
    bytes: EndianSlice<'a, RunTimeEndian>,
    limits: &'a Limits,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(bytes: &'a [u8], endian: RunTimeEndian, limits: &'a Limits) -> Bounded<'a> {
        Bounded { bytes: EndianSlice::new(bytes, endian), limits }
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes.slice()
    }

    fn charge_string(&self) -> Result<()> {
        if self.bytes.len() > MAX_STRING {
            return Err(Error::TooManyIterations);
        }
        self.limits.charge(self.bytes.len() as u64)
    }
}

impl Reader for Bounded<'_> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> RunTimeEndian {
        self.bytes.endian()
    }

    #[inline]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.bytes.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        self.bytes.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.bytes.offset_from(base.bytes)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.bytes.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.bytes.lookup_offset_id(id)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let found = Reader::find(&self.bytes, byte);
        // Eight bytes at a time, and no memory is taken.
        let gone = *found.as_ref().unwrap_or(&self.bytes.len());
        self.limits.charge(1 + gone as u64 / 8)?;
        found
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        self.limits.charge(1)?;
        self.bytes.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        self.limits.charge(1)?;
        Ok(Bounded { bytes: self.bytes.split(len)?, limits: self.limits })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.charge_string()?;
        self.bytes.to_slice()
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.charge_string()?;
        Reader::to_string(&self.bytes)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.charge_string()?;
        Reader::to_string_lossy(&self.bytes)
    }

    #[inline]
    fn read_slice(&mut self, buf: &mut [u8]) -> Result<()> {
        self.limits.charge(buf.len() as u64)?;
        Reader::read_slice(&mut self.bytes, buf)
    }

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        self.limits.charge(BYTE)?;
        self.bytes.read_u8()
    }

    #[inline]
    fn skip_leb128(&mut self) -> Result<()> {
        self.limits.charge(1)?;
        self.bytes.skip_leb128()
    }

    #[inline]
    fn read_uleb128(&mut self) -> Result<u64> {
        self.limits.check_stack()?;
        self.limits.charge(LEB128)?;
        self.bytes.read_uleb128()
    }

    #[inline]
    fn read_uleb128_u32(&mut self) -> Result<u32> {
        self.limits.charge(LEB128)?;
        self.bytes.read_uleb128_u32()
    }

    #[inline]
    fn read_uleb128_u16(&mut self) -> Result<u16> {
        self.limits.charge(LEB128)?;
        self.bytes.read_uleb128_u16()
    }

    #[inline]
    fn read_sleb128(&mut self) -> Result<i64> {
        self.limits.charge(LEB128)?;
        self.bytes.read_sleb128()
    }
}

/// A sentence about an error, for a person who has never heard of DWARF.
pub(crate) fn describe(error: Error) -> String {
    match error {
        Error::TooManyIterations => "the debug information asks for more work than its size justifies".to_string(),
        Error::StackFull => "the debug information nests its inlined functions too deeply".to_string(),
        error => format!("the debug information is damaged ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_the_limit_is_reached() {
        let limits = Limits::new();
        let zeros = [0u8; 64];
        let mut reads = 0u64;
        while Bounded::new(&zeros, RunTimeEndian::Little, &limits).read_uleb128().is_ok() {
            reads += 1;
        }
        assert_eq!(reads, WORK_AT_LEAST / LEB128);
        limits.allow(zeros.len());
        assert!(Bounded::new(&zeros, RunTimeEndian::Little, &limits).read_uleb128().is_ok());
    }

    #[test]
    fn recursion_ends_before_the_stack_does() {
        fn deeper(reader: Bounded<'_>, depth: u64) -> u64 {
            let mut copy = reader;
            let buffer = std::hint::black_box([depth; 64]);
            match copy.read_uleb128() {
                Ok(_) => deeper(reader, depth + 1) + buffer[0] % 2,
                Err(error) => {
                    assert_eq!(error, Error::StackFull);
                    1
                }
            }
        }
        const STACK: usize = 1 << 20;
        let limits = Limits::new();
        let zeros = [0u8; 64];
        std::thread::scope(|scope| {
            let body = || {
                limits.on_stack_of(STACK);
                deeper(Bounded::new(&zeros, RunTimeEndian::Little, &limits), 0)
            };
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body).unwrap();
            assert!(thread.join().unwrap() > 100);
        });
    }
}
