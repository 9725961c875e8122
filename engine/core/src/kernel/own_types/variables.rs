//! The variables and functions of a kernel. BTF has the types of per-CPU variables alone. Those of others are told by
//! the caller.

use std::collections::HashSet;

use super::btf::{name_of, Btf, Type};
use super::dwarf::{Function, Variable};
use super::file::Kernel;
use super::table::Table;

const PER_CPU: &[u8] = b".data..percpu";
/// An array of variables has no more elements.
const MOST_ELEMENTS: u64 = 1 << 24;

/// What stands for the type of a function whose prototype is not known.
const FUNCTION: &str = "function";

/// How many elements a variable has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// It is no array.
    One,
    /// It is an array that fills the room up to the next symbol.
    Fill,
    /// It is that where there is room for more than one, else a pointer to the first.
    FillOrPointer,
}

/// A variable and its type in C's words: `pointers` pointers to `of` ("struct page", "long unsigned int"). A structure
/// without a name is told by its members: "struct {seq, timekeeper}". "function" is one whose prototype may be missing.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// The type that it is made of.
    pub of: String,
    /// The number of pointers that lead to it.
    pub pointers: u32,
    /// Whether it is an array.
    pub elements: Elements,
}

/// Returns the variables that this kernel has. A name that it does not have, or that is several symbols, is left out.
pub fn variables(kernel: &Kernel, table: &Table, btf: &Btf, declared: &[Declared]) -> Vec<Variable> {
    let (types, symbols) = (btf.by_name(), table.symbols());
    let mut found: Vec<Variable> = per_cpu(btf, table).collect();
    for one in &mut found {
        one.address = kernel.linked(one.address);
    }
    let taken: HashSet<String> = found.iter().map(|one| one.name.clone()).collect();
    for one in declared.iter().filter(|one| !taken.contains(&one.name)) {
        let Some(symbol) = table.only(&one.name) else { continue };
        if one.of == FUNCTION {
            if !has_function(btf, &one.name) {
                let address = symbol.address.wrapping_sub(kernel.moved);
                let name = one.name.clone();
                found.push(Variable { name, address, of: 0, pointers: 0, count: None, function: true });
            }
            continue;
        }
        let members = one.of.strip_prefix("struct {").and_then(|rest| rest.strip_suffix('}'));
        let of = match (members, one.of.as_str()) {
            (_, "void") => Some(0),
            (Some(members), _) => btf.unnamed(&members.split(", ").map(str::as_bytes).collect::<Vec<_>>()),
            (None, name) => types.get(&name_of(name)).copied(),
        };
        let Some(of) = of else { continue };
        let element = if one.pointers > 0 { Some(8) } else { btf.size(of) };
        let room = symbols.partition_point(|other| other.address <= symbol.address);
        let room = symbols.get(room).map_or(0, |next| next.address - symbol.address);
        let fits = element.filter(|&size| size > 0).map_or(0, |size| room / size).min(MOST_ELEMENTS);
        let (pointers, count) = match one.elements {
            Elements::One => (one.pointers, None),
            Elements::FillOrPointer if fits < 2 => (one.pointers + 1, None),
            Elements::Fill | Elements::FillOrPointer => (one.pointers, Some(fits)),
        };
        let (name, address) = (one.name.clone(), kernel.linked(symbol.address));
        found.push(Variable { name, address, of, pointers, count, function: false });
    }
    found
}

fn has_function(btf: &Btf, wanted: &str) -> bool {
    let named = |one: &Type| matches!(*one, Type::Function { name, .. } if btf.string(name) == wanted.as_bytes());
    btf.types().iter().any(named)
}

/// Returns the functions whose name is one symbol, of the kernel and of its modules.
pub fn functions(kernel: &Kernel, symbols: &Table, of_modules: &Table, btf: &Btf) -> Vec<Function> {
    // Debuggers move every function of the file as far as the kernel was moved.
    let linked = |address: u64| address.wrapping_sub(kernel.moved);
    let found = btf.types().iter().filter_map(|one| match *one {
        Type::Function { name, prototype } => {
            let text = std::str::from_utf8(btf.string(name)).ok()?;
            let mut known = symbols.named(text).chain(of_modules.named(text));
            let symbol = known.next()?;
            known.next().is_none().then(|| Function { name, address: linked(symbol.address), prototype })
        }
        _ => None,
    });
    found.collect()
}

/// Returns a per-CPU variable that is not where the types have it: (name, there, where the symbol is). The types and the
/// symbols are then not of one build. A name that is several symbols says nothing.
pub fn misplaced(symbols: &Table, btf: &Btf) -> Option<(String, u64, u64)> {
    let start = symbols.named("__per_cpu_start").next()?.address;
    let found = btf.types().iter().filter_map(|one| match *one {
        Type::Section { name, entries, count } if btf.string(name) == PER_CPU => Some((entries, count)),
        _ => None,
    });
    let mut placed = found.flat_map(|(entries, count)| btf.placed(entries, count));
    placed.find_map(|placed| {
        let Type::Variable { name, .. } = *btf.types().get(placed.variable as usize)? else { return None };
        let name = std::str::from_utf8(btf.string(name)).ok()?;
        let symbol = symbols.only(name)?;
        let expected = start.wrapping_add(u64::from(placed.offset));
        (symbol.address != expected).then(|| (name.to_string(), expected, symbol.address))
    })
}

/// The per-CPU variables, at the addresses that the symbols have: an offset from the first on x86-64 up to 6.14.
fn per_cpu<'a>(btf: &'a Btf, symbols: &'a Table) -> impl Iterator<Item = Variable> + 'a {
    let start = symbols.named("__per_cpu_start").next().map_or(0, |symbol| symbol.address);
    let sections = btf.types().iter().filter_map(move |one| match *one {
        Type::Section { name, entries, count } if btf.string(name) == PER_CPU => Some((entries, count)),
        _ => None,
    });
    sections.flat_map(move |(entries, count)| btf.placed(entries, count)).filter_map(move |placed| {
        let Type::Variable { name, of } = *btf.types().get(placed.variable as usize)? else { return None };
        let name = std::str::from_utf8(btf.string(name)).ok()?;
        let address = start.wrapping_add(u64::from(placed.offset));
        symbols.named(name).any(|symbol| symbol.address == address).then(|| Variable {
            name: name.to_string(),
            address,
            of,
            pointers: 0,
            count: None,
            function: false,
        })
    })
}
