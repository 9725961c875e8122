// reused COUNT: COUNT blocks are lost, and their addresses stand behind the texts of strings, which have the memory of
// structures that were dropped. Then the program aborts.
struct Old {
    _number: [usize; 3],
    _lost: *mut [u8; 200],
    _more: usize,
}

static mut STRINGS: Vec<String> = Vec::new();

#[inline(never)]
fn build(count: usize) {
    let gap = std::hint::black_box([0u8; 65536]); // what this leaves on the stack is dead once it returns
    std::hint::black_box(&gap);
    let mut strings = Vec::with_capacity(count);
    let old = || Box::new(Old { _number: [0; 3], _lost: Box::into_raw(Box::new([1; 200])), _more: 0 });
    let olds: Vec<Box<Old>> = (0..count).map(|_| old()).collect();
    drop(std::hint::black_box(olds));
    for i in 0..count {
        let mut made = String::with_capacity(std::mem::size_of::<Old>());
        made.push_str(if i % 2 == 0 { "a text of 20 letters" } else { "this text has 24 letters" });
        strings.push(made);
    }
    unsafe { STRINGS = strings }
}

fn main() {
    build(std::env::args().nth(1).and_then(|count| count.parse().ok()).expect("a count"));
    std::process::abort();
}
