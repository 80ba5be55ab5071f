/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/sweep.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "plan/outcome.h"
#include "store/intent.h"
#include "store/ready.h"

enum { LOOK_BACK_S = 3600, KEY_SIZE = 64 };

static int list_batches(struct hand *h, struct batch_search *s, struct err *e)
{
    struct batch_client *c = NULL;
    struct batch_note note = BATCH_NOTE_INIT;
    int rc = 1;

    if (hand_batch(h, &c, e) < 0 || fault_at(FAULT_SWEEP_CALL, e) < 0)
        return -1;
    while (rc == 1 && !planner_is_stopping(h->planner)) {
        rc = batch_client_find(c, s, &note, e);
        outcome_of_batch(note.outcome, METRIC_ERROR_CANCEL);
    }
    return rc < 0 ? -1 : fault_at(FAULT_SWEEP_CALLED, e);
}

static void look_at_batch(struct hand *h, const struct batch *b)
{
    struct err e = ERR_INIT;

    if (batch_status_ended(b->status) || b->status == BATCH_CANCELLING ||
        !job_uuid_valid(b->job_id))
        return;
    const int rc = stray_batch_open(h->db, b->job_id, b->id, &e);
    if (rc == 1)
        return;
    log_warn(LOG_MSG("a batch that is not its job's"), LOG_S("job_id", b->job_id),
        LOG_S("batch", b->id), LOG_S("error", rc < 0 ? e.msg : ""));
    trigger_raise(&h->planner->act, ACT_LOOK);
}

void sweep_batches(struct hand *h)
{
    struct err e = ERR_INIT;

    if (ready_postgres(h->db, &e) < 0) /* for its time, too */
        return;
    cleanup_batch_search struct batch_search s =
        BATCH_SEARCH_INIT(NULL, db_now_us() / US_PER_S - LOOK_BACK_S);
    if (list_batches(h, &s, &e) < 0) {
        log_warn(LOG_MSG("the batch service was not searched for strays"), LOG_S("error", e.msg));
        return;
    }
    for (size_t i = 0; i < s.n && !planner_is_stopping(h->planner); i++)
        look_at_batch(h, &s.batch[i]);
}

static int list_machines(
    struct hand *h, const char *type, struct provision_list *out, struct err *e)
{
    struct provisioner *p = NULL;
    struct provision_note note = PROVISION_NOTE_INIT;

    if (hand_provisioner(h, type, &p, e) < 0 || fault_at(FAULT_SWEEP_CALL, e) < 0)
        return -1;
    const int rc = provisioner_list(p, out, &note, e);
    outcome_of_provider(rc, note.error, METRIC_ERROR_RELEASE);
    return rc < 0 ? -1 : fault_at(FAULT_SWEEP_CALLED, e);
}

static void look_at_machines(
    struct hand *h, const struct provision_seen *seen, const char *type, int64_t pool_id)
{
    char job[PROVISION_JOB_SIZE];
    char key[KEY_SIZE];
    int attempt = 0;
    struct err e = ERR_INIT;

    if (!provision_name_parse(seen->name, h->planner->cluster, job, &attempt))
        return;
    (void)str_format(key, sizeof key, "%s:%d", job, attempt);
    const int rc = release_open(h->db, key, type, pool_id, &e);
    if (rc == 1)
        return;
    if (rc == 0)
        metric_add(METRIC_STRAY_MACHINES, seen->machines);
    log_warn(LOG_MSG("machines that belong to no job"), LOG_S("name", seen->name),
        LOG_I("machines", seen->machines), LOG_S("error", rc < 0 ? e.msg : ""));
    trigger_raise(&h->planner->act, ACT_LOOK);
}

void sweep_machines(struct hand *h, const char *type, int64_t pool_id)
{
    cleanup_provision_list struct provision_list list = PROVISION_LIST_INIT;
    struct err e = ERR_INIT;

    if (list_machines(h, type, &list, &e) < 0) {
        log_warn(LOG_MSG("a provider was not searched for strays"), LOG_S("type", type),
            LOG_S("error", e.msg));
        return;
    }
    for (size_t i = 0; i < list.n && !planner_is_stopping(h->planner); i++)
        look_at_machines(h, &list.seen[i], type, pool_id);
}
