/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/str.h"
#include "model/overlay.h"
#include "store/live_internal.h"

enum { TRIES_MAX = 8 };

#define TTL "60"
_Static_assert(OVERLAY_TTL_S == 60, "the text of the TTL");

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
 * "session", "all" that it names, "nobody", or any sender, whom ARGV[4] stands for. Who is refused
 * already stays so. */
static struct kv_script END = {
    .text = ZSET "local cur = redis.pcall('GET', KEYS[1])\n"
                 "redis.call('DEL', KEYS[1])\n"
                 "zset('ZREM', KEYS[2], ARGV[1])\n"
                 "if ARGV[3] == 'nobody' then return {'ok'} end\n"
                 "local t = redis.call('TIME')\n"
                 "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
                 "local function refuse(kind, who)\n"
                 "  if type(who) ~= 'string' then return end\n"
                 "  redis.call('ZADD', KEYS[3], now + ARGV[2] * 1000, kind .. who)\n"
                 "  redis.call('EXPIRE', KEYS[3], ARGV[2])\n"
                 "end\n"
                 "zset('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)\n"
                 "if ARGV[3] == 'any' then refuse(ARGV[4], '') end\n"
                 "local good, v = pcall(cjson.decode, cur)\n"
                 "if not good or type(v) ~= 'table' then return {'ok'} end\n"
                 "if ARGV[3] == 'all' and v.claim ~= '' then refuse('c:', v.claim) end\n"
                 "if ARGV[3] ~= 'any' and v.session ~= '' then refuse('s:', v.session) end\n"
                 "return {'ok'}\n",
};

int live_names(const struct live_kind *kind, const char *key, struct live_names *n, struct err *e)
{
    if (str_format(n->value, sizeof(n->value), "%s%s", kind->value, key) < 0 ||
        str_format(n->ended, sizeof(n->ended), "%s%s", kind->ended, key) < 0 ||
        str_format(n->member, sizeof(n->member), "%s%s", kind->member, key) < 0)
        return err_set(e, ERR_INVALID, "the key is longer than %d bytes", KEY_MAX_BYTES);
    return 0;
}

void live_put_free(struct live_put *p)
{
    buf_free(&p->stored);
    buf_free(&p->value);
}

static void keep_stored(struct live_put *p, const char *data, size_t size)
{
    p->guessed = false;
    buf_clear(&p->stored);
    buf_add(&p->stored, data, size);
    p->expected = (struct kv_arg){ .data = size == 0 ? "" : p->stored.data, .size = size };
}

static int read_stored(struct live_put *p, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    if (kv_command(p->kv, KV_ARGS(kv_text("GET"), kv_text(p->names.value)), &r, e) < 0)
        return -1;
    bool text = r->type == REDIS_REPLY_STRING;
    keep_stored(p, text ? r->str : "", text ? r->len : 0);
    return 0;
}

/* 0 stored; 1 what is stored differs from what was expected, and is now known; -1. */
static int store(struct live_put *p, struct err *e)
{
    const struct live_names *n = &p->names;
    cleanup_reply redisReply *r = NULL;
    int rc = kv_script_run(p->kv, &PUT,
        KV_ARGS(kv_text(n->value), kv_text(LIVE_INDEX), kv_text(n->ended)),
        KV_ARGS(p->expected, { .data = p->value.data, .size = p->value.len }, kv_text(TTL),
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
        return err_set(e, ERR_CONFLICT, "%s", p->kind->over);
    if (strcmp(word, "old") != 0 || r->elements != 2 || r->element[1]->type != REDIS_REPLY_STRING)
        return err_set(e, ERR_INTERNAL, "redis: the script answered something unknown");
    keep_stored(p, r->element[1]->str, r->element[1]->len);
    /* It was stored by this very call, whose answer was lost with its connection. */
    if (p->stored.len == p->value.len && memcmp(p->stored.data, p->value.data, p->value.len) == 0)
        return 0;
    return 1;
}

/* One try. 0 done; 1 try again; -1. */
static int try_once(struct live_put *p, struct err *e)
{
    buf_clear(&p->value);
    p->sender[0] = '\0';
    switch (p->merge(p, e)) {
    case LIVE_REREAD:
        return read_stored(p, e) < 0 ? -1 : 1;
    case LIVE_DONE:
        return 0;
    case LIVE_FAILED:
        return -1;
    case LIVE_WRITE:
        break;
    }
    if (p->value.overflow)
        return err_set(
            e, ERR_TOO_LARGE, "the report makes a value of over %zu bytes", p->value.max);
    return store(p, e);
}

int live_put_run(struct live_put *p, const char *key, struct err *e)
{
    if (live_names(p->kind, key, &p->names, e) < 0)
        return -1;
    for (int i = 0; i < TRIES_MAX; i++) {
        int rc = try_once(p, e);
        if (rc <= 0)
            return rc;
    }
    return err_set(e, ERR_UNAVAILABLE, "too many senders report this key at once");
}

int live_end(struct kv *kv, const struct live_kind *kind, const char *key,
    enum live_refused refused, struct err *e)
{
    static const char *const WORD[] = { [LIVE_SESSION] = "session",
        [LIVE_ALL] = "all",
        [LIVE_NOBODY] = "nobody",
        [LIVE_ANYBODY] = "any" };
    cleanup_reply redisReply *r = NULL;
    struct live_names n;
    if (live_names(kind, key, &n, e) < 0)
        return -1;
    return kv_script_run(kv, &END, KV_ARGS(kv_text(n.value), kv_text(LIVE_INDEX), kv_text(n.ended)),
        KV_ARGS(kv_text(n.member), kv_text(TTL), kv_text(WORD[refused]), kv_text(LIVE_ANY_SENDER)),
        &r, e);
}
