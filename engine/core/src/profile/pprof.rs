//! profile.proto of pprof (github.com/google/pprof, proto/profile.proto), compressed by gzip.
//!
//! The messages have only the fields that dmods writes or needs. A reader ignores fields that it does not know.

use std::io::{Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use prost::Message;

/// The type and the unit of a value, as indices of strings.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    /// "inuse_space"
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// "bytes"
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A label of a sample.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// Its name, as the index of a string.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The text, as the index of a string; 0: the label is a number.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// The number.
    #[prost(int64, tag = "3")]
    pub num: i64,
    /// The unit of the number, as the index of a string.
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// A stack with its values.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Locations, leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// What else is known.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A mapped file.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    /// Counted from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Where it begins.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// Where it ends.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// The place of its beginning in the file.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// The file, as the index of a string.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Lower-case hex, as the index of a string.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Whether functions were looked up for all locations.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Whether source files were.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Whether lines were.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Whether inlined functions were.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A line of a function.
#[derive(Clone, PartialEq, Message)]
pub struct Line {
    /// The function's id.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line in the source.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A place in the code.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Counted from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The mapping's id; 0: not known.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// An address inside the instruction: return addresses are written minus 1.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// The functions, innermost first: those that were inlined, then the function itself.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// Counted from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The name, as the index of a string.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// The name in the symbol table.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// The source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Where it begins there.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// The whole file.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// The types of the values of each sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The mappings. The first one is the program.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The locations.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings. The first one is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// When the profile was taken: ns since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// What lies between two samples.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// How much of it.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Remarks, as indices of strings.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The type that is shown first, as the index of a string.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// Returns the file of a profile.
pub fn encode(profile: &Profile) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = gzip.write_all(&profile.encode_to_vec());
    gzip.finish().unwrap_or_default()
}

/// Messages and strings that a file may hold. An empty one takes two bytes there, and a hundred in memory.
const MOST_ENTRIES: usize = 1 << 21;

/// Returns how many fields the outermost message has, up to `most`. A damaged one ends the count.
fn entries(mut plain: &[u8], most: usize) -> usize {
    let mut count = 0;
    while count < most && !plain.is_empty() {
        count += 1;
        let Ok((_, wire)) = prost::encoding::decode_key(&mut plain) else { break };
        let size = match wire {
            prost::encoding::WireType::Varint => prost::encoding::decode_varint(&mut plain).map(|_| 0),
            prost::encoding::WireType::SixtyFourBit => Ok(8),
            prost::encoding::WireType::ThirtyTwoBit => Ok(4),
            prost::encoding::WireType::LengthDelimited => prost::encoding::decode_varint(&mut plain),
            _ => break,
        };
        let Some(rest) = size.ok().and_then(|size| plain.get(usize::try_from(size).ok()?..)) else { break };
        plain = rest;
    }
    count
}

/// Returns the profile in a file. `most` bounds its size when it is unpacked. The error says what is wrong.
pub fn decode(file: &[u8], most: u64) -> Result<Profile, String> {
    let mut plain = Vec::new();
    let unpacked = MultiGzDecoder::new(file).take(most.saturating_add(1)).read_to_end(&mut plain);
    unpacked.map_err(|error| format!("it cannot be unpacked: {error}"))?;
    if plain.len() as u64 > most {
        return Err(format!("it has more than {most} bytes when it is unpacked"));
    }
    parse(&plain)
}

/// Returns the profile in a file that was unpacked. The error says what is wrong.
pub fn parse(plain: &[u8]) -> Result<Profile, String> {
    if entries(plain, MOST_ENTRIES + 1) > MOST_ENTRIES {
        return Err(format!("it has more than {MOST_ENTRIES} entries"));
    }
    Profile::decode(plain).map_err(|error| format!("it is not a profile of pprof: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_comes_back_as_it_was() {
        let profile = Profile {
            sample: vec![Sample { location_id: vec![1, 2], value: vec![-5, 1 << 60], label: vec![] }],
            string_table: vec![String::new(), "ü".into()],
            ..Profile::default()
        };
        assert_eq!(decode(&encode(&profile), 1 << 20), Ok(profile));
    }

    #[test]
    fn damaged_and_oversized_files_are_errors() {
        assert!(decode(b"nothing", 100).unwrap_err().starts_with("it cannot be unpacked"));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&[0; 10_000]).unwrap();
        let zeros = gzip.finish().unwrap();
        assert!(decode(&zeros, 100).unwrap_err().contains("more than 100 bytes"));
        assert!(decode(&zeros, 1 << 20).unwrap_err().contains("not a profile"));
        let many = [0x12u8, 0].repeat(MOST_ENTRIES + 1);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&many).unwrap();
        assert!(decode(&gzip.finish().unwrap(), 1 << 30).unwrap_err().contains("entries"));
        let file = encode(&Profile { period: 7, ..Profile::default() });
        assert!(decode(&file[..file.len() - 9], 100).is_err());
    }
}
