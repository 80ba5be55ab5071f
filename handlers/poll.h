/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLL_H
#define WB_POLL_H

/* One refresh of the operations: asks both stores at the same time, remembers the last good answer of
 * each, and builds what the poll says by the failure rules of the operations contract, section 3. Used
 * by the refresher, and per request where there is no shared memory. One thread at a time. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "db/db.h"
#include "fcgi/snapshot.h"

/* How long the last good rows and the last good snapshot stand for the truth. */
#define POLL_ROWS_KEEP_NS     INT64_C(60000000000)
#define POLL_SNAPSHOT_KEEP_NS INT64_C(5000000000)

/* How long before Postgres was found down the last good rows may have been read: many refresh periods, since a starved process
 * reads late. Rows that were none prove less, as one may have come since: an empty answer that is ignorance would
 * hide it. */
#define POLL_ROWS_FRESH_NS INT64_C(5000000000)
#define POLL_NONE_FRESH_NS INT64_C(1500000000)

struct poll_source;
void poll_source_free(struct poll_source *p);
static inline void poll_source_free_p(struct poll_source **p)
{
    poll_source_free(*p);
}
#define cleanup_poll_source __attribute__((cleanup(poll_source_free_p)))

/* name: application_name and client name of its connections. timeout_ms: how long a store may take before it
 * counts as down. conf is borrowed. */
struct poll_source *poll_source_new(const struct conf *conf, const char *name, int64_t timeout_ms)
    OWNED_BY(poll_source_free);

/* What a refresh came to. head has unavailable, etag and degraded filled in. */
struct poll_answer {
    struct snapshot_head head;
    struct buf body;
    size_t entries;
    struct buf behind; /* for gallery_keep(); empty when no row is behind its overlay */
};

/* Its buffers, of the sizes that an answer may need. */
void poll_answer_init(struct poll_answer *a);
void poll_answer_free(struct poll_answer *a);

/* Asks the stores and fills *out (whose buffers are cleared first). Takes at most three times [operations]
 * store_timeout_ms plus the time to build, unless answers keep coming, which may take five times as long. rows_changed: shared->rows_changed, read before the call (0
 * where there is none): rows that were read before it moved are not the last good ones. Never fails:
 * what is not known makes head.unavailable. */
void poll_ask(struct poll_source *p, uint64_t rows_changed, struct poll_answer *out);

/* The memory of a source as a block for a successor in another process, and back: what the block
 * knows later than the source itself is taken over. ERR_INVALID for a block that makes no sense. */
void poll_save(const struct poll_source *p, struct buf *out);
int poll_restore(struct poll_source *p, const void *state, size_t size, struct err *e) WARN_UNUSED;

#endif
