// Values that are not always there: messages in channels, cells that are written once, thread-local variables, arrays of
// MaybeUninit. The file "truth" is as in typed.rs. Memory of values that are gone is used anew, and told as what it is by then.
use std::cell::{LazyCell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::sync::{Arc, LazyLock, OnceLock};
extern "C" { fn malloc_usable_size(p: *const u8) -> usize; }
static mut TRUTH: Option<File> = None;
fn told<T: ?Sized>(kind: &str, p: *const T) { unsafe { let p = p as *const u8; writeln!((*(&raw mut TRUTH)).as_mut().unwrap(), "{}|{}|{}", kind, p as usize, malloc_usable_size(p)).unwrap(); } }
struct Point { x: u64, y: u64 }
struct Item { name: String, price: f64 }
/// What is sent: a box, a vector, and a text.
struct Message { number: u64, item: Box<Item>, path: Vec<Point>, text: String }
fn item(i: u64) -> Item { Item { name: format!("the item with number {i}"), price: 1.5 } }
fn message(i: u64) -> Message { Message { number: i, item: Box::new(item(i)), path: (0..3 + i % 4).map(|j| Point { x: i, y: j }).collect(), text: format!("message number {i} of the program") } }
fn ti(i: &Item) { told("TEXT", i.name.as_ptr()); }
fn tm(m: &Message) { told("states::Item", &*m.item as *const Item); ti(&m.item); told("states::Point[]", m.path.as_ptr()); told("TEXT", m.text.as_ptr()); }
/// A vector that has its elements in itself.
struct Small<T, const N: usize> { len: u16, items: [MaybeUninit<T>; N] }
impl<T, const N: usize> Small<T, N> {
  fn new() -> Self { Small { len: 0, items: [const { MaybeUninit::uninit() }; N] } }
  fn push(&mut self, value: T) { self.items[self.len as usize].write(value); self.len += 1; }
  fn pop(&mut self) -> T { self.len -= 1; unsafe { self.items[self.len as usize].assume_init_read() } }
  fn all(&self) -> &[T] { unsafe { std::slice::from_raw_parts(self.items.as_ptr() as *const T, self.len as usize) } }
}
struct Cells { once: OnceLock<Message>, made: LazyLock<Message, Box<dyn Fn() -> Message + Send>>, lazy: LazyCell<Message, Box<dyn Fn() -> Message>>, cell: OnceCell<Message> }
fn cells(i: u64) -> Box<Cells> { Box::new(Cells { once: OnceLock::new(), made: LazyLock::new(Box::new(move || message(i))), lazy: LazyCell::new(Box::new(move || message(i + 1))), cell: OnceCell::new() }) }
struct World {
  long: (Sender<Message>, Receiver<Message>), gone: (Sender<Message>, Receiver<Message>), short: (SyncSender<Message>, Receiver<Message>), lapped: (SyncSender<Message>, Receiver<Message>),
  cells: Vec<Box<Cells>>, shared: Arc<OnceLock<Message>>, small: Vec<Box<Small<Message, 6>>>, tree: BTreeMap<u64, Message>,
}
static mut WORLD: Option<World> = None;
static WRITTEN: OnceLock<Message> = OnceLock::new();
static NEVER: OnceLock<Message> = OnceLock::new();
static MADE: LazyLock<Message> = LazyLock::new(|| message(900));
static UNMADE: LazyLock<Message> = LazyLock::new(|| message(901));
thread_local! {
  static LOCAL: RefCell<Vec<Item>> = RefCell::new((0..4).map(item).collect());
  static UNUSED: RefCell<Vec<Item>> = RefCell::new((0..4).map(item).collect());
}
fn main() {
  unsafe { TRUTH = Some(File::create("truth").unwrap()); }
  // What is left over in the memory of the next cells: messages, in places where none are then.
  drop((0..40).map(|i| { let c = cells(i); let _ = c.once.set(message(i)); assert!(c.made.number == i && c.lazy.number == i + 1); c }).collect::<Vec<_>>());
  let mut w = World {
    long: channel(), gone: channel(), short: sync_channel(20), lapped: sync_channel(7), cells: (0..40).map(cells).collect(), shared: Arc::new(OnceLock::new()),
    small: (0..20).map(|_| Box::new(Small::new())).collect(), tree: (0..60).map(|i| (i, message(i))).collect(),
  };
  let mut told_later: Vec<*const Message> = vec![];
  for i in 0..100 { w.long.0.send(message(i)).unwrap(); }
  for _ in 0..40 { w.long.1.recv().unwrap(); }
  for i in 0..50 { w.gone.0.send(message(i)).unwrap(); }
  while w.gone.1.try_recv().is_ok() {}
  for i in 0..12 { w.short.0.send(message(i)).unwrap(); }
  for _ in 0..5 { w.short.1.recv().unwrap(); }
  for i in 0..25 { if i >= 7 { w.lapped.1.recv().unwrap(); } w.lapped.0.send(message(i)).unwrap(); }
  for _ in 0..3 { w.lapped.1.recv().unwrap(); }
  // One lap more, to see each message: what is received is sent again.
  let again = |from: &Receiver<Message>, count: usize, send: &dyn Fn(Message)| for _ in 0..count { let m = from.recv().unwrap(); tm(&m); send(m); };
  again(&w.long.1, 60, &|m| w.long.0.send(m).unwrap());
  again(&w.short.1, 7, &|m| w.short.0.send(m).unwrap());
  again(&w.lapped.1, 4, &|m| w.lapped.0.send(m).unwrap());
  for (i, c) in w.cells.iter().enumerate() {
    if i % 2 == 0 { let _ = c.once.set(message(i as u64)); told_later.push(c.once.get().unwrap()); }
    if i % 3 == 0 { told_later.push(&*c.made); }
    if i % 4 == 0 { told_later.push(&*c.lazy); }
    if i % 5 == 0 { told_later.push(c.cell.get_or_init(|| message(7))); }
    told("states::Cells", &**c as *const Cells);
  }
  let _ = w.shared.set(message(77)); told_later.push(w.shared.get().unwrap());
  let _ = WRITTEN.set(message(78)); told_later.push(WRITTEN.get().unwrap()); told_later.push(&*MADE);
  for (i, s) in w.small.iter_mut().enumerate() {
    for j in 0..6 { s.push(message(j)); }
    for _ in 0..i % 5 { drop(s.pop()); }
  }
  for s in &w.small { told("SMALL", &**s as *const _); told_later.extend(s.all().iter().map(|m| m as *const Message)); }
  for i in 0..20 { w.tree.remove(&(i * 3)); }
  told_later.extend(w.tree.values().map(|m| m as *const Message));
  for m in told_later { tm(unsafe { &*m }); }
  LOCAL.with(|l| { let l = l.borrow(); told("states::Item[]", l.as_ptr()); l.iter().for_each(ti) });
  // The memory of what is gone: blocks of the same sizes, whose words are numbers. Nothing tells the type of every other one.
  let mut numbers: Vec<Vec<u64>> = (3..13).flat_map(|n| (0..300).map(move |i| vec![i << 40 | 1; n])).collect();
  let mut hidden: Vec<usize> = vec![];
  for i in (0..numbers.len()).rev().step_by(2) { let v = numbers.swap_remove(i).leak(); told("-", v.as_ptr()); hidden.push(v.as_ptr() as usize); }
  told("NUMBERS", numbers.as_ptr());
  numbers.iter().for_each(|v| told("u64[]", v.as_ptr()));
  unsafe { WORLD = Some(w); NUMBERS = Some(numbers); HIDDEN = Some(hidden); }
  std::process::abort();
}
static mut NUMBERS: Option<Vec<Vec<u64>>> = None;
static mut HIDDEN: Option<Vec<usize>> = None;
