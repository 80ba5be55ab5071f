/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_land.h"

const struct db_stmts JOB_LAND_STMTS = { NULL, 0 };

int land(struct db *db, const struct job_run *r, const struct land *l, bool keep,
    struct landed *out, struct err *e)
{
    (void)db;
    (void)r;
    (void)l;
    (void)keep;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "land: not there yet");
}

int land_stop(struct db *db, const struct job_run *r, enum job_event then, const char *code,
    const char *message, struct err *e)
{
    (void)db;
    (void)r;
    (void)then;
    (void)code;
    (void)message;
    return err_set(e, ERR_UNAVAILABLE, "land_stop: not there yet");
}
