/* SPDX-License-Identifier: Apache-2.0 */
#include "store/staging.h"

#include <string.h>

#include "base/str.h"
#include "model/key.h"
#include "store/guess.h"
#include "store/live_internal.h"

static int parse(
    const char *key, const char *text, size_t size, void *out, json_object **json, struct err *e)
{
    return overlay_from_json(key, text, size, out, json, e);
}

const struct live_kind LIVE_STAGING = {
    .value = "wb:1:staging:",
    .ended = "wb:1:ended:",
    .member = "staging:",
    .over = "this copy has ended",
    .size = sizeof(struct overlay),
    .expires = offsetof(struct overlay, expires_ns),
    .check = key_check,
    .parse = parse,
};

/* --- reports ----------------------------------------------------------------------------------- */

struct put {
    struct live_put live; /* first, so that merge() finds the rest */
    const char *key;
    const struct report *report;
    enum report_fate fate;
    struct guess guess; /* what expected points to while it is a guess */
    json_object *json;  /* what next borrows from, if what is stored was parsed */
    struct overlay_scratch scratch;
    struct overlay next; /* what is to be stored */
};

static void put_free(struct put *p)
{
    live_put_free(&p->live);
    guess_free(&p->guess);
    json_object_put(p->json);
}
#define cleanup_put __attribute__((cleanup(put_free)))

/* What is stored; NULL: nothing. What makes no sense counts as absent, and is replaced. */
static const struct overlay *parse_stored(struct put *p, struct overlay *room)
{
    const struct kv_arg *stored = &p->live.expected;
    if (p->live.guessed)
        return stored->size > 0 ? &p->guess.overlay : NULL;
    json_object_put(p->json);
    p->json = NULL;
    if (stored->size == 0 ||
        overlay_from_json(p->key, stored->data, stored->size, room, &p->json, NULL) < 0)
        return NULL;
    return room;
}

/* Whom the script has to look up among those whose copy ended: "" for one that old names. */
static void name_sender(struct put *p, const struct report *r, const struct overlay *old)
{
    char room[CLAIM_SHORT_SIZE];
    bool by_claim = !str_empty(r->claim);
    const char *sender = by_claim ? r->claim : overlay_session(r->session, room);
    const char *known = old == NULL ? "" : by_claim ? old->claim : old->session;
    if (!by_claim && old != NULL && overlay_is_owners_session(old, r->session))
        return; /* old names his claim */
    if (!str_empty(sender) && strcmp(sender, known) != 0)
        (void)str_format(
            p->live.sender, sizeof(p->live.sender), "%s:%s", by_claim ? "c" : "s", sender);
}

/* Merges the report into what is stored. */
static enum live_step merge(struct live_put *live, struct err *e)
{
    struct put *p = (struct put *)live;
    struct overlay room;
    const struct overlay *old = parse_stored(p, &room);
    p->fate = overlay_apply(p->key, old, p->report, &p->scratch, &p->next);
    bool refused = p->fate == REPORT_CONFLICT || p->fate == REPORT_OUTDATED;
    if (refused && live->guessed)
        return LIVE_REREAD;
    if (p->fate == REPORT_OUTDATED)
        return LIVE_DONE;
    if (p->fate == REPORT_CONFLICT) {
        err_set(e, ERR_CONFLICT, "another sender reports this key");
        return LIVE_FAILED;
    }
    if (!overlay_is_sane(&p->next)) {
        err_set(e, ERR_INVALID, "a field of the report is out of range");
        return LIVE_FAILED;
    }
    overlay_print(&p->next, &live->value);
    name_sender(p, p->report, old);
    return LIVE_WRITE;
}

int staging_report(
    struct kv *kv, const char *key, const struct report *r, enum report_fate *fate, struct err *e)
{
    struct load_numbers now;
    return staging_report_now(kv, key, r, fate, &now, e);
}

int staging_report_now(struct kv *kv, const char *key, const struct report *r,
    enum report_fate *fate, struct load_numbers *now, struct err *e)
{
    cleanup_put struct put p = { .live = LIVE_PUT(kv, &LIVE_STAGING, merge, OVERLAY_VALUE_MAX),
        .key = key,
        .report = r,
        .guess = GUESS_INIT };
    if (guess_recall(key, &p.guess))
        p.live.expected = (struct kv_arg){ .data = p.guess.value, .size = p.guess.size };
    if (live_put_run(&p.live, key, e) < 0)
        return -1;
    if (p.fate != REPORT_OUTDATED)
        guess_remember(&p.next, &p.live.value);
    *now = (struct load_numbers){ .bytes_sent = p.next.bytes_sent,
        .total_bytes = p.next.total_bytes,
        .file_index = p.next.file_index,
        .total_files = p.next.total_files };
    *fate = p.fate;
    return 0;
}

/* --- ends -------------------------------------------------------------------------------------- */

static int end(struct kv *kv, const char *key, enum live_refused refused, struct err *e)
{
    guess_forget(key);
    return live_end(kv, &LIVE_STAGING, key, refused, e);
}

int staging_end(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, LIVE_SESSION, e);
}

int staging_end_load(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, LIVE_ALL, e);
}

int staging_forget(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, LIVE_NOBODY, e);
}

int changes_publish(struct kv *kv, const char *machine_id, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    return kv_command(
        kv, KV_ARGS(kv_text("PUBLISH"), kv_text(CHANGES_CHANNEL), kv_text(machine_id)), &r, e);
}
