/* SPDX-License-Identifier: Apache-2.0 */

/* Reads of jobs and planners while Postgres is away: jobs contract, section 3, "a store failure is a 503, never an
 * empty 200". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/intent.h"
#include "store/planner_view.h"
#include "store/pool.h"
#include "store/provision.h"
#include "store/template.h"
#include "tests/store/job_fixture.h"

#define UUID "0b9e7c1e-1111-4222-8333-444455556666"

/* Nothing was read, and nothing says that there is nothing. */
static int read_job(struct err *e)
{
    cleanup_jobs struct jobs out = { .n = 7 };
    int result = job_get(fx.db, UUID, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_list(struct err *e)
{
    const struct job_filter all = { .limit = 20 };
    cleanup_jobs struct jobs out = { .n = 7 };
    int result = job_list(fx.db, &all, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_position(struct err *e)
{
    int64_t out = -7;
    int result = job_queue_position(fx.db, UUID, &out, e);
    assert_int_equal(out, -7);
    return result;
}

static int read_events(struct err *e)
{
    cleanup_job_history struct job_history out = { .n = 7 };
    int result = job_events(fx.db, UUID, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_stats(struct err *e)
{
    int64_t out[JOB_STATE__COUNT] = { [JOB_QUEUED] = -7 };
    int result = job_stats(fx.db, out, e);
    assert_int_equal(out[JOB_QUEUED], -7);
    return result;
}

/* Whoever is told that no job names a file may read it. */
static int read_access(struct err *e)
{
    bool is_named = true;
    bool is_owned = false;
    int result = job_file_access(fx.db, "file", "bob", &is_named, &is_owned, e);
    assert_true(is_named && !is_owned);
    return result;
}

static int read_look(struct err *e)
{
    static const int64_t POOL = 1;
    struct run_look out = { .now_us = -7 };
    int result = run_look(fx.db, (struct run_pools){ &POOL, 1 }, &out, e);
    assert_int_equal(out.now_us, -7);
    return result;
}

static int read_leader(struct err *e)
{
    return lease_look(fx.db, 1, PLANNER_A, e);
}

static int read_holder(struct err *e)
{
    char out[UUID_SIZE] = "before";
    int result = lease_new_holder(fx.db, out, e);
    assert_string_equal(out, "before");
    return result;
}

static int read_backlog(struct err *e)
{
    cleanup_releases struct releases out = { .n = 7 };
    int result = release_backlog(fx.db, 10, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_provisions(struct err *e)
{
    cleanup_provisions struct provisions out = { .n = 7 };
    int result = provision_list(fx.db, NULL, NULL, 20, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_view(struct err *e)
{
    cleanup_planner_view struct planner_view out = { .n = 7 };
    int result = planner_view_get(fx.db, &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_pool(struct err *e)
{
    int64_t out = -7;
    int result = pool_find(fx.db, "default", &out, e);
    assert_int_equal(out, -7);
    return result;
}

static int read_models(struct err *e)
{
    cleanup_models struct models out = { .n = 7 };
    int result = model_list(fx.db, "", "", &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static int read_template(struct err *e)
{
    cleanup_templates struct templates out = { .n = 7 };
    int result = template_resolve(fx.db, "", "t", "", &out, e);
    assert_int_equal(out.n, 7);
    out.n = 0;
    return result;
}

static void what_cannot_be_read_is_unavailable_and_never_empty(void **state)
{
    static const struct {
        const char *name;
        int (*call)(struct err *e);
    } READS[] = {
        { "job", read_job },
        { "list", read_list },
        { "position in the queue", read_position },
        { "events", read_events },
        { "counters", read_stats },
        { "access to a file", read_access },
        { "look", read_look },
        { "leader", read_leader },
        { "name for a holder", read_holder },
        { "backlog", read_backlog },
        { "provisions", read_provisions },
        { "view", read_view },
        { "pool", read_pool },
        { "models", read_models },
        { "template", read_template },
    };
    (void)state;
    for (size_t i = 0; i < sizeof READS / sizeof READS[0]; i++) {
        struct err e = ERR_INIT;
        int result = READS[i].call(&e);
        if (result != -1 || e.code != ERR_UNAVAILABLE)
            fail_msg("%s: %d, %s: %s", READS[i].name, result, err_name(e.code), e.msg);
    }
}

/* A server that nobody answers for. */
static int connect_nowhere(void **state)
{
    struct db_options o = stores_options(&fx.stores, false, fx.stmts, fx.n_stmts);
    (void)state;
    o.url = "host=/nonexistent";
    fx.db = db_new(&o);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_cannot_be_read_is_unavailable_and_never_empty, connect_nowhere, fx_clear),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
