// Values behind trait objects. Each block is told in the file "truth": "TYPE|ADDRESS|SIZE asked for", with "-" for a block
// whose type nothing says. Then the program aborts.
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

trait Shape {
    fn area(&self) -> u64;
    fn label(&self) -> String;
}

struct Circle { r: u64, label: String }
struct Square { s: u64, t: u64, label: String }
struct Grid { cells: [u64; 12] } // nothing to drop

impl Shape for Circle {
    fn area(&self) -> u64 { self.r * self.r * 3 }
    fn label(&self) -> String { format!("circle {}", self.label) }
}
impl Shape for Square {
    fn area(&self) -> u64 { self.s * self.t }
    fn label(&self) -> String { format!("square {} of {}", self.label, self.t) }
}
impl Shape for Grid {
    fn area(&self) -> u64 { self.cells.iter().sum() }
    fn label(&self) -> String { format!("grid {:?}", self.cells) }
}

static mut KEPT: Option<Kept> = None;
struct Kept {
    shapes: Vec<Box<dyn Shape>>,
    rcs: Vec<Rc<dyn Shape>>,
    arcs: Vec<Arc<dyn Shape>>,
    functions: Vec<Box<dyn Fn(u64) -> u64>>,
    plain: Vec<Vec<u8>>,
}

fn tell(truth: &mut File, name: &str, at: *const u8, size: usize) {
    writeln!(truth, "{}|{}|{}", name, at as usize, size).unwrap();
}

fn main() {
    let n = std::env::args().count() as u64;
    let mut truth = File::create("truth").unwrap();
    let mut kept = Kept { shapes: Vec::new(), rcs: Vec::new(), arcs: Vec::new(), functions: Vec::new(), plain: Vec::new() };
    for i in 0..20 {
        kept.shapes.push(Box::new(Circle { r: i * n, label: format!("c{i}") }));
        kept.shapes.push(Box::new(Square { s: i, t: n, label: format!("s{i}") }));
        kept.shapes.push(Box::new(Grid { cells: [i * n + 1; 12] }));
        kept.rcs.push(Rc::new(Circle { r: i, label: format!("rc{i}") }));
        tell(&mut truth, "Rc or Arc of held::Circle", unsafe { (Rc::as_ptr(kept.rcs.last().unwrap()) as *const u8).sub(16) }, 48);
        kept.arcs.push(Arc::new(Square { s: i, t: n, label: format!("arc{i}") }));
        tell(&mut truth, "Rc or Arc of held::Square", unsafe { (Arc::as_ptr(kept.arcs.last().unwrap()) as *const u8).sub(16) }, 56);
        let big = [i * n + 1; 8];
        kept.functions.push(Box::new(move |x| x + big[(x % 8) as usize]));
        tell(&mut truth, "a closure", &**kept.functions.last().unwrap() as *const dyn Fn(u64) -> u64 as *const u8, 64);
    }
    // The vector's buffer keeps the pointers of values that are gone. Their memory has other uses.
    for _ in 0..3 {
        drop(kept.shapes.pop());
        let mut text = Vec::with_capacity(96);
        text.extend_from_slice(b"text that is no grid, but of the same size as one: it takes the memory of a grid ......");
        tell(&mut truth, "-", text.as_ptr(), 96);
        kept.plain.push(text);
        drop(kept.shapes.pop());
        drop(kept.shapes.pop());
    }
    let names = [("held::Circle", 32), ("held::Square", 40), ("held::Grid", 96)];
    for (i, shape) in kept.shapes.iter().enumerate() {
        tell(&mut truth, names[i % 3].0, &**shape as *const dyn Shape as *const u8, names[i % 3].1);
    }
    let sum: u64 = kept.shapes.iter().map(|s| s.area() + s.label().len() as u64).sum();
    let more: u64 = kept.rcs.iter().map(|s| s.area() + s.label().len() as u64).sum();
    let most: u64 = kept.arcs.iter().map(|s| s.area() + s.label().len() as u64).sum();
    let calls: u64 = kept.functions.iter().map(|f| f(n)).sum();
    unsafe { KEPT = Some(kept) };
    writeln!(truth, "told|{}|0", sum + more + most + calls).unwrap();
    truth.flush().unwrap();
    std::process::abort();
}
