/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/unique.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "lines/content.h"

enum { FILES = 32, HASH_SIZE = 16, PENDING_MAX = 16384, NAME_SIZE = 32, MODE = 0600 };

struct entry {
    unsigned char hash[HASH_SIZE];
    int64_t number;
};

struct unique {
    int fd[FILES];
    struct buf pending[FILES];
    size_t n[FILES];
};

void unique_close(struct unique *u)
{
    if (u == NULL)
        return;
    for (int i = 0; i < FILES; i++) {
        if (u->fd[i] >= 0)
            close(u->fd[i]);
        buf_free(&u->pending[i]);
    }
    free(u);
}

int unique_open(int folder, struct unique **out, struct err *e)
{
    cleanup_unique struct unique *u = mem_calloc(1, sizeof *u);
    char name[NAME_SIZE];

    for (int i = 0; i < FILES; i++) {
        u->fd[i] = -1;
        u->pending[i].max = PENDING_MAX;
    }
    for (int i = 0; i < FILES; i++) {
        (void)!str_format(name, sizeof name, "unique.%d", i);
        u->fd[i] = openat(folder, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, MODE);
        if (u->fd[i] < 0 || unlinkat(folder, name, 0) < 0)
            return content_failed(e, "check for custom_ids that are there twice");
    }
    *out = STEAL(u);
    return 0;
}

static int flush(struct unique *u, int i, struct err *e)
{
    struct buf *b = &u->pending[i];

    if (b->len > 0 && file_write(u->fd[i], b->data, b->len) < 0)
        return content_failed(e, "check for custom_ids that are there twice");
    buf_clear(b);
    return 0;
}

int unique_add(struct unique *u, const char *text, int64_t number, struct err *e)
{
    unsigned char digest[DIGEST_SIZE];
    struct entry entry = { .number = number };

    digest_bytes(text, strlen(text), digest);
    memcpy(entry.hash, digest, sizeof entry.hash);
    const int i = entry.hash[0] % FILES;
    if (u->pending[i].len + sizeof entry > PENDING_MAX && flush(u, i, e) < 0)
        return -1;
    buf_add(&u->pending[i], &entry, sizeof entry);
    u->n[i]++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    const int hashes = memcmp(x->hash, y->hash, sizeof x->hash);

    return hashes != 0 ? hashes : (x->number > y->number) - (x->number < y->number);
}

int unique_end(struct unique *u, void (*fn)(void *ctx, int64_t number), void *ctx, struct err *e)
{
    for (int i = 0; i < FILES; i++) {
        cleanup_free struct entry *all = mem_calloc(u->n[i] + 1, sizeof *all);
        if (flush(u, i, e) < 0)
            return -1;
        if (file_read_at(u->fd[i], all, u->n[i] * sizeof *all, 0) < 0)
            return content_failed(e, "check for custom_ids that are there twice");
        qsort(all, u->n[i], sizeof *all, compare);
        for (size_t k = 1; k < u->n[i]; k++) {
            if (memcmp(all[k].hash, all[k - 1].hash, sizeof all[k].hash) == 0)
                fn(ctx, all[k].number);
        }
    }
    return 0;
}
