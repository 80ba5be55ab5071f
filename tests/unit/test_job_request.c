/* SPDX-License-Identifier: Apache-2.0 */

/* What a request to create a job must keep to: jobs contract, sections 3 and 4; reference 1.5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/str.h"
#include "model/job_request.h"

static struct job_request fine(enum job_dialect dialect)
{
    struct job_request r = JOB_REQUEST_INIT(dialect);
    r.input_file = "file-1";
    r.endpoint = "/v1/chat/completions";
    return r;
}

/* The check refuses r because of field, and its text begins with the name in r's dialect. */
static void refuses(const struct job_request *r, enum job_field field)
{
    struct err e = ERR_INIT;
    struct job_terms terms = { 0 };
    enum job_field bad = FIELD__COUNT;
    if (job_request_check(r, &terms, &bad, &e) != -1)
        fail_msg("%s was let through", job_field_name(r->dialect, field));
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(bad, field);
    if (!str_starts(e.msg, job_field_name(r->dialect, field)))
        fail_msg("'%s' does not begin with %s", e.msg, job_field_name(r->dialect, field));
}

static struct job_terms accepts(const struct job_request *r)
{
    struct err e = ERR_INIT;
    struct job_terms terms = { 0 };
    enum job_field bad = FIELD__COUNT;
    if (job_request_check(r, &terms, &bad, &e) != 0)
        fail_msg("%s", e.msg);
    return terms;
}

static void what_is_not_said_has_a_default(void **state)
{
    struct job_request r = fine(DIALECT_CONSOLE);
    (void)state;
    struct job_terms t = accepts(&r);
    assert_int_equal(t.window_minutes, 24 * 60);
    assert_int_equal(t.replicas, 1);
    assert_int_equal(t.priority, 0);
    r.replicas = 0; /* the Console sends this for "not chosen" */
    r.completion_window = "";
    t = accepts(&r);
    assert_int_equal(t.replicas, 1);
    assert_int_equal(t.window_minutes, 24 * 60);
    r.replicas = 3;
    r.priority = -7;
    r.completion_window = "1d2h";
    t = accepts(&r);
    assert_int_equal(t.replicas, 3);
    assert_int_equal(t.priority, -7);
    assert_int_equal(t.window_minutes, 26 * 60);
}

static void file_and_endpoint_are_required(void **state)
{
    (void)state;
    for (int d = DIALECT_CONSOLE; d <= DIALECT_OPENAI; d++) {
        struct job_request r = fine((enum job_dialect)d);
        r.input_file = "";
        refuses(&r, FIELD_INPUT_FILE);
        r.input_file = NULL;
        refuses(&r, FIELD_INPUT_FILE);
        r = fine((enum job_dialect)d);
        r.endpoint = NULL;
        refuses(&r, FIELD_ENDPOINT);
    }
}

/* The eight of OpenAI and /v1/rerank. */
static void nine_endpoints_are_known(void **state)
{
    static const char *const KNOWN[] = { "/v1/responses", "/v1/chat/completions", "/v1/embeddings",
        "/v1/completions", "/v1/moderations", "/v1/images/generations", "/v1/images/edits",
        "/v1/videos", "/v1/rerank" };
    static const char *const UNKNOWN[] = { "/v1/audio", "v1/rerank", "/v1/rerank/", "/V1/rerank",
        "/v1/chat" };
    struct job_request r = fine(DIALECT_OPENAI);
    (void)state;
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        r.endpoint = KNOWN[i];
        (void)accepts(&r);
    }
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof UNKNOWN[0]; i++) {
        r.endpoint = UNKNOWN[i];
        refuses(&r, FIELD_ENDPOINT);
    }
}

static void a_window_that_is_none_is_refused(void **state)
{
    struct job_request r = fine(DIALECT_OPENAI);
    (void)state;
    r.completion_window = "0h";
    refuses(&r, FIELD_COMPLETION_WINDOW);
    r.completion_window = " 24h";
    refuses(&r, FIELD_COMPLETION_WINDOW);
}

/* Every number with its range: one below, the ends, one above. */
static void numbers_keep_to_their_ranges(void **state)
{
    struct job_request r = fine(DIALECT_CONSOLE);
    const struct {
        enum job_field field;
        int64_t *value;
        int64_t min;
        int64_t max;
    } cases[] = {
        { FIELD_REQUEST_COUNT_TOTAL, &r.request_count_total, 0, INT32_MAX },
        { FIELD_REPLICAS, &r.replicas, 0, 1024 },
        { FIELD_PRIORITY, &r.priority, -1000, 1000 },
        { FIELD_OUTPUT_EXPIRES, &r.output_expires_s, 3600, 2592000 },
        { FIELD_MAX_CONCURRENCY, &r.client.max_concurrency, 1, 1024 },
        { FIELD_ADAPTIVE_MAX_FACTOR, &r.client.adaptive_max_factor, 1, INT32_MAX },
        { FIELD_ADAPTIVE_HEALTHY_WINDOW, &r.client.adaptive_healthy_window, 1, INT32_MAX },
        { FIELD_ADAPTIVE_ADDITIVE_INCREASE, &r.client.adaptive_additive_increase, 1, INT32_MAX },
        { FIELD_REQUEST_TIMEOUT, &r.client.request_timeout_s, 1, INT32_MAX },
        { FIELD_MAX_RETRIES, &r.client.max_retries, 0, INT32_MAX },
        { FIELD_NO_ENDPOINT_MAX_RETRIES, &r.client.no_endpoint_max_retries, 0, INT32_MAX },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        r.output_anchor = cases[i].field == FIELD_OUTPUT_EXPIRES ? "created_at" : NULL;
        *cases[i].value = cases[i].min - 1;
        refuses(&r, cases[i].field);
        *cases[i].value = cases[i].max + 1;
        refuses(&r, cases[i].field);
        *cases[i].value = cases[i].min;
        (void)accepts(&r);
        *cases[i].value = cases[i].max;
        (void)accepts(&r);
        *cases[i].value = JOB_UNSET;
    }
}

static void delays_are_not_negative(void **state)
{
    struct job_request r = fine(DIALECT_OPENAI);
    (void)state;
    r.client.base_delay_s = -0.5;
    refuses(&r, FIELD_BASE_DELAY);
    r.client.base_delay_s = 0;
    r.client.max_delay_s = -1;
    refuses(&r, FIELD_MAX_DELAY);
    r.client.max_delay_s = 2.5;
    (void)accepts(&r);
}

/* n characters of 2 bytes. */
static const char *wide(char *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(dst + 2 * i, "\xc3\xa4", 2);
    dst[2 * n] = '\0';
    return dst;
}

/* Lengths are those of characters. */
static void texts_have_a_longest_length(void **state)
{
    char text[2 * 600 + 1];
    struct job_request r = fine(DIALECT_CONSOLE);
    const struct {
        enum job_field field;
        const char **value;
        size_t most;
    } cases[] = {
        { FIELD_NAME, &r.name, 512 },
        { FIELD_MODEL, &r.model, 256 },
        { FIELD_TEMPLATE_NAME, &r.template_name, 256 },
        { FIELD_TEMPLATE_VERSION, &r.template_version, 256 },
        { FIELD_POOL, &r.pool, 64 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        *cases[i].value = wide(text, cases[i].most);
        (void)accepts(&r);
        *cases[i].value = wide(text, cases[i].most + 1);
        refuses(&r, cases[i].field);
        *cases[i].value = "\xff";
        refuses(&r, cases[i].field);
        *cases[i].value = NULL;
    }
    r.input_file = wide(text, 257);
    refuses(&r, FIELD_INPUT_FILE);
}

/* 16 pairs, 64 and 512 characters. */
static void metadata_has_its_limits(void **state)
{
    char key[2 * 65 + 1];
    char value[2 * 513 + 1];
    struct job_pair pair[17];
    struct job_request r = fine(DIALECT_OPENAI);
    (void)state;
    for (size_t i = 0; i < 17; i++)
        pair[i] = (struct job_pair){ .key = "k", .value = "v" };
    r.metadata = pair;
    r.n_metadata = 16;
    (void)accepts(&r);
    r.n_metadata = 17;
    refuses(&r, FIELD_METADATA);
    r.n_metadata = 2;
    pair[1] = (struct job_pair){ .key = wide(key, 64), .value = wide(value, 512) };
    (void)accepts(&r);
    pair[1].key = wide(key, 65);
    refuses(&r, FIELD_METADATA);
    pair[1] = (struct job_pair){ .key = "k", .value = wide(value, 513) };
    refuses(&r, FIELD_METADATA);
    pair[1] = (struct job_pair){ .key = "\xff", .value = "v" };
    refuses(&r, FIELD_METADATA);
    pair[1] = (struct job_pair){ .key = "k", .value = "\xff" };
    refuses(&r, FIELD_METADATA);
}

/* Each field is called as the dialect's clients call it, and none of them twice but metadata. */
static void fields_have_names_in_both_dialects(void **state)
{
    (void)state;
    for (int f = 0; f < FIELD__COUNT; f++) {
        assert_true(job_field_name(DIALECT_CONSOLE, (enum job_field)f)[0] != '\0');
        assert_true(job_field_name(DIALECT_OPENAI, (enum job_field)f)[0] != '\0');
    }
    assert_string_equal(job_field_name(DIALECT_CONSOLE, FIELD_INPUT_FILE), "input_dataset");
    assert_string_equal(job_field_name(DIALECT_OPENAI, FIELD_INPUT_FILE), "input_file_id");
    assert_string_equal(
        job_field_name(DIALECT_OPENAI, FIELD_MAX_CONCURRENCY), "aibrix.client.max_concurrency");
    assert_string_equal(job_field_name(DIALECT_CONSOLE, FIELD_BASE_DELAY),
        "client.retry_policy.base_delay_seconds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_said_has_a_default),
        cmocka_unit_test(file_and_endpoint_are_required),
        cmocka_unit_test(nine_endpoints_are_known),
        cmocka_unit_test(a_window_that_is_none_is_refused),
        cmocka_unit_test(numbers_keep_to_their_ranges),
        cmocka_unit_test(delays_are_not_negative),
        cmocka_unit_test(texts_have_a_longest_length),
        cmocka_unit_test(metadata_has_its_limits),
        cmocka_unit_test(fields_have_names_in_both_dialects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
