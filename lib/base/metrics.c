/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

static_assert(METRIC__COUNT <= 256, "the shared mapping has room for 256 words");
static_assert(sizeof(_Atomic int64_t) == sizeof(int64_t), "a metric is one 64-bit word");

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

size_t metrics_size(void)
{
    return sizeof own;
}

void metrics_attach(void *memory)
{
    values = memory;
    for (int m = 0; m < METRIC__COUNT; m++)
        metric_add((enum metric)m, atomic_exchange_explicit(&own[m], 0, memory_order_relaxed));
}

void metric_add(enum metric m, int64_t n)
{
    atomic_fetch_add_explicit(&values[m], n, memory_order_relaxed);
}

void metric_set(enum metric m, int64_t value)
{
    atomic_store_explicit(&values[m], value, memory_order_relaxed);
}

int64_t metric_get(enum metric m)
{
    return atomic_load_explicit(&values[m], memory_order_relaxed);
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
