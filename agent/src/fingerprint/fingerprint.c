/* fingerprint/fingerprint.c - the fingerprint of a tensor, as brick_fingerprint.h defines it.
 *
 * Owns views (a tensor's elements in flat order), the incomplete block at the end, the computation of the result from
 * the sums, and the state of a tensor that is read in pieces. Must not know segments or records. Invariants: a
 * fingerprint reads only the view and writes only the result; each element is read once, unless float64 needs another
 * scale.
 *
 * The tensor is read in pieces that stay in the first-level cache; a piece that is not contiguous is gathered first. A
 * piece is first summed without checks, which is right if all its elements are finite, the usual case. If some are not,
 * the piece is summed again with checks.
 */
#include "simd.h"
#include "fp_modes.h"
#include "brick_hash.h"
#include "brick_siphash.h"

#include <string.h>

#define PIECE_BYTES (BRICK_PIECE_BLOCKS * BRICK_SIXTEEN * 4)
#define PIECE_ELEMENTS (BRICK_PIECE_BLOCKS * BRICK_SIXTEEN)
#define CARE_BLOCKS 16 /* blocks per call when elements are checked */
#define FNV_ELEMENTS 64

/* For each dtype: the size of an element, and whether some of its values are not exact in float32 and need float64. */
static const struct {
    uint8_t size;
    bool wide;
} dtypes[BRICK_DTYPES] = {
    [BRICK_BOOL] = {1, false},
    [BRICK_INT8] = {1, false},
    [BRICK_INT16] = {2, false},
    [BRICK_INT32] = {4, true},
    [BRICK_INT64] = {8, true},
    [BRICK_UINT8] = {1, false},
    [BRICK_UINT16] = {2, false},
    [BRICK_UINT32] = {4, true},
    [BRICK_UINT64] = {8, true},
    [BRICK_FLOAT16] = {2, false},
    [BRICK_BFLOAT16] = {2, false},
    [BRICK_FLOAT32] = {4, false},
    [BRICK_FLOAT64] = {8, true},
    [BRICK_FLOAT8_E4M3FN] = {1, false},
    [BRICK_FLOAT8_E4M3FNUZ] = {1, false},
    [BRICK_FLOAT8_E5M2] = {1, false},
    [BRICK_FLOAT8_E5M2FNUZ] = {1, false},
};

uint32_t brick_dtype_size(uint32_t dtype) { return dtype < BRICK_DTYPES ? dtypes[dtype].size : 0; }

/* ---- views -------------------------------------------------------------- */

/* The valid elements, in flat order. Dimensions of size 1 are dropped, and contiguous dimensions are merged. */
struct view {
    const char *data;
    uint64_t elements;
    size_t size; /* the size of an element */
    uint32_t dims;
    /* stride: in bytes, modulo 2^64, so that a negative stride wraps */
    uint64_t shape[BRICK_DIMS_MAX], stride[BRICK_DIMS_MAX];
    uint64_t index[BRICK_DIMS_MAX], offset;                 /* the position of the next element to gather */
};

static const char *make_view(struct view *v, const struct brick_tensor *t)
{
    if (t->dtype == 0 || t->dtype >= BRICK_DTYPES)
        return "its dtype is not one of brick_dtype";
    if (t->dims > BRICK_DIMS_MAX)
        return "it has more than 64 dimensions";
    if (t->dims > 0 && t->shape == NULL)
        return "it has no shape";
    if (t->valid != BRICK_ALL_ROWS && (t->dims == 0 || t->shape[0] < 0 || t->valid > (uint64_t)t->shape[0]))
        return "it has fewer rows than are valid";
    v->data = t->data;
    v->elements = 1;
    v->size = dtypes[t->dtype].size;
    v->dims = 0;
    bool empty = t->valid == 0;
    for (uint32_t d = 0; d < t->dims; d++) {
        if (t->shape[d] < 0)
            return "a dimension is negative";
        empty |= t->shape[d] == 0;
    }
    if (empty) {
        v->elements = 0;
        return NULL;
    }
    if (t->data == NULL)
        return "it has no data";
    uint64_t dense = v->size; /* the loop starts at the last dimension */
    for (uint32_t d = t->dims; d-- > 0;) {
        uint64_t count = d == 0 && t->valid != BRICK_ALL_ROWS ? t->valid : (uint64_t)t->shape[d];
        uint64_t stride = t->strides != NULL ? (uint64_t)t->strides[d] : dense;
        if (__builtin_mul_overflow(v->elements, count, &v->elements) || v->elements > INT64_MAX / v->size)
            return "it has more than 2^63 bytes";
        dense *= (uint64_t)t->shape[d];
        uint32_t outermost = v->dims - 1; /* the bytes of the dimensions so far, the innermost first */
        if (count == 1)
            continue;
        if (v->dims > 0 && stride == v->shape[outermost] * v->stride[outermost]) {
            v->shape[outermost] *= count;
            continue;
        }
        v->shape[v->dims] = count;
        v->stride[v->dims++] = stride;
    }
    return NULL;
}

static void copy_elements(char *to, const char *data, uint64_t offset, uint64_t stride, size_t size, size_t count)
{
    if (stride == size) {
        memcpy(to, data + offset, count * size);
        return;
    }
    switch (size) {
    case 1:
        for (size_t i = 0; i < count; i++, to += 1, offset += stride)
            *to = data[offset];
        break;
    case 2:
        for (size_t i = 0; i < count; i++, to += 2, offset += stride)
            memcpy(to, data + offset, 2);
        break;
    case 4:
        for (size_t i = 0; i < count; i++, to += 4, offset += stride)
            memcpy(to, data + offset, 4);
        break;
    default:
        for (size_t i = 0; i < count; i++, to += 8, offset += stride)
            memcpy(to, data + offset, 8);
    }
}

static void rewind_view(struct view *v)
{
    v->offset = 0;
    for (uint32_t d = 0; d < v->dims; d++)
        v->index[d] = 0;
}

/* Copies the next `count` elements, which must exist. */
static void gather(struct view *v, char *to, size_t count)
{
    while (count > 0) {
        uint64_t left = v->shape[0] - v->index[0];
        size_t run = left < count ? (size_t)left : count;
        copy_elements(to, v->data, v->offset, v->stride[0], v->size, run);
        to += run * v->size;
        count -= run;
        v->index[0] += run;
        v->offset += run * v->stride[0];
        for (uint32_t d = 0; v->index[d] == v->shape[d] && d + 1 < v->dims; d++) {
            v->offset -= v->shape[d] * v->stride[d];
            v->index[d] = 0;
            v->index[d + 1]++;
            v->offset += v->stride[d + 1];
        }
    }
}

/* ---- a pass over the data ------------------------------------------------ */

struct pass {
    const struct brick_kernel *kernel;
    uint32_t dtype;
    struct brick_fingerprint_key key;
    uint64_t hashed;   /* the key for the hashes of blocks, derived from `key` */
    double scale;      /* the factor for float64 elements */
    uint64_t words;    /* number of blocks of words so far */
    uint64_t elements; /* number of blocks of elements so far */
    uint64_t sum;      /* the sum over the words */
    uint64_t fnv1a;
    bool with_fnv1a;
    struct brick_sums sums;
};

static void begin(struct pass *p, const struct brick_kernel *kernel, uint32_t dtype, struct brick_fingerprint_key key,
                  bool with_fnv1a, double scale)
{
    p->kernel = kernel;
    p->dtype = dtype;
    p->key = key;
    p->hashed = brick_siphash(key.words, NULL, 0);
    p->scale = scale;
    p->words = p->elements = p->sum = 0;
    p->fnv1a = with_fnv1a ? brick_fnv1a(NULL, 0) : 0;
    p->with_fnv1a = with_fnv1a;
    memset(&p->sums, 0, sizeof p->sums);
    for (int j = 0; j < BRICK_SIXTEEN; j++) {
        p->sums.bounds.least[j] = __builtin_inf();
        p->sums.bounds.most[j] = -__builtin_inf();
    }
}

static void to_doubles(const struct pass *p, const char *elements, double *to, size_t blocks)
{
    float narrow[CARE_BLOCKS * BRICK_SIXTEEN];
    if (p->dtype == BRICK_FLOAT64)
        memcpy(to, elements, blocks * BRICK_SIXTEEN * sizeof *to);
    else if (p->dtype == BRICK_FLOAT32)
        memcpy(narrow, elements, blocks * BRICK_SIXTEEN * sizeof *narrow);
    else
        p->kernel->widen[p->dtype](elements, dtypes[p->dtype].wide ? (void *)to : narrow, blocks);
    if (!dtypes[p->dtype].wide)
        p->kernel->promote(narrow, to, blocks);
}

static void add_clean(struct pass *p, double *elements, const uint64_t *hashes, size_t blocks)
{
    struct brick_sums *sums = &p->sums;
    p->kernel->clean(sums, elements, blocks);
    const struct brick_bounds bounds = sums->bounds; /* without the zeros that `clean` puts in place of elements */
    p->kernel->doubles(sums, elements, hashes, blocks, p->scale);
    sums->bounds = bounds;
}

static __attribute__((noinline)) void add_with_care(struct pass *p, const char *elements, const uint64_t *hashes,
                                                    size_t blocks)
{
    double cleaned[CARE_BLOCKS * BRICK_SIXTEEN] BRICK_ALIGNED;
    for (size_t done = 0; done < blocks; done += CARE_BLOCKS) {
        size_t count = blocks - done < CARE_BLOCKS ? blocks - done : CARE_BLOCKS;
        to_doubles(p, elements + done * BRICK_SIXTEEN * dtypes[p->dtype].size, cleaned, count);
        add_clean(p, cleaned, hashes + done, count);
    }
}

/* Adds the incomplete block at the end. It is padded with NaN, which only the count of NaN notices, and is corrected
 * there. */
static __attribute__((noinline)) void add_rest(struct pass *p, const char *elements, const uint64_t *hash, size_t count)
{
    char padded[BRICK_SIXTEEN * 8] = {0};
    double cleaned[BRICK_SIXTEEN] BRICK_ALIGNED;
    memcpy(padded, elements, count * dtypes[p->dtype].size);
    to_doubles(p, padded, cleaned, 1);
    for (size_t j = count; j < BRICK_SIXTEEN; j++)
        cleaned[j] = __builtin_nan("");
    add_clean(p, cleaned, hash, 1);
    p->sums.nan -= BRICK_SIXTEEN - count;
}

/* Adds at most PIECE_ELEMENTS elements, starting at a block border, with the hashes of their blocks. */
static void add_elements(struct pass *p, const char *elements, const uint64_t *hashes, size_t count)
{
    const struct brick_kernel *kernel = p->kernel;
    union {
        float narrow[PIECE_ELEMENTS];
        double wide[PIECE_ELEMENTS];
    } widened BRICK_ALIGNED;
    size_t blocks = count / BRICK_SIXTEEN, rest = count % BRICK_SIXTEEN;
    const void *from = elements;
    if (kernel->widen[p->dtype] != NULL) {
        kernel->widen[p->dtype](elements, &widened, blocks);
        from = &widened;
    }
    bool added = dtypes[p->dtype].wide ? kernel->doubles(&p->sums, from, hashes, blocks, p->scale)
                                       : kernel->floats(&p->sums, from, hashes, blocks);
    if (!added)
        add_with_care(p, elements, hashes, blocks);
    if (rest > 0)
        add_rest(p, elements + blocks * BRICK_SIXTEEN * dtypes[p->dtype].size, hashes + blocks, rest);
}

/* Adds at most PIECE_BYTES bytes, starting at a block border. Only the last piece may end in the middle of a block. */
static void add_piece(struct pass *p, const char *bytes, size_t length)
{
    const struct brick_kernel *kernel = p->kernel;
    uint64_t hashes[BRICK_PIECE_BLOCKS] BRICK_ALIGNED;
    size_t size = dtypes[p->dtype].size, blocks = length / 64, rest = length % 64;
    kernel->hashes(hashes, p->words, blocks + (rest > 0), p->hashed);
    p->sum += kernel->checksum(bytes, hashes, blocks);
    if (rest > 0) {
        char last[64] = {0};
        memcpy(last, bytes + blocks * 64, rest);
        p->sum += kernel->checksum(last, hashes + blocks, 1);
    }
    p->words += blocks;
    if (size == 4) {
        add_elements(p, bytes, hashes, length / 4);
        return;
    }
    for (size_t left = length / size; left > 0;) {
        size_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
        kernel->hashes(hashes, p->elements, (count + BRICK_SIXTEEN - 1) / BRICK_SIXTEEN, p->hashed);
        add_elements(p, bytes, hashes, count);
        bytes += count * size;
        p->elements += count / BRICK_SIXTEEN;
        left -= count;
    }
}

static uint64_t fnv1a(const struct pass *p, const char *elements, size_t count)
{
    uint8_t bytes[FNV_ELEMENTS * 4];
    if (p->dtype == BRICK_FLOAT32) {
        memcpy(bytes, elements, count * 4);
    } else {
        char padded[FNV_ELEMENTS * 8] = {0};
        double wide[FNV_ELEMENTS];
        memcpy(padded, elements, count * dtypes[p->dtype].size);
        to_doubles(p, padded, wide, FNV_ELEMENTS / BRICK_SIXTEEN);
        for (size_t i = 0; i < count; i++) {
            float narrow = wide[i] == wide[i] ? (float)wide[i] : __builtin_nanf("");
            memcpy(bytes + 4 * i, &narrow, 4);
        }
    }
    return brick_fnv1a(bytes, 4 * count);
}

/* Reads `elements` of the *left remaining elements, in complete pieces except at the end. */
static void walk(struct pass *p, struct view *v, uint64_t *left, uint64_t elements)
{
    char gathered[PIECE_BYTES] BRICK_ALIGNED;
    const bool one_run = v->dims == 0 || (v->dims == 1 && v->stride[0] == v->size);
    const uint64_t most = PIECE_BYTES / v->size, until = *left > elements ? *left - elements : 0;
    const char *from = one_run && v->data != NULL ? v->data + (v->elements - *left) * v->size : gathered;
    while (*left > until) {
        size_t count = *left < most ? (size_t)*left : (size_t)most;
        if (!one_run)
            gather(v, gathered, count);
        if (*left == v->elements && p->with_fnv1a)
            p->fnv1a = fnv1a(p, from, count < FNV_ELEMENTS ? count : FNV_ELEMENTS);
        add_piece(p, from, count * v->size);
        if (one_run)
            from += count * v->size;
        *left -= count;
    }
}

/* ---- results --------------------------------------------------------------- */

/* Returns the square root, exact to 1e-15. sqrt() would need the mathematical library, which the writer does not
 * link. */
static double square_root(double x)
{
    uint64_t bits;
    double root;
    if (!(x > 0) || x - x != 0)
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits >> 1) + (UINT64_C(1023) << 51); /* halving the exponent gives a start value within 7 % */
    memcpy(&root, &bits, sizeof root);
    for (int i = 0; i < 4; i++)
        root = 0.5 * (root + x / root);
    return root;
}

static double power_of_two(uint64_t exponent) /* the biased exponent of float64: 1 to 2046 */
{
    uint64_t bits = exponent << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Returns the exponent of the scale: a power of two that float64 elements are multiplied by, so that squares and sums
 * stay in range. The scale is nearly always 1. */
static uint64_t scale_exponent(double magnitude)
{
    uint64_t bits;
    if (magnitude == 0 || (magnitude <= 0x1p480 && magnitude >= 0x1p-480))
        return 1023;
    memcpy(&bits, &magnitude, sizeof bits);
    uint64_t exponent = 2046 - (bits >> 52);
    return exponent < 1 ? 1 : exponent > 2045 ? 2045 : exponent;
}

static void put_sums(struct brick_fingerprint *f, const struct pass *p, double unscaled)
{
    const struct brick_sums *s = &p->sums;
    uint64_t finite = f->elements - s->nan - s->pos_inf - s->neg_inf;
    const unsigned lanes = p->kernel->lanes; /* a power of two */
    double sum = 0, squares = 0;
    for (unsigned j = 0; j < BRICK_SIXTEEN; j++) {
        double place = 0;
        for (unsigned k = 0; k < lanes; k++)
            place += s->bins[((j & -lanes) + k) * lanes + ((j ^ k) & (lanes - 1))];
        f->sketch[j] = (float)(place * unscaled);
        sum += s->sum[j];
        squares += s->squares[j];
    }
    f->mean = finite > 0 ? sum / (double)finite * unscaled : 0;
    f->l2 = square_root(squares) * unscaled;
}

/* Sets all fields that do not depend on sums or squares. Returns the exponent of the scale that the sums need. */
static uint64_t put_bounds(struct brick_fingerprint *f, const struct view *v, const struct pass *p)
{
    const struct brick_sums *s = &p->sums;
    double least = s->bounds.least[0], most = s->bounds.most[0];
    for (int j = 1; j < BRICK_SIXTEEN; j++) {
        least = s->bounds.least[j] < least ? s->bounds.least[j] : least;
        most = s->bounds.most[j] > most ? s->bounds.most[j] : most;
    }
    f->elements = v->elements;
    f->bytes = v->elements * v->size;
    f->checksum = brick_siphash(p->key.words, (const uint64_t[]){p->sum, f->bytes, p->dtype}, 3);
    f->fnv1a = p->fnv1a;
    f->nan = s->nan;
    f->pos_inf = s->pos_inf;
    f->neg_inf = s->neg_inf;
    bool none = least > most;
    f->min = none ? 0 : least + 0.0; /* -0 becomes 0 */
    f->max = none ? 0 : most + 0.0;
    return scale_exponent(f->max > -f->min ? f->max : -f->min);
}

/* ---- in pieces ------------------------------------------------------------- */

/* The state of a tensor in pieces. */
struct course {
    struct view view;
    struct pass pass;
    uint64_t left;     /* elements left in this pass */
    uint64_t exponent; /* the exponent of the scale; 0 during the first pass */
    struct brick_fingerprint found;
};
BRICK_ASSERT(sizeof(struct course) + 64 <= sizeof(struct brick_pieces), "there is room for any alignment");

/* Aligns the state for the widest vectors, because the caller's memory may have any alignment. */
static struct course *course_of(const struct brick_pieces *pieces)
{
    return (struct course *)(((uintptr_t)pieces + 63) / 64 * 64);
}

/* Returns false when all elements are read. */
static bool course_add(struct course *c, uint64_t bytes)
{
    const uint64_t most = PIECE_BYTES / c->view.size, elements = bytes / c->view.size / most * most;
    const unsigned hosts = brick_modes_usual();
    walk(&c->pass, &c->view, &c->left, elements > 0 ? elements : most);
    bool more = c->left > 0;
    if (!more && c->exponent == 0) {
        c->exponent = put_bounds(&c->found, &c->view, &c->pass);
        if (c->exponent != 1023) {
            begin(&c->pass, c->pass.kernel, c->pass.dtype, c->pass.key, c->pass.with_fnv1a, power_of_two(c->exponent));
            rewind_view(&c->view);
            c->left = c->view.elements;
            more = true;
        }
    }
    if (!more)
        put_sums(&c->found, &c->pass, power_of_two(2046 - c->exponent));
    brick_modes_restore(hosts);
    return more;
}

static const char *course_begin(struct course *c, const struct brick_kernel *kernel, const struct brick_tensor *tensor,
                                struct brick_fingerprint_key key, bool with_fnv1a)
{
    memset(&c->found, 0, sizeof c->found);
    const char *refused = make_view(&c->view, tensor);
    if (refused != NULL)
        return refused;
    begin(&c->pass, kernel, tensor->dtype, key, with_fnv1a, 1);
    rewind_view(&c->view);
    c->left = c->view.elements;
    c->exponent = 0;
    return NULL;
}

static bool is_begun(const struct course *c, const struct brick_tensor *tensor)
{
    struct view v;
    return tensor->dtype == c->pass.dtype && make_view(&v, tensor) == NULL && v.data == c->view.data
           && v.elements == c->view.elements && v.dims == c->view.dims
           && memcmp(v.shape, c->view.shape, v.dims * sizeof *v.shape) == 0
           && memcmp(v.stride, c->view.stride, v.dims * sizeof *v.stride) == 0;
}

const char *brick_pieces_begin_with(const struct brick_kernel *kernel, struct brick_pieces *pieces,
                                    const struct brick_tensor *tensor, struct brick_fingerprint_key key)
{
    return course_begin(course_of(pieces), kernel, tensor, key, true);
}

const char *brick_pieces_begin(struct brick_pieces *pieces, const struct brick_tensor *tensor,
                               struct brick_fingerprint_key key)
{
    return brick_pieces_begin_with(brick_kernel_choose(), pieces, tensor, key);
}

enum brick_pieces_state brick_pieces_add(struct brick_pieces *pieces, const struct brick_tensor *tensor, uint64_t bytes)
{
    struct course *c = course_of(pieces);
    if (!is_begun(c, tensor))
        return BRICK_PIECES_MOVED;
    return course_add(c, bytes) ? BRICK_PIECES_MORE : BRICK_PIECES_DONE;
}

void brick_pieces_end(const struct brick_pieces *pieces, struct brick_fingerprint *fingerprint)
{
    *fingerprint = course_of(pieces)->found;
}

/* ---- whole ----------------------------------------------------------------- */

static const char *whole(const struct brick_kernel *kernel, const struct brick_tensor *tensor,
                         struct brick_fingerprint_key key, bool with_fnv1a, struct brick_fingerprint *fingerprint)
{
    struct course course;
    const char *refused = course_begin(&course, kernel, tensor, key, with_fnv1a);
    while (refused == NULL && course_add(&course, UINT64_MAX))
        continue;
    *fingerprint = course.found;
    return refused;
}

const char *brick_fingerprint_with(const struct brick_kernel *kernel, const struct brick_tensor *tensor,
                                   struct brick_fingerprint_key key, struct brick_fingerprint *fingerprint)
{
    return whole(kernel, tensor, key, true, fingerprint);
}

const char *brick_fingerprint(const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                              struct brick_fingerprint *fingerprint)
{
    return whole(brick_kernel_choose(), tensor, key, true, fingerprint);
}

const char *brick_fingerprint_small(const struct brick_tensor *tensor, struct brick_fingerprint_key key,
                                    struct brick_fingerprint *fingerprint)
{
    return whole(brick_kernel_choose(), tensor, key, false, fingerprint);
}
