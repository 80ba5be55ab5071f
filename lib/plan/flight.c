/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/flight.h"

#include <inttypes.h>
#include <search.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

struct flight {
    pthread_mutex_t lock;
    void *tree; /* of struct flight_entry, by key */
    size_t n;
};

static int compare(const void *a, const void *b)
{
    const struct flight_entry *x = a;
    const struct flight_entry *y = b;
    return strcmp(x->key, y->key);
}

struct flight *flight_new(void)
{
    struct flight *f = mem_calloc(1, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void flight_free(struct flight *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

bool flight_add(struct flight *f, struct flight_entry *entry)
{
    if (entry->is_release)
        (void)str_format(entry->key, sizeof entry->key, "%" PRId64, entry->release.id);
    else
        (void)str_copy(entry->key, sizeof entry->key, entry->held.id);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    struct flight_entry *const *found = tsearch(entry, &f->tree, compare);
    if (found == NULL)
        abort(); /* out of memory */
    if (*found != entry)
        return false;
    f->n++;
    return true;
}

void flight_remove(struct flight *f, struct flight_entry *entry)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    if (tdelete(entry, &f->tree, compare) != NULL)
        f->n--;
}

size_t flight_count(struct flight *f)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    return f->n;
}

/* Copies of what is in hand at one moment. */
struct list {
    struct run_held *held;
    size_t n_held;
    struct release *release; /* texts not to be looked at */
    size_t n_releases;
};

static void list_free(struct list *l)
{
    free(l->held);
    free(l->release);
}
#define cleanup_list __attribute__((cleanup(list_free)))

static void visit(const void *node, VISIT when, void *ctx)
{
    const struct flight_entry *const *entry = node;
    struct list *l = ctx;

    if (when != postorder && when != leaf)
        return;
    if ((*entry)->is_release)
        l->release[l->n_releases++] = (*entry)->release;
    else
        l->held[l->n_held++] = (*entry)->held;
}

static void list_all(struct flight *f, struct list *l)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    l->held = mem_calloc(f->n + 1, sizeof *l->held);
    l->release = mem_calloc(f->n + 1, sizeof *l->release);
    twalk_r(f->tree, visit, l);
}

/* The same job may have been given back and claimed anew meanwhile: then it is another epoch. */
static void mark_lost(struct flight *f, const struct run_held *lost)
{
    struct flight_entry probe = { .is_release = false };

    (void)str_copy(probe.key, sizeof probe.key, lost->id);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    struct flight_entry *const *found = tfind(&probe, &f->tree, compare);
    if (found != NULL && (*found)->held.lease_epoch == lost->lease_epoch)
        atomic_store(&(*found)->lost, true);
}

static int renew_jobs(
    struct flight *f, struct db *db, const struct list *l, int64_t lease_ms, struct err *e)
{
    cleanup_free bool *lost = mem_calloc(l->n_held + 1, sizeof *lost);

    if (l->n_held > 0 && run_renew(db, l->held, l->n_held, lease_ms, lost, e) < 0)
        return -1;
    for (size_t i = 0; i < l->n_held; i++) {
        if (lost[i])
            mark_lost(f, &l->held[i]);
    }
    return 0;
}

int flight_renew(struct flight *f, struct db *db, int64_t lease_ms, struct err *e)
{
    cleanup_list struct list l = { .held = NULL };

    list_all(f, &l);
    if (renew_jobs(f, db, &l, lease_ms, e) < 0)
        return -1;
    for (size_t i = 0; i < l.n_releases; i++) {
        if (release_renew(db, &l.release[i], lease_ms, e) < 0)
            return -1;
    }
    return 0;
}
