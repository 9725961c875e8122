//! Stripped programs whose debug information lies in other files.

use std::path::{Path, PathBuf};

use dmods_engine::lines::{Frame, Lines};
use dmods_engine::Control;

use super::oracle::{addr2line, addresses, rows, Row};
use super::programs::{self, run, split_off, store_by_build_id, text};

/// A program, what addr2line said of it before it was stripped, and the file with its debug information.
struct Stripped {
    folder: tempfile::TempDir,
    program: PathBuf,
    debug: PathBuf,
    addresses: Vec<u64>,
    expected: Vec<Vec<Row>>,
}

fn stripped() -> Stripped {
    let folder = tempfile::tempdir().expect("a folder");
    let program = programs::c(folder.path(), &["-gdwarf-4", "-Wl,--build-id=sha1"]);
    let addresses = addresses(&program);
    let expected = addr2line(&program, &addresses);
    let debug = split_off(&program);
    Stripped { folder, program, debug, addresses, expected }
}

impl Stripped {
    fn root(&self) -> PathBuf {
        self.folder.path().join("debug-root")
    }

    fn link(&self) {
        let link = format!("--add-gnu-debuglink={}", text(&self.debug));
        run("objcopy", &[&link, text(&self.program)]);
    }

    fn lines(&self) -> Lines {
        Lines::new(Some(self.program.clone()), vec!["/nonexistent".into(), self.root()], None)
    }

    /// All answers come from `file`, and are those of addr2line.
    fn comes_from(&self, file: &Path) {
        let lines = self.lines();
        let answers = ask(&lines, &self.addresses);
        assert_eq!(lines.debug_file(), Some(file.to_path_buf()), "{:?}", lines.problems());
        assert_eq!(lines.problems(), [""; 0]);
        let answers: Vec<Vec<Row>> = answers.iter().map(|frames| rows(frames)).collect();
        assert_eq!(answers, self.expected);
    }

    /// There are no answers, and the one problem contains these words.
    fn is_refused(&self, words: &str) {
        let lines = self.lines();
        assert!(ask(&lines, &self.addresses).iter().all(Vec::is_empty));
        assert_eq!(lines.debug_file(), None);
        let problems = lines.problems();
        assert!(problems.len() == 1 && problems[0].contains(words), "{problems:?}");
    }
}

fn ask(lines: &Lines, addresses: &[u64]) -> Vec<Vec<Frame>> {
    lines.find(addresses, &Control::default()).expect("not cancelled")
}

#[test]
fn by_build_id() {
    let it = stripped();
    let stored = store_by_build_id(&it.debug, &it.root());
    it.comes_from(&stored);
    // The build-id alone leads there too: the program need not be on this machine.
    let id: Vec<u8> = {
        let text = programs::build_id(&stored);
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    };
    let lines = Lines::new(None, vec![it.root()], Some(id.clone()));
    let rows: Vec<Vec<Row>> = ask(&lines, &it.addresses).iter().map(|frames| rows(frames)).collect();
    assert_eq!(rows, it.expected);
    // The program was rebuilt since: its build-id is not that of the dump.
    let other = tempfile::tempdir().expect("a folder");
    let rebuilt = programs::cpp(other.path(), &["-Wl,--build-id=sha1"]);
    let lines = Lines::new(Some(rebuilt.clone()), vec![it.root()], Some(id));
    assert!(!ask(&lines, &it.addresses).iter().all(Vec::is_empty));
    assert_eq!(lines.debug_file(), Some(stored));
    assert!(
        lines.problems()[0].starts_with(&format!("{}: its build-id is ", text(&rebuilt))),
        "{:?}",
        lines.problems()
    );
}

#[test]
fn a_file_with_another_build_id_is_refused() {
    let it = stripped();
    let stored = store_by_build_id(&it.debug, &it.root());
    let other = tempfile::tempdir().expect("a folder");
    let program = programs::cpp(other.path(), &["-Wl,--build-id=sha1"]);
    std::fs::rename(split_off(&program), &stored).expect("replaced");
    it.is_refused("it is not used");
}

#[test]
fn by_debuglink_in_each_of_its_places() {
    let it = stripped();
    it.link();
    it.comes_from(&it.debug);
    let folder = it.program.parent().expect("a folder").to_path_buf();
    let below_root = it.root().join(folder.strip_prefix("/").expect("absolute"));
    let mut debug = it.debug.clone();
    for place in [folder.join(".debug"), below_root] {
        std::fs::create_dir_all(&place).expect("a folder");
        let next = place.join("program.debug");
        std::fs::rename(&debug, &next).expect("moved");
        it.comes_from(&next);
        debug = next;
    }
    std::fs::remove_file(debug).expect("removed");
    assert_eq!(it.lines().debug_file(), None);
}

#[test]
fn a_file_with_another_checksum_is_refused() {
    let it = stripped();
    it.link();
    let mut bytes = std::fs::read(&it.debug).expect("there");
    bytes.push(0);
    std::fs::write(&it.debug, bytes).expect("written");
    it.is_refused("its checksum is");
}

#[test]
fn a_file_without_debug_information_is_refused() {
    let it = stripped();
    let stored = store_by_build_id(&it.debug, &it.root());
    std::fs::copy(&it.program, &stored).expect("copied");
    it.is_refused("no debug information");
}

#[test]
fn split_dwarf_is_read_from_its_dwo_and_dwp_files() {
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = programs::c(folder.path(), &[version]);
        let addresses = addresses(&whole);
        let expected = addr2line(&whole, &addresses);
        let program = programs::c(folder.path(), &[version, "-gsplit-dwarf"]);
        let answers = || {
            let lines = Lines::new(Some(program.clone()), Vec::new(), None);
            (ask(&lines, &addresses), lines.problems())
        };
        let agrees = || {
            let (answers, problems) = answers();
            assert_eq!(problems, [""; 0], "{version}");
            assert_eq!(answers.iter().map(|frames| rows(frames)).collect::<Vec<_>>(), expected, "{version}");
        };
        agrees();
        let listed = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("listed").path());
        let dwo: Vec<PathBuf> = listed.filter(|path| path.extension().is_some_and(|kind| kind == "dwo")).collect();
        assert_eq!(dwo.len(), 1);
        if version == "-gdwarf-5" {
            // binutils' dwp leaves out the units of DWARF 5.
            std::fs::remove_file(&dwo[0]).expect("removed");
            assert_ne!(answers().1, [""; 0]);
            continue;
        }
        let package = folder.path().join("program.dwp");
        run("dwp", &["-o", text(&package), text(&dwo[0])]);
        std::fs::remove_file(&dwo[0]).expect("removed");
        agrees();
        std::fs::remove_file(package).expect("removed");
        let (answers, problems) = answers();
        assert!(problems.len() == 1 && problems[0].contains("there is no such file"), "{problems:?}");
        assert!(answers.iter().flatten().all(|frame| frame.function.is_none() && frame.line.is_some()));
    }
}
