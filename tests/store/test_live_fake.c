/* SPDX-License-Identifier: Apache-2.0 */
/* What a server that is no Redis, or one that is broken, may answer: an error, and never a wrong list. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/live.h"
#include "store/ready.h"
#include "tests/fake/redis_server.h"

enum { TIMEOUT_MS = 10000 };

#define NAMED "+OK\r\n"
#define TIME  "*2\r\n$3\r\n100\r\n$1\r\n5\r\n"
#define INDEX "*2\r\n$9\r\nstaging:k\r\n$14\r\n99999999999999\r\n"
#define VALUE "*1\r\n$38\r\n{\"model_id\":\"k\",\"node_name\":\"n\",\"x\":1}\r\n"

static struct kv *kv_to(const struct fake_redis *f)
{
    return kv_new(&(struct kv_options){ .url = f->url, .name = "test", .timeout_ms = TIMEOUT_MS });
}

static void a_good_answer_is_a_list(void **state)
{
    static const char *const STEPS[] = { NAMED, TIME INDEX, VALUE };
    struct err e = ERR_INIT;
    struct fake_redis f;

    (void)state;
    fake_redis_open(&f, STEPS, 3);
    {
        cleanup_kv struct kv *kv = kv_to(&f);
        cleanup_live struct live l = LIVE_INIT;
        if (live_list(kv, NULL, &l, &e) < 0)
            fail_msg("%s", e.msg);
        assert_int_equal(l.staging.n + l.staging.malformed, 1);
    }
    fake_redis_close(&f);
}

static void an_answer_that_makes_no_sense_is_an_error(void **state)
{
    static const struct {
        const char *first;
        const char *second; /* NULL: nothing more is asked */
        const char *part;
    } ROWS[] = {
        { ":1\r\n" INDEX, NULL, "wrong type" },
        { "*0\r\n" INDEX, NULL, "TIME makes no sense" },
        { "*2\r\n$1\r\nx\r\n$1\r\n5\r\n" INDEX, NULL, "TIME makes no sense" },
        { "*2\r\n$3\r\n100\r\n$7\r\n1000001\r\n" INDEX, NULL, "TIME makes no sense" },
        { "*2\r\n:100\r\n:5\r\n" INDEX, NULL, "TIME makes no sense" },
        { "-ERR not now\r\n" INDEX, NULL, "not now" },
        { TIME ":1\r\n", NULL, "wrong type" },
        { TIME "-ERR not that\r\n", NULL, "not that" },
        { TIME INDEX, "*0\r\n", "too few values" },
        { TIME INDEX, ":1\r\n", "wrong type" },
        { TIME INDEX, "-ERR nor this\r\n", "nor this" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct err e = ERR_INIT;
        struct fake_redis f;
        const char *const steps[] = { NAMED, ROWS[i].first, ROWS[i].second };
        fake_redis_open(&f, steps, ROWS[i].second == NULL ? 2 : 3);
        {
            cleanup_kv struct kv *kv = kv_to(&f);
            struct live l = LIVE_INIT;
            assert_int_equal(live_list(kv, NULL, &l, &e), -1);
            if (e.code == ERR_OK || strstr(e.msg, ROWS[i].part) == NULL)
                fail_msg("row %zu: %s", i, e.msg);
            assert_true(l.staging.n == 0 && l.ops.n == 0);
        }
        fake_redis_close(&f);
    }
}

static void what_does_not_say_pong_is_not_ready(void **state)
{
    static const char *const ANSWERS[] = { "+PANG\r\n", ":1\r\n", "$4\r\nPONG\r\n" };

    (void)state;
    for (size_t i = 0; i < sizeof ANSWERS / sizeof ANSWERS[0]; i++) {
        struct err e = ERR_INIT;
        struct fake_redis f;
        const char *const steps[] = { NAMED, ANSWERS[i] };
        fake_redis_open(&f, steps, 2);
        {
            cleanup_kv struct kv *kv = kv_to(&f);
            assert_int_equal(ready_redis(kv, &e), -1);
            assert_int_equal(e.code, ERR_INTERNAL);
        }
        fake_redis_close(&f);
    }
}

static void a_server_that_is_full_is_out_and_one_without_names_is_not(void **state)
{
    static const char *const FULL[] = { "-ERR max number of clients reached\r\n" };
    static const char *const NAMELESS[] = { "-ERR unknown command\r\n", "+PONG\r\n" };
    struct err e = ERR_INIT;
    struct fake_redis f;

    (void)state;
    fake_redis_open(&f, FULL, 1);
    {
        cleanup_kv struct kv *kv = kv_to(&f);
        assert_int_equal(ready_redis(kv, &e), -1);
        assert_int_equal(e.code, ERR_UNAVAILABLE);
        assert_non_null(strstr(e.msg, "max number of clients"));
    }
    fake_redis_close(&f);
    fake_redis_open(&f, NAMELESS, 2);
    {
        cleanup_kv struct kv *kv = kv_to(&f);
        assert_int_equal(ready_redis(kv, &e), 0);
    }
    fake_redis_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_answer_is_a_list),
        cmocka_unit_test(an_answer_that_makes_no_sense_is_an_error),
        cmocka_unit_test(what_does_not_say_pong_is_not_ready),
        cmocka_unit_test(a_server_that_is_full_is_out_and_one_without_names_is_not),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
