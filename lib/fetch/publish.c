/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "fetch/publish_call.h"

enum { THREADS_MAX = 32, ROUNDS_MAX = 3, PATH_SIZE = 128 };
#define MEMORY_MAX ((int64_t)256 << 20) /* of all shards that are being sent */

/* --- what is missing --- */

struct wanted {
    size_t *shard; /* owned: indexes into the manifest, each digest once */
    size_t n;
    int64_t bytes;
};

/* A shard by its digest. */
struct named {
    struct digest digest;
    size_t index;
};

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const struct named *)a)->digest.byte, ((const struct named *)b)->digest.byte,
        DIGEST_SIZE);
}

static struct named *sorted_shards(const struct manifest *m)
{
    struct named *all = mem_calloc(m->shards + 1, sizeof *all);
    for (size_t i = 0; i < m->shards; i++)
        all[i] = (struct named){ m->shard[i], i };
    qsort(all, m->shards, sizeof *all, by_digest);
    return all;
}

static int take_missing(
    const struct manifest *m, json_object *list, struct wanted *out, struct err *e)
{
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    cleanup_free struct named *all = sorted_shards(m);

    free(out->shard);
    *out = (struct wanted){ .shard = mem_calloc(n + 1, sizeof *out->shard) };
    for (size_t i = 0; i < n; i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(list, i));
        struct named key = { .index = 0 };
        if (digest_parse(text == NULL ? "" : text, &key.digest, e) < 0)
            return err_set(e, ERR_INTERNAL, "the service misses something that is no digest");
        const struct named *found =
            m->shards == 0 ? NULL : bsearch(&key, all, m->shards, sizeof *all, by_digest);
        if (found == NULL)
            return err_set(
                e, ERR_INTERNAL, "the service misses a shard that the manifest does not have");
        out->shard[out->n++] = found->index;
        out->bytes += manifest_place(m, found->index).size;
    }
    return 0;
}

/* --- the version as a whole --- */

enum state { STATE_UPLOADING, STATE_VERIFYING, STATE_PUBLISHED, STATE_ENDED };

static enum state read_state(json_object *o, struct err *e)
{
    const char *state = "";
    const char *reason = "";

    (void)jx_get_str(o, "state", &state);
    (void)jx_get_str(o, "reason", &reason);
    if (strcmp(state, "published") == 0)
        return STATE_PUBLISHED;
    if (strcmp(state, "uploading") == 0)
        return STATE_UPLOADING;
    if (strcmp(state, "verifying") == 0)
        return STATE_VERIFYING;
    (void)err_set(e, ERR_NOT_DONE, "the version is %.32s: %.160s", state, reason);
    return STATE_ENDED;
}

static int announce(struct publisher *p, const struct publication *what, struct wanted *missing,
    enum state *state, struct err *e)
{
    cleanup_json json_object *o = NULL;
    const struct publisher_call c = { "PUT", "", "application/json", what->text, what->size };

    if (publisher_ask(p, &c, &o, e) < 0)
        return err_wrap(e, "manifest");
    *state = read_state(o, e);
    return *state == STATE_ENDED ? -1
                                 : take_missing(what->manifest, jx_get(o, "missing"), missing, e);
}

/* Until the release gate has judged. Back to uploading: something that was there is not any more. */
static int await(struct publisher *p, enum state *state, struct err *e)
{
    const struct publisher_call c = { .method = "GET", .path = "?state" };

    while (*state == STATE_VERIFYING) {
        cleanup_json json_object *o = NULL;
        if (p->options->progress != NULL)
            p->options->progress(p->options->ctx, PUBLISH_VERIFYING, 0, 0);
        if (publisher_ask(p, &c, &o, e) < 0)
            return err_wrap(e, "state");
        *state = read_state(o, e);
        if (*state == STATE_VERIFYING)
            (void)poll(NULL, 0, (int)p->options->poll_ms);
    }
    return *state == STATE_ENDED ? -1 : 0;
}

/* --- shards --- */

struct sending {
    const struct publication *what;
    const struct publish_options *options;
    const struct wanted *missing;
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the rest */
    int64_t bytes;
    int64_t shards;
    struct err err;
};

/* to has room for it. */
static int read_shard(const struct sending *s, size_t index, char *to, struct err *e)
{
    const struct shard_place at = manifest_place(s->what->manifest, index);
    const struct digest *want = &s->what->manifest->shard[index];
    const struct outbound_file *f = &s->what->tree->file[at.file];
    cleanup_fd int fd = file_open(f->real, O_NOFOLLOW);
    struct digest got = { .byte = { 0 } };

    if (fd < 0)
        return err_errno(e, ERR_INTERNAL, "%s", f->path);
    const int rc = file_read_at(fd, to, (size_t)at.size, at.offset);
    if (rc < 0 && errno != ENODATA)
        return err_errno(e, ERR_INTERNAL, "%s", f->path);
    if (rc == 0)
        digest_bytes(to, (size_t)at.size, got.byte);
    if (rc < 0 || memcmp(got.byte, want->byte, DIGEST_SIZE) != 0)
        return err_set(e, ERR_CONFLICT, "%s: changed while it was being published", f->path);
    return 0;
}

static int send_shard(
    struct sending *s, struct publisher *p, size_t index, char *buffer, struct err *e)
{
    cleanup_json json_object *o = NULL;
    char digest[DIGEST_TEXT_SIZE];
    char path[PATH_SIZE];
    const int64_t size = manifest_place(s->what->manifest, index).size;

    if (read_shard(s, index, buffer, e) < 0)
        return -1;
    digest_print(&s->what->manifest->shard[index], digest);
    (void)str_format(path, sizeof path, "/shards/%s", digest + strlen("sha256:"));
    const struct publisher_call c = { "PUT", path, "application/octet-stream", buffer,
        (size_t)size };
    if (publisher_ask(p, &c, &o, e) < 0)
        return err_wrap(e, "shard %.16s", digest);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&s->lock);
    s->bytes += size;
    s->shards++;
    if (s->options->progress != NULL)
        s->options->progress(s->options->ctx, PUBLISH_UPLOADING, s->bytes, s->missing->bytes);
    return 0;
}

static void fail(struct sending *s, const struct err *e)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&s->lock);
    if (!atomic_exchange(&s->failed, true))
        s->err = *e;
}

static void *send_shards(void *sending)
{
    struct sending *s = sending;
    struct publisher p;
    struct err e = ERR_INIT;
    cleanup_free char *buffer = mem_alloc((size_t)s->what->manifest->shard_bytes);

    if (publisher_begin(&p, s->options, s->what->manifest, &e) < 0) {
        fail(s, &e);
        return NULL;
    }
    for (size_t i = atomic_fetch_add(&s->next, 1); i < s->missing->n && !atomic_load(&s->failed);
         i = atomic_fetch_add(&s->next, 1)) {
        if (send_shard(s, &p, s->missing->shard[i], buffer, &e) < 0)
            fail(s, &e);
    }
    publisher_end(&p);
    return NULL;
}

static int threads_for(const struct sending *s)
{
    const int64_t fit = MEMORY_MAX / s->what->manifest->shard_bytes;
    int64_t n = s->options->threads < THREADS_MAX ? s->options->threads : THREADS_MAX;

    if (n > fit)
        n = fit;
    if (n > (int64_t)s->missing->n)
        n = (int64_t)s->missing->n;
    return n > 1 ? (int)n : 1;
}

static int send_all(struct sending *s, struct err *e)
{
    pthread_mutex_init(&s->lock, NULL);
    thread_team(threads_for(s), send_shards, s, "send");
    pthread_mutex_destroy(&s->lock);
    if (!atomic_load(&s->failed))
        return 0;
    *e = s->err;
    return -1;
}

/* --- all of it --- */

/* Announces, sends what is missing, and waits: 0 published, 1 something is missing again. */
static int round_of(struct publisher *p, const struct publication *what, struct wanted *missing,
    struct publish_result *out, struct err *e)
{
    enum state state = STATE_UPLOADING;

    if (announce(p, what, missing, &state, e) < 0)
        return -1;
    if (state == STATE_UPLOADING) {
        struct sending s = {
            .what = what, .options = p->options, .missing = missing, .err = ERR_INIT
        };
        if (send_all(&s, e) < 0)
            return -1;
        out->bytes_sent += s.bytes;
        out->shards_sent += s.shards;
        state = STATE_VERIFYING;
    }
    if (await(p, &state, e) < 0)
        return -1;
    return state == STATE_PUBLISHED ? 0 : 1;
}

int publish(const struct publication *what, const struct publish_options *o,
    struct publish_result *out, struct err *e)
{
    struct publisher p;
    struct wanted missing = { .shard = NULL };
    struct publish_result got = { 0 };
    int rc = 1;

    if (publisher_begin(&p, o, what->manifest, e) < 0)
        return -1;
    for (int i = 0; rc == 1 && i < ROUNDS_MAX; i++)
        rc = round_of(&p, what, &missing, &got, e);
    publisher_end(&p);
    free(missing.shard);
    if (rc == 1)
        return err_set(e, ERR_NOT_DONE, "shards that were sent are missing again");
    if (rc < 0)
        return -1;
    got.shards_there = (int64_t)what->manifest->shards - got.shards_sent;
    *out = got;
    return 0;
}
