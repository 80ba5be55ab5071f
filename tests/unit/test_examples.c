/* SPDX-License-Identifier: Apache-2.0 */
/* The examples of docs/policies.md do what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_job_goes_first),
        cmocka_unit_test(it_is_registered_beside_the_built_in_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
