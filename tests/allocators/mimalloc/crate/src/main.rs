// Leaks vectors in a thread that ends, says which, and dies.

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

static KEPT: std::sync::Mutex<Vec<Vec<u64>>> = std::sync::Mutex::new(Vec::new());

#[inline(never)]
fn scene() {
    let mut told = String::new();
    for i in 0..3000usize {
        let vector = vec![i as u64; 5 + i % 90];
        if i % 10 == 0 {
            told += &format!("{:#x} {}\n", vector.as_ptr() as usize, vector.len() * 8);
            std::mem::forget(vector);
        } else if i % 3 != 0 {
            KEPT.lock().unwrap().push(vector);
        }
    }
    std::fs::write("told", told).unwrap();
}

fn main() {
    std::thread::spawn(scene).join().unwrap();
    std::process::abort();
}
