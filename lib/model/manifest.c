/* SPDX-License-Identifier: Apache-2.0 */
#include "model/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static const char *const KINDS[ARTIFACT_KIND__COUNT] = {
#define ARTIFACT_KIND(id, name) [ARTIFACT_##id] = (name),
#include "model/artifact_kind.def"
#undef ARTIFACT_KIND
};

const char *artifact_kind_name(enum artifact_kind kind)
{
    return KINDS[kind];
}

bool artifact_kind_parse(const char *name, enum artifact_kind *out)
{
    for (size_t i = 0; i < ARTIFACT_KIND__COUNT; i++) {
        if (strcmp(name, KINDS[i]) == 0) {
            *out = (enum artifact_kind)i;
            return true;
        }
    }
    return false;
}

int artifact_name_check(const char *what, const char *name, size_t max, struct err *e)
{
    static const char FIRST[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char REST[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t size = strlen(name);

    if (size == 0 || size > max || strchr(FIRST, name[0]) == NULL || strspn(name, REST) != size)
        return err_set(e, ERR_INVALID,
            "%s: 1 to %zu of a-z, 0-9, '.', '_' and '-', the first a letter or digit", what, max);
    return 0;
}

/* --- digests --- */

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int digest_parse_bare(const char *text, struct digest *out, struct err *e)
{
    struct digest d;

    if (strlen(text) != (size_t)2 * DIGEST_SIZE)
        return err_set(e, ERR_INVALID, "sha256 of 64 lower-case hex digits");
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        const int high = nibble(text[2 * i]);
        const int low = nibble(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return err_set(e, ERR_INVALID, "sha256 of 64 lower-case hex digits");
        d.byte[i] = (unsigned char)(high << 4 | low);
    }
    *out = d;
    return 0;
}

static const char PREFIX[] = "sha256:";

int digest_parse(const char *text, struct digest *out, struct err *e)
{
    if (!str_starts(text, PREFIX))
        return err_set(e, ERR_INVALID, "a digest begins with \"sha256:\"");
    return digest_parse_bare(text + sizeof PREFIX - 1, out, e);
}

void digest_print(const struct digest *d, char out[DIGEST_TEXT_SIZE])
{
    memcpy(out, PREFIX, sizeof PREFIX);
    str_hex(out + sizeof PREFIX - 1, d->byte, DIGEST_SIZE);
}

/* --- paths --- */

static int check_segment(const char *segment, size_t size, struct err *e)
{
    if (size == 0)
        return err_set(e, ERR_INVALID, "an absolute path or an empty segment");
    if (size > MANIFEST_SEGMENT_MAX)
        return err_set(e, ERR_INVALID, "a segment of over %d bytes", MANIFEST_SEGMENT_MAX);
    if ((size == 1 && segment[0] == '.') || (size == 2 && memcmp(segment, "..", 2) == 0))
        return err_set(e, ERR_INVALID, "a segment \".\" or \"..\"");
    return 0;
}

int manifest_path_check(const char *path, struct err *e)
{
    const size_t size = strlen(path);

    if (size == 0 || size > MANIFEST_PATH_MAX)
        return err_set(e, ERR_INVALID, "a path of 1 to %d bytes", MANIFEST_PATH_MAX);
    if (!str_utf8_valid(path, size))
        return err_set(e, ERR_INVALID, "a path that is no UTF-8");
    for (const char *p = path; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return err_set(e, ERR_INVALID, "a path with a control character");
    }
    for (const char *at = path;; at++) {
        const size_t length = strcspn(at, "/");
        if (check_segment(at, length, e) < 0)
            return -1;
        at += length;
        if (*at == '\0')
            return 0;
    }
}

static int by_path(const void *key, const void *member)
{
    return strcmp(key, ((const struct manifest_file *)member)->path);
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *path)
{
    return m->files == 0 ? NULL : bsearch(path, m->file, m->files, sizeof *m->file, by_path);
}

/* None of a path's parents may be a file. The files are sorted. */
static int check_parents(const struct manifest *m, const char *path, struct err *e)
{
    char parent[MANIFEST_PATH_MAX + 1];

    (void)str_copy(parent, sizeof parent, path);
    for (char *slash = strrchr(parent, '/'); slash != NULL; slash = strrchr(parent, '/')) {
        *slash = '\0';
        if (manifest_find(m, parent) != NULL)
            return err_set(e, ERR_INVALID, "its parent is a file");
    }
    return 0;
}

/* --- the whole --- */

void manifest_free(struct manifest *m)
{
    for (size_t i = 0; i < m->files; i++) {
        for (size_t k = 0; k < m->file[i].urls; k++)
            free(m->file[i].url[k]);
        free(m->file[i].url);
        free(m->file[i].path);
    }
    free(m->file);
    free(m->shard);
    *m = (struct manifest)MANIFEST_INIT;
}

int64_t manifest_shards_of(int64_t size, int64_t shard_bytes)
{
    return size / shard_bytes + (size % shard_bytes != 0);
}

int64_t manifest_shard_bytes(int64_t total_bytes)
{
    return total_bytes > MANIFEST_LARGE ? SHARD_BYTES_LARGE : SHARD_BYTES_SMALL;
}

static int check_head(const struct manifest *m, struct err *e)
{
    if (artifact_name_check("artifact", m->artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", m->version, VERSION_NAME_MAX, e) < 0)
        return -1;
    if (m->shard_bytes < SHARD_UNIT || m->shard_bytes > SHARD_BYTES_MAX ||
        m->shard_bytes % SHARD_UNIT != 0)
        return err_set(e, ERR_INVALID, "shard_bytes: a multiple of 1 MiB, 1 MiB to 1 GiB");
    return 0;
}

static int check_file(
    const struct manifest *m, size_t i, size_t *shards, int64_t *total, struct err *e)
{
    const struct manifest_file *f = &m->file[i];

    if (manifest_path_check(f->path, e) < 0)
        return -1;
    if (i > 0 && strcmp(m->file[i - 1].path, f->path) >= 0)
        return err_set(e, ERR_INVALID, "twice, or not sorted by byte");
    if (f->size < 0 || f->size > ARTIFACT_BYTES_MAX - *total)
        return err_set(e, ERR_INVALID, "size: 0 to 2^50 in all");
    if (f->first_shard != *shards ||
        manifest_shards_of(f->size, m->shard_bytes) != (int64_t)f->shards)
        return err_set(e, ERR_INVALID, "shards: %lld are needed, not %zu",
            (long long)manifest_shards_of(f->size, m->shard_bytes), f->shards);
    *shards += f->shards;
    *total += f->size;
    return 0;
}

int manifest_check(const struct manifest *m, struct err *e)
{
    size_t shards = 0;
    int64_t total = 0;

    if (check_head(m, e) < 0)
        return -1;
    for (size_t i = 0; i < m->files; i++) {
        if (check_file(m, i, &shards, &total, e) < 0)
            return err_wrap(e, "files[%zu]", i);
    }
    for (size_t i = 0; i < m->files; i++) {
        if (check_parents(m, m->file[i].path, e) < 0)
            return err_wrap(e, "files[%zu]", i);
    }
    if (m->files == 0)
        return err_set(e, ERR_INVALID, "files: none");
    if (total != m->total_bytes)
        return err_set(e, ERR_INVALID, "total_bytes: the sizes add up to %lld", (long long)total);
    return 0;
}

struct shard_place manifest_place(const struct manifest *m, size_t index)
{
    size_t low = 0;
    size_t high = m->files;

    while (high - low > 1) { /* the last file that begins at or before it: empty ones come before */
        const size_t middle = low + (high - low) / 2;
        if (m->file[middle].first_shard <= index)
            low = middle;
        else
            high = middle;
    }
    const struct manifest_file *f = &m->file[low];
    const int64_t offset = (int64_t)(index - f->first_shard) * m->shard_bytes;
    const int64_t left = f->size - offset;
    return (struct shard_place){ low, offset, left < m->shard_bytes ? left : m->shard_bytes };
}
