//! Finds symbols by the names that people type: C++ and Rust names with or without namespaces, template arguments and
//! parameters.

mod components;
mod literal;
mod short;

use self::components::{pack, Name};
use self::literal::literal;
use self::short::Short;
use crate::symbols::{demangle_as, Detail, Symbols};

/// A symbol that a text may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Demangled, with parameters.
    pub name: String,
    /// Where the symbol begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The text is the whole name. Otherwise it is only the end of it, or lacks template arguments.
    pub exact: bool,
    /// A part of a function that the compiler split off (`.cold`, `.part.0`), or an old version of it. dmods prints
    /// the same name for it as for the function.
    pub minor: bool,
}

impl Symbols {
    /// Returns the symbols that `text` may mean: one for each address, and at most `most`. If some match exactly, only
    /// those are returned.
    pub fn named(&self, text: &str, most: usize) -> Vec<Named> {
        let query = Query::new(text);
        let mut found: Vec<Named> = Vec::new();
        for (symbol, old_version) in self.each() {
            if let Some(mut named) = query.check(symbol.name, symbol.address, symbol.size) {
                named.minor |= old_version;
                found.push(named);
            }
        }
        if found.iter().any(|named| named.exact) {
            found.retain(|named| named.exact);
        }
        found.sort_by(|a, b| (a.address, a.minor, &a.name).cmp(&(b.address, b.minor, &b.name)));
        found.dedup_by_key(|named| named.address);
        found.truncate(most);
        found
    }
}

/// Returns whether `text` is the name of the symbol `mangled`, or the end of it.
pub fn is_name(text: &str, mangled: &str) -> bool {
    Query::new(text).check(mangled.as_bytes(), 0, 0).is_some()
}

/// Returns whether `text` is `name`, or a short spelling of it: `Vec<Order>` for
/// `alloc::vec::Vec<prog::Order, alloc::alloc::Global>`.
pub fn is_short(text: &str, name: &str) -> bool {
    Short::new(text).means(name, false)
}

/// What was typed, taken apart once.
struct Query<'a> {
    text: &'a str,
    packed: String,
    name: Name,
    short: Short<'a>,
    /// Bytes that a mangled name must contain.
    literal: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn new(text: &'a str) -> Self {
        let alias = match text.split_once(" for ") {
            Some(("vtable", class)) => Some(format!("{{vtable({class})}}")),
            Some(("VTT", class)) => Some(format!("{{vtt({class})}}")),
            _ => None,
        };
        let meant = alias.as_deref().unwrap_or(text);
        Query { text, packed: pack(meant), name: Name::new(meant), short: Short::new(text), literal: literal(text) }
    }

    fn check(&self, symbol: &[u8], address: u64, size: u64) -> Option<Named> {
        let mangled = symbol.starts_with(b"_Z") || symbol.starts_with(b"_R");
        let same = symbol == self.text.as_bytes();
        if !same && (!mangled || self.literal.is_some_and(|part| !contains(symbol, part))) {
            return None;
        }
        let symbol = std::str::from_utf8(symbol).ok()?;
        let whole = demangle_as(symbol, Detail::Parameters).unwrap_or_else(|| symbol.to_owned());
        let exact = same || self.matches(symbol, &whole)?;
        let minor = symbol.starts_with("_Z") && symbol.contains('.') && demangle_as(symbol, Detail::Hash).is_none();
        Some(Named { name: whole, address, size, exact, minor })
    }

    /// Returns whether the text is the whole name, or None if it does not match.
    fn matches(&self, symbol: &str, whole: &str) -> Option<bool> {
        let short = demangle_as(symbol, Detail::Short)?;
        let forms = [pack(&short), pack(whole)];
        if forms.contains(&self.packed) {
            return Some(true);
        }
        if self.packed.contains("...") {
            return forms.iter().any(|form| is_abbreviated(form, &self.packed)).then_some(true);
        }
        let mut erased = false;
        if symbol.starts_with("_R") || symbol.starts_with("_ZN") {
            let hashed = demangle_as(symbol, Detail::Hash);
            // Rust's older mangling leaves out the arguments of functions.
            erased = symbol.starts_with("_ZN") && hashed.is_some();
            if hashed.is_some_and(|form| pack(&form) == self.packed) {
                return Some(true);
            }
        }
        Name::new(whole).ends_with(&self.name).or_else(|| self.short.means(&short, erased).then_some(false))
    }
}

/// Whether `form` is what `pattern` abbreviates: `...` stands for anything.
fn is_abbreviated(form: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split("...");
    let Some(mut rest) = pieces.next().and_then(|first| form.strip_prefix(first)) else { return false };
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str, mangled: &str) -> Option<bool> {
        Query::new(text).check(mangled.as_bytes(), 0, 0).map(|named| named.exact)
    }

    const CREATE: &str = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_createERmm";
    const GROW: &str = "_ZN2ns5ClassIiE4growEi"; // ns::Class<int>::grow(int)
    const TEMPLATE: &str = "_ZN2ns4growIiEEvT_"; // void ns::grow<int>(int)
    const TAGGED: &str = "_ZN3app3Foo3barB5cxx11Ev"; // app::Foo::bar[abi:cxx11]()
    const SHIFT: &str = "_ZlsRSoRK3Foo"; // operator<<(std::ostream&, Foo const&)
    const CALL: &str = "_ZZ4mainENKUliE_clEi"; // main::{lambda(int)#1}::operator()(int) const
    const RUST: &str = "_ZN3std2io5stdio6_print17h0123456789abcdefE";

    #[test]
    fn whole_names() {
        let string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        for (text, mangled) in [
            (&*format!("{string}::_M_create"), CREATE),
            (&format!("{string}::_M_create(unsigned long&, unsigned long)"), CREATE),
            (
                &string
                    .replace("> >", ">>")
                    .replace(", ", ",")
                    .chars()
                    .chain("::_M_create".chars())
                    .collect::<String>(),
                CREATE,
            ),
            ("std::__cxx11::basic_string<char, ...>::_M_create(unsigned long&, unsigned long)", CREATE),
            ("ns::Class<int>::grow", GROW),
            ("ns::Class<int>::grow(int)", GROW),
            ("ns::grow<int>", TEMPLATE),
            ("void ns::grow<int>(int)", TEMPLATE),
            ("app::Foo::bar[abi:cxx11]", TAGGED),
            ("app::Foo::bar[abi:cxx11]()", TAGGED),
            ("app::Foo::bar", TAGGED),
            ("operator<<", SHIFT),
            ("operator<<(std::ostream&, Foo const&)", SHIFT),
            ("main::{lambda(int)#1}::operator() const", CALL),
            ("main::{lambda(int)#1}::operator()(int) const", CALL),
            ("std::io::stdio::_print", RUST),
            ("std::io::stdio::_print::h0123456789abcdef", RUST),
            ("{vtable(Square)}", "_ZTV6Square"),
            ("vtable for Square", "_ZTV6Square"),
            ("typeinfo for Square", "_ZTI6Square"),
            ("operator new", "_Znwm"),
            ("operator new(unsigned long)", "_Znwm"),
            ("operator new[]", "_Znam"),
            (GROW, GROW),
            ("main", "main"),
        ] {
            assert_eq!(exact(text, mangled), Some(true), "{text}");
        }
    }

    #[test]
    fn the_end_of_a_name() {
        for (text, mangled) in [
            ("grow", GROW),
            ("grow(int)", GROW),
            ("Class::grow", GROW),
            ("ns::Class::grow", GROW),
            ("Class<int>::grow(int)", GROW),
            ("grow", TEMPLATE),
            ("grow<int>", TEMPLATE),
            ("ns::grow(int)", TEMPLATE),
            ("bar", TAGGED),
            ("_M_create", CREATE),
            ("basic_string::_M_create", CREATE),
            ("_print", RUST),
            ("stdio::_print", RUST),
            ("operator()", CALL),
        ] {
            assert_eq!(exact(text, mangled), Some(false), "{text}");
        }
    }

    #[test]
    fn other_names() {
        for (text, mangled) in [
            ("row", GROW),
            ("grow(long)", GROW),
            ("Other::grow", GROW),
            ("ns::Class<long>::grow", GROW),
            ("ns::Class", GROW),
            ("::grow::", GROW),
            ("operator<", SHIFT),
            ("Square", "_ZTV6Square"),
            ("operator new", "_Znam"),
            ("", GROW),
            ("...", "main"),
            ("std::...::nothing", CREATE),
        ] {
            assert_eq!(exact(text, mangled), None, "{text}");
        }
    }

    #[test]
    fn any_text_has_an_answer() {
        let pieces =
            ["operator", "<", ">", "(", ")", "::", "a", " ", "{", "}", "[", "]", "...", "é", "~", "->", " const"];
        let mut state = 1u64;
        for _ in 0..1_000 {
            let mut text = String::new();
            for _ in 0..state % 13 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            for mangled in [GROW, CREATE, SHIFT, "main"] {
                if let Some(found) = exact(&text, mangled) {
                    assert!(!pack(&text).is_empty(), "{text:?} {found}");
                }
            }
        }
    }
}
