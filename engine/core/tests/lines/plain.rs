//! Programs with their debug information inside, in each version and form.

use dmods_engine::lines::Lines;
use dmods_engine::Control;

use super::oracle::{addr2line, addresses, rows, Row};
use super::programs::{self, run, text};

/// Compares every address of a program's own code, and returns the deepest answer.
fn compare(program: &std::path::Path) -> Vec<Row> {
    let all = addresses(program);
    let lines = Lines::new(Some(program.to_path_buf()), Vec::new(), None);
    let answers = lines.find(&all, &Control::default()).expect("not cancelled");
    assert_eq!(lines.problems(), [""; 0]);
    assert_eq!(lines.debug_file().as_deref(), Some(program));
    let (mut deepest, mut impossible) = (Vec::new(), 0);
    for ((address, answer), expected) in all.iter().zip(&answers).zip(addr2line(program, &all)) {
        let answer = rows(answer);
        if expected.first().is_some_and(is_impossible) {
            assert_eq!(answer[1..], expected[1..], "at {address:#x}");
            assert!(!is_impossible(&answer[0]), "at {address:#x}: {:?}", answer[0]);
            impossible += 1;
        } else {
            assert_eq!(answer, expected, "at {address:#x}");
        }
        if answer.len() > deepest.len() {
            deepest = answer;
        }
    }
    assert!(impossible * 4 < all.len(), "{impossible} of {}", all.len());
    deepest
}

/// addr2line of binutils 2.40 gives a wrong file for the first row of a sequence of DWARF 5, whose register starts at file 1 where the
/// table counts from 0. It is seen by a line that the file does not have.
fn is_impossible((_, path, line): &Row) -> bool {
    let (Some(path), Some(line)) = (path, line) else { return false };
    std::fs::read(path).map_or(0, |text| text.split(|&byte| byte == b'\n').count()) < *line as usize
}

fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.0.as_deref().unwrap_or("?")).collect()
}

#[test]
fn each_version_and_form_of_dwarf_agrees_with_addr2line() {
    let forms: [&[&str]; 7] = [
        &["-gdwarf-5"],
        &["-gdwarf-4"],
        &["-gdwarf-3"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-4", "-gz=zlib-gnu"],
        &["-gdwarf-5", "-no-pie"],
        &["-gdwarf-4", "-flto"],
    ];
    for form in forms {
        let folder = tempfile::tempdir().expect("a folder");
        let deepest = compare(&programs::c(folder.path(), form));
        assert_eq!(names(&deepest), ["depth3", "depth2", "depth1", "outer"], "{form:?}");
    }
}

#[test]
fn sections_that_zstd_compressed_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = programs::c(folder.path(), &[]);
    run("objcopy", &["--compress-debug-sections=zstd", text(&program)]);
    assert!(run("readelf", &["-tW", text(&program)]).contains("ZSTD"));
    assert_eq!(compare(&program).len(), 4);
}

#[test]
fn names_of_cpp_are_demangled() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = programs::cpp(folder.path(), &[]);
    let deepest = compare(&program);
    assert!(deepest.len() > 4, "{deepest:?}");
}
