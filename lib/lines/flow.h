/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_FLOW_H
#define WB_LINES_FLOW_H

/* A batch whose lines run: what its clerk (lines/clerk.h), who owns it, and the engine (lines/engine.h), which runs it,
 * share. The clerk makes it, hands it to the engine, and asks now and then how far it is; the engine tells when it has
 * let go of it, after which only the clerk has it. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "lines/jsonl.h"
#include "lines/segment.h"
#include "model/batch.h"
#include "model/batch_line.h"
#include "model/line_verdict.h"
#include "model/throttle.h"

struct flow_options {
    const char *batch_id; /* borrowed, as is all here that is a pointer */
    const struct batch_endpoint *endpoint;
    struct line_terms terms;
    struct throttle throttle;
    int64_t timeout_ms; /* of a request */
    size_t line_max;
    size_t answer_max;
    const char *secret; /* that results do not tell; "": none */
    int input;
    const uint64_t *done; /* lines that have their result already, copied; numbers below bits */
    int64_t bits;
    struct segment *segment;
    struct batch_counts counts; /* so far */
    struct batch_usage usage;
};

struct flight;
struct waiting;

struct flow {
    struct flow_options o;

    pthread_mutex_t lock; /* of what follows, down to broken */
    pthread_cond_t moved;
    struct batch_counts counts;
    struct batch_usage usage;
    bool stopping;      /* nothing new */
    int64_t stop_by_ns; /* and what runs then is broken off */
    int64_t trust_ns;   /* the lease is surely ours until then: nothing begins later */
    bool let_go;        /* by the engine, for good */
    struct err broken;  /* why it cannot go on; ERR_OK: it can */

    /* The engine's own. */
    uint64_t *done;
    struct jsonl *reader;
    bool at_end;
    struct throttle throttle;
    size_t flying;
    struct flight *flights;
    struct waiting *waiting; /* lines that are tried again later */
    size_t n_waiting;
    size_t cap_waiting;
    int64_t next_due_ns; /* of these */
};

void flow_free(struct flow *f); /* NULL is fine */
struct flow *flow_new(const struct flow_options *o) OWNED_BY(flow_free);

/* How far it is. */
struct flow_view {
    struct batch_counts counts;
    struct batch_usage usage;
    bool let_go;
    struct err broken;
};
void flow_look(struct flow *f, struct flow_view *out);

/* The same, waiting until the engine lets go or the deadline. */
void flow_wait(struct flow *f, int64_t deadline_ns, struct flow_view *out);

/* Flushes the segment: what the counts then say is in the files, up to *at. 0, or -1 with *e. */
int flow_flush(
    struct flow *f, struct batch_segment *at, struct flow_view *out, struct err *e) WARN_UNUSED;

/* Nothing new begins; what runs has until then. A second call may only bring that nearer. The engine must be woken. */
void flow_stop(struct flow *f, int64_t by_ns);

/* The lease was renewed. */
void flow_trust(struct flow *f, int64_t until_ns);

/* --- for the engine --- */

/* The result of a line. What cannot be written breaks the flow. */
void flow_result(struct flow *f, int64_t number, bool failed, const char *text, size_t size,
    const struct batch_usage *used);

/* It is the clerk's from here on. */
void flow_let_go(struct flow *f);

#endif
