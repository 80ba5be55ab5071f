/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PULL_H
#define WB_AGENT_PULL_H

/* From a manifest to a landed version: what `fetch` and `adopt` have in common. */
#include "base/conf.h"
#include "depot/receipt.h"
#include "model/mishap.h"

struct pull {
    const struct conf *conf;
    const char *root;
    const char *token;        /* NULL: none */
    const char *manifest_url; /* NULL: nothing can be fetched */
    const char *adopt;        /* folder with files that may be of the version; NULL: none */
    bool move;                /* out of it, rather than cloned */
    const struct manifest *manifest;
    const char *text; /* its exact bytes */
    size_t size;
};

/* 0: landed; 1: it was there already. *r tells how; for 1 it is empty. */
int pull_version(const struct pull *p, struct receipt *r, struct mishap *m) WARN_UNUSED;

/* How sources are talked to by the configuration. */
struct http_get_options;
struct http_get_options pull_http(const struct conf *conf);
struct backoff pull_backoff(const struct conf *conf);

#endif
