// Pointers to records that end in a trait object, a slice or a text. The file "truth" is as in typed.rs; the program tells each
// concrete type by a short name ("ARC(Mutex, Dog)").
use std::cell::{RefCell, UnsafeCell};
use std::fs::File;
use std::io::Write;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, RwLock};
extern "C" { fn malloc_usable_size(p: *const u8) -> usize; }
static mut TRUTH: Option<File> = None;
fn told<T: ?Sized>(kind: &str, p: *const T) { unsafe { let p = p as *const u8; writeln!((*(&raw mut TRUTH)).as_mut().unwrap(), "{}|{}|{}", kind, p as usize, malloc_usable_size(p)).unwrap(); } }
fn counted<T: ?Sized>(kind: &str, p: *const T) { told(kind, unsafe { (p as *const u8).sub(std::mem::align_of_val(&*p).max(16)) }) }
trait Animal { fn tell(&self); fn kind(&self) -> &'static str; }
struct Dog { age: u64, name: String, odd: u8 }
#[repr(align(64))] struct Big { toys: Vec<Toy>, small: u8 }
struct Toy { name: String, price: u32 }
struct Flat { words: [u16; 3] }
impl Animal for Dog { fn tell(&self) { told("TEXT", self.name.as_ptr()); } fn kind(&self) -> &'static str { "Dog" } }
impl Animal for Big { fn tell(&self) { told("tails::Toy[]", self.toys.as_ptr()); self.toys.iter().for_each(|t| told("TEXT", t.name.as_ptr())); } fn kind(&self) -> &'static str { "Big" } }
impl Animal for Flat { fn tell(&self) {} fn kind(&self) -> &'static str { "Flat" } }
/// A record of the program's own, with a pointer of its own before the object.
struct Named<T: ?Sized> { name: String, flag: u8, value: T }
struct Deep<T: ?Sized> { count: u32, inner: Mutex<RefCell<T>> }
fn dog(i: u64) -> Dog { Dog { age: i, name: format!("the dog with number {i}"), odd: 1 } }
fn big(i: u64) -> Big { Big { toys: (0..3 + i as u32 % 3).map(|j| Toy { name: format!("toy {j} of the big one {i}"), price: j }).collect(), small: 1 } }
struct World {
  arcs: Vec<Arc<Mutex<dyn Animal + Send>>>, rcs: Vec<Rc<RefCell<dyn Animal>>>, boxes: Vec<Box<RwLock<dyn Animal>>>, cells: Vec<Box<UnsafeCell<dyn Animal>>>,
  named: Vec<Box<Named<dyn Animal>>>, deep: Vec<Arc<Deep<dyn Animal>>>, weak: Vec<Weak<RefCell<dyn Animal>>>,
  numbers: Arc<Mutex<[u32]>>, toys: Rc<RefCell<[Toy]>>, locked: Box<RwLock<[Toy]>>, text: Rc<Named<[u8]>>, plain: Vec<Box<dyn Animal>>, moved: Vec<Arc<RwLock<dyn Animal>>>,
}
static mut WORLD: Option<World> = None;
macro_rules! make { ($i:expr, $wrap:ident) => { match $i % 3 { 0 => $wrap!(dog($i)), 1 => $wrap!(big($i)), _ => $wrap!(Flat { words: [7; 3] }) } } }
macro_rules! arc { ($v:expr) => { Arc::new(Mutex::new($v)) as Arc<Mutex<dyn Animal + Send>> } }
macro_rules! rc { ($v:expr) => { Rc::new(RefCell::new($v)) as Rc<RefCell<dyn Animal>> } }
macro_rules! lock { ($v:expr) => { Box::new(RwLock::new($v)) as Box<RwLock<dyn Animal>> } }
macro_rules! cell { ($v:expr) => { Box::new(UnsafeCell::new($v)) as Box<UnsafeCell<dyn Animal>> } }
macro_rules! named { ($v:expr) => { Box::new(Named { name: "a name of an animal".to_string(), flag: 1, value: $v }) as Box<Named<dyn Animal>> } }
macro_rules! deep { ($v:expr) => { Arc::new(Deep { count: 3, inner: Mutex::new(RefCell::new($v)) }) as Arc<Deep<dyn Animal>> } }
fn toys(n: u32) -> Vec<Toy> { (0..n).map(|j| Toy { name: format!("a toy in a slice: {j}"), price: j }).collect() }
fn array<const N: usize>() -> [Toy; N] { toys(N as u32).try_into().ok().unwrap() }
fn main() {
  unsafe { TRUTH = Some(File::create("truth").unwrap()); }
  let gone: Vec<Rc<RefCell<dyn Animal>>> = (0..30).map(|i| make!(i, rc)).collect();
  let w = World {
    arcs: (0..60).map(|i| make!(i, arc)).collect(), rcs: (0..60).map(|i| make!(i, rc)).collect(), boxes: (0..60).map(|i| make!(i, lock)).collect(), cells: (0..30).map(|i| make!(i, cell)).collect(),
    named: (0..30).map(|i| make!(i, named)).collect(), deep: (0..30).map(|i| make!(i, deep)).collect(), weak: gone.iter().map(Rc::downgrade).collect(),
    numbers: Arc::new(Mutex::new([7u32; 50])), toys: Rc::new(RefCell::new(array::<9>())), locked: Box::new(RwLock::new(array::<5>())), text: Rc::new(Named { name: "what is before the bytes".to_string(), flag: 1, value: [5u8; 77] }),
    plain: (0..12).map(|i| -> Box<dyn Animal> { if i % 2 == 0 { Box::new(dog(i)) } else { Box::new(big(i)) } }).collect(),
    // No record of this type with one of the concrete types is ever made: the debug information has none.
    moved: (0..30).map(|i| Arc::from(make!(i, lock))).collect(),
  };
  for a in &w.arcs { let b = a.lock().unwrap(); counted(&format!("ARC({})", b.kind()), Arc::as_ptr(a)); b.tell(); }
  for a in &w.rcs { let b = a.borrow(); counted(&format!("RC({})", b.kind()), Rc::as_ptr(a)); b.tell(); }
  for a in &w.boxes { let b = a.read().unwrap(); told(&format!("LOCK({})", b.kind()), &**a as *const _); b.tell(); }
  for a in &w.cells { let b = unsafe { &*a.get() }; told(&format!("CELL({})", b.kind()), &**a as *const _); b.tell(); }
  for a in &w.named { told(&format!("NAMED({})", a.value.kind()), &**a as *const _); told("TEXT", a.name.as_ptr()); a.value.tell(); }
  for a in &w.deep { let b = a.inner.lock().unwrap(); counted(&format!("DEEP({})", b.borrow().kind()), Arc::as_ptr(a)); b.borrow().tell(); }
  for a in &w.moved { let b = a.read().unwrap(); counted(&format!("MOVED({})", b.kind()), Arc::as_ptr(a)); b.tell(); }
  for a in &w.plain { told(&format!("tails::{}", a.kind()), &**a as *const _); a.tell(); }
  counted("ARC(slice)", Arc::as_ptr(&w.numbers));
  counted("RC(slice)", Rc::as_ptr(&w.toys)); w.toys.borrow().iter().for_each(|t| told("TEXT", t.name.as_ptr()));
  told("LOCK(slice)", &*w.locked as *const _); w.locked.read().unwrap().iter().for_each(|t| told("TEXT", t.name.as_ptr()));
  counted("NAMED(slice)", Rc::as_ptr(&w.text)); told("TEXT", w.text.name.as_ptr());
  // The objects are gone, and their memory is used anew; the records remain for the weak pointers.
  for a in &gone { counted(&format!("RC({})", a.borrow().kind()), Rc::as_ptr(a)); }
  drop(gone);
  let again: Vec<Vec<u64>> = (1..9).flat_map(|n| (0..40).map(move |i| vec![i; n])).collect();
  again.iter().for_each(|v| told("u64[]?", v.as_ptr()));
  unsafe { WORLD = Some(w); }
  std::mem::forget(again);
  std::process::abort();
}
