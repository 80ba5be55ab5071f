/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FETCH_ONE_H
#define WB_FETCH_ONE_H

/* One request and what came of it: for lib/fetch's own files. */
#include "fetch/fetch.h"

/* Connections of a thread, apart by where they may lead, so that none that was made for one rule is used under another. */
struct fetch_lines {
    struct http_get *line[HTTP_PEER_FAR + 1];
    struct http_get_options o;
};
void fetch_lines_close(struct fetch_lines *l);
struct http_get *fetch_line(struct fetch_lines *l, enum http_peer peer);

/* A shard from a source into the sink's hand. */
int fetch_one(struct fetch_lines *l, const struct fetch_options *o, void *hand,
    const struct fetch_next *flight, struct mishap *m) WARN_UNUSED;

#endif
