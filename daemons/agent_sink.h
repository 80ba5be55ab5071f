/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_SINK_H
#define WB_AGENT_SINK_H

/* Shards that are fetched go into a part. */
#include <stdatomic.h>

#include "depot/part.h"
#include "fetch/fetch.h"

struct agent_sink {
    struct part *part;
    size_t buffer_bytes;     /* of each thread */
    int64_t bytes_per_s;     /* all threads together take no more; 0: no limit */
    int stop_fd;             /* readable: no more waiting; -1: none */
    _Atomic int64_t free_ns; /* when what was taken has had its time */
};

/* Buffers of so many threads together stay within 16 MiB, but for 1 MiB each. */
size_t agent_buffer_bytes(unsigned threads);

struct fetch_sink agent_sink_of(struct agent_sink *s);

#endif
