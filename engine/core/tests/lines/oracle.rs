//! What `addr2line` of binutils says, in the form that the engine answers.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use dmods_engine::lines::Frame;

use super::programs::{run, text};

/// Function, source file, line: as far as both know them.
pub type Row = (Option<String>, Option<String>, Option<u32>);

pub fn rows(frames: &[Frame]) -> Vec<Row> {
    frames.iter().map(|frame| (frame.function.clone(), frame.path.clone(), frame.line)).collect()
}

/// Returns the address of every byte of the program's own functions.
pub fn addresses(unstripped: &Path) -> Vec<u64> {
    let mut all = Vec::new();
    for line in run("nm", &["-S", "--defined-only", text(unstripped)]).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [start, size, kind, name] = fields[..] else { continue };
        if !"tTwW".contains(kind) || name.starts_with("_start") {
            continue;
        }
        let start = u64::from_str_radix(start, 16).expect("a number");
        let size = u64::from_str_radix(size, 16).expect("a number");
        all.extend(start..start + size);
    }
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 100, "a program with some code");
    all
}

/// Returns what binutils' `addr2line -f -i` says at each address, names demangled without parameters by `c++filt`.
pub fn addr2line(file: &Path, addresses: &[u64]) -> Vec<Vec<Row>> {
    let questions: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let answers = piped(&["addr2line", "-a", "-f", "-i", "-e", text(file)], &questions);
    let answers = piped(&["c++filt", "-p"], &answers);
    let mut all: Vec<Vec<Row>> = Vec::new();
    let mut lines = answers.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("a place after each function");
        let place = place.split(" (discriminator").next().expect("a first part");
        let (path, number) = place.rsplit_once(':').expect("path:line");
        let known = |text: &str| (!text.starts_with('?')).then(|| text.to_string());
        let row = (known(line), known(path), number.parse().ok().filter(|&number| number > 0));
        // A name alone is from the symbol table, not from debug information.
        if row.1.is_some() {
            all.last_mut().expect("an address first").push(row);
        }
    }
    assert_eq!(all.len(), addresses.len());
    all
}

fn piped(command: &[&str], input: &str) -> String {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("ended");
    writer.join().expect("no panic").expect("written");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}
