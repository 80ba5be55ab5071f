/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "model/backoff.h"
#include "plan/asked.h"

enum { REQUEST_MAX = 1 << 20, SPEC_MAX = 1 << 16 };

static const struct backoff DEFER = { .base_ms = 60000, .cap_ms = 600000 };

void orders_free(struct orders *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->text[i]);
    free(o->text);
    free(o->order);
}

/* What to provision for a job, as JSON. */
static int spec_of(const struct plan_pool *pool, const struct policy_job *job, const char *region,
    char **out, struct err *e)
{
    cleanup_json json_object *request = NULL;
    cleanup_buf struct buf text = BUF_INIT(SPEC_MAX);
    struct hook_job hook;
    struct provision_spec spec = { .replicas = 1 };

    if (jx_parse(job->request_json, strlen(job->request_json), REQUEST_MAX, &request, e) < 0)
        return err_wrap(e, "the stored request");
    asked_hook(request, "", &hook);
    if (hook.replicas == 0)
        hook.replicas = job->replicas;
    if (pool->hooks.validate_request(&hook, e) < 0 || pool->hooks.schedule(&hook, &spec, e) < 0)
        return -1;
    if (str_empty(spec.region))
        (void)str_copy(spec.region, sizeof spec.region, region);
    cleanup_json json_object *o = provision_spec_json(&spec);
    jx_print(o, &text);
    *out = mem_kept(buf_steal(&text));
    return 0;
}

/* Longer each time: a job that was planned before has its attempts, one that never was begins anew. */
static int64_t delay_ms(const struct policy_job *job)
{
    uint64_t random = 0;
    arc4random_buf(&random, sizeof random);
    return backoff_ms(DEFER, job->attempts + 1, random);
}

static void defer(struct plan_order *order, const char *code, const char *error)
{
    order->verdict = POLICY_DEFER;
    order->error_code = code;
    order->error = error;
    order->delay_ms = delay_ms(order->job);
    log_warn(LOG_MSG("a job is not planned yet"), LOG_S("job_id", order->job->id),
        LOG_S("error", error));
}

static void make(const struct plan_pool *pool, const struct policy_decision *d,
    struct plan_order *order, char **text)
{
    struct err e = ERR_INIT;

    order->verdict = d->verdict;
    order->finish = d->finish;
    if (d->verdict == POLICY_DEFER) {
        defer(order, "not_now", d->reason);
    } else if (d->verdict == POLICY_PASS_OVER) {
        order->error_code = "waits";
        order->error = d->reason;
    } else if (spec_of(pool, order->job, d->region, text, &e) < 0) {
        *text = mem_strdup(e.msg);
        defer(order, "schedule", *text);
    } else {
        order->spec_json = *text;
    }
}

void orders_make(const struct plan_pool *pool, const struct policy_snapshot *s,
    const struct policy_plan *decided, struct orders *out)
{
    out->order = mem_calloc(decided->n + 1, sizeof *out->order);
    out->text = mem_calloc(decided->n + 1, sizeof *out->text);
    out->n = decided->n;
    out->round = decided->round;
    out->window_done = decided->window_done;
    out->window_left = decided->window_left;
    for (size_t i = 0; i < decided->n; i++) {
        const struct policy_decision *d = &decided->decision[i];
        out->order[i].job = &s->job[d->job];
        make(pool, d, &out->order[i], &out->text[i]);
    }
}
