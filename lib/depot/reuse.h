/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REUSE_H
#define WB_REUSE_H

/* Shards that are here already, in another landed version of any artifact, or in a folder to be adopted: cloned (FICLONERANGE, else
 * copy_file_range(2), else read and written) into the part and re-hashed there. What turns out wrong is left to be fetched. */
#include <stdatomic.h>

#include "depot/part.h"

struct reuse_options {
    struct part *part;
    const char *folder;       /* to be adopted: laid out as the manifest's files; NULL: none */
    const _Atomic bool *stop; /* ends it early, with MISHAP_STOPPED; NULL: none */
};

/* Marks what it got in part->have. *bytes: how much. -1: the part cannot be written to. */
int reuse_shards(const struct reuse_options *o, int64_t *bytes, struct mishap *why) WARN_UNUSED;

/* Moves files of a folder that the part lacks into it, before part_prepare(): plain files, on the same file system, that no other name has
 * and nobody writes to. What they hold is told by re-hashing. The rest stays. Number of those moved; -1: the folder cannot be read. */
int reuse_move(struct part *p, const char *folder, struct mishap *why) WARN_UNUSED;

#endif
