/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_METRICS_H
#define WB_METRICS_H

/* Counters and gauges of a program, listed once in metrics.def. They live in whatever memory is
 * attached: a private array until metrics_attach() names the shared one, so that /metrics of any process
 * tells of the whole service. A gauge of what a process has open (connections) is kept in a part of the
 * memory that is the process' own, and what it says is the sum over the processes that live: who is
 * killed takes nothing off again. All updates are relaxed atomics. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum metric {
#define METRIC(id, type, name, labels, help) METRIC_##id,
#include "base/metrics.def"
#include "base/operations_metrics.def"
#include "base/planner_metrics.def"
#include "base/batch_metrics.def"
#undef METRIC
    METRIC__COUNT
};

/* 64-bit words of the memory that metrics_attach() needs: the values, in the order of enum metric, and
 * behind them the processes' own parts. */
enum {
    METRICS_VALUES = 256,
    METRICS_PARTS = 256,
    METRICS_WORDS = METRICS_VALUES + METRICS_PARTS * 16
};

/* Makes memory (METRICS_WORDS words, aligned to 64 bytes, all zero) ready, once, before anybody attaches
 * it. */
void metrics_format(void *memory);

/* From now on the values are in memory. Before threads start; the memory outlives the process' use of
 * metrics. What the private array counted so far is added to it. */
void metrics_attach(void *memory);

/* Takes a part of the attached memory for this process until it ends, however it ends. From its main
 * thread, whose end the kernel takes for the process'. Without (or with all parts taken) its gauges are
 * counted together with others' and stay when it is killed. */
void metrics_join(void);

void metric_add(enum metric m, int64_t n);
void metric_set(enum metric m, int64_t value);
int64_t metric_get(enum metric m); /* of the whole service */

/* Which metrics metrics_print() tells of beside those of every program: bits. Before threads start. */
enum { METRICS_OF_OPERATIONS = 1 << 1, METRICS_OF_PLANNER = 1 << 2, METRICS_OF_BATCH = 1 << 3 };
void metrics_show(unsigned groups);

/* Prometheus text exposition format 0.0.4: HELP and TYPE once per name, then the values. */
void metrics_print(struct buf *out);

#endif
