//! Finds symbols by the names that people type: C++ and Rust names with or without namespaces, template arguments and
//! parameters.

use crate::symbols::{demangle_as, Detail, Symbols};

/// Words that a demangled name shows but a mangled one may not contain: substitutions of the Itanium ABI (`Ss` is
/// std::string), codes for types and special names.
const NOT_LITERAL: [&[u8]; 14] = [
    b"std",
    b"allocator",
    b"basic_string",
    b"string",
    b"char_traits",
    b"basic_istream",
    b"basic_ostream",
    b"basic_iostream",
    b"istream",
    b"ostream",
    b"iostream",
    b"operator",
    b"anonymous",
    b"namespace",
];
const OPERATORS: [&str; 39] = [
    "<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "==", "!=", "&&", "||", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", ",",
];
const QUALIFIERS: [&str; 5] = [" const", " volatile", " &&", " &", " noexcept"];
/// A name has few components. More than that is not a name.
const MOST_COMPONENTS: usize = 1 << 10;

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

/// What was typed, taken apart once.
struct Query<'a> {
    text: &'a str,
    packed: String,
    name: Name,
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
        Query { text, packed: pack(meant), name: Name::new(meant), literal: literal(text) }
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
        if symbol.starts_with("_R") || symbol.starts_with("_ZN") {
            let hashed = demangle_as(symbol, Detail::Hash);
            if hashed.is_some_and(|form| pack(&form) == self.packed) {
                return Some(true);
            }
        }
        Name::new(whole).ends_with(&self.name)
    }
}

/// A name in components: `ns::Class<int>::grow(int) const` is ns, Class<int> and grow; (int); const.
#[derive(Debug, Default, PartialEq, Eq)]
struct Name {
    components: Vec<Component>,
    parameters: Option<String>,
    qualifiers: String,
    /// `typeinfo for ...`, `guard variable for ...`: names that are typed whole or not at all.
    special: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Component {
    full: String,
    /// Without template arguments.
    bare: String,
}

impl Name {
    fn new(text: &str) -> Name {
        let mut name = Name::default();
        let text = text.trim();
        let mut start = 0;
        for end in component_ends(text).into_iter().take(MOST_COMPONENTS) {
            let last = end == text.len();
            let (component, parameters, rest) = split_component(&text[start..end], last);
            name.components.push(component);
            if last {
                name.parameters = parameters.map(pack);
                name.qualifiers = pack(rest);
            }
            start = (end + 2).min(text.len());
        }
        let first = &text[..component_ends(text).first().copied().unwrap_or(0)];
        name.special = name.parameters.is_none() && is_special(first);
        if name.parameters.is_some() {
            let from = after_return_type(text);
            if from > 0 {
                return Name::new(&text[from..]);
            }
        }
        name
    }

    /// Returns whether `typed` is the whole name, or None if it is not even the end of it.
    fn ends_with(&self, typed: &Name) -> Option<bool> {
        let skipped = self.components.len().checked_sub(typed.components.len())?;
        let differ = |ours: &String, theirs: &String| !theirs.is_empty() && ours != theirs;
        if typed.parameters.is_some() && typed.parameters != self.parameters
            || differ(&self.qualifiers, &typed.qualifiers)
            || (self.special || typed.special) && (skipped > 0 || self.special != typed.special)
        {
            return None;
        }
        let mut exact = skipped == 0 && self.qualifiers == typed.qualifiers;
        for (own, theirs) in self.components[skipped..].iter().zip(&typed.components) {
            if own.full != theirs.full {
                exact = false;
                if theirs.full != theirs.bare || own.bare != theirs.bare || theirs.bare.is_empty() {
                    return None;
                }
            }
        }
        Some(exact)
    }
}

/// Walks through `text` and calls `visit` with each position and the depth of brackets before it. The symbol of an
/// operator (`operator<<`) is passed over.
fn walk(text: &str, mut visit: impl FnMut(usize, u8, usize)) {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    while at < bytes.len() {
        let byte = bytes[at];
        let begins = at == 0 || !is_word(bytes[at - 1]);
        if begins && bytes[at..].starts_with(b"operator") && !bytes.get(at + 8).copied().is_some_and(is_word) {
            visit(at, byte, depth);
            let symbol = OPERATORS.iter().find(|symbol| bytes[at + 8..].starts_with(symbol.as_bytes()));
            at += 8 + symbol.map_or(0, |symbol| symbol.len());
            for allocating in [" new[]", " delete[]"] {
                if bytes[at..].starts_with(allocating.as_bytes()) {
                    at += allocating.len();
                }
            }
            continue;
        }
        match byte {
            b'<' | b'(' | b'{' | b'[' => {
                visit(at, byte, depth);
                depth += 1;
            }
            b'>' if at > 0 && bytes[at - 1] == b'-' => visit(at, byte, depth),
            b'>' | b')' | b'}' | b']' => {
                depth = depth.saturating_sub(1);
                visit(at, byte, depth);
            }
            _ => visit(at, byte, depth),
        }
        at += 1;
    }
}

/// Where the components of a name end: at each `::` outside brackets, and at the end.
fn component_ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut ends: Vec<usize> = Vec::new();
    walk(text, |at, byte, depth| {
        let free = ends.last().is_none_or(|&end| at >= end + 2);
        if depth == 0 && byte == b':' && bytes.get(at + 1) == Some(&b':') && free {
            ends.push(at);
        }
    });
    ends.push(text.len());
    ends
}

/// A component, its parameters, and what follows them (of the last component: ` const`).
fn split_component(text: &str, last: bool) -> (Component, Option<&str>, &str) {
    let mut groups: Vec<(usize, usize, u8)> = Vec::new();
    walk(text, |at, byte, depth| {
        if depth == 0 {
            match byte {
                b'<' | b'(' | b'[' if at > 0 => groups.push((at, text.len(), byte)),
                b'>' | b')' | b']' => {
                    if let Some(group) = groups.last_mut().filter(|group| group.1 == text.len()) {
                        group.1 = at + 1;
                    }
                }
                _ => {}
            }
        }
    });
    let parameters = groups.iter().rev().find(|group| group.2 == b'(');
    let end = parameters.map_or(text.len(), |group| group.0);
    let (mut full, mut bare) = (String::new(), String::new());
    let mut head = &text[..end];
    let mut rest = parameters.map_or("", |group| &text[group.1..]);
    if last && parameters.is_none() {
        while let Some(shorter) = QUALIFIERS.iter().find_map(|qualifier| head.strip_suffix(qualifier)) {
            head = shorter;
        }
        rest = &text[head.len()..];
    }
    for (at, c) in head.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        let within = |kind: u8| groups.iter().any(|group| group.2 == kind && (group.0..group.1).contains(&at));
        if within(b'[') || within(b'(') {
            continue;
        }
        full.push(c);
        if !within(b'<') {
            bare.push(c);
        }
    }
    (Component { full, bare }, parameters.map(|group| &text[group.0..group.1]), rest)
}

/// Where the name begins in `void ns::grow<int>(int)`.
fn after_return_type(text: &str) -> usize {
    let (mut parameters, mut operator) = (text.len(), text.len());
    walk(text, |at, byte, depth| {
        if depth == 0 && byte == b'(' && at > 0 {
            parameters = at;
        }
        if depth == 0 && byte == b'o' && text[at..].starts_with("operator") && at < operator {
            let word = text.as_bytes().get(at + 8).copied().is_some_and(is_word);
            if !word {
                operator = at;
            }
        }
    });
    let mut from = 0;
    walk(text, |at, byte, depth| {
        if depth == 0 && byte == b' ' && at < parameters.min(operator) {
            from = at + 1;
        }
    });
    from
}

fn is_special(first: &str) -> bool {
    let mut spaced = false;
    walk(first, |_, byte, depth| spaced |= depth == 0 && byte == b' ');
    spaced && first.contains(" for ") || first.starts_with('{')
}

/// The longest word of the text that any mangling of it contains as it is.
fn literal(text: &str) -> Option<&[u8]> {
    text.as_bytes()
        .split(|&byte| !is_word(byte))
        .filter(|word| word.len() > 2 && word.is_ascii() && !word[0].is_ascii_digit())
        .filter(|word| !NOT_LITERAL.contains(word) && !is_code(word))
        .max_by_key(|word| word.len())
}

/// Words that stand for a code in mangled names.
fn is_code(word: &[u8]) -> bool {
    const CODES: [&[u8]; 64] = [
        b"void",
        b"bool",
        b"char",
        b"signed",
        b"unsigned",
        b"short",
        b"int",
        b"long",
        b"float",
        b"double",
        b"const",
        b"volatile",
        b"wchar_t",
        b"char8_t",
        b"char16_t",
        b"char32_t",
        b"__int128",
        b"nullptr_t",
        b"decltype",
        b"auto",
        b"new",
        b"delete",
        b"lambda",
        b"unnamed",
        b"vtable",
        b"vtt",
        b"typeinfo",
        b"name",
        b"guard",
        b"variable",
        b"for",
        b"thunk",
        b"virtual",
        b"override",
        b"closure",
        b"impl",
        b"shim",
        b"dyn",
        b"str",
        b"usize",
        b"isize",
        b"mut",
        b"VTT",
        b"enable_if",
        b"noexcept",
        b"constant",
        b"type",
        b"construction",
        b"init",
        b"function",
        b"reference",
        b"temporary",
        b"transaction",
        b"clone",
        b"hidden",
        b"alias",
        b"TLS",
        b"wrapper",
        b"offset",
        b"covariant",
        b"sizeof",
        b"alignof",
        b"default",
        b"invoke",
    ];
    let rust = matches!(word, [b'u' | b'i' | b'f', rest @ ..] if rest.iter().all(u8::is_ascii_digit));
    let hash = word.len() == 17 && word[0] == b'h';
    CODES.contains(&word) || rust || hash
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

fn pack(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
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
