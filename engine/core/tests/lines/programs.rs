//! Programs that gcc makes here, with inlined functions, in C and C++, with each kind of debug information.

use std::path::{Path, PathBuf};
use std::process::Command;

const C: &str = r#"
#include <stdlib.h>
struct node { struct node *next; long value; };
static inline long depth3(struct node *n) { return n->value * 3 + (n->next ? n->next->value : 7); }
static inline long depth2(struct node *n, int k) {
    long sum = 0;
    for (int i = 0; i < k; i++)
        sum += depth3(n) ^ i;
    return sum;
}
static inline long depth1(struct node *n) { return depth2(n, 5) - depth2(n, 2); }
__attribute__((noinline)) long outer(struct node *n) {
    long a = depth1(n);
    if (a > 100)
        a += depth3(n);
    return a;
}
__attribute__((noinline)) static struct node *make(long value) {
    struct node *n = calloc(1, sizeof *n);
    if (!n)
        abort();
    n->value = value;
    return n;
}
int main(int argc, char **argv) {
    struct node *n = make(argc);
    n->next = make(argc + 1);
    return (int)outer(n);
}
"#;

const CPP: &str = r#"
#include <cstdio>
#include <string>
#include <vector>
namespace shop {
template <typename T> struct Stack {
    std::vector<T> items;
    void push(const T &item) { items.push_back(item); }
    T top() const { return items.back(); }
};
struct Item { std::string name; int price; };
inline int discount(const Item &item) { return item.price - static_cast<int>(item.name.size()) / 2; }
__attribute__((noinline)) int total(const Stack<Item> &stack) {
    int sum = 0;
    for (const auto &item : stack.items)
        sum += discount(item);
    return sum + stack.top().price;
}
}
int main(int argc, char **) {
    shop::Stack<shop::Item> stack;
    for (int i = 0; i < argc + 3; i++)
        stack.push({std::string(static_cast<size_t>(i), 'x'), i * 7});
    std::printf("%d\n", shop::total(stack));
}
"#;

/// Runs a tool, which must be there and succeed.
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

/// Compiles the C program with these options on top, in `folder`.
pub fn c(folder: &Path, options: &[&str]) -> PathBuf {
    compile("gcc", "program.c", C, folder, options)
}

/// Compiles the C++ program.
pub fn cpp(folder: &Path, options: &[&str]) -> PathBuf {
    compile("g++", "program.cc", CPP, folder, options)
}

fn compile(compiler: &str, name: &str, source: &str, folder: &Path, options: &[&str]) -> PathBuf {
    let folder = folder.canonicalize().expect("a folder");
    let source_path = folder.join(name);
    std::fs::write(&source_path, source).expect("written");
    let program = folder.join("program");
    let mut arguments = vec!["-O2", "-g", "-o", text(&program), text(&source_path)];
    arguments.extend(options);
    run(compiler, &arguments);
    program
}

/// Moves the debug information to a file of its own and returns that.
pub fn split_off(program: &Path) -> PathBuf {
    let debug = program.with_file_name("program.debug");
    run("objcopy", &["--only-keep-debug", text(program), text(&debug)]);
    run("strip", &["--strip-all", text(program)]);
    debug
}

/// Returns the build-id of a file in hexadecimal.
pub fn build_id(program: &Path) -> String {
    let notes = run("readelf", &["-n", text(program)]);
    let line = notes.lines().find(|line| line.contains("Build ID:")).expect("a build-id");
    line.rsplit(' ').next().expect("its number").to_string()
}

/// Puts a debug file where a debugger looks for it by build-id, below `root`.
pub fn store_by_build_id(debug: &Path, root: &Path) -> PathBuf {
    let id = build_id(debug);
    let folder = root.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&folder).expect("a folder");
    let stored = folder.join(format!("{}.debug", &id[2..]));
    std::fs::rename(debug, &stored).expect("moved");
    stored
}
