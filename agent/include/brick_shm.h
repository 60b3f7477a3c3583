/* brick_shm.h - the shared-memory format of brickd, version 1.15.
 *
 * This file defines the format. The writer in the worker and the reader in the daemon share nothing else. Prose comes
 * first, then structs.
 *
 * 1. OVERVIEW
 *
 * A worker (one instrumented process) owns one segment: a file in /dev/shm, named with the prefix "brickd-" and random
 * digits. Each thread that records has a lane in it. A lane holds two kinds of things:
 *
 *   summaries  cumulative totals of each path. Summaries are state, not messages: if a reader starts late, dies or does
 *              not exist, nothing is lost or counted twice.
 *   rings      detail: single spans (span ring, filled only on a consumer's request) and events (event ring). A record
 *              that finds no room is dropped and counted; totals do not depend on rings. Deferred work is only in
 *              events: the consumer computes its times.
 *
 * A path is a place in the call tree. A path either has a time, or is a mark, which states a fact about this place: a
 * kernel was launched here, bytes were moved, one brick needs another. A mark is counted in a summary, like a span, but
 * has no time. So the graph of a program is kept in the same way as its totals, and needs one path for each node and
 * edge. One kind of mark, a node, has a time that the host gives. Spans may be below a node, and no total includes the
 * node's time.
 *
 * The file, in pages of 4096 bytes. The file stores no offsets: writer and reader compute them from the counts in the
 * header (brick_layout_compute).
 *
 *   +----------------+ 0
 *   | header         |   frozen once published        written by: worker, once
 *   +----------------+ 4096
 *   | control        |   requests of the consumer     written by: consumer
 *   +----------------+
 *   | consumer lines |   one per lane: the tails      written by: consumer
 *   +----------------+
 *   | process line   |   next free name, path, ...    written by: any thread of the worker
 *   | lane lines     |   heads, ledger, open brick    written by: the lane's thread
 *   +----------------+
 *   | paths          |   one 8-byte key each          written by: any thread, each slot once
 *   +----------------+
 *   | sites          |   one 8-byte key each          written by: any thread, each slot once
 *   +----------------+
 *   | names          |   128 bytes each               written by: any thread, each slot once
 *   +----------------+
 *   | lane 0         |   sequences, summaries, span ring, event ring
 *   | lane 1 ...     |                                written by: the lane's thread
 *   +----------------+
 *
 * All lane lines are together, so one read shows a consumer which lanes have new records. The consumer's lines are on
 * separate pages, so a consumer disturbs the cache lines of a writer only when the consumer moves a tail.
 *
 * The file is sparse and has its full size from the start. The worker allocates memory with fallocate before its first
 * store to a piece of the file, because a store to a hole of a full /dev/shm would raise SIGBUS in the host. A reader
 * uses pread, which reads a hole as zeros. Allocated at the start: all regions up to the sites, and the first block of
 * names. Allocated later, by the thread that needs it: further names (by 64), a lane's sequences, its summaries (by
 * blocks of 64 paths), each ring.
 *
 * 2. BIT DIAGRAMS (bit 63 left; all integers little-endian)
 *
 *   path key      |ready:1| unit:7 | layer+1:24 | name:16 | parent:16 |
 *   site key      |ready:1| unit:7 | layer+1:24 | name:16 |   0:16    |   unit 1: the site is off, nothing is recorded
 *   open word     |      start ticks >> 8 : 48        | path:16 |   0 = nothing open
 *   name word     |ready:1| void:1 | 0:14 | length:16 |            (32 bits)
 *   record        | sequence:64 | payload:32 | slots:16 | kind:16 | 48 bytes more |
 *   checked       | head, site | shape of the output | sums | sketch | sums | sketch | ... |   (a slot each: output, inputs)
 *
 *   Path 0 is "other": spans whose path has no room are added there. Name 0 stands for all names that found no room; no
 *   site has this name. A path with the parent BRICK_ROOT begins a call tree. layer+1 = 0 means no layer. If a brick is
 *   open inside a brick of the same name and layer, both are recorded on the path of the outer one, so recursion of any
 *   depth and shape needs a finite number of paths. A site is a place where numbers are compared: a kernel (a name) at
 *   a layer. Two threads that reach a place at the same time may each assign an id to it, so only the key identifies
 *   the place.
 *
 * 3. WHO DOES WHAT, WHEN (every legal transition)
 *
 *   segment  absent    -> born       worker: shm_open(O_EXCL), lock on byte 0, size, memory, all fields
 *            born      -> published  worker: magic stored last
 *            born      -> dead       kernel: the worker ended, so the kernel dropped its lock
 *            published -> removed    worker, at a clean end with byte 1 unlocked and no ATTACHED word: it first appends
 *                                    a record (brick_removed.h)
 *            published -> dead       kernel: as above; or worker, at any other clean end or if the record cannot be
 *                                    written: it sets its ENDED word
 *            dead      -> removed    the consumer that drained it, once its checkpoint holds the totals;
 *                                    or, after a record: `brickd prune`, and a new worker of the same user while
 *                                    dead segments take more than their share of /dev/shm (BRICK_DEAD_SHARE)
 *   lane     never     -> owned      a thread: claims it in the worker's private memory, opened + 1
 *            owned     -> free       the thread's end: open spans counted as abandoned
 *            free      -> owned      another thread; counters and summaries continue, never reset
 *   name     empty     -> claimed    a thread: takes the next free id (O4)
 *            claimed   -> ready      the same thread: text, then the word
 *            claimed   -> void       the same thread, if another thread's entry of the same name is ready first
 *   path, site: like a name, but the key itself is the word
 *   summary  even      -> odd        the lane's thread, before it changes the entry
 *            odd       -> even       the same thread, after it; it stays odd if the thread died in between
 *   record   free      -> written    the lane's thread: record, its sequence, head
 *            written   -> free       the consumer: copies it, then moves the tail
 *   control, tails                   written by the consumer that holds the lock on byte 1, with pwrite
 *
 *   A lock is a POSIX record lock (fcntl) of one byte, at offset 0 (the worker is alive) or 1 (a consumer is attached).
 *   The kernel drops a lock when the process ends, in every pid namespace. A process that holds a lock must never open and
 *   close the same file again: closing would drop the lock.
 *
 * 4. ORDERING, one row per atomic operation
 *
 *   row where                       order            so that
 *   O1  header.magic, store         release          a reader that sees the magic sees the whole header
 *   O2  header.magic, load          pread + fence    (reader's side of O1: a read of the magic, then of the header)
 *   O3  name word, path, site key   release/acquire  a thread that sees the ready bit sees the text or the key
 *   O4  next free id (private)      fetch-add        two threads never get the same id. process.names, .paths, .sites
 *                                                    are raised afterwards, so that readers see the ids
 *   O5  sequence -> odd, store      relaxed + release fence   a reader sees the odd sequence before any field changes
 *   O6  summary fields              relaxed          no field is torn; O5 and O7 make the entry consistent
 *   O7  sequence -> even, store     release          a reader that finds it even and unchanged has every field
 *   O8  sequence, read, copy, read  pread, acquire fences between   the same even value twice: the copy is one state.
 *                                   The sequence needs reads of its own: one read of sequence and entry together can
 *                                   tear between them.
 *   O9  record.sequence, store      release          once the worker is dead, a reader can use the record at the head if
 *                                   its sequence is above that of the record before it. Such a record is complete
 *   O10 head, store                 release          a reader of the head sees the records below it
 *   O11 head, load                  pread + acquire fence    (reader's side of O10)
 *   O12 tail pair, two pwrites      release fence    a slot becomes free only after it was copied. The complement is
 *                                   before each      written first, then the position: a torn position does not match
 *   O13 tail pair, two loads        acquire          the writer does not overwrite before O12's copy. The position is
 *                                   loaded first: if it is new, its complement is already complete
 *   O14 lane counters, open word    relaxed          single writer; exact when the lane is quiet. A compiler fence
 *                                   keeps two stores in order if their difference must show a kill between them
 *       words of `process` that     relaxed          several writers: the last value stays
 *       are not counters
 *   O15 control, load               relaxed          a request; acting on it late is harmless
 *   O16 lane owner (private)        acquire/release  the next owner sees the previous owner's counters
 *   O17 the next segment, store     full fence       one thread adds a name or a category while another opens the next
 *       and a name's entry                           segment: at least one of them sees what the other did, and copies it
 *   O18 a thread: its control page  full fence on    a thread takes or frees a lane while another thread opens the next
 *       or owner, store, then the   both sides       segment: at least one of the two sees the other's store, and moves
 *       segment, load; the other:                    the lane. So no lane stays in the lost segment
 *       the segment, store, then
 *       each lane's control page
 *       and owner (all private)
 *
 *   The copy in O11 and O12 is a pread, and the tails are stored with pwrite. For the memory model, the kernel's copies
 *   are ordinary loads and stores. System calls do not order them, so there are fences between the calls.
 *
 * 5. WHEN SOMETHING DIES
 *
 *   writer, before the magic     the segment was never published: readers ignore it, then it is removed
 *   writer, inside a summary     its sequence stays odd: a reader copies the entry and reports it as torn, and at
 *                                most one span of that lane is missing in the summaries
 *   writer, between counters     begun = summarized + rejected + open + abandoned + 1: the 1 is the same span
 *   writer, inside a record      the head did not move, so no reader uses the slot
 *   fork                         the child inherits the mapping but never writes to it (the kernel wipes its
 *                                gate page); its first record opens a segment of its own, in which names
 *                                and paths keep their ids
 *   exec                         exec closes the file, which drops the lock: the segment is dead
 *   pid used again               nothing depends on a pid; pid and start time in the header are hints
 *   consumer                     its lock is dropped; the next consumer continues from its own checkpoint, never
 *                                from the tails
 *   file unlinked under a worker within seconds, the worker sees a link count of 0 and opens a new segment; each
 *                                thread copies its totals there at its next record, and the rings begin empty
 *
 * 6. COMPATIBILITY
 *
 *   A major version freezes every struct, the order of the regions and the meaning of each field. layout_crc is the CRC
 *   of the table at the end of this file: if a struct was changed by mistake, a reader refuses the segment instead of
 *   misreading it. A minor version may define reserved fields (zero before), flag bits and units, and add record kinds.
 *   Additions of minor versions are in a second table, outside the CRC. Every record gives its kind and its count of
 *   slots; a reader skips and counts unknown kinds, and refuses another major version.
 */
#ifndef BRICK_SHM_H
#define BRICK_SHM_H

#include "brick_atomic.h"

#include <stddef.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the format is little-endian"
#endif

#define BRICK_MAGIC UINT64_C(0x4D4853444B435242) /* "BRCKDSHM" */
#define BRICK_ENDIAN UINT32_C(0x01020304)
#define BRICK_MAJOR 1
#define BRICK_MINOR 15
#define BRICK_PREFIX "brickd-"
#define BRICK_DIRECTORY "/dev/shm"
#define BRICK_PAGE 4096u

/* The bytes of the two POSIX locks. */
#define BRICK_LOCK_WORKER 0
#define BRICK_LOCK_CONSUMER 1

/* Bounds that a reader enforces before it accepts any count. The upper bounds come from the 16-bit ids of names and
 * paths; the lower bounds allow the tiny files of tests. */
#define BRICK_LANES_MAX 1024u
#define BRICK_NUMBERS_MAX 65472u /* names, paths: below BRICK_ROOT, a multiple of BRICK_BLOCK */
#define BRICK_SITES_MAX 16384u   /* the bitmap of the sites must fit into the control page */
#define BRICK_SLOTS_MAX 16777216u

/* The unit of allocation for summaries and names: 64 summaries are exactly 18 pages. */
#define BRICK_BLOCK 64u

/* The share of the free space of /dev/shm that all dead segments of a user may take. If they take more, the user's next
 * worker removes the oldest dead segments. */
#ifndef BRICK_DEAD_SHARE
#define BRICK_DEAD_SHARE 8u
#endif

/* A base-2 exponential histogram with ratio 2^(1/4): bucket i > 0 holds [2^(5 + i/4), 2^(5 + (i+1)/4)) ticks. No span
 * is shorter than 2^5 ticks (12 ns at 2.6 GHz). The last bucket begins at 2^36.75 ticks (45 s at 2.6 GHz, 115 s for ns)
 * and also holds all longer spans; the summary's max is exact. */
#define BRICK_BUCKETS 128u
#define BRICK_BUCKET_OCTAVE 5u
#define BRICK_BUCKETS_PER_OCTAVE 4u

#define BRICK_OTHER 0u     /* the id of the path, of the name and of the category "other" */
#define BRICK_ROOT 0xFFFFu /* the parent of a path that begins a call tree */

enum brick_clock {
    BRICK_CLOCK_NONE = 0,
    BRICK_CLOCK_TSC = 1,       /* x86 time stamp counter, if the kernel trusts it */
    BRICK_CLOCK_CNTVCT = 2,    /* arm64 virtual counter */
    BRICK_CLOCK_MONOTONIC = 3, /* CLOCK_MONOTONIC_RAW: a tick is a nanosecond */
};

/* The unit of the times of a path. */
enum brick_unit {
    BRICK_UNIT_TICKS = 0,
    BRICK_UNIT_NS = 1,
    BRICK_UNIT_DEFERRED = 2, /* since 1.2: ns measured by a device; the consumer adds them up, the summary stays empty */
    BRICK_UNIT_BOUND = 3,    /* never in a segment: a consumer uses it for upper bounds of deferred work that was
                                not measured */
    /* Since 1.6, marks: only count, elements, bytes and flops of their summaries have a meaning. A mark says something
     * about the path above it. The same then holds for each path that differs from the path above only in its unit. */
    BRICK_UNIT_LAUNCHED = 4, /* a kernel of this name was launched; elements, bytes, flops: only of launches without a
                                time */
    BRICK_UNIT_SHAPED = 5,   /* below LAUNCHED: the launches of one shape; the name is the shape's text (below) */
    BRICK_UNIT_H2D = 6,      /* bytes were moved from host to device; the name has both ends with an arrow between them */
    BRICK_UNIT_D2H = 7,
    BRICK_UNIT_D2D = 8,
    BRICK_UNIT_RETURNED = 9, /* below H2D, D2H: how many of these transfers moved the bytes of an earlier transfer
                                back */
    BRICK_UNIT_NEEDS = 10,   /* the path above needs the result of the brick of this name */
    BRICK_UNIT_DEFINED = 11, /* the path above is a function; the name is its file (0: unknown), the layer is its line */
    BRICK_UNIT_ENDED = 12,   /* each span of the path above is one poll of a task; count: how many tasks have ended */
    BRICK_UNIT_NODE = 13,    /* since 1.9: a node of a graph that the host draws; total, min, max: ns given by the host,
                                0: none */
    BRICK_UNIT_TASK = 14,    /* since 1.9: the NODE above is a task; elements: its polls, bytes: its yields */
    BRICK_UNIT_ROWS = 15,    /* since 1.12: counts calls that were examined for rows, by their results (below) */
    BRICK_UNITS = 16,
};

static inline int brick_is_mark(uint32_t unit) { return unit >= BRICK_UNIT_LAUNCHED && unit < BRICK_UNITS; }

/* The text of a shape: blocks, threads of a block, bytes of shared memory, and the hash of the source if known:
 * "<<<16,256,1>>> smem=1024B", "<<<16x4,32,8,2>>> smem=0B @cbf29ce484222325". The text omits trailing sizes of the grid
 * that are 1, the block's third size if it is 1, and all unknown values. */
#define BRICK_ARROW "\xE2\x86\x92" /* the arrow in the name of a transfer */

/* Sites of rows, since 1.12. The host examines each call of such a site for rows; the result is a word. The unit ROWS
 * has two levels of paths. The name of the upper path, which has no parent, is the word. The path below has the name
 * and the layer of the site, and `elements` in its summary counts the calls of the site with this result. If `elements`
 * is 0, the site is never examined. Words:
 *
 *   decode     rows were chosen; the shape of the input is [batch, 1, ...]
 *   prefill    rows were chosen; the shape of the input is [batch, more than 1, ...]
 *   packed     rows were chosen; the input has another shape
 *   a reason   there are no rows: the result may depend on more than the row, or the call cannot be read
 *   history:R  since 1.14, for the site `history`: counts steps of sequences whose history is unknown for the reason R
 *
 * An instrumented model counts decode, prefill and packed for all layers of a kernel together, so these paths have no
 * layer.
 */

/* ---- header ------------------------------------------------------------ */

struct brick_header {
    uint64_t magic;         /* stored last (O1) */
    uint32_t endian;        /* BRICK_ENDIAN of the writer */
    uint16_t major;
    uint16_t minor;
    uint32_t layout_crc;    /* the CRC of the table below */
    uint32_t header_crc;    /* the CRC of this page with magic and header_crc as zeros */
    uint64_t size;          /* the size of the file */
    uint32_t lanes;
    uint32_t paths;         /* a multiple of BRICK_BLOCK */
    uint32_t names;         /* a multiple of BRICK_BLOCK */
    uint32_t sites;
    uint32_t span_slots;    /* a power of two */
    uint32_t event_slots;   /* a power of two */
    uint32_t buckets;       /* BRICK_BUCKETS in this major version */
    uint32_t clock;         /* enum brick_clock */
    uint64_t anchor_ticks;  /* the first readings of the two clocks, taken together */
    uint64_t anchor_ns;     /* CLOCK_MONOTONIC_RAW */
    uint64_t started_ns;    /* CLOCK_REALTIME when the segment was created */
    uint64_t process_start; /* hint: start time of the process, field 22 of /proc/PID/stat */
    uint32_t pid;           /* hint: the worker's pid in its namespace */
    uint32_t uid;
    int32_t index;          /* the worker's declared number within the service, or -1 */
    uint32_t reserved0;
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint8_t service[64];     /* UTF-8, padded with zeros */
    uint8_t coordinates[64]; /* UTF-8, padded with zeros: "0.tp3.pp1", or nothing */
    uint8_t reserved[3824];  /* since 1.4, the first four bytes are the rate of steps with checksums, used while the
                                control page has no rate; 0: all steps (see also BRICK_PROCESS_RATE) */
};
BRICK_ASSERT(sizeof(struct brick_header) == BRICK_PAGE, "the header is one page");

/* ---- control ----------------------------------------------------------- */

enum brick_control_flags {
    BRICK_CONTROL_OFF = 1,   /* record nothing */
    BRICK_CONTROL_SPANS = 2, /* fill the span ring */
};

/* Requests of the consumer. The worker does not trust these numbers and never uses them as an index or a length. */
struct brick_control {
    uint32_t flags;            /* enum brick_control_flags; a worker ignores unknown bits */
    uint32_t fingerprint_rate; /* the rate of steps with checksums; 0 = as configured */
    uint64_t dump_site;        /* the site whose next tensors are dumped; 0 = none */
    uint64_t reopen;           /* a changed value asks the worker to open a new segment */
    uint64_t reserved[253];
    uint64_t sites[256];       /* bitmap: 1 = a kernel's checksums are not recorded at this site */
};
BRICK_ASSERT(sizeof(struct brick_control) == BRICK_PAGE, "the control page is one page");
BRICK_ASSERT(BRICK_SITES_MAX == 64 * 256, "every site has its bit");

/* Indices in `reserved`, since 1.3. */
#define BRICK_CONTROL_WEIGHTS 0 /* a changed value asks the worker to read and record all weights again, after this step */
/* Since 1.7. */
#define BRICK_CONTROL_ATTACHED 1 /* 1: a daemon that keeps totals is or was attached; never reset */
/* Since 1.8. */
#define BRICK_CONTROL_EPOCH 2 /* the epoch word: |until : 32 | epoch : 32|; 0: none */
/* Since 1.15. */
#define BRICK_CONTROL_CANARY 3 /* |definition : 32 | order : 32|: a changed word asks the worker to run the canary with
                                  this definition. A definition is identified by the upper half of the FNV-1a (64 bits)
                                  of its file */

/* Since 1.4, workers obey `fingerprint_rate` and `sites`. Each step has a draw, a number of 32 bits. A rate selects the
 * steps whose draw is smaller than the rate; the two rates defined below are exceptions. All workers select the same
 * steps, whatever work they did before, and consecutive steps have unrelated draws. Checksums outside of steps are
 * recorded only if all steps are selected.
 *
 * Since 1.8, time is divided into epochs of BRICK_EPOCH_SECONDS, and a draw depends on the step and on the number of
 * the epoch. So if a recurring step is not selected in one epoch, it is selected in another:
 *
 *   hash = splitmix64(step XOR 0xA0761D6478BD642F), upper half     before 1.8, this is the draw
 *   draw = upper half of splitmix64(hash << 32 | epoch / 64) XOR the 32 bits of the epoch in reverse order
 *
 * With their bits in reverse order, consecutive epochs differ in their upper bits. So among 64 epochs that begin at a
 * multiple of 64, a rate of 1/64 selects each step in exactly one epoch, and a rate of 1/16 in one of each 16. In the
 * next 64 epochs, a step is selected at a different position, so even a step that recurs only in every fourth epoch is
 * selected at some time. The epoch of a step is the epoch in which the step begins, or in which a call passes the step
 * as an argument.
 *
 * The consumer changes the epoch of all workers at the same time, every BRICK_EPOCH_SECONDS. An epoch must not be too
 * short: while the consumer writes the pages, workers use different epochs (64 pages in one call: 0.05 ms, at worst 32
 * ms on a busy host), and that time must be below 1 % of an epoch. An epoch must not be too long either: at a rate of
 * 1/64, a step that always recurs should be selected within minutes. The epoch word is valid until the second `until`
 * of CLOCK_REALTIME, so that the word of a killed consumer becomes invalid. Without a valid word, the epoch is the
 * number of BRICK_EPOCH_SECONDS since 1970, the same in all workers of the machine. Consumers also count epochs from
 * 1970. */
#define BRICK_RATE_NONE UINT32_C(1)
#define BRICK_RATE_ALL UINT32_MAX
#define BRICK_EPOCH_TURNS 64u
#define BRICK_EPOCH_SECONDS 5u
#define BRICK_EPOCH_HOLDS 20u     /* seconds that a word is valid: four epochs, longer than a consumer pauses */
#define BRICK_EPOCH_HOLDS_MAX 60u /* a word that is valid for more seconds is ignored: the clock was set back */

static inline uint32_t brick_epoch_of(uint64_t word, uint64_t second)
{
    const uint32_t left = (uint32_t)(word >> 32) - (uint32_t)second;
    return left <= BRICK_EPOCH_HOLDS_MAX ? (uint32_t)word : (uint32_t)(second / BRICK_EPOCH_SECONDS);
}

/* ---- consumer lines ---------------------------------------------------- */

/* A tail and its complement. A pwrite need not be atomic, so the writer accepts only a pair that matches, with a
 * position within [head - slots, head]. */
struct brick_tail {
    uint64_t position;
    uint64_t complement;
};

struct brick_consumer {
    struct brick_tail span;
    struct brick_tail event;
    uint64_t spans_lost;     /* single spans that a killed daemon had read but not saved; the next daemon counts them */
    uint64_t events_read;    /* number of records read; event.position counts slots instead */
    uint64_t reserved[2];
};
BRICK_ASSERT(sizeof(struct brick_consumer) == 64, "one cache line");

/* ---- process line and lane lines --------------------------------------- */

struct brick_process {
    uint64_t names;          /* next free id; equal to the header's `names` if no id is free */
    uint64_t paths;
    uint64_t sites;
    uint64_t names_refused;  /* names for which there was no room: recorded under name 0 */
    uint64_t names_cut;      /* names that were too long: truncated, with a hash that keeps them distinct */
    uint64_t no_lane;        /* spans and events that threads without a lane recorded, or that began before the segment
                                was open */
    uint64_t lanes_refused;  /* threads that got no lane */
    uint64_t blocks_refused; /* failed allocations */
    uint64_t reserved[8];
};
BRICK_ASSERT(sizeof(struct brick_process) == 128, "two cache lines");

/* Indices in `reserved`, since 1.2. */
#define BRICK_PROCESS_ENDED 0 /* 1 if the worker ended cleanly; stored before the lock is dropped */
#define BRICK_PROCESS_TOOK 1  /* the first eight bytes of the uuid of the lost segment that this one replaces */

/* Since 1.3. */
#define BRICK_PROCESS_SITES_REFUSED 2   /* checksums dropped because the kernel has no name, or because no site was
                                           free */
#define BRICK_PROCESS_TENSORS_REFUSED 3 /* tensors that could not be read (on a device, of an unknown type) */
#define BRICK_PROCESS_KEY 4          /* the public name of the key of checksums; 0: not needed yet, or no key */
#define BRICK_PROCESS_WEIGHTS 5      /* watched weights that still exist, including unreadable ones */
#define BRICK_PROCESS_SCANS 6        /* complete scans of the weights recorded into this segment */
#define BRICK_PROCESS_RATE 7         /* since 1.4: the rate for modules of an instrumented model, if neither the control
                                        page nor the header has a rate; 0: no such modules */

/* Why a span that had begun was not summarized. */
enum brick_rejected {
    BRICK_REJECTED_CLOCK = 0, /* the span ended before its start, or the host gave an invalid time */
    BRICK_REJECTED_ROOM = 1,  /* too many open spans in a lane; spans inside such a span are also rejected */
    BRICK_REJECTED_REASONS = 2,
};

/* Why a record was not written to its ring. */
enum brick_dropped {
    BRICK_DROPPED_FULL = 0,
    BRICK_DROPPED_MEMORY = 1, /* no memory for the ring */
    BRICK_DROPPED_REASONS = 2,
};

#define BRICK_KINDS 16u /* kinds of records whose drops are counted separately; index 0 counts all other kinds */

/* The ledger of a lane, exact when the lane is quiet (its thread is in no call):
 *   begun  = summarized + sum(rejected) + open + abandoned (+ 1 unpublished, in a dead lane)
 *   span_attempts = span_head + sum(span_dropped)
 *   event_attempts = event_records + sum(event_dropped) (+ 1 unpublished, in a dead lane)
 *   marks = the counts in the summaries of marks + marks_refused (+ 1 unpublished, in a dead lane)
 * `nested` and `unmatched` are not part of these sums: such a call changed nothing except this counter. */
struct brick_lane {
    /* line 0: changes with every span */
    uint64_t begun;
    uint64_t summarized;
    uint64_t open;          /* the number of spans open now */
    uint64_t current;       /* the open word (section 2) of the open span that began last; 0: none */
    uint64_t span_head;     /* records ever written */
    uint64_t span_attempts; /* number of attempts so far, and so the last record's sequence */
    uint64_t opened;        /* threads that have owned this lane */
    uint64_t thread;        /* the owner's thread id, 0 when free */
    /* line 1: what went wrong with spans */
    uint64_t abandoned;     /* spans left open when their thread, task or enclosing span ended */
    uint64_t rejected[BRICK_REJECTED_REASONS];
    uint64_t nested;        /* calls from a signal handler that interrupted a call */
    uint64_t unmatched;     /* ends without a begin, measurements without a start */
    uint64_t amounts;       /* elements, bytes, layers or measurements ignored as invalid */
    uint64_t tails_refused; /* invalid tails from the consumer */
    uint64_t reserved1;
    /* line 2: records in the rings */
    uint64_t span_dropped[BRICK_DROPPED_REASONS];
    uint64_t event_head;     /* slots ever written */
    uint64_t event_attempts; /* number of attempts so far, and so the last record's sequence */
    uint64_t event_records;  /* records ever written */
    uint64_t reserved2[3];   /* since 1.6: see BRICK_LANE_* */
    /* lines 3, 4 */
    uint64_t event_dropped[BRICK_KINDS]; /* drops by kind, for any reason */
    uint64_t reserved3[8];               /* since 1.10: see BRICK_LANE_WEIGHTS_* */
};
BRICK_ASSERT(sizeof(struct brick_lane) == 384, "six cache lines");

/* Indices in `reserved2`, since 1.6. Marks may use half of the paths and half of the names; the rest is for spans. */
#define BRICK_LANE_MARKS 0         /* all marks, also those without room */
#define BRICK_LANE_MARKS_REFUSED 1 /* marks that were not counted in a summary, because there was no room */

/* Indices in `reserved3` of lane 0, since 1.10: how often the weights of the process are read again. */
#define BRICK_LANE_WEIGHTS_EVERY 0 /* ns from one scan to the next, as set by the host; 0: not set */
#define BRICK_LANE_WEIGHTS_ONCE 1  /* number of weights read only at load and on a consumer's request */
/* Index in `reserved3` of lane 0, since 1.12: into how many groups the process divides its sites of rows. In each
 * epoch, one group records rows. 0: all sites record rows in every epoch. */
#define BRICK_LANE_ROWS_TURNS 2
BRICK_ASSERT(offsetof(struct brick_lane, abandoned) == 64, "the rare counters have a separate line");
BRICK_ASSERT(offsetof(struct brick_lane, span_dropped) == 128, "the details have a separate line");

/* ---- names, paths, sites ----------------------------------------------- */

#define BRICK_NAME_MAX 120u
#define BRICK_NAME_READY UINT32_C(0x80000000)
#define BRICK_NAME_VOID UINT32_C(0x40000000)
#define BRICK_NAME_LENGTH UINT32_C(0xFFFF)

struct brick_name {
    uint32_t word;     /* stored last (O3) */
    uint32_t category; /* the id of the category's name; 0 until one is declared */
    uint8_t text[BRICK_NAME_MAX];
};
BRICK_ASSERT(sizeof(struct brick_name) == 128, "two cache lines");

#define BRICK_KEY_READY (UINT64_C(1) << 63)
#define BRICK_LAYER_MAX UINT32_C(0xFFFFFE)
#define BRICK_NO_LAYER UINT32_C(0xFFFFFFFF) /* adding 1 gives 0, which means no layer in a key */

static inline uint64_t brick_path_key(uint32_t parent, uint32_t name, uint32_t layer, uint32_t unit)
{
    return BRICK_KEY_READY | (uint64_t)unit << 56 | (uint64_t)(layer + 1u) << 32 | (uint64_t)name << 16 | parent;
}
static inline uint32_t brick_key_parent(uint64_t key) { return (uint32_t)(key & 0xFFFF); }
static inline uint32_t brick_key_name(uint64_t key) { return (uint32_t)(key >> 16 & 0xFFFF); }
static inline uint32_t brick_key_layer(uint64_t key) { return (uint32_t)(key >> 32 & 0xFFFFFF) - 1u; }
static inline uint32_t brick_key_unit(uint64_t key) { return (uint32_t)(key >> 56 & 0x7F); }

/* Units of a site. */
#define BRICK_SITE_RECORDED 0u
#define BRICK_SITE_OFF 1u /* the tensors are not read, because they reveal a customer's text */
#define BRICK_SITE_PRESUMED 2u /* since 1.12: the kernel is only presumed to compute row by row, because it runs code of
                                  the host */

static inline uint64_t brick_site_key(uint32_t name, uint32_t layer, uint32_t unit)
{
    return brick_path_key(0, name, layer, unit);
}

static inline uint64_t brick_open_word(uint64_t start, uint32_t path) { return start >> 8 << 16 | path; }

/* ---- summaries --------------------------------------------------------- */

/* Only the lane's thread changes a summary, between an odd and an even sequence. `total` is the sum of the whole
 * durations of the spans; `child` is the sum of the durations of their direct children. `again` is the sum of the
 * durations of those spans that are inside another span of the same path. So self time = total - child, and the time
 * with at least one open span of the path = total - again. */
struct brick_summary {
    uint64_t count;
    uint64_t total;
    uint64_t child;
    uint64_t again;
    double squares;      /* sum of squared durations */
    uint64_t min;        /* meaningless while count is 0 */
    uint64_t max;
    uint64_t elements;
    uint64_t bytes;
    uint64_t reserved[7];
    uint64_t histogram[BRICK_BUCKETS];
};
BRICK_ASSERT(sizeof(struct brick_summary) == 1152, "18 cache lines");
BRICK_ASSERT(BRICK_BLOCK * sizeof(struct brick_summary) % BRICK_PAGE == 0, "a block is whole pages");

/* Index in `reserved`, since 1.5: a double, the sum of the floating-point operations of the summary's spans. */
#define BRICK_SUMMARY_FLOPS 0

static inline double brick_summary_flops(const struct brick_summary *s)
{
    double flops;
    __builtin_memcpy(&flops, &s->reserved[BRICK_SUMMARY_FLOPS], sizeof flops);
    return flops;
}
static inline void brick_summary_set_flops(struct brick_summary *s, double flops)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &flops, sizeof bits);
    brick_store_relaxed(&s->reserved[BRICK_SUMMARY_FLOPS], bits); /* O6 */
}

static inline uint32_t brick_bucket(uint64_t ticks)
{
    if (ticks < UINT64_C(1) << BRICK_BUCKET_OCTAVE)
        return 0;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(ticks);
    uint64_t fraction = ticks << (63u - octave);
    uint32_t quarter = (uint32_t)(fraction >= UINT64_C(0x9837F0518DB8A970))    /* 2^(1/4) */
                       + (uint32_t)(fraction >= UINT64_C(0xB504F333F9DE6485))  /* 2^(2/4) */
                       + (uint32_t)(fraction >= UINT64_C(0xD744FCCAD69D6AF5)); /* 2^(3/4) */
    uint32_t bucket = (octave - BRICK_BUCKET_OCTAVE) * BRICK_BUCKETS_PER_OCTAVE + quarter;
    return bucket < BRICK_BUCKETS ? bucket : BRICK_BUCKETS - 1u;
}

/* ---- rings ------------------------------------------------------------- */

/* Every kind of record: NAME, number, name, struct. This is the only list of the kinds, for C and for Python. A reader
 * counts a record of an unknown kind and skips it by its count of slots. */
#define BRICK_SPAN_KINDS(K)                                                                                             \
    K(SPAN, 1, span, span)                                                                                              \
    K(STEP, 2, step, span) /* since 1.1: a span that was a step of an engine, with rows and valid rows */
#define BRICK_EVENT_KINDS(K)                                                                                            \
    K(DEFER, 3, defer, defer)          /* since 1.2: a device got work that ends later */                               \
    K(FINALIZE, 4, finalize, finalize) /* since 1.2: the host waited for a stream: earlier work on it is over */       \
    K(MEASURED, 5, measured, measured) /* since 1.2: a device's duration of one deferred start */                       \
    K(CHECKED, 6, checked, checked)    /* since 1.3: fingerprints of a site's tensors; the only kind with several slots */ \
    K(SOURCE, 7, source, source_piece) /* since 1.6: a piece of a kernel's source */                                   \
    K(STEP_TEXT, 8, step_text, step_text) /* since 1.13: the text by which the host names a step */                    \
    K(CANARY, 9, canary, source_piece) /* since 1.15: a piece of the result of a canary */

enum brick_kind {
    BRICK_KIND_NONE = 0,
#define BRICK_KIND(NAME, number, name, record) BRICK_KIND_##NAME = (number),
    BRICK_SPAN_KINDS(BRICK_KIND)
    BRICK_EVENT_KINDS(BRICK_KIND)
#undef BRICK_KIND
};

/* A record takes one or more slots. The first slot begins with these 16 bytes; further slots are all payload. A record
 * of several slots may wrap around the end of the ring. */
struct brick_record {
    uint64_t sequence; /* counts the attempts to write a record, from 1; stored last (O9); a gap shows a dropped
                          record */
    uint32_t payload;  /* meaning depends on `kind` */
    uint16_t slots;
    uint16_t kind;
    uint64_t words[6]; /* meaning depends on `kind` */
};
BRICK_ASSERT(sizeof(struct brick_record) == 64, "a slot is one cache line");

struct brick_span {
    uint64_t sequence;
    uint32_t path;
    uint16_t slots;    /* 1 */
    uint16_t kind;     /* BRICK_KIND_SPAN, BRICK_KIND_STEP */
    uint64_t start;    /* ticks; if the host gave the duration: the time of that call */
    uint64_t duration; /* the duration in the path's unit */
    uint64_t child;
    uint64_t step;     /* 0: no step was given, or step 0; only a checksum distinguishes the two */
    uint64_t elements; /* the span's elements; in the record of a step, the step's rows */
    uint64_t bytes;    /* the span's bytes; in the record of a step, its valid rows, which its summary counts as elements */
};

/* Deferred work, since 1.2. A finalize closes the starts of its stream (or of every stream) that are not later than its
 * ticks, in any lane. So the result does not depend on the order in which a reader reads the lanes. In a lane, a
 * measurement comes before the finalize that covers it. The writer reserves the last eighth of the ring for
 * measurements and finalizes, and the last eighth of this reserve for finalizes alone. */
struct brick_defer {
    uint64_t sequence;
    uint32_t path;     /* a path with the unit BRICK_UNIT_DEFERRED */
    uint16_t slots;    /* 1 */
    uint16_t kind;     /* BRICK_KIND_DEFER */
    uint64_t start;    /* ticks */
    uint64_t stream;   /* the host's number for the stream; 0 if none was given */
    uint64_t id;       /* lane + 1 in the upper 16 bits, a count from 1 in the lower 48 bits: unique in a process */
    uint64_t step;     /* as in a span */
    uint64_t elements;
    uint64_t bytes;
};
struct brick_finalize {
    uint64_t sequence;
    uint32_t every;    /* 1: all streams, and `stream` is ignored */
    uint16_t slots;
    uint16_t kind;     /* BRICK_KIND_FINALIZE */
    uint64_t ticks;
    uint64_t stream;
    uint64_t reserved[4];
};
struct brick_measured {
    uint64_t sequence;
    uint32_t reserved0;
    uint16_t slots;
    uint16_t kind;     /* BRICK_KIND_MEASURED */
    uint64_t id;
    uint64_t elapsed_ns;
    uint64_t reserved[4];
};

/* The source of a kernel, since 1.6, in pieces. Pieces of one source may be in several lanes and arrive in any order;
 * the end record gives their lengths. Pieces leave the same part of the ring free as records of weights do; a piece for
 * which there is no room is written later. A source is identified by the FNV-1a (64 bits) of its text. */
struct brick_source_piece {
    uint64_t sequence;
    uint32_t piece;    /* upper 2 bits: enum brick_source_part; lower 30 bits: the piece's number within the part, from 0 */
    uint16_t slots;    /* 1 */
    uint16_t kind;     /* BRICK_KIND_SOURCE, BRICK_KIND_CANARY */
    uint64_t hash;
    uint8_t text[40];  /* UTF-8; the last piece of a part is padded with zeros. In the end record: the lengths of name,
                          path and text, in 8 bytes each */
};
enum brick_source_part { BRICK_SOURCE_NAME = 0, BRICK_SOURCE_PATH = 1, BRICK_SOURCE_TEXT = 2, BRICK_SOURCE_END = 3 };
#define BRICK_SOURCE_PIECE 40u
#define BRICK_SOURCE_MAX 1048576u /* the limit of a text in bytes; a longer text is not written */
#define BRICK_SOURCE_LABEL 1000u  /* the limit of a name and of a path in bytes; longer ones are cut */

/* The result of a canary, since 1.15: a JSON text in pieces like those of a source, without a name and a path. It is
 * identified by its hash, too, and names the order (BRICK_CONTROL_CANARY) that it answers. */
#define BRICK_CANARY_MAX 65536u /* the limit of a result in bytes; a longer one is not written */

/* The text by which the host names a step, since 1.13. The step's key is the FNV-1a (64 bits) of the text. So a reader
 * computes the key from the text, and no record can give a key a wrong text. A text that is too long is not written:
 * from its beginning, a reader could not compute the key. The record follows the first checksum of the step in its
 * lane, if at least half of the ring is free; otherwise the text is not written, and this does not count as a lost
 * record. */
#define BRICK_STEP_TEXT_MAX 48u
struct brick_step_text {
    uint64_t sequence;
    uint32_t length; /* 1 to BRICK_STEP_TEXT_MAX bytes */
    uint16_t slots;  /* 1 */
    uint16_t kind;   /* BRICK_KIND_STEP_TEXT */
    uint8_t text[BRICK_STEP_TEXT_MAX]; /* UTF-8, padded with zeros */
};

/* The fingerprints of a site's tensors, since 1.3: this slot, one slot with the shape of the output, and two slots per
 * tensor, the output first. brick_fingerprint.h defines a fingerprint; the key is the key of the service. Records of
 * two workers correspond if site, step and position are equal. `position` is the number that the host gave. If the host
 * gave none, it is the occurrence: how many checksums this lane had already made at the site in the current step.
 * Checksums leave the same part of the ring free as starts do. Records of weights leave three eighths of the ring free,
 * and wait for room.
 *
 * Rows, since 1.11: a record with BRICK_CHECKED_ROWS has some rows of one call. The kernel at the site computes each
 * row of its output from the same row of its only input. The record's tensors are pairs: a row of the output, then the
 * row of the input with the same index. `position` is the number of rows of the call; the second slot describes the
 * first output row. Rows of two workers correspond if site, params, backend, dtypes and the input row are equal, at any
 * time and in any step.
 *
 * Histories, since 1.14: a record with BRICK_CHECKED_HISTORY has one row of one call: the output row and at most one
 * input, the input row. `position` is the digest of the row's history: of the tokens up to this row, and of this row's
 * position. `valid` is its lineage: a digest of how these tokens were computed. brick_history.h defines both. Rows of
 * two workers correspond if site, history, lineage, params, backend and dtypes are equal, at any time and in any step.
 * The record also has BRICK_CHECKED_STATEFUL, so a reader of an older version compares it with no other record by
 * input. */
struct brick_checked {
    uint64_t sequence;
    uint32_t site;
    uint16_t slots;    /* 2, and 2 more per tensor */
    uint16_t kind;     /* BRICK_KIND_CHECKED */
    uint64_t ticks;    /* the time when the output was complete; for a weight, when it was read */
    uint64_t step;     /* the step's key; without BRICK_CHECKED_STEP, there is no step and this is 0 */
    uint64_t position;
    uint64_t params;   /* a digest of the other values that decide the output; from the second generation of the weights
                          on, the digest includes the generation (except for weights and moved tensors); 0: no values
                          were given */
    uint64_t valid;    /* the number of valid rows; all bits set: all rows */
    uint16_t backend;  /* the id of a name; 0: none was given */
    uint16_t of;       /* the id of the name of the relation's group or link */
    uint8_t relation;  /* enum brick_relation */
    uint8_t inputs;    /* the number of inputs, whose tensors follow the output's */
    uint8_t flags;     /* enum brick_checked_flags */
    uint8_t reserved;
};
/* The second slot of a checked record. */
struct brick_output {
    uint64_t fnv1a;    /* FNV-1a of the output (brick_fingerprint.h): shown, never compared */
    uint32_t dims;     /* the number of the output's dimensions; `shape` has the sizes of the first 6 */
    uint32_t token;    /* since 1.14, in a record of history: the position of the token in its sequence, plus 1; else 0 */
    uint64_t shape[6];
};
/* The fingerprint of a tensor, in two slots. */
struct brick_tensor_sums {
    uint64_t checksum;
    uint64_t elements;
    double mean, l2;
    float min, max;
    uint32_t nan, pos_inf, neg_inf; /* counts; the largest value means this many or more */
    uint32_t shape;    /* a digest of all dimensions of the tensor */
    uint8_t dtype;     /* enum brick_dtype; 0: the tensor was not read, and all other fields are 0 */
    uint8_t reserved[7];
};
struct brick_tensor_sketch {
    float places[16];
};
#define BRICK_KIND(NAME, number, name, record)                                                                          \
    BRICK_ASSERT((number) < BRICK_KINDS, "each kind has a counter of drops");                                           \
    BRICK_ASSERT(sizeof(struct brick_##record) == sizeof(struct brick_record), "its first slot is one cache line");     \
    BRICK_ASSERT(offsetof(struct brick_##record, kind) == offsetof(struct brick_record, kind), "all kinds begin alike");
BRICK_SPAN_KINDS(BRICK_KIND)
BRICK_EVENT_KINDS(BRICK_KIND)
#undef BRICK_KIND
BRICK_ASSERT(sizeof(struct brick_output) == sizeof(struct brick_record), "the second slot");
BRICK_ASSERT(sizeof(struct brick_tensor_sums) == sizeof(struct brick_record), "a tensor's first slot");
BRICK_ASSERT(sizeof(struct brick_tensor_sketch) == sizeof(struct brick_record), "a tensor's second slot");

/* Which workers must have the same output, if their inputs are equal. */
enum brick_relation {
    BRICK_LOCAL = 0,      /* those with the same weights */
    BRICK_REPLICATED = 1, /* all members of the group: each has the whole tensor */
    BRICK_PARTIAL = 2,    /* as LOCAL: each member of the group has a part of a sum */
    BRICK_MOVED = 3,      /* both ends of this link; `position` identifies the piece */
    BRICK_RELATIONS = 4,
};
enum brick_checked_flags {
    BRICK_CHECKED_POSITION = 1, /* the host gave the position */
    BRICK_CHECKED_STEP = 2,     /* the host gave a step, to the checksum or to a surrounding span */
    BRICK_CHECKED_MORE = 4,     /* the kernel had more than 8 inputs: the last one in the record stands for the eighth
                                   and all later ones. Its checksum is computed from their checksums, its `elements` is
                                   their sum, and its statistics and sketch are 0 */
    BRICK_CHECKED_WEIGHT = 8,   /* a parameter, not a kernel's output: `step` is its generation, `position` the number
                                   of its expert; the site's name is the parameter's name without numbers
                                   (brick_weights.h) */
    BRICK_CHECKED_STATELESS = 16, /* the host says that inputs and params alone decide the output */
    BRICK_CHECKED_STATEFUL = 32, /* the host says that other state also affects the output. Neither flag: the name
                                    decides */
    BRICK_CHECKED_ROWS = 64, /* since 1.11: the tensors are pairs of an output row and its input row; `inputs` is odd */
    BRICK_CHECKED_HISTORY = 128, /* since 1.14: the output is one row of a call, and corresponds to a row with an equal
                                    history */
};
#define BRICK_INPUTS_MAX 8u
#define BRICK_CHECKED_SLOTS(inputs) (2u + 2u * (1u + (inputs)))
#define BRICK_CHECKED_SLOTS_MAX BRICK_CHECKED_SLOTS(BRICK_INPUTS_MAX)
#define BRICK_ROWS_MAX ((BRICK_INPUTS_MAX + 1u) / 2u) /* rows in one record */

/* ---- where everything is ----------------------------------------------- */

struct brick_layout {
    uint64_t control, consumers, process, lanes, paths, sites, names; /* offsets of the regions */
    uint64_t first;                                                   /* offset of lane 0's area */
    uint64_t sequences, summaries, span_ring, event_ring;             /* offsets within a lane's area */
    uint64_t stride;                                                  /* the distance from one lane's area to the next */
    uint64_t size;
};

static inline uint64_t brick_pages(uint64_t bytes) { return (bytes + BRICK_PAGE - 1u) / BRICK_PAGE * BRICK_PAGE; }
static inline uint64_t brick_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline int brick_power_of_two(uint32_t n) { return n != 0 && (n & (n - 1u)) == 0; }

/* Computes the layout. Returns 0 if the counts of the header are invalid. If the counts are within their bounds, no sum
 * below overflows. */
static inline int brick_layout_compute(const struct brick_header *h, struct brick_layout *l)
{
    if (h->lanes == 0 || h->lanes > BRICK_LANES_MAX || h->paths == 0 || h->paths > BRICK_NUMBERS_MAX
        || h->paths % BRICK_BLOCK != 0 || h->names == 0 || h->names > BRICK_NUMBERS_MAX || h->names % BRICK_BLOCK != 0
        || h->sites == 0 || h->sites > BRICK_SITES_MAX || !brick_power_of_two(h->span_slots)
        || h->span_slots > BRICK_SLOTS_MAX || !brick_power_of_two(h->event_slots) || h->event_slots > BRICK_SLOTS_MAX
        || h->buckets != BRICK_BUCKETS)
        return 0;
    l->control = BRICK_PAGE;
    l->consumers = l->control + BRICK_PAGE;
    l->process = l->consumers + brick_pages(h->lanes * (uint64_t)sizeof(struct brick_consumer));
    l->lanes = l->process + sizeof(struct brick_process);
    l->paths = l->process + brick_pages(sizeof(struct brick_process) + h->lanes * (uint64_t)sizeof(struct brick_lane));
    l->sites = l->paths + brick_pages(h->paths * (uint64_t)8);
    l->names = l->sites + brick_pages(h->sites * (uint64_t)8);
    l->first = l->names + brick_pages(h->names * (uint64_t)sizeof(struct brick_name));
    l->sequences = 0;
    l->summaries = l->sequences + brick_pages(h->paths * (uint64_t)8);
    l->span_ring = l->summaries + h->paths * (uint64_t)sizeof(struct brick_summary);
    l->event_ring = l->span_ring + brick_pages(h->span_slots * (uint64_t)sizeof(struct brick_record));
    l->stride = l->event_ring + brick_pages(h->event_slots * (uint64_t)sizeof(struct brick_record));
    l->size = l->first + h->lanes * l->stride;
    return 1;
}

/* ---- the table of the layout ------------------------------------------- */

/* Every field of every shared struct: F(struct, field, code). The code is the letter of Python's struct module and of
 * numpy for the element type. The CRC in the header and the reader's structs are computed from this table. */
#define BRICK_LAYOUT(F) \
    F(header, magic, 'Q') F(header, endian, 'I') F(header, major, 'H') F(header, minor, 'H') \
    F(header, layout_crc, 'I') F(header, header_crc, 'I') F(header, size, 'Q') F(header, lanes, 'I') \
    F(header, paths, 'I') F(header, names, 'I') F(header, sites, 'I') F(header, span_slots, 'I') \
    F(header, event_slots, 'I') F(header, buckets, 'I') F(header, clock, 'I') F(header, anchor_ticks, 'Q') \
    F(header, anchor_ns, 'Q') F(header, started_ns, 'Q') F(header, process_start, 'Q') F(header, pid, 'I') \
    F(header, uid, 'I') F(header, index, 'i') F(header, reserved0, 'I') F(header, uuid, 'B') F(header, boot_id, 'B') \
    F(header, service, 'B') F(header, coordinates, 'B') F(header, reserved, 'B') \
    F(control, flags, 'I') F(control, fingerprint_rate, 'I') F(control, dump_site, 'Q') F(control, reopen, 'Q') \
    F(control, reserved, 'Q') F(control, sites, 'Q') \
    F(consumer, span, 'Q') F(consumer, event, 'Q') F(consumer, spans_lost, 'Q') F(consumer, events_read, 'Q') \
    F(consumer, reserved, 'Q') \
    F(process, names, 'Q') F(process, paths, 'Q') F(process, sites, 'Q') F(process, names_refused, 'Q') \
    F(process, names_cut, 'Q') F(process, no_lane, 'Q') F(process, lanes_refused, 'Q') F(process, blocks_refused, 'Q') \
    F(process, reserved, 'Q') \
    F(lane, begun, 'Q') F(lane, summarized, 'Q') F(lane, open, 'Q') F(lane, current, 'Q') F(lane, span_head, 'Q') \
    F(lane, span_attempts, 'Q') F(lane, opened, 'Q') F(lane, thread, 'Q') F(lane, abandoned, 'Q') \
    F(lane, rejected, 'Q') F(lane, nested, 'Q') F(lane, unmatched, 'Q') F(lane, amounts, 'Q') \
    F(lane, tails_refused, 'Q') F(lane, reserved1, 'Q') F(lane, span_dropped, 'Q') F(lane, event_head, 'Q') \
    F(lane, event_attempts, 'Q') F(lane, event_records, 'Q') F(lane, reserved2, 'Q') F(lane, event_dropped, 'Q') \
    F(lane, reserved3, 'Q') \
    F(name, word, 'I') F(name, category, 'I') F(name, text, 'B') \
    F(summary, count, 'Q') F(summary, total, 'Q') F(summary, child, 'Q') F(summary, again, 'Q') \
    F(summary, squares, 'd') F(summary, min, 'Q') F(summary, max, 'Q') F(summary, elements, 'Q') \
    F(summary, bytes, 'Q') F(summary, reserved, 'Q') F(summary, histogram, 'Q') \
    F(record, sequence, 'Q') F(record, payload, 'I') F(record, slots, 'H') F(record, kind, 'H') F(record, words, 'Q') \
    F(span, sequence, 'Q') F(span, path, 'I') F(span, slots, 'H') F(span, kind, 'H') F(span, start, 'Q') \
    F(span, duration, 'Q') F(span, child, 'Q') F(span, step, 'Q') F(span, elements, 'Q') F(span, bytes, 'Q')

/* Additions of minor versions: record kinds, and names for reserved fields. */
#define BRICK_LAYOUT_LATER(F) \
    F(defer, sequence, 'Q') F(defer, path, 'I') F(defer, slots, 'H') F(defer, kind, 'H') F(defer, start, 'Q') \
    F(defer, stream, 'Q') F(defer, id, 'Q') F(defer, step, 'Q') F(defer, elements, 'Q') F(defer, bytes, 'Q') \
    F(finalize, sequence, 'Q') F(finalize, every, 'I') F(finalize, slots, 'H') F(finalize, kind, 'H') \
    F(finalize, ticks, 'Q') F(finalize, stream, 'Q') F(finalize, reserved, 'Q') \
    F(measured, sequence, 'Q') F(measured, reserved0, 'I') F(measured, slots, 'H') F(measured, kind, 'H') \
    F(measured, id, 'Q') F(measured, elapsed_ns, 'Q') F(measured, reserved, 'Q') \
    F(checked, sequence, 'Q') F(checked, site, 'I') F(checked, slots, 'H') F(checked, kind, 'H') \
    F(checked, ticks, 'Q') F(checked, step, 'Q') F(checked, position, 'Q') F(checked, params, 'Q') \
    F(checked, valid, 'Q') F(checked, backend, 'H') F(checked, of, 'H') F(checked, relation, 'B') \
    F(checked, inputs, 'B') F(checked, flags, 'B') F(checked, reserved, 'B') \
    F(output, fnv1a, 'Q') F(output, dims, 'I') F(output, token, 'I') F(output, shape, 'Q') \
    F(tensor_sums, checksum, 'Q') F(tensor_sums, elements, 'Q') F(tensor_sums, mean, 'd') F(tensor_sums, l2, 'd') \
    F(tensor_sums, min, 'f') F(tensor_sums, max, 'f') F(tensor_sums, nan, 'I') F(tensor_sums, pos_inf, 'I') \
    F(tensor_sums, neg_inf, 'I') F(tensor_sums, shape, 'I') F(tensor_sums, dtype, 'B') \
    F(tensor_sums, reserved, 'B') \
    F(tensor_sketch, places, 'f') \
    F(source_piece, sequence, 'Q') F(source_piece, piece, 'I') F(source_piece, slots, 'H') F(source_piece, kind, 'H') F(source_piece, hash, 'Q') \
    F(source_piece, text, 'B') \
    F(step_text, sequence, 'Q') F(step_text, length, 'I') F(step_text, slots, 'H') F(step_text, kind, 'H') \
    F(step_text, text, 'B')

struct brick_field {
    const char *record; /* the struct, without its prefix */
    const char *name;
    uint32_t offset;
    uint32_t size;
    char code;
};

static const struct brick_field brick_fields[] = {
#define BRICK_FIELD(record, field, code)                                                                                \
    {#record, #field, (uint32_t)offsetof(struct brick_##record, field),                                                 \
     (uint32_t)sizeof(((struct brick_##record *)0)->field), code},
    BRICK_LAYOUT(BRICK_FIELD)
    BRICK_LAYOUT_LATER(BRICK_FIELD)
    {"process", "ended", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_ENDED), 8, 'Q'},
    {"process", "took", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_TOOK), 8, 'Q'},
    {"process", "sites_refused", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_SITES_REFUSED), 8,
     'Q'},
    {"process", "tensors_refused",
     (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_TENSORS_REFUSED), 8, 'Q'},
    {"process", "key", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_KEY), 8, 'Q'},
    {"process", "weights", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_WEIGHTS), 8, 'Q'},
    {"process", "scans", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_SCANS), 8, 'Q'},
    {"process", "rate", (uint32_t)(offsetof(struct brick_process, reserved) + 8u * BRICK_PROCESS_RATE), 8, 'Q'},
    {"header", "rate", (uint32_t)offsetof(struct brick_header, reserved), 4, 'I'},
    {"summary", "flops", (uint32_t)(offsetof(struct brick_summary, reserved) + 8u * BRICK_SUMMARY_FLOPS), 8, 'd'},
    {"lane", "marks", (uint32_t)(offsetof(struct brick_lane, reserved2) + 8u * BRICK_LANE_MARKS), 8, 'Q'},
    {"lane", "marks_refused", (uint32_t)(offsetof(struct brick_lane, reserved2) + 8u * BRICK_LANE_MARKS_REFUSED), 8, 'Q'},
    {"lane", "weights_every", (uint32_t)(offsetof(struct brick_lane, reserved3) + 8u * BRICK_LANE_WEIGHTS_EVERY), 8, 'Q'},
    {"lane", "weights_once", (uint32_t)(offsetof(struct brick_lane, reserved3) + 8u * BRICK_LANE_WEIGHTS_ONCE), 8, 'Q'},
    {"lane", "rows_turns", (uint32_t)(offsetof(struct brick_lane, reserved3) + 8u * BRICK_LANE_ROWS_TURNS), 8, 'Q'},
    {"control", "weights", (uint32_t)(offsetof(struct brick_control, reserved) + 8u * BRICK_CONTROL_WEIGHTS), 8, 'Q'},
    {"control", "attached", (uint32_t)(offsetof(struct brick_control, reserved) + 8u * BRICK_CONTROL_ATTACHED), 8, 'Q'},
    {"control", "epoch", (uint32_t)(offsetof(struct brick_control, reserved) + 8u * BRICK_CONTROL_EPOCH), 8, 'Q'},
    {"control", "canary", (uint32_t)(offsetof(struct brick_control, reserved) + 8u * BRICK_CONTROL_CANARY), 8, 'Q'},
#undef BRICK_FIELD
};
#define BRICK_FIELD_COUNT (sizeof(brick_fields) / sizeof(brick_fields[0]))
#define BRICK_ONE(record, field, code) +1u
#define BRICK_FROZEN_COUNT (0u BRICK_LAYOUT(BRICK_ONE)) /* the fields of BRICK_LAYOUT, which come first */

static inline uint32_t brick_crc32(uint32_t crc, const void *data, size_t length)
{
    static const uint32_t of_four_bits[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    const uint8_t *p = (const uint8_t *)data;
    crc = ~crc;
    while (length-- > 0) {
        crc ^= *p++;
        crc = crc >> 4 ^ of_four_bits[crc & 15u];
        crc = crc >> 4 ^ of_four_bits[crc & 15u];
    }
    return ~crc;
}

static inline uint32_t brick_layout_crc(void)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < BRICK_FROZEN_COUNT; i++) {
        const struct brick_field *f = &brick_fields[i];
        for (const char *text = f->record; *text != 0; text++)
            crc = brick_crc32(crc, text, 1);
        for (const char *text = f->name; *text != 0; text++)
            crc = brick_crc32(crc, text, 1);
        crc = brick_crc32(crc, &f->offset, sizeof f->offset);
        crc = brick_crc32(crc, &f->size, sizeof f->size);
        crc = brick_crc32(crc, &f->code, 1);
    }
    return crc;
}

static inline uint32_t brick_header_crc(const struct brick_header *h)
{
    struct brick_header copy = *h;
    copy.magic = 0;
    copy.header_crc = 0;
    return brick_crc32(0, &copy, sizeof copy);
}

#endif
