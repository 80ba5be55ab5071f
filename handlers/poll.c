/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/poll.h"

#include <stdio.h>
#include <string.h>

#include "base/breaker.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "handlers/operation_json.h"
#include "handlers/poll_state.h"
#include "json/jx_write.h"
#include "kv/kv.h"
#include "model/ops.h"
#include "store/gallery.h"
#include "store/live.h"
#include "store/load_job.h"

enum {
    DRAIN_MS = 25,
    IDS_MAX = 32 << 20,
    BODY_MAX = 128 << 20,
    BEHIND_ENOUGH = 1 << 20,
    BEHIND_MAX = BEHIND_ENOUGH + OP_VALUE_MAX + 16
};

/* What is remembered besides rows and overlays. */
struct past {
    int64_t good_ns;       /* when at least one store last answered */
    int64_t failed_ns;     /* when Postgres was found down; 0: it is up */
    uint64_t rows_changed; /* when the rows were read */
};

/* The memory of one store: what it said last, either as it came (live) or as a predecessor in another
 * process had it (in `restored`). */
struct poll_source {
    int64_t timeout_ms;
    struct breaker db_breaker; /* of its own: a poll gives up sooner than a call that writes */
    struct breaker kv_breaker;
    struct db_stmts stmts[2];
    struct db *db;
    struct kv *kv;
    struct load_rows live_rows;
    struct gallery_rows live_gallery;
    struct gallery_rows live_found; /* those that are not in the list, but have an overlay */
    struct gallery_row *joined;     /* both, when there are any of the latter; owned */
    struct live live;
    struct poll_state restored;
    struct poll_state known; /* view: points into those above */
    struct past past;
    bool postgres_up;
    bool redis_up;
};

/* What a store may take in all for an answer that keeps coming: for thousands of large operations on a busy machine. Whoever
 * polls waits meanwhile, which is better than to be told of an outage. */
static int64_t patience_ms(int64_t timeout_ms)
{
    return timeout_ms * 5;
}

struct poll_source *poll_source_new(const struct conf *conf, const char *name, int64_t timeout_ms)
{
    struct poll_source *p = mem_calloc(1, sizeof(*p));
    p->timeout_ms = timeout_ms;
    breaker_init(&p->db_breaker);
    breaker_init(&p->kv_breaker);
    p->stmts[0] = LOAD_JOB_STMTS;
    p->stmts[1] = GALLERY_STMTS;
    p->db = db_new(&(struct db_options){
        .url = conf->db_url,
        .name = name,
        .prepared = conf->db_prepared,
        .timeout_ms = p->timeout_ms,
        .patience_ms = patience_ms(p->timeout_ms) + p->timeout_ms,
        .breaker = &p->db_breaker,
        .stmts = p->stmts,
        .n_stmts = sizeof(p->stmts) / sizeof(p->stmts[0]),
    });
    p->kv = kv_new(&(struct kv_options){
        .url = conf->redis_url,
        .name = name,
        .timeout_ms = p->timeout_ms,
        .breaker = &p->kv_breaker,
    });
    return p;
}

static void forget_live(struct poll_source *p)
{
    load_rows_free(&p->live_rows);
    gallery_rows_free(&p->live_gallery);
    gallery_rows_free(&p->live_found);
    free(p->joined);
    p->joined = NULL;
    live_free(&p->live);
}

void poll_source_free(struct poll_source *p)
{
    if (p == NULL)
        return;
    db_close(p->db);
    kv_close(p->kv);
    forget_live(p);
    poll_state_free(&p->restored);
    breaker_fini(&p->db_breaker);
    breaker_fini(&p->kv_breaker);
    free(p);
}

/* What Postgres has. */
struct all_rows {
    struct load_rows loads;
    struct gallery_rows gallery;
    struct gallery_rows found;
};
#define ALL_ROWS_INIT \
    { \
        .loads = LOAD_ROWS_INIT, .gallery = GALLERY_ROWS_INIT, .found = GALLERY_ROWS_INIT \
    }

static void all_rows_free(struct all_rows *r)
{
    load_rows_free(&r->loads);
    gallery_rows_free(&r->gallery);
    gallery_rows_free(&r->found);
}
#define cleanup_all_rows __attribute__((cleanup(all_rows_free)))

static void join_gallery(struct poll_source *p)
{
    const size_t listed = p->live_gallery.n;
    const size_t found = p->live_found.n;
    free(p->joined);
    p->joined = NULL;
    p->known.gallery_row = p->live_gallery.row;
    p->known.gallery_rows = listed + found;
    if (found == 0)
        return;
    p->joined = mem_calloc(listed + found, sizeof(*p->joined));
    if (listed > 0)
        memcpy(p->joined, p->live_gallery.row, listed * sizeof(*p->joined));
    memcpy(&p->joined[listed], p->live_found.row, found * sizeof(*p->joined));
    p->known.gallery_row = p->joined;
}

/* Both kinds were read in one round trip, loads first: their time is that of both. */
static void remember_rows(struct poll_source *p, struct all_rows *rows, int64_t now_ns)
{
    load_rows_free(&p->live_rows);
    gallery_rows_free(&p->live_gallery);
    gallery_rows_free(&p->live_found);
    p->live_rows = rows->loads;
    p->live_gallery = rows->gallery;
    p->live_found = rows->found;
    *rows = (struct all_rows)ALL_ROWS_INIT;
    p->known.row = p->live_rows.row;
    p->known.rows = p->live_rows.n;
    join_gallery(p);
    p->known.rows_now_us = p->live_rows.now_us;
    p->known.rows_read_ns = now_ns;
    const size_t malformed = p->live_gallery.malformed + p->live_found.malformed;
    if (malformed > 0)
        metric_add(METRIC_NODES_MALFORMED, (int64_t)malformed);
}

static void remember_overlays(struct poll_source *p, struct live *live)
{
    live_free(&p->live);
    p->live = *live;
    *live = (struct live)LIVE_INIT;
    p->known.overlay = p->live.staging.overlay;
    p->known.overlays = p->live.staging.n;
    p->known.gallery_overlay = p->live.ops.overlay;
    p->known.gallery_overlays = p->live.ops.n;
    const size_t malformed = p->live.staging.malformed + p->live.ops.malformed;
    if (malformed > 0)
        metric_add(METRIC_OVERLAY_MALFORMED, (int64_t)malformed);
}

static void ask_redis(struct poll_source *p)
{
    cleanup_live struct live live = LIVE_INIT;
    struct err e = ERR_INIT;
    kv_set_deadline(p->kv, clock_deadline(p->timeout_ms));
    kv_be_patient(p->kv, clock_deadline(patience_ms(p->timeout_ms)));
    p->redis_up = live_list(p->kv, &p->live, &live, &e) == 0;
    if (p->redis_up)
        remember_overlays(p, &live);
}

/* Which statements are under way: each must be finished. */
struct asked {
    bool loads;
    bool gallery;
};

static struct asked ask_postgres(struct poll_source *p)
{
    struct err e = ERR_INIT;
    const bool loads = load_list_start(p->db, &e) == 0;
    return (struct asked){ loads, loads && gallery_list_start(p->db, &e) == 0 };
}

static bool take_rows(
    struct poll_source *p, struct asked asked, struct all_rows *rows, struct err *e)
{
    const bool loads = asked.loads && load_list_finish(p->db, &rows->loads, e) == 0;
    struct err *const why = loads ? e : NULL; /* the first reason stays */
    return asked.gallery &&
           gallery_list_finish(p->db, &p->live_gallery, &rows->gallery, why) == 0 && loads;
}

/* The ids of known overlays whose rows are not in the list, as a JSON array; empty when there are none. Both are in the order of
 * ids. */
static void list_alone(
    const struct poll_state *known, const struct gallery_rows *rows, struct buf *ids)
{
    size_t at = 0;
    for (size_t i = 0; i < known->gallery_overlays; i++) {
        const char *id = known->gallery_overlay[i].op.id;
        int order = -1;
        while (at < rows->n && (order = strcmp(rows->row[at].op.id, id)) < 0)
            at++;
        if (at < rows->n && order == 0)
            continue;
        buf_putc(ids, ids->len == 0 ? '[' : ',');
        jx_write_text(ids, id);
    }
    if (ids->len > 0)
        buf_putc(ids, ']');
}

/* A row that shows nothing any more is not in the list once it is old, but it hides what an overlay still says. */
static int find_rows_of_overlays(struct poll_source *p, struct all_rows *rows, struct err *e)
{
    cleanup_buf struct buf ids = BUF_INIT(IDS_MAX);
    list_alone(&p->known, &rows->gallery, &ids);
    if (ids.len == 0)
        return 0;
    if (ids.overflow)
        return err_set(e, ERR_TOO_LARGE, "too many operations");
    db_set_deadline(p->db, clock_deadline(p->timeout_ms));
    return gallery_find(p->db, ids.data, &rows->found, e);
}

/* Outages are logged where the breaker is: this is for a server that is well but refuses, for a missing
 * column or right. */
static void note_failed(struct poll_source *p, const struct err *e, int64_t now_ns)
{
    if (p->past.failed_ns != 0)
        return;
    p->past.failed_ns = now_ns;
    if (e->code == ERR_INTERNAL)
        log_warn(LOG_MSG("postgres does not tell the operations"), LOG_S("error", e->msg));
}

/* Postgres works while Redis is asked, but a connection that has to be made first waits until Redis has
 * answered: neither store pays for the other's silence. */
static void ask_stores(struct poll_source *p, uint64_t rows_changed)
{
    cleanup_all_rows struct all_rows rows = ALL_ROWS_INIT;
    const int64_t now_ns = clock_mono_ns();
    const int64_t until_ns = clock_deadline(p->timeout_ms);
    struct asked asked;
    struct err e = ERR_INIT;

    db_set_deadline(p->db, until_ns);
    db_be_patient(p->db, 0);
    if (db_connected(p->db)) {
        asked = ask_postgres(p);
        ask_redis(p);
        const int64_t rest_ns = clock_deadline(DRAIN_MS); /* to read what has come meanwhile */
        db_set_deadline(p->db, until_ns > rest_ns ? until_ns : rest_ns);
    } else {
        ask_redis(p);
        db_set_deadline(p->db, clock_deadline(p->timeout_ms));
        asked = ask_postgres(p);
    }
    const int64_t most_ns = now_ns + patience_ms(p->timeout_ms) * NS_PER_MS;
    db_be_patient(p->db, clock_prolong(most_ns, p->timeout_ms, INT64_MAX));
    p->postgres_up = take_rows(p, asked, &rows, &e) && find_rows_of_overlays(p, &rows, &e) == 0;
    if (p->postgres_up) {
        remember_rows(p, &rows, now_ns);
        p->past.rows_changed = rows_changed;
        p->past.failed_ns = 0;
    } else {
        note_failed(p, &e, now_ns);
    }
    if (p->postgres_up || p->redis_up)
        p->past.good_ns = now_ns;
}

/* Whether the rows stand for what Postgres has: just read, or the last good ones. */
static bool rows_stand(const struct poll_source *p, uint64_t rows_changed, int64_t now_ns)
{
    const int64_t read_ns = p->known.rows_read_ns;
    const bool none = p->known.rows + p->known.gallery_rows == 0;
    const int64_t fresh_ns = none ? POLL_NONE_FRESH_NS : POLL_ROWS_FRESH_NS;
    if (p->postgres_up)
        return true;
    return read_ns != 0 && now_ns - read_ns < POLL_ROWS_KEEP_NS &&
           p->past.failed_ns - read_ns < fresh_ns && p->past.rows_changed == rows_changed;
}

static void note_health(const struct poll_source *p)
{
    metric_set(METRIC_DEGRADED_POSTGRES, !p->postgres_up);
    metric_set(METRIC_DEGRADED_REDIS, !p->redis_up);
}

static const char *degraded_text(const struct poll_source *p)
{
    if (p->postgres_up)
        return p->redis_up ? "" : "redis";
    return p->redis_up ? "postgres" : "postgres,redis";
}

/* The overlays that have not expired by now, as an array of the caller's: a store that is down can no
 * longer say which have. */
static struct overlay *unexpired(const struct poll_source *p, int64_t now_ns, size_t *n)
{
    struct overlay *out = mem_calloc(p->known.overlays + 1, sizeof(*out));
    *n = 0;
    for (size_t i = 0; i < p->known.overlays; i++)
        if (p->known.overlay[i].expires_ns > now_ns)
            out[(*n)++] = p->known.overlay[i];
    return out;
}

static struct gallery_overlay *unexpired_gallery(
    const struct poll_source *p, int64_t now_ns, size_t *n)
{
    struct gallery_overlay *out = mem_calloc(p->known.gallery_overlays + 1, sizeof(*out));
    *n = 0;
    for (size_t i = 0; i < p->known.gallery_overlays; i++)
        if (p->known.gallery_overlay[i].expires_ns > now_ns)
            out[(*n)++] = p->known.gallery_overlay[i];
    return out;
}

static bool is_known(const struct poll_source *p, int64_t now_ns, bool rows_known, size_t entries)
{
    if (!p->postgres_up && !p->redis_up)
        return p->past.good_ns != 0 && now_ns - p->past.good_ns < POLL_SNAPSHOT_KEEP_NS &&
               (rows_known || entries > 0);
    return rows_known || entries > 0;
}

void poll_answer_init(struct poll_answer *a)
{
    *a = (struct poll_answer){ .body = BUF_INIT(BODY_MAX), .behind = BUF_INIT(BEHIND_MAX) };
}

void poll_answer_free(struct poll_answer *a)
{
    buf_free(&a->body);
    buf_free(&a->behind);
}

/* What does not fit is still behind next time. */
static void print_behind(const struct ops_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->n_behind && out->len < BEHIND_ENOUGH; i++) {
        buf_putc(out, i == 0 ? '[' : ',');
        op_overlay_print(list->behind[i], out);
    }
    if (out->len > 0)
        buf_putc(out, ']');
}

void poll_ask(struct poll_source *p, uint64_t rows_changed, struct poll_answer *out)
{
    cleanup_ops_list struct ops_list list = OPS_LIST_INIT;
    cleanup_free struct overlay *overlay = NULL;
    cleanup_free struct gallery_overlay *gallery_overlay = NULL;
    struct ops_input in = { .postgres_up = false };

    buf_clear(&out->body);
    buf_clear(&out->behind);
    memset(&out->head, 0, sizeof(out->head));
    ask_stores(p, rows_changed);
    note_health(p);

    int64_t now_ns = clock_mono_ns();
    bool rows_known = rows_stand(p, rows_changed, now_ns);
    if (rows_known) {
        in.row = p->known.row;
        in.rows = p->known.rows;
        in.gallery_row = p->known.gallery_row;
        in.gallery_rows = p->known.gallery_rows;
    }
    in.rows_now_us = p->known.rows_now_us;
    in.postgres_up = p->postgres_up;
    overlay = unexpired(p, now_ns, &in.overlays);
    in.overlay = overlay;
    gallery_overlay = unexpired_gallery(p, now_ns, &in.gallery_overlays);
    in.gallery_overlay = gallery_overlay;
    ops_merge(&in, &list);
    if (list.fenced > 0)
        metric_add(METRIC_OVERLAY_FENCED, (int64_t)list.fenced);

    print_behind(&list, &out->behind);
    str_copy(out->head.degraded, sizeof(out->head.degraded), degraded_text(p));
    out->entries = list.n;
    if (!is_known(p, now_ns, rows_known, list.n)) {
        out->head.unavailable = 1;
        return;
    }
    char hex[DIGEST_HEX_SIZE];
    operations_print(&list, &out->body);
    digest_hex(out->body.data, out->body.len, hex);
    str_format(out->head.etag, sizeof(out->head.etag), "%.*s", SNAPSHOT_ETAG_SIZE - 1, hex);
}

void poll_save(const struct poll_source *p, struct buf *out)
{
    buf_clear(out);
    buf_add(out, &p->past, sizeof(p->past));
    poll_state_pack(&p->known, out);
}

int poll_restore(struct poll_source *p, const void *state, size_t size, struct err *e)
{
    struct poll_state found;
    struct past past;

    if (size < sizeof(past))
        return err_set(e, ERR_INVALID, "the snapshot's state is too short");
    memcpy(&past, state, sizeof(past));
    if (poll_state_unpack((const char *)state + sizeof(past), size - sizeof(past), &found, e) < 0)
        return -1;
    if (past.good_ns <= p->past.good_ns) {
        poll_state_free(&found);
        return 0;
    }
    poll_state_free(&p->restored);
    forget_live(p);
    p->past = past;
    p->restored = found;
    p->known = found;
    return 0;
}
