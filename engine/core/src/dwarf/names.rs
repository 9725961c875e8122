//! Names of types with what stands before them. The units of a program have the same names again and again, and the linker keeps
//! each string once: what is made of a name is found again by the place of its string.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use gimli::{AttributeValue, Section};

use super::file::Parsed;
use super::model::{canonical, plain, template_of};
use super::short;
use crate::lines::Bounded;

/// Bytes of what stands before a name. Only damaged files have more.
const LONGEST_SCOPE: usize = 1 << 12;

type Map<K, V> = HashMap<K, V, RandomState>;

/// The name of an entry, without what stands before it.
pub(super) enum Own<'a> {
    /// As an attribute of an entry in a unit has it.
    Read(u32, AttributeValue<Bounded<'a>>),
    /// As it was made, because the file leaves out the arguments of its template.
    Made(String),
}

impl<'a> Own<'a> {
    /// Returns the text. None: it cannot be read.
    pub(super) fn text(&self, parsed: &Parsed<'a>) -> Option<String> {
        match self {
            Own::Read(unit, value) => parsed.text(*unit, &Some(*value)),
            Own::Made(text) => Some(text.clone()),
        }
    }

    /// Returns where the string stands in memory. None: it is nowhere in the file, or it cannot be read.
    fn place(&self, parsed: &Parsed<'a>) -> Option<usize> {
        let Own::Read(unit, value) = self else { return None };
        let text = match value {
            AttributeValue::String(text) => *text,
            AttributeValue::DebugStrRef(offset) => {
                let strings = parsed.dwarf_of(*unit).debug_str.reader().bytes();
                return strings.get(offset.0..).map(|text| text.as_ptr() as usize);
            }
            _ => parsed.dwarf_of(*unit).attr_string(&parsed.unit(*unit).ok()?.unit, *value).ok()?,
        };
        Some(text.bytes().as_ptr() as usize)
    }
}

/// What a name is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes {
    /// See [`hash_of_name`].
    pub(super) whole: u64,
    /// See [`hash_of_template`]. None: it is no template.
    pub(super) template: Option<u64>,
}

/// A name as gdb prints it.
#[derive(Clone, Debug)]
pub(super) struct Full {
    /// A hash of the text: it tells names apart.
    pub(super) digest: u128,
    /// The text, if it was made just now.
    pub(super) text: Option<String>,
}

/// What stands before names, and what was made of names.
#[derive(Debug)]
pub(super) struct Names {
    /// What stands before the name of a type: "std::chrono::". Number 0 is empty.
    scopes: Vec<String>,
    /// The numbers of scopes by the hash of their text.
    by_hash: Map<u64, u32>,
    /// The scopes of namespaces, classes and functions, by the scope around them and the place of their name.
    entered: Map<(u32, usize, bool), u32>,
    hashes: Map<(u32, usize), Hashes>,
    /// The digests of full names.
    full: Map<(u32, usize), u128>,
    /// Hashes of strings.
    contents: Map<usize, u64>,
    /// The scope of the last name, as names are looked up: those of one class follow one another.
    last: (u32, String),
}

impl Default for Names {
    fn default() -> Names {
        let scopes = vec![String::new()];
        let (by_hash, entered, hashes, full, contents, last) = Default::default();
        Names { scopes, by_hash, entered, hashes, full, contents, last }
    }
}

impl Names {
    /// Returns the text of a scope.
    pub(super) fn scope(&self, number: u32) -> &str {
        self.scopes.get(number as usize).map_or("", |text| text)
    }

    /// Returns the scope of what is in a namespace, a class or a function. `otherwise` is the name of one that has none.
    pub(super) fn enter<'a>(
        &mut self,
        parsed: &Parsed<'a>,
        outer: u32,
        own: Option<&Own<'a>>,
        otherwise: &str,
        function: bool,
    ) -> u32 {
        let place = own.and_then(|own| own.place(parsed)).map(|place| (outer, place, function));
        if let Some(&known) = place.as_ref().and_then(|place| self.entered.get(place)) {
            return known;
        }
        let name = own.and_then(|own| own.text(parsed));
        let name = name.as_deref().unwrap_or(otherwise);
        let end = if function { "()::" } else { "::" };
        let number = self.number(format!("{}{name}{end}", self.scope(outer)));
        if let Some(place) = place {
            self.entered.insert(place, number);
        }
        number
    }

    /// Returns the number of a scope. A damaged file must not make long names of short ones.
    fn number(&mut self, text: String) -> u32 {
        if text.len() > LONGEST_SCOPE {
            return 0;
        }
        let hash = hash(&text);
        if let Some(&known) = self.by_hash.get(&hash).filter(|&&known| self.scope(known) == text) {
            return known;
        }
        self.scopes.push(text);
        let number = (self.scopes.len() - 1) as u32;
        self.by_hash.insert(hash, number);
        number
    }

    /// Returns what a name in a scope is found by. None: it cannot be read.
    pub(super) fn hashes<'a>(&mut self, parsed: &Parsed<'a>, scope: u32, own: &Own<'a>) -> Option<Hashes> {
        let place = own.place(parsed).map(|place| (scope, place));
        if let Some(&known) = place.as_ref().and_then(|place| self.hashes.get(place)) {
            return Some(known);
        }
        let text = own.text(parsed)?;
        let made = match is_word(&text) {
            true => Hashes { whole: hash(&self.joined(scope, &text)), template: None },
            false => {
                let whole = format!("{}{text}", self.scope(scope));
                Hashes { whole: hash_of_name(&whole), template: template_of(&whole).map(hash_of_template) }
            }
        };
        if let Some(place) = place {
            self.hashes.insert(place, made);
        }
        Some(made)
    }

    /// Returns `short::key` of a word in a scope. It is long work for the templates in the scope, and a word changes none of it.
    fn joined(&mut self, scope: u32, word: &str) -> String {
        if scope == 0 {
            return short::key(word);
        }
        if self.last.0 != scope {
            self.last = (scope, short::key(self.scope(scope)));
        }
        format!("{}{word}", self.last.1)
    }

    /// Returns a name in a scope as gdb prints it. None: it cannot be read.
    pub(super) fn full<'a>(&mut self, parsed: &Parsed<'a>, scope: u32, own: &Own<'a>) -> Option<Full> {
        let place = own.place(parsed).map(|place| (scope, place));
        if let Some(&digest) = place.as_ref().and_then(|place| self.full.get(place)) {
            return Some(Full { digest, text: None });
        }
        let made = Full::of(canonical(&format!("{}{}", self.scope(scope), own.text(parsed)?)).into_owned());
        if let Some(place) = place {
            self.full.insert(place, made.digest);
        }
        Some(made)
    }

    /// Returns a hash of the string of an attribute, which does not depend on the file. None: it cannot be read.
    pub(super) fn content<'a>(
        &mut self,
        parsed: &Parsed<'a>,
        unit: u32,
        value: &Option<AttributeValue<Bounded<'a>>>,
    ) -> Option<u64> {
        let own = Own::Read(unit, (*value)?);
        let place = own.place(parsed);
        if let Some(&known) = place.as_ref().and_then(|place| self.contents.get(place)) {
            return Some(known);
        }
        let made = hash(&own.text(parsed)?);
        if let Some(place) = place {
            self.contents.insert(place, made);
        }
        Some(made)
    }
}

impl Full {
    /// Takes a name that was made.
    pub(super) fn of(text: String) -> Full {
        Full { digest: digest(&text), text: Some(text) }
    }
}

/// Returns what records are found by: a hash of the whole name, or of another name.
pub(super) fn hash_of_name(name: &str) -> u64 {
    hash(&short::key(name))
}

/// Returns what the records of a template are found by: a hash of its name.
pub(super) fn hash_of_template(name: &str) -> u64 {
    hash(&plain(name))
}

/// Returns a hash of 128 bits: different values have different ones.
pub(super) fn digest(value: &(impl Hash + ?Sized)) -> u128 {
    let half = |number: u8| {
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_a_scope_is_looked_up_as_the_whole_name_is() {
        let mut names = Names::default();
        for scope in [
            "std::",
            "std::__cxx11::",
            "std::filesystem::__cxx11::",
            "shop::",
            "(anonymous namespace)::",
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::",
            "shop::Box<long int, std::vector<shop::Order *, std::allocator<shop::Order *> > >::inner::",
            "shop::operator<()::",
            "shop::Less<(shop::Kind)1>::operator()()::",
            "struct odd::",
        ] {
            let number = names.number(scope.to_string());
            for word in ["list", "__1", "_V2", "value_type", "int", "x"] {
                assert_eq!(names.joined(number, word), short::key(&format!("{scope}{word}")));
            }
        }
        assert_eq!(names.joined(0, "list"), short::key("list"));
    }
}
