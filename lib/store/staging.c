/* SPDX-License-Identifier: Apache-2.0 */
#include "store/staging.h"

#include <string.h>

#include "base/str.h"
#include "model/key.h"
#include "store/guess.h"
#include "store/staging_internal.h"

#define ENDED_PREFIX "wb:1:ended:"

enum { SENDER_SIZE = 2048, TRIES_MAX = 8 };

/* A call of a sorted set's command: a key of another type makes no sense and is replaced. */
#define ZSET \
    "local function zset(...)\n" \
    "  local r = redis.pcall(...)\n" \
    "  if type(r) ~= 'table' or not r.err then return r end\n" \
    "  if string.find(r.err, 'WRONGTYPE', 1, true) then redis.call('DEL', (select(2, ...))) end\n" \
    "  return redis.call(...)\n" \
    "end\n"

/* KEYS: value, index, ended. ARGV: expected value ("" for none), new value, TTL in seconds, member,
 * sender ("" for one that need not be looked up). A value of another type counts as absent. ended is a
 * sorted set of senders (score = until when each is refused), because the copies of one key may end in
 * quick succession. A sender that the expected value names already is not in it: the end that puts it
 * there removes the value. Only first reports make the index longer, so only they prune it. */
static struct kv_script PUT = {
    .text = ZSET "local t = redis.call('TIME')\n"
                 "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
                 "if ARGV[5] ~= '' then\n"
                 "  local till = redis.pcall('ZSCORE', KEYS[3], ARGV[5])\n"
                 "  if type(till) == 'string' and tonumber(till) > now then return {'ended'} end\n"
                 "end\n"
                 "local cur = redis.pcall('GET', KEYS[1])\n"
                 "if type(cur) ~= 'string' then cur = '' end\n"
                 "if cur ~= ARGV[1] then return {'old', cur} end\n"
                 "redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])\n"
                 "zset('ZADD', KEYS[2], now + ARGV[3] * 1000, ARGV[4])\n"
                 "if cur == '' then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now) end\n"
                 "return {'ok'}\n",
};

/* KEYS: as above. ARGV: member, seconds, and whose late reports are refused so long: the overlay's
 * "session", "all" that it names, or "nobody". Who is refused already stays so. */
static struct kv_script END = {
    .text = ZSET "local cur = redis.pcall('GET', KEYS[1])\n"
                 "redis.call('DEL', KEYS[1])\n"
                 "zset('ZREM', KEYS[2], ARGV[1])\n"
                 "if ARGV[3] == 'nobody' or type(cur) ~= 'string' then return {'ok'} end\n"
                 "local good, v = pcall(cjson.decode, cur)\n"
                 "if not good or type(v) ~= 'table' then return {'ok'} end\n"
                 "local t = redis.call('TIME')\n"
                 "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
                 "zset('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)\n"
                 "local function refuse(kind, who)\n"
                 "  if type(who) ~= 'string' or who == '' then return end\n"
                 "  redis.call('ZADD', KEYS[3], now + ARGV[2] * 1000, kind .. who)\n"
                 "  redis.call('EXPIRE', KEYS[3], ARGV[2])\n"
                 "end\n"
                 "if ARGV[3] == 'all' then refuse('c:', v.claim) end\n"
                 "refuse('s:', v.session)\n"
                 "return {'ok'}\n",
};

int staging_names(const char *key, struct names *n, struct err *e)
{
    if (str_format(n->value, sizeof n->value, STAGING_VALUE "%s", key) < 0 ||
        str_format(n->ended, sizeof n->ended, ENDED_PREFIX "%s", key) < 0 ||
        str_format(n->member, sizeof n->member, STAGING_MEMBER "%s", key) < 0)
        return err_set(e, ERR_INVALID, "the key is longer than %d bytes", KEY_MAX_BYTES);
    return 0;
}

/* --- reports ----------------------------------------------------------------------------------- */

struct put {
    struct kv *kv;
    const char *key;
    struct names names;
    bool guessed; /* what is stored was not read from Redis, but is in guess, or "" */
    struct guess guess;
    struct buf stored; /* what was read */
    json_object *json; /* what next borrows from, if stored was parsed */
    struct overlay_scratch scratch;
    struct overlay next; /* what is to be stored */
    bool sane;           /* it is one that readers will not skip */
    struct buf value;    /* the same as text */
    char sender[SENDER_SIZE];
};

static void put_free(struct put *p)
{
    guess_free(&p->guess);
    buf_free(&p->stored);
    json_object_put(p->json);
    buf_free(&p->value);
}
#define cleanup_put __attribute__((cleanup(put_free)))

static struct kv_arg stored_of(const struct put *p)
{
    const char *data = p->guessed ? p->guess.value : p->stored.data;
    size_t size = p->guessed ? p->guess.size : p->stored.len;
    return (struct kv_arg){ .data = size == 0 ? "" : data, .size = size };
}

static void keep_stored(struct put *p, const char *data, size_t size)
{
    p->guessed = false;
    buf_clear(&p->stored);
    buf_add(&p->stored, data, size);
}

static int read_stored(struct put *p, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    if (kv_command(p->kv, KV_ARGS(kv_text("GET"), kv_text(p->names.value)), &r, e) < 0)
        return -1;
    bool text = r->type == REDIS_REPLY_STRING;
    keep_stored(p, text ? r->str : "", text ? r->len : 0);
    return 0;
}

/* What is stored; NULL: nothing. What makes no sense counts as absent, and is replaced. */
static const struct overlay *parse_stored(struct put *p, struct overlay *room)
{
    if (p->guessed)
        return p->guess.size > 0 ? &p->guess.overlay : NULL;
    json_object_put(p->json);
    p->json = NULL;
    if (p->stored.len == 0 ||
        overlay_from_json(p->key, p->stored.data, p->stored.len, room, &p->json, NULL) < 0)
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
    p->sender[0] = '\0';
    if (!by_claim && old != NULL && overlay_is_owners_session(old, r->session))
        return; /* old names his claim */
    if (!str_empty(sender) && strcmp(sender, known) != 0)
        (void)str_format(p->sender, sizeof p->sender, "%s:%s", by_claim ? "c" : "s", sender);
}

/* Merges the report into what is stored: fills next, value and sender. */
static enum report_fate merge(struct put *p, const struct report *r)
{
    struct overlay room;
    const struct overlay *old = parse_stored(p, &room);
    enum report_fate fate = overlay_apply(p->key, old, r, &p->scratch, &p->next);
    if (fate != REPORT_APPLIED && fate != REPORT_FIRST)
        return fate;
    p->sane = overlay_is_sane(&p->next);
    if (!p->sane)
        return fate;
    buf_clear(&p->value);
    overlay_print(&p->next, &p->value);
    name_sender(p, r, old);
    return fate;
}

/* 0 stored; 1 what is stored differs from what was expected, and is now known; -1. */
static int store(struct put *p, struct err *e)
{
    static const char TTL[] = "60";
    _Static_assert(OVERLAY_TTL_S == 60, "the text of the TTL");
    const struct names *n = &p->names;
    cleanup_reply redisReply *r = NULL;
    int rc = kv_script_run(p->kv, &PUT,
        KV_ARGS(kv_text(n->value), kv_text(STAGING_INDEX), kv_text(n->ended)),
        KV_ARGS(stored_of(p), { .data = p->value.data, .size = p->value.len }, kv_text(TTL),
            kv_text(n->member), kv_text(p->sender)),
        &r, e);
    if (rc < 0)
        return -1;
    bool array = r->type == REDIS_REPLY_ARRAY && r->elements > 0 &&
                 r->element[0]->type == REDIS_REPLY_STRING;
    const char *word = array ? r->element[0]->str : "";
    if (strcmp(word, "ok") == 0)
        return 0;
    if (strcmp(word, "ended") == 0)
        return err_set(e, ERR_CONFLICT, "this copy has ended");
    if (strcmp(word, "old") != 0 || r->elements != 2 || r->element[1]->type != REDIS_REPLY_STRING)
        return err_set(e, ERR_INTERNAL, "redis: the script answered something unknown");
    keep_stored(p, r->element[1]->str, r->element[1]->len);
    /* It was stored by this very call, whose answer was lost with its connection. */
    if (p->stored.len == p->value.len && memcmp(p->stored.data, p->value.data, p->value.len) == 0)
        return 0;
    return 1;
}

/* One try. 0 done, *fate set; 1 try again; -1. */
static int try_report(struct put *p, const struct report *r, enum report_fate *fate, struct err *e)
{
    enum report_fate f = merge(p, r);
    bool refused = f == REPORT_CONFLICT || f == REPORT_OUTDATED;
    if (refused && p->guessed)
        return read_stored(p, e) < 0 ? -1 : 1;
    if (f == REPORT_CONFLICT)
        return err_set(e, ERR_CONFLICT, "another sender reports this key");
    if (f == REPORT_OUTDATED) {
        *fate = f;
        return 0;
    }
    if (!p->sane)
        return err_set(e, ERR_INVALID, "a field of the report is out of range");
    if (p->value.overflow)
        return err_set(
            e, ERR_TOO_LARGE, "the report makes a value of over %d bytes", OVERLAY_VALUE_MAX);
    int rc = store(p, e);
    if (rc == 0) {
        guess_remember(&p->next, &p->value);
        *fate = f;
    }
    return rc;
}

int staging_report(
    struct kv *kv, const char *key, const struct report *r, enum report_fate *fate, struct err *e)
{
    /* A stored value may be anything and must be handed back as it is to be replaced. */
    cleanup_put struct put p = { .kv = kv,
        .key = key,
        .guessed = true,
        .guess = GUESS_INIT,
        .stored = BUF_INIT(SIZE_MAX / 2),
        .value = BUF_INIT(OVERLAY_VALUE_MAX) };
    if (staging_names(key, &p.names, e) < 0)
        return -1;
    (void)guess_recall(key, &p.guess);
    for (int i = 0; i < TRIES_MAX; i++) {
        int rc = try_report(&p, r, fate, e);
        if (rc <= 0)
            return rc;
    }
    return err_set(e, ERR_UNAVAILABLE, "too many senders report this key at once");
}

/* --- ends -------------------------------------------------------------------------------------- */

static int end(struct kv *kv, const char *key, const char *refused, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    struct names n;
    if (staging_names(key, &n, e) < 0)
        return -1;
    guess_forget(key);
    return kv_script_run(kv, &END,
        KV_ARGS(kv_text(n.value), kv_text(STAGING_INDEX), kv_text(n.ended)),
        KV_ARGS(kv_text(n.member), kv_text("60"), kv_text(refused)), &r, e);
}

int staging_end(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, "session", e);
}

int staging_end_load(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, "all", e);
}

int staging_forget(struct kv *kv, const char *key, struct err *e)
{
    return end(kv, key, "nobody", e);
}

int changes_publish(struct kv *kv, const char *machine_id, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    return kv_command(
        kv, KV_ARGS(kv_text("PUBLISH"), kv_text(CHANGES_CHANNEL), kv_text(machine_id)), &r, e);
}
