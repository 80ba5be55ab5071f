/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps that talk to the batch service share: landing what it said, and finding the batches of a job. */
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "model/job_status.h"
#include "plan/batch_text.h"
#include "plan/outcome.h"
#include "plan/step.h"
#include "store/job_progress.h"

/* Fresher than the row, for whoever looks at the job. Lost when Redis is. */
static void put_progress(struct task *t, struct hand *h, const struct batch *b)
{
    const struct job_progress p = {
        .known = true,
        .total = b->counts.total,
        .completed = b->counts.completed,
        .failed = b->counts.failed,
        .input_tokens = b->usage.input_tokens,
        .output_tokens = b->usage.output_tokens,
        .total_tokens = b->usage.total_tokens,
    };
    struct err ignored = ERR_INIT;

    if ((b->counts.known || b->usage.known) && !str_empty(t->planner->conf->redis_url))
        (void)!job_progress_put(h->kv, t->c.run.id, &p, &ignored);
}

static bool tells_nothing_new(const struct task *t, enum job_event event, const char *text)
{
    enum job_state to;

    return t->c.run.failures == 0 && t->c.run.lost == 0 &&
           (event == JOB_EVENT__COUNT || job_next(t->c.run.state, event, &to) == 1) &&
           step_same_json(text, t->c.run.batch_json);
}

static void fill(struct land *l, const struct batch *b, const struct batch_landing *how)
{
    l->settles = how->settles;
    l->batch_id = b->id;
    l->expires_us = b->times.expires_at * US_PER_S;
    if (b->errors > 0) { /* the service's first, for people */
        l->error_code = b->error[0].code;
        l->error = b->error[0].message;
    }
    if (how->instead != JOB_EVENT__COUNT) {
        l->event = how->instead;
        l->error_code = how->code;
        l->error = how->error;
    }
}

enum step step_land_batch(
    struct task *t, struct hand *h, const struct batch *b, const struct batch_landing *how)
{
    cleanup_buf struct buf text = BUF_INIT(BATCH_TEXT_MAX);
    struct land l = LAND_INIT(job_batch_event(b->status));

    if (b->status == BATCH_STATUS_UNKNOWN) {
        metric_add(METRIC_BATCH_UNKNOWN_STATUS, 1);
        log_warn(LOG_MSG("the batch service tells a status that is not known"),
            LOG_S("status", b->status_word));
    }
    batch_text(b, &text);
    put_progress(t, h, b);
    l.poll_ms = how->poll_ms > 0 ? how->poll_ms : t->planner->conf->planner_poll_s * MS_PER_S;
    fill(&l, b, how);
    l.batch_json = text.data;
    if (l.settles == 0 && tells_nothing_new(t, l.event, text.data))
        return step_hand_back(t, h, l.poll_ms);
    return step_land(t, h, &l, false, how->before);
}

int step_read_batch(
    struct hand *h, const char *id, struct batch *out, struct batch_note *note, struct err *e)
{
    struct batch_client *c = NULL;

    if (hand_batch(h, &c, e) < 0 || fault_at(FAULT_POLL_CALL, e) < 0) {
        note->outcome = BATCH_UNREACHABLE;
        return -1;
    }
    int rc = batch_client_get(c, id, out, note, e);
    outcome_of_batch(note->outcome, METRIC_ERROR_POLL);
    if (rc == 0 && fault_at(FAULT_POLL_CALLED, e) < 0) {
        note->outcome = BATCH_UNREACHABLE;
        rc = -1;
    }
    return rc;
}

void step_read_end(struct hand *h, struct batch *b)
{
    cleanup_batch struct batch last = BATCH_INIT;
    struct batch_note note = BATCH_NOTE_INIT;
    struct err ignored = ERR_INIT;

    if (step_read_batch(h, b->id, &last, &note, &ignored) < 0 || last.status != b->status)
        return;
    batch_fini(b);
    HAND_OVER(b, &last, ((struct batch)BATCH_INIT));
}

void found_fini(struct found *f)
{
    batch_search_fini(&f->search);
}

static int search(struct task *t, struct hand *h, struct found *f)
{
    struct batch_client *c = NULL;
    int rc = 1;

    if (hand_batch(h, &c, &f->e) < 0 || fault_at(FAULT_SUBMIT_FIND, &f->e) < 0)
        return -1;
    while (rc == 1 && !planner_is_stopping(t->planner)) {
        rc = batch_client_find(c, &f->search, &f->note, &f->e);
        outcome_of_batch(f->note.outcome, METRIC_ERROR_SUBMIT);
    }
    if (rc == 0)
        return fault_at(FAULT_SUBMIT_FOUND, &f->e);
    if (rc == 1) {
        f->note.outcome = BATCH_STOPPED;
        return err_set(&f->e, ERR_UNAVAILABLE, "told to stop");
    }
    return -1;
}

int step_find(struct task *t, struct hand *h, struct found *out)
{
    const int64_t wait_us = t->planner->conf->planner_create_wait_s * US_PER_S;

    *out = (struct found){
        .search = BATCH_SEARCH_INIT(t->c.run.id, t->c.intent.created_us / US_PER_S),
        .note = BATCH_NOTE_INIT,
    };
    out->note.outcome = BATCH_UNSURE; /* whatever fails: the creation is as doubtful as before */
    if (search(t, h, out) < 0)
        return -1;
    for (size_t i = 0; i < out->search.n; i++) {
        const struct batch *b = &out->search.batch[i];
        const int taken = land_batch_taken(h->db, t->c.run.id, b->id, &out->e);
        if (taken < 0)
            return -1;
        if (taken == 1)
            continue;
        if (out->oldest == NULL || b->times.created_at <= out->oldest->times.created_at)
            out->oldest = b;
    }
    const int64_t left_us = t->c.intent.began_us + wait_us - task_now_us(t);
    out->wait_ms = left_us > 0 ? left_us / US_PER_MS + 1 : 0;
    return 0;
}
