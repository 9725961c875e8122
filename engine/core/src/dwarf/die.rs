//! One entry of the debug information: the attributes that types and variables need.

use gimli::{
    constants as c, Abbreviation, Attribute, AttributeValue, DebugInfoOffset, EntriesRaw, Expression, Reader,
    UnitOffset,
};

use crate::lines::Bounded;

/// Where a type of an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// In the same unit.
    Unit(usize),
    /// In the same file.
    File(usize),
    /// In the file that dwz made.
    Supplementary(usize),
    /// A type unit, by its signature.
    Signature(u64),
}

/// Where the value of a variable is.
#[derive(Clone, Debug)]
pub(super) enum Place<'a> {
    Expression(Expression<Bounded<'a>>),
    /// A list of places, each with its range of pc: where it is, or its number.
    List(AttributeValue<Bounded<'a>>),
}

/// What an entry says.
#[derive(Clone, Debug)]
pub(super) struct Die<'a> {
    pub(super) offset: usize,
    pub(super) depth: isize,
    pub(super) tag: gimli::DwTag,
    pub(super) children: bool,
    /// Where the next entry of the same depth stands in the unit, if the compiler says so.
    pub(super) sibling: Option<usize>,
    pub(super) name: Option<AttributeValue<Bounded<'a>>>,
    pub(super) linkage: Option<AttributeValue<Bounded<'a>>>,
    pub(super) kind: Option<Reference>,
    pub(super) specification: Option<Reference>,
    pub(super) origin: Option<Reference>,
    pub(super) size: Option<u64>,
    pub(super) align: Option<u64>,
    pub(super) member_at: Option<u64>,
    /// The place of a member is computed at run time (a virtual base class).
    pub(super) member_moves: bool,
    pub(super) count: Option<u64>,
    pub(super) upper: Option<i64>,
    pub(super) bit_size: Option<u64>,
    pub(super) bit_offset: Option<u64>,
    pub(super) data_bit_offset: Option<u64>,
    pub(super) encoding: Option<gimli::DwAte>,
    pub(super) declaration: bool,
    pub(super) external: bool,
    pub(super) place: Option<Place<'a>>,
    pub(super) frame_base: Option<Place<'a>>,
    pub(super) low: Option<AttributeValue<Bounded<'a>>>,
    pub(super) high: Option<AttributeValue<Bounded<'a>>>,
    pub(super) ranges: Option<AttributeValue<Bounded<'a>>>,
    /// The class that holds a virtual table or a member.
    pub(super) containing: Option<Reference>,
    pub(super) line: Option<u64>,
    /// The value of a constant, or of a template's argument. A negative one is in two's complement.
    pub(super) constant: Option<u64>,
    /// Of a variant: the value of the discriminant, if it has one and it is a number.
    pub(super) discriminant: Option<u64>,
    /// Of a variant: it has a value, or a list of values. One without is there for all other values.
    pub(super) discriminated: bool,
}

impl<'a> Die<'a> {
    fn new(offset: usize, depth: isize, tag: gimli::DwTag, children: bool) -> Die<'a> {
        Die {
            offset,
            depth,
            tag,
            children,
            sibling: None,
            name: None,
            linkage: None,
            kind: None,
            specification: None,
            origin: None,
            size: None,
            discriminant: None,
            discriminated: false,
            align: None,
            member_at: None,
            member_moves: false,
            count: None,
            upper: None,
            bit_size: None,
            bit_offset: None,
            data_bit_offset: None,
            encoding: None,
            declaration: false,
            external: false,
            place: None,
            frame_base: None,
            low: None,
            high: None,
            ranges: None,
            containing: None,
            line: None,
            constant: None,
        }
    }

    /// Reads the next entry. None: it is the end of a list of children.
    pub(super) fn next(entries: &mut EntriesRaw<'_, '_, Bounded<'a>>) -> gimli::Result<Option<Die<'a>>> {
        let (offset, depth) = (entries.next_offset().0, entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
        Die::read(entries, abbreviation, offset, depth).map(Some)
    }

    /// Reads the attributes of the entry at an offset, whose abbreviation was read.
    pub(super) fn read(
        entries: &mut EntriesRaw<'_, '_, Bounded<'a>>,
        abbreviation: &Abbreviation,
        offset: usize,
        depth: isize,
    ) -> gimli::Result<Die<'a>> {
        let mut die = Die::new(offset, depth, abbreviation.tag(), abbreviation.has_children());
        for specification in abbreviation.attributes() {
            die.take(&entries.read_attribute(*specification)?);
        }
        Ok(die)
    }

    fn take(&mut self, attribute: &Attribute<Bounded<'a>>) {
        let value = || attribute.value();
        match attribute.name() {
            c::DW_AT_sibling => self.sibling = offset_in_unit(&value()),
            c::DW_AT_name => self.name = Some(attribute.value()),
            c::DW_AT_linkage_name | c::DW_AT_MIPS_linkage_name => self.linkage = Some(attribute.value()),
            c::DW_AT_type => self.kind = reference(&value()),
            c::DW_AT_specification => self.specification = reference(&value()),
            c::DW_AT_abstract_origin => self.origin = reference(&value()),
            c::DW_AT_signature => self.specification = reference(&value()),
            c::DW_AT_byte_size => self.size = attribute.udata_value(),
            c::DW_AT_alignment => self.align = attribute.udata_value(),
            c::DW_AT_data_member_location => match attribute.udata_value() {
                Some(at) => self.member_at = Some(at),
                None => match plus_constant(&value()) {
                    Some(at) => self.member_at = Some(at),
                    None => self.member_moves = true,
                },
            },
            c::DW_AT_count => self.count = attribute.udata_value(),
            c::DW_AT_upper_bound => {
                // DWARF 5, 7.5.5: the form does not say whether a constant has a sign. An array of 200 elements has 199 in a
                // byte. gcc writes -1 for none, as signed or in 8 bytes.
                self.upper = match attribute.value() {
                    AttributeValue::Data1(value) => Some(i64::from(value)),
                    AttributeValue::Data2(value) => Some(i64::from(value)),
                    AttributeValue::Data4(value) if value != u32::MAX => Some(i64::from(value)),
                    _ => attribute.sdata_value().or_else(|| i64::try_from(attribute.udata_value()?).ok()),
                };
            }
            c::DW_AT_discr_value => {
                self.discriminated = true;
                self.discriminant =
                    attribute.udata_value().or_else(|| attribute.sdata_value().map(|value| value as u64));
            }
            c::DW_AT_discr_list => self.discriminated = true,
            c::DW_AT_bit_size => self.bit_size = attribute.udata_value(),
            c::DW_AT_bit_offset => self.bit_offset = attribute.udata_value(),
            c::DW_AT_data_bit_offset => self.data_bit_offset = attribute.udata_value(),
            c::DW_AT_encoding => {
                if let AttributeValue::Encoding(encoding) = value() {
                    self.encoding = Some(encoding);
                }
            }
            c::DW_AT_declaration => self.declaration = matches!(value(), AttributeValue::Flag(true)),
            c::DW_AT_external => self.external = matches!(value(), AttributeValue::Flag(true)),
            c::DW_AT_location => self.place = place(value()),
            c::DW_AT_frame_base => self.frame_base = place(value()),
            c::DW_AT_low_pc => self.low = Some(value()),
            c::DW_AT_high_pc => self.high = Some(value()),
            c::DW_AT_ranges => self.ranges = Some(value()),
            c::DW_AT_containing_type => self.containing = reference(&value()),
            c::DW_AT_const_value => {
                self.constant = attribute.udata_value().or_else(|| attribute.sdata_value().map(|value| value as u64));
            }
            c::DW_AT_decl_line => self.line = attribute.udata_value(),
            _ => {}
        }
    }

    /// Returns whether the entry is a type that has a name and members of its own.
    pub(super) fn is_record(&self) -> bool {
        matches!(self.tag, c::DW_TAG_structure_type | c::DW_TAG_class_type | c::DW_TAG_union_type)
    }
}

fn reference(value: &AttributeValue<Bounded<'_>>) -> Option<Reference> {
    match *value {
        AttributeValue::UnitRef(UnitOffset(at)) => Some(Reference::Unit(at)),
        AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => Some(Reference::File(at)),
        AttributeValue::DebugInfoRefSup(DebugInfoOffset(at)) => Some(Reference::Supplementary(at)),
        AttributeValue::DebugTypesRef(signature) => Some(Reference::Signature(signature.0)),
        _ => None,
    }
}

/// Returns the offset in the unit that an attribute has.
pub(super) fn offset_in_unit(value: &AttributeValue<Bounded<'_>>) -> Option<usize> {
    match *value {
        AttributeValue::UnitRef(UnitOffset(at)) => Some(at),
        _ => None,
    }
}

fn place(value: AttributeValue<Bounded<'_>>) -> Option<Place<'_>> {
    match value {
        AttributeValue::Exprloc(expression) => Some(Place::Expression(expression)),
        AttributeValue::Block(bytes) => Some(Place::Expression(Expression(bytes))),
        AttributeValue::LocationListsRef(_) | AttributeValue::DebugLocListsIndex(_) => Some(Place::List(value)),
        _ => None,
    }
}

/// Returns the number in an expression that is `DW_OP_plus_uconst N`: how gcc wrote offsets in DWARF 2.
fn plus_constant(value: &AttributeValue<Bounded<'_>>) -> Option<u64> {
    let mut bytes = match value {
        AttributeValue::Exprloc(expression) => expression.0,
        AttributeValue::Block(bytes) => *bytes,
        _ => return None,
    };
    let operation = bytes.read_u8().ok()?;
    let number = bytes.read_uleb128().ok()?;
    (operation == c::DW_OP_plus_uconst.0 && bytes.is_empty()).then_some(number)
}
