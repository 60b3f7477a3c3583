/* brick_agent.h - record spans into a brickd segment.
 *
 *   uint32_t gemm = brick_name("gemm", 4, "ffn");    once
 *   brick_begin(gemm, NULL, NULL);                   each time
 *   ...
 *   brick_end(gemm, NULL, elements, bytes);
 *
 * These are plain C functions that take numbers and pointers, so any language that can call C can use them.
 * brick_agent.hpp wraps them in C++ objects; examples/ has an engine in C, in C++ and in Rust. Code inside a Python
 * process includes brick_python.h instead, and shares the segment of brick_agent there.
 *
 * To build: compile the C files in src/writer and src/fingerprint of this package as C11 or later, with this folder on
 * the include path, -pthread, and -fPIC for a shared library. These files need only the C library (before glibc 2.34
 * also -lrt).
 *
 * PROMISES. No call raises, blocks, waits, starts a thread or installs a signal handler. brick_begin and brick_end
 * allocate nothing and make no system call, except in rare cases: the first record of a process, of a thread or of a
 * forked child; a place in the call tree that is new, or for which the thread has no memory yet (64 places get memory
 * together); more spans open at once than ever before; the first record after a daemon has asked for the records of
 * single spans; the first deferred work of a thread; and a check, about every ten seconds, that the segment still
 * exists. The calls for deferred work and for checksums make the same promises, with one exception: the first checksum
 * of a process reads the key file. If this fails, some of the later checksums read it again. Lost records are counted,
 * and `brickd inspect` shows the counts, so no caller needs to check a result.
 *
 * KEYS. A key identifies the task that a span belongs to. Spans nest only within one key on one thread. A NULL key
 * stands for the thread. A scheduler that interleaves tasks on one thread passes the task as the key: any address or
 * number that no other task has at the same time. The writer never dereferences a key.
 *
 * A span ends on the thread that began it, with the same key and the same name. An end without a matching open span is
 * counted, and has no other effect. A span that is never ended is counted as abandoned when an enclosing span ends
 * (even after longjmp) or when its thread ends. If work moves between threads, the host measures the time and calls
 * brick_record.
 *
 * THREADS. Any thread may make any call at any time, without registration. A thread that records needs a lane: a part
 * of the segment that only this thread writes. A thread takes a lane at its first record, and frees it when the thread
 * ends. There are BRICKD_LANES lanes. If no lane is free, the spans of the thread are only counted.
 *
 * SIGNALS. A signal handler may begin and end spans on a thread that has recorded before. If the handler interrupted a
 * call of the writer on the same thread, the handler's spans are refused and counted.
 *
 * FORKS. A forked child records into a segment of its own, even if a direct system call (clone) made the child. Names
 * have the same ids there. Spans open at the fork belong to the parent: ending them in the child does nothing. Before
 * its first record, a child may call brick_init to set its worker name; otherwise it keeps the parent's worker name.
 *
 * LIFE. All calls also work before main (in a constructor, in a global of C++), but the first name or record opens the
 * segment, and a later brick_init changes nothing. Recording ends at exit() and when main returns. The writer then
 * saves the sums of the segment in a record (brick_removed.h) and removes the segment; a segment that a daemon drains
 * is left to that daemon. A process that ends by _exit, abort, exec or a signal leaves its segment and its totals until
 * `brickd prune` removes them. If the writer is part of a library, dlclose ends recording as exit() does; threads that
 * have recorded may continue, and the library may be loaded again. Two copies of the writer in one process are
 * independent: each has its own segment and its own tree of spans, and brickd shows two workers with the same pid. If
 * the dynamic linker binds both copies to the same functions, they act as one.
 *
 * DEVICES. A span measures time on the host: a span around the launch of a kernel measures the launch, and a span
 * around cudaStreamSynchronize measures the wait. After the host has waited, it passes the device's measurement to
 * brick_record:
 *
 *   float ms;
 *   if (cudaEventElapsedTime(&ms, begun, ended) == cudaSuccess)
 *       brick_record(kernel, NULL, (uint64_t)(ms * 1e6f), elements, bytes);
 *
 * If the host does not wait after the launch, the work is deferred: the host records the start of the work
 * (brick_defer), and later that a thread has waited for the stream of the work (brick_finalize).
 *
 *   uint64_t id;
 *   brick_defer(kernel, NULL, stream, NULL, elements, bytes, &id);
 *   launch<<<grid, block, 0, stream>>>(...);
 *   ...
 *   cudaStreamSynchronize(stream);
 *   brick_measured(id, elapsed_ns);    if the host has a device measurement
 *   brick_finalize(&stream);
 *
 * Without a measurement, only an upper bound of the duration is known: the time from this start to the next start of
 * the stream, or to the finalize if there is no next start. A daemon computes measured durations and bounds. Without a
 * daemon, a thread's ring of 4,096 slots fills up, and later events are dropped and counted.
 *
 * NUMBERS. brick_fingerprint computes the data for comparing tensors of two workers: a checksum of every byte,
 * statistics, a sketch. brick_fingerprint.h defines these. brick_fingerprint records nothing. brick_checksum records
 * the fingerprints of a kernel's tensors at the kernel's site: the pair of kernel and layer. Take the inputs before the
 * call, which may overwrite them:
 *
 *   struct brick_taken in, out;
 *   brick_take(rope, NULL, NULL, &x, &in);
 *   rope_neox(...);
 *   brick_take(rope, NULL, NULL, &y, &out);
 *   brick_checksum(rope, NULL, NULL, &out, &in, 1);
 *
 * Checksums use a key that belongs to the service. The key is in the file that BRICKD_KEY_FILE names, or else in the
 * file `key` in BRICKD_STATE_DIR (else in $XDG_STATE_HOME/brickd, else in ~/.local/state/brickd). Only the owner of the
 * file may read it. The first process that needs the key creates the file if there is none. If the key cannot be read,
 * it is 0, and one line on stderr gives the reason. If the reason may be temporary (no descriptor or disk space left),
 * checksums are dropped and counted until the key can be read, because all checksums of a process must use the same
 * key. Workers on several hosts or in several containers need copies of the same file, or their checksums cannot be
 * compared.
 *
 * brick_weights.h records a model's parameters in the same way. The writer never calls CUDA, so host functions of a
 * stream (cudaLaunchHostFunc) may also record.
 */
#ifndef BRICK_AGENT_H
#define BRICK_AGENT_H

#include "brick_fingerprint.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* If a field is 0, its value comes from the environment, or from the default if the environment has none. The texts may
 * be freed after the call. */
struct brick_config {
    const char *service;     /* BRICKD_SERVICE, else the program's name */
    const char *worker;      /* BRICKD_WORKER: a number "3", or coordinates "0.tp3.pp1"; else brickd numbers the workers
                                by age */
    const char *prefix;      /* BRICKD_SHM_PREFIX, else "brickd-" */
    const char *clock;       /* BRICKD_CLOCK: auto, tsc, monotonic; else auto */
    const char *clocksource; /* the file that names the kernel's clock source; default: the one in /sys */
    uint32_t lanes;          /* BRICKD_LANES: threads that record at the same time; default 32 */
    uint32_t paths;          /* BRICKD_PATHS: places in the call tree; default 8,192 */
    uint32_t names;          /* BRICKD_NAMES: different names; default 4,096 */
    uint32_t sites;          /* BRICKD_SITES: pairs of a kernel or weight and a layer; default 2,048 */
    uint32_t span_slots;     /* default 4,096 */
    uint32_t event_slots;    /* BRICKD_EVENTS: slots of 64 bytes in a thread's event ring; default 4,096 */
};

enum brick_state {
    BRICK_NEW = 0,     /* no segment is open yet (also in a forked child that has not recorded) */
    BRICK_OPENING = 1, /* another thread opens the segment */
    BRICK_ON = 2,
    BRICK_OFF = 3,     /* recording was turned off by a call or BRICKD=0, or was shut down */
    BRICK_FAILED = 4,  /* the segment could not be opened; brick_problem() returns the reason */
};

/* Side effects of a call, as bits. A host that counts references to its keys takes a reference at BRICK_FIRST and drops
 * it at BRICK_LAST. So the key of a task with open spans is never freed and never given to a later task. */
enum brick_outcome {
    BRICK_DONE = 0,
    BRICK_FIRST = 1,     /* begin: the key now has an open span and must stay valid */
    BRICK_LAST = 2,      /* end: the key now has no open span; never set for a key given to brick_borrow */
    BRICK_JOINED = 4,    /* the calling thread got a lane */
    BRICK_REFUSED = 8,   /* the call was not recorded, and was counted */
    BRICK_UNMATCHED = 16, /* an end without a begin; counted */
    BRICK_AGAIN = 32      /* a node (brick_graph.h) was opened inside itself: the outer node's time includes the inner
                             one's */
};

/* Opens the segment, unless a name or a record has already opened it; later calls change nothing. While one thread
 * opens the segment, others get BRICK_OPENING, and their spans are counted, not recorded. A failure writes one line to
 * stderr. */
enum brick_state brick_init(const struct brick_config *config);

/* Ends recording in this process permanently; runs at exit(). Saves the segment's sums in a record and removes the
 * segment, unless a daemon has attached or the record cannot be written. */
void brick_shutdown(void);

/* Resumes or stops recording. While recording is stopped, open spans and pending deferred work can still end. */
void brick_enable(int on);

enum brick_state brick_state(void);
const char *brick_problem(void); /* why a segment could not be opened; "" if this never happened */

/* Returns the id of a name. The id is the same at each call and in all threads. Returns 0, which is not a valid id, if
 * there is no room for more names. A name of more than 120 bytes is truncated, but keeps the word that makes it
 * sensitive (brick_is_sensitive). The first category declared for a name is final; NULL declares none. The text may be
 * freed after the call.
 *
 * Returns BRICK_UNNAMED while another thread opens the segment, or while no segment is open and recording is off.
 * Spans with this id are counted, not recorded. So create names after brick_init and before other threads start, or
 * at the first use of each name (brick_agent.hpp). */
uint32_t brick_name(const char *text, size_t length, const char *category);
#define BRICK_UNNAMED UINT32_MAX
uint32_t brick_names_room(void); /* returns the limit of names; does not open the segment */

/* Returns whether recording is off and this thread has no open spans, so that begin and end would do nothing. */
int brick_is_off(void);

/* step: the number that the engine gives to a request or an iteration; NULL: the step of the surrounding span. A
 * checksum with step 0 differs from a checksum without a step. In the records of single spans and of deferred work, 0
 * stands for both. elements, bytes: the amount of work, 0 if unknown. */
unsigned brick_begin(uint32_t brick, const void *key, const uint64_t *step);
unsigned brick_end(uint32_t brick, const void *key, uint64_t elements, uint64_t bytes);

/* The amount of work, for brick_end_of and similar calls. flops: floating-point operations, 0 to BRICK_FLOPS_MAX. A
 * field of 0 means unknown. */
#define BRICK_FLOPS_MAX 0x1p80
struct brick_amounts {
    uint64_t elements, bytes;
    double flops;
};
unsigned brick_end_of(uint32_t brick, const void *key, const struct brick_amounts *did);

/* Ends a span that is one step of an engine, with a batch of `rows`. brick_begin began this span with the same key. The
 * first `valid` rows are not padding. Totals count the valid rows as elements. */
unsigned brick_step_end(uint32_t brick, const void *key, uint64_t rows, uint64_t valid);

/* Records a span that was timed elsewhere (by a device's event or a library's clock). The span becomes a child of the
 * key's open span, whose self time shrinks by this duration. So call brick_record while the span in which the host
 * waited is open. */
unsigned brick_record(uint32_t brick, const void *key, uint64_t elapsed_ns, uint64_t elements, uint64_t bytes);
unsigned brick_record_of(uint32_t brick, const void *key, uint64_t elapsed_ns, const struct brick_amounts *did);

/* Records that work of a device begins now, as a child of the key's open span. If `step` is NULL, the work has the open
 * span's step. stream: the host's number for the stream (a handle, an index), 0 if there is only one. *id, for
 * brick_measured, is unique in this process; 0 if nothing was recorded. `id` may be NULL. The last eighth of a thread's
 * ring is reserved for measurements and finalizes, and the last eighth of this reserve is for finalizes alone. Starts
 * and measurements for which there is no room are dropped. */
unsigned brick_defer(uint32_t brick, const void *key, uint64_t stream, const uint64_t *step, uint64_t elements,
                     uint64_t bytes, uint64_t *id);

/* Records the device's measurement of one deferred start; call it before the stream is finalized. A call with an id of
 * 0 does nothing. An id from another process (in a forked child: from its parent) is counted as unmatched. */
unsigned brick_measured(uint64_t id, uint64_t elapsed_ns);

/* Records that the host has waited for this stream (NULL: for all streams). The call ends all work that any thread has
 * deferred on the stream so far. */
unsigned brick_finalize(const uint64_t *stream);

/* Returns how many deferred starts of this process are not yet covered by a finalize. The number is exact unless a
 * stream is finalized while work is deferred on it. Up to 64 streams are counted separately, each up to 16,777,215; a
 * start on any other stream counts as pending until all streams are finalized. */
uint64_t brick_pending(void);

/* ---- checksums ---------------------------------------------------------- */

/* Which workers must have the same output at a site, if their inputs are equal. */
enum brick_agreement {
    BRICK_AGREES_LOCAL = 0,      /* those with the same weights */
    BRICK_AGREES_REPLICATED = 1, /* all members of the group `of`: each has the whole tensor */
    BRICK_AGREES_PARTIAL = 2,    /* as LOCAL: each member of the group `of` has a part of a sum */
    BRICK_AGREES_MOVED = 3       /* both ends of the link `of`; `position` identifies the piece */
};

/* Whether state other than inputs and params affects the output: a cache, a random number. */
enum brick_statefulness {
    BRICK_STATE_BY_NAME = 0, /* not given: stateful if the kernel's name contains attention, cache, sampling, ... */
    BRICK_STATELESS = 1,
    BRICK_STATEFUL = 2
};

/* The place of a checksum. A field of 0 means not given; a NULL pointer to the struct means that no field is given. */
struct brick_at {
    const uint32_t *layer;    /* NULL: the layer of the key's open span. A number above the largest layer is counted as
                                 an invalid amount, and the checksum has no layer */
    const uint64_t *step;     /* NULL: the step of the key's open span */
    const uint64_t *position; /* NULL: how many checksums this thread has already made at the site in the current step.
                                 For moved data: the hash of the block or the key of the message, which is the same at
                                 both ends */
    uint64_t params;          /* a digest of the other values that decide the output, such as a scale; the writer mixes
                                 the generation of the weights (brick_weights.h) into it */
    uint32_t backend;         /* the id of a name */
    uint32_t relation;        /* enum brick_agreement */
    uint32_t state;           /* enum brick_statefulness */
    uint32_t of;              /* the id of a name: the group or the link; unused for local. There is room for only
                                 4,096 names, so do not use one per message */
};

/* The result of brick_take. A dtype of 0 means that the tensor was not read. */
struct brick_taken {
    struct brick_fingerprint fingerprint;
    uint64_t valid;
    uint64_t shape[6]; /* sizes of the first dimensions */
    uint32_t dims, dtype;
    uint32_t extents; /* a digest of all dimensions */
    uint32_t refused; /* 1: the tensor could not be read, and brick_take has counted it */
};

/* Returns whether a checksum at this place would be recorded now: recording is on, the site is on, the setting
 * BRICKD_FINGERPRINTS (off, 1/N or all; default all) selects the step (brick_shm.h explains how), and there is room. */
int brick_wants(uint32_t kernel, const void *key, const struct brick_at *at);
/* Like brick_wants, for a kernel that the user did not name, such as a module of an instrumented model. `rate` is the
 * share of steps to record, in units of 1/2^32 (UINT32_MAX: all steps). An operator's rate or BRICKD_FINGERPRINTS
 * replaces `rate`. */
int brick_wants_of(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate);

/* Returns the key of a step that the host names by a text: the FNV-1a of the text. A text of up to 48 bytes is also
 * stored in a table of 256 texts, until a later text takes its place. Each thread that records a checksum of the step
 * meanwhile also records the text, and brickd shows the text instead of the key. Any thread may call brick_step_named
 * at any time; it allocates nothing. */
uint64_t brick_step_named(const char *text, size_t length);
/* Returns whether the key's open span has a step. */
int brick_in_step(const void *key);
/* For an engine that does not count steps: computes a step's key from the step's inputs. Call it once per input: `step`
 * is 0 in the first call, and the previous result in each later call. Workers with the service's key and equal inputs
 * get equal results; without the service's key, a result does not reveal the inputs. A tensor that cannot be read is
 * skipped. */
uint64_t brick_step_given(uint64_t step, const struct brick_tensor *tensor);
/* Returns the key of a step that reads a cache. `step` is the key computed from the step's other inputs; `filled` is
 * the key of the step that last filled the cache (0: the cache is empty). A rate of 1/N selects the same steps as
 * without the cache. */
uint64_t brick_step_after(uint64_t step, uint64_t filled);

/* Takes a tensor's fingerprint for a later checksum of this kernel at the same place. Does not read the tensor if
 * brick_wants returns 0 or while the service's key is temporarily missing. Returns NULL, or why the tensor could not be
 * read; each failure is counted. A NULL tensor means that the host could not describe the tensor. */
const char *brick_take(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *tensor,
                       struct brick_taken *taken);

/* Records the output and the inputs that were taken, either completely or not at all. There is room for eight inputs.
 * If there are more, the eighth place combines the eighth input and all later ones. Records nothing if the output could
 * not be read. An output that was not taken counts as dropped. */
unsigned brick_checksum(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_taken *output,
                        const struct brick_taken *inputs, uint32_t count);

/* ---- rows ---------------------------------------------------------------- */

/* A norm, a projection, an MLP or a router computes each row of its output from the same row of its only input. Such a
 * kernel gives equal rows for equal rows, whatever the rest of the batch is. So workers with different batches can be
 * compared by rows. The writer records some rows of a call, each as a pair of output row and input row:
 *
 *   struct brick_rows rows;
 *   const int wanted = brick_rows_wanted(norm, NULL, NULL, BRICK_ROWS_RATE);
 *   if (wanted)
 *       brick_rows_choose(NULL, &x, &rows);
 *   rms_norm(...);
 *   if (wanted)
 *       brick_rows_record(norm, NULL, NULL, &y, &rows);
 *
 * Do not use rows for a kernel whose result for a row depends on other rows: attention, a scale over the whole batch,
 * experts with a limited capacity. */
#define BRICK_ROWS 4
#define BRICK_ROWS_RATE (1u << 26) /* a `rate` that selects rows in one step of eight */

/* The chosen rows of a call. */
struct brick_rows {
    struct brick_taken inputs[BRICK_ROWS];
    uint64_t at[BRICK_ROWS]; /* the rows' indices, in flat order */
    uint64_t rows;           /* number of rows of the call */
    int64_t shape[BRICK_DIMS_MAX];
    uint32_t leading; /* length of `shape`, which has the input's dimensions except the last */
    uint32_t count;   /* 0: nothing is recorded */
};

/* Returns whether rows at this place are recorded in this step. Works like brick_wants_of, but selects eight times as
 * many steps, because four rows cost only a fraction of what whole tensors cost. */
int brick_rows_wanted(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate);
/* A host with many sites divides them into `turns` groups, of which one records rows at a time. Returns whether it is
 * now the turn of the group number `turn`, from 0 to `turns` - 1. A turn lasts one epoch (5 seconds), and all workers
 * have the same turn. Each turn comes at least once in each block of n epochs, where n is `turns`, rounded up to a
 * multiple of 8. */
int brick_rows_turn(uint32_t turn, uint32_t turns);
/* Chooses rows of the input and takes their fingerprints. Call it before the kernel, which may overwrite the input.
 * Chooses no rows if the input is empty, has no dimension or has padding (`valid`). Also chooses no rows if less than
 * half of the thread's ring would stay free, so rows never displace another record. */
void brick_rows_choose(const void *key, const struct brick_tensor *input, struct brick_rows *rows);
/* Records the chosen rows of the output with their input rows. Records nothing if the dimensions of output and input
 * differ in any place except the last. */
unsigned brick_rows_record(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *output,
                           const struct brick_rows *rows);

/* Counts a call that was examined for rows. `word` is the id of the name of the result: a phase, or the reason why the
 * call has no rows (brick_shm.h). calls: 1, or 0 for a site that is never examined. */
unsigned brick_rows_note(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t word, uint64_t calls);
/* Declares that the host only presumes that a kernel computes row by row; call it before the site's first record.
 * brickd then blames no worker for rows of this site until equal rows have had equal results in several steps. layer:
 * UINT32_MAX means none. */
void brick_rows_presume(uint32_t kernel, uint32_t layer);
/* Publishes the `turns` that this process passes to brick_rows_turn. If there are several values, the largest one
 * counts. */
void brick_rows_turns(uint32_t turns);

/* Returns whether a kernel's name contains embed, logit, lm_head, token, input_ids, wte, multinomial or sampl(e, ing),
 * in upper or lower case: tensors of such kernels reveal customers' texts. The sites of such kernels are off unless
 * BRICKD_SENSITIVE=1. A name with rotary or rope in the same part (between dots) as embed is not sensitive: a rotary
 * embedding rotates its input by position and looks up no token. */
int brick_is_sensitive(const char *kernel, size_t length);

/* An amount above this limit is counted as invalid; sums of real amounts stay far below 2^64. A host passes
 * BRICK_BAD_AMOUNT for a number that is invalid, such as a negative one. */
#define BRICK_AMOUNT_MAX (UINT64_C(1) << 48)
#define BRICK_BAD_AMOUNT UINT64_MAX

/* Spans begun between brick_layer_begin and brick_layer_end have this layer (0 to 16,777,214). brick_layer_end also
 * gets the layer, so that it never closes the scope of another layer. */
unsigned brick_layer_begin(uint32_t layer, const void *key);
unsigned brick_layer_end(uint32_t layer, const void *key);

/* Frees the calling thread's lane and counts its open spans as abandoned. Runs automatically when the thread ends. */
void brick_thread_exit(void);

/* ---- for hosts that count references to their keys ---------------------- */

/* Marks a key that stays valid without a reference; call it after BRICK_FIRST. No reference to this key is then
 * dropped: neither after BRICK_LAST nor by brick_thread_sweep and brick_thread_release. */
void brick_borrow(const void *key);

/* Looks for a dead key among some of this thread's referenced keys; repeated calls look at all of them. If `dead`
 * returns true for a key, counts the key's spans as abandoned and returns the key; else returns NULL. */
const void *brick_thread_sweep(int (*dead)(const void *key));

/* For a host that deletes its state of this thread: counts the spans of each referenced key as abandoned, and calls
 * `drop` for the key. Spans of other keys stay open. If no span is open, the lane becomes free. */
void brick_thread_release(void (*drop)(const void *key));

/* ---- for tests and tools ------------------------------------------------ */

/* brick_segment_name returns the file name of this process's segment in /dev/shm, or ""; brick_segment_fd returns its
 * descriptor, or -1. */
const char *brick_segment_name(void);
int brick_segment_fd(void);

#ifdef __cplusplus
}
#endif

#endif
