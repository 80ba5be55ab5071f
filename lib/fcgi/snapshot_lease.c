/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/snapshot_internal.h"

#include "base/clock.h"
#include "base/wait.h"

enum { POLLED_MS = 2000 };

/* The lease only keeps two processes from doing the same work. That a frozen owner does no harm when it
 * wakes is seen to by snapshot_publish(). */

static bool renew(struct shared *sh, uint64_t owner, int64_t until_ns)
{
    int64_t seen_ns = atomic_load(&sh->lease_until_ns);
    if (!atomic_compare_exchange_strong(&sh->lease_until_ns, &seen_ns, until_ns))
        return false;
    return atomic_load(&sh->lease_owner) == owner;
}

int snapshot_lease(struct snapshots *s, int64_t lease_ms, bool *taken_over)
{
    struct shared *sh = s->shared;
    int64_t now_ns = clock_mono_ns();
    int64_t until_ns = now_ns + lease_ms * NS_PER_MS;
    if (taken_over)
        *taken_over = false;
    uint64_t owner = atomic_load(&sh->lease_owner);
    if (owner == s->owner)
        return renew(sh, owner, until_ns) ? 0 : 1;
    int64_t seen_ns = atomic_load(&sh->lease_until_ns);
    if (owner != 0 && seen_ns >= now_ns)
        return 1;
    /* The time first: whoever looks between the two steps finds a lease that runs, not one that has
     * lapsed and may be taken once more. */
    if (!atomic_compare_exchange_strong(&sh->lease_until_ns, &seen_ns, until_ns))
        return 1;
    uint64_t before = owner;
    if (!atomic_compare_exchange_strong(&sh->lease_owner, &before, s->owner))
        return 1;
    s->clean_due = true;
    if (taken_over)
        *taken_over = owner != 0;
    return 0;
}

void snapshot_lease_end(struct snapshots *s)
{
    uint64_t owner = s->owner;
    if (!atomic_compare_exchange_strong(&s->shared->lease_owner, &owner, 0))
        return;
    /* Another process may go on at once instead of at its next look. */
    if (snapshot_is_polled(s, POLLED_MS)) {
        atomic_fetch_add(&s->shared->wanted, 1);
        wake_word(&s->shared->wanted);
    }
}
