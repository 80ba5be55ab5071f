/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/overlay.h"
#include "store/live_internal.h"

enum { MGET_MAX = 1000 };
#define MEMBERS_MAX "-100000" /* the newest 100,000, as ZRANGE counts from the end */

static char *item_at(const struct live_shelf *s, size_t i)
{
    return (char *)s->item + i * s->kind->size;
}

static const char *key_at(const struct live_shelf *s, size_t i)
{
    return *(const char *const *)(const void *)item_at(s, i);
}

void live_shelf_free(struct live_shelf *s)
{
    for (size_t i = 0; i < s->n; i++)
        json_object_put(s->json[i]);
    free(s->json);
    free(s->item);
    *s = (struct live_shelf){ .kind = s->kind };
}

static void shelf_room(struct live_shelf *s, size_t n)
{
    s->item = mem_kept(mem_calloc(n + 1, s->kind->size));
    s->json = mem_kept(mem_calloc(n + 1, sizeof(json_object *)));
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
    const struct live_shelf *list;
    size_t at;
};

static bool take_unchanged(
    struct before *before, const char *key, const redisReply *value, struct live_shelf *s)
{
    const struct live_shelf *list = before->list;
    while (before->at < list->n && strcmp(key_at(list, before->at), key) < 0)
        before->at++;
    if (before->at >= list->n || strcmp(key_at(list, before->at), key) != 0)
        return false;
    const struct raw *raw = json_object_get_userdata(list->json[before->at]);
    if (raw->size != value->len || memcmp(raw->data, value->str, value->len) != 0)
        return false;
    memcpy(item_at(s, s->n), item_at(list, before->at), s->kind->size);
    s->json[s->n] = json_object_get(list->json[before->at]);
    return true;
}

/* Adds the value that Redis has for key; what is no sound value is counted and skipped. */
static void shelf_add(struct live_shelf *s, struct before *before, const char *key,
    const redisReply *value, int64_t expires_ns)
{
    if (value->type != REDIS_REPLY_STRING)
        return;
    if (!take_unchanged(before, key, value, s)) {
        if (s->kind->parse(key, value->str, value->len, item_at(s, s->n), &s->json[s->n], NULL) <
            0) {
            s->malformed++;
            return;
        }
        keep_raw(s->json[s->n], value);
    }
    memcpy(item_at(s, s->n) + s->kind->expires, &expires_ns, sizeof(expires_ns));
    s->n++;
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

int live_get(struct kv *kv, const char *key, struct live_shelf *out, struct err *e)
{
    const struct live_shelf none = { .kind = out->kind };
    struct before before = { .list = &none, .at = 0 };
    cleanup_reply redisReply *ttl = NULL;
    cleanup_reply redisReply *value = NULL;
    struct live_names n;
    if (live_names(out->kind, key, &n, e) < 0)
        return -1;
    int64_t now = clock_mono_ns();
    if (kv_append(kv, KV_ARGS(kv_text("PTTL"), kv_text(n.value)), e) < 0 ||
        kv_append(kv, KV_ARGS(kv_text("MGET"), kv_text(n.value)), e) < 0 ||
        take(kv, REDIS_REPLY_INTEGER, &ttl, e) < 0 || take(kv, REDIS_REPLY_ARRAY, &value, e) < 0)
        return -1;
    *out = none;
    shelf_room(out, 1);
    if (value->elements == 1)
        shelf_add(out, &before, key, value->element[0],
            ttl->integer > 0 ? now + ttl->integer * NS_PER_MS : 0);
    return out->n == 0 ? 1 : 0;
}

/* A member of the index that is live. */
struct member {
    const char *key; /* borrowed from the reply */
    size_t kind;     /* which of the lists it is of */
    int64_t left_ms;
    const redisReply *value; /* borrowed; NULL: not known yet */
};

struct members {
    struct member *member; /* by kind, then by key */
    size_t n;
    struct live_shelf *shelf; /* what it is read for: their kinds, and where they count */
    size_t kinds;
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

/* The list that a member of that name belongs to; m->kinds when it is of none. */
static size_t kind_of(const struct members *m, const char *name)
{
    size_t k = 0;
    while (k < m->kinds && !str_starts(name, m->shelf[k].kind->member))
        k++;
    return k;
}

static void members_add(
    struct members *m, const redisReply *name, const redisReply *score, double now_ms)
{
    double till_ms = 0.0;
    if (name->type != REDIS_REPLY_STRING || score->type != REDIS_REPLY_STRING)
        return;
    size_t k = kind_of(m, name->str);
    if (k == m->kinds)
        return;
    struct live_shelf *s = &m->shelf[k];
    const char *key = name->str + strlen(s->kind->member);
    if (strlen(name->str) != name->len || s->kind->check(key, NULL) < 0 ||
        str_to_double(score->str, &till_ms) < 0)
        s->malformed++;
    else if (till_ms > now_ms)
        m->member[m->n++] =
            (struct member){ .key = key, .kind = k, .left_ms = left_ms(till_ms - now_ms) };
}

static int by_kind_and_key(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return strcmp(x->key, y->key);
}

/* index: NULL when it makes no sense. */
static void members_read(struct members *m, const redisReply *index, double now_ms)
{
    if (index == NULL) {
        m->shelf[0].malformed++;
        return;
    }
    m->member = mem_calloc(index->elements / 2 + 1, sizeof *m->member);
    for (size_t i = 0; i + 1 < index->elements; i += 2)
        members_add(m, index->element[i], index->element[i + 1], now_ms);
    qsort(m->member, m->n, sizeof *m->member, by_kind_and_key);
}

/* Keys of values, of either kind. */
struct wanted {
    struct name {
        const char *prefix;
        const char *key;
    } * name;
    size_t n;
};

static void wanted_free(struct wanted *w)
{
    free(w->name);
}
#define cleanup_wanted __attribute__((cleanup(wanted_free)))

static struct wanted wanted_room(size_t n)
{
    return (struct wanted){ .name = mem_calloc(n + 1, sizeof(struct name)), .n = 0 };
}

static void want(struct wanted *w, const struct live_kind *kind, const char *key)
{
    w->name[w->n++] = (struct name){ .prefix = kind->value, .key = key };
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

static int ask_part(struct kv *kv, const struct name *name, size_t n, struct err *e)
{
    cleanup_free char *names = mem_alloc(n * LIVE_NAME_SIZE);
    cleanup_free struct kv_arg *args = mem_calloc(n + 1, sizeof *args);
    args[0] = kv_text("MGET");
    for (size_t i = 0; i < n; i++) {
        char *text = names + i * LIVE_NAME_SIZE;
        (void)str_format(text, LIVE_NAME_SIZE, "%s%s", name[i].prefix, name[i].key);
        args[i + 1] = kv_text(text);
    }
    return kv_append(kv, (struct kv_args){ .arg = args, .n = n + 1 }, e);
}

static int values_ask(struct kv *kv, const struct wanted *w, struct err *e)
{
    for (size_t at = 0; at < w->n; at += MGET_MAX)
        if (ask_part(kv, &w->name[at], part(w->n, at), e) < 0)
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

/* The values of members that the lists before have too, which were asked for together with the index;
 * late gets the names of the others. Members and lists are in one order. */
static void take_early(struct members *m, const struct live_shelf *before,
    const struct values *early, struct wanted *late)
{
    size_t asked = 0; /* of the lists before the member's own */
    size_t at = 0;
    for (size_t i = 0, k = 0; i < m->n; i++) {
        struct member *one = &m->member[i];
        for (; k < one->kind; k++, at = 0)
            asked += before[k].n;
        int order = -1;
        while (at < before[k].n && (order = strcmp(key_at(&before[k], at), one->key)) < 0)
            at++;
        if (at < before[k].n && order == 0)
            one->value = values_at(early, asked + at);
        else
            want(late, m->shelf[k].kind, one->key);
    }
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
static int read_index(struct kv *kv, const struct wanted *before, redisReply **time,
    redisReply **index, struct err *e)
{
    if (kv_append(kv, KV_ARGS(kv_text("TIME")), e) < 0 ||
        kv_append(kv,
            KV_ARGS(kv_text("ZRANGE"), kv_text(LIVE_INDEX), kv_text(MEMBERS_MAX), kv_text("-1"),
                kv_text("WITHSCORES")),
            e) < 0 ||
        values_ask(kv, before, e) < 0)
        return -1;
    return take(kv, REDIS_REPLY_ARRAY, time, e) < 0 ? -1 : take_index(kv, index, e);
}

/* Gives each member its value: one of early, else one that is asked for now. */
static int read_values(struct kv *kv, struct members *m, const struct live_shelf *before,
    const struct values *early, struct values *late, struct err *e)
{
    cleanup_wanted struct wanted w = wanted_room(m->n);
    take_early(m, before, early, &w);
    if (values_ask(kv, &w, e) < 0 || values_take(kv, w.n, late, e) < 0)
        return -1;
    for (size_t i = 0, at = 0; i < m->n; i++)
        if (m->member[i].value == NULL)
            m->member[i].value = values_at(late, at++);
    return 0;
}

static void fill(const struct members *m, const struct live_shelf *before, int64_t now_ns)
{
    for (size_t k = 0; k < m->kinds; k++)
        shelf_room(&m->shelf[k], m->n);
    struct before walked = { .list = before, .at = 0 };
    for (size_t i = 0, k = 0; i < m->n; i++) {
        const struct member *one = &m->member[i];
        if (one->kind != k) {
            k = one->kind;
            walked = (struct before){ .list = &before[k], .at = 0 };
        }
        shelf_add(&m->shelf[k], &walked, one->key, one->value, now_ns + one->left_ms * NS_PER_MS);
    }
}

int live_read(struct kv *kv, const struct live_shelf *before, struct live_shelf *out, size_t kinds,
    struct err *e)
{
    cleanup_reply redisReply *time = NULL;
    cleanup_reply redisReply *index = NULL;
    cleanup_values struct values early = VALUES_INIT;
    cleanup_values struct values late = VALUES_INIT;
    struct live_shelf found[2] = { { .kind = out[0].kind }, { .kind = out[kinds - 1].kind } };
    cleanup_members struct members m = { .shelf = found, .kinds = kinds };
    double redis_ms = 0.0;
    size_t n = 0;
    for (size_t k = 0; k < kinds; k++)
        n += before[k].n;
    cleanup_wanted struct wanted w = wanted_room(n);
    for (size_t k = 0; k < kinds; k++)
        for (size_t i = 0; i < before[k].n; i++)
            want(&w, before[k].kind, key_at(&before[k], i));
    if (read_index(kv, &w, &time, &index, e) < 0)
        return -1;
    int64_t now_ns = clock_mono_ns();
    if (values_take(kv, w.n, &early, e) < 0 || read_time(time, &redis_ms, e) < 0)
        return -1;
    members_read(&m, index, redis_ms);
    if (read_values(kv, &m, before, &early, &late, e) < 0)
        return -1;
    fill(&m, before, now_ns);
    for (size_t k = 0; k < kinds; k++)
        out[k] = found[k];
    return 0;
}
