/* config.c - the settings of a segment: from the host's configuration, else from BRICKD_* variables. */
#include "config.h"
#include "clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *setting(const char *given, const char *variable, const char *otherwise)
{
    const char *value = given != NULL ? given : getenv(variable);
    return value != NULL && *value != 0 ? value : otherwise;
}

/* Returns 0 if the variable is not a number in range. */
static uint32_t number_setting(uint32_t given, const char *variable, uint32_t otherwise)
{
    const char *value = setting(NULL, variable, "");
    if (given != 0 || *value == 0)
        return given != 0 ? given : otherwise;
    char *end;
    unsigned long number = strtoul(value, &end, 10);
    return *value >= '0' && *value <= '9' && *end == 0 && number <= UINT32_MAX ? (uint32_t)number : 0;
}

/* Rounds up to a multiple of BRICK_BLOCK, at most `most`, which is also a multiple. */
static uint32_t rounded_up(uint32_t n, uint32_t most)
{
    return n > most ? most : (n + BRICK_BLOCK - 1) / BRICK_BLOCK * BRICK_BLOCK;
}

void brick_config_round(struct brick_config *c)
{
    c->paths = rounded_up(c->paths, BRICK_NUMBERS_MAX);
    c->names = rounded_up(c->names, BRICK_NUMBERS_MAX);
    c->sites = rounded_up(c->sites, BRICK_SITES_MAX);
}

#define RATE_OF_MAX 1000000u
#define EVENTS_MAX (UINT32_C(1) << 20) /* 64 MiB per thread */

static uint32_t power_of_two(uint32_t n, uint32_t most)
{
    return n >= most ? most : n <= 1 ? n : UINT32_C(1) << (32 - __builtin_clz(n - 1));
}

/* Truncates a text between two characters. Replaces control characters, which would break a line, and one other
 * character with '_'. */
static void clean_copy(uint8_t *to, size_t size, const char *text, uint8_t also)
{
    size_t length = strlen(text);
    memset(to, 0, size);
    if (length >= size)
        length = brick_whole_characters(text, size - 1);
    for (size_t i = 0; i < length; i++)
        to[i] = (uint8_t)text[i] < 0x20 || text[i] == 0x7F || (uint8_t)text[i] == also ? '_' : (uint8_t)text[i];
}

/* A '/' would break a path. */
static void label(uint8_t *to, size_t size, const char *text) { clean_copy(to, size, text, '/'); }

/* A worker is a number, coordinates such as "0.tp3.pp1", or a name. */
static void worker_label(struct brick_header *h, const char *worker)
{
    char *rest;
    const long index = strtol(worker, &rest, 10);
    const int numbered = rest != worker && index >= 0 && index <= INT32_MAX && (*rest == 0 || *rest == '.');
    h->index = numbered ? (int32_t)index : -1;
    label(h->coordinates, sizeof h->coordinates, *rest != 0 ? worker : ""); /* a plain number is only in `index` */
}

/* Returns the rate of steps: "off", "all" or "1/16". Returns 0 if the variable is not set; sets *wrong for other
 * values. */
static uint32_t rate_setting(int *wrong)
{
    const char *value = setting(NULL, "BRICKD_FINGERPRINTS", "");
    if (*value == 0 || strcmp(value, "all") == 0)
        return *value == 0 ? 0 : BRICK_RATE_ALL;
    if (strcmp(value, "off") == 0)
        return BRICK_RATE_NONE;
    char *end;
    const unsigned long of = strncmp(value, "1/", 2) == 0 && value[2] >= '0' && value[2] <= '9' ? strtoul(value + 2, &end, 10) : 0;
    *wrong = of == 0 || of > RATE_OF_MAX || *end != 0;
    return *wrong ? 0 : of == 1 ? BRICK_RATE_ALL : (uint32_t)((UINT64_C(1) << 32) / of);
}

int brick_config_is_off(void) { return strcmp(setting(NULL, "BRICKD", "1"), "0") == 0; }

/* Returns the rule with the refused value, in a buffer of the only thread that opens the segment. */
static const char *refused(const char *rule, const char *value)
{
    static char text[160];
    uint8_t shown[41];
    clean_copy(shown, sizeof shown, value, 0x7F);
    snprintf(text, sizeof text, "%s, not '%s'", rule, (const char *)shown);
    return text;
}

#define NUMBER_ABOVE_0(VARIABLE) VARIABLE " must be a number above 0", VARIABLE

/* Returns NULL, or an error text about the first number that is 0: its variable is not a number in range. */
static const char *wrong_number(const struct brick_header *h)
{
    const struct {
        const char *rule, *variable;
        uint32_t value;
    } numbers[] = {
        {NUMBER_ABOVE_0("BRICKD_LANES"), h->lanes}, {NUMBER_ABOVE_0("BRICKD_PATHS"), h->paths},
        {NUMBER_ABOVE_0("BRICKD_NAMES"), h->names}, {NUMBER_ABOVE_0("BRICKD_SITES"), h->sites},
        {NUMBER_ABOVE_0("BRICKD_EVENTS"), h->event_slots},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value == 0)
            return refused(numbers[i].rule, setting(NULL, numbers[i].variable, "0"));
    return NULL;
}

const char *brick_plan_make(struct brick_plan *plan, const struct brick_config *c)
{
    struct brick_header *h = &plan->header;
    memset(plan, 0, sizeof *plan);
    const char *prefix = setting(c->prefix, "BRICKD_SHM_PREFIX", BRICK_PREFIX);
    if (strlen(prefix) >= sizeof plan->prefix || strchr(prefix, '/') != NULL)
        return refused("BRICKD_SHM_PREFIX must be at most 39 bytes without a slash", prefix);
    strcpy(plan->prefix, prefix);
    const char *clock = setting(c->clock, "BRICKD_CLOCK", "auto");
    if (strcmp(clock, "auto") != 0 && strcmp(clock, "tsc") != 0 && strcmp(clock, "monotonic") != 0)
        return refused("BRICKD_CLOCK must be auto, tsc or monotonic", clock);
    h->clock = brick_clock_choose(
        clock, setting(c->clocksource, "", "/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    h->lanes = number_setting(c->lanes, "BRICKD_LANES", 32);
    h->paths = rounded_up(number_setting(c->paths, "BRICKD_PATHS", 8192), BRICK_NUMBERS_MAX);
    h->names = rounded_up(number_setting(c->names, "BRICKD_NAMES", 4096), BRICK_NUMBERS_MAX);
    h->sites = rounded_up(number_setting(c->sites, "BRICKD_SITES", 2048), BRICK_SITES_MAX);
    h->event_slots = power_of_two(number_setting(c->event_slots, "BRICKD_EVENTS", 4096), EVENTS_MAX);
    const char *number = wrong_number(h);
    if (number != NULL)
        return number;
    int wrong = 0;
    plan->rate = rate_setting(&wrong);
    if (wrong)
        return refused("BRICKD_FINGERPRINTS must be off, all, or 1/N: one step of every N (N up to 1000000)",
                       setting(NULL, "BRICKD_FINGERPRINTS", ""));
    h->span_slots = c->span_slots != 0 ? c->span_slots : 4096;
    h->buckets = BRICK_BUCKETS;
    label(h->service, sizeof h->service, setting(c->service, "BRICKD_SERVICE", program_invocation_short_name));
    worker_label(h, setting(c->worker, "BRICKD_WORKER", ""));
    return NULL;
}

void brick_plan_name_child(struct brick_plan *plan, const struct brick_config *c)
{
    const char *worker = setting(c->worker, "", "");
    if (*worker != 0)
        worker_label(&plan->header, worker);
}

int brick_plan_is_of(const struct brick_plan *plan, const char *service, const char *worker)
{
    struct brick_header h;
    memcpy(&h, &plan->header, sizeof h);
    if (service != NULL && *service != 0)
        label(h.service, sizeof h.service, service);
    if (worker != NULL && *worker != 0)
        worker_label(&h, worker);
    return memcmp(&h, &plan->header, sizeof h) == 0;
}
