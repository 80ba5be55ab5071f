/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"
#include "handlers/openai_list.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "batch/batch_client.h"
#include "http/http.h"

/* GET /v1/files: the batch service's list without what is somebody else's, by the rule that guards each file. The service
 * is asked for further pages until as many are found as one of its pages would have, or there are no more. Jobs contract,
 * sections 3 ("Files") and 4. */

enum {
    PAGE_MS =
        4000, /* of one page; none begins later than BEGIN_MS: well under what the web server waits */
    BEGIN_MS = 4000,
    LIMIT_MAX = 10000,
    FURTHER = 100, /* what every service takes for a limit */
    QUERY_MAX = 1024,
    VALUE_MAX = 256,
    IDS_MAX = 8 << 20
};

struct listing {
    struct web_req *req;
    struct batch_client *client;
    struct buf fixed; /* of the query: purpose and order */
    struct buf query;
    char after[VALUE_MAX];
    int64_t limit; /* 0: as the service has it */
    int64_t end_ns;
    json_object *found; /* array */
    bool more;
};

static void listing_fini(struct listing *l)
{
    batch_client_close(l->client);
    buf_free(&l->fixed);
    buf_free(&l->query);
    json_object_put(l->found);
}
#define cleanup_listing __attribute__((cleanup(listing_fini)))

static void put_value(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s%s=", out->len > 0 ? "&" : "", name);
    http_url_escape(out, value);
}

static int read_query(struct listing *l, struct err *e)
{
    static const char *const PASSED[] = { "purpose", "order" };
    char value[VALUE_MAX];
    int64_t limit = 0;
    for (size_t i = 0; i < sizeof(PASSED) / sizeof(PASSED[0]); i++) {
        const int absent = web_query(l->req, PASSED[i], value, sizeof(value), e);
        if (absent < 0)
            return -1;
        if (absent == 0)
            put_value(&l->fixed, PASSED[i], value);
    }
    if (web_query(l->req, "after", l->after, sizeof(l->after), e) < 0 ||
        jobs_query_int(l->req, "limit", INT64_MIN, &limit, e) < 0)
        return -1;
    if (limit == INT64_MIN)
        return 0;
    if (limit < 1 || limit > LIMIT_MAX)
        return err_set(e, ERR_INVALID, "limit: must be from 1 to %d", LIMIT_MAX);
    l->limit = limit;
    return 0;
}

/* How the service failed is no fault of who asks, unless it refused the query. */
static int ask(struct listing *l, int64_t limit, json_object **page, struct err *e)
{
    struct batch_note note = BATCH_NOTE_INIT;
    buf_clear(&l->query);
    if (l->fixed.len > 0)
        buf_puts(&l->query, l->fixed.data);
    if (limit > 0)
        buf_printf(&l->query, "%slimit=%lld", l->query.len > 0 ? "&" : "", (long long)limit);
    if (l->after[0] != '\0')
        put_value(&l->query, "after", l->after);
    if (batch_client_files(l->client, l->query.data, page, &note, e) == 0)
        return 0;
    if (note.outcome != BATCH_REFUSED)
        e->code = ERR_UNAVAILABLE;
    return -1;
}

static const char *id_of(json_object *file)
{
    const char *id = "";
    (void)jx_get_str(file, "id", &id);
    return id;
}

/* seen[i]: whether the ith file of a page is the caller's to see. */
static int judge(struct listing *l, json_object *data, bool *seen, struct err *e)
{
    const size_t n = json_object_array_length(data);
    cleanup_buf struct buf text = BUF_INIT(IDS_MAX);
    cleanup_json json_object *ids = jx_array();
    for (size_t i = 0; i < n; i++)
        jx_add_str(ids, id_of(json_object_array_get_idx(data, i)));
    jx_print(ids, &text);
    if (text.overflow)
        return err_set(e, ERR_UNAVAILABLE, "the batch service's list of files is too long");
    /* The service took its time: the store has its own. */
    db_set_deadline(l->req->db, clock_deadline(l->req->conf->db_timeout_ms));
    if (job_files_seen(l->req->db, text.data, l->req->caller.subject, n, seen, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        seen[i] = seen[i] && id_of(json_object_array_get_idx(data, i))[0] != '\0';
    return 0;
}

/* Takes of a page what may be seen, as far as there is room: more is what is left of it, or of the service's. */
static int take(struct listing *l, json_object *page, struct err *e)
{
    json_object *data = jx_get(page, "data");
    const size_t n = json_object_array_length(data);
    cleanup_free bool *seen = mem_calloc(n + 1, sizeof(*seen));
    l->more = false;
    (void)jx_get_bool(page, "has_more", &l->more);
    if (l->limit == 0)
        l->limit = n > 0 ? (int64_t)n : 1;
    if (judge(l, data, seen, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        json_object *file = json_object_array_get_idx(data, i);
        if (!seen[i])
            continue;
        if ((int64_t)json_object_array_length(l->found) == l->limit) {
            l->more = true;
            return 0;
        }
        jx_add(l->found, json_object_get(file));
    }
    const char *last = n == 0 ? "" : id_of(json_object_array_get_idx(data, n - 1));
    if (last[0] == '\0' || strcmp(last, l->after) == 0)
        l->more = false; /* it leads nowhere */
    else if (str_copy(l->after, sizeof(l->after), last) < 0)
        return err_set(e, ERR_UNAVAILABLE, "the batch service has a file with an absurd id");
    return 0;
}

static int collect(struct listing *l, struct err *e)
{
    int64_t limit = l->limit;
    do {
        cleanup_json json_object *page = NULL;
        if (ask(l, limit, &page, e) < 0 || take(l, page, e) < 0)
            return -1;
        limit = FURTHER;
    } while (l->more && (int64_t)json_object_array_length(l->found) < l->limit &&
             clock_mono_ns() < l->end_ns);
    if (l->more && json_object_array_length(l->found) == 0)
        return err_set(e, ERR_UNAVAILABLE,
            "among so many files none of yours was found in time: ask for more at once (limit)");
    return 0;
}

static int open_client(struct listing *l, struct err *e)
{
    const struct conf *conf = l->req->conf;
    const struct batch_client_options o = {
        .url = conf->batch_url,
        .token = conf->batch_token,
        .ca_file = conf->batch_ca_file,
        .timeout_ms = conf->batch_timeout_ms < PAGE_MS ? conf->batch_timeout_ms : PAGE_MS,
        .stop_fd = -1,
    };
    if (batch_client_open(&o, &l->client, e) == 0)
        return 0;
    e->code = ERR_UNAVAILABLE;
    return -1;
}

static int list(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_listing struct listing l = { .req = req,
        .fixed = BUF_INIT(QUERY_MAX),
        .query = BUF_INIT(QUERY_MAX),
        .end_ns = clock_deadline(BEGIN_MS),
        .found = jx_array() };
    cleanup_json json_object *page = NULL;
    if (read_query(&l, e) < 0 || open_client(&l, e) < 0)
        return -1;
    if (req->caller.role == ROLE_ADMIN) { /* sees all, as the service tells it */
        if (ask(&l, l.limit, &page, e) < 0)
            return -1;
        reply_json(reply, STEAL(page));
        return 0;
    }
    if (collect(&l, e) < 0)
        return -1;
    reply_json(reply, openai_page(json_object_get(l.found), l.more));
    return 0;
}

int file_list(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct jobs_state *s = req->app;
    const int64_t most =
        req->conf->jobs_threads / 2; /* a slow service is not to hold up the jobs */
    int rc = -1;
    if (atomic_fetch_add(&s->listing, 1) < most)
        rc = list(req, reply, e);
    else
        (void)!err_set(e, ERR_UNAVAILABLE, "too many lists of files are being fetched already");
    atomic_fetch_sub(&s->listing, 1);
    return rc;
}
