// Trait objects, B-trees and nested containers: the file "truth" is as in typed.rs. The types that std gives its own blocks
// have names of their own in the test ("ARC(User)").
use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fs::File;
use std::io::Write;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, RwLock};
extern "C" { fn malloc_usable_size(p: *const u8) -> usize; }
static mut TRUTH: Option<File> = None;
fn told<T: ?Sized>(kind: &str, p: *const T) { unsafe { let p = p as *const u8; writeln!((*(&raw mut TRUTH)).as_mut().unwrap(), "{}|{}|{}", kind, p as usize, malloc_usable_size(p)).unwrap(); } }
trait Animal { fn name(&self) -> String; fn tell(&self) {} }
struct Dog { age: u64, name: String }
struct Cat { lives: [u32; 9], friend: Option<Box<Dog>> }
struct Fish;
impl Animal for Dog { fn name(&self) -> String { self.name.clone() } fn tell(&self) { told("containers::Dog", self); told("TEXT", self.name.as_ptr()); } }
impl Animal for Cat { fn name(&self) -> String { format!("cat {:?}", self.lives) } fn tell(&self) { told("containers::Cat", self); if let Some(f) = &self.friend { f.tell(); } } }
impl Animal for Fish { fn name(&self) -> String { String::new() } }
struct Tree { value: u64, children: RefCell<Vec<Rc<Tree>>>, parent: RefCell<Weak<Tree>> }
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)] struct Key { a: u32, b: u16, text: String }
#[derive(Clone)] struct Session { id: u64, user: Arc<User>, tags: Vec<Cow<'static, str>>, bytes: Vec<u8>, opt: Option<String> }
struct User { name: String, mail: Option<String>, sessions: Mutex<Vec<u64>> }
enum Json { Null, Bool(bool), Num(f64), Str(String), Arr(Vec<Json>), Obj(BTreeMap<String, Json>) }
struct World {
  animals: Vec<Box<dyn Animal>>, arc_animals: Vec<Arc<dyn Animal + Send + Sync>>, tree: Rc<Tree>,
  table: HashMap<Key, Session>, set: HashSet<String>, nested: HashMap<String, HashMap<u32, Vec<Key>>>,
  ord: BTreeMap<Key, Box<Session>>, ordset: BTreeSet<u64>, heap: BinaryHeap<(u64, Key)>, list: LinkedList<Key>, ring: VecDeque<Session>,
  json: Json, locked: Arc<RwLock<HashMap<u64, Arc<Session>>>>, funcs: Vec<Box<dyn Fn(u64) -> u64>>, any: Vec<Box<dyn Any>>, cells: Vec<Rc<Cell<u64>>>, arcstr: Vec<Arc<str>>, rcslice: Rc<[Key]>, opt: Vec<Option<Box<Key>>>, boxed: Box<[Option<String>]>,
}
static mut WORLD: Option<World> = None;
fn key(i: u64) -> Key { Key { a: i as u32, b: 3, text: format!("the key with number {i}") } }
fn session(i: u64, user: &Arc<User>) -> Session { Session { id: i, user: user.clone(), tags: vec![Cow::Borrowed("x"), Cow::Owned(format!("a tag of session {i}"))], bytes: vec![i as u8; 100], opt: if i % 2 == 0 { Some(format!("an option of {i}")) } else { None } } }
fn tk(k: &Key) { told("TEXT", k.text.as_ptr()); }
fn ts(s: &Session) { told("TAGS", s.tags.as_ptr()); for t in &s.tags { if let Cow::Owned(t) = t { told("TEXT", t.as_ptr()); } } told("TEXT", s.bytes.as_ptr()); if let Some(o) = &s.opt { told("TEXT", o.as_ptr()); } }
fn tj(j: &Json) { match j { Json::Str(s) => told("TEXT", s.as_ptr()), Json::Arr(a) => { if !a.is_empty() { told("containers::Json[]", a.as_ptr()); } a.iter().for_each(tj) } Json::Obj(o) => o.iter().for_each(|(k, v)| { told("TEXT", k.as_ptr()); tj(v) }), _ => {} } }
fn json(d: u64) -> Json { match d { 0 => Json::Num(1.5), 1 => Json::Str("some text in json".into()), 2 => Json::Bool(true), 3 => Json::Null, d if d % 2 == 0 => Json::Arr((0..d).map(|i| json(i.min(d - 2))).collect()), d => Json::Obj((0..d).map(|i| (format!("member {i} of it"), json(i.min(d - 3)))).collect()) } }
fn main() {
  unsafe { TRUTH = Some(File::create("truth").unwrap()); }
  let users: Vec<Arc<User>> = (0..20).map(|i| Arc::new(User { name: format!("user number {i}"), mail: Some(format!("user{i}@example.org")), sessions: Mutex::new((0..i + 1).collect()) })).collect();
  let root = Rc::new(Tree { value: 1, children: RefCell::new(vec![]), parent: RefCell::new(Weak::new()) });
  for i in 0..50 { let child = Rc::new(Tree { value: i, children: RefCell::new(vec![]), parent: RefCell::new(Rc::downgrade(&root)) }); root.children.borrow_mut().push(child); }
  let w = World {
    animals: (0..60u64).map(|i| -> Box<dyn Animal> { match i % 3 { 0 => Box::new(Dog { age: i, name: format!("dog number {i} is old") }), 1 => Box::new(Cat { lives: [9; 9], friend: Some(Box::new(Dog { age: i, name: format!("the friend of {i}") })) }), _ => Box::new(Fish) } }).collect(),
    arc_animals: (0..30u64).map(|i| -> Arc<dyn Animal + Send + Sync> { Arc::new(Dog { age: i, name: format!("shared dog {i}") }) }).collect(),
    tree: root.clone(),
    table: (0..200).map(|i| (key(i), session(i, &users[i as usize % 20]))).collect(),
    set: (0..100).map(|i| format!("a member of a set: {i}")).collect(),
    nested: (0..20).map(|i| (format!("outer table {i}"), (0..5u32).map(|j| (j, (0..3).map(key).collect())).collect())).collect(),
    ord: (0..150).map(|i| (key(i), Box::new(session(i, &users[3])))).collect(),
    ordset: (0..500).collect(), heap: (0..64).map(|i| (i, key(i))).collect(), list: (0..40).map(key).collect(), ring: (0..30).map(|i| session(i, &users[1])).collect(),
    json: json(8), locked: Arc::new(RwLock::new((0..70).map(|i| (i, Arc::new(session(i, &users[2])))).collect())),
    funcs: (0..20u64).map(|i| -> Box<dyn Fn(u64) -> u64> { let k = key(i); let v = vec![i; 5]; Box::new(move |x| x + k.a as u64 + v[0]) }).collect(),
    any: (0..20u64).map(|i| -> Box<dyn Any> { if i % 2 == 0 { Box::new(key(i)) } else { Box::new(i) } }).collect(),
    cells: (0..30).map(|i| Rc::new(Cell::new(i))).collect(), arcstr: (0..30).map(|i| Arc::from(format!("a shared text {i}{}", "!".repeat(i * 3)))).collect(), rcslice: (0..9).map(key).collect(), opt: (0..30).map(|i| if i % 2 == 0 { Some(Box::new(key(i))) } else { None }).collect(), boxed: (0..25).map(|i| Some(format!("optional text {i}"))).collect(),
  };
  for u in &users { told("ARC(User)", unsafe { (Arc::as_ptr(u) as *const u8).sub(16) }); told("TEXT", u.name.as_ptr()); told("TEXT", u.mail.as_ref().unwrap().as_ptr()); told("u64[]", u.sessions.lock().unwrap().as_ptr()); }
  told("DYNS", w.animals.as_ptr()); w.animals.iter().for_each(|a| a.tell());
  told("ARCDYNS", w.arc_animals.as_ptr()); for a in &w.arc_animals { told("ARC(Dog)", unsafe { (Arc::as_ptr(a) as *const u8).sub(16) }); }
  told("RC(Tree)", unsafe { (Rc::as_ptr(&root) as *const u8).sub(16) }); told("RCS(Tree)", root.children.borrow().as_ptr()); for c in root.children.borrow().iter() { told("RC(Tree)", unsafe { (Rc::as_ptr(c) as *const u8).sub(16) }); }
  for (k, s) in &w.table { tk(k); ts(s); }
  w.set.iter().for_each(|s| told("TEXT", s.as_ptr()));
  for (k, v) in &w.nested { told("TEXT", k.as_ptr()); for ks in v.values() { told("containers::Key[]", ks.as_ptr()); ks.iter().for_each(tk); } }
  for (k, s) in &w.ord { tk(k); told("containers::Session", &**s as *const Session); ts(s); }
  told("HEAP", w.heap.as_slice().as_ptr()); w.heap.iter().for_each(|(_, k)| tk(k));
  w.list.iter().for_each(tk);
  w.ring.iter().for_each(ts); told("containers::Session[]", w.ring.as_slices().0.as_ptr());
  tj(&w.json);
  told("ARC(RwLock)", unsafe { (Arc::as_ptr(&w.locked) as *const u8).sub(16) });
  for s in w.locked.read().unwrap().values() { told("ARC(Session)", unsafe { (Arc::as_ptr(s) as *const u8).sub(16) }); ts(s); }
  told("FUNCS", w.funcs.as_ptr()); w.funcs.iter().for_each(|f| told("CLOSURE", &**f as *const _));
  told("ANYS", w.any.as_ptr()); for a in &w.any { if let Some(k) = a.downcast_ref::<Key>() { told("containers::Key", k); tk(k); } else if let Some(n) = a.downcast_ref::<u64>() { told("u64", n); } }
  told("CELLS", w.cells.as_ptr()); for c in &w.cells { told("RC(Cell)", unsafe { (Rc::as_ptr(c) as *const u8).sub(16) }); }
  told("ARCSTRS", w.arcstr.as_ptr()); for s in &w.arcstr { told("ARC(str)", unsafe { s.as_ptr().sub(16) }); }
  told("RC(slice)", (w.rcslice.as_ptr() as *const u8).wrapping_sub(16)); w.rcslice.iter().for_each(|k| told("TEXT", k.text.as_ptr()));
  told("OPTS", w.opt.as_ptr()); w.opt.iter().flatten().for_each(|k| { told("containers::Key", &**k as *const Key); tk(k); });
  told("OPTSTR", w.boxed.as_ptr()); w.boxed.iter().flatten().for_each(|s| told("TEXT", s.as_ptr()));
  unsafe { WORLD = Some(w); }
  std::mem::forget(users); std::mem::forget(root);
  std::process::abort();
}
