/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_METRICS_H
#define WB_METRICS_H

/* Counters and gauges of a program, listed once in metrics.def. They live in whatever memory is
 * attached: a private array until metrics_attach() names the shared mapping, so that /metrics of any
 * process tells of the whole service. All updates are relaxed atomics. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum metric {
#define METRIC(id, type, name, labels, help) METRIC_##id,
#include "base/metrics.def"
#undef METRIC
    METRIC__COUNT
};

/* Bytes that metrics_attach() needs: one 64-bit word for each metric. */
size_t metrics_size(void);

/* From now on the values are in memory (metrics_size() bytes, aligned to 8, zero on first use).
 * Before threads start; the memory outlives the process' use of metrics. What the private array
 * counted so far is added to it. */
void metrics_attach(void *memory);

void metric_add(enum metric m, int64_t n);
void metric_set(enum metric m, int64_t value);
int64_t metric_get(enum metric m);

/* Prometheus text exposition format 0.0.4: HELP and TYPE once per name, then the values. */
void metrics_print(struct buf *out);

#endif
