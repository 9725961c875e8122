//! Several threads follow the pointers of one queue.
//!
//! Each thread has a queue of its own. One that has nothing left waits, and gets half of what waits in a queue of another.
//! A list has nothing to share: one thread follows it, and the others sleep. What is reached does not depend on the order,
//! so the answer is the same for any number of threads.

use super::guide::Guide;
use super::index::{chunk_of_word, edges_of, Region, Tables};
use super::number::Index;
use super::queue::{Marked, Queue};
use super::runs::REGION;
use crate::control::{Control, Stopped};
use crate::hw;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// With so many ranges of edges in one queue it is worth while to start threads.
pub(super) const MANY: usize = 1 << 9;
/// With fewer, a thread keeps them: they are followed sooner than another thread wakes up.
const FEW: usize = 1 << 6;

/// Follows everything in the queue, on so many threads. Returns how many blocks were reached.
pub(super) fn follow<I: Index, const P: usize>(
    tables: &mut Tables<I, P>,
    queue: Queue<I>,
    threads: usize,
    control: &Control,
) -> Result<u64, Stopped> {
    let Tables { regions, edges, guide, .. } = tables;
    let pool = Pool::new(threads);
    let (edges, blocks) = (edges.as_slice(), Blocks { regions: &regions[..], guide, pool: &pool, count: 0 });
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map(|_| scope.spawn(|| hw::fast_work(Helping { blocks, edges, queue: Queue::default(), control })))
            .collect();
        let mut reached = hw::fast_work(Helping { blocks, edges, queue, control });
        for helper in helpers {
            let more = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            reached = reached.and_then(|reached| Ok(reached + more?));
        }
        reached
    })
}

/// What the threads have in common.
struct Pool<I> {
    threads: usize,
    state: Mutex<State<I>>,
    wake: Condvar,
    /// How many threads wait for whom nothing is there. It may be out of date: it only decides when to share.
    hungry: AtomicUsize,
}

struct State<I> {
    /// What was shared and nobody has taken yet.
    parts: Vec<Vec<(I, I)>>,
    /// How many threads wait.
    idle: usize,
    /// All threads wait, or one has stopped.
    ended: bool,
}

impl<I: Index> Pool<I> {
    fn new(threads: usize) -> Self {
        let state = State { parts: Vec::new(), idle: 0, ended: false };
        Pool { threads, state: Mutex::new(state), wake: Condvar::new(), hungry: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State<I>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn update(&self, state: &State<I>) {
        self.hungry.store(state.idle.saturating_sub(state.parts.len()), Ordering::Relaxed);
    }

    /// Gives away half of what waits, the oldest, if a thread has nothing.
    fn share(&self, waiting: &mut Vec<(I, I)>) {
        if self.hungry.load(Ordering::Relaxed) == 0 || waiting.len() < FEW {
            return;
        }
        let part = waiting.drain(..waiting.len() / 2).collect();
        let mut state = self.state();
        state.parts.push(part);
        self.update(&state);
        self.wake.notify_one();
    }

    /// Waits for something to follow. Returns None when all is done, or when a thread has stopped.
    fn take(&self) -> Option<Vec<(I, I)>> {
        let mut state = self.state();
        state.idle += 1;
        loop {
            if let Some(part) = state.parts.pop() {
                state.idle -= 1;
                self.update(&state);
                return Some(part);
            }
            if state.ended || state.idle == self.threads {
                self.end(&mut state);
                return None;
            }
            self.update(&state);
            state = self.wake.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn end(&self, state: &mut State<I>) {
        state.ended = true;
        self.wake.notify_all();
    }
}

/// Ends the waiting of the others when a thread leaves, even if it panics.
struct Leaving<'p, I: Index>(&'p Pool<I>);

impl<I: Index> Drop for Leaving<'_, I> {
    fn drop(&mut self) {
        self.0.end(&mut self.0.state());
    }
}

/// The blocks, as one of the threads sees them.
#[derive(Clone, Copy)]
struct Blocks<'t, I: Index, const P: usize> {
    regions: &'t [Region<I, P>],
    guide: &'t Guide<I>,
    pool: &'t Pool<I>,
    /// How many blocks this thread has reached.
    count: u64,
}

impl<I: Index, const P: usize> Marked<I> for Blocks<'_, I, P> {
    #[inline(always)]
    fn load(&self, target: usize) {
        hw::prefetch(self.regions, target / (REGION * P));
    }

    #[inline(always)]
    fn load_edges(&self, edges: &[I], target: usize) {
        self.guide.load::<P>(edges, target);
    }

    #[inline(always)]
    fn reach(&mut self, target: usize) -> Option<(usize, usize)> {
        let granule = chunk_of_word(self.regions, target)?;
        if !self.regions[granule / REGION].mark_shared(granule % REGION) {
            return None;
        }
        self.count += 1;
        Some(edges_of(self.regions, granule))
    }

    #[inline(always)]
    fn pause(&mut self, waiting: &mut Vec<(I, I)>) -> bool {
        self.pool.share(waiting);
        false
    }
}

/// The work of one thread.
struct Helping<'t, I: Index, const P: usize> {
    blocks: Blocks<'t, I, P>,
    edges: &'t [I],
    queue: Queue<I>,
    control: &'t Control,
}

impl<I: Index, const P: usize> hw::Work for Helping<'_, I, P> {
    type Out = Result<u64, Stopped>;
    #[inline(always)]
    fn run<const FAST: bool>(mut self) -> Self::Out {
        let pool = self.blocks.pool;
        let _leaving = Leaving(pool);
        loop {
            self.queue.follow(&mut self.blocks, self.edges, self.control)?;
            let Some(part) = pool.take() else { return Ok(self.blocks.count) };
            self.queue = Queue::of(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_stops_wakes_the_others() {
        let pool = Pool::<u32>::new(3);
        std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| pool.take()));
            drop(Leaving(&pool));
            for one in waiting {
                assert_eq!(one.join().expect("no panic"), None);
            }
        });
    }

    #[test]
    fn a_thread_that_waits_gets_the_older_half() {
        let pool = Pool::<u32>::new(2);
        let mut waiting: Vec<_> = (0..2 * FEW as u32).map(|first| (first, first + 1)).collect();
        pool.share(&mut waiting);
        assert_eq!(waiting.len(), 2 * FEW, "nobody waits yet");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| pool.take());
            while pool.hungry.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            pool.share(&mut waiting);
            let part = other.join().expect("no panic").expect("something to follow");
            assert_eq!((part[0], part.len()), ((0, 1), FEW));
            assert_eq!(waiting[0], (FEW as u32, FEW as u32 + 1));
        });
    }
}
