//! Names of templates whose arguments are not in the name: clang's `-gsimple-template-names`.
//!
//! There `std::vector<int>` and `std::vector<char>` have the name "vector", and their arguments are entries below them.
//! The names are made again as LLVM's `DWARFTypePrinter` makes them, in the spelling of demanglers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gimli::constants as c;

use super::die::Die;
use super::file::{Key, Parsed};
use super::walk::Below;

/// gcc's tags, which clang uses, too: a template as an argument, and a pack of arguments.
const TEMPLATE_ARGUMENT: gimli::DwTag = gimli::DwTag(0x4106);
const PACK: gimli::DwTag = gimli::DwTag(0x4107);
/// Templates with arguments in their names after which a unit counts as one where all are like that. Compilers leave them
/// there where the entries below cannot say them: a lambda is an argument.
const WHOLE_NAMES: usize = 64;
/// Types within types.
const MOST_DEPTH: usize = 48;
/// Characters of one name, and of all names.
const LONGEST: usize = 1 << 14;
const MOST_TEXT: usize = 1 << 28;
/// What stands for an argument that cannot be said.
const UNKNOWN: &str = "(?)";

/// The names of the records of templates, with their arguments, without what stands before them.
#[derive(Debug, Default)]
pub(super) struct Simple {
    names: HashMap<Key, Arc<str>>,
}

/// Returns whether a unit has names of templates without their arguments.
pub(super) fn has_simple_names(parsed: &Parsed<'_>, unit: u32) -> gimli::Result<bool> {
    if !parsed.unit(unit)?.cxx {
        return Ok(false);
    }
    // The record around an entry: its depth, and whether its name has no arguments.
    let mut around: Option<(isize, bool)> = None;
    let (mut simple, mut whole) = (false, 0);
    parsed.below(parsed.top(unit), |die| {
        if is_argument(&die) {
            match around.take() {
                Some((depth, true)) if die.depth == depth + 1 => simple = true,
                Some((depth, false)) if die.depth == depth + 1 => whole += 1,
                _ => {}
            }
        } else if die.is_record() {
            around = parsed.text(unit, &die.name).map(|name| (die.depth, !name.contains('<')));
        }
        Ok(if simple || whole >= WHOLE_NAMES { Below::Stop } else { Below::Go })
    })?;
    Ok(simple)
}

fn is_argument(die: &Die<'_>) -> bool {
    matches!(die.tag, c::DW_TAG_template_type_parameter | c::DW_TAG_template_value_parameter | TEMPLATE_ARGUMENT | PACK)
}

impl Simple {
    /// Returns the name of a record, if the file leaves out the arguments of its template.
    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.names.get(&key).map(|name| &**name)
    }

    /// Returns whether the file leaves out no arguments.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Makes the names of all records. `tell` gets what could not be read, and says whether that is the end.
    pub(super) fn new(
        parsed: &Parsed<'_>,
        signatures: &HashMap<u64, Key>,
        tell: &mut dyn FnMut(gimli::Error) -> bool,
    ) -> Simple {
        let mut found = Templates::default();
        for unit in (0..parsed.units.len() as u32).filter(|&unit| parsed.unit(unit).is_ok_and(|ready| ready.cxx)) {
            if let Err(error) = found.take_unit(parsed, unit) {
                if tell(error) {
                    break;
                }
            }
        }
        let mut speller = Speller {
            parsed,
            signatures,
            found: &found,
            made: HashMap::new(),
            texts: HashSet::new(),
            open: HashSet::new(),
            left: MOST_TEXT,
        };
        for &key in found.arguments.keys() {
            if speller.left == 0 {
                break;
            }
            speller.own(key, MOST_DEPTH);
        }
        Simple { names: speller.made }
    }
}

/// The records of templates whose names have no arguments, and what is around each type.
#[derive(Default)]
struct Templates {
    /// The arguments of each.
    arguments: HashMap<Key, Vec<Key>>,
    /// The namespace or the class around a type, a class or a namespace.
    around: HashMap<Key, Key>,
}

impl Templates {
    fn take_unit(&mut self, parsed: &Parsed<'_>, unit: u32) -> gimli::Result<()> {
        // What is around an entry: its depth, its place, and whether it is a record whose name has no arguments.
        let mut open: Vec<(isize, u32, bool)> = Vec::new();
        parsed.below(parsed.top(unit), |die| {
            while open.last().is_some_and(|&(depth, ..)| depth >= die.depth) {
                open.pop();
            }
            let at = die.offset as u32;
            if is_argument(&die) {
                match open.last() {
                    Some(&(depth, record, true)) if depth + 1 == die.depth => {
                        self.arguments.entry((unit, record)).or_default().push((unit, at));
                    }
                    _ => {}
                }
                return Ok(Below::Skip);
            }
            let named = die.is_record() || matches!(die.tag, c::DW_TAG_namespace | c::DW_TAG_enumeration_type);
            if named || die.tag == c::DW_TAG_typedef {
                if let Some(&(_, outer, _)) = open.last() {
                    self.around.insert((unit, at), (unit, outer));
                }
            }
            if die.children && open.len() < 1 << 10 && (named || die.tag == c::DW_TAG_subprogram) {
                let simple = die.is_record() && parsed.text(unit, &die.name).is_some_and(|name| !name.contains('<'));
                open.push((die.depth, at, simple));
            }
            Ok(Below::Go)
        })
    }
}

/// Makes names.
struct Speller<'s, 'a> {
    parsed: &'s Parsed<'a>,
    signatures: &'s HashMap<u64, Key>,
    found: &'s Templates,
    made: HashMap<Key, Arc<str>>,
    /// The names once more: many units have the same.
    texts: HashSet<Arc<str>>,
    /// The records whose names are being made.
    open: HashSet<Key>,
    left: usize,
}

impl<'a> Speller<'_, 'a> {
    fn die(&self, key: Key) -> Option<Die<'a>> {
        self.parsed.die(key).ok()?
    }

    /// Returns the name of a record without what stands before it.
    fn own(&mut self, key: Key, depth: usize) -> Option<String> {
        if let Some(name) = self.made.get(&key) {
            return Some(name.to_string());
        }
        let die = self.die(key)?;
        let Some(name) = self.parsed.text(key.0, &die.name) else {
            // A declaration that names a type unit.
            let real = self.parsed.resolve(key.0, die.specification?, self.signatures).filter(|&real| real != key)?;
            return if depth == 0 { None } else { self.own(real, depth - 1) };
        };
        let Some(arguments) = self.found.arguments.get(&key) else { return Some(name) };
        // In a damaged file a template may be an argument of itself.
        if !self.open.insert(key) {
            return None;
        }
        let mut texts = Vec::new();
        for &argument in arguments {
            self.argument(argument, depth, &mut texts);
        }
        let inner = texts.join(", ");
        let text = format!("{name}<{inner}{}>", if inner.ends_with('>') { " " } else { "" });
        self.keep(key, &text);
        self.open.remove(&key);
        Some(text)
    }

    fn keep(&mut self, key: Key, text: &str) {
        let known = match self.texts.get(text) {
            Some(known) => known.clone(),
            None => {
                self.left = self.left.saturating_sub(text.len());
                let made: Arc<str> = Arc::from(text);
                self.texts.insert(made.clone());
                made
            }
        };
        self.made.insert(key, known);
    }

    /// Adds the text of an argument, or of each argument of a pack.
    fn argument(&mut self, key: Key, depth: usize, out: &mut Vec<String>) {
        let Some(die) = self.die(key) else { return };
        if die.tag == PACK {
            let mut inner = Vec::new();
            let walked = self.parsed.below(key, |child| {
                if child.depth == 1 && is_argument(&child) && child.tag != PACK {
                    inner.push((key.0, child.offset as u32));
                }
                Ok(if child.depth == 0 { Below::Go } else { Below::Skip })
            });
            if walked.is_ok() {
                for argument in inner {
                    self.argument(argument, depth, out);
                }
            }
            return;
        }
        let text = match die.tag {
            c::DW_TAG_template_type_parameter => self.spelled(key, &die, depth),
            c::DW_TAG_template_value_parameter => self.value(key, &die, depth),
            _ => None,
        };
        out.push(text.filter(|text| text.len() <= LONGEST).unwrap_or_else(|| UNKNOWN.to_string()));
    }

    /// Returns the text of a number as an argument.
    fn value(&mut self, key: Key, die: &Die<'a>, depth: usize) -> Option<String> {
        let value = die.constant?;
        let mut kind = self.parsed.resolve(key.0, die.kind?, self.signatures)?;
        for _ in 0..16 {
            let named = self.die(kind)?;
            match named.tag {
                c::DW_TAG_typedef | c::DW_TAG_const_type => {
                    kind = self.parsed.resolve(kind.0, named.kind?, self.signatures)?;
                }
                c::DW_TAG_enumeration_type => {
                    return Some(format!("({}){}", self.whole(kind, depth.checked_sub(1)?)?, value as i64));
                }
                c::DW_TAG_base_type => {
                    return Some(match self.parsed.text(kind.0, &named.name)?.as_str() {
                        "bool" => (value != 0).to_string(),
                        "int" => (value as i64).to_string(),
                        "long" => format!("{}L", value as i64),
                        "long long" => format!("{}LL", value as i64),
                        "unsigned int" => format!("{value}U"),
                        "unsigned long" => format!("{value}UL"),
                        "unsigned long long" => format!("{value}ULL"),
                        name if named.encoding == Some(c::DW_ATE_signed) => format!("({name}){}", value as i64),
                        name => format!("({name}){value}"),
                    });
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the name of a type with what stands before it.
    fn whole(&mut self, key: Key, depth: usize) -> Option<String> {
        let mut parts = vec![self.own(key, depth)?];
        let (mut at, mut length) = (key, 0);
        // A declaration that names a type unit has what is around it; the unit has it, too.
        while let Some(&outer) = self.found.around.get(&at) {
            let die = self.die(outer)?;
            let part = match die.tag {
                c::DW_TAG_namespace => {
                    self.parsed.text(outer.0, &die.name).unwrap_or_else(|| "(anonymous namespace)".to_string())
                }
                c::DW_TAG_subprogram => format!("{}()", self.parsed.text(outer.0, &die.name)?),
                _ => self.own(outer, depth.checked_sub(1)?)?,
            };
            length += part.len();
            if length > LONGEST || parts.len() > MOST_DEPTH {
                return None;
            }
            parts.push(part);
            at = outer;
        }
        parts.reverse();
        Some(parts.join("::"))
    }

    /// Returns the type that an entry has, as demanglers write it.
    fn spelled(&mut self, key: Key, die: &Die<'a>, depth: usize) -> Option<String> {
        let Some(reference) = die.kind else { return Some("void".to_string()) };
        let kind = self.parsed.resolve(key.0, reference, self.signatures)?;
        self.declared(kind, String::new(), depth.checked_sub(1)?)
    }

    /// Returns a type around a declarator: "*" becomes "int*", or "int (*)(char)".
    fn declared(&mut self, mut key: Key, mut inner: String, depth: usize) -> Option<String> {
        for _ in 0..MOST_DEPTH {
            let die = self.die(key)?;
            inner = match die.tag {
                c::DW_TAG_pointer_type => format!("*{inner}"),
                c::DW_TAG_reference_type => format!("&{inner}"),
                c::DW_TAG_rvalue_reference_type => format!("&&{inner}"),
                c::DW_TAG_const_type => format!(" const{inner}"),
                c::DW_TAG_volatile_type => format!(" volatile{inner}"),
                c::DW_TAG_typedef => {
                    let target = die.kind.and_then(|to| self.parsed.resolve(key.0, to, self.signatures));
                    let unnamed = |die: Die<'_>| die.is_record() && die.name.is_none() && die.specification.is_none();
                    if target.and_then(|target| self.die(target)).is_some_and(unnamed) {
                        return Some(format!("{}{inner}", self.whole(key, depth)?));
                    }
                    inner
                }
                c::DW_TAG_array_type => {
                    let mut bounds = String::new();
                    self.parsed
                        .below(key, |child| {
                            if child.tag == c::DW_TAG_subrange_type && bounds.len() < 64 {
                                let count = child
                                    .count
                                    .or(child.upper.and_then(|upper| u64::try_from(upper.checked_add(1)?).ok()));
                                bounds += &count.map_or("[]".to_string(), |count| format!("[{count}]"));
                            }
                            Ok(if child.depth == 0 { Below::Go } else { Below::Skip })
                        })
                        .ok()?;
                    if inner.is_empty() {
                        format!(" {bounds}")
                    } else {
                        format!(" ({inner}){bounds}")
                    }
                }
                c::DW_TAG_subroutine_type => {
                    let mut of = Vec::new();
                    self.parsed
                        .below(key, |child| {
                            let go = if child.depth == 0 { Below::Go } else { Below::Skip };
                            match child.tag {
                                c::DW_TAG_formal_parameter if child.depth == 1 => of.push(Some(child)),
                                c::DW_TAG_unspecified_parameters if child.depth == 1 => of.push(None),
                                _ => {}
                            }
                            Ok(go)
                        })
                        .ok()?;
                    let mut texts = Vec::new();
                    for parameter in of {
                        texts.push(match parameter {
                            Some(parameter) => self.spelled(key, &parameter, depth)?,
                            None => "...".to_string(),
                        });
                    }
                    let declarator = if inner.is_empty() { String::new() } else { format!("({inner})") };
                    format!(" {declarator}({})", texts.join(", "))
                }
                c::DW_TAG_base_type | c::DW_TAG_unspecified_type => {
                    return Some(format!("{}{inner}", self.parsed.text(key.0, &die.name)?));
                }
                _ if die.is_record() || die.tag == c::DW_TAG_enumeration_type => {
                    return Some(format!("{}{inner}", self.whole(key, depth)?));
                }
                // A pointer to a member, and what nobody has thought of.
                _ => return None,
            };
            if inner.len() > LONGEST {
                return None;
            }
            match die.kind {
                Some(next) => key = self.parsed.resolve(key.0, next, self.signatures)?,
                None => return Some(format!("void{inner}")),
            }
        }
        None
    }
}
