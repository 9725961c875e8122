//! How the names of the C++ library are shortened: `std::string`, not
//! `std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >`.
//!
//! What a person would not write is left out: namespaces of versions, and arguments that are the library's defaults. A
//! comparator or an allocator that is not the default stays. Nothing else decides how a type is spelled.

use super::spelling::{canonical, closing, plain, split};

/// Arguments within arguments.
const MOST_DEPTH: usize = 64;

/// The defaults of the library's templates: the name, how many arguments have none, and the defaults of the others. `{0}` and
/// `{1}` stand for the first arguments.
type Rule = (&'static str, usize, &'static [&'static str]);

const ALLOCATOR: &str = "std::allocator<{0}>";
const OF_PAIRS: &str = "std::allocator<std::pair<{0} const, {1}>>";
const TRAITS: &str = "std::char_traits<{0}>";
const RULES: &[Rule] = &[
    ("vector", 1, &[ALLOCATOR]),
    ("deque", 1, &[ALLOCATOR]),
    ("list", 1, &[ALLOCATOR]),
    ("forward_list", 1, &[ALLOCATOR]),
    ("set", 1, &["std::less<{0}>", ALLOCATOR]),
    ("multiset", 1, &["std::less<{0}>", ALLOCATOR]),
    ("map", 2, &["std::less<{0}>", OF_PAIRS]),
    ("multimap", 2, &["std::less<{0}>", OF_PAIRS]),
    ("unordered_set", 1, &["std::hash<{0}>", "std::equal_to<{0}>", ALLOCATOR]),
    ("unordered_multiset", 1, &["std::hash<{0}>", "std::equal_to<{0}>", ALLOCATOR]),
    ("unordered_map", 2, &["std::hash<{0}>", "std::equal_to<{0}>", OF_PAIRS]),
    ("unordered_multimap", 2, &["std::hash<{0}>", "std::equal_to<{0}>", OF_PAIRS]),
    ("unique_ptr", 1, &["std::default_delete<{0}>"]),
    ("stack", 1, &["std::deque<{0}>"]),
    ("queue", 1, &["std::deque<{0}>"]),
    ("priority_queue", 1, &["std::vector<{0}>", "std::less<{0}>"]),
    ("basic_string", 1, &[TRAITS, ALLOCATOR]),
    ("basic_string_view", 1, &[TRAITS]),
    ("basic_ios", 1, &[TRAITS]),
    ("basic_istream", 1, &[TRAITS]),
    ("basic_ostream", 1, &[TRAITS]),
    ("basic_iostream", 1, &[TRAITS]),
    ("basic_streambuf", 1, &[TRAITS]),
    ("basic_filebuf", 1, &[TRAITS]),
    ("basic_ifstream", 1, &[TRAITS]),
    ("basic_ofstream", 1, &[TRAITS]),
    ("basic_fstream", 1, &[TRAITS]),
    ("basic_stringbuf", 1, &[TRAITS, ALLOCATOR]),
    ("basic_istringstream", 1, &[TRAITS, ALLOCATOR]),
    ("basic_ostringstream", 1, &[TRAITS, ALLOCATOR]),
    ("basic_stringstream", 1, &[TRAITS, ALLOCATOR]),
    ("basic_regex", 1, &["std::regex_traits<{0}>"]),
];

/// What the library calls its templates for each type of characters.
const CHARACTERS: &[(&str, &str)] =
    &[("char", ""), ("wchar_t", "w"), ("char8_t", "u8"), ("char16_t", "u16"), ("char32_t", "u32")];

/// Returns a type as a person would write it: `std::vector<std::string>[]`.
pub fn short(name: &str) -> String {
    if !name.contains('<') && !name.contains("std::") {
        return canonical(name).into_owned();
    }
    write(&without_versions(&canonical(name)), MOST_DEPTH)
}

/// Returns a name as it is looked up: the long and the short spelling are the same.
pub(super) fn key(name: &str) -> String {
    match name.contains("std::") {
        true => plain(&short(name)),
        false => plain(name),
    }
}

/// Leaves out the namespaces of versions behind `std`: `std::__cxx11::list` is `std::list`.
fn without_versions(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(at) = rest.find("std::") {
        let before = rest[..at].chars().next_back();
        out.push_str(&rest[..at + 5]);
        rest = &rest[at + 5..];
        if before.is_some_and(|c| is_word(c) || c == ':') {
            continue;
        }
        // The namespaces in it: std::filesystem::__cxx11::path.
        loop {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            if end == 0 || !rest[end..].starts_with("::") {
                break;
            }
            if !is_version(&rest[..end]) {
                out.push_str(&rest[..end + 2]);
            }
            rest = &rest[end + 2..];
        }
    }
    out.push_str(rest);
    out
}

/// libstdc++: `__cxx11`, `__cxx1998` (behind the containers of its debug mode), `_V2`, `__8`. libc++: `__1`, `__2`, `__ndk1`.
fn is_version(part: &str) -> bool {
    matches!(part, "__cxx11" | "__cxx1998" | "_V2" | "__ndk1")
        || part.strip_prefix("__").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

fn write(name: &str, depth: usize) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find('<') {
        let head = &rest[..start];
        let end = closing(&rest[start..]).map(|end| start + end);
        let (Some(end), false) = (end, head.ends_with("operator") || head.ends_with("operator<") || depth == 0) else {
            break;
        };
        let inner = &rest[start + 1..end];
        let arguments = match inner.trim().is_empty() {
            true => Vec::new(),
            false => split(inner).into_iter().map(|argument| write(argument.trim(), depth - 1)).collect(),
        };
        out.push_str(&template(head, arguments));
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

/// Returns the template with its arguments, without those that are defaults. `head` may begin with other words.
fn template(head: &str, mut arguments: Vec<String>) -> String {
    let own = head.rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').map_or(0, |at| at + 1);
    let (before, own) = head.split_at(own);
    let rule = own.strip_prefix("std::").and_then(|last| RULES.iter().find(|rule| rule.0 == last));
    let (mut name, mut space) = (own.to_string(), "std::");
    if let Some(&(last, required, defaults)) = rule {
        let standard = |argument: &str, default: &str| {
            let mut wanted = default.to_string();
            for (i, argument) in arguments.iter().take(2).enumerate() {
                wanted = wanted.replace(&format!("{{{i}}}"), argument);
            }
            let (given, pmr) =
                (plain(argument), wanted.replacen("std::allocator<", "std::pmr::polymorphic_allocator<", 1));
            (given == plain(&wanted), default.starts_with("std::allocator<") && given == plain(&pmr))
        };
        let mut left = arguments.len();
        while left > required && left <= required + defaults.len() {
            let (usual, pmr) = standard(&arguments[left - 1], defaults[left - 1 - required]);
            if pmr && left == arguments.len() {
                space = "std::pmr::";
            } else if !usual {
                break;
            }
            left -= 1;
        }
        // The names in std::pmr have no other arguments than the first ones.
        if space == "std::" || left == required {
            arguments.truncate(left);
            name = format!("{space}{last}");
        }
        let of = arguments.first().and_then(|first| CHARACTERS.iter().find(|(kind, _)| kind == first));
        if let (Some(short), [_], Some((_, letters))) = (last.strip_prefix("basic_"), &arguments[..], of) {
            // Only strings have names for all characters.
            if letters.len() < 2 || short.starts_with("string_view") || short == "string" {
                let space = name[..name.len() - last.len()].to_string();
                return format!("{before}{space}{letters}{short}");
            }
        }
    }
    format!("{before}{name}<{}>", arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_library_are_short() {
        let string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        assert_eq!(short(string), "std::string");
        assert_eq!(short(&format!("{string} const*")), "std::string const*");
        assert_eq!(short("std::__1::vector<int, std::__1::allocator<int> >[]"), "std::vector<int>[]");
        let map = format!(
            "std::map<{string}, shop::Order, std::less<{string} >, std::allocator<std::pair<{string} const, shop::Order> > >"
        );
        assert_eq!(short(&map), "std::map<std::string, shop::Order>");
        assert_eq!(
            short(&format!("std::vector<{map}, std::allocator<{map} > >::iterator")),
            "std::vector<std::map<std::string, shop::Order>>::iterator"
        );
        assert_eq!(
            short("std::map<int, A, std::greater<int>, std::allocator<std::pair<int const, A> > >"),
            "std::map<int, A, std::greater<int>>"
        );
        assert_eq!(short("std::vector<int, Arena<int> >"), "std::vector<int, Arena<int>>");
        assert_eq!(short("std::set<int, std::less<int>, Arena<int> >"), "std::set<int, std::less<int>, Arena<int>>");
        assert_eq!(short("std::vector<int, std::pmr::polymorphic_allocator<int> >"), "std::pmr::vector<int>");
        assert_eq!(short("std::basic_string_view<wchar_t, std::char_traits<wchar_t> >"), "std::wstring_view");
        assert_eq!(short("std::filesystem::__cxx11::path"), "std::filesystem::path");
        assert_eq!(short("my::std::__cxx11::list<int>"), "my::std::__cxx11::list<int>");
        assert_eq!(short("mystd::__1::list<int>"), "mystd::__1::list<int>");
        assert_eq!(short("struct session"), "struct session");
        assert_eq!(short("Foo<unterminated"), "Foo<unterminated");
    }

    #[test]
    fn both_spellings_are_looked_up_alike() {
        let long = "std::map<int, A*, std::less<int>, std::allocator<std::pair<int const, A*> > >";
        assert_eq!(key(long), key("std::map<int, A *>"));
        assert_eq!(
            key("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"),
            key("std::string")
        );
        assert_eq!(key("struct foo"), "foo");
    }
}
