/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_watch.h"

#include <string.h>

#include "base/stop.h"
#include "base/str.h"

int watch_init(struct watch *w, struct err *e)
{
    *w = (struct watch){ .stop_fd = -1, .verified = BUF_INIT(WATCH_BITMAP_MAX) };
    pthread_mutex_init(&w->lock, NULL);
    return watch_begin(w, e);
}

void watch_fini(struct watch *w)
{
    cleanup_fd_(&w->stop_fd);
    buf_free(&w->verified);
    pthread_mutex_destroy(&w->lock);
}

int watch_begin(struct watch *w, struct err *e)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&w->lock);
    const int fd = stop_event_fd(e);

    if (fd < 0)
        return -1;
    cleanup_fd_(&w->stop_fd);
    w->stop_fd = fd;
    atomic_store(&w->stop, false);
    w->verifying = false;
    w->bytes = 0;
    w->file[0] = '\0';
    buf_clear(&w->verified);
    return 0;
}

void watch_stop(struct watch *w)
{
    atomic_store(&w->stop, true);
    stop_raise(w->stop_fd);
}

const _Atomic bool *watch_stop_flag(const struct watch *w)
{
    return w == NULL ? NULL : &w->stop;
}

int watch_stop_fd(const struct watch *w)
{
    return w == NULL ? -1 : w->stop_fd;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

/* The file of the first shard that the bitmap lacks, by its own name: a whole path may be longer than what is reported. */
static const char *first_lacking(const struct watch *w, const struct manifest *m)
{
    for (size_t i = 0; i < m->shards; i++) {
        const char c = i / 4 < w->verified.len ? w->verified.data[i / 4] : '0';
        const unsigned digit = (unsigned)(c >= 'a' ? c - 'a' + 10 : c - '0');
        if ((digit & (8U >> i % 4)) == 0)
            return name_of(m->file[manifest_place(m, i).file].path);
    }
    return "";
}

void watch_fetching(struct watch *w, struct part *p, int64_t bytes)
{
    if (w == NULL)
        return;
    cleanup_unlock pthread_mutex_t *held = thread_lock(&w->lock);
    buf_clear(&w->verified);
    part_bitmap(p, &w->verified);
    w->bytes = bytes > w->bytes ? bytes : w->bytes;
    (void)str_copy(w->file, sizeof w->file, first_lacking(w, p->manifest));
}

void watch_verifying(struct watch *w, struct part *p)
{
    if (w == NULL)
        return;
    watch_fetching(w, p, p->manifest->total_bytes);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&w->lock);
    w->verifying = true;
}
