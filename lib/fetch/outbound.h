/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OUTBOUND_H
#define WB_OUTBOUND_H

/* A directory as it will be published: its files in the order of a manifest, and the manifest that is made of them. Artifacts contract
 * section 2. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/manifest.h"

struct outbound_file {
    char *path; /* as in the manifest */
    char *real; /* where it is read from */
    int64_t size;
    bool executable; /* by its owner */
};

struct outbound {
    struct outbound_file *file; /* owned, sorted by path */
    size_t n;
    int64_t bytes;
};
#define OUTBOUND_INIT \
    { \
        .file = NULL, .n = 0, .bytes = 0 \
    }
void outbound_free(struct outbound *t);
#define cleanup_outbound __attribute__((cleanup(outbound_free)))

enum outbound_links {
    OUTBOUND_NO_LINKS,     /* a symbolic link is an error */
    OUTBOUND_FOLLOW_LINKS, /* it stands for the file that it leads to, which must lie below `within` */
};

/* What lies below dir. within (OUTBOUND_FOLLOW_LINKS): dir or a parent of it. Empty directories are left out. ERR_NOT_FOUND: no such
 * directory, or nothing in it; ERR_INVALID: a special file, a link that may not be, a path that a manifest may not have; ERR_INTERNAL: it
 * cannot be read. Errors name the file. *out is the caller's. */
int outbound_walk(const char *dir, enum outbound_links links, const char *within,
    struct outbound *out, struct err *e) WARN_UNUSED;

struct outbound_options {
    const char *artifact;
    const char *version;
    enum artifact_kind kind;
    int64_t shard_bytes; /* 0: manifest_shard_bytes() */
    int threads;         /* that read and hash, 1 or more */
    /* Now and then, from one thread at a time: bytes hashed so far. NULL: nobody wants to know. */
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
};

/* Reads and hashes all files, and checks what comes of it. ERR_INVALID: names or sizes that a manifest may not have; ERR_CONFLICT: a file
 * was not as long as before; ERR_INTERNAL: it cannot be read. *out is the caller's. */
int outbound_manifest(const struct outbound *t, const struct outbound_options *o,
    struct manifest *out, struct err *e) WARN_UNUSED;

#endif
