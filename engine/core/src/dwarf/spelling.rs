//! How names are written. gcc writes `pair<const long int, char*>`, clang `pair<const long, char *>`, and demanglers
//! `pair<long const, char*>`. gdb prints what demanglers write.

use std::borrow::Cow;

/// Arguments within arguments. Compilers stop at 1024; names of that depth are not read by people.
const MOST_DEPTH: usize = 64;

/// How gcc writes the integers, and how gdb does.
const INTEGERS: &[(&str, &str)] = &[
    ("long long unsigned int", "unsigned long long"),
    ("long long int", "long long"),
    ("long unsigned int", "unsigned long"),
    ("long int", "long"),
    ("short unsigned int", "unsigned short"),
    ("short int", "short"),
];

/// Returns the name of a number as gdb prints it.
pub fn number(name: &str) -> &str {
    INTEGERS.iter().find(|&&(gcc, _)| gcc == name).map_or(name, |&(_, gdb)| gdb)
}

/// Returns a name as gdb prints it.
pub fn canonical(name: &str) -> Cow<'_, str> {
    if !name.contains('<') {
        return Cow::Borrowed(number(name));
    }
    let mut out = String::with_capacity(name.len());
    write(name, &mut out, MOST_DEPTH);
    Cow::Owned(out)
}

/// Writes a name: what comes before its arguments, the arguments, and what follows ("::iterator").
fn write(name: &str, out: &mut String, depth: usize) {
    let mut rest = name;
    while let Some(start) = rest.find('<') {
        let head = &rest[..start];
        let end = closing(&rest[start..]).map(|end| start + end);
        // operator< and the like.
        let (Some(end), false) = (end, head.ends_with("operator") || head.ends_with("operator<") || depth == 0) else {
            break;
        };
        out.push_str(head);
        out.push('<');
        for (i, argument) in split(&rest[start + 1..end]).into_iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            write_argument(argument, out, depth - 1);
        }
        if out.ends_with('>') {
            out.push(' ');
        }
        out.push('>');
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
}

/// Writes an argument: its qualifiers follow it, and no blank stands before `*` and `&`.
fn write_argument(argument: &str, out: &mut String, depth: usize) {
    let mut text = argument.trim();
    let mut qualifiers = String::new();
    while let Some((word, rest)) = ["const ", "volatile "].iter().find_map(|w| Some((w, text.strip_prefix(w)?))) {
        qualifiers.push(' ');
        qualifiers.push_str(word.trim_end());
        text = rest;
    }
    let core = text.trim_end_matches(['*', '&', ' ']);
    // "char const*": what follows the type itself.
    let (core, more) = match core.strip_suffix(" const") {
        Some(before) if qualifiers.is_empty() => (before, " const"),
        _ => (core, ""),
    };
    let tail: String = text[core.len() + more.len()..].chars().filter(|&c| c != ' ').collect();
    let core = core.trim_end();
    if core.contains('<') {
        write(core, out, depth);
    } else {
        out.push_str(number(core));
    }
    out.push_str(&qualifiers);
    out.push_str(more);
    out.push_str(&tail);
}

/// Returns where the bracket that begins a text is closed.
pub(crate) fn closing(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => open += 1,
            '>' if text[..at].ends_with('-') => {}
            '>' | ')' | ']' | '}' => {
                open = open.checked_sub(1)?;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits arguments at their commas.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut out, mut open, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => open += 1,
            '>' | ')' | ']' | '}' => open -= 1,
            ',' if open == 0 => {
                out.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// Returns a name as it is looked up: as gdb prints it, without blanks that say nothing, and without "struct".
pub fn plain(name: &str) -> String {
    let name = ["struct ", "class ", "union ", "enum "].iter().find_map(|word| name.strip_prefix(word)).unwrap_or(name);
    let name = canonical(name);
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(c) = chars.next() {
        if c != ' ' {
            out.push(c);
        } else if out.chars().next_back().is_some_and(is_word) && chars.peek().copied().is_some_and(is_word) {
            out.push(' ');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_spellings_are_one() {
        let wanted = "std::map<long const, std::pair<char const*, Foo*> >";
        for name in [
            "std::map<const long int, std::pair<const char*, Foo*> >",
            "std::map<const long, std::pair<const char *, Foo *>>",
            wanted,
        ] {
            assert_eq!(canonical(name), wanted);
        }
        assert_eq!(canonical("A<(char)60, (x)2>::B<int (*)(long int)>"), "A<(char)60, (x)2>::B<int (*)(long int)>");
        assert_eq!(canonical("Foo<unterminated"), "Foo<unterminated");
        assert_eq!(plain("struct foo"), "foo");
        assert_eq!(plain("ns::A< B<C> >"), "ns::A<B<C>>");
    }
}
