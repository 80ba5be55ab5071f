/* SPDX-License-Identifier: Apache-2.0 */
/* Hears through Redis that there is something to do. Without Redis, or when a hint is lost, the look once a second finds
 * it. */
#include <string.h>

#include "base/clock.h"
#include "base/wait.h"
#include "kv/kv.h"
#include "plan/planner_internal.h"
#include "store/job_progress.h"

#include <poll.h>

enum { RETRY_MS = 1000, LISTEN_MS = 60000 };

static void heard(struct planner *p, const char *reason)
{
    if (strcmp(reason, "cancel") != 0)
        trigger_raise(&p->decide, DECIDE_PLAN);
    trigger_raise(&p->act, ACT_LOOK);
}

void *listen_main(void *planner)
{
    struct planner *p = planner;
    cleanup_kv struct kv *kv = kv_new(&(struct kv_options){
        .url = p->conf->redis_url,
        .name = "weighbridge-planner/listen",
        .timeout_ms = p->conf->redis_timeout_ms,
        .breaker = NULL,
    });

    while (!planner_is_stopping(p)) {
        struct err e = ERR_INIT;
        if (kv_subscribe(kv, PLANNER_CHANNEL, &e) < 0) {
            (void)!wait_fd(p->quit_fd, POLLIN, clock_deadline(RETRY_MS));
            continue;
        }
        heard(p, ""); /* what was said while nobody listened is not known */
        for (int rc = 0; rc >= 0 && !planner_is_stopping(p);) {
            cleanup_free char *message = NULL;
            rc = kv_next_message(kv, p->quit_fd, clock_deadline(LISTEN_MS), &message, &e);
            if (rc == 0)
                heard(p, message);
        }
    }
    return NULL;
}
