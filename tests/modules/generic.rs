// Generic functions and methods. The program writes "SPELLING|SPELLING...|ADDRESS" for each to the file "truth", and
// aborts. Each has one set of arguments only, so that each spelling means one function.
use std::io::Write;

mod shop {
    #[derive(Default)]
    pub struct Order(pub u64);

    pub struct Table<K> {
        pub keys: Vec<K>,
    }

    pub trait Keeps<K> {
        fn keep(&mut self, key: K) -> usize;
    }

    impl<K> Keeps<K> for Table<K> {
        #[inline(never)]
        fn keep(&mut self, key: K) -> usize {
            self.keys.push(key);
            self.keys.len()
        }
    }

    impl<K> Table<K> {
        #[inline(never)]
        pub fn forget(&mut self) -> Option<K> {
            self.keys.pop()
        }
    }

    #[inline(never)]
    pub fn make_vec<T: Default>(count: usize) -> Vec<T> {
        (0..count).map(|_| T::default()).collect()
    }
}

use shop::{make_vec, Keeps, Order, Table};

fn main() {
    let make = make_vec::<Order> as fn(usize) -> Vec<Order>;
    let keep = <Table<u64> as Keeps<u64>>::keep as fn(&mut Table<u64>, u64) -> usize;
    let forget = Table::<u64>::forget as fn(&mut Table<u64>) -> Option<u64>;
    let mut table = Table { keys: Vec::new() };
    keep(&mut table, make(3)[0].0);
    forget(&mut table);
    let mut truth = std::fs::File::create("truth").unwrap();
    for (names, at) in [
        ("make_vec|shop::make_vec|make_vec<Order>|make_vec::<shop::Order>", make as usize),
        ("keep|Table::keep|Table<u64>::keep|<Table<u64> as Keeps<u64>>::keep", keep as usize),
        ("forget|Table::forget|Table<u64>::forget", forget as usize),
    ] {
        writeln!(truth, "{names}|{at}").unwrap();
    }
    std::process::abort();
}
