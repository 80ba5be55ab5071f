/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "handlers/console_json.h"
#include "handlers/json_text.h"
#include "model/job_status.h"

enum { LIMIT = 20, LIMIT_MAX = 200, STATUS_MAX = 32, TEXT_MAX = 600, FILTERS_MAX = 64 };

/* --- list --- */

/* States whose status on this wire is the word. */
static unsigned states_of(const char *word)
{
    unsigned states = 0;
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if (strcmp(job_console_status((enum job_state)s), word) == 0 ||
            strcmp(job_state_name((enum job_state)s), word) == 0)
            states |= 1U << s;
    }
    return states;
}

static int read_states(const struct web_req *req, unsigned *out, struct err *e)
{
    *out = 0;
    for (unsigned n = 0; n < FILTERS_MAX; n++) {
        char word[STATUS_MAX];
        const int absent = web_query_nth(req, "status", n, word, sizeof(word), e);
        if (absent != 0)
            return absent < 0 ? -1 : 0;
        const unsigned states = states_of(word);
        if (states == 0 && word[0] != '\0')
            return err_set(e, ERR_INVALID, "status: there is no status %s", word);
        *out |= states;
    }
    return 0;
}

struct page {
    struct job_filter filter;
    char after[UUID_SIZE];
    char created_by[TEXT_MAX];
    char q[TEXT_MAX];
};

static int read_text(const struct web_req *req, const char *name, char room[TEXT_MAX],
    const char **out, struct err *e)
{
    const int absent = web_query(req, name, room, TEXT_MAX, e);
    *out = absent == 0 && room[0] != '\0' ? room : NULL;
    return absent < 0 ? -1 : 0;
}

static int read_page(const struct web_req *req, struct page *p, struct err *e)
{
    struct job_filter *f = &p->filter;
    *f = (struct job_filter){ .after = NULL };
    const int absent = jobs_query_after(req, p->after, e);
    if (absent < 0 || jobs_query_int(req, "limit", LIMIT, &f->limit, e) < 0 ||
        read_states(req, &f->states, e) < 0 ||
        read_text(req, "created_by", p->created_by, &f->created_by, e) < 0 ||
        read_text(req, "q", p->q, &f->q, e) < 0)
        return -1;
    if (absent == 0)
        f->after = p->after;
    if (f->limit <= 0)
        f->limit = LIMIT;
    if (f->limit > LIMIT_MAX)
        f->limit = LIMIT_MAX;
    return 0;
}

static void set_id(json_object *o, const char *key, const struct jobs *jobs, size_t i)
{
    char id[JOB_WIRE_ID_SIZE] = "";
    if (i < jobs->n)
        job_wire_id(jobs->job[i].id, id);
    jx_set_str(o, key, id);
}

int console_list_jobs(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    cleanup_free struct job_progress *progress = NULL;
    struct page page;
    if (read_page(req, &page, e) < 0 || job_list(req->db, &page.filter, &jobs, e) < 0)
        return -1;
    progress = jobs_progress(req, &jobs);
    json_object *list = jx_array();
    for (size_t i = 0; i < jobs.n; i++) {
        const struct console_extras x = { .progress = &progress[i] };
        jx_add(list, console_job(&jobs.job[i], &x));
    }
    json_object *o = jx_object();
    jx_set(o, "jobs", list);
    set_id(o, "firstId", &jobs, 0);
    set_id(o, "lastId", &jobs, jobs.n - 1);
    jx_set_bool(o, "hasMore", jobs.more);
    reply_json(reply, o);
    return 0;
}

/* --- one job --- */

/* A job with all that is known of it. What hangs on other rows is left out where it cannot be had: the job
 * itself was read. */
static json_object *whole_job(struct web_req *req, const struct jobs *jobs)
{
    const struct job *j = &jobs->job[0];
    cleanup_provisions struct provisions got = PROVISIONS_INIT;
    cleanup_job_history struct job_history history = JOB_HISTORY_INIT;
    cleanup_free struct job_progress *progress = jobs_progress(req, jobs);
    struct console_extras x = { .progress = progress };
    struct err ignored = ERR_INIT;
    if (j->provision_key[0] != '\0' &&
        provision_get(req->db, j->provision_key, &got, &ignored) == 0)
        x.provision = &got.provision[0];
    if (job_events(req->db, j->id, &history, &ignored) == 0)
        x.history = &history;
    if (j->state == JOB_QUEUED)
        (void)!job_queue_position(req->db, j->id, &x.queue_position, &ignored);
    return console_job(j, &x);
}

/* One that this call has made, as it was then: all that has happened to it is that. */
static json_object *new_job(struct web_req *req, const struct job *j)
{
    struct job_happening accepted = { .from = JOB_NONE,
        .to = JOB_QUEUED,
        .event = EV_ENQUEUE,
        .at_us = j->stamp_us[JOB_QUEUED],
        .actor = j->created_by,
        .detail_json = "" };
    const struct job_history history = { .happening = &accepted, .n = 1, .rows = DB_ROWS_INIT };
    struct console_extras x = { .history = &history };
    struct err ignored = ERR_INIT;
    (void)!job_queue_position(req->db, j->id, &x.queue_position, &ignored);
    return console_job(j, &x);
}

int console_get_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    char id[UUID_SIZE];
    if (jobs_path_id(req, id, e) < 0 || job_get(req->db, id, &jobs, e) < 0)
        return -1;
    reply_json(reply, whole_job(req, &jobs));
    return 0;
}

int console_create_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    cleanup_job_body struct job_body body = { .pairs = NULL };
    enum job_fate fate;
    if (job_body_read(DIALECT_CONSOLE, req->body, &body, e) < 0 ||
        jobs_submit(req, &body, &jobs, &fate, e) < 0)
        return -1;
    reply_json(reply, fate == JOB_FATE_NEW ? new_job(req, &jobs.job[0]) : whole_job(req, &jobs));
    return 0;
}

int console_cancel_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs before = JOBS_INIT;
    cleanup_jobs struct jobs after = JOBS_INIT;
    enum job_state state;
    char id[UUID_SIZE];
    if (jobs_path_id(req, id, e) < 0 || job_get(req->db, id, &before, e) < 0 ||
        jobs_may_act(req, &before.job[0], e) < 0)
        return -1;
    const int ended = job_cancel(req->db, id, req->caller.subject, &state, e);
    if (ended < 0)
        return -1;
    if (ended == 0)
        jobs_wake(req, "cancel");
    if (job_get(req->db, id, &after, e) < 0)
        return -1;
    reply_json(reply, whole_job(req, &after));
    return 0;
}

int console_job_events(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_job_history struct job_history history = JOB_HISTORY_INIT;
    char id[UUID_SIZE];
    if (jobs_path_id(req, id, e) < 0 || job_events(req->db, id, &history, e) < 0)
        return -1;
    reply_json(reply, console_history(&history));
    return 0;
}

int console_job_stats(struct web_req *req, struct web_reply *reply, struct err *e)
{
    int64_t count[JOB_STATE__COUNT];
    int64_t total = 0;
    if (job_stats(req->db, count, e) < 0)
        return -1;
    json_object *states = jx_object();
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        console_set_int64(states, job_state_name((enum job_state)s), count[s]);
        total += count[s];
    }
    json_object *o = jx_object();
    jx_set(o, "states", states);
    console_set_int64(o, "total", total);
    reply_json(reply, o);
    return 0;
}

/* --- what the UI asks when it starts --- */

int console_capabilities(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)e;
    const struct conf_pool *pool = conf_pool_find(req->conf, req->conf->planner_default_pool);
    json_object *resources = jx_object();
    json_object *o = jx_object();
    jx_set_int(resources, "min_replicas", 1);
    jx_set_int(resources, "max_replicas", JOB_REPLICAS_MAX);
    jx_set(o, "resource_request", resources);
    jx_set_str(o, "provider", pool == NULL ? "" : pool->provisioner);
    reply_json(reply, o);
    return 0;
}

/* Signing in is the web server's business. */
int console_auth_config(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    (void)e;
    json_object *o = jx_object();
    jx_set_str(o, "mode", "dev");
    reply_json(reply, o);
    return 0;
}

int console_userinfo(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)e;
    const char *who = req->caller.subject;
    json_object *o = jx_object();
    json_set_text(o, "id", who);
    json_set_text(o, "email", who);
    json_set_text(o, "name", who);
    jx_set_str(o, "role", req->caller.role == ROLE_ADMIN ? "admin" : "user");
    json_set_text(o, "username", who);
    jx_set_str(o, "picture", "");
    reply_json(reply, o);
    return 0;
}

int console_health(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    (void)e;
    json_object *o = jx_object();
    jx_set_str(o, "status", "ok");
    reply_json(reply, o);
    return 0;
}
