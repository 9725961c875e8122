//! What the words of typed objects have in common, and which other blocks look like them.

use super::blocks::Rank;
use super::maps::HashMap;
use super::propagate::{Spread, SMALL};
use crate::dwarf::model::{Id, VOID};

/// Words of an object that are compared.
pub(super) const MOST_WORDS: usize = 64;
/// Types of objects to which one word leads.
const MOST_KINDS: usize = 8;
/// Of the words that all objects have, so many may be 0: one in this many.
const MISSING: usize = 4;

/// What a word is. Numbers are 3 * (size of the upper half) + (size of the lower half). Sizes are 0: zero, 1: small, 2: large.
const NUMBERS: u32 = 9;
const TEXT: u32 = 9;
const BYTES: u32 = 10;
const INSIDE: u32 = 11;
const OUTSIDE: u32 = 12;
const OBJECT: u32 = 13;

/// What a word is, and to what it leads: the type of an object, or the number of a leaked block that has none.
#[derive(Clone, Copy)]
pub(super) struct Word {
    value: u64,
    class: u32,
    kind: Id,
    leaked: Option<usize>,
    /// Not all pointers were followed: a block without a type may have any.
    unseen: bool,
}

/// What the objects of a type have in one place.
#[derive(Clone, Default)]
pub(super) struct Place {
    classes: u32,
    /// The types of the objects to which it leads. None: too many.
    kinds: Option<Vec<Id>>,
    /// The one number, or the address outside the heap, that all of them have.
    same: Option<u64>,
    /// It is 0 in none of them.
    always: bool,
    /// It is a floating-point number: few bits make sense.
    pub(super) fraction: bool,
}

/// The objects of one type in blocks of one size.
pub(super) struct Type {
    pub(super) kind: Id,
    pub(super) count: u32,
    pub(super) example: u64,
    pub(super) places: Vec<Place>,
}

/// Leaked blocks to which a block leads: (their number, the place of the pointer).
pub(super) type Waits = Vec<(usize, usize)>;

/// How a block can be an object of a type.
pub(super) struct Fit {
    /// The leaked blocks that must be of certain types then.
    pub(super) waits: Waits,
    /// Its words prove that it is one.
    pub(super) proven: bool,
    /// More than one of its words is not 0.
    pub(super) filled: bool,
}

impl Spread<'_, '_> {
    /// Says what the word at an address is. None: it is not in the dump.
    pub(super) fn what_is(&mut self, at: u64, leaked: &HashMap<usize, usize>) -> Option<Word> {
        let value = self.read(at)?;
        let unseen = self.sample.is_some();
        let mut word = Word { value, class: number(value, self.word), kind: VOID, leaked: None, unseen };
        if value < SMALL {
            return Some(word);
        }
        if let Some(other) = self.blocks.at(value) {
            if other.block.address != value {
                word.class = INSIDE;
                return Some(word);
            }
            let claim = self.blocks.claim(other.number);
            let typed = claim.is_some() && !claim.disputed && claim.rank != Rank::Weak;
            if typed && self.types().record(claim.kind).is_some() {
                (word.class, word.kind) = (OBJECT, claim.kind);
            } else {
                word.leaked = leaked.get(&other.number).copied();
                word.class = if self.begins_with_text(value) { TEXT } else { BYTES };
            }
        } else if self.is_mapped(value) {
            word.class = OUTSIDE;
        }
        Some(word)
    }

    /// Returns whether what is at an address may be a text: printable up to a 0, which may be far behind.
    fn begins_with_text(&mut self, at: u64) -> bool {
        let Some(word) = self.read(at) else { return false };
        let bytes = word.to_le_bytes();
        let text = &bytes[..self.word as usize];
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        end > 0 && text[..end].iter().all(|&byte| byte >= 0x20 && byte != 0x7f || (9..=13).contains(&byte))
    }
}

impl Place {
    /// Makes one that no object has filled.
    pub(super) fn new() -> Self {
        Place { kinds: Some(Vec::new()), always: true, ..Place::default() }
    }

    /// Takes what an object has there: the `first` one, or another.
    pub(super) fn learn(&mut self, word: &Word, first: bool) {
        self.classes |= 1 << word.class;
        self.always &= word.value != 0;
        let plain = Some(word.value).filter(|&value| value > 0 && (word.class == OUTSIDE || word.class < NUMBERS));
        self.same = if first || self.same == plain { plain } else { None };
        if word.class == OBJECT {
            if let Some(kinds) = &mut self.kinds {
                if !kinds.contains(&word.kind) {
                    kinds.push(word.kind);
                }
                if kinds.len() > MOST_KINDS {
                    self.kinds = None;
                }
            }
        }
    }

    fn has(&self, class: u32) -> bool {
        self.classes >> class & 1 == 1
    }

    /// Returns whether objects lead to others of this type here.
    pub(super) fn leads_to(&self, kind: Id) -> bool {
        self.has(OBJECT) && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns whether some object has a number here that is as large. Of a few objects, chance may have left out the large ones.
    fn has_number(&self, class: u32, few: bool) -> bool {
        let enough = |seen: u32, half: u32| seen >= if few { half.min(1) } else { half };
        (0..NUMBERS).any(|seen| self.has(seen) && enough(seen / 3, class / 3) && enough(seen % 3, class % 3))
    }
}

impl Type {
    /// Returns how an object with these words can be of this type. None: it is not.
    pub(super) fn fits(&self, words: &[Option<Word>]) -> Option<Fit> {
        let (mut waits, mut always, mut missing) = (Vec::new(), 0, 0);
        let (mut strong, mut weak, mut filled) = (0, 0, 0);
        for (i, place) in self.places.iter().enumerate() {
            let word = (*words.get(i)?)?;
            always += usize::from(place.always);
            if word.value == 0 {
                missing += usize::from(place.always);
                continue;
            }
            filled += 1;
            match word.class {
                OBJECT if place.leads_to(word.kind) => strong += 1,
                // Such a pointer led to objects of which nothing was known, too.
                OBJECT => (word.unseen && (place.has(BYTES) || place.has(TEXT))).then_some(())?,
                TEXT | BYTES => match word.leaked.filter(|_| place.has(OBJECT) && !place.has(word.class)) {
                    Some(other) => waits.push((other, i)),
                    None if word.unseen && place.has(OBJECT) => {}
                    None => {
                        place.has(word.class).then_some(())?;
                        weak += 1;
                    }
                },
                INSIDE | OUTSIDE => {
                    place.has(word.class).then_some(())?;
                    strong += usize::from(place.same == Some(word.value));
                    weak += usize::from(place.same.is_none());
                }
                class => {
                    place.has_number(class, word.unseen).then_some(())?;
                    weak += usize::from(place.fraction || place.same == Some(word.value));
                }
            }
        }
        let proven = strong > 0 && filled > 1 || weak + waits.len() > 1 && filled > 2;
        (missing * MISSING <= always).then_some(Fit { waits, proven, filled: filled > 1 })
    }
}

/// Returns the class of a number.
fn number(value: u64, word: u64) -> u32 {
    let half = |value: u64| match value {
        0 => 0,
        1..SMALL => 1,
        _ => 2,
    };
    if word == 4 {
        half(value)
    } else {
        3 * half(value >> 32) + half(value & 0xffff_ffff)
    }
}
