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
pub(super) fn literal(text: &str) -> Option<&[u8]> {
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
