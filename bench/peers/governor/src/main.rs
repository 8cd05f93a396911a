// SPDX-License-Identifier: MIT
// bench/peers/governor - the governor crate in the rounds of `make bench`.
//
// Reads "run REQUEST N" or "rest", a line each, and answers with a line of
// JSON. One thread is timed by its processor time, two by the wall clock; both
// stop when the first has done its share, as in bench/harness.c.

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{middleware::NoOpMiddleware, DefaultDirectRateLimiter};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

const COLD: u32 = 4 << 20;
const CHUNK: u64 = 512;
const NAME_LEN: usize = 24;

// A name's bytes inline: faster for the crate than a String.
type Name = [u8; NAME_LEN];
type Keyed = DefaultKeyedRateLimiter<Name>;
type Given = RateLimiter<
    NotKeyed,
    InMemoryState,
    FakeRelativeClock,
    NoOpMiddleware<<FakeRelativeClock as governor::clock::Clock>::Instant>,
>;

struct Cold {
    limiter: Keyed,
    names: Vec<Name>,
    next: usize,
}

struct Sample {
    ns: f64,
    disturbed: bool,
}

fn name_of(mut number: u32) -> Name {
    let mut name = *b"tenant/0000000000/object";
    let mut at = 16;
    while number != 0 {
        name[at] = b'0' + (number % 10) as u8;
        number /= 10;
        at -= 1;
    }
    name
}

fn clock_ns(id: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(id, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

fn pin(processor: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

fn one(n: u64, mut body: impl FnMut(u64)) -> Sample {
    let start = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    body(n);
    let took = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - start;
    Sample { ns: took as f64 / n as f64, disturbed: false }
}

fn two(n: u64, body: impl Fn(u64) + Send + Sync) -> Sample {
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(2);
    let race = |processor: usize| {
        pin(processor);
        barrier.wait();
        let wall = clock_ns(libc::CLOCK_MONOTONIC);
        let cpu = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            body(CHUNK);
            done += CHUNK;
            if done >= n {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let cpu = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu;
        (clock_ns(libc::CLOCK_MONOTONIC) - wall, cpu, done)
    };
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| race(0));
        let b = scope.spawn(|| race(1));
        (a.join().unwrap(), b.join().unwrap())
    });
    let wall = (a.0 + b.0) as f64;
    Sample {
        ns: wall / (a.2 + b.2) as f64,
        disturbed: wall > 1.10 * (a.1 + b.1) as f64,
    }
}

// A limit that is never reached: nothing is refused, as in Weir's rows.
fn generous() -> Quota {
    Quota::per_second(NonZeroU32::new(1_000_000_000).unwrap())
}

fn cold_new() -> Cold {
    let limiter = RateLimiter::keyed(generous());
    let mut numbers: Vec<u32> = (0..COLD).collect();
    let mut x: u64 = 0x9e37_79b9_7f4a_7c15;
    for i in (1..COLD as u64).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        numbers.swap(i as usize, (((x >> 32) * (i + 1)) >> 32) as usize);
    }
    let names: Vec<Name> = numbers.into_iter().map(name_of).collect();
    for name in &names {
        black_box(limiter.check_key(name).is_ok());
    }
    Cold { limiter, names, next: 0 }
}

struct Bench {
    direct: Arc<DefaultDirectRateLimiter>,
    given: Given,
    given_clock: FakeRelativeClock,
    hot: Keyed,
    hot_names: Vec<Name>,
    cold: Option<Cold>,
}

impl Bench {
    fn new() -> Bench {
        let clock = FakeRelativeClock::default();
        Bench {
            direct: Arc::new(RateLimiter::direct(generous())),
            given: RateLimiter::direct_with_clock(generous(), clock.clone()),
            given_clock: clock,
            hot: RateLimiter::keyed(generous()),
            hot_names: (0..64).map(name_of).collect(),
            cold: None,
        }
    }

    fn direct_loop(&self, n: u64) {
        for _ in 0..n {
            black_box(self.direct.check().is_ok());
        }
    }

    // Its clock is a word that stands still while a batch runs.
    fn given_loop(&self, n: u64) {
        for _ in 0..n {
            black_box(self.given.check().is_ok());
        }
    }

    fn hot_loop(&self, n: u64) {
        for i in 0..n {
            let name = &self.hot_names[i as usize % self.hot_names.len()];
            black_box(self.hot.check_key(name).is_ok());
        }
    }

    fn cold_loop(&mut self, n: u64) {
        let cold = self.cold.get_or_insert_with(cold_new);
        for _ in 0..n {
            let name = &cold.names[cold.next];
            cold.next = (cold.next + 1) % cold.names.len();
            black_box(cold.limiter.check_key(name).is_ok());
        }
    }

    fn run(&mut self, request: &str, n: u64) -> Option<Sample> {
        // A batch's worth of tokens, so that all pass.
        self.given_clock.advance(Duration::from_secs(1));
        match request {
            "direct" => Some(one(n, |n| self.direct_loop(n))),
            "direct2" => Some(two(n, |n| self.direct_loop(n))),
            "given" => Some(one(n, |n| self.given_loop(n))),
            "given2" => Some(two(n, |n| self.given_loop(n))),
            "keyed_hot" => Some(one(n, |n| self.hot_loop(n))),
            "keyed_cold" => {
                self.cold.get_or_insert_with(cold_new);
                Some(one(n, |n| self.cold_loop(n)))
            }
            _ => None,
        }
    }
}

fn main() {
    let mut bench = Bench::new();
    for line in io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let sample = match words.as_slice() {
            ["run", request, n] => n
                .parse()
                .ok()
                .and_then(|n| bench.run(request, n)),
            ["rest"] => {
                bench.cold = None;
                Some(Sample { ns: 0.0, disturbed: false })
            }
            _ => None,
        };
        match sample {
            Some(s) => println!(
                "{{\"ns\": {:.4}, \"disturbed\": {}}}",
                s.ns, s.disturbed as u8
            ),
            None => println!("{{\"error\": \"unknown request\"}}"),
        }
        io::stdout().flush().expect("standard output");
    }
}
