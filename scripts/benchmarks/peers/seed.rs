//! How the older Rust profiler, from which brickd grew, records a span; rebuilt from its design. A span takes an
//! `Instant` when it starts. When it stops, the elapsed time is added to the statistics of its brick, which are an
//! element of an array, and to those of the brick's category.
//!
//! This is the fastest code that the design allows: it has no lock, no map and no allocation, and everything is
//! inlined. If several threads shared the profiler, all of this would need a mutex.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

#[derive(Clone, Copy)]
#[repr(u8)]
#[allow(dead_code)]
pub enum BrickId {
    RmsNorm,
    LayerNorm,
    QkvProjection,
    RopeEmbedding,
    AttentionScore,
    AttentionSoftmax,
    AttentionOutput,
    OutputProjection,
    GateProjection,
    UpProjection,
    Activation,
    DownProjection,
    Embedding,
    LmHead,
    Sampling,
}

const BRICKS: usize = 15;
const CATEGORIES: usize = 4;
const CATEGORY: [u8; BRICKS] = [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3];

#[derive(Clone, Copy)]
struct BrickStats {
    count: u64,
    total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    elements: u64,
}

#[derive(Clone, Copy)]
struct CategoryStats {
    count: u64,
    total_ns: u64,
    elements: u64,
}

struct Timer {
    brick: BrickId,
    started: Instant,
}

struct Profiler {
    enabled: bool,
    bricks: [BrickStats; BRICKS],
    categories: [CategoryStats; CATEGORIES],
}

impl Profiler {
    const fn new() -> Self {
        let brick = BrickStats { count: 0, total_ns: 0, min_ns: u64::MAX, max_ns: 0, elements: 0 };
        let category = CategoryStats { count: 0, total_ns: 0, elements: 0 };
        Profiler { enabled: true, bricks: [brick; BRICKS], categories: [category; CATEGORIES] }
    }

    #[inline]
    fn start_brick(&self, brick: BrickId) -> Timer {
        Timer { brick, started: Instant::now() }
    }

    #[inline]
    fn stop_brick(&mut self, timer: Timer, elements: u64) {
        if !self.enabled {
            return;
        }
        let elapsed_ns = timer.started.elapsed().as_nanos() as u64;
        let brick = &mut self.bricks[timer.brick as usize];
        brick.count += 1;
        brick.total_ns += elapsed_ns;
        brick.min_ns = brick.min_ns.min(elapsed_ns);
        brick.max_ns = brick.max_ns.max(elapsed_ns);
        brick.elements += elements;
        let category = &mut self.categories[CATEGORY[timer.brick as usize] as usize];
        category.count += 1;
        category.total_ns += elapsed_ns;
        category.elements += elements;
    }
}

thread_local! {
    static PROFILER: RefCell<Profiler> = const { RefCell::new(Profiler::new()) };
}

/// Records `times` spans. Because of `black_box`, the compiler does not know the brick, and must really write the
/// statistics each time.
#[no_mangle]
pub extern "C" fn batch(times: u64) {
    PROFILER.with_borrow_mut(|mut profiler| {
        for _ in 0..times {
            let timer = profiler.start_brick(black_box(BrickId::RmsNorm));
            profiler.stop_brick(timer, 0);
            profiler = black_box(profiler);
        }
    });
}

/// Returns the number of spans in the statistics.
#[no_mangle]
pub extern "C" fn recorded() -> u64 {
    PROFILER.with_borrow(|profiler| {
        let bricks: u64 = profiler.bricks.iter().map(|brick| brick.count).sum();
        let categories: u64 = profiler.categories.iter().map(|category| category.count).sum();
        bricks.min(categories)
    })
}
