/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FETCH_H
#define WB_FETCH_H

/* Gets the missing shards of a version from its sources into a sink: artifacts contract section 4, "Fetching". One Range GET per shard;
 * a few threads, each with a connection and a sink of its own; which shard is asked for where is model/fetch_plan's to say. */
#include "base/err.h"
#include "fetch/source.h"
#include "http/http_get.h"
#include "model/fetch_plan.h"

enum { FETCH_IN_FLIGHT = 8, FETCH_WORKERS_MAX = 64 };

/* Where a thread puts shards. All give 0, or -1 with *m set, whose class then says what comes next. */
struct fetch_sink {
    void *(*open)(void *ctx); /* for one thread */
    void (*close)(void *hand);
    int (*begin)(void *hand, size_t shard, struct mishap *m);
    int (*add)(void *hand, const void *data, size_t size, struct mishap *m);
    int (*end)(void *hand, struct mishap *m); /* all bytes came: are they right? */
    void *ctx;
};

struct fetch_options {
    const struct manifest *manifest; /* borrowed until fetch_end(), as all here is */
    const bool *have;                /* by shard: not to be fetched */
    const struct sources *sources;
    const struct fetch_sink *sink;
    struct http_get_options http; /* its stop_fd is not looked at */
    unsigned in_flight;           /* 0: FETCH_IN_FLIGHT */
    unsigned per_source;          /* 0: FETCH_PER_SOURCE */
    struct backoff backoff;
};

/* Threads that these options lead to: never more than can be in flight. */
unsigned fetch_workers(const struct fetch_options *o);

struct fetch;
/* Starts. ERR_INTERNAL: no threads. */
int fetch_start(const struct fetch_options *o, struct fetch **out, struct err *e) WARN_UNUSED;

struct fetch_progress {
    int64_t bytes; /* fetched and right: only ever grows */
    size_t failures;
};
struct fetch_progress fetch_look(struct fetch *f);

/* Waits until it is over, or the deadline; true when it is over. */
bool fetch_wait(struct fetch *f, int64_t deadline_ns);

/* Ends it soon; fetch_end() then gives MISHAP_STOPPED. */
void fetch_stop(struct fetch *f);

struct fetch_result {
    int64_t bytes[FETCH_SOURCES_MAX]; /* by source: fetched and right */
    size_t failures[MISHAP__COUNT];
};

/* Waits for its end and frees it. 0: all shards are there. */
int fetch_end(struct fetch *f, struct fetch_result *out, struct mishap *m) WARN_UNUSED;

/* Gets a small whole thing, a manifest. -1 with *m; the caller frees *out. */
struct fetch_whole {
    const char *url;
    const char *token; /* NULL: none */
    enum http_peer peer;
    size_t max;
    struct http_get_options http;
    struct backoff backoff;
};
int fetch_whole(const struct fetch_whole *w, struct buf *out, struct mishap *m) WARN_UNUSED;

#endif
