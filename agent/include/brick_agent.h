/* brick_agent.h - record spans into a brickd segment.
 *
 *   uint32_t gemm = brick_name("gemm", 4, "ffn");    once
 *   brick_begin(gemm, NULL, NULL);                   each time
 *   ...
 *   brick_end(gemm, NULL, elements, bytes);
 *
 * Plain C functions of numbers and pointers: any language that can call C can
 * call these. brick_agent.hpp has them for C++ as objects; examples/ has an
 * engine in C, in C++ and in Rust. Code that runs inside a Python process uses
 * brick_python.h instead, and shares the segment of brick_agent there.
 *
 * To build: compile the C files in src/writer and src/fingerprint of this package
 * as C11 or later, with this folder on the include path, -pthread, and -fPIC for
 * a shared library. Nothing is linked but the C library (before glibc 2.34 with
 * -lrt).
 *
 * What a host may rely on: no call here raises, blocks, waits, starts a thread
 * or installs a signal handler. brick_begin and brick_end allocate nothing and
 * make no system call, but for the rare cases: the first record of a process,
 * of a thread, of a forked child; a path or a block of 64 paths met for the
 * first time; more spans open at once than ever before; a span ring just
 * turned on, a thread's first deferred work; a look once in ten seconds whether
 * the segment is still there. The calls for deferred work and for checksums
 * promise the same, the latter but for a process's first, which reads a file (and
 * where that has failed, a few later ones).
 * What cannot be recorded is counted where `brickd inspect` shows it, so no
 * answer has to be looked at.
 *
 * KEYS. The key says on whose behalf a span runs: spans nest within one key of
 * one thread. NULL stands for the thread itself; a scheduler that interleaves
 * tasks on one thread passes the task: any address or number that no other task
 * has meanwhile. It is never followed.
 *
 * A span ends on the thread that began it, for the same key, under the same
 * number. An end that finds no such span is counted and does nothing. A span
 * that is never ended is counted as abandoned where one around it ends (so
 * after longjmp), or its thread does. What moves between threads while it lasts
 * is best timed by the host and given to brick_record.
 *
 * THREADS. Every call may be made from any thread, also at once. A thread needs
 * no registration: its first record takes it a lane, its end gives the lane
 * back. There are BRICKD_LANES of them; what other threads begin is counted.
 *
 * SIGNALS. A handler may begin and end spans on threads that have recorded
 * before; one that interrupted a call on its own thread is refused and counted.
 *
 * FORKS. A forked child, whatever forked it, records into a segment of its own
 * from its first record on; names keep their numbers. What was open at the fork
 * is the parent's: its end in the child ends nothing.
 *
 * LIFE. Before main (a constructor, a global of C++) all of this works too; but
 * the first name or record opens the segment, and what brick_init is told after
 * that comes too late. At exit() and when main returns recording ends, and the
 * segment is removed after a record of its sums, or left to the daemon that has
 * drained it; a process that ends by _exit, abort, exec or a signal leaves it, a
 * dead worker with its totals, until `brickd prune`.
 * Where the writer is part of a library, dlclose ends it as exit() does; threads
 * that have recorded may live on, and the library may be loaded again. Two
 * copies in one process know nothing of each other: two segments, two workers
 * with one pid, two trees of spans (one, where the dynamic linker binds both to
 * the same functions).
 *
 * DEVICES. A span is time on the host: around the launch of a kernel it is the
 * time of the launch, around cudaStreamSynchronize the time of the wait. What
 * the device measured is given to brick_record, once the host has waited for it:
 *
 *   float ms;
 *   if (cudaEventElapsedTime(&ms, begun, ended) == cudaSuccess)
 *       brick_record(kernel, NULL, (uint64_t)(ms * 1e6f), elements, bytes);
 *
 * Where the host launches and goes on, the work is deferred: told when it
 * begins, and again when the host has waited for its stream, whatever thread did.
 *
 *   uint64_t id;
 *   brick_defer(kernel, NULL, stream, NULL, elements, bytes, &id);
 *   launch<<<grid, block, 0, stream>>>(...);
 *   ...
 *   cudaStreamSynchronize(stream);
 *   brick_measured(id, elapsed_ns);    where events stood around the launch
 *   brick_finalize(&stream);
 *
 * What was measured is a measurement; of what was not, a bound is known: from
 * its start to the next one's, of the last one to the finalize. Both are worked
 * out by a daemon. While none runs, nobody reads the events of a thread: its
 * ring of 4,096 fills up, and what comes after that is dropped and counted.
 *
 * NUMBERS. brick_fingerprint makes of a tensor what two workers' tensors can be
 * compared by: a checksum of every byte, statistics, a sketch. brick_fingerprint.h
 * has the definition. It records nothing.
 *
 * What a kernel's tensors came to is recorded at its site, which is the kernel
 * and the layer. Inputs are taken before the call, which may overwrite them:
 *
 *   struct brick_taken in, out;
 *   brick_take(rope, NULL, NULL, &x, &in);
 *   rope_neox(...);
 *   brick_take(rope, NULL, NULL, &y, &out);
 *   brick_checksum(rope, NULL, NULL, &out, &in, 1);
 *
 * They are taken with a key of the service: the file that BRICKD_KEY_FILE names,
 * else `key` in BRICKD_STATE_DIR (else in $XDG_STATE_HOME/brickd, else in
 * ~/.local/state/brickd), of which its user alone may be the reader. Who needs it
 * first makes it. Where it cannot be had the key is 0, which one line on stderr
 * says; where that passes (no descriptor or room left, say), it says so, and until
 * it is had checksums are dropped and counted: all of a process have one key. Workers of several hosts or containers are given the same file, or their
 * checksums are not comparable.
 *
 * A model's parameters are recorded in the same way: brick_weights.h.
 *
 * No call here makes one of CUDA, so that host functions of a stream
 * (cudaLaunchHostFunc) may record as well.
 */
#ifndef BRICK_AGENT_H
#define BRICK_AGENT_H

#include "brick_fingerprint.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a field leaves at zero comes from the environment, else from defaults. The texts may go afterwards. */
struct brick_config {
    const char *service;     /* BRICKD_SERVICE, else the program's name */
    const char *worker;      /* BRICKD_WORKER: "3", or coordinates "0.tp3.pp1"; else undeclared */
    const char *prefix;      /* BRICKD_SHM_PREFIX, else "brickd-" */
    const char *clock;       /* BRICKD_CLOCK: auto, tsc, monotonic; else auto */
    const char *clocksource; /* where the kernel names its clock, else its place in /sys */
    uint32_t lanes;          /* BRICKD_LANES: threads that record at once; 32 */
    uint32_t paths;          /* BRICKD_PATHS: places in the call tree; 1,024 */
    uint32_t names;          /* BRICKD_NAMES: 4,096 */
    uint32_t sites;          /* BRICKD_SITES: kernels and weights at their layers that have checksums; 2,048 */
    uint32_t span_slots;     /* 4,096 */
    uint32_t event_slots;    /* BRICKD_EVENTS: slots of a thread's event ring, of 64 bytes; 4,096 */
};

enum brick_state {
    BRICK_NEW = 0,     /* nothing opened yet (or a forked child that has not recorded) */
    BRICK_OPENING = 1, /* another thread is at it */
    BRICK_ON = 2,
    BRICK_OFF = 3,     /* disabled, by a call or BRICKD=0; or shut down */
    BRICK_FAILED = 4,  /* could not open; brick_problem() says why */
};

/* What a call did besides its work, as bits. FIRST and LAST are for a host that
 * counts references to its keys: it takes one at the one and gives it back at
 * the other, so that no later task has the key while something is open for it. */
enum brick_outcome {
    BRICK_DONE = 0,
    BRICK_FIRST = 1,     /* begin: this key now has something open and must stay valid */
    BRICK_LAST = 2,      /* end: this key has nothing open any more, and is not borrowed */
    BRICK_JOINED = 4,    /* this thread was given a lane */
    BRICK_REFUSED = 8,   /* not recorded, and counted */
    BRICK_UNMATCHED = 16 /* end without a begin, counted */
};

/* Opens the segment; harmless when called again. Without it the first name or
 * record does the same. Of several threads one opens; the others are told
 * BRICK_OPENING, and what they begin meanwhile is counted and not recorded.
 * Writes at most one line to stderr, when it fails. */
enum brick_state brick_init(const struct brick_config *config);

/* Ends recording for good in this process. Removes the segment after a record of
 * its sums, unless a daemon has attached or no record can be written. Called by
 * itself at exit(). */
void brick_shutdown(void);

/* Stop and resume recording. Spans open at that moment still end, and deferred work that pends. */
void brick_enable(int on);

enum brick_state brick_state(void);
const char *brick_problem(void); /* "" when there was none */

/* The number of a name, the same at each call, for all threads; 0, of no name,
 * when no more fit. A name of more than 120 bytes is cut, but says the word still
 * that makes it sensitive (brick_is_sensitive). The first category declared for a
 * name stays; NULL declares none. The text may go afterwards.
 *
 * BRICK_UNNAMED while there is no telling: another thread is opening the
 * segment, or none is open and recording is off. What is begun under it is
 * counted and not recorded. So ask again: make names after brick_init and
 * before other threads start, or at their first use (brick_agent.hpp). */
uint32_t brick_name(const char *text, size_t length, const char *category);
#define BRICK_UNNAMED UINT32_MAX
uint32_t brick_names_room(void); /* how many names there can be; opens nothing */

/* Recording is off and this thread has nothing open: begin and end would do
 * nothing, so what leads to them may be spared. */
int brick_is_off(void);

/* step: on whose behalf in the engine's count (a request, an iteration); NULL
 * takes that of the span around. The step 0 is one to the checksums within; in the
 * details of spans and of deferred work it looks like none. elements, bytes: what
 * was worked on, 0 where that is not known. */
unsigned brick_begin(uint32_t brick, const void *key, const uint64_t *step);
unsigned brick_end(uint32_t brick, const void *key, uint64_t elements, uint64_t bytes);

/* The same of what it did, in floating-point operations too: 0 to BRICK_FLOPS_MAX, 0 where that is not known. */
#define BRICK_FLOPS_MAX 0x1p80
struct brick_amounts {
    uint64_t elements, bytes;
    double flops;
};
unsigned brick_end_of(uint32_t brick, const void *key, const struct brick_amounts *did);

/* Ends a span that was one step of an engine, begun by brick_begin with the
 * step's key: a batch of so many rows, the first `valid` of which are not
 * padding. Totals count the valid ones as elements. */
unsigned brick_step_end(uint32_t brick, const void *key, uint64_t rows, uint64_t valid);

/* A span that was timed elsewhere (a device's event, a library's own clock) and
 * took so long. It stands below what is open for the key, and is taken from the
 * own time of that: to be called where the host waited for it. */
unsigned brick_record(uint32_t brick, const void *key, uint64_t elapsed_ns, uint64_t elements, uint64_t bytes);
unsigned brick_record_of(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did);

/* Work that was handed to a device begins, now. It stands below what is open for
 * the key and takes the step of that, unless one is given. stream: the host's
 * own number of it (a handle, an index), 0 where there is but one. *id tells it
 * from all else that this process ever defers, for brick_measured; 0 where it was
 * not recorded. NULL where nobody asks.
 *
 * The last eighth of a thread's ring is kept for what ends, and the last eighth
 * of that for finalizes: beyond that, starts and measurements are dropped. */
unsigned brick_defer(uint32_t brick, const void *key, uint64_t stream, const uint64_t *step, uint64_t elements,
                     uint64_t bytes, uint64_t *id);

/* How long the device says that it took; before its stream is finalized. For an
 * id of 0 there is nothing to do; one that was never given (in this process: a
 * forked child's parent is another) is counted as unmatched. */
unsigned brick_measured(uint64_t id, uint64_t elapsed_ns);

/* The host has waited for this stream (NULL: for all of them): what was deferred
 * on it until now, by any thread, is over. Where nothing is, this does nothing. */
unsigned brick_finalize(const uint64_t *stream);

/* How much deferred work of this process no finalize has covered yet. Exact while
 * no stream is finalized as work is deferred on it. Streams with work that pends
 * are counted apart up to 64; that of further ones is only known to be covered
 * when all are finalized, and that of one stream up to 16,777,215. */
uint64_t brick_pending(void);

/* ---- checksums ---------------------------------------------------------- */

/* Why another worker must have the same numbers. */
enum brick_agreement {
    BRICK_AGREES_LOCAL = 0,      /* it need not: inputs and weights decide */
    BRICK_AGREES_REPLICATED = 1, /* each member of the group `of` holds it whole */
    BRICK_AGREES_PARTIAL = 2,    /* each holds a part of the sum */
    BRICK_AGREES_MOVED = 3       /* it is sent and received over the link `of`; which piece of it, `position` says */
};

/* Whether a state decides what the output is that no input and no params show: a cache, a random number. */
enum brick_statefulness {
    BRICK_STATE_BY_NAME = 0, /* nobody says so: one does where the kernel's name says attention, cache, sampling, ... */
    BRICK_STATELESS = 1,
    BRICK_STATEFUL = 2
};

/* Where a checksum stands. What is left at zero is not said; NULL for all of it. */
struct brick_at {
    const uint32_t *layer;    /* else that of what is open for the key; above the largest: none, and counted as an amount */
    const uint64_t *step;     /* as well */
    const uint64_t *position; /* else how often the site came since it was last at another step, on this lane. Of what is
                                 moved: the hash of its block, the key of its message, the same at both ends */
    uint64_t params;          /* a digest of what else must be equal; the generation of the weights (brick_weights.h) is
                                 mixed into it */
    uint32_t backend;         /* a name's number */
    uint32_t relation;        /* enum brick_agreement */
    uint32_t state;           /* enum brick_statefulness */
    uint32_t of;              /* a name's number: the group or the link, for all but local. Names are few (4,096): none of
                                 what differs from message to message */
};

/* What was taken of a tensor; nothing, where dtype is 0. */
struct brick_taken {
    struct brick_fingerprint fingerprint;
    uint64_t valid;
    uint64_t shape[6]; /* the first dimensions */
    uint32_t dims, dtype;
    uint32_t extents; /* a digest of all dimensions */
    uint32_t refused; /* 1: it could not be read, which was counted when it was taken */
};

/* Whether a checksum there would be recorded now: recording is on, the site is
 * not one that is off, the step is one of those that are looked at (BRICKD_FINGERPRINTS:
 * off, 1/N or all; else all), and there is room for it. So what leads to it may be spared. */
int brick_wants(uint32_t kernel, const void *key, const struct brick_at *at);
/* The same for what nobody asked for by name: while neither the operator nor BRICKD_FINGERPRINTS says of which steps
 * checksums are recorded, of those that this rate leaves (of the 2^32 hashes of a step so many; UINT32_MAX: all). */
int brick_wants_of(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate);

/* Whether what is open for the key is in a step. */
int brick_in_step(const void *key);
/* For an engine that counts no steps: the key of one, made of what it is given, tensor by tensor, from 0 on. Who has the
 * service's key and is given the same finds the same; nobody else can tell what it was. A tensor that cannot be read
 * changes nothing. */
uint64_t brick_step_given(uint64_t step, const struct brick_tensor *tensor);
/* The key of a step that reads a cache: `step` is made of what else it is given, `filled` is the key of the step that
 * filled the cache last (0: it is empty). Whether the step is looked at (1/N) does not depend on the cache. */
uint64_t brick_step_after(uint64_t step, uint64_t filled);

/* Takes a tensor's fingerprint for a checksum of this kernel, at the same place.
 * Where none is wanted (brick_wants), and while the service's key cannot be had, it
 * is not looked at. NULL, or a text that says
 * why it could not be; that is counted. tensor NULL: one that the host could not
 * make out. */
const char *brick_take(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *tensor,
                       struct brick_taken *taken);

/* Records what was taken, whole or not at all: the output, and the inputs, of
 * which eight stand apart and further ones in one checksum. One whose output could
 * not be read is left out; one whose output was not taken counts as dropped. */
unsigned brick_checksum(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_taken *output,
                        const struct brick_taken *inputs, uint32_t count);

/* A kernel whose name says embed, logit, lm_head, token, input_ids, wte, multinomial or sampl(e, ing), in
 * whatever case: from its tensors what customers wrote can be told. Such sites are
 * off unless BRICKD_SENSITIVE=1 says otherwise. An embedding whose own part of the
 * name (between dots) says rotary or rope is none of them: it turns what it is given
 * by its position, and looks no token up. */
int brick_is_sensitive(const char *kernel, size_t length);

/* Above this an amount is a mistake, and counted as one; sums of real ones stay far from 2^64. Who has no such number
 * (it is negative where it comes from) passes the other. */
#define BRICK_AMOUNT_MAX (UINT64_C(1) << 48)
#define BRICK_BAD_AMOUNT UINT64_MAX

/* Spans begun between the two know their layer (0 to 16,777,214). Both are given
 * the same one, so that an end whose scope is gone by now ends no other. */
unsigned brick_layer_begin(uint32_t layer, const void *key);
unsigned brick_layer_end(uint32_t layer, const void *key);

/* The calling thread records no more: what it has open is counted as abandoned
 * and its lane becomes free. Called by itself when the thread ends. */
void brick_thread_exit(void);

/* ---- for hosts that count references to their keys ---------------------- */

/* After BRICK_FIRST: the caller keeps the key valid by other means than by a
 * reference that BRICK_LAST, the sweep or the release would give back. */
void brick_borrow(const void *key);

/* Looks at one of this thread's keys that are referenced, another one at each
 * call: if `dead` says so, its spans are counted as abandoned, and it is
 * returned. NULL otherwise. */
const void *brick_thread_sweep(int (*dead)(const void *key));

/* The host's part of this thread ends: `drop` is called for each key that is
 * referenced, whose spans are counted as abandoned. What is open for other keys
 * stays open; if nothing is, the lane becomes free. */
void brick_thread_release(void (*drop)(const void *key));

/* ---- for tests and tools ------------------------------------------------ */

/* The file of this process's segment below /dev/shm, "" without one; its descriptor, or -1. */
const char *brick_segment_name(void);
int brick_segment_fd(void);

#ifdef __cplusplus
}
#endif

#endif
