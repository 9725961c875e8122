//! Damaged and hostile debug information: notes and no answers, and never a panic or memory without bound.

use std::path::{Path, PathBuf};
use std::process::Command;

use dmods_engine::lines::{Frame, Lines};
use dmods_engine::Control;

use super::oracle::addresses;
use super::programs::{self, run, text};

fn ask(path: &Path, addresses: &[u64]) -> (Vec<Vec<Frame>>, Vec<String>) {
    let lines = Lines::new(Some(path.to_path_buf()), Vec::new(), None);
    (lines.find(addresses, &Control::default()).expect("not cancelled"), lines.problems())
}

#[test]
fn what_is_no_elf_file_is_a_problem_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(&str, Option<&[u8]>, &str); 4] = [
        ("nowhere", None, "there is no such file"),
        ("empty", Some(b""), "it is not an ELF file"),
        ("text", Some(b"#!/bin/sh\necho never more than that\n"), "it is not an ELF file"),
        ("head", Some(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"), "its headers are damaged"),
    ];
    for (name, content, words) in cases {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).expect("written");
        }
        let (answers, problems) = ask(&path, &[0, 4096, u64::MAX]);
        assert!(answers.iter().all(Vec::is_empty));
        assert!(problems.len() == 1 && problems[0].contains(words), "{problems:?}");
        assert!(problems[0].starts_with(text(&path)), "{problems:?}");
    }
    let (_, problems) = ask(folder.path(), &[0]);
    assert!(problems[0].contains("it is not a regular file"), "{problems:?}");
    let (_, problems) = ask(Path::new("/dev/zero"), &[0]);
    assert!(problems[0].contains("it is not a regular file"), "{problems:?}");
}

/// A file cut anywhere, or with any byte changed, may cost answers.
#[test]
fn cut_and_changed_files_cost_answers_only() {
    let folder = tempfile::tempdir().expect("a folder");
    for options in [&["-gdwarf-5"][..], &["-gdwarf-4", "-gz=zlib"]] {
        let program = programs::c(folder.path(), options);
        let addresses: Vec<u64> = addresses(&program).into_iter().step_by(5).collect();
        let whole = std::fs::read(&program).expect("there");
        let damaged = folder.path().join("damaged");
        let mut random = 88172645463325252u64;
        for round in 0..300 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % whole.len() as u64) as usize;
            let mut bytes = whole.clone();
            if round % 3 == 0 {
                bytes.truncate(at);
            } else {
                bytes[at] ^= (random >> 32) as u8 | 1;
            }
            std::fs::write(&damaged, bytes).expect("written");
            let (answers, problems) = ask(&damaged, &addresses);
            assert_eq!(answers.len(), addresses.len());
            assert!(!problems.iter().any(|problem| problem.contains("parser failed")), "{problems:?}");
        }
    }
}

/// Assembles a program whose first unit in .debug_info has these entries; `units` are further ones.
fn assembled(folder: &Path, entries: &str, units: &str, abbrev: &str) -> PathBuf {
    let source = format!(
        ".globl main\nmain:\n.Ltext:\nxorl %eax, %eax\nret\n.Lend:\n.section .debug_info,\"\",@progbits\n\
         .4byte .Lunit_end - .Lunit\n.Lunit:\n.2byte 4\n.4byte 0\n.byte 8\n{entries}\n.Lunit_end:\n{units}\n\
         .section .debug_abbrev,\"\",@progbits\n{abbrev}\n.byte 0\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    let path = folder.join("hostile.s");
    std::fs::write(&path, source).expect("written");
    let program = folder.join("hostile");
    run("gcc", &["-o", text(&program), text(&path)]);
    program
}

fn main_address(program: &Path) -> u64 {
    let symbols = run("nm", &[text(program)]);
    let line = symbols.lines().find(|line| line.ends_with(" T main")).expect("main");
    u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("a number")
}

/// Abbreviations: 1 a unit and 2 a subprogram, both with low_pc and high_pc; 3 an inlined function with children and nothing else.
const ABBREV: &str = ".byte 1,0x11,1,0x11,1,0x12,6,0,0\n.byte 2,0x2e,1,0x11,1,0x12,6,0,0\n.byte 3,0x1d,1,0,0";
const UNIT: &str = ".byte 1\n.8byte .Ltext\n.4byte .Lend - .Ltext\n.byte 2\n.8byte .Ltext\n.4byte .Lend - .Ltext\n";

#[test]
fn a_million_nested_inlined_functions_do_not_overflow_the_stack() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = assembled(folder.path(), &format!("{UNIT}.fill 1000000, 1, 3\n.fill 1000002, 1, 0"), "", ABBREV);
    let address = main_address(&program);
    let (answers, problems) = ask(&program, &[address, address + 1]);
    assert!(answers.iter().all(Vec::is_empty));
    assert!(problems.len() == 1 && problems[0].contains("too deeply"), "{problems:?}");
    // The same tables, with honest depth.
    let program = assembled(folder.path(), &format!("{UNIT}.fill 100, 1, 3\n.fill 102, 1, 0"), "", ABBREV);
    let (answers, problems) = ask(&program, &[main_address(&program)]);
    assert_eq!((answers[0].len(), problems.len()), (1, 0), "{problems:?}");
}

#[test]
fn units_that_share_one_large_table_do_not_multiply_it() {
    let folder = tempfile::tempdir().expect("a folder");
    // 40,000 units whose abbreviations begin at different places of one table of 200,000. Each is 7 bytes: a code of three bytes,
    // the tag, no children, no attributes.
    let units: String =
        (0..40_000).map(|unit| format!(".4byte 8\n.2byte 4\n.4byte {}\n.byte 8, 0\n", 7 * (1 + unit))).collect();
    let mut table = String::new();
    for code in 1..200_000u32 {
        let (low, middle, high) = (code & 0x7f | 0x80, code >> 7 & 0x7f | 0x80, code >> 14);
        table.push_str(&format!(".byte {low}, {middle}, {high}, 0x34, 0, 0, 0\n"));
    }
    let program = assembled(folder.path(), ".byte 0", &units, &table);
    let before = peak_memory();
    let (_, problems) = ask(&program, &[main_address(&program)]);
    let grown = peak_memory() - before;
    assert!(problems.len() == 1 && problems[0].contains("more work than its size justifies"), "{problems:?}");
    assert!(grown < 1 << 30, "{grown} bytes");
}

/// Returns the largest memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") << 10
}

#[test]
fn a_section_that_claims_too_much_is_refused_before_memory_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = programs::c(folder.path(), &["-gdwarf-5", "-gz=zlib"]);
    let address = addresses(&program)[0];
    let sections = Command::new("readelf").args(["-SW", text(&program)]).output().expect("readelf").stdout;
    let sections = String::from_utf8(sections).expect("text");
    let line = sections.lines().find(|line| line.contains(" .debug_info ")).expect("a section");
    let offset = line.split_whitespace().skip_while(|&field| field != "PROGBITS").nth(2).expect("its offset");
    let offset = usize::from_str_radix(offset, 16).expect("a number");
    let whole = std::fs::read(&program).expect("there");
    // ch_size of Elf64_Chdr.
    for (size, words) in
        [(1u64 << 40, "too much for this file"), (1 << 16, "the size in its header"), (100, "the size in its header")]
    {
        let mut bytes = whole.clone();
        bytes[offset + 8..offset + 16].copy_from_slice(&size.to_le_bytes());
        let damaged = folder.path().join("damaged");
        std::fs::write(&damaged, bytes).expect("written");
        let (answers, problems) = ask(&damaged, &[address]);
        assert!(answers[0].is_empty());
        assert!(problems.len() == 1 && problems[0].contains(words), "{problems:?}");
    }
}
