//! A kernel's symbols with an index by name.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use super::kallsyms::Symbol;

/// The end of a chain.
const END: u32 = u32::MAX;

/// Symbols sorted by address. The index is made when it is asked for.
pub struct Table {
    symbols: Vec<Symbol>,
    names: OnceLock<Names>,
}

/// Chains of symbols: `first` by a hash of the name, and `next` of each symbol.
struct Names {
    hasher: RandomState,
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Table {
    /// Takes the symbols.
    pub fn new(symbols: Vec<Symbol>) -> Self {
        Self { symbols, names: OnceLock::new() }
    }

    /// The symbols in their order.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The symbols of that name, in their order. Static functions of the same name are several.
    pub fn named<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a Symbol> + use<'a, 'n> {
        let names = self.names.get_or_init(|| Names::new(&self.symbols));
        let mut at = names.first[names.bucket(name)];
        let all = std::iter::from_fn(move || {
            let place = at as usize;
            at = *names.next.get(place)?;
            self.symbols.get(place)
        });
        all.filter(move |symbol| symbol.name == name)
    }

    /// The symbol of that name. None if there are several.
    pub fn only(&self, name: &str) -> Option<&Symbol> {
        let mut found = self.named(name);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

impl Names {
    fn new(symbols: &[Symbol]) -> Self {
        let (hasher, buckets) = (RandomState::new(), symbols.len().next_power_of_two());
        let mut made = Self { hasher, first: vec![END; buckets], next: vec![END; symbols.len()] };
        for (place, symbol) in symbols.iter().enumerate().rev() {
            let bucket = made.bucket(&symbol.name);
            made.next[place] = std::mem::replace(&mut made.first[bucket], place as u32);
        }
        made
    }

    fn bucket(&self, name: &str) -> usize {
        self.hasher.hash_one(name) as usize & (self.first.len() - 1)
    }
}
