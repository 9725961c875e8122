// Values of Rust that leaked, where others of their types live. Tells of each block: "TYPE|ADDRESS|USABLE BYTES" in the file
// "truth". The counters of an Arc or an Rc stand before its value.
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

extern "C" {
    fn malloc_usable_size(block: *const u8) -> usize;
}

struct User {
    id: u64,
    name: String,
    tags: Vec<u32>,
}

struct Order {
    id: u32,
    state: u8,
    total: f64,
    item: String,
    who: Arc<User>,
}

struct Node {
    children: Vec<Rc<RefCell<Node>>>,
    parent: Option<Rc<RefCell<Node>>>,
    value: u64,
}

static mut KEPT: Option<(HashMap<u64, Box<Order>>, Vec<Arc<User>>, Vec<Rc<RefCell<Node>>>)> = None;

fn told<T>(truth: &mut File, kind: &str, value: *const T, before: usize) {
    let block = value as usize - before;
    let size = unsafe { malloc_usable_size(block as *const u8) };
    writeln!(truth, "{kind}|{block}|{size}").unwrap();
}

fn node(truth: &mut File, parent: Option<Rc<RefCell<Node>>>, value: u64) -> Rc<RefCell<Node>> {
    let made = Rc::new(RefCell::new(Node { children: vec![], parent, value }));
    told(truth, "NODE", Rc::as_ptr(&made), 16);
    made
}

fn main() {
    let mut truth = File::create("truth").unwrap();
    let (mut orders, mut users, mut nodes) = (HashMap::new(), vec![], vec![]);
    for i in 0..600u64 {
        let user = Arc::new(User { id: i, name: format!("user {i}"), tags: vec![1, 2, i as u32] });
        told(&mut truth, "USER", Arc::as_ptr(&user), 16);
        if i % 3 == 2 {
            std::mem::forget(user);
        } else {
            users.push(user);
        }
    }
    for i in 0..900u64 {
        let who = users[i as usize % users.len()].clone();
        let item = format!("item {i}");
        let order = Box::new(Order { id: i as u32, state: (i % 3) as u8, total: i as f64 * 1.5, item, who });
        told(&mut truth, "ORDER", &*order, 0);
        if i % 3 == 2 {
            std::mem::forget(order);
        } else {
            orders.insert(i, order);
        }
    }
    // Trees whose nodes hold each other.
    for i in 0..300u64 {
        let root = node(&mut truth, None, i);
        for k in 0..3 {
            let child = node(&mut truth, Some(root.clone()), k);
            root.borrow_mut().children.push(child);
        }
        if i % 2 == 0 {
            nodes.push(root);
        }
    }
    let sum: u64 = orders.values().map(|o| o.id as u64 + o.state as u64 + o.total as u64 + o.item.len() as u64).sum();
    let more: u64 = users.iter().map(|u| u.id + u.name.len() as u64 + u.tags.len() as u64).sum();
    let nodes_sum: u64 = nodes.iter().map(|n| n.borrow().value + n.borrow().parent.is_some() as u64).sum();
    let _who = orders.values().filter(|o| o.who.id > 0).count();
    unsafe { KEPT = Some((orders, users, nodes)) };
    truth.flush().unwrap();
    if sum + more + nodes_sum > 0 {
        std::process::abort();
    }
}
