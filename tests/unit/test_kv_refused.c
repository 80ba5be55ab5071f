/* SPDX-License-Identifier: Apache-2.0 */
/* What an error of Redis is told as: what is wrong and what to do, not how Redis was asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "kv/kv.h"

#define SCRIPT " script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:1."

static struct err refusal(const char *text)
{
    char copy[256];
    struct err e = ERR_INIT;
    const redisReply r = { .type = REDIS_REPLY_ERROR, .str = copy, .len = strlen(text) };
    assert_true(r.len < sizeof copy);
    memcpy(copy, text, r.len + 1);
    assert_int_equal(kv_refused(&r, &e), -1);
    return e;
}

/* Of a command and of a script alike. */
static void a_state_of_redis_is_told_with_what_to_do(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        const char *does;
    } CASES[] = {
        { "READONLY You can't write against a read only replica.", "primary in [redis] url" },
        { "READONLY You can't write against a read only replica." SCRIPT,
            "primary in [redis] url" },
        { "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "primary in [redis] url" },
        { "OOM command not allowed when used memory > 'maxmemory'." SCRIPT, "maxmemory" },
        { "MISCONF Errors writing to the AOF file: No space left on device" SCRIPT, "log" },
        { "LOADING Redis is loading the dataset in memory", "again" },
        { "NOREPLICAS Not enough good replicas to write." SCRIPT, "min-replicas-to-write" },
        { "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "SCRIPT KILL" },
        { "NOAUTH Authentication required.", "[redis] url" },
        { "NOPERM this user has no permissions to run the 'set' command" SCRIPT, "ACL" },
        { "MOVED 3999 127.0.0.1:6381", "single server" },
        { "CLUSTERDOWN Hash slot not served", "single server" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct err e = refusal(CASES[i].said);
        char word[16] = "";
        memcpy(word, CASES[i].said, strcspn(CASES[i].said, " "));
        assert_int_equal(e.code, ERR_UNAVAILABLE);
        assert_non_null(strstr(e.msg, CASES[i].does));
        assert_non_null(strstr(e.msg, word)); /* by which Redis' own documents have it */
        assert_null(strstr(e.msg, "script:"));
    }
}

static void any_other_error_is_told_without_the_script(void **state)
{
    (void)state;
    struct err e =
        refusal("WRONGTYPE Operation against a key holding the wrong kind of value" SCRIPT);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_string_equal(
        e.msg, "redis: WRONGTYPE Operation against a key holding the wrong kind of value");
    e = refusal("ERR unknown command 'x'");
    assert_string_equal(e.msg, "redis: ERR unknown command 'x'");
    e = refusal("BUSYGROUP is another word than BUSY");
    assert_int_equal(e.code, ERR_INTERNAL);
    e = refusal("");
    assert_string_equal(e.msg, "redis: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_of_redis_is_told_with_what_to_do),
        cmocka_unit_test(any_other_error_is_told_without_the_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
