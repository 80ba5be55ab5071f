/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"
#include "plan/act.h"
#include "store/planner_view.h"

static int64_t age_s(int64_t since_us, int64_t now_us)
{
    return since_us == 0 || since_us > now_us ? 0 : (now_us - since_us) / 1000000;
}

int act_gauges(struct act *a, struct err *e)
{
    static const enum metric STATE[JOB_STATE__COUNT] = {
#define JOB_STATE(id, name, category, doc) [JOB_##id] = METRIC_JOBS_IN_##id,
#include "model/job_state.def"
#undef JOB_STATE
    };
    static const enum metric OPEN[INTENT__COUNT] = { METRIC_INTENTS_PROVISION,
        METRIC_INTENTS_CREATE, METRIC_INTENTS_CANCEL, METRIC_INTENTS_RELEASE,
        METRIC_INTENTS_STRAY };
    static const enum metric AGE[INTENT__COUNT] = { METRIC_INTENT_AGE_PROVISION,
        METRIC_INTENT_AGE_CREATE, METRIC_INTENT_AGE_CANCEL, METRIC_INTENT_AGE_RELEASE,
        METRIC_INTENT_AGE_STRAY };
    cleanup_planner_view struct planner_view v = PLANNER_VIEW_INIT;
    int64_t in[JOB_STATE__COUNT] = { 0 };
    int64_t category[] = { [JOB_PENDING] = 0, [JOB_RUNNING] = 0, [JOB_TERMINAL] = 0 };

    if (planner_view_get(a->db, &v, e) < 0)
        return -1;
    for (size_t i = 0; i < v.n; i++) {
        for (int s = 0; s < JOB_STATE__COUNT; s++)
            in[s] += v.pool[i].count[s];
    }
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        metric_set(STATE[s], in[s]);
        category[job_category((enum job_state)s)] += in[s];
    }
    metric_set(METRIC_QUEUE_PENDING, category[JOB_PENDING]);
    metric_set(METRIC_QUEUE_RUNNING, category[JOB_RUNNING]);
    for (int k = 0; k < INTENT__COUNT; k++) {
        metric_set(OPEN[k], v.open[k]);
        metric_set(AGE[k], age_s(v.oldest_us[k], v.now_us));
    }
    return 0;
}
