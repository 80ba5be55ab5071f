/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/hand.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/job_progress.h"

void *hand_open(size_t number, void *planner)
{
    struct hand *h = mem_calloc(1, sizeof *h);
    h->planner = planner;
    (void)str_format(h->name, sizeof h->name, "weighbridge-planner/crew-%zu", number);
    h->db = planner_db(h->planner, h->name);
    h->kv = kv_new(&(struct kv_options){ .url = h->planner->conf->redis_url,
        .name = h->name,
        .timeout_ms = h->planner->conf->redis_timeout_ms,
        .breaker = h->planner->kv_breaker });
    return h;
}

void hand_close(void *hand)
{
    struct hand *h = hand;

    for (size_t i = 0; i < h->provisioners; i++)
        provisioner_close(h->provisioner[i]);
    batch_client_close(h->batch);
    kv_close(h->kv);
    db_close(h->db);
    free(h);
}

int hand_batch(struct hand *h, struct batch_client **out, struct err *e)
{
    const struct planner *p = h->planner;

    if (h->batch == NULL) {
        if (str_empty(p->conf->batch_url))
            return err_set(e, ERR_INVALID, "no batch service is configured ([batch] url)");
        if (batch_client_open_conf(p->conf, p->stop_fd, &h->batch, e) < 0)
            return -1;
    }
    *out = h->batch;
    return 0;
}

int hand_provisioner(struct hand *h, const char *type, struct provisioner **out, struct err *e)
{
    const struct planner *p = h->planner;
    const struct provisioner_env env = {
        .conf = p->conf, .cluster = p->cluster, .db = h->db, .stop_fd = p->stop_fd
    };

    for (size_t i = 0; i < h->provisioners; i++) {
        if (strcmp(h->provisioner[i]->ops->type, type) == 0) {
            *out = h->provisioner[i];
            return 0;
        }
    }
    assert(h->provisioners < HAND_TYPES_MAX);
    if (provisioner_open(type, &env, &h->provisioner[h->provisioners], e) < 0)
        return -1;
    *out = h->provisioner[h->provisioners++];
    return 0;
}

void hand_wake(struct hand *h, const char *reason)
{
    struct err ignored = ERR_INIT; /* a hint that is lost costs a second */

    trigger_raise(&h->planner->decide, DECIDE_PLAN);
    trigger_raise(&h->planner->act, ACT_LOOK);
    if (!str_empty(h->planner->conf->redis_url))
        (void)!planner_wake(h->kv, reason, &ignored);
}
