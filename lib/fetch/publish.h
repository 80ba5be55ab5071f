/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PUBLISH_H
#define WB_PUBLISH_H

/* Publishing: the manifest first, then the shards that the store misses, then the wait for its release gate. What was uploaded before is not
 * sent again, so whoever was killed starts again. Artifacts contract section 3, "Publishing". */
#include "base/err.h"
#include "fetch/outbound.h"
#include "model/backoff.h"

enum publish_phase { PUBLISH_UPLOADING, PUBLISH_VERIFYING };

struct publish_options {
    const char *url;     /* of the service; "https://host/prefix" */
    const char *token;   /* NULL: none */
    const char *ca_file; /* PEM; NULL or "": the system's */
    int threads;         /* uploads at once, 1 or more; fewer where shards are large */
    int tries;           /* of each call that may be repeated */
    struct backoff backoff;
    int64_t poll_ms; /* how often the state is asked for */
    /* Now and then, from one thread at a time: bytes sent so far of those that were missing. NULL: nobody wants to know. */
    void (*progress)(void *ctx, enum publish_phase phase, int64_t done, int64_t total);
    void *ctx;
};

/* What is published: a tree and the manifest made of it, and that manifest's exact text. */
struct publication {
    const struct outbound *tree;
    const struct manifest *manifest;
    const char *text;
    size_t size;
};

struct publish_result {
    int64_t bytes_sent;
    int64_t shards_sent;
    int64_t shards_there; /* had been there before */
};

/* Blocks until the version is published. ERR_CONFLICT: other bytes are published under this name, or a file changed meanwhile;
 * ERR_NOT_DONE: the release gate rejected it, with its reason; ERR_UNAUTHENTICATED, ERR_FORBIDDEN, ERR_INVALID: as the service says;
 * ERR_UNAVAILABLE, ERR_TIMEOUT: the tries are used up; ERR_INTERNAL: a file cannot be read, or an answer makes no sense. Texts hold no secret. */
int publish(const struct publication *what, const struct publish_options *o,
    struct publish_result *out, struct err *e) WARN_UNUSED;

#endif
