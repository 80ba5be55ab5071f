/* SPDX-License-Identifier: Apache-2.0 */
/* The examples of docs/policies.md and docs/providers.md do what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "plan/policies.h"
#include "tests/examples/examples.h"

static void the_smallest_job_goes_first(void **state)
{
    static const struct policy_job JOBS[] = {
        { .enqueued_us = 1, .replicas = 2, .gpus = 4 },
        { .enqueued_us = 2, .replicas = 1, .gpus = 1 },
        { .enqueued_us = 3, .replicas = 1, .gpus = 0 },
        { .enqueued_us = 4, .replicas = 1, .gpus = 1 },
    };
    static const size_t ORDER[] = { 2, 1, 3, 0 };
    (void)state;
    for (int64_t most = 0; most <= 5; most++) {
        const struct policy_snapshot s = {
            .max_provisioning = most + 1, .provisioning = 1, .job = JOBS, .n_jobs = 4
        };
        cleanup_policy_plan struct policy_plan p = POLICY_PLAN_INIT;
        policy_smallest(&s, &p);
        assert_int_equal(p.n, most < 4 ? most : 4);
        for (size_t i = 0; i < p.n; i++)
            assert_int_equal(p.decision[i].job, ORDER[i]);
    }
}

static void it_is_registered_beside_the_built_in_ones(void **state)
{
    (void)state;
    policies_register_builtin();
    policies_register(&(struct policy_entry){
        .provisioner = "local", .policy = "smallest", .plan = policy_smallest });
    policies_freeze();
    assert_ptr_equal(policies_find("local", "smallest")->plan, policy_smallest);
    assert_ptr_equal(policies_find("local", "fair")->plan, policy_fair);
    assert_null(policies_find("aws", "smallest"));
}

/* --- provisioner_shelf.c ---------------------------------------------------------------------- */

#define NAME(n) "wb-c1-0197a5c2-0d4e-7b1a-9c3d-5e6f70819203-" #n

struct scene {
    char folder[32];
    struct provisioner *p;
    struct provision_note note;
    struct err e;
};

static int up(void **state)
{
    static struct scene s;
    static const char *const MACHINES[] = { "10.0.0.1", "10.0.0.2", "10.0.0.3" };
    const struct provisioner_env env = { .cluster = "c1", .stop_fd = -1 };
    (void)str_copy(s.folder, sizeof s.folder, "/tmp/wb-shelf-XXXXXX");
    assert_non_null(mkdtemp(s.folder));
    for (size_t i = 0; i < sizeof MACHINES / sizeof MACHINES[0]; i++) {
        char path[64];
        (void)str_format(path, sizeof path, "%s/%s", s.folder, MACHINES[i]);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    (void)setenv("SHELF", s.folder, 1);
    provisioner_register(&PROVISIONER_SHELF);
    assert_int_equal(provisioner_open("shelf", &env, &s.p, &s.e), 0);
    *state = &s;
    return 0;
}

static int down(void **state)
{
    struct scene *s = *state;
    static const char *const NAMES[] = { NAME(1), NAME(2) };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        (void)!provisioner_release(s->p, NAMES[i], &s->note, &s->e);
    provisioner_close(s->p);
    for (int i = 1; i <= 3; i++) {
        char path[64];
        (void)str_format(path, sizeof path, "%s/10.0.0.%d", s->folder, i);
        (void)unlink(path);
    }
    return rmdir(s->folder);
}

static int take(struct scene *s, const char *name, int replicas, struct provision_result *out)
{
    const struct provision_spec spec = { .replicas = replicas };
    const struct provision_request r = { .name = name, .spec = &spec };
    provision_result_fini(out);
    *out = (struct provision_result)PROVISION_RESULT_INIT;
    return provisioner_provision(s->p, &r, out, &s->note, &s->e);
}

static int64_t free_machines(struct scene *s)
{
    cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
    return c.offer[0].free;
}

static void a_shelf_gives_and_takes_back(void **state)
{
    struct scene *s = *state;
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    assert_int_equal(take(s, NAME(1), 2, &r), 0);
    assert_int_equal(r.status, PROVISION_RUNNING);
    assert_string_equal(r.machine[1].url, "http://10.0.0.2:8000");
    assert_int_equal(take(s, NAME(1), 2, &r), 0); /* a repeat adopts */
    assert_int_equal(free_machines(s), 1);
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.seen[0].name, NAME(1));
    assert_int_equal(l.seen[0].machines, 2);
    assert_int_equal(provisioner_release(s->p, NAME(1), &s->note, &s->e), 0);
    assert_int_equal(provisioner_release(s->p, NAME(1), &s->note, &s->e), 0);
    assert_int_equal(free_machines(s), 3);
}

static void a_shelf_that_is_too_small_is_no_capacity(void **state)
{
    struct scene *s = *state;
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    assert_int_equal(take(s, NAME(1), 2, &r), 0);
    assert_int_equal(take(s, NAME(2), 2, &r), -1);
    assert_int_equal(s->note.error, PROVISION_ERROR_NO_CAPACITY);
    assert_true(s->note.may_exist); /* it has one of them: to be released */
    assert_int_equal(provisioner_release(s->p, NAME(2), &s->note, &s->e), 0);
    assert_int_equal(free_machines(s), 1);
}

static void machines_that_were_taken_away_are_told(void **state)
{
    struct scene *s = *state;
    const struct provision_spec spec = { .replicas = 2 };
    const struct provision_request request = { .name = NAME(1), .spec = &spec };
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    cleanup_provision_result struct provision_result now = PROVISION_RESULT_INIT;
    assert_int_equal(take(s, NAME(1), 2, &r), 0);
    assert_int_equal(provisioner_release(s->p, NAME(1), &s->note, &s->e), 0);
    assert_int_equal(provisioner_status(s->p, &request, r.details, &now, &s->note, &s->e), 0);
    assert_int_equal(now.status, PROVISION_RELEASED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_job_goes_first),
        cmocka_unit_test(it_is_registered_beside_the_built_in_ones),
        cmocka_unit_test_setup_teardown(a_shelf_gives_and_takes_back, up, down),
        cmocka_unit_test_setup_teardown(a_shelf_that_is_too_small_is_no_capacity, up, down),
        cmocka_unit_test_setup_teardown(machines_that_were_taken_away_are_told, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
