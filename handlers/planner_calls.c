/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/log.h"
#include "handlers/console_json.h"
#include "handlers/json_text.h"
#include "store/planner_view.h"
#include "store/pool.h"
#include "store/provision.h"

/* What operators see of planning, for which the original has nothing. Jobs contract, section 3. */

enum { LIMIT = 20, LIMIT_MAX = 200, KEY_MAX = 128, STATUS_MAX = 32 };

int console_provisions(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_provisions struct provisions found = PROVISIONS_INIT;
    char after[KEY_MAX];
    char status[STATUS_MAX];
    int64_t limit = 0;
    const int no_after = web_query(req, "after", after, sizeof(after), e);
    const int no_status = web_query(req, "status", status, sizeof(status), e);
    if (no_after < 0 || no_status < 0 || jobs_query_int(req, "limit", LIMIT, &limit, e) < 0)
        return -1;
    if (limit <= 0)
        limit = LIMIT;
    if (provision_list(req->db, no_after == 0 && after[0] != '\0' ? after : NULL,
            no_status == 0 && status[0] != '\0' ? status : NULL,
            limit > LIMIT_MAX ? LIMIT_MAX : limit, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, console_provision(&found.provision[i]));
    json_object *o = jx_object();
    jx_set(o, "provisions", list);
    jx_set_bool(o, "hasMore", found.more);
    reply_json(reply, o);
    return 0;
}

static json_object *pool_json(const struct pool_view *p, int64_t now_us)
{
    json_object *o = jx_object();
    json_object *states = jx_object();
    json_set_text(o, "name", p->name);
    json_set_text(o, "provisioner", p->provisioner);
    json_set_text(o, "policy", p->policy);
    json_set_time(o, "drainedAt", p->drained_us);
    json_set_text(o, "drainedBy", p->drained_by);
    json_set_text(o, "leaseholder", p->expires_us > now_us ? p->holder : "");
    json_set_text(o, "leaseholderName", p->expires_us > now_us ? p->holder_name : "");
    console_set_int64(o, "epoch", p->epoch);
    json_set_time(o, "leaseExpiresAt", p->expires_us);
    json_set_time(o, "lastPlanAt", p->planned_us);
    console_set_int64(o, "lastPlanMicroseconds", p->plan_took_us);
    console_set_int64(o, "lastPlanPlanned", p->planned);
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if (!job_is_terminal((enum job_state)s))
            console_set_int64(states, job_state_name((enum job_state)s), p->count[s]);
    }
    jx_set(o, "states", states);
    return o;
}

int console_planner(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_planner_view struct planner_view view = PLANNER_VIEW_INIT;
    if (planner_view_get(req->db, &view, e) < 0)
        return -1;
    json_object *pools = jx_array();
    json_object *intents = jx_object();
    for (size_t i = 0; i < view.n; i++)
        jx_add(pools, pool_json(&view.pool[i], view.now_us));
    for (int k = 0; k < INTENT__COUNT; k++) {
        json_object *o = jx_object();
        console_set_int64(o, "open", view.open[k]);
        json_set_time(o, "oldestAt", view.oldest_us[k]);
        jx_set(intents, intent_kind_name((enum intent_kind)k), o);
    }
    json_object *o = jx_object();
    jx_set(o, "pools", pools);
    jx_set(o, "intents", intents);
    json_set_time(o, "now", view.now_us);
    reply_json(reply, o);
    return 0;
}

/* --- draining --- */

/* The pool as it is now. */
static int answer_pool(
    struct web_req *req, struct web_reply *reply, const char *name, struct err *e)
{
    cleanup_planner_view struct planner_view view = PLANNER_VIEW_INIT;
    if (planner_view_get(req->db, &view, e) < 0)
        return -1;
    for (size_t i = 0; i < view.n; i++) {
        if (strcmp(view.pool[i].name, name) == 0) {
            reply_json(reply, pool_json(&view.pool[i], view.now_us));
            return 0;
        }
    }
    return err_set(e, ERR_NOT_FOUND, "there is no pool %s", name);
}

int console_drain_pool(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *name = web_param(req, "name");
    if (pool_drain(req->db, name, req->caller.subject, e) < 0)
        return -1;
    log_info(LOG_MSG("pool drained"), LOG_S("pool", name), LOG_S("by", req->caller.subject));
    return answer_pool(req, reply, name, e);
}

int console_resume_pool(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *name = web_param(req, "name");
    if (pool_resume(req->db, name, e) < 0)
        return -1;
    log_info(LOG_MSG("pool resumed"), LOG_S("pool", name), LOG_S("by", req->caller.subject));
    jobs_wake(req, "resume");
    return answer_pool(req, reply, name, e);
}
