/* SPDX-License-Identifier: Apache-2.0 */
#include "model/fetch_plan.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

#define BURST_NS (60 * NS_PER_S)
enum { SHARE_LEAST = 20, SHARE_OF = 20, NOBODY = FETCH_SOURCES_MAX };

enum shard_state { TO_FETCH, IN_FLIGHT, WAITING, HERE };

struct shard {
    enum shard_state state;
    unsigned char tries;
    unsigned char last_source; /* NOBODY: never tried */
    uint64_t bad_from;         /* a bit for each source that has sent it wrong */
    int64_t not_before_ns;
};

/* What a source sent within the running minute. */
struct minute {
    int64_t begin_ns;
    unsigned sent;
    unsigned bad;
};

struct source {
    unsigned in_flight;
    unsigned downs;     /* in a row */
    unsigned throttles; /* in a row */
    int64_t not_before_ns;
    struct minute minute;
    struct mishap dead; /* MISHAP_NONE: it is not */
};

struct fetch_plan {
    struct fetch_plan_options o;
    struct shard *shard;
    struct source *source;
    size_t *again; /* shards that wait for another try */
    size_t waiting;
    size_t fresh; /* no shard before this one is TO_FETCH */
    size_t here;
    struct mishap why;
    size_t failures[MISHAP__COUNT];
};

void fetch_plan_free(struct fetch_plan *p)
{
    if (p == NULL)
        return;
    free(p->shard);
    free(p->source);
    free(p->again);
    free(p);
}

struct fetch_plan *fetch_plan_new(const struct fetch_plan_options *o)
{
    struct fetch_plan *p = mem_calloc(1, sizeof *p);

    assert(o->sources >= 1 && o->sources <= FETCH_SOURCES_MAX);
    p->o = *o;
    if (p->o.per_source == 0)
        p->o.per_source = FETCH_PER_SOURCE;
    p->shard = mem_calloc(o->shards + 1, sizeof *p->shard);
    p->again = mem_calloc(o->shards + 1, sizeof *p->again);
    p->source = mem_calloc(o->sources, sizeof *p->source);
    for (size_t i = 0; i < o->shards; i++)
        p->shard[i].last_source = NOBODY;
    return p;
}

void fetch_plan_have(struct fetch_plan *p, size_t shard)
{
    if (p->shard[shard].state == HERE)
        return;
    p->shard[shard].state = HERE;
    p->here++;
}

const struct mishap *fetch_plan_why(const struct fetch_plan *p)
{
    return &p->why;
}

size_t fetch_plan_failures(const struct fetch_plan *p, enum mishap_reason reason)
{
    return p->failures[reason];
}

const struct mishap *fetch_plan_source(const struct fetch_plan *p, size_t source)
{
    return p->source[source].dead.reason == MISHAP_NONE ? NULL : &p->source[source].dead;
}

/* --- what is next --- */

/* Is a better than b for a shard that last failed at `last`? Elsewhere first, then where least is in flight. */
static bool is_better(const struct fetch_plan *p, size_t a, size_t b, size_t last)
{
    if ((a == last) != (b == last))
        return b == last;
    return p->source[a].in_flight < p->source[b].in_flight;
}

/* The source to ask for a shard now: NOBODY when none may be asked; *until_ns is then lowered to when one may, and *any says
 * whether there is any left for it at all. */
static size_t choose(
    const struct fetch_plan *p, size_t shard, int64_t now_ns, int64_t *until_ns, bool *any)
{
    size_t best = NOBODY;

    *any = false;
    for (size_t i = 0; i < p->o.sources; i++) {
        const struct source *s = &p->source[i];
        if (s->dead.reason != MISHAP_NONE || !p->o.has(p->o.ctx, i, shard))
            continue;
        *any = true;
        if (s->in_flight >= p->o.per_source)
            continue;
        if (s->not_before_ns > now_ns) {
            *until_ns = *until_ns < s->not_before_ns ? *until_ns : s->not_before_ns;
            continue;
        }
        if (best == NOBODY || is_better(p, i, best, p->shard[shard].last_source))
            best = i;
    }
    return best;
}

/* Nobody is left to ask for that shard. */
static void lose(struct fetch_plan *p, size_t shard)
{
    const struct mishap *last = NULL;
    bool missing = true;

    for (size_t i = 0; i < p->o.sources; i++) {
        if (!p->o.has(p->o.ctx, i, shard))
            continue;
        last = &p->source[i].dead;
        missing = missing && last->reason == MISHAP_NOT_FOUND;
    }
    if (last == NULL)
        (void)mishap_set(&p->why, MISHAP_ARTIFACT_MISSING, "there is no source for some of it");
    else
        p->why = *last;
    if (missing) {
        p->why.reason = MISHAP_ARTIFACT_MISSING;
        p->why.grade = MISHAP_TASK_FATAL;
    }
}

static enum fetch_step take_off(
    struct fetch_plan *p, size_t shard, size_t source, struct fetch_next *out)
{
    p->shard[shard].state = IN_FLIGHT;
    p->shard[shard].last_source = (unsigned char)source;
    p->source[source].in_flight++;
    out->shard = shard;
    out->source = source;
    return FETCH_GO;
}

/* Those that wait for another try and are due come before fresh ones: so an outage uses up a shard's tries, and ends. */
static enum fetch_step next_again(struct fetch_plan *p, int64_t now_ns, struct fetch_next *out)
{
    for (size_t i = 0; i < p->waiting; i++) {
        const size_t shard = p->again[i];
        bool any = false;
        if (p->shard[shard].not_before_ns > now_ns) {
            if (p->shard[shard].not_before_ns < out->until_ns)
                out->until_ns = p->shard[shard].not_before_ns;
            continue;
        }
        const size_t source = choose(p, shard, now_ns, &out->until_ns, &any);
        if (!any) {
            lose(p, shard);
            return FETCH_LOST;
        }
        if (source == NOBODY)
            continue;
        p->again[i] = p->again[--p->waiting];
        return take_off(p, shard, source, out);
    }
    return FETCH_WAIT;
}

/* Looks at few only: what the first of them must wait for, the others must too, unless sources have different files. */
static enum fetch_step next_fresh(struct fetch_plan *p, int64_t now_ns, struct fetch_next *out)
{
    enum { LOOK_AT = 64 };

    while (p->fresh < p->o.shards && p->shard[p->fresh].state != TO_FETCH)
        p->fresh++;
    for (size_t i = p->fresh, seen = 0; i < p->o.shards && seen < LOOK_AT; i++) {
        bool any = false;
        if (p->shard[i].state != TO_FETCH)
            continue;
        seen++;
        const size_t source = choose(p, i, now_ns, &out->until_ns, &any);
        if (!any) {
            lose(p, i);
            return FETCH_LOST;
        }
        if (source != NOBODY)
            return take_off(p, i, source, out);
    }
    return FETCH_WAIT;
}

enum fetch_step fetch_plan_next(struct fetch_plan *p, int64_t now_ns, struct fetch_next *out)
{
    out->until_ns = INT64_MAX;
    if (p->why.reason != MISHAP_NONE)
        return FETCH_LOST;
    if (p->here == p->o.shards)
        return FETCH_DONE;
    const enum fetch_step step = next_again(p, now_ns, out);
    return step == FETCH_WAIT ? next_fresh(p, now_ns, out) : step;
}

/* --- how it went --- */

static void count(struct minute *minute, bool bad, int64_t now_ns)
{
    if (minute->sent == 0 || now_ns - minute->begin_ns > BURST_NS)
        *minute = (struct minute){ now_ns, 0, 0 };
    minute->sent++;
    minute->bad += bad ? 1 : 0;
}

static bool is_burst(const struct minute *minute)
{
    return minute->bad >= FETCH_BURST || (minute->bad >= 2 && minute->sent >= SHARE_LEAST &&
                                             minute->bad * SHARE_OF >= minute->sent);
}

static void end_source(struct source *s, const struct mishap *m)
{
    s->dead = *m;
    s->dead.grade = MISHAP_SOURCE_FATAL;
}

/* The whole source is at fault, not the one shard. */
static bool is_down(const struct mishap *m)
{
    return m->reason == MISHAP_CONNECT || m->reason == MISHAP_SERVER_ERROR ||
           m->reason == MISHAP_THROTTLED;
}

/* Leaves the source alone for a while. What ended while it was left alone already tells nothing new. */
static void pause_source(
    struct fetch_plan *p, struct source *s, const struct mishap *m, int64_t now_ns, uint64_t random)
{
    int64_t wait_ms = m->wait_ms;

    if (s->not_before_ns <= now_ns)
        s->downs++;
    if (wait_ms <= 0)
        wait_ms = backoff_ms(p->o.backoff, s->downs, random);
    const int64_t until_ns = now_ns + wait_ms * NS_PER_MS;
    if (until_ns > s->not_before_ns)
        s->not_before_ns = until_ns;
}

/* true: the source is done with. */
static bool blame_source(struct fetch_plan *p, const struct fetch_next *flight,
    const struct mishap *m, int64_t now_ns, uint64_t random)
{
    struct source *s = &p->source[flight->source];
    struct shard *shard = &p->shard[flight->shard];
    const uint64_t bit = UINT64_C(1) << flight->source;
    bool over = m->grade == MISHAP_SOURCE_FATAL;

    if (m->reason == MISHAP_SHARD_MISMATCH) {
        over = over || (shard->bad_from & bit) != 0 || is_burst(&s->minute);
        shard->bad_from |= bit;
    }
    if (is_down(m))
        pause_source(p, s, m, now_ns, random);
    if (over && s->dead.reason == MISHAP_NONE)
        end_source(s, m);
    return over;
}

/* Puts a shard that failed where it is tried again, or gives all up. */
static void put_again(struct fetch_plan *p, const struct fetch_next *flight, const struct mishap *m,
    int64_t now_ns, uint64_t random)
{
    struct shard *s = &p->shard[flight->shard];
    struct source *source = &p->source[flight->source];
    const bool throttled = m->reason == MISHAP_THROTTLED;

    if (throttled)
        source->throttles++;
    else
        s->tries++;
    s->state = WAITING;
    p->again[p->waiting++] = flight->shard;
    const bool used_up = s->tries >= FETCH_TRIES || source->throttles > FETCH_THROTTLES;
    if (used_up && p->why.reason == MISHAP_NONE)
        p->why = *m;
    else if (!throttled)
        s->not_before_ns = now_ns + backoff_ms(p->o.backoff, s->tries, random) * NS_PER_MS;
}

void fetch_plan_ended(struct fetch_plan *p, const struct fetch_next *flight, const struct mishap *m,
    int64_t now_ns, uint64_t random)
{
    struct source *source = &p->source[flight->source];
    struct shard *shard = &p->shard[flight->shard];

    assert(shard->state == IN_FLIGHT && source->in_flight > 0);
    source->in_flight--;
    if (m->reason == MISHAP_NONE) {
        count(&source->minute, false, now_ns);
        source->downs = 0;
        source->throttles = 0;
        shard->state = HERE;
        p->here++;
        return;
    }
    p->failures[m->reason]++;
    if (m->grade == MISHAP_TASK_FATAL || m->reason == MISHAP_STOPPED) {
        shard->state = WAITING;
        if (p->why.reason == MISHAP_NONE)
            p->why = *m;
        return;
    }
    if (m->reason == MISHAP_SHARD_MISMATCH)
        count(&source->minute, true, now_ns);
    const bool over = blame_source(p, flight, m, now_ns, random);
    if (over) { /* no fault of the shard's: elsewhere at once */
        shard->state = WAITING;
        p->again[p->waiting++] = flight->shard;
    } else {
        put_again(p, flight, m, now_ns, random);
    }
}
