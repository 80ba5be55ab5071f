/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, "Policies": a registry keyed by (provisioner, policy), the last registration wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/policies.h"

static void other(const struct policy_snapshot *s, struct policy_plan *out)
{
    (void)s;
    (void)out;
}

static void the_built_in_one_is_there_for_every_provisioner(void **state)
{
    (void)state;
    static const char *const TYPES[] = { "local", "kubernetes", "aws", "lambdaCloud", "runpod" };
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        const struct policy_entry *entry = policies_find(TYPES[i], "simple");
        assert_non_null(entry);
        assert_ptr_equal(entry->plan, policy_simple);
    }
}

static void unknown_pairs_are_not_found(void **state)
{
    (void)state;
    assert_null(policies_find("local", "guess"));
    assert_null(policies_find("Local", "simple"));
    assert_null(policies_find("", ""));
}

static void the_last_registration_wins_for_its_pair_only(void **state)
{
    (void)state;
    policies_register(&(struct policy_entry){ "local", "simple", other, true, false });
    assert_ptr_equal(policies_find("local", "simple")->plan, other);
    assert_true(policies_find("local", "simple")->wants_catalog);
    assert_ptr_equal(policies_find("aws", "simple")->plan, policy_simple);
    policies_register(&(struct policy_entry){ "local", "mine", other, false, false });
    assert_ptr_equal(policies_find("local", "mine")->plan, other);
}

static void nothing_is_registered_after_the_freeze(void **state)
{
    (void)state;
    int status = 0;
    policies_freeze();
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = { .rlim_cur = 0, .rlim_max = 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)close(STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        policies_register(&(struct policy_entry){ "local", "late", other, false, false });
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_one_is_there_for_every_provisioner),
        cmocka_unit_test(unknown_pairs_are_not_found),
        cmocka_unit_test(the_last_registration_wins_for_its_pair_only),
        cmocka_unit_test(nothing_is_registered_after_the_freeze),
    };
    policies_register_builtin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
