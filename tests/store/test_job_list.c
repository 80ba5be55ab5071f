/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of jobs: jobs contract, section 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/store/job_fixture.h"

#define BIT(s) (1U << JOB_##s)

/* 40 jobs n0 ... n39, each a second older than the one before it, of alice and bob in turn; every tenth pair
 * was made in the same microsecond. Their states go round: queued, in_progress, completed, failed. */
static void fill(void)
{
    fx_sql(
        "INSERT INTO job (pool_id, created_by, name, endpoint, input_file, completion_window,"
        " window_minutes, request, created_at)"
        " SELECT p.id, CASE WHEN i % 2 = 0 THEN 'alice' ELSE 'bob' END, 'n' || i, 'e', 'f', '1h',"
        " 60, '{}', timestamptz '2026-05-05Z' - (i - (i % 10 = 9)::int) * interval '1 second'"
        " FROM pool p, generate_series(0, 39) i");
    fx_sql("INSERT INTO job_run (job_id, pool_id, enqueued_at, queue_deadline) SELECT id, pool_id,"
           " created_at, now() + interval '1 hour' FROM job");
    fx_sql("UPDATE job_run r SET state = 1, event = 1 FROM job j WHERE j.id = r.job_id"
           " AND substr(j.name, 2)::int % 4 > 0");
    fx_sql("UPDATE job_run SET state = 2, event = 2 WHERE state = 1");
    fx_sql("UPDATE job_run SET state = 3, event = 5 WHERE state = 2");
    fx_sql("UPDATE job_run SET state = 6, event = 9 WHERE state = 3");
    fx_sql("UPDATE job_run r SET state = 9, event = 12 FROM job j WHERE j.id = r.job_id"
           " AND substr(j.name, 2)::int % 4 = 2");
    fx_sql("UPDATE job_run r SET state = 10, event = 13 FROM job j WHERE j.id = r.job_id"
           " AND substr(j.name, 2)::int % 4 = 3");
}

/* Walks all pages of a filter and expects exactly the jobs that the SQL condition says, newest first. */
static void walk(struct job_filter f, const char *condition)
{
    struct err e = ERR_INIT;
    char sql[1024];
    char after[UUID_SIZE];
    bool more = true;
    cleanup_buf struct buf have = BUF_INIT(1 << 14);
    while (more) {
        cleanup_jobs struct jobs page = JOBS_INIT;
        ok(job_list(fx.db, &f, &page, &e));
        assert_true(page.n <= (size_t)f.limit);
        assert_true(page.n > 0 || f.after == NULL); /* where there was more, there is some */
        assert_true(page.n > 0 || !page.more);      /* never an empty page with more */
        for (size_t i = 0; i < page.n; i++)
            buf_printf(&have, "%s ", page.job[i].name);
        more = page.more;
        if (more) {
            (void)str_copy(after, sizeof after, page.job[page.n - 1].id);
            f.after = after;
        }
    }
    (void)str_format(sql, sizeof sql,
        "SELECT coalesce(string_agg(j.name || ' ', '' ORDER BY j.created_at DESC, j.id DESC), '')"
        " FROM job j LEFT JOIN job_run r ON r.job_id = j.id WHERE %s",
        condition);
    fx_value(sql, have.data == NULL ? "" : have.data);
}

static void pages_follow_each_other_without_a_gap(void **state)
{
    (void)state;
    fill();
    for (int64_t limit = 1; limit < 50; limit += 6)
        walk((struct job_filter){ .limit = limit }, "true");
    fx_value("SELECT count(*) - count(DISTINCT created_at) > 0 FROM job", "t");
}

static void filters_are_the_servers(void **state)
{
    static const struct {
        struct job_filter f;
        const char *condition;
    } cases[] = {
        { { .created_by = "bob" }, "j.created_by = 'bob'" },
        { { .created_by = "nobody" }, "false" },
        { { .states = BIT(QUEUED) }, "r.state = 0" },
        { { .states = BIT(IN_PROGRESS) }, "r.state = 6" },
        { { .states = BIT(COMPLETED) }, "j.final_state = 9" },
        { { .states = BIT(EXPIRED) }, "false" },
        { { .states = BIT(QUEUED) | BIT(IN_PROGRESS) | BIT(FAILED) },
            "coalesce(j.final_state, 0) <> 9" },
        { { .states = BIT(COMPLETED) | BIT(FAILED), .created_by = "alice" },
            "j.final_state IN (9, 10) AND j.created_by = 'alice'" },
        { { .states = BIT(IN_PROGRESS) | BIT(QUEUED), .created_by = "bob" },
            "r.state IN (0, 6) AND j.created_by = 'bob'" },
        { { .q = "n1" }, "j.name LIKE 'n1%'" },
        { { .q = "n%" }, "false" },
        { { .q = "n1", .created_by = "alice" }, "j.name LIKE 'n1%' AND j.created_by = 'alice'" },
        { { .q = "n1", .states = BIT(QUEUED) | BIT(COMPLETED) },
            "j.name LIKE 'n1%' AND coalesce(r.state, j.final_state) IN (0, 9)" },
    };
    (void)state;
    fill();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_filter f = cases[i].f;
        f.limit = 3;
        walk(f, cases[i].condition);
        f.limit = 200;
        walk(f, cases[i].condition);
    }
}

static void an_id_finds_its_job(void **state)
{
    char id[UUID_SIZE];
    char wire[JOB_WIRE_ID_SIZE];
    char condition[100];
    (void)state;
    fill();
    cleanup_free char *some = stores_value(&fx.stores, "SELECT id FROM job WHERE name = 'n17'");
    (void)str_copy(id, sizeof id, some);
    job_wire_id(id, wire);
    (void)str_format(condition, sizeof condition, "j.id = '%s'", id);
    walk((struct job_filter){ .q = id, .limit = 5 }, condition);
    walk((struct job_filter){ .q = wire, .limit = 5 }, condition);
    walk((struct job_filter){ .q = wire, .limit = 5, .states = BIT(QUEUED) }, "false");
}

/* A prefix of a name is looked for among the newest 10,000. */
static void names_are_looked_for_among_the_newest(void **state)
{
    struct err e = ERR_INIT;
    cleanup_jobs struct jobs page = JOBS_INIT;
    struct job_filter f = { .q = "n3", .limit = 200 };
    (void)state;
    fill(); /* n3, n30 ... n39 */
    fx_sql(
        "INSERT INTO job (pool_id, endpoint, input_file, completion_window, window_minutes, request,"
        " created_at, final_state) SELECT p.id, 'e', 'f', '1h', 60, '{}', '2026-06-01Z', 9"
        " FROM pool p, generate_series(1, 9965) i");
    ok(job_list(fx.db, &f, &page, &e)); /* of the 40 the newest 35 are among them */
    assert_int_equal(page.n, 6);
    assert_string_equal(page.job[5].name, "n34");
}

static void an_unknown_cursor_is_an_error(void **state)
{
    struct err e = ERR_INIT;
    cleanup_jobs struct jobs page = JOBS_INIT;
    struct job_filter f = { .limit = 5, .after = "00000000-0000-4000-8000-000000000001" };
    (void)state;
    fx_fails(job_list(fx.db, &f, &page, &e), &e, ERR_INVALID, "after");
    f.after = "not an id'";
    fx_fails(job_list(fx.db, &f, &page, &e), &e, ERR_INVALID, "after");
}

static void an_empty_store_has_an_empty_page(void **state)
{
    (void)state;
    walk((struct job_filter){ .limit = 5 }, "false");
    walk((struct job_filter){ .limit = 5, .states = BIT(QUEUED) | BIT(FAILED) }, "false");
    walk((struct job_filter){ .limit = 5, .q = "x" }, "false");
}

/* A limit out of range is brought into it. */
static void a_page_has_at_most_200(void **state)
{
    struct err e = ERR_INIT;
    cleanup_jobs struct jobs page = JOBS_INIT;
    cleanup_jobs struct jobs one = JOBS_INIT;
    struct job_filter f = { .limit = 100000 };
    (void)state;
    fx_sql(
        "INSERT INTO job (pool_id, endpoint, input_file, completion_window, window_minutes, request,"
        " final_state) SELECT p.id, 'e', 'f', '1h', 60, '{}', 9 FROM pool p, generate_series(1, 201)");
    ok(job_list(fx.db, &f, &page, &e));
    assert_int_equal(page.n, 200);
    assert_true(page.more);
    f.limit = 0;
    ok(job_list(fx.db, &f, &one, &e));
    assert_int_equal(one.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(pages_follow_each_other_without_a_gap),
        FX_BOTH(filters_are_the_servers),
        FX_BOTH(an_id_finds_its_job),
        FX_BOTH(names_are_looked_for_among_the_newest),
        FX_BOTH(an_unknown_cursor_is_an_error),
        FX_BOTH(an_empty_store_has_an_empty_page),
        FX_BOTH(a_page_has_at_most_200),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
