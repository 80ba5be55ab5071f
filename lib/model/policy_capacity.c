/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/gpu_match.h"
#include "model/policy.h"

enum { PASSED_OVER_MAX = 200 };
#define PLENTY INT64_MAX

/* What is left of an offer while this plan is made. */
struct room {
    const struct provision_offer *offer;
    int64_t
        left; /* machines, or GPUs of one that replicas share; PLENTY: the provider does not tell */
    bool kept; /* for a job that has waited too long */
};

/* What a job needs, or one that was planned before. */
struct need {
    const char *gpu_type;
    const char *region; /* "": any */
    int64_t gpus;
    int64_t replicas;
};

struct place {
    const struct room *room; /* NULL: none */
    char region[PROVISION_TEXT_SIZE];
};

static bool serves(const struct provision_offer *o, const struct need *n)
{
    if (o->any)
        return true;
    return (o->shared || o->gpus == n->gpus) && gpu_match(n->gpu_type, o->type, o->gpu_type);
}

/* Replicas for which there is room. */
static int64_t fits(const struct room *r, const struct need *n)
{
    if (r->kept || !serves(r->offer, n))
        return 0;
    if (!r->offer->shared || r->left == PLENTY)
        return r->left;
    return n->gpus == 0 ? PLENTY : r->left / n->gpus;
}

/* Does the offer stand in that region, one of the words of its list? */
static bool stands_in(const struct provision_offer *o, const char *region)
{
    const size_t size = strlen(region);
    for (const char *at = o->regions; (at = strstr(at, region)) != NULL; at += size) {
        if ((at == o->regions || at[-1] == ' ') && (at[size] == ' ' || at[size] == '\0'))
            return true;
    }
    return false;
}

static const char *next_region(const char *at, char out[PROVISION_TEXT_SIZE])
{
    at += strspn(at, " ");
    const size_t size = strcspn(at, " ");
    if (size == 0 || size >= PROVISION_TEXT_SIZE)
        return NULL;
    memcpy(out, at, size);
    out[size] = '\0';
    return at + size;
}

/* Where replicas share machines, they may be spread over all of a region; machines that they have to themselves are of
 * one type. */
static int64_t fits_in(const struct room *room, size_t n_rooms, const struct room *r,
    const struct need *n, const char *region)
{
    int64_t sum = 0;
    if (!r->offer->shared)
        return fits(r, n);
    for (size_t i = 0; i < n_rooms && sum < n->replicas; i++) {
        if (!room[i].offer->shared || !stands_in(room[i].offer, region))
            continue;
        const int64_t more = fits(&room[i], n);
        sum = more == PLENTY ? PLENTY : sum + more;
    }
    return sum;
}

static bool is_cheaper(const struct room *a, const struct room *b)
{
    return b == NULL || a->offer->price_cents_per_hour < b->offer->price_cents_per_hour;
}

/* The cheapest place for all replicas. */
static struct place find_place(const struct room *room, size_t n_rooms, const struct need *n)
{
    struct place best = { .room = NULL };
    for (size_t i = 0; i < n_rooms; i++) {
        char region[PROVISION_TEXT_SIZE];
        const char *at = room[i].offer->regions;
        if (fits(&room[i], n) == 0 || !is_cheaper(&room[i], best.room))
            continue;
        while ((at = next_region(at, region)) != NULL) {
            if ((n->region[0] != '\0' && strcmp(region, n->region) != 0) ||
                fits_in(room, n_rooms, &room[i], n, region) < n->replicas)
                continue;
            best.room = &room[i];
            memcpy(best.region, region, sizeof region);
            break;
        }
    }
    return best;
}

static void take_from(struct room *r, const struct need *n, int64_t *replicas)
{
    const int64_t most = fits(r, n);
    const int64_t taken = most < *replicas ? most : *replicas;
    if (r->left != PLENTY)
        r->left -= r->offer->shared ? taken * n->gpus : taken;
    *replicas -= taken;
}

static void take(struct room *room, size_t n_rooms, const struct place *p, const struct need *n)
{
    int64_t replicas = n->replicas;
    for (size_t i = 0; i < n_rooms && replicas > 0; i++) {
        if (&room[i] == p->room || (p->room->offer->shared && room[i].offer->shared &&
                                       stands_in(room[i].offer, p->region)))
            take_from(&room[i], n, &replicas);
    }
}

/* What was planned since the catalog was read: what does not fit any more has been seen to by the provider. */
static void take_planned(const struct policy_snapshot *s, struct room *room, size_t n_rooms)
{
    for (size_t i = 0; i < s->n_taken; i++) {
        const struct policy_taken *t = &s->taken[i];
        const struct need n = { t->gpu_type, "", t->gpus, 1 };
        for (int64_t k = 0; k < t->replicas; k++) {
            const struct place p = find_place(room, n_rooms, &n);
            if (p.room == NULL)
                break;
            take(room, n_rooms, &p, &n);
        }
    }
}

static bool is_known(const struct room *room, size_t n_rooms, const struct need *n)
{
    for (size_t i = 0; i < n_rooms; i++) {
        if (serves(room[i].offer, n))
            return true;
    }
    return false;
}

static bool keeps(const struct policy_snapshot *s, const struct policy_job *j)
{
    return j->passed_over_us > 0 && (s->now_us - j->passed_over_us) / s->ageing_us % 2 == 1;
}

static void keep(struct room *room, size_t n_rooms, const struct need *n)
{
    for (size_t i = 0; i < n_rooms; i++) {
        if (serves(room[i].offer, n))
            room[i].kept = true;
    }
}

static struct policy_decision decide(
    const struct policy_snapshot *s, struct room *room, size_t n_rooms, size_t at)
{
    const struct policy_job *j = &s->job[at];
    const struct need n = { j->gpu_type, j->region, j->gpus, j->replicas };
    struct policy_decision d = { .job = at, .region = "" };
    const struct place p = find_place(room, n_rooms, &n);

    if (p.room != NULL) {
        take(room, n_rooms, &p, &n);
        d.verdict = POLICY_PLAN;
        memcpy(d.region, p.region, sizeof d.region);
        d.reason = "there is room for it";
    } else if (!is_known(room, n_rooms, &n)) {
        d.verdict = POLICY_DEFER;
        d.reason = "the provider offers no machine of this kind";
    } else {
        d.verdict = POLICY_PASS_OVER;
        d.reason = "there is no room for all of its replicas now";
        if (keeps(s, j))
            keep(room, n_rooms, &n);
    }
    return d;
}

void policy_capacity(const struct policy_snapshot *s, struct policy_plan *out)
{
    int64_t free_places = s->max_provisioning - s->provisioning;
    size_t passed_over = 0;

    if (s->catalog == NULL) {
        policy_simple(s, out);
        return;
    }
    const size_t n = s->catalog->n;
    struct room *room = mem_calloc(n + 1, sizeof *room);
    for (size_t i = 0; i < n; i++) {
        const struct provision_offer *o = &s->catalog->offer[i];
        room[i] = (struct room){ .offer = o, .left = o->free };
        if (o->free < 0)
            room[i].left = PLENTY;
        else if (o->shared)
            room[i].left = o->gpus;
    }
    take_planned(s, room, n);
    for (size_t i = 0; i < s->n_jobs && free_places > 0; i++) {
        const struct policy_decision d = decide(s, room, n, i);
        free_places -= d.verdict == POLICY_PLAN;
        passed_over += d.verdict == POLICY_PASS_OVER;
        if (d.verdict != POLICY_PASS_OVER || passed_over <= PASSED_OVER_MAX)
            policy_plan_add(out, d);
    }
    free(room);
}
