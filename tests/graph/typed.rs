use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::fs::File;
use std::io::Write;
extern "C" { fn malloc_usable_size(p: *const u8) -> usize; }
#[derive(Clone)] struct Point { x: f64, y: f64, label: u64 }
struct Order { id: u64, name: String, lines: Vec<Point> }
enum Shape { Circle(Box<Point>), Square { side: f64, owner: Rc<Order> }, Nothing }
struct Node { value: u64, next: Option<Box<Node>> }
struct Shop { orders: Vec<Order>, by_id: HashMap<u64, Order>, names: Vec<String>, shapes: Vec<Shape>, chain: Option<Box<Node>>, shared: Vec<Arc<Point>>, queue: VecDeque<Point>, tree: BTreeMap<u64, Point>, text: Box<str>, slice: Box<[Point]> }
static mut SHOP: Option<Shop> = None;
static mut TRUTH: Option<File> = None;
fn told<T: ?Sized>(kind: &str, p: *const T) { unsafe { let p = p as *const u8; writeln!((*(&raw mut TRUTH)).as_mut().unwrap(), "{}|{}|{}", kind, p as usize, malloc_usable_size(p)).unwrap(); } }
fn point(i: u64) -> Point { Point { x: i as f64, y: i as f64 / 2.0, label: i } }
fn order(i: u64) -> Order { Order { id: i, name: format!("order number {i} of the shop"), lines: (0..3 + i % 4).map(point).collect() } }
fn tell_order(o: &Order) { told("TEXT", o.name.as_ptr()); told("typed::Point[]", o.lines.as_ptr()); }
fn main() {
  unsafe { TRUTH = Some(File::create("truth").unwrap()); }
  let rc = Rc::new(order(7));
  let mut chain = None; for i in 0..100 { chain = Some(Box::new(Node { value: i, next: chain })); }
  let shop = Shop { orders: (0..200).map(order).collect(), by_id: (0..150).map(|i| (i, order(i))).collect(), names: (0..100).map(|i| format!("the name of {i} is long enough")).collect(),
    shapes: (0..90).map(|i| match i % 3 { 0 => Shape::Circle(Box::new(point(i))), 1 => Shape::Square { side: 1.0, owner: rc.clone() }, _ => Shape::Nothing }).collect(),
    chain, shared: (0..80).map(|i| Arc::new(point(i))).collect(), queue: (0..50).map(point).collect(), tree: (0..300).map(|i| (i, point(i))).collect(), text: "some text that is boxed".into(), slice: (0..20).map(point).collect() };
  told("typed::Order[]", shop.orders.as_ptr()); shop.orders.iter().for_each(tell_order);
  shop.by_id.values().for_each(tell_order);
  told("alloc::string::String[]", shop.names.as_ptr()); shop.names.iter().for_each(|n| told("TEXT", n.as_ptr()));
  told("typed::Shape[]", shop.shapes.as_ptr());
  for s in &shop.shapes { if let Shape::Circle(p) = s { told("typed::Point", &**p as *const Point); } }
  let mut next = &shop.chain; while let Some(n) = next { told("typed::Node", &**n as *const Node); next = &n.next; }
  for a in &shop.shared { told("ARC(Point)", unsafe { (Arc::as_ptr(a) as *const u8).sub(16) }); }
  told("RC(Order)", unsafe { (Rc::as_ptr(&rc) as *const u8).sub(16) }); tell_order(&rc);
  told("typed::Point[]", shop.slice.as_ptr()); told("TEXT", shop.text.as_ptr());
  unsafe { SHOP = Some(shop); std::mem::forget(rc); }
  println!("ready"); std::process::abort();
}
