/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SHARD_WRITER_H
#define WB_SHARD_WRITER_H

/* Writes shards of a part, one after the other, hashing what comes. The bytes are gathered to whole blocks and written past the page cache
 * where the file system can (O_DIRECT: less work per byte, and the runtime's cache stays), else through it. A struct belongs to one
 * thread. */
#include "depot/part.h"

struct shard_writer;
void shard_writer_free(struct shard_writer *w); /* NULL is fine */

/* buffer_bytes: a multiple of 1 MiB. */
struct shard_writer *shard_writer_new(struct part *p, size_t buffer_bytes)
    OWNED_BY(shard_writer_free);
static inline void shard_writer_free_p(struct shard_writer **w)
{
    shard_writer_free(*w);
}
#define cleanup_shard_writer __attribute__((cleanup(shard_writer_free_p)))

/* Begins a shard; what was begun before and not ended is forgotten. */
int shard_writer_begin(struct shard_writer *w, size_t shard, struct mishap *why) WARN_UNUSED;

/* Its next bytes. More than it has: MISHAP_SHARD_MISMATCH. */
int shard_writer_add(
    struct shard_writer *w, const void *data, size_t size, struct mishap *why) WARN_UNUSED;

/* All came: 0 when the digest is right, and the part knows. Fewer bytes: MISHAP_SHORT_BODY; others: MISHAP_SHARD_MISMATCH, and
 * the shard stays to be fetched. */
int shard_writer_end(struct shard_writer *w, struct mishap *why) WARN_UNUSED;

#endif
