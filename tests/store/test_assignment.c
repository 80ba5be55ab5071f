/* SPDX-License-Identifier: Apache-2.0 */

/* Assignments of versions to nodes, receipts and failures: artifacts contract, section 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/store/artifact_fixture.h"

static struct receipt receipt_of(const struct assignments *a)
{
    return (struct receipt){ a->row[0].digest, "{}", "{}", "{}", 5, 7 };
}

static void given(struct assignments *out)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    artifact_published("v1", 'a', &v);
    artifact_assigned("n1", "v1", out);
}

static void one_assignment_for_a_node_and_version(void **state)
{
    cleanup_assignments struct assignments a = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments again = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments todo = ASSIGNMENTS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    given(&a);
    const struct assign same = { "n1", "m", "v1", "admin" };
    const struct assign nobody = { "n9", "m", "v1", "admin" };
    const struct assign nothing = { "n1", "m", "v9", "admin" };
    assert_int_equal(assignment_make(fx.db, &same, &again, &e), 1);
    assert_string_equal(again.row[0].id, a.row[0].id);
    fx_fails(assignment_make(fx.db, &nobody, &again, &e), &e, ERR_NOT_FOUND, "n9");
    fx_fails(assignment_make(fx.db, &nothing, &again, &e), &e, ERR_NOT_FOUND, "v9");
    ok(assignment_todo(fx.db, "n1", &todo, &e));
    assert_int_equal(todo.n, 1);
    ok(assignment_todo(fx.db, "n2", &todo, &e));
    assert_int_equal(todo.n, 0);
}

static void a_receipt_counts_once_and_with_the_right_digest(void **state)
{
    cleanup_assignments struct assignments a = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    given(&a);
    struct receipt r = receipt_of(&a);
    r.digest = "sha256:other";
    fx_fails(assignment_receive(fx.db, "n1", a.row[0].id, &r, &out, &e), &e, ERR_MISMATCH,
        a.row[0].digest);
    r = receipt_of(&a);
    fx_fails(assignment_receive(fx.db, "n2", a.row[0].id, &r, &out, &e), &e, ERR_NOT_FOUND, "n2");
    fx_fails(assignment_receive(fx.db, "n1", "nonsense", &r, &out, &e), &e, ERR_NOT_FOUND, "n1");
    ok(assignment_receive(fx.db, "n1", a.row[0].id, &r, &out, &e));
    assert_string_equal(out.row[0].state, "landed");
    assert_int_equal(out.row[0].bytes, out.row[0].total_bytes);
    r.bytes_fetched = 99;
    assert_int_equal(assignment_receive(fx.db, "n1", a.row[0].id, &r, &out, &e), 1);
    fx_value("SELECT string_agg(bytes_fetched::text, ' ') FROM receipt", "5");
    fx_fails(assignment_cancel(fx.db, "n1", a.row[0].id, &out, &e), &e, ERR_CONFLICT, "landed");
}

static void progress_never_goes_back(void **state)
{
    cleanup_assignments struct assignments a = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    given(&a);
    const struct assignment_progress far = { "fetch", "80", 100 };
    const struct assignment_progress less = { "verify", NULL, 5 };
    ok(assignment_progress(fx.db, "n1", a.row[0].id, &far, &out, &e));
    assert_string_equal(out.row[0].state, "pulling");
    ok(assignment_progress(fx.db, "n1", a.row[0].id, &less, &out, &e));
    assert_int_equal(out.row[0].bytes, 100);
    assert_string_equal(out.row[0].phase, "verify");
    fx_value("SELECT encode(verified, 'hex') FROM assignment", "80");
    ok(assignment_cancel(fx.db, "n1", a.row[0].id, &out, &e));
    fx_fails(assignment_progress(fx.db, "n1", a.row[0].id, &far, &out, &e), &e, ERR_CONFLICT,
        "cancelled");
}

static void four_attempts(void **state)
{
    cleanup_assignments struct assignments a = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    const struct attempt_failure f = { "retryable", "timeout", "" };
    const struct assign same = { "n1", "m", "v1", "admin" };
    struct err e = ERR_INIT;
    (void)state;

    given(&a);
    for (int i = 1; i <= ASSIGNMENT_ATTEMPTS; i++) {
        ok(assignment_fail(fx.db, "n1", a.row[0].id, &f, &out, &e));
        assert_int_equal(out.row[0].attempts, i);
        assert_string_equal(out.row[0].state, i < ASSIGNMENT_ATTEMPTS ? "queued" : "failed");
    }
    fx_fails(assignment_fail(fx.db, "n1", a.row[0].id, &f, &out, &e), &e, ERR_CONFLICT, "failed");
    ok(assignment_make(fx.db, &same, &out, &e));
    assert_int_equal(out.row[0].attempts, 0);
    fx_value(
        "SELECT string_agg(attempt::text, ' ' ORDER BY id) FROM assignment_failure", "1 2 3 4");
}

static void what_is_withdrawn_does_not_begin(void **state)
{
    cleanup_assignments struct assignments a = ASSIGNMENTS_INIT;
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    cleanup_versions struct versions v = VERSIONS_INIT;
    const struct assignment_progress p = { "fetch", NULL, 1 };
    const struct attempt_failure f = { "task_fatal", "disk_full", "" };
    const struct assign same = { "n1", "m", "v1", "admin" };
    struct err e = ERR_INIT;
    (void)state;

    given(&a);
    ok(version_withdraw(fx.db, "m", "v1", "bad", &v, &e));
    ok(assignment_todo(fx.db, "n1", &out, &e));
    assert_int_equal(out.n, 0);
    fx_fails(
        assignment_progress(fx.db, "n1", a.row[0].id, &p, &out, &e), &e, ERR_CONFLICT, "withdrawn");
    assert_int_equal(assignment_concerns(fx.db, "n1", v.row[0].id, &e), 1);
    ok(assignment_fail(fx.db, "n1", a.row[0].id, &f, &out, &e));
    assert_string_equal(out.row[0].state, "failed");
    fx_fails(assignment_make(fx.db, &same, &out, &e), &e, ERR_CONFLICT, "withdrawn, not published");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(one_assignment_for_a_node_and_version),
        FX_BOTH(a_receipt_counts_once_and_with_the_right_digest),
        FX_BOTH(progress_never_goes_back),
        FX_BOTH(four_attempts),
        FX_BOTH(what_is_withdrawn_does_not_begin),
    };
    return cmocka_run_group_tests(tests, artifacts_setup, fx_teardown);
}
