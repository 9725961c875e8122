// Messages in crossbeam's queues, and items in arrayvec's vectors. The file "truth" is as in typed.rs.
use arrayvec::ArrayVec;
use crossbeam_channel::{bounded, unbounded, Receiver, Sender};
use crossbeam_queue::{ArrayQueue, SegQueue};
use std::fs::File;
use std::io::Write;
extern "C" { fn malloc_usable_size(p: *const u8) -> usize; }
static mut TRUTH: Option<File> = None;
fn told<T: ?Sized>(kind: &str, p: *const T) { unsafe { let p = p as *const u8; writeln!((*(&raw mut TRUTH)).as_mut().unwrap(), "{}|{}|{}", kind, p as usize, malloc_usable_size(p)).unwrap(); } }
pub struct Item { pub name: String, pub price: f64 }
pub struct Message { pub number: u64, pub item: Box<Item>, pub text: String }
fn message(i: u64) -> Message { Message { number: i, item: Box::new(Item { name: format!("the item with number {i}"), price: 1.5 }), text: format!("message number {i} of the program") } }
fn tell(m: &Message) { told("queues::Item", &*m.item as *const Item); told("TEXT", m.item.name.as_ptr()); told("TEXT", m.text.as_ptr()); }
pub struct World { long: (Sender<Message>, Receiver<Message>), short: (Sender<Message>, Receiver<Message>), ring: ArrayQueue<Message>, list: SegQueue<Message>, small: Vec<Box<ArrayVec<Message, 5>>> }
static mut WORLD: Option<World> = None;
static mut NUMBERS: Option<(Vec<Vec<u64>>, Vec<usize>)> = None;
/// Fills a queue, empties it in part, and tells each message that remains while it goes round once more.
fn round(all: u64, most: u64, taken: u64, push: &dyn Fn(Message), pop: &dyn Fn() -> Message) {
  for i in 0..all { if i >= most { pop(); } push(message(i)); }
  for _ in 0..taken { pop(); }
  for _ in taken..most.min(all) { let m = pop(); tell(&m); push(m); }
}
fn main() {
  unsafe { TRUTH = Some(File::create("truth").unwrap()); }
  let mut w = World { long: unbounded(), short: bounded(7), ring: ArrayQueue::new(9), list: SegQueue::new(), small: (0..20).map(|_| Box::new(ArrayVec::new())).collect() };
  round(100, 1000, 40, &|m| w.long.0.send(m).unwrap(), &|| w.long.1.recv().unwrap());
  round(25, 7, 3, &|m| w.short.0.send(m).unwrap(), &|| w.short.1.recv().unwrap());
  round(31, 9, 2, &|m| w.ring.push(m).ok().unwrap(), &|| w.ring.pop().unwrap());
  round(100, 1000, 35, &|m| w.list.push(m), &|| w.list.pop().unwrap());
  for (i, s) in w.small.iter_mut().enumerate() { for j in 0..5 { s.push(message(j)); } for _ in 0..i % 4 { s.pop(); } }
  for s in &w.small { told("SMALL", &**s as *const _); s.iter().for_each(tell); }
  // The memory of what is gone: blocks of the same sizes, whose words are numbers. Nothing tells the type of every other one.
  let mut numbers: Vec<Vec<u64>> = (3..9).flat_map(|n| (0..300).map(move |i| vec![i << 40 | 1; n])).collect();
  let mut hidden: Vec<usize> = vec![];
  for i in (0..numbers.len()).rev().step_by(2) { let v = numbers.swap_remove(i).leak(); told("-", v.as_ptr()); hidden.push(v.as_ptr() as usize); }
  numbers.iter().for_each(|v| told("u64[]", v.as_ptr()));
  unsafe { WORLD = Some(w); NUMBERS = Some((numbers, hidden)); }
  std::process::abort();
}
