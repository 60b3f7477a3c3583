/* brick_agent.h - record spans into a brickd segment.
 *
 *   uint32_t gemm = brick_name("gemm", 4, "ffn");    once
 *   brick_begin(gemm, NULL, NULL);                   each time
 *   ...
 *   brick_end(gemm, NULL, elements, bytes);
 *
 * Plain C functions of numbers and pointers, for any language that can call C. brick_agent.hpp wraps them in C++
 * objects; examples/ has an engine in C, in C++ and in Rust. Code inside a Python process includes brick_python.h
 * instead, and shares the segment of brick_agent there.
 *
 * To build: compile the C files in src/writer and src/fingerprint of this package as C11 or later, with this folder on
 * the include path, -pthread, and -fPIC for a shared library. They need only the C library (before glibc 2.34 also -lrt).
 *
 * PROMISES. No call raises, blocks, waits, starts a thread or installs a signal handler. brick_begin and brick_end
 * allocate nothing and make no system call, except in rare cases: the first record of a process, of a thread or of a
 * forked child; a new path or block of 64 paths; more spans open at once than ever before; a span ring just turned on;
 * a thread's first deferred work; a check about every ten seconds that the segment still exists. The calls for deferred
 * work and for checksums promise the same, but a process's first checksum reads a file (and so do a few later ones if
 * that failed). Lost records are counted, and `brickd inspect` shows the counts: no caller needs to check a result.
 *
 * KEYS. The key identifies the task of a span: spans nest within one key of one thread. NULL means the thread. A
 * scheduler that interleaves tasks on one thread passes the task: any address or number that no other task has at the
 * same time. It is never dereferenced.
 *
 * A span ends on the thread that began it, for the same key, under the same number. An end without such a span is
 * counted and does nothing. A span without an end is counted as abandoned when a span around it ends (even after
 * longjmp) or its thread ends. If work moves between threads, the host measures the time and calls brick_record.
 *
 * THREADS. Any thread may make any call at any time, without registration: its first record takes a lane, its end frees
 * the lane. There are BRICKD_LANES lanes; spans of further threads are only counted.
 *
 * SIGNALS. A handler may begin and end spans on threads that have recorded before. If it interrupted a call on its own
 * thread, its spans are refused and counted.
 *
 * FORKS. A forked child records into a separate segment, with any kind of fork; names keep their numbers. Spans open at
 * the fork belong to the parent: their ends do nothing in the child. Before its first record, a child may call
 * brick_init to name its worker; else it has the parent's.
 *
 * LIFE. All calls also work before main (in a constructor, in a global of C++), but the first name or record opens the
 * segment, and a later brick_init changes nothing. Recording ends at exit() and when main returns. The segment is then
 * removed after a record of its sums, or left to the daemon that has drained it. A process that ends by _exit, abort,
 * exec or a signal leaves its segment, with its totals, until `brickd prune`. If the writer is part of a library,
 * dlclose ends it as exit() does; threads that have recorded may continue, and the library may be loaded again. Two
 * copies in one process are independent: two segments, two workers with one pid, two trees of spans. If the dynamic
 * linker binds both to the same functions, they are one.
 *
 * DEVICES. A span is time on the host: around the launch of a kernel it is the time of the launch, around
 * cudaStreamSynchronize the time of the wait. After the host has waited, it passes the device's measurement to
 * brick_record:
 *
 *   float ms;
 *   if (cudaEventElapsedTime(&ms, begun, ended) == cudaSuccess)
 *       brick_record(kernel, NULL, (uint64_t)(ms * 1e6f), elements, bytes);
 *
 * If the host launches and continues, the work is deferred: it is recorded at its start, and again when a thread has
 * waited for its stream.
 *
 *   uint64_t id;
 *   brick_defer(kernel, NULL, stream, NULL, elements, bytes, &id);
 *   launch<<<grid, block, 0, stream>>>(...);
 *   ...
 *   cudaStreamSynchronize(stream);
 *   brick_measured(id, elapsed_ns);    if events surround the launch
 *   brick_finalize(&stream);
 *
 * Without a measurement, only an upper bound is known: from its start to the next start, or to the finalize. A daemon
 * computes both. Without a daemon, the events of a thread are not read: its ring of 4,096 fills up, and later ones are
 * dropped and counted.
 *
 * NUMBERS. brick_fingerprint computes the data for comparing tensors of two workers: a checksum of every byte,
 * statistics, a sketch (brick_fingerprint.h defines them). It records nothing. brick_checksum records the fingerprints
 * of a kernel's tensors at its site, which is the kernel and the layer. Inputs are taken before a call that may
 * overwrite them:
 *
 *   struct brick_taken in, out;
 *   brick_take(rope, NULL, NULL, &x, &in);
 *   rope_neox(...);
 *   brick_take(rope, NULL, NULL, &y, &out);
 *   brick_checksum(rope, NULL, NULL, &out, &in, 1);
 *
 * Checksums use a key of the service: the file that BRICKD_KEY_FILE names, else `key` in BRICKD_STATE_DIR (else in
 * $XDG_STATE_HOME/brickd, else in ~/.local/state/brickd). Only its user may read it; the first process that needs it
 * creates it. If that fails, the key is 0, and one line on stderr says so. If the reason may be temporary (no
 * descriptor or disk space left), checksums are dropped and counted until it disappears, because all checksums of a
 * process have one key. Workers of several hosts or containers need the same file, or their checksums cannot be
 * compared.
 *
 * A model's parameters are recorded in the same way: brick_weights.h. These calls never call CUDA, so host functions of
 * a stream (cudaLaunchHostFunc) may also record.
 */
#ifndef BRICK_AGENT_H
#define BRICK_AGENT_H

#include "brick_fingerprint.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field of zero comes from the environment, else from defaults. The texts must be valid only during the call. */
struct brick_config {
    const char *service;     /* BRICKD_SERVICE, else the program's name */
    const char *worker;      /* BRICKD_WORKER: "3", or coordinates "0.tp3.pp1"; else undeclared */
    const char *prefix;      /* BRICKD_SHM_PREFIX, else "brickd-" */
    const char *clock;       /* BRICKD_CLOCK: auto, tsc, monotonic; else auto */
    const char *clocksource; /* the file with the name of the kernel's clock, else the one in /sys */
    uint32_t lanes;          /* BRICKD_LANES: threads that record at the same time; default 32 */
    uint32_t paths;          /* BRICKD_PATHS: paths of the call tree; default 4,096 */
    uint32_t names;          /* BRICKD_NAMES; default 4,096 */
    uint32_t sites;          /* BRICKD_SITES: kernels and weights, each at a layer, with checksums; default 2,048 */
    uint32_t span_slots;     /* default 4,096 */
    uint32_t event_slots;    /* BRICKD_EVENTS: slots of 64 bytes in a thread's event ring; default 4,096 */
};

enum brick_state {
    BRICK_NEW = 0,     /* no segment is open yet (also in a forked child that has not recorded) */
    BRICK_OPENING = 1, /* another thread opens the segment */
    BRICK_ON = 2,
    BRICK_OFF = 3,     /* disabled, by a call or BRICKD=0; or shut down */
    BRICK_FAILED = 4,  /* could not open; brick_problem() says why */
};

/* Side effects of a call, as bits. A host that counts references to its keys takes one at FIRST and drops it at LAST,
 * so that no later task gets the key while spans are open for it. */
enum brick_outcome {
    BRICK_DONE = 0,
    BRICK_FIRST = 1,     /* begin: this key now has an open span and must stay valid */
    BRICK_LAST = 2,      /* end: this key has no open span now, and is not borrowed */
    BRICK_JOINED = 4,    /* this thread got a lane */
    BRICK_REFUSED = 8,   /* the call was not recorded, and was counted */
    BRICK_UNMATCHED = 16, /* end without a begin, counted */
    BRICK_AGAIN = 32      /* begin of a node (brick_graph.h) inside itself: its time is part of the outer one's */
};

/* Opens the segment, unless a name or a record already did; further calls are harmless. While one thread opens it, the
 * others get BRICK_OPENING; their spans are counted, not recorded. A failure writes one line to stderr. */
enum brick_state brick_init(const struct brick_config *config);

/* Ends recording for good in this process; runs at exit(). Removes the segment after a record of its sums, unless a
 * daemon has attached or no record can be written. */
void brick_shutdown(void);

/* Resumes or stops recording. Open spans and pending deferred work still end. */
void brick_enable(int on);

enum brick_state brick_state(void);
const char *brick_problem(void); /* "" if there was none */

/* Returns the number of a name: the same at each call, for all threads; 0, which is not a valid number, if there is no
 * room for more names. A name of more than 120 bytes is truncated, but keeps the word that makes it sensitive
 * (brick_is_sensitive). The first category declared for a name stays; NULL declares none. The text must be valid only
 * during the call.
 *
 * Returns BRICK_UNNAMED while another thread opens the segment, or while none is open and recording is off. Spans with
 * this number are counted, not recorded. So create names after brick_init and before other threads start, or at their
 * first use (brick_agent.hpp). */
uint32_t brick_name(const char *text, size_t length, const char *category);
#define BRICK_UNNAMED UINT32_MAX
uint32_t brick_names_room(void); /* the room for names; does not open the segment */

/* Returns whether recording is off and this thread has no open spans: begin and end would do nothing. */
int brick_is_off(void);

/* step: the engine's number of a request or an iteration; NULL: that of the surrounding span. Checksums distinguish
 * step 0 from no step; details of spans and of deferred work do not. elements, bytes: the amount of work, 0 if
 * unknown. */
unsigned brick_begin(uint32_t brick, const void *key, const uint64_t *step);
unsigned brick_end(uint32_t brick, const void *key, uint64_t elements, uint64_t bytes);

/* The same with floating-point operations: 0 to BRICK_FLOPS_MAX, 0 if unknown. */
#define BRICK_FLOPS_MAX 0x1p80
struct brick_amounts {
    uint64_t elements, bytes;
    double flops;
};
unsigned brick_end_of(uint32_t brick, const void *key, const struct brick_amounts *did);

/* Ends a span that brick_begin began with the step's key: one step of an engine, with a batch of `rows`. The first
 * `valid` rows are not padding. Totals count the valid rows as elements. */
unsigned brick_step_end(uint32_t brick, const void *key, uint64_t rows, uint64_t valid);

/* Records a span that was timed elsewhere (by a device's event or a library's clock). It becomes a child of the key's
 * open span and reduces that span's self time: call it where the host waited. */
unsigned brick_record(uint32_t brick, const void *key, uint64_t elapsed_ns, uint64_t elements, uint64_t bytes);
unsigned brick_record_of(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did);

/* Records that work of a device begins now. It is a child of the key's open span, and has its step unless one is given.
 * stream: the host's number for the stream (a handle, an index), 0 if there is only one. *id, for brick_measured, is
 * unique in this process; 0 if nothing was recorded. `id` may be NULL. The last eighth of a thread's ring is reserved
 * for measurements and finalizes, and the last eighth of that for finalizes: starts and measurements without room are
 * dropped. */
unsigned brick_defer(uint32_t brick, const void *key, uint64_t stream, const uint64_t *step, uint64_t elements,
                     uint64_t bytes, uint64_t *id);

/* Records the device's measurement; call it before its stream is finalized. An id of 0 does nothing. An id of another
 * process, such as a forked child's parent, is counted as unmatched. */
unsigned brick_measured(uint64_t id, uint64_t elapsed_ns);

/* Call it when the host has waited for this stream (NULL: for all). Ends the work that threads have deferred on it
 * until now. */
unsigned brick_finalize(const uint64_t *stream);

/* Returns how much deferred work of this process is not covered by a finalize yet. Exact unless a stream is finalized
 * while work is deferred on it. Counts 64 streams separately, each up to 16,777,215; the work of further streams is
 * covered only when all streams are finalized. */
uint64_t brick_pending(void);

/* ---- checksums ---------------------------------------------------------- */

/* Why another worker must have the same numbers. */
enum brick_agreement {
    BRICK_AGREES_LOCAL = 0,      /* no relation: inputs and weights decide */
    BRICK_AGREES_REPLICATED = 1, /* each member of the group `of` has the whole tensor */
    BRICK_AGREES_PARTIAL = 2,    /* each member has a part of the sum */
    BRICK_AGREES_MOVED = 3       /* sent and received over the link `of`; `position` identifies the piece */
};

/* Whether state beyond inputs and params affects the output: a cache, a random number. */
enum brick_statefulness {
    BRICK_STATE_BY_NAME = 0, /* not given: yes if the kernel's name contains attention, cache, sampling, ... */
    BRICK_STATELESS = 1,
    BRICK_STATEFUL = 2
};

/* The place of a checksum. A field of zero means not given; NULL instead of the struct gives no fields. */
struct brick_at {
    const uint32_t *layer;    /* else that of the key's open span; above the largest: no layer, counted as an invalid
                                 amount */
    const uint64_t *step;     /* NULL: the step of the key's open span */
    const uint64_t *position; /* else the number of checksums at the site since it was last at another step, on this
                                 lane. For moved data: its block's hash or its message's key, the same at both ends */
    uint64_t params;          /* a digest of other values that must be equal; the generation of the weights
                                 (brick_weights.h) is mixed into it */
    uint32_t backend;         /* a name's number */
    uint32_t relation;        /* enum brick_agreement */
    uint32_t state;           /* enum brick_statefulness */
    uint32_t of;              /* a name's number: the group or the link, except for local. There are few names
                                 (4,096), so do not use one per message */
};

/* The data taken of a tensor; none if dtype is 0. */
struct brick_taken {
    struct brick_fingerprint fingerprint;
    uint64_t valid;
    uint64_t shape[6]; /* the first dimensions */
    uint32_t dims, dtype;
    uint32_t extents; /* a digest of all dimensions */
    uint32_t refused; /* 1: it could not be read, which was counted when it was taken */
};

/* Returns whether a checksum at this place would be recorded now: recording is on, the site is on, BRICKD_FINGERPRINTS
 * (off, 1/N or all; by default all) selects the step in its epoch, and there is room. */
int brick_wants(uint32_t kernel, const void *key, const struct brick_at *at);
/* The same for a kernel that the user did not name: unless the operator or BRICKD_FINGERPRINTS sets a rate of steps,
 * `rate` applies (how many of the 2^32 draws of a step; UINT32_MAX: all). */
int brick_wants_of(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate);

/* Returns whether the key's open span is in a step. */
int brick_in_step(const void *key);
/* For an engine that does not count steps: computes a step's key from its inputs, tensor by tensor, starting with 0.
 * Workers with the service's key and equal inputs get equal results; without the service's key, a result does not
 * reveal the inputs. A tensor that cannot be read is skipped. */
uint64_t brick_step_given(uint64_t step, const struct brick_tensor *tensor);
/* Returns the key of a step that reads a cache. `step` comes from its other inputs; `filled` is the key of the step
 * that last filled the cache (0: it is empty). The selection of the step (1/N) does not depend on the cache. */
uint64_t brick_step_after(uint64_t step, uint64_t filled);

/* Takes a tensor's fingerprint for a checksum of this kernel, at the same place. Does not read the tensor if
 * brick_wants says no, or while the service's key is temporarily missing. Returns NULL, or why the tensor could not be
 * read; each failure is counted. If tensor is NULL, the host could not describe it. */
const char *brick_take(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *tensor,
                       struct brick_taken *taken);

/* Records the taken data, completely or not at all: the output and up to eight inputs; the last one combines all
 * further inputs. Records nothing if the output could not be read; an output that was not taken counts as dropped. */
unsigned brick_checksum(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_taken *output,
                        const struct brick_taken *inputs, uint32_t count);

/* ---- rows ---------------------------------------------------------------- */

/* A kernel that computes each row of its output from the same row of its only input (a norm, a projection, an MLP, a
 * router) gives equal rows for equal rows, whatever else is in the batch. Some rows of a call are recorded in pairs of
 * output and input, so that workers with different batches are compared:
 *
 *   struct brick_rows rows;
 *   const int wanted = brick_rows_wanted(norm, NULL, NULL, BRICK_ROWS_RATE);
 *   if (wanted)
 *       brick_rows_choose(NULL, &x, &rows);
 *   rms_norm(...);
 *   if (wanted)
 *       brick_rows_record(norm, NULL, NULL, &y, &rows);
 *
 * Not for a kernel whose result for a row depends on other rows: attention, a scale over the whole batch, experts with a
 * limited capacity. */
#define BRICK_ROWS 4
#define BRICK_ROWS_RATE (1u << 26) /* as `rate`: rows of one step in eight, unless somebody sets a rate */

/* The chosen rows of a call. */
struct brick_rows {
    struct brick_taken inputs[BRICK_ROWS];
    uint64_t at[BRICK_ROWS]; /* the rows' indices, in flat order */
    uint64_t rows;           /* of the call */
    int64_t shape[BRICK_DIMS_MAX];
    uint32_t leading; /* dimensions of `shape`: the input's without the last */
    uint32_t count;   /* 0: nothing is recorded */
};

/* Returns whether rows at this place are recorded in this step: as brick_wants_of, but for eight times as many steps, because
 * four rows cost a fraction of whole tensors. */
int brick_rows_wanted(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate);
/* For sites that take turns: returns whether the turn with this number, from 0 to `turns` - 1, is now. A turn is one epoch
 * (5 seconds), the same in all workers; each comes at least once in each block of `turns` epochs, rounded up to a multiple
 * of 8. */
int brick_rows_turn(uint32_t turn, uint32_t turns);
/* Chooses rows of the input and takes their fingerprints: before the call, which may overwrite them. Chooses none if the
 * input is empty, has no dimension or has padding (`valid`), or if less than half of the thread's ring would stay free: rows never cost another
 * record. */
void brick_rows_choose(const void *key, const struct brick_tensor *input, struct brick_rows *rows);
/* Records the chosen rows of the output with their input rows. Records nothing if the output's dimensions, without the
 * last, are not those of the input. */
unsigned brick_rows_record(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *output,
                           const struct brick_rows *rows);

/* Returns whether a kernel's name contains embed, logit, lm_head, token, input_ids, wte, multinomial or sampl(e, ing),
 * in upper or lower case: its tensors reveal customers' texts. Such sites are off unless BRICKD_SENSITIVE=1. An
 * embedding with rotary or rope in its part of the name (between dots) is not sensitive: it rotates its input by
 * position, and looks up no token. */
int brick_is_sensitive(const char *kernel, size_t length);

/* A larger amount is counted as invalid; sums of real amounts stay far below 2^64. For an invalid number, such as a
 * negative one, a host passes BRICK_BAD_AMOUNT. */
#define BRICK_AMOUNT_MAX (UINT64_C(1) << 48)
#define BRICK_BAD_AMOUNT UINT64_MAX

/* Spans begun between the two calls have this layer (0 to 16,777,214). Both calls get the layer, so that an end never
 * ends another scope. */
unsigned brick_layer_begin(uint32_t layer, const void *key);
unsigned brick_layer_end(uint32_t layer, const void *key);

/* Frees the calling thread's lane; its open spans are counted as abandoned. Runs when the thread ends. */
void brick_thread_exit(void);

/* ---- for hosts that count references to their keys ---------------------- */

/* Call it after BRICK_FIRST for a key that stays valid without a reference: BRICK_LAST, sweep and release drop no
 * reference to it. */
void brick_borrow(const void *key);

/* Checks one of this thread's referenced keys per call, in turn. If it is `dead`, counts its spans as abandoned and
 * returns it; else returns NULL. */
const void *brick_thread_sweep(int (*dead)(const void *key));

/* Ends the host's part of this thread: counts the spans of each referenced key as abandoned and calls `drop` for it.
 * Spans of other keys stay open. If no span is open, the lane becomes free. */
void brick_thread_release(void (*drop)(const void *key));

/* ---- for tests and tools ------------------------------------------------ */

/* Return the file of this process's segment below /dev/shm, or ""; and its descriptor, or -1. */
const char *brick_segment_name(void);
int brick_segment_fd(void);

#ifdef __cplusplus
}
#endif

#endif
