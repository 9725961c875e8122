//! Texts behind a short header: strings that know their length, as in Redis or in many languages. Nothing points to the start
//! of such a block, but to its first character.
//!
//! The pointer may have any type, or none. So the block itself must prove what it is: behind the pointer there is text up to
//! a 0, that fills the block as the allocator would give it for so many bytes; before it are a few bytes without a pointer.
//! A pointer of unknown type must be odd: nothing but bytes begins there. Where a struct of the debug information has
//! characters at this offset, it must prove itself by its count. Unless one offset alone does, the block is an array of
//! characters behind a header.

use super::blocks::{Claim, Rank, Shape};
use super::maps::HashMap;
use super::propagate::{fits, Spread, CHECK, SMALL};
use crate::blocks::index::Block;
use crate::blocks::model::State;
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Form, Id, Number};
use crate::graph::stream::Stream;

/// Bytes before the text, at most.
pub(super) const MOST_HEADER: u64 = 24;
/// Characters of a text, at least: fewer may be there by chance.
const LEAST: u64 = 4;
/// Characters of a text, at most.
const MOST: u64 = 1 << 20;
/// Words of one block in which pointers are looked for.
const MOST_WORDS: u64 = 512;

/// Structs with characters at an offset.
type ByOffset = HashMap<u64, Vec<(Id, Shape)>>;

impl Spread<'_, '_> {
    /// Looks at all pointers to texts.
    pub(super) fn judge_texts(&mut self, control: &Control) -> Result<(), Stopped> {
        let structs = self.with_characters();
        let Some(character) = self.character() else { return Ok(()) };
        self.blocks.take(self.texts.len());
        for (count, (value, from)) in std::mem::take(&mut self.texts).into_iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            self.judge_text(value, from, character, &structs);
        }
        for (start, kind) in self.statics.clone() {
            self.judge_words(start, self.types().size(kind), character, &structs);
        }
        let heap = self.blocks.heap();
        for (count, each) in Stream::new(heap).enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if each.state != State::Own {
                self.judge_words(each.block.address, each.block.size, character, &structs);
            }
        }
        Ok(())
    }

    /// Looks for odd pointers in memory.
    fn judge_words(&mut self, start: u64, size: u64, character: Id, structs: &ByOffset) {
        let words = (size / self.word).min(MOST_WORDS);
        if !self.works(words as usize / 8) {
            return;
        }
        let mut odd = std::mem::take(&mut self.odd);
        self.reader.each_word(start, words, self.word, |at, value| {
            if value % 2 == 1 && value >= SMALL {
                odd.push((value, at));
            }
        });
        for (value, at) in odd.drain(..) {
            self.judge_text(value, at, character, structs);
        }
        self.odd = odd;
    }

    /// Returns the type `char`. None: no debug information has it.
    fn character(&mut self) -> Option<Id> {
        let types = self.types();
        (1..types.len() as Id).find(|&id| {
            let kind = types.get(id);
            kind.size == 1 && kind.name == "char" && matches!(kind.form, Form::Base(Number::Character))
        })
    }

    /// Returns the structs that have an array of characters, by the offset of the array.
    fn with_characters(&mut self) -> ByOffset {
        let outer = self.outer_types();
        let flexible = self.outer_flexible.clone();
        let mut out = ByOffset::default();
        for (all, shape) in [(&outer, Shape::One), (&flexible, Shape::Flexible)] {
            for (&(element, at), kinds) in all.iter() {
                if self.types().size(element) == 1 && matches!(self.types().get(element).form, Form::Base(_)) {
                    let known = out.entry(at).or_default();
                    for &(_, kind) in kinds {
                        known.retain(|&(other, _)| other != kind || shape == Shape::One);
                        known.push((kind, shape));
                    }
                }
            }
        }
        out
    }

    fn judge_text(&mut self, value: u64, from: u64, character: Id, structs: &ByOffset) {
        let Some(found) = self.blocks.at(value) else { return };
        let inside = value - found.block.address;
        if inside == 0 || inside > MOST_HEADER || self.blocks.claim(found.number).is_some() {
            return;
        }
        let end = found.block.address + found.block.size;
        if self.barred.contains(&found.block.address) || self.has_pointer(found.block.address, value) {
            return;
        }
        let Some(length) = self.text_length(value, end) else { return };
        if length < LEAST || !fits(inside + length + 1, found.block.size) {
            return;
        }
        let fitting = |&&(kind, shape): &&(Id, Shape)| {
            shape == Shape::Flexible || fits(self.types().size(kind), found.block.size)
        };
        let known: Vec<(Id, Shape)> = structs.get(&inside).into_iter().flatten().filter(fitting).copied().collect();
        let mut counts: Vec<(Id, Shape)> = Vec::new();
        for &(kind, shape) in &known {
            if self.counts_text(found.block, kind, inside) {
                counts.push((kind, shape));
            }
        }
        match counts[..] {
            [(kind, shape)] => {
                self.propose(found, self.claim(kind, from, Rank::Candidate, shape));
            }
            // A struct that does not prove itself, and may still be there.
            [] if !known.is_empty() => {}
            // None, or several that are alike: two libraries have a string of their own each.
            _ => {
                let claim = self.claim(character, from, Rank::Text, Shape::Many);
                self.propose(found, Claim { skip: inside as u16, ..claim });
            }
        }
    }

    /// Returns whether an aligned word between two addresses is a pointer.
    fn has_pointer(&mut self, start: u64, end: u64) -> bool {
        let words = (end - start) / self.word;
        (0..words).any(|i| {
            let value = self.read(start + i * self.word);
            value.is_none_or(|value| value >= SMALL && self.is_mapped(value))
        })
    }

    /// Returns whether a number in a struct is the length of the text that begins at an offset.
    pub(super) fn counts_text(&mut self, block: Block, kind: Id, at: u64) -> bool {
        let Some(record) = self.types().record(kind).cloned() else { return false };
        let Some(length) = self.text_length(block.address.saturating_add(at), block.address + block.size) else {
            return false;
        };
        length > 0
            && record.members.iter().filter(|member| member.bits.is_none() && member.offset < at).any(|member| {
                let (bare, size) = (self.types().bare(member.kind), self.types().size(member.kind));
                matches!(self.types().get(bare).form, Form::Base(_))
                    && self.number(block.address + member.offset, size) == Some(length)
            })
    }

    /// Returns whether a block is a text up to a 0, and as large as the allocator makes it for that.
    pub(super) fn is_text(&mut self, block: Block) -> bool {
        let length = self.text_length(block.address, block.address + block.size);
        length.is_some_and(|length| length >= LEAST && fits(length + 1, block.size))
    }

    /// Returns how many bytes of text are between an address and the next 0, which is before `end`. None: it is no text.
    fn text_length(&mut self, at: u64, end: u64) -> Option<u64> {
        let mut bytes = Vec::new();
        let mut next = at;
        while next < end.min(at.saturating_add(MOST)) {
            let first = next & !(self.word - 1);
            let word = self.read(first)?.to_le_bytes();
            let stop = (first + self.word).min(end);
            for byte in &word[(next - first) as usize..(stop - first) as usize] {
                if *byte == 0 {
                    self.works(bytes.len() / 64);
                    return std::str::from_utf8(&bytes).is_ok().then_some(bytes.len() as u64);
                }
                if (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || *byte == 0x7f {
                    return None;
                }
                bytes.push(*byte);
            }
            next = stop;
        }
        None
    }
}
