/* SPDX-License-Identifier: Apache-2.0 */
#include "base/breaker.h"

#include <assert.h>

#include "base/clock.h"

enum { PROBE_MS = 1000 };

static const int64_t FIRST_NS = (int64_t)BREAKER_FIRST_MS * NS_PER_MS;
static const int64_t MAX_NS = (int64_t)BREAKER_MAX_MS * NS_PER_MS;
static const int64_t PROBE_NS = (int64_t)PROBE_MS * NS_PER_MS;

static pthread_mutex_t *lock(struct breaker *b)
{
    int r = pthread_mutex_lock(&b->lock);
    assert(r == 0);
    return &b->lock;
}

static void unlock(pthread_mutex_t **held)
{
    int r = pthread_mutex_unlock(*held);
    assert(r == 0);
}

#define cleanup_unlock __attribute__((cleanup(unlock), unused))

void breaker_init(struct breaker *b)
{
    int r = pthread_mutex_init(&b->lock, NULL);
    assert(r == 0);
    b->open_until_ns = 0;
    b->wait_ns = FIRST_NS;
    b->probing = false;
    b->probe_until_ns = 0;
}

void breaker_fini(struct breaker *b)
{
    (void)pthread_mutex_destroy(&b->lock);
}

static void lengthen(struct breaker *b)
{
    b->wait_ns = b->wait_ns * 2 > MAX_NS ? MAX_NS : b->wait_ns * 2;
}

bool breaker_allows(struct breaker *b, int64_t now_ns)
{
    cleanup_unlock pthread_mutex_t *held = lock(b);

    if (b->open_until_ns == 0)
        return true;
    if (now_ns < b->open_until_ns)
        return false;
    if (b->probing && now_ns < b->probe_until_ns)
        return false;
    if (b->probing)
        lengthen(b);
    b->probing = true;
    b->probe_until_ns = now_ns + PROBE_NS;
    return true;
}

bool breaker_ok(struct breaker *b)
{
    cleanup_unlock pthread_mutex_t *held = lock(b);
    bool was_open = b->open_until_ns != 0;

    b->open_until_ns = 0;
    b->probing = false;
    b->wait_ns = FIRST_NS;
    return was_open;
}

bool breaker_failed(struct breaker *b, int64_t now_ns)
{
    cleanup_unlock pthread_mutex_t *held = lock(b);

    if (b->open_until_ns == 0) {
        b->wait_ns = FIRST_NS;
        b->open_until_ns = now_ns + b->wait_ns;
        return true;
    }
    /* Others that had asked before it opened fail too: only the probe's word counts. */
    if (b->probing) {
        b->probing = false;
        lengthen(b);
        b->open_until_ns = now_ns + b->wait_ns;
    }
    return false;
}

bool breaker_is_open(struct breaker *b)
{
    cleanup_unlock pthread_mutex_t *held = lock(b);

    return b->open_until_ns != 0;
}
