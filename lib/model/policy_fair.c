/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/policy.h"

/* A tenant with due jobs, and how far its queue was looked at. */
struct seat {
    const char *tenant;
    const size_t *queue; /* indexes into the snapshot's jobs, in order */
    size_t n;
    size_t at;
    struct policy_quota quota;
    int64_t live;
    int64_t gpus;
    int64_t finish;
    bool served;  /* by this plan */
    bool stopped; /* by its quota */
};

struct table {
    const struct policy_snapshot *s;
    size_t *queue;
    struct seat *seat;
    size_t n;
    int64_t round;
};

/* --- who is there --- */

/* By tenant, and within one as the snapshot has them. */
static int by_tenant(const void *a, const void *b, void *snapshot)
{
    const struct policy_snapshot *s = *(const struct policy_snapshot **)snapshot;
    const size_t x = *(const size_t *)a;
    const size_t y = *(const size_t *)b;
    const int order = strcmp(s->job[x].tenant, s->job[y].tenant);
    return order != 0 ? order : (x > y) - (x < y);
}

static const struct policy_quota *quota_of(const struct policy_snapshot *s, const char *tenant)
{
    static const struct policy_quota NONE = { "", JOB_UNLIMITED, JOB_UNLIMITED, 1 };
    const struct policy_quota *found = &NONE;
    for (size_t i = 0; i < s->n_quotas; i++) {
        if (strcmp(s->quota[i].tenant, tenant) == 0)
            return &s->quota[i];
        if (s->quota[i].tenant[0] == '\0')
            found = &s->quota[i];
    }
    return found;
}

static int same_tenant(const void *key, const void *member)
{
    return strcmp(key, ((const struct policy_tenant *)member)->name);
}

static int same_turn(const void *key, const void *member)
{
    return strcmp(key, ((const struct policy_turn *)member)->tenant);
}

static struct seat seat_for(const struct policy_snapshot *s, const size_t *queue)
{
    const char *name = s->job[*queue].tenant;
    struct seat seat = { .tenant = name, .queue = queue, .quota = *quota_of(s, name) };
    const struct policy_tenant *t =
        s->n_tenants == 0 ? NULL
                          : bsearch(name, s->tenant, s->n_tenants, sizeof *s->tenant, same_tenant);
    const struct policy_turn *turn =
        s->n_turns == 0 ? NULL : bsearch(name, s->turn, s->n_turns, sizeof *s->turn, same_turn);

    if (t != NULL) {
        seat.live = t->live;
        seat.gpus = t->gpus;
    }
    if (turn != NULL)
        seat.finish = turn->finish;
    return seat;
}

static void sit_down(const struct policy_snapshot *s, struct table *t)
{
    *t = (struct table){ .s = s,
        .queue = mem_calloc(s->n_jobs + 1, sizeof *t->queue),
        .seat = mem_calloc(s->n_jobs + 1, sizeof *t->seat),
        .round = s->round };
    for (size_t i = 0; i < s->n_jobs; i++)
        t->queue[i] = i;
    qsort_r(t->queue, s->n_jobs, sizeof *t->queue, by_tenant, &s);
    for (size_t i = 0; i < s->n_jobs; i++) {
        if (t->n == 0 || strcmp(t->seat[t->n - 1].tenant, s->job[t->queue[i]].tenant) != 0)
            t->seat[t->n++] = seat_for(s, &t->queue[i]);
        t->seat[t->n - 1].n++;
    }
}

/* --- whose turn it is --- */

static int64_t weight_of(const struct seat *seat)
{
    return seat->quota.weight > 0 ? seat->quota.weight : 1;
}

static const struct policy_job *head_of(const struct table *t, const struct seat *seat)
{
    return &t->s->job[seat->queue[seat->at]];
}

static int64_t start_of(const struct table *t, const struct seat *seat)
{
    return seat->finish > t->round ? seat->finish : t->round;
}

/* Of a turn, for each job. */
static int64_t share_of(const struct seat *seat)
{
    return POLICY_TURN / weight_of(seat);
}

/* Of two that start together: priority, then first come first served. */
static bool goes_before(const struct table *t, const struct seat *a, const struct seat *b)
{
    const struct policy_job *x = head_of(t, a);
    const struct policy_job *y = head_of(t, b);
    if (start_of(t, a) != start_of(t, b))
        return start_of(t, a) < start_of(t, b);
    if (x->priority != y->priority)
        return x->priority > y->priority;
    return x->enqueued_us < y->enqueued_us;
}

static struct seat *next_seat(struct table *t)
{
    struct seat *best = NULL;
    for (size_t i = 0; i < t->n; i++) {
        struct seat *seat = &t->seat[i];
        if (seat->at < seat->n && (best == NULL || goes_before(t, seat, best)))
            best = seat;
    }
    return best;
}

/* Somebody who goes before it may have more jobs than were read: the next plan tells. */
static bool is_out_of_turn(const struct table *t, const struct seat *seat)
{
    if (!t->s->more)
        return false;
    for (size_t i = 0; i < t->n; i++) {
        const struct seat *other = &t->seat[i];
        if (other->at == other->n && other->served && start_of(t, other) < start_of(t, seat))
            return true;
    }
    return false;
}

static void decide(struct policy_plan *out, const struct seat *seat, enum policy_verdict verdict,
    const char *reason)
{
    policy_plan_add(out,
        (struct policy_decision){
            .job = seat->queue[seat->at], .verdict = verdict, .region = "", .reason = reason });
}

/* The head of a seat's queue: true when it was planned. */
static bool serve(struct table *t, struct seat *seat, struct policy_plan *out)
{
    const struct policy_job *j = head_of(t, seat);
    const struct policy_quota *q = &seat->quota;
    const int64_t gpus = j->replicas * j->gpus;
    const bool too_many_jobs = seat->live >= q->jobs;
    const bool too_many_gpus = gpus > 0 && gpus > q->gpus - seat->gpus;

    if (gpus > q->gpus || q->jobs <= 0) {
        decide(out, seat, POLICY_DEFER, "asks for more than its tenant may ever have");
        seat->at++;
        return false;
    }
    if (too_many_jobs || too_many_gpus) {
        decide(out, seat, POLICY_PASS_OVER,
            too_many_jobs ? "its tenant has as many jobs as it may"
                          : "its tenant has not so many GPUs left");
        seat->at = seat->n;
        seat->stopped = true;
        seat->served = false;
        return false;
    }
    t->round = start_of(t, seat);
    seat->finish = t->round + share_of(seat);
    seat->served = true;
    seat->live++;
    seat->gpus += gpus;
    decide(out, seat, POLICY_PLAN, "its tenant's turn");
    out->decision[out->n - 1].finish = seat->finish;
    out->round = t->round;
    seat->at++;
    return true;
}

/* A whole turn is over for each that can be served. Who has no more jobs is not there next time. */
static bool turn_is_over(const struct table *t)
{
    const int64_t end = t->s->window.round + POLICY_TURN;
    for (size_t i = 0; i < t->n; i++) {
        const struct seat *seat = &t->seat[i];
        if (!seat->stopped && start_of(t, seat) + share_of(seat) <= end)
            return false;
    }
    return true;
}

static void move_window(const struct table *t, int64_t planned, struct policy_plan *out)
{
    int64_t left = t->s->window.left;
    if (!t->s->window.part)
        return;
    for (size_t i = 0; i < t->n && t->s->window.left < 0; i++)
        left = (left < 0 ? 0 : left) + 2 * weight_of(&t->seat[i]);
    left = left > planned ? left - planned : 0;
    out->window_left = left;
    out->window_done = left == 0 || turn_is_over(t);
}

void policy_fair(const struct policy_snapshot *s, struct policy_plan *out)
{
    const int64_t free_places = s->max_provisioning - s->provisioning;
    int64_t planned = 0;
    struct table t;
    struct seat *seat = NULL;

    sit_down(s, &t);
    while (planned < free_places && (seat = next_seat(&t)) != NULL && !is_out_of_turn(&t, seat))
        planned += serve(&t, seat, out);
    move_window(&t, planned, out);
    free(t.seat);
    free(t.queue);
}
