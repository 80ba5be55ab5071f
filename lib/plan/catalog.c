/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/catalog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

enum { RETRY_MS = 5000, TOO_OLD_MS = 600000 };

struct shared_view {
    struct catalog_view view; /* first: what the world sees */
    atomic_int users;
    int64_t read_ns;
};

struct catalog {
    pthread_mutex_t lock;
    struct shared_view *now; /* NULL before the first answer */
    int64_t asked_ns;        /* when somebody was last told to ask; 0: never */
};

struct catalog *catalog_new(void)
{
    struct catalog *c = mem_calloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void unref(struct shared_view *v)
{
    if (v == NULL || atomic_fetch_sub(&v->users, 1) > 1)
        return;
    provision_catalog_fini(&v->view.offers);
    free(v);
}

void catalog_free(struct catalog *c)
{
    if (c == NULL)
        return;
    unref(c->now);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct catalog_view *catalog_look(struct catalog *c, int64_t max_age_ns, bool *stale)
{
    const int64_t now_ns = clock_mono_ns();

    pthread_mutex_lock(&c->lock);
    struct shared_view *v = c->now;
    *stale = (v == NULL || now_ns - v->read_ns > max_age_ns) &&
             (c->asked_ns == 0 || now_ns - c->asked_ns > RETRY_MS * NS_PER_MS);
    if (*stale)
        c->asked_ns = now_ns;
    if (v != NULL)
        atomic_fetch_add(&v->users, 1);
    pthread_mutex_unlock(&c->lock);
    return v == NULL ? NULL : &v->view;
}

void catalog_done(struct catalog_view *view)
{
    unref((struct shared_view *)view); /* its first member */
}

static void replace(struct catalog *c, struct shared_view *v)
{
    pthread_mutex_lock(&c->lock);
    struct shared_view *old = c->now;
    c->now = v;
    pthread_mutex_unlock(&c->lock);
    unref(old);
}

static struct shared_view *view_of(
    struct provision_catalog *offers, bool told, int64_t since_us, int64_t read_ns)
{
    struct shared_view *v = mem_calloc(1, sizeof *v);
    atomic_init(&v->users, 1);
    v->view = (struct catalog_view){ *offers, told, since_us };
    *offers = (struct provision_catalog)PROVISION_CATALOG_INIT;
    v->read_ns = read_ns;
    return v;
}

void catalog_put(struct catalog *c, struct provision_catalog *offers, bool told, int64_t since_us)
{
    replace(c, view_of(offers, told, since_us, clock_mono_ns()));
}

void catalog_failed(struct catalog *c)
{
    struct provision_catalog none = PROVISION_CATALOG_INIT;
    const int64_t now_ns = clock_mono_ns();

    pthread_mutex_lock(&c->lock);
    const bool keep = c->now != NULL && now_ns - c->now->read_ns < TOO_OLD_MS * NS_PER_MS;
    pthread_mutex_unlock(&c->lock);
    if (!keep)
        replace(c, view_of(&none, false, 0, now_ns - TOO_OLD_MS * NS_PER_MS));
}
