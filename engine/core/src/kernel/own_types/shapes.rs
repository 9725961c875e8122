//! The entries that the file has, each with its attributes, and how they are written.

use gimli::constants::*;

const STRP: DwForm = DW_FORM_strp;
const UDATA: DwForm = DW_FORM_udata;
const REF: DwForm = DW_FORM_ref4;
const PROTOTYPED: (DwAt, DwForm) = (DW_AT_prototyped, DW_FORM_flag_present);
const SIBLING: (DwAt, DwForm) = (DW_AT_sibling, REF);

/// The shapes of entries: (tag, whether it has children, attributes). The code of a shape is its place, from 1.
#[derive(Clone, Copy)]
#[allow(missing_docs)] // each is what it is called
pub enum Shape {
    Unit = 1,
    Base,
    Pointer,
    VoidPointer,
    Const,
    VoidConst,
    Volatile,
    VoidVolatile,
    Restrict,
    VoidRestrict,
    Typedef,
    VoidTypedef,
    Struct,
    UnnamedStruct,
    Union,
    UnnamedUnion,
    StructDeclaration,
    UnionDeclaration,
    Member,
    UnnamedMember,
    BitField,
    Array,
    Count,
    NoCount,
    Enum,
    UnnamedEnum,
    SignedValue,
    UnsignedValue,
    Prototype,
    VoidPrototype,
    Parameter,
    MoreParameters,
    Variable,
    Function,
    VoidFunction,
}

type Attributes = &'static [(DwAt, DwForm)];

const SHAPES: &[(DwTag, bool, Attributes)] = &[
    (DW_TAG_compile_unit, true, &[(DW_AT_producer, DW_FORM_strp), (DW_AT_language, DW_FORM_data1)]),
    (DW_TAG_base_type, false, &[(DW_AT_name, STRP), (DW_AT_byte_size, UDATA), (DW_AT_encoding, DW_FORM_data1)]),
    (DW_TAG_pointer_type, false, &[(DW_AT_type, REF), (DW_AT_byte_size, DW_FORM_data1)]),
    (DW_TAG_pointer_type, false, &[(DW_AT_byte_size, DW_FORM_data1)]),
    (DW_TAG_const_type, false, &[(DW_AT_type, REF)]),
    (DW_TAG_const_type, false, &[]),
    (DW_TAG_volatile_type, false, &[(DW_AT_type, REF)]),
    (DW_TAG_volatile_type, false, &[]),
    (DW_TAG_restrict_type, false, &[(DW_AT_type, REF)]),
    (DW_TAG_restrict_type, false, &[]),
    (DW_TAG_typedef, false, &[(DW_AT_name, STRP), (DW_AT_type, REF)]),
    (DW_TAG_typedef, false, &[(DW_AT_name, STRP)]),
    (DW_TAG_structure_type, true, &[(DW_AT_name, STRP), (DW_AT_byte_size, UDATA), SIBLING]),
    (DW_TAG_structure_type, true, &[(DW_AT_byte_size, UDATA), SIBLING]),
    (DW_TAG_union_type, true, &[(DW_AT_name, STRP), (DW_AT_byte_size, UDATA), SIBLING]),
    (DW_TAG_union_type, true, &[(DW_AT_byte_size, UDATA), SIBLING]),
    (DW_TAG_structure_type, false, &[(DW_AT_name, STRP), (DW_AT_declaration, DW_FORM_flag_present)]),
    (DW_TAG_union_type, false, &[(DW_AT_name, STRP), (DW_AT_declaration, DW_FORM_flag_present)]),
    (DW_TAG_member, false, &[(DW_AT_name, STRP), (DW_AT_type, REF), (DW_AT_data_member_location, UDATA)]),
    (DW_TAG_member, false, &[(DW_AT_type, REF), (DW_AT_data_member_location, UDATA)]),
    (
        DW_TAG_member,
        false,
        &[(DW_AT_name, STRP), (DW_AT_type, REF), (DW_AT_data_bit_offset, UDATA), (DW_AT_bit_size, UDATA)],
    ),
    (DW_TAG_array_type, true, &[(DW_AT_type, REF)]),
    (DW_TAG_subrange_type, false, &[(DW_AT_count, UDATA)]),
    (DW_TAG_subrange_type, false, &[]),
    (DW_TAG_enumeration_type, true, &[(DW_AT_name, STRP), (DW_AT_type, REF), (DW_AT_byte_size, UDATA)]),
    (DW_TAG_enumeration_type, true, &[(DW_AT_type, REF), (DW_AT_byte_size, UDATA)]),
    (DW_TAG_enumerator, false, &[(DW_AT_name, STRP), (DW_AT_const_value, DW_FORM_sdata)]),
    (DW_TAG_enumerator, false, &[(DW_AT_name, STRP), (DW_AT_const_value, UDATA)]),
    (DW_TAG_subroutine_type, true, &[(DW_AT_type, REF), PROTOTYPED, SIBLING]),
    (DW_TAG_subroutine_type, true, &[PROTOTYPED, SIBLING]),
    (DW_TAG_formal_parameter, false, &[(DW_AT_type, REF)]),
    (DW_TAG_unspecified_parameters, false, &[]),
    (DW_TAG_variable, false, &[(DW_AT_name, STRP), (DW_AT_type, REF), (DW_AT_location, DW_FORM_exprloc)]),
    (
        DW_TAG_subprogram,
        true,
        &[(DW_AT_name, STRP), (DW_AT_type, REF), PROTOTYPED, (DW_AT_low_pc, DW_FORM_addr), SIBLING],
    ),
    (DW_TAG_subprogram, true, &[(DW_AT_name, STRP), PROTOTYPED, (DW_AT_low_pc, DW_FORM_addr), SIBLING]),
];

/// Returns `.debug_abbrev`.
pub fn abbreviations() -> Vec<u8> {
    let mut out = Vec::new();
    for (place, &(tag, children, attributes)) in SHAPES.iter().enumerate() {
        uleb(&mut out, place as u64 + 1);
        uleb(&mut out, u64::from(tag.0));
        out.push(u8::from(children));
        for (name, form) in attributes {
            uleb(&mut out, u64::from(name.0));
            uleb(&mut out, u64::from(form.0));
        }
        out.extend([0, 0]);
    }
    out.push(0);
    out
}

/// Writes an unsigned number in seven bits a byte (LEB128).
pub fn uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
