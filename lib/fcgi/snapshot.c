/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/snapshot_internal.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"

enum { READ_TRIES = 64, POLL_NOTE_MS = 50, TAG_LEN = 8, NAME_SIZE = 128 };

static void lock_release_(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}

static pthread_mutex_t *lock_take(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}
#define GUARD(m) \
    __attribute__((cleanup(lock_release_), unused)) pthread_mutex_t *guard = lock_take(m)

static uint64_t fnv(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t new_owner(void)
{
    char token[TOKEN_HEX_SIZE];
    digest_token(token);
    return ((uint64_t)getpid() << 32) | (fnv(token) & UINT32_MAX);
}

int snapshots_open(
    struct shared *shared, const char *dir, const char *name, struct snapshots **out, struct err *e)
{
    char prefix[NAME_SIZE];
    if (str_format(prefix, sizeof(prefix), "%s.snap.%.*s.", name, TAG_LEN, shared->machine_id) != 0)
        return err_set(e, ERR_INVALID, "snapshot name too long: %s", name);
    struct snapshots *s = mem_calloc(1, sizeof(*s));
    s->shared = shared;
    s->dir = mem_strdup(dir);
    s->prefix = mem_strdup(prefix);
    s->family_len = strlen(name) + strlen(".snap.");
    s->magic = fnv(shared->machine_id);
    s->owner = new_owner();
    s->wanted_seen = atomic_load(&shared->wanted);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

void snapshots_close(struct snapshots *s)
{
    if (!s)
        return;
    snapshot_put(s->current);
    pthread_mutex_destroy(&s->lock);
    free(s->dir);
    free(s->prefix);
    free(s);
}

struct shared *snapshots_shared(struct snapshots *s)
{
    return s->shared;
}

void snapshot_put(struct snapshot *snap)
{
    if (!snap || atomic_fetch_sub(&snap->refs, 1) != 1)
        return;
    free(snap->bytes);
    free(snap);
}

/* The lock is held while the file is read: those who wait for it need just this file. Between reading
 * the ticket and opening its file the file may have been replaced; then there is a newer ticket. */
struct snapshot *snapshot_current(struct snapshots *s)
{
    GUARD(&s->lock);
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t ticket = atomic_load(&s->shared->ticket);
        if (ticket == 0)
            return NULL;
        if (!s->current || s->current->head->ticket != ticket) {
            struct snapshot *snap = NULL;
            if (snapshot_file_read(s, ticket, &snap) != 0) {
                if (atomic_load(&s->shared->ticket) == ticket)
                    return NULL;
                continue;
            }
            snapshot_put(s->current);
            s->current = snap;
        }
        atomic_fetch_add(&s->current->refs, 1);
        return s->current;
    }
    return NULL;
}

static void note_poll(struct shared *sh, int64_t now_ns)
{
    /* Not each time: the word would travel between all cores. */
    if (now_ns - atomic_load_explicit(&sh->last_poll_ns, memory_order_relaxed) >
        (int64_t)POLL_NOTE_MS * NS_PER_MS)
        atomic_store(&sh->last_poll_ns, now_ns);
}

int snapshot_get(struct snapshots *s, uint64_t min_generation, int64_t max_age_ns,
    int64_t deadline_ns, struct snapshot **out, bool *waited)
{
    struct shared *sh = s->shared;
    if (waited)
        *waited = false;
    for (;;) {
        int64_t now_ns = clock_mono_ns();
        note_poll(sh, now_ns);
        /* Read before looking, so that what is published after the look ends the wait at once. */
        uint32_t published = atomic_load(&sh->published);
        struct snapshot *snap = snapshot_current(s);
        if (snap && snap->head->generation >= min_generation &&
            now_ns - snap->head->built_ns <= max_age_ns) {
            *out = snap;
            return 0;
        }
        snapshot_put(snap);
        if (now_ns >= deadline_ns)
            return 1;
        if (waited)
            *waited = true;
        atomic_fetch_add(&sh->wanted, 1);
        wake_word(&sh->wanted);
        wait_word(&sh->published, published, deadline_ns);
    }
}

struct snapshot_base snapshot_begin(struct snapshots *s)
{
    struct snapshot_base base = {
        .ticket = atomic_load(&s->shared->ticket),
        .generation = atomic_load(&s->shared->generation),
        .began_ns = clock_mono_ns(),
    };
    return base;
}

int snapshot_publish(struct snapshots *s, const struct snapshot_base *base,
    const struct snapshot_parts *parts, struct err *e)
{
    struct shared *sh = s->shared;
    uint64_t ticket = atomic_fetch_add(&sh->next_ticket, 1) + 1;
    struct snapshot_head head = parts->head;
    head.magic = s->magic;
    head.ticket = ticket;
    head.generation = base->generation;
    head.built_ns = base->began_ns;
    head.reserved = 0;
    head.etag[SNAPSHOT_ETAG_SIZE - 1] = '\0';
    head.degraded[SNAPSHOT_DEGRADED_SIZE - 1] = '\0';
    head.body_size = parts->body_size;
    head.state_size = parts->state_size;
    if (snapshot_file_write(s, ticket, &head, parts, e) != 0)
        return -1;
    uint64_t before = base->ticket;
    if (!atomic_compare_exchange_strong(&sh->ticket, &before, ticket)) {
        snapshot_file_unlink(s, ticket);
        return 1;
    }
    /* Who asked until here is woken and asks again if this one does not do. */
    s->wanted_seen = atomic_load(&sh->wanted);
    atomic_fetch_add(&sh->published, 1);
    wake_word(&sh->published);
    snapshot_file_unlink(s, base->ticket);
    if (s->clean_due) {
        s->clean_due = false;
        snapshot_file_clean(s, ticket);
    }
    return 0;
}

void snapshot_wait_wanted(struct snapshots *s, uint64_t have, int64_t deadline_ns)
{
    struct shared *sh = s->shared;
    for (;;) {
        uint32_t wanted = atomic_load(&sh->wanted);
        if (atomic_load(&sh->generation) > have)
            return;
        if (wanted != s->wanted_seen) {
            s->wanted_seen = wanted;
            return;
        }
        if (clock_mono_ns() >= deadline_ns)
            return;
        wait_word(&sh->wanted, wanted, deadline_ns);
    }
}

bool snapshot_is_polled(struct snapshots *s, int64_t ms)
{
    int64_t last_ns = atomic_load(&s->shared->last_poll_ns);
    return last_ns != 0 && clock_mono_ns() - last_ns <= ms * NS_PER_MS;
}
