//! Short spellings of generic names: `make_vec` and `make_vec<String>` for `prog::make_vec::<alloc::string::String>`,
//! `T::f` and `Trait::f` for `<prog::T as prog::Trait>::f`, `Vec<Order>` for `alloc::vec::Vec<prog::Order,
//! alloc::alloc::Global>`.
//!
//! Namespaces may lack at every path of the name, also inside arguments. A list of arguments may lack, and so may its last
//! arguments. Rust's `::<` is the same as `<`.

/// A name may nest this deep. A deeper one has no short spelling.
const MOST_DEPTH: usize = 48;
/// Comparisons for one name. Each `<T as Trait>` can be read in three ways.
const MOST_STEPS: usize = 1 << 12;
const ANONYMOUS: &str = "(anonymous namespace)";

/// A part of a path: `Vec<Order>` in `alloc::vec::Vec<Order>`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Plain {
        word: &'a str,
        arguments: Option<Vec<Type<'a>>>,
    },
    /// `<T as Trait>`, or `<T>`.
    Qualified {
        of: Type<'a>,
        as_trait: Option<Type<'a>>,
    },
}

type Path<'a> = Vec<Part<'a>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item<'a> {
    Path(Path<'a>),
    Sign(char),
}

/// A type, or the name of a function: paths, and signs around them (`&`, `*`, `[]`).
type Type<'a> = Vec<Item<'a>>;

/// A short spelling, taken apart once.
pub struct Short<'a> {
    typed: Option<Type<'a>>,
}

impl<'a> Short<'a> {
    /// Takes the text of a user apart.
    pub fn new(text: &'a str) -> Self {
        let typed = parse(text).filter(|items| items.iter().any(|item| matches!(item, Item::Path(_))));
        Short { typed }
    }

    /// Returns whether the text is a short spelling of `name`, or the name itself. With `erased`, the name may lack
    /// arguments that the text has, or have the parameters of the source in their place (`Table<K>::get`). So has Rust's
    /// older mangling.
    pub fn means(&self, name: &str, erased: bool) -> bool {
        let (Some(typed), Some(name)) = (&self.typed, parse(name)) else { return false };
        Match { erased, left: MOST_STEPS }.types(typed, &name)
    }
}

struct Match {
    erased: bool,
    left: usize,
}

impl Match {
    fn types(&mut self, typed: &[Item], name: &[Item]) -> bool {
        if self.erased && is_parameter(name) {
            return true;
        }
        typed.len() == name.len()
            && typed.iter().zip(name).all(|pair| match pair {
                (Item::Path(typed), Item::Path(name)) => self.paths(typed, name),
                (typed, name) => typed == name,
            })
    }

    /// Compares the end of the path with what was typed.
    fn paths(&mut self, typed: &[Part], name: &[Part]) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if typed.len() <= name.len() {
            let own = &name[name.len() - typed.len()..];
            if typed.iter().zip(own).all(|(typed, name)| self.parts(typed, name)) {
                return true;
            }
        }
        // `<T as Trait>::f` is also T::f and Trait::f.
        let Some((Part::Qualified { of, as_trait }, rest)) = name.split_first() else { return false };
        [Some(of), as_trait.as_ref()].into_iter().flatten().any(|own| match own.last() {
            Some(Item::Path(path)) => {
                let whole: Path = path.iter().chain(rest).cloned().collect();
                self.paths(typed, &whole)
            }
            _ => false,
        })
    }

    fn parts(&mut self, typed: &Part, name: &Part) -> bool {
        match (typed, name) {
            (Part::Plain { word, arguments }, Part::Plain { word: own, arguments: own_arguments }) => {
                word == own
                    && match (arguments, own_arguments) {
                        (None, _) => true,
                        (Some(_), None) => self.erased,
                        (Some(typed), Some(own)) => {
                            typed.len() <= own.len() && typed.iter().zip(own).all(|(t, o)| self.types(t, o))
                        }
                    }
            }
            (Part::Qualified { of, as_trait }, Part::Qualified { of: own, as_trait: own_trait }) => {
                self.types(of, own)
                    && match (as_trait, own_trait) {
                        (None, _) => true,
                        (Some(typed), Some(own)) => self.types(typed, own),
                        (Some(_), None) => false,
                    }
            }
            _ => false,
        }
    }
}

/// Returns whether the type is a parameter of a generic function: its name has no crate before it.
fn is_parameter(name: &[Item]) -> bool {
    let [Item::Path(path)] = name else { return false };
    let [Part::Plain { word, arguments: None }] = &path[..] else { return false };
    word.starts_with(char::is_uppercase)
}

/// Takes a name apart. None for a name that has no such form: brackets that do not match, or an operator.
fn parse(text: &str) -> Option<Type<'_>> {
    let mut parser = Parser { text, at: 0 };
    let items = parser.items(MOST_DEPTH)?;
    (parser.at == text.len()).then_some(items)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Reads up to a `,` or `>` that belongs to somebody else, or ` as `, or the end.
    fn items(&mut self, depth: usize) -> Option<Type<'a>> {
        let mut items = Vec::new();
        loop {
            self.blanks();
            let rest = self.rest();
            if rest.starts_with("as ") && !items.is_empty() {
                return Some(items);
            }
            let Some(first) = rest.chars().next() else { return Some(items) };
            if first == '>' {
                return Some(items);
            }
            if first == ',' && depth < MOST_DEPTH {
                return Some(items);
            }
            if self.take("->") {
                items.extend([Item::Sign('-'), Item::Sign('>')]);
            } else if first == '<' || first == '{' || is_word(first) || rest.starts_with(ANONYMOUS) {
                items.push(Item::Path(self.path(depth)?));
            } else {
                items.push(Item::Sign(first));
                self.at += first.len_utf8();
            }
        }
    }

    fn path(&mut self, depth: usize) -> Option<Path<'a>> {
        let mut path = Vec::new();
        loop {
            path.push(self.part(depth)?);
            let before = self.at;
            if !self.take("::") {
                return Some(path);
            }
            let next = self.rest().chars().next();
            if !next.is_some_and(|c| c == '{' || is_word(c)) && !self.rest().starts_with(ANONYMOUS) {
                self.at = before;
                return None;
            }
        }
    }

    fn part(&mut self, depth: usize) -> Option<Part<'a>> {
        let deeper = depth.checked_sub(1)?;
        if self.take("<") {
            let of = self.items(deeper)?;
            let as_trait = if self.take("as ") { Some(self.items(deeper)?) } else { None };
            return self.take(">").then_some(Part::Qualified { of, as_trait });
        }
        let word = self.word()?;
        // `make_vec::<T>` of Rust, and `make_vec<T>`.
        if !self.take("::<") && !self.take("<") {
            return Some(Part::Plain { word, arguments: None });
        }
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.items(deeper)?);
            if self.take(">") {
                return Some(Part::Plain { word, arguments: Some(arguments) });
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    /// Reads an identifier, or what a compiler calls something without a name: `{closure#0}`.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length = if rest.starts_with(ANONYMOUS) {
            ANONYMOUS.len()
        } else if rest.starts_with('{') {
            let mut depth = 0usize;
            let end = rest.char_indices().find(|&(_, c)| {
                depth = depth + usize::from(c == '{') - usize::from(c == '}');
                depth == 0
            });
            end?.0 + 1
        } else {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        };
        let word = &rest[..length];
        self.at += length;
        (!word.is_empty() && word != "operator").then_some(word)
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c == '$' || c == '~' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERIC: &str = "prog::make_vec::<alloc::string::String>";
    const OF_TRAIT: &str = "<prog::Table<prog::Key> as core::ops::Drop>::drop";
    const ON_TYPE: &str = "<prog::Table<u64>>::insert::<&str>";
    const CLOSURE: &str = "prog::run::<prog::Job>::{closure#0}";
    const VECTOR: &str = "alloc::vec::Vec<prog::Order, alloc::alloc::Global>";

    fn means(text: &str, name: &str) -> bool {
        Short::new(text).means(name, false)
    }

    #[test]
    fn short_spellings() {
        for (name, texts) in [
            (GENERIC, &["make_vec", "prog::make_vec", "make_vec<String>", "make_vec::<string::String>", GENERIC][..]),
            (OF_TRAIT, &["drop", "Table::drop", "Table<Key>::drop", "prog::Table::drop", "Drop::drop", OF_TRAIT]),
            (OF_TRAIT, &["<Table as Drop>::drop", "<Table<Key> as core::ops::Drop>::drop", "<Table>::drop"]),
            (ON_TYPE, &["insert", "Table::insert", "Table<u64>::insert<&str>", "<Table<u64>>::insert::<&str>"]),
            (CLOSURE, &["{closure#0}", "run::{closure#0}", "run<Job>::{closure#0}"]),
            (VECTOR, &["Vec", "Vec<Order>", "vec::Vec<prog::Order>", "Vec<Order, Global>", VECTOR]),
            ("alloc::rc::Rc<(dyn a::B + c::Send), d::Global>[]", &["Rc<(dyn B + Send)>[]", "Rc[]"]),
            ("<&mut prog::It as core::iter::Iterator>::next", &["It::next", "Iterator::next", "next"]),
            ("<[u8] as prog::Hash>::hash", &["Hash::hash", "hash"]),
            ("(anonymous namespace)::pool::get", &["get", "(anonymous namespace)::pool::get"]),
            ("std::map<int, ns::Foo>", &["map<int, Foo>"]),
        ] {
            for text in texts {
                assert!(means(text, name), "{text} for {name}");
            }
        }
    }

    #[test]
    fn other_names() {
        for (text, name) in [
            ("vec", GENERIC),
            ("make_vec<u8>", GENERIC),
            ("make_vec<String, u8>", GENERIC),
            ("String", GENERIC),
            ("prog", GENERIC),
            ("Key::drop", OF_TRAIT),
            ("Table<u64>::drop", OF_TRAIT),
            ("Order", VECTOR),
            ("Vec<Global>", VECTOR),
            ("Vec<Order>[]", VECTOR),
            ("", GENERIC),
            ("<", GENERIC),
            ("make_vec<", GENERIC),
            ("a::operator<", "a::operator<"),
        ] {
            assert!(!means(text, name), "{text} for {name}");
        }
    }

    #[test]
    fn names_without_their_arguments() {
        let short = Short::new("make_vec<String>");
        assert!(short.means("prog::make_vec", true));
        assert!(!short.means("prog::make_vec", false));
        let short = Short::new("Table<u64>::keep");
        assert!(short.means("<prog::Table<K> as prog::Keeps<K>>::keep", true));
        assert!(!short.means("<prog::Table<K> as prog::Keeps<K>>::keep", false));
        assert!(!short.means("<prog::Table<u8> as prog::Keeps<u8>>::keep", true));
    }

    #[test]
    fn deep_names_end() {
        let deep = format!("{}T{}", "<".repeat(1 << 12), " as B>::f".repeat(1 << 12));
        assert!(!means("f", &deep));
        let mut name = "T".to_owned();
        for _ in 0..40 {
            name = format!("<{name} as Trait>::f");
        }
        assert!(!means("g", &name));
        assert!(means("f", &name));
    }
}
