/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/key.h"
#include "store/staging_internal.h"

enum { MGET_MAX = 1000 };
#define MEMBERS_MAX "-100000" /* the newest 100,000, as ZRANGE counts from the end */

void overlays_free(struct overlays *o)
{
    for (size_t i = 0; i < o->n; i++)
        json_object_put(o->json[i]);
    free(o->json);
    free(o->overlay);
    *o = (struct overlays)OVERLAYS_INIT;
}

static void overlays_room(struct overlays *o, size_t n)
{
    o->overlay = mem_calloc(n == 0 ? 1 : n, sizeof *o->overlay);
    o->json = mem_calloc(n == 0 ? 1 : n, sizeof *o->json);
}

/* The bytes that a value was parsed from, kept with it: most values are the same from one list to the
 * next, and comparing costs a hundredth of parsing. */
struct raw {
    size_t size;
    char data[];
};

static void raw_free(json_object *o, void *raw)
{
    (void)o;
    free(raw);
}

static void keep_raw(json_object *json, const redisReply *value)
{
    struct raw *raw = mem_alloc(sizeof *raw + value->len);
    raw->size = value->len;
    memcpy(raw->data, value->str, value->len);
    json_object_set_userdata(json, raw, raw_free);
}

/* A list that was read before, walked in step with the new one: both are in key order. */
struct before {
    const struct overlays *list; /* NULL: none */
    size_t at;
};

static bool take_unchanged(
    struct before *before, const char *key, const redisReply *value, struct overlays *o)
{
    const struct overlays *list = before->list;
    while (list != NULL && before->at < list->n && strcmp(list->overlay[before->at].key, key) < 0)
        before->at++;
    if (list == NULL || before->at >= list->n || strcmp(list->overlay[before->at].key, key) != 0)
        return false;
    const struct raw *raw = json_object_get_userdata(list->json[before->at]);
    if (raw->size != value->len || memcmp(raw->data, value->str, value->len) != 0)
        return false;
    o->overlay[o->n] = list->overlay[before->at];
    o->json[o->n] = json_object_get(list->json[before->at]);
    return true;
}

/* Adds the value that Redis has for key; what is no sound value is counted and skipped. */
static void overlays_add(struct overlays *o, struct before *before, const char *key,
    const redisReply *value, int64_t expires_ns)
{
    if (value->type != REDIS_REPLY_STRING)
        return;
    if (!take_unchanged(before, key, value, o)) {
        if (overlay_from_json(
                key, value->str, value->len, &o->overlay[o->n], &o->json[o->n], NULL) < 0) {
            o->malformed++;
            return;
        }
        keep_raw(o->json[o->n], value);
    }
    o->overlay[o->n].expires_ns = expires_ns;
    o->n++;
}

static int check_type(const redisReply *r, int type, struct err *e)
{
    if (r->type == REDIS_REPLY_ERROR)
        return kv_refused(r, e);
    if (r->type != type)
        return err_set(e, ERR_INTERNAL, "redis: a reply of the wrong type");
    return 0;
}

/* The next reply of a pipeline, which must be of that type. */
static int take(struct kv *kv, int type, redisReply **out, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    if (kv_take(kv, &r, e) < 0 || check_type(r, type, e) < 0)
        return -1;
    *out = STEAL(r);
    return 0;
}

int staging_get(struct kv *kv, const char *key, struct overlays *out, struct err *e)
{
    cleanup_overlays struct overlays found = OVERLAYS_INIT;
    cleanup_reply redisReply *ttl = NULL;
    cleanup_reply redisReply *value = NULL;
    struct names n;
    if (staging_names(key, &n, e) < 0)
        return -1;
    int64_t now = clock_mono_ns();
    if (kv_append(kv, KV_ARGS(kv_text("PTTL"), kv_text(n.value)), e) < 0 ||
        kv_append(kv, KV_ARGS(kv_text("MGET"), kv_text(n.value)), e) < 0 ||
        take(kv, REDIS_REPLY_INTEGER, &ttl, e) < 0 || take(kv, REDIS_REPLY_ARRAY, &value, e) < 0)
        return -1;
    overlays_room(&found, 1);
    struct before none = { .list = NULL, .at = 0 };
    if (value->elements == 1)
        overlays_add(&found, &none, key, value->element[0],
            ttl->integer > 0 ? now + ttl->integer * NS_PER_MS : 0);
    *out = found;
    found = (struct overlays)OVERLAYS_INIT;
    return out->n == 0 ? 1 : 0;
}

/* A member of the index that is live. */
struct member {
    const char *key; /* borrowed from the reply */
    int64_t left_ms;
    const redisReply *value; /* borrowed; NULL: not known yet */
};

struct members {
    struct member *member;
    size_t n;
    size_t malformed;
};

static void members_free(struct members *m)
{
    free(m->member);
}
#define cleanup_members __attribute__((cleanup(members_free)))

/* Redis' time in milliseconds from its reply to TIME. */
static int read_time(const redisReply *r, double *out_ms, struct err *e)
{
    int64_t s = 0;
    int64_t us = 0;
    if (r->elements != 2 || r->element[0]->type != REDIS_REPLY_STRING ||
        r->element[1]->type != REDIS_REPLY_STRING ||
        str_to_i64(r->element[0]->str, 0, INT32_MAX * INT64_C(1000), &s) < 0 ||
        str_to_i64(r->element[1]->str, 0, US_PER_S, &us) < 0)
        return err_set(e, ERR_INTERNAL, "redis: TIME makes no sense");
    *out_ms = (double)s * 1000.0 + floor((double)us / 1000.0);
    return 0;
}

/* Whatever a score says: no overlay outlives its TTL. */
static int64_t left_ms(double told_ms)
{
    return (int64_t)fmin(told_ms, (double)OVERLAY_TTL_S * (double)MS_PER_S);
}

static void members_add(
    struct members *m, const redisReply *name, const redisReply *score, double now_ms)
{
    const size_t prefix = strlen(STAGING_MEMBER);
    double till_ms = 0.0;
    if (name->type != REDIS_REPLY_STRING || score->type != REDIS_REPLY_STRING ||
        !str_starts(name->str, STAGING_MEMBER))
        return;
    bool sane = strlen(name->str) == name->len && key_check(name->str + prefix, NULL) == 0 &&
                str_to_double(score->str, &till_ms) == 0;
    if (!sane)
        m->malformed++;
    else if (till_ms > now_ms)
        m->member[m->n++] =
            (struct member){ .key = name->str + prefix, .left_ms = left_ms(till_ms - now_ms) };
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->key, ((const struct member *)b)->key);
}

/* index: NULL when it makes no sense. */
static void members_read(struct members *m, const redisReply *index, double now_ms)
{
    if (index == NULL) {
        m->malformed++;
        return;
    }
    m->member = mem_calloc(index->elements / 2 + 1, sizeof *m->member);
    for (size_t i = 0; i + 1 < index->elements; i += 2)
        members_add(m, index->element[i], index->element[i + 1], now_ms);
    qsort(m->member, m->n, sizeof *m->member, by_key);
}

/* Replies to MGETs of MGET_MAX keys each. */
struct values {
    redisReply **reply;
    size_t n;
};
#define VALUES_INIT \
    { \
        .reply = NULL, .n = 0 \
    }

static void values_free(struct values *v)
{
    for (size_t i = 0; i < v->n; i++)
        freeReplyObject(v->reply[i]);
    free(v->reply);
}
#define cleanup_values __attribute__((cleanup(values_free)))

static size_t part(size_t n, size_t from)
{
    return n - from < MGET_MAX ? n - from : MGET_MAX;
}

static int ask_part(struct kv *kv, const char *const *key, size_t n, struct err *e)
{
    cleanup_free char *names = mem_alloc(n * NAME_SIZE);
    cleanup_free struct kv_arg *args = mem_calloc(n + 1, sizeof *args);
    args[0] = kv_text("MGET");
    for (size_t i = 0; i < n; i++) {
        char *name = names + i * NAME_SIZE;
        (void)str_format(name, NAME_SIZE, STAGING_VALUE "%s", key[i]);
        args[i + 1] = kv_text(name);
    }
    return kv_append(kv, (struct kv_args){ .arg = args, .n = n + 1 }, e);
}

static int values_ask(struct kv *kv, const char *const *key, size_t n, struct err *e)
{
    for (size_t at = 0; at < n; at += MGET_MAX)
        if (ask_part(kv, &key[at], part(n, at), e) < 0)
            return -1;
    return 0;
}

static int values_take(struct kv *kv, size_t n, struct values *v, struct err *e)
{
    v->reply = mem_calloc(n / MGET_MAX + 1, sizeof(redisReply *));
    for (size_t at = 0; at < n; at += MGET_MAX) {
        if (take(kv, REDIS_REPLY_ARRAY, &v->reply[v->n], e) < 0)
            return -1;
        if (v->reply[v->n++]->elements != part(n, at))
            return err_set(e, ERR_INTERNAL, "redis: MGET answered too few values");
    }
    return 0;
}

static const redisReply *values_at(const struct values *v, size_t i)
{
    return v->reply[i / MGET_MAX]->element[i % MGET_MAX];
}

/* The values of members that the list before has too, which were asked for together with the index;
 * late gets the keys of the others. Both lists are in key order. */
static size_t take_early(
    struct members *m, const struct overlays *before, const struct values *early, const char **late)
{
    size_t at = 0;
    size_t n_late = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct member *one = &m->member[i];
        int order = -1;
        while (at < before->n && (order = strcmp(before->overlay[at].key, one->key)) < 0)
            at++;
        if (at < before->n && order == 0)
            one->value = values_at(early, at);
        else
            late[n_late++] = one->key;
    }
    return n_late;
}

/* The index; *out stays NULL when its key is of another type, which the next report replaces. */
static int take_index(struct kv *kv, redisReply **out, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    if (kv_take(kv, &r, e) < 0)
        return -1;
    if (r->type == REDIS_REPLY_ERROR && str_starts(r->str, "WRONGTYPE"))
        return 0;
    if (check_type(r, REDIS_REPLY_ARRAY, e) < 0)
        return -1;
    *out = STEAL(r);
    return 0;
}

/* Asks for time, index, and the values that were there before; takes time and index. */
static int read_index(struct kv *kv, const struct overlays *before, redisReply **time,
    redisReply **index, struct err *e)
{
    cleanup_free const char **key = mem_calloc(before->n + 1, sizeof *key);
    for (size_t i = 0; i < before->n; i++)
        key[i] = before->overlay[i].key;
    if (kv_append(kv, KV_ARGS(kv_text("TIME")), e) < 0 ||
        kv_append(kv,
            KV_ARGS(kv_text("ZRANGE"), kv_text(STAGING_INDEX), kv_text(MEMBERS_MAX), kv_text("-1"),
                kv_text("WITHSCORES")),
            e) < 0 ||
        values_ask(kv, key, before->n, e) < 0)
        return -1;
    return take(kv, REDIS_REPLY_ARRAY, time, e) < 0 ? -1 : take_index(kv, index, e);
}

/* Gives each member its value: one of early, else one that is asked for now. */
static int read_values(struct kv *kv, struct members *m, const struct overlays *before,
    const struct values *early, struct values *late, struct err *e)
{
    cleanup_free const char **key = mem_calloc(m->n + 1, sizeof *key);
    size_t n = take_early(m, before, early, key);
    if (values_ask(kv, key, n, e) < 0 || values_take(kv, n, late, e) < 0)
        return -1;
    for (size_t i = 0, at = 0; i < m->n; i++)
        if (m->member[i].value == NULL)
            m->member[i].value = values_at(late, at++);
    return 0;
}

int staging_list(struct kv *kv, const struct overlays *before, struct overlays *out, struct err *e)
{
    static const struct overlays NONE = OVERLAYS_INIT;
    struct before walked = { .list = before, .at = 0 };
    cleanup_reply redisReply *time = NULL;
    cleanup_reply redisReply *index = NULL;
    cleanup_values struct values early = VALUES_INIT;
    cleanup_values struct values late = VALUES_INIT;
    cleanup_members struct members m = { .member = NULL, .n = 0, .malformed = 0 };
    cleanup_overlays struct overlays found = OVERLAYS_INIT;
    double redis_ms = 0.0;
    if (before == NULL)
        before = &NONE;
    if (read_index(kv, before, &time, &index, e) < 0)
        return -1;
    int64_t now_ns = clock_mono_ns();
    if (values_take(kv, before->n, &early, e) < 0 || read_time(time, &redis_ms, e) < 0)
        return -1;
    members_read(&m, index, redis_ms);
    if (read_values(kv, &m, before, &early, &late, e) < 0)
        return -1;
    overlays_room(&found, m.n);
    found.malformed = m.malformed;
    for (size_t i = 0; i < m.n; i++) {
        const struct member *one = &m.member[i];
        overlays_add(&found, &walked, one->key, one->value, now_ns + one->left_ms * NS_PER_MS);
    }
    *out = found;
    found = (struct overlays)OVERLAYS_INIT;
    return 0;
}
