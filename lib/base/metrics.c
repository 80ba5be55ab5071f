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
enum own_gauge {
    OWN_NONE,
    OWN_CONNS_OPEN,
    OWN_CONNS_WAITING,
    OWN_CREW_THREADS,
    OWN_CREW_RUNNING,
    OWN_CREW_WAITING,
    OWN_LEASES_HELD,
    OWN_BATCHES_HELD,
    OWN_BATCH_LINES_FLYING,
    OWN__COUNT
};

static const unsigned char OWN[METRIC__COUNT] = {
    [METRIC_CONNS_OPEN] = OWN_CONNS_OPEN,
    [METRIC_CONNS_WAITING] = OWN_CONNS_WAITING,
    [METRIC_CREW_THREADS] = OWN_CREW_THREADS,
    [METRIC_CREW_RUNNING] = OWN_CREW_RUNNING,
    [METRIC_CREW_WAITING] = OWN_CREW_WAITING,
    [METRIC_LEASES_HELD] = OWN_LEASES_HELD,
    [METRIC_BATCHES_HELD] = OWN_BATCHES_HELD,
    [METRIC_BATCH_LINES_FLYING] = OWN_BATCH_LINES_FLYING,
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

enum { METRICS_OF_ALL = 1 };

struct metric_info {
    const char *name;
    const char *type;
    const char *labels;
    const char *help;
    unsigned group;
};

#define ROW(group_, type_, name_, labels_, help_) \
    { \
        .name = (name_), .type = #type_, .labels = (labels_), .help = (help_), .group = (group_) \
    }
static const struct metric_info INFO[METRIC__COUNT] = {
#define METRIC(id, type, name, labels, help) \
    [METRIC_##id] = ROW(METRICS_OF_ALL, type, name, labels, help),
#include "base/metrics.def"
#undef METRIC
#define METRIC(id, type, name, labels, help) \
    [METRIC_##id] = ROW(METRICS_OF_OPERATIONS, type, name, labels, help),
#include "base/operations_metrics.def"
#undef METRIC
#define METRIC(id, type, name, labels, help) \
    [METRIC_##id] = ROW(METRICS_OF_PLANNER, type, name, labels, help),
#include "base/planner_metrics.def"
#undef METRIC
#define METRIC(id, type, name, labels, help) \
    [METRIC_##id] = ROW(METRICS_OF_BATCH, type, name, labels, help),
#include "base/batch_metrics.def"
#undef METRIC
};

static unsigned shown = METRICS_OF_ALL;

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

static _Atomic int64_t *place_of(enum metric m)
{
    return ours != NULL && OWN[m] != OWN_NONE ? &ours->value[OWN[m] - 1] : &values[m];
}

void metric_add(enum metric m, int64_t n)
{
    atomic_fetch_add_explicit(place_of(m), n, memory_order_relaxed);
}

void metric_set(enum metric m, int64_t value)
{
    atomic_store_explicit(place_of(m), value, memory_order_relaxed);
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
    if (!str_ends(info->name, "_seconds_total") && !str_ends(info->name, "_seconds_sum")) {
        buf_printf(out, " %" PRId64 "\n", value);
        return;
    }
    uint64_t us = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    buf_printf(out, " %s%" PRIu64 ".%06" PRIu64 "\n", value < 0 ? "-" : "", us / (uint64_t)US_PER_S,
        us % (uint64_t)US_PER_S);
}

void metrics_show(unsigned groups)
{
    shown = METRICS_OF_ALL | groups;
}

/* Length of the name that a metric is described by: without _sum or _count in a summary. */
static int name_length(const struct metric_info *info)
{
    const size_t size = strlen(info->name);

    if (strcmp(info->type, "summary") != 0)
        return (int)size;
    return (int)(size - (str_ends(info->name, "_sum") ? strlen("_sum") : strlen("_count")));
}

void metrics_print(struct buf *out)
{
    const struct metric_info *last = NULL;

    for (int m = 0; m < METRIC__COUNT; m++) {
        const struct metric_info *info = &INFO[m];
        const int n = name_length(info);
        if ((info->group & shown) == 0)
            continue;
        if (last == NULL || name_length(last) != n ||
            strncmp(info->name, last->name, (size_t)n) != 0)
            buf_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", n, info->name, info->help, n,
                info->name, info->type);
        last = info;
        print_value(info, metric_get((enum metric)m), out);
    }
}
