//! A name in components, and the comparison of two names by them.

const OPERATORS: [&str; 39] = [
    "<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "==", "!=", "&&", "||", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", ",",
];
const QUALIFIERS: [&str; 5] = [" const", " volatile", " &&", " &", " noexcept"];
/// A name has few components. More than that is not a name.
const MOST_COMPONENTS: usize = 1 << 10;

/// A name in components: `ns::Class<int>::grow(int) const` is ns, Class<int> and grow; (int); const.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    components: Vec<Component>,
    parameters: Option<String>,
    qualifiers: String,
    /// `typeinfo for ...`, `guard variable for ...`: names that are typed whole or not at all.
    special: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Component {
    full: String,
    /// Without template arguments.
    bare: String,
}

impl Name {
    /// Takes a name apart.
    pub(super) fn new(text: &str) -> Name {
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
    pub(super) fn ends_with(&self, typed: &Name) -> Option<bool> {
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

/// Returns the text without white space.
pub(super) fn pack(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Returns whether the byte may stand in an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}
