/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MANIFEST_H
#define WB_MANIFEST_H

/* What a version of an artifact consists of: files, cut into shards of one size (the last one of a file shorter), each with its
 * sha256. As values; store/manifest_json.h reads and writes the JSON. Artifacts contract section 2. Pure; any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

enum {
    ARTIFACT_NAME_MAX = 96,
    VERSION_NAME_MAX = 64, /* of node names, too */
    MANIFEST_BYTES_MAX = 8 << 20,
    MANIFEST_DEPTH_MAX = 4,
    MANIFEST_PATH_MAX = 1024, /* bytes of a whole path */
    MANIFEST_SEGMENT_MAX = 255,
    MANIFEST_URLS_MAX = 16, /* of a file */
    MANIFEST_URL_BYTES = 2048
};
#define SHARD_UNIT      ((int64_t)1 << 20) /* shard sizes are multiples of it, and at least so large */
#define SHARD_BYTES_MAX ((int64_t)1 << 30)
#define SHARD_BYTES_SMALL \
    ((int64_t)16 << 20) /* what manifest_shard_bytes() says up to MANIFEST_LARGE ... */
#define SHARD_BYTES_LARGE  ((int64_t)64 << 20) /* ... and beyond */
#define MANIFEST_LARGE     ((int64_t)100000000000)
#define ARTIFACT_BYTES_MAX ((int64_t)1 << 50)

enum artifact_kind {
#define ARTIFACT_KIND(id, name) ARTIFACT_##id,
#include "model/artifact_kind.def"
#undef ARTIFACT_KIND
    ARTIFACT_KIND__COUNT
};
const char *artifact_kind_name(enum artifact_kind kind);
bool artifact_kind_parse(const char *name, enum artifact_kind *out);

/* [a-z0-9][a-z0-9._-]* of up to max bytes. what names it in the error: ERR_INVALID. */
int artifact_name_check(const char *what, const char *name, size_t max, struct err *e) WARN_UNUSED;

struct digest {
    unsigned char byte[DIGEST_SIZE];
};

/* "sha256:" and 64 lower-case hex digits; bare: the digits alone. ERR_INVALID for anything else: an empty or unknown digest is
 * an error, never a warning. */
enum { DIGEST_TEXT_SIZE = sizeof "sha256:" + DIGEST_HEX_SIZE - 1 };
int digest_parse(const char *text, struct digest *out, struct err *e) WARN_UNUSED;
int digest_parse_bare(const char *text, struct digest *out, struct err *e) WARN_UNUSED;
void digest_print(const struct digest *d, char out[DIGEST_TEXT_SIZE]);

struct manifest_file {
    char *path; /* segments between slashes; owned, like all of a manifest */
    int64_t size;
    bool executable; /* lands as 0555, else 0444 */
    struct digest sha256;
    size_t first_shard; /* of manifest.shard */
    size_t shards;      /* 0 for an empty file */
    char **url;         /* where its bytes can be had beside the store */
    size_t urls;
};

struct manifest {
    char artifact[ARTIFACT_NAME_MAX + 1];
    char version[VERSION_NAME_MAX + 1];
    enum artifact_kind kind;
    int64_t total_bytes;
    int64_t shard_bytes;
    struct manifest_file *file;
    size_t files;
    struct digest *shard; /* of all files, in their order */
    size_t shards;
};
#define MANIFEST_INIT \
    { \
        .artifact = "", .version = "", .file = NULL, .files = 0, .shard = NULL, .shards = 0 \
    }
void manifest_free(struct manifest *m);
#define cleanup_manifest __attribute__((cleanup(manifest_free)))

/* Does it keep the rules? Names and kind; shard size; files sorted by path, byte by byte, none twice and none a parent of another;
 * no absolute path, no empty, "." or ".." segment, no control character, UTF-8, segments up to 255 bytes; sizes that add up; as many
 * shards as a size needs. ERR_INVALID says which file and what. */
int manifest_check(const struct manifest *m, struct err *e) WARN_UNUSED;

/* A path by the rules above, for whoever makes or asks for one. */
int manifest_path_check(const char *path, struct err *e) WARN_UNUSED;

/* The file of that path, or NULL. */
const struct manifest_file *manifest_find(const struct manifest *m, const char *path);

/* Shards that a file of that size has. */
int64_t manifest_shards_of(int64_t size, int64_t shard_bytes);

/* The usual shard size for so many bytes in all. */
int64_t manifest_shard_bytes(int64_t total_bytes);

/* A shard's place: its file, where in it, how long. index < m->shards. */
struct shard_place {
    size_t file;
    int64_t offset;
    int64_t size;
};
struct shard_place manifest_place(const struct manifest *m, size_t index);

#endif
