//! The fields of a kind of blocks, and of the elements of an array: where pointers stand, and to what.

use std::collections::HashMap;

use crate::hw;
use crate::keys::Keys;

/// Pointers to blocks of one kind, at least, that make a block an array although its kind has no such fields.
pub(super) const ARRAY: usize = 16;
/// The largest blocks that are judged with the others of their kind.
pub(super) const SMALL: u64 = 1024;
/// Pointers of a block, at least, that is judged alone.
pub(super) const MANY: usize = 64;
/// A field is regular from one in so many blocks on, and from so many blocks on.
const ONE_IN: u32 = 50;
const LEAST: u32 = 3;
const LEAST_OF_LARGE: u32 = 8;
/// Texts have no pointer at an offset if at most one in so many of the blocks with a pointer there begin with text, and if fewer
/// than one in so many of those that begin with text have a pointer there.
const TEXT_ONE_IN: u32 = 10;
/// A field that leads to blocks of any kind is regular from one in so many blocks on.
const ANY_ONE_IN: u32 = 5;
/// A field is regular, too, if it leads to three in four blocks of a kind, to so many at least, and to each once.
const COVERED: u32 = 8;
/// The largest element of an array, in words.
pub(super) const LARGEST_ELEMENT: usize = 64;
/// Bytes by which a chunk of glibc may be larger than what was asked for needs, where words have 8 bytes: a rest of 16 bytes is no
/// chunk (MINSIZE is 32).
pub(super) const SLACK: u64 = 16;

/// Where an edge leads: the kind of the block, and whether it leads to the first byte.
pub(super) type Target = u16;

pub(super) fn target_of(kind: u16, start: bool) -> Target {
    kind << 1 | u16::from(start)
}

/// Returns where an edge leads if the chunk of the target is larger than it has to be.
pub(super) fn smaller(target: Target) -> Option<Target> {
    let size = u64::from(target >> 1);
    (SLACK < size && size <= SMALL).then(|| target_of((size - SLACK) as u16, target & 1 != 0))
}

/// What stands at one offset.
#[derive(Clone, Default)]
pub(super) struct Field {
    /// Every pointer to the first byte of a block is regular.
    any: bool,
    /// What begins with text and has a pointer here is another kind of block: the pointer is left over.
    pub not_of_text: bool,
    targets: Vec<Target>,
}

impl Field {
    #[inline(always)]
    pub(super) fn is_regular(&self, target: Target) -> bool {
        (self.any && target & 1 != 0) || self.has(target)
    }

    #[inline(always)]
    fn has(&self, target: Target) -> bool {
        // There are few of them. `contains` is compiled apart: see [`hw::Work`].
        let mut found = false;
        for &each in &self.targets {
            found |= each == target;
        }
        found
    }

    /// Returns whether every pointer to the first byte of a block is regular.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        self.any
    }

    /// Returns whether the pointer is regular only because those of this field lead to blocks of any kind.
    #[inline(always)]
    pub(super) fn is_loose(&self, target: Target, smaller: Option<Target>) -> bool {
        self.any && target & 1 != 0 && !self.has(target) && !smaller.is_some_and(|target| self.has(target))
    }

    /// Does the same as [`Field::is_regular`] where the target's chunk may be larger than it has to be. `smaller` is the target that
    /// it then is.
    pub(super) fn is_regular_or(&self, target: Target, smaller: Option<Target>) -> bool {
        self.is_regular(target) || smaller.is_some_and(|target| self.has(target))
    }
}

/// Counts of pointers, by (offset, where they lead).
#[derive(Default)]
pub(super) struct Counts {
    of: HashMap<u64, u32, Keys>,
    /// For each offset: where the last pointer led, and how many in a row that are not in `of` yet.
    last: Vec<(Target, u32)>,
    /// For each offset: the pointers to the first byte of a block.
    starts: Vec<u32>,
    /// For each offset: the pointers in blocks that begin with text.
    texts: Vec<u32>,
    /// The blocks that begin with text.
    text_count: u32,
}

impl Counts {
    #[inline(always)]
    pub(super) fn add(&mut self, offset: u16, target: Target) {
        let at = usize::from(offset);
        if self.starts.len() <= at {
            self.starts.resize(at + 1, 0);
            self.last.resize(at + 1, (0, 0));
        }
        self.starts[at] += u32::from(target & 1);
        let last = &mut self.last[at];
        if last.0 == target {
            last.1 += 1;
        } else {
            let (before, count) = std::mem::replace(last, (target, 1));
            self.note(offset, before, count);
        }
    }

    #[inline(never)]
    fn note(&mut self, offset: u16, target: Target, count: u32) {
        if count > 0 {
            *self.of.entry(u64::from(offset) << 16 | u64::from(target)).or_default() += count;
        }
    }

    /// Brings all counts into `of`.
    fn finish(&mut self) {
        for offset in 0..self.last.len() {
            let (target, count) = std::mem::take(&mut self.last[offset]);
            self.note(offset as u16, target, count);
        }
    }

    /// Counts a pointer in a block that begins with text. It is counted by [`Counts::add`], too.
    pub(super) fn add_text(&mut self, offset: usize) {
        if self.texts.len() <= offset {
            self.texts.resize(offset + 1, 0);
        }
        self.texts[offset] += 1;
    }

    /// Counts a block that begins with text, whether it has pointers or not.
    pub(super) fn add_text_block(&mut self) {
        self.text_count += 1;
    }

    /// Returns whether some of the blocks with pointers begin with text.
    pub(super) fn has_texts(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Returns the fields, of which `of` blocks or elements might have each.
    pub(super) fn fields(&mut self, of: u32) -> Vec<Field> {
        self.fields_from(of, LEAST)
    }

    /// Does the same for blocks with many offsets, at each of which a few words may be left over.
    pub(super) fn fields_of_large(&mut self, of: u32) -> Vec<Field> {
        self.fields_from(of, LEAST_OF_LARGE)
    }

    /// Returns a field that may stand anywhere: where so many of `words` lead, or most of the pointers.
    pub(super) fn anywhere(&mut self, words: u64) -> Field {
        self.finish();
        let mut targets: HashMap<Target, u64, Keys> = HashMap::default();
        for (&key, &count) in &self.of {
            *targets.entry(key as Target).or_default() += u64::from(count);
        }
        let all: u64 = targets.values().sum();
        targets.retain(|_, count| *count * u64::from(ONE_IN) >= words || *count * 2 > all);
        Field { targets: targets.into_keys().collect(), ..Field::default() }
    }

    fn fields_from(&mut self, of: u32, least: u32) -> Vec<Field> {
        self.finish();
        let mut fields = vec![Field::default(); self.starts.len()];
        for (&key, &count) in &self.of {
            if count >= least && u64::from(count) * u64::from(ONE_IN) >= u64::from(of) {
                fields[(key >> 16) as usize].targets.push(key as Target);
            }
        }
        for (field, &count) in fields.iter_mut().zip(&self.starts) {
            field.any = u64::from(count) * u64::from(ANY_ONE_IN) >= u64::from(of);
        }
        if self.has_texts() {
            self.mark_texts(&mut fields);
        }
        fields
    }

    /// Tells the fields of structures that share their size with texts.
    fn mark_texts(&self, fields: &mut [Field]) {
        let mut all = vec![0u32; fields.len()];
        for (&key, &count) in &self.of {
            all[(key >> 16) as usize] += count;
        }
        for (offset, (field, all)) in fields.iter_mut().zip(all).enumerate() {
            let texts = self.texts.get(offset).copied().unwrap_or(0) * TEXT_ONE_IN;
            field.not_of_text = texts <= all || texts < self.text_count;
        }
    }
}

/// Pointers that are not regular among the blocks of their kind: counts by (kind, offset, where they lead). A pointer to an
/// object of Go leads behind its header, so the first bytes are not asked for.
#[derive(Default)]
pub(super) struct Rare {
    of: HashMap<u64, u32, Keys>,
}

impl Rare {
    fn key(kind: u16, offset: u16, target: Target) -> u64 {
        u64::from(kind) << 32 | u64::from(offset) << 16 | u64::from(target)
    }

    pub(super) fn add(&mut self, kind: u16, offset: u16, target: Target) {
        *self.of.entry(Self::key(kind, offset, target)).or_default() += 1;
    }

    /// Keeps the fields that lead to most blocks of a kind, of which there are `counts`. A structure that shares its size with
    /// many others may hold all arrays of one size (the 64 tables of a map among 5,000 blocks of 32 bytes). Words that
    /// are left over do not lead to each block of a kind.
    pub(super) fn keep_covering(&mut self, counts: &[u32]) {
        self.of.retain(|&key, &mut count| {
            let all = counts[usize::from(key as Target >> 1)];
            count >= COVERED && count <= all && u64::from(count) * 4 >= u64::from(all) * 3
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn has(&self, kind: u16, offset: u16, target: Target) -> bool {
        self.of.contains_key(&Self::key(kind, offset, target))
    }
}

/// Returns the size of an array's elements, in words: the least distance at which most pointers have another, or else 1.
/// The offsets are sorted.
pub(super) fn element_of(offsets: &[usize]) -> usize {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return 1 };
    // Stretches of 64 words as bits, with the number of each: only those that have pointers.
    let mut there: Vec<(usize, u64)> = Vec::with_capacity(offsets.len().min((last - first) / 64 + 1));
    for &offset in offsets {
        let (part, bit) = ((offset - first) / 64, 1 << ((offset - first) % 64));
        match there.last_mut() {
            Some((at, bits)) if *at == part => *bits |= bit,
            _ => there.push((part, bit)),
        }
    }
    let again = |distance: usize| {
        let of = |(at, &(part, bits)): (usize, &(usize, u64))| {
            let next = there.get(at + 1).filter(|next| next.0 == part + 1).map_or(0, |next| next.1);
            (bits & ((u128::from(next) << 64 | u128::from(bits)) >> distance) as u64).count_ones()
        };
        there.iter().enumerate().map(of).sum::<u32>()
    };
    let share = |distance: usize| {
        let all = offsets.partition_point(|&offset| offset + distance <= last);
        if all < MANY / 4 {
            0.0
        } else {
            f64::from(again(distance)) / all as f64
        }
    };
    let shares: Vec<f64> = hw::fast(|| (1..=LARGEST_ELEMENT).map(share).collect());
    let best = shares.iter().copied().fold(0.0, f64::max);
    if best < 0.5 {
        return 1;
    }
    1 + shares.iter().position(|&share| share >= 0.9 * best).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_large_blocks() {
        // 100 blocks: a pointer to one kind at +3 in each, a few words left over elsewhere.
        let (mut counts, node, other) = (Counts::default(), target_of(72, true), target_of(40, true));
        (0..100).for_each(|i| counts.add(3, if i < 10 { other } else { node }));
        (0..6).for_each(|_| counts.add(7, node));
        let fields = counts.fields_of_large(100);
        assert!(fields[3].is_regular(node) && fields[3].is_regular(other));
        assert!(!fields[7].is_regular(node));
        // Most of them lead to one kind.
        let anywhere = counts.anywhere(100 * 512);
        assert!(anywhere.is_regular(node) && !anywhere.is_regular(other));
        // Ten in 100 * 5 words are an array.
        assert!(counts.anywhere(100 * 5).is_regular(other));
    }

    #[test]
    fn what_begins_with_text_has_no_fields_of_structures() {
        let mut counts = Counts::default();
        (0..100).for_each(|_| counts.add(4, target_of(72, true)));
        (0..100).for_each(|i| counts.add(6, target_of(72, i % 2 == 0)));
        assert!(!counts.fields(100)[4].not_of_text);
        (0..3).for_each(|_| counts.add_text(4));
        (0..90).for_each(|_| counts.add_text(6));
        let fields = counts.fields(100);
        assert!(fields[4].not_of_text && !fields[6].not_of_text);
        // Texts alone: what few of them have behind their end is left over.
        (0..901).for_each(|_| counts.add_text_block());
        assert!(counts.fields(100)[6].not_of_text);
    }

    #[test]
    fn the_elements_of_an_array() {
        // One pointer in each element of seven words, and a few words left over.
        let mut offsets: Vec<usize> = (0..1000).map(|i| i * 7).collect();
        offsets.extend((0..20).map(|i| i * 350 + 6));
        offsets.sort_unstable();
        assert_eq!(element_of(&offsets), 7);
        // Two pointers in each.
        let two: Vec<usize> = (0..500).flat_map(|i| [i * 7, i * 7 + 3]).collect();
        assert_eq!(element_of(&two), 7);
        // Pointers side by side, and none at all.
        assert_eq!(element_of(&(0..500).collect::<Vec<_>>()), 1);
        assert_eq!(element_of(&[]), 1);
    }
}
