/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/store/load_fixture.h"

#include "store/gallery_keep.h"

int fx_setup(void **state)
{
    static struct db_stmts stmts[4];
    (void)state;
    stmts[0] = LOAD_JOB_STMTS;
    stmts[1] = GALLERY_STMTS;
    stmts[2] = GALLERY_ACT_STMTS;
    stmts[3] = GALLERY_KEEP_STMTS;
    return fx_begin(stmts, 4,
        "TRUNCATE model_load_jobs, load_job_claims, gallery_operations, operation_control");
}

void fx_claim(const char *key, const char *owner, char token[TOKEN_HEX_SIZE])
{
    struct err e = ERR_INIT;
    const struct load_claimant who = { .owner = owner, .overlay_claim = "" };
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    ok(load_claim(fx.db, key, &who, &out, token, &e));
}

void fx_age(const char *key, const char *interval)
{
    char sql[800];
    assert_int_equal(
        str_format(sql, sizeof sql,
            "WITH j AS (UPDATE model_load_jobs SET last_progress = last_progress - interval '%s',"
            " updated_at = updated_at - interval '%s', created_at = created_at - interval '%s'"
            " WHERE tracking_key = '%s' RETURNING tracking_key, created_at)"
            " UPDATE load_job_claims c SET claimed_created_at = j.created_at FROM j"
            " WHERE c.tracking_key = j.tracking_key",
            interval, interval, interval, key),
        0);
    fx_sql(sql);
}
