/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

static_assert((int)METRIC__COUNT <= (int)METRICS_VALUES, "the memory has room for every metric");
static_assert(sizeof(_Atomic int64_t) == sizeof(int64_t), "a metric is one 64-bit word");

/* Gauges of what a process itself has open. */
enum own_gauge { OWN_NONE, OWN_CONNS_OPEN, OWN_CONNS_WAITING, OWN__COUNT };

static const unsigned char OWN[METRIC__COUNT] = {
    [METRIC_CONNS_OPEN] = OWN_CONNS_OPEN,
    [METRIC_CONNS_WAITING] = OWN_CONNS_WAITING,
};

/* What is a process' own. The process holds the mutex as long as it lives: it is a robust one, so the
 * kernel gives it up for a process that ends in whatever way. */
struct part {
    _Alignas(64) pthread_mutex_t life;
    _Atomic int64_t value[OWN__COUNT - 1];
};

struct memory {
    _Atomic int64_t value[METRICS_VALUES];
    struct part part[METRICS_PARTS];
};
static_assert(sizeof(struct memory) == METRICS_WORDS * sizeof(int64_t), "as metrics.h says");

struct metric_info {
    const char *name;
    const char *type;
    const char *labels;
    const char *help;
};

static const struct metric_info INFO[METRIC__COUNT] = {
#define METRIC(id, type_, name_, labels_, help_) \
    [METRIC_##id] = { .name = (name_), .type = #type_, .labels = (labels_), .help = (help_) },
#include "base/metrics.def"
#undef METRIC
};

static _Atomic int64_t own[METRIC__COUNT];
static _Atomic int64_t *values = own;
static struct part *parts; /* NULL: no memory is attached */
static struct part *ours;  /* NULL: we have none */

void metrics_format(void *memory)
{
    struct memory *m = memory;
    pthread_mutexattr_t attr;

    (void)pthread_mutexattr_init(&attr);
    (void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < METRICS_PARTS; i++)
        (void)pthread_mutex_init(&m->part[i].life, &attr);
    (void)pthread_mutexattr_destroy(&attr);
}

void metrics_attach(void *memory)
{
    struct memory *m = memory;

    values = m->value;
    parts = m->part;
    for (int i = 0; i < METRIC__COUNT; i++)
        metric_add((enum metric)i, atomic_exchange_explicit(&own[i], 0, memory_order_relaxed));
}

/* True when nobody who lives has the part; it is empty and locked then. */
static bool take(struct part *p)
{
    int rc = pthread_mutex_trylock(&p->life);

    if (rc != 0 && rc != EOWNERDEAD)
        return false;
    for (int i = 0; i < OWN__COUNT - 1; i++)
        atomic_store_explicit(&p->value[i], 0, memory_order_relaxed);
    if (rc == EOWNERDEAD)
        (void)pthread_mutex_consistent(&p->life);
    return true;
}

void metrics_join(void)
{
    for (int i = 0; parts != NULL && ours == NULL && i < METRICS_PARTS; i++)
        if (take(&parts[i]))
            ours = &parts[i];
}

/* What living processes have in their parts. */
static int64_t sum_of_parts(int gauge)
{
    int64_t sum = 0;

    for (int i = 0; parts != NULL && i < METRICS_PARTS; i++) {
        if (take(&parts[i]))
            (void)pthread_mutex_unlock(&parts[i].life);
        else
            sum += atomic_load_explicit(&parts[i].value[gauge - 1], memory_order_relaxed);
    }
    return sum;
}

void metric_add(enum metric m, int64_t n)
{
    _Atomic int64_t *at =
        ours != NULL && OWN[m] != OWN_NONE ? &ours->value[OWN[m] - 1] : &values[m];

    atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

void metric_set(enum metric m, int64_t value)
{
    atomic_store_explicit(&values[m], value, memory_order_relaxed);
}

int64_t metric_get(enum metric m)
{
    int64_t value = atomic_load_explicit(&values[m], memory_order_relaxed);

    return OWN[m] == OWN_NONE ? value : value + sum_of_parts(OWN[m]);
}

static void print_value(const struct metric_info *info, int64_t value, struct buf *out)
{
    buf_puts(out, info->name);
    if (*info->labels)
        buf_printf(out, "{%s}", info->labels);
    if (!str_ends(info->name, "_seconds_total")) {
        buf_printf(out, " %" PRId64 "\n", value);
        return;
    }
    uint64_t us = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    buf_printf(out, " %s%" PRIu64 ".%06" PRIu64 "\n", value < 0 ? "-" : "", us / (uint64_t)US_PER_S,
        us % (uint64_t)US_PER_S);
}

void metrics_print(struct buf *out)
{
    const char *last = "";

    for (int m = 0; m < METRIC__COUNT; m++) {
        const struct metric_info *info = &INFO[m];
        if (strcmp(info->name, last) != 0)
            buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", info->name, info->help, info->name,
                info->type);
        last = info->name;
        print_value(info, metric_get((enum metric)m), out);
    }
}
