//! Source lines: an ELF file whose debug sections come from the input.

use dmods_engine::lines::Lines;
use dmods_engine::Control;

use super::files::scratch;
use super::Input;

const SECTIONS: [&str; 9] = [
    ".debug_abbrev",
    ".debug_info",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_rnglists",
    ".debug_ranges",
    ".debug_aranges",
    ".gnu_debugaltlink",
];
const SECTION_HEADER: usize = 64;
const FILE_HEADER: usize = 64;
const SHF_COMPRESSED: u64 = 1 << 11;

/// The input is the whole file, or only the content of its sections.
pub fn lines(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let path = if how == 0 { scratch(&[(0, input.0)]) } else { scratch(&[(0, &program(&mut input, how))]) };
    let lines = Lines::new(Some(path), Vec::new(), None);
    let addresses = [0, 1, 0x1000, 0x1010, 0x1fff, u64::from(how) << 8, u64::MAX];
    let answers = lines.find(&addresses, &Control::default()).expect("nobody cancels");
    assert_eq!(answers.len(), addresses.len());
    assert!(answers.iter().all(|frames| frames.len() <= 256));
    let problems = lines.problems();
    assert!(!problems.iter().any(|problem| problem.contains("parser failed")), "a panic: {problems:?}");
}

/// A linked 64-bit ELF file with the debug sections that the input has, some of them compressed.
fn program(input: &mut Input, how: u8) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let (mut contents, mut headers) = (Vec::new(), vec![[0u8; SECTION_HEADER]]);
    let mut add = |name: usize, flags: u64, content: &[u8]| {
        let mut header = [0; SECTION_HEADER];
        let fields = [(8, flags), (24, (FILE_HEADER + contents.len()) as u64), (32, content.len() as u64)];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4] = 1; // SHT_PROGBITS
        for (at, value) in fields {
            header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        contents.extend_from_slice(content);
        headers.push(header);
    };
    for (number, name) in SECTIONS.iter().enumerate() {
        let size = if number == 1 { usize::from(input.byte()) * 4 } else { usize::from(input.byte()) };
        let flags = if usize::from(how) == 200 + number { SHF_COMPRESSED } else { 0 };
        add(names.len(), flags, input.take(size));
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    add(1, 0, &names);
    let mut file = vec![0; FILE_HEADER];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16] = 3; // ET_DYN
    file[18] = 62;
    file[20] = 1;
    file[40..48].copy_from_slice(&((FILE_HEADER + contents.len()) as u64).to_le_bytes());
    for (at, value) in [(52, FILE_HEADER), (58, SECTION_HEADER), (60, headers.len()), (62, headers.len() - 1)] {
        file[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    file.extend(contents);
    file.extend(headers.concat());
    file
}
