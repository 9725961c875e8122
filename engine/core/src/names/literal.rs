//! The part of a typed name that the mangled name must contain, too.

use super::components::is_word;

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

/// The longest word of the text that any mangling of it contains as it is.
///
/// Words outside `<>` come first: Rust's older mangling leaves out the arguments of functions.
pub(super) fn literal(text: &str) -> Option<&[u8]> {
    let mut depth = 0usize;
    let mut pieces = text.as_bytes().split(|&byte| {
        depth = (depth + usize::from(byte == b'<')).saturating_sub(usize::from(byte == b'>'));
        depth > 0 || byte == b'>'
    });
    longest(&mut pieces).or_else(|| longest(&mut std::iter::once(text.as_bytes())))
}

fn longest<'a>(pieces: &mut dyn Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    pieces
        .flat_map(|piece| piece.split(|&byte| !is_word(byte)))
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

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn words_outside_of_arguments_come_first() {
        for (text, word) in [
            ("get<alloc::string::String>", Some("get")),
            ("<prog::Table as Iterator>::go", Some("Iterator")),
            ("go<u64>", None),
            ("ns::Class<int>::grow", Some("Class")),
        ] {
            assert_eq!(literal(text).map(|word| std::str::from_utf8(word).unwrap()), word, "{text}");
        }
    }
}
