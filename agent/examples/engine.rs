// engine.rs - the engine of engine.c in Rust: declarations of the C functions, and guards that end spans.
//
//   $ mkdir -p objects && cd objects && gcc -O2 -pthread -I../../include -c ../../src/writer/*.c ../../src/fingerprint/*.c
//   $ ar rcs libbrick.a objects/*.o
//   $ rustc --edition 2021 -O -L . -l static=brick engine.rs
//   $ ./engine 4 200
//
// What to copy: the module `brick`. A span cannot be sent to another thread, because it must end on its own thread.
// Call brick::init before the threads start, so that the segment is completely open for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

mod brick {
    use std::ffi::{c_char, c_uint, c_void, CStr};
    use std::marker::PhantomData;
    use std::ptr::null;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    // brick_agent.h
    extern "C" {
        fn brick_init(config: *const c_void) -> c_uint;
        fn brick_name(text: *const c_char, length: usize, category: *const c_char) -> u32;
        fn brick_begin(brick: u32, key: *const c_void, step: *const u64) -> c_uint;
        fn brick_end(brick: u32, key: *const c_void, elements: u64, bytes: u64) -> c_uint;
        fn brick_step_end(brick: u32, key: *const c_void, rows: u64, valid: u64) -> c_uint;
        fn brick_record(brick: u32, key: *const c_void, elapsed_ns: u64, elements: u64, bytes: u64) -> c_uint;
        fn brick_layer_begin(layer: u32, key: *const c_void) -> c_uint;
        fn brick_layer_end(layer: u32, key: *const c_void) -> c_uint;
    }
    const UNNAMED: u32 = u32::MAX;

    pub fn init() {
        unsafe { brick_init(null()) };
    }

    /// A named unit of work: its number is found at its first use.
    pub struct Brick {
        name: &'static CStr,
        category: &'static CStr,
        number: AtomicU32,
    }

    impl Brick {
        pub const fn new(name: &'static CStr, category: &'static CStr) -> Brick {
            Brick { name, category, number: AtomicU32::new(UNNAMED) }
        }

        fn number(&self) -> u32 {
            let known = self.number.load(Relaxed);
            if known != UNNAMED {
                return known;
            }
            let length = self.name.to_bytes().len();
            let found = unsafe { brick_name(self.name.as_ptr(), length, self.category.as_ptr()) };
            self.number.store(found, Relaxed); // every thread finds the same number
            found
        }

        pub fn span(&self, elements: u64, bytes: u64) -> Span {
            let number = self.number();
            unsafe { brick_begin(number, null(), null()) };
            Span { end: End::Span { number, elements, bytes }, here: PhantomData }
        }

        pub fn step(&self, step: u64, rows: u64, valid: u64) -> Span {
            let number = self.number();
            unsafe { brick_begin(number, null(), &step) };
            Span { end: End::Step { number, rows, valid }, here: PhantomData }
        }

        pub fn record(&self, elapsed_ns: u64, elements: u64, bytes: u64) {
            unsafe { brick_record(self.number(), null(), elapsed_ns, elements, bytes) };
        }
    }

    pub fn layer(layer: u32) -> Span {
        unsafe { brick_layer_begin(layer, null()) };
        Span { end: End::Layer { layer }, here: PhantomData }
    }

    enum End {
        Span { number: u32, elements: u64, bytes: u64 },
        Step { number: u32, rows: u64, valid: u64 },
        Layer { layer: u32 },
    }

    /// A span or a layer that ends with its block, even if the block panics or returns early.
    #[must_use]
    pub struct Span {
        end: End,
        here: PhantomData<*const ()>, // makes the type not Send
    }

    impl Drop for Span {
        fn drop(&mut self) {
            match self.end {
                End::Span { number, elements, bytes } => unsafe { brick_end(number, null(), elements, bytes) },
                End::Step { number, rows, valid } => unsafe { brick_step_end(number, null(), rows, valid) },
                End::Layer { layer } => unsafe { brick_layer_end(layer, null()) },
            };
        }
    }
}

static REQUEST: brick::Brick = brick::Brick::new(c"request", c"step");
static COPY: brick::Brick = brick::Brick::new(c"copy", c"transfer");
static NORM: brick::Brick = brick::Brick::new(c"norm", c"norm");
static GEMM: brick::Brick = brick::Brick::new(c"gemm", c"ffn");

const LAYERS: usize = 4;
const ROWS: usize = 8;
const WIDTH: usize = 64;
const SIZE: u64 = (ROWS * WIDTH) as u64;
type Batch = [[f32; WIDTH]; ROWS];
type Matrix = [[f32; WIDTH]; WIDTH];

fn norm(x: &mut Batch) -> Result<(), &'static str> {
    let _span = NORM.span(SIZE, 4 * SIZE);
    for row in x {
        let squares: f32 = 1e-6 + row.iter().map(|value| value * value).sum::<f32>();
        if !squares.is_finite() {
            return Err("a value is not finite");
        }
        row.iter_mut().for_each(|value| *value /= (squares / WIDTH as f32).sqrt());
    }
    Ok(())
}

fn gemm(x: &Batch, w: &Matrix) -> Batch {
    let _span = GEMM.span(SIZE, 8 * SIZE + (4 * WIDTH * WIDTH) as u64);
    x.map(|row| w.map(|column| row.iter().zip(column).map(|(a, b)| a * b).sum()))
}

fn forward(model: &[Matrix], x: &mut Batch) -> Result<(), &'static str> {
    for (n, matrix) in model.iter().enumerate() {
        let _layer = brick::layer(n as u32);
        norm(x)?;
        *x = gemm(x, matrix);
    }
    Ok(())
}

fn serve(model: &[Matrix], request: u64) -> Result<(), &'static str> {
    let _step = REQUEST.step(request, ROWS as u64, ROWS as u64);
    let from = Instant::now(); // like a library with its own clock; one request in fifty arrives damaged
    let mut x = [[0f32; WIDTH]; ROWS];
    for (i, value) in x.iter_mut().flatten().enumerate() {
        *value = ((request + i as u64) % 17) as f32 - 8.0;
    }
    if request % 50 == 0 {
        x[ROWS - 1][0] = f32::NAN;
    }
    COPY.record(from.elapsed().as_nanos() as u64, SIZE, 4 * SIZE);
    forward(model, &mut x)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let (Some(threads), Some(requests)) = (numbers.next(), numbers.next()) else {
        panic!("usage: engine THREADS REQUESTS");
    };
    let mut model = vec![[[0f32; WIDTH]; WIDTH]; LAYERS];
    for (i, weight) in model.iter_mut().flatten().flatten().enumerate() {
        *weight = (i as f32 % 13.0 - 6.0) / WIDTH as f32;
    }

    brick::init(); // the service's name comes from the environment, else from the program's name
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let request = next.fetch_add(1, Relaxed);
                if request >= requests {
                    break;
                }
                if serve(&model, request).is_err() {
                    failed.fetch_add(1, Relaxed);
                }
            });
        }
    });
    println!("{requests} requests, {} failed", failed.into_inner());
}
