/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PULL_H
#define WB_AGENT_PULL_H

/* From a manifest to a landed version: what `fetch`, `adopt` and `run` have in common. */
#include "base/conf.h"
#include "daemons/agent_watch.h"
#include "depot/receipt.h"
#include "http/http_get.h"
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
    unsigned per_source; /* what the source wants at most; 0: only the configuration counts */
    struct watch *watch; /* NULL: nobody looks, and nothing ends it early */
};

/* Gets the manifest of p->manifest_url, which leads to peer. */
int pull_manifest(
    const struct pull *p, enum http_peer peer, struct buf *text, struct mishap *m) WARN_UNUSED;

/* Is the version of that manifest here? 1, with its set of files whole; then what a crash after its landing had left undone is done. 0: no.
 * -1: MISHAP_MANIFEST_MISMATCH (another manifest, or damaged), or the disk's. */
int pull_is_landed(const struct depot *d, const char *version, const struct digest *want,
    struct mishap *m) WARN_UNUSED;

/* 0: landed; 1: it was there already. *r tells how; for 1 it is empty. */
int pull_version(const struct pull *p, struct receipt *r, struct mishap *m) WARN_UNUSED;

#endif
