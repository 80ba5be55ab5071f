/* SPDX-License-Identifier: Apache-2.0 */

/* One job in two dialects: jobs contract, the end of section 2 and sections 3 and 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handlers/console_json.h"
#include "handlers/openai_json.h"
#include "tests/fake/json_of.h"

#define UUID "0b9e7c1e-1111-4222-8333-444455556666"
enum { CREATED_S = 1800000000 };

static const struct console_extras NO_EXTRAS = { .progress = NULL };

/* As it is when it has just been accepted: most is not known. */
static struct job accepted(void)
{
    struct job j = { .id = UUID,
        .pool = "default",
        .created_by = "alice",
        .name = "nightly",
        .endpoint = "/v1/chat/completions",
        .model = "",
        .input_file = "file-in",
        .completion_window = "24h",
        .request_json = "{}",
        .created_us = CREATED_S * US_PER_S,
        .state = JOB_QUEUED,
        .batch_id = "",
        .provision_key = "",
        .error_code = "",
        .error = "",
        .batch_json = "" };
    j.stamp_us[JOB_QUEUED] = j.created_us;
    return j;
}

static struct job in_state(enum job_state s)
{
    struct job j = accepted();
    j.state = s;
    return j;
}

/* A member of either dialect as text; key with dots for members of members, [0] is written .0. */
static void member_is(json_object *whole, const char *path, const char *want)
{
    char words[100];
    char *rest = words;
    json_object *o = whole;
    (void)str_copy(words, sizeof words, path);
    for (const char *key = strsep(&rest, "."); key != NULL; key = strsep(&rest, "."))
        o = json_object_is_type(o, json_type_array)
                ? json_object_array_get_idx(o, (size_t)(key[0] - '0'))
                : jx_get(o, key);
    cleanup_buf struct buf got = BUF_INIT(1 << 16);
    jx_print(o, &got);
    if (strcmp(got.data, want) != 0)
        fail_msg("%s is %s, not %s", path, got.data, want);
}

static void openai_is(
    const struct job *j, const struct job_progress *p, const char *path, const char *want)
{
    cleanup_json json_object *o = openai_batch(j, p);
    member_is(o, path, want);
}

static void console_is(
    const struct job *j, const struct console_extras *x, const char *path, const char *want)
{
    cleanup_json json_object *o = console_job(j, x);
    member_is(o, path, want);
}

/* --- states --- */

static void every_state_has_its_word_in_both_dialects_and_the_real_one_rides_along(void **state)
{
    static const struct {
        enum job_state state;
        const char *real;
        const char *openai;
        const char *console;
    } ROWS[] = {
        { JOB_QUEUED, "\"queued\"", "\"validating\"", "\"queued\"" },
        { JOB_PLANNED, "\"planned\"", "\"validating\"", "\"queued\"" },
        { JOB_RESOURCE_PREPARING, "\"resource_preparing\"", "\"validating\"",
            "\"resource_preparing\"" },
        { JOB_SUBMITTING, "\"submitting\"", "\"validating\"", "\"submitting\"" },
        { JOB_SCHEDULING, "\"scheduling\"", "\"validating\"", "\"scheduling\"" },
        { JOB_VALIDATING, "\"validating\"", "\"validating\"", "\"validating\"" },
        { JOB_IN_PROGRESS, "\"in_progress\"", "\"in_progress\"", "\"in_progress\"" },
        { JOB_FINALIZING, "\"finalizing\"", "\"finalizing\"", "\"finalizing\"" },
        { JOB_CANCELLING, "\"cancelling\"", "\"cancelling\"", "\"cancelling\"" },
        { JOB_COMPLETED, "\"completed\"", "\"completed\"", "\"completed\"" },
        { JOB_FAILED, "\"failed\"", "\"failed\"", "\"failed\"" },
        { JOB_EXPIRED, "\"expired\"", "\"expired\"", "\"expired\"" },
        { JOB_CANCELLED, "\"cancelled\"", "\"cancelled\"", "\"cancelled\"" },
        { JOB_RESOURCE_FAILED, "\"resource_failed\"", "\"failed\"", "\"resource_failed\"" },
        { JOB_SUBMIT_FAILED, "\"submit_failed\"", "\"failed\"", "\"submit_failed\"" },
    };
    (void)state;
    assert_int_equal(sizeof ROWS / sizeof ROWS[0], JOB_STATE__COUNT);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const struct job j = in_state(ROWS[i].state);
        openai_is(&j, NULL, "status", ROWS[i].openai);
        openai_is(&j, NULL, "weighbridge.state", ROWS[i].real);
        console_is(&j, &NO_EXTRAS, "status", ROWS[i].console);
    }
}

static void the_id_is_the_jobs_in_both_dialects(void **state)
{
    (void)state;
    const struct job j = accepted();
    openai_is(&j, NULL, "id", "\"job_" UUID "\"");
    console_is(&j, &NO_EXTRAS, "id", "\"job_" UUID "\"");
}

/* --- what is not known --- */

static void add_keys(json_object *o, struct buf *out)
{
    json_object_object_foreach(o, key, value)
    {
        (void)value;
        buf_printf(out, "%s ", key);
    }
}

/* grpc-gateway writes every field, whatever is known: reference 1.4, and what the contract adds. */
static void the_console_has_every_field_of_a_job_that_has_nothing_yet(void **state)
{
    (void)state;
    const struct job j = accepted();
    cleanup_json json_object *o = console_job(&j, &NO_EXTRAS);
    cleanup_buf struct buf keys = BUF_INIT(4096);
    add_keys(o, &keys);
    assert_string_equal(keys.data,
        "id object endpoint model inputDataset completionWindow status outputDataset errorDataset"
        " createdAt inProgressAt expiresAt finalizingAt completedAt failedAt expiredAt cancellingAt"
        " cancelledAt requestCounts usage metadata extraBody errors runtime resourceAllocation"
        " modelTemplateRef profile name createdBy modelTemplateName modelTemplateVersion batchId"
        " provisionId errorMessage queuedAt resourcePreparingAt submittingAt resourceFailedAt"
        " submitFailedAt cancelRequestedAt provision events plannedAt attempts queuePosition"
        " nextAttemptAt ");
}

static void what_is_unset_is_what_each_dialect_calls_unset(void **state)
{
    static const struct {
        const char *path;
        const char *want;
    } CONSOLE[] = {
        { "createdAt", "\"1800000000\"" }, /* the time of acceptance, always */
        { "inProgressAt", "\"0\"" },
        { "expiresAt", "\"0\"" },
        { "outputDataset", "\"\"" },
        { "requestCounts", "null" },
        { "usage", "null" },
        { "metadata", "{}" },
        { "extraBody", "{}" },
        { "errors", "[]" },
        { "resourceAllocation", "null" },
        { "modelTemplateRef", "null" },
        { "provision", "null" },
        { "events", "[]" },
        { "attempts", "0" },
        { "queuePosition", "0" },
        { "nextAttemptAt", "\"0\"" },
    }, OPENAI[] = {
        { "created_at", "1800000000" },
        { "in_progress_at", "null" },
        { "expires_at", "null" },
        { "failed_at", "null" },
        { "output_file_id", "null" },
        { "error_file_id", "null" },
        { "errors", "null" },
        { "usage", "null" },
        { "model", "null" },
        { "request_counts", "{\"total\":0,\"completed\":0,\"failed\":0}" },
        { "metadata", "{}" },
        { "weighbridge.next_attempt_at", "null" },
    };
    (void)state;
    struct job j = accepted();
    for (size_t i = 0; i < sizeof CONSOLE / sizeof CONSOLE[0]; i++)
        console_is(&j, &NO_EXTRAS, CONSOLE[i].path, CONSOLE[i].want);
    for (size_t i = 0; i < sizeof OPENAI / sizeof OPENAI[0]; i++)
        openai_is(&j, NULL, OPENAI[i].path, OPENAI[i].want);
    j.batch_json = "[1]"; /* a row that makes no sense says nothing */
    console_is(&j, &NO_EXTRAS, "outputDataset", "\"\"");
}

/* --- times --- */

static void what_the_batch_service_says_of_a_time_goes_before_what_was_seen(void **state)
{
    (void)state;
    struct job j = in_state(JOB_COMPLETED);
    j.stamp_us[JOB_IN_PROGRESS] = 1800000100 * INT64_C(1000000);
    j.stamp_us[JOB_COMPLETED] = 1800000300 * INT64_C(1000000);
    j.batch_json = "{\"created_at\": 5, \"in_progress_at\": 1800000090}";
    openai_is(&j, NULL, "in_progress_at", "1800000090");
    openai_is(&j, NULL, "completed_at", "1800000300");
    openai_is(&j, NULL, "created_at", "1800000000");
    console_is(&j, &NO_EXTRAS, "inProgressAt", "\"1800000090\"");
    console_is(&j, &NO_EXTRAS, "completedAt", "\"1800000300\"");
    console_is(&j, &NO_EXTRAS, "createdAt", "\"1800000000\"");
}

static void only_a_queued_job_is_tried_again(void **state)
{
    (void)state;
    struct job j = in_state(JOB_QUEUED);
    j.not_before_us = 1800000060 * INT64_C(1000000);
    console_is(&j, &NO_EXTRAS, "nextAttemptAt", "\"1800000060\"");
    openai_is(&j, NULL, "weighbridge.next_attempt_at", "\"2027-01-15T08:01:00.000000Z\"");
    j.state = JOB_SUBMITTING;
    console_is(&j, &NO_EXTRAS, "nextAttemptAt", "\"0\"");
    openai_is(&j, NULL, "weighbridge.next_attempt_at", "null");
}

/* --- failures --- */

#define LINES \
    "{\"errors\": [{\"code\": \"invalid_json\", \"message\": \"no JSON\", \"param\": \"body\", \"line\": 3}," \
    " 7, {\"code\": \"empty_file\", \"message\": \"nothing\", \"line\": 0}]}"

static void a_failure_has_the_real_state_first_and_lines_stay_1_based(void **state)
{
    static const struct {
        enum job_state state;
        const char *code;
        const char *batch_json;
        const char *openai;
        const char *console;
    } ROWS[] = {
        { JOB_RESOURCE_FAILED, "quota", "",
            "[{\"code\":\"resource_failed\",\"message\":\"why\",\"param\":null,\"line\":null}]",
            "[{\"code\":\"resource_failed\",\"message\":\"why\",\"param\":\"\",\"line\":\"0\"}]" },
        { JOB_SUBMIT_FAILED, "", "",
            "[{\"code\":\"submit_failed\",\"message\":\"why\",\"param\":null,\"line\":null}]",
            "[{\"code\":\"submit_failed\",\"message\":\"why\",\"param\":\"\",\"line\":\"0\"}]" },
        { JOB_FAILED, "batch_lost", "",
            "[{\"code\":\"batch_lost\",\"message\":\"why\",\"param\":null,\"line\":null}]",
            "[{\"code\":\"batch_lost\",\"message\":\"why\",\"param\":\"\",\"line\":\"0\"}]" },
        { JOB_FAILED, "batch_failed", LINES,
            "[{\"code\":\"invalid_json\",\"message\":\"no JSON\",\"param\":\"body\",\"line\":3},"
            "{\"code\":\"empty_file\",\"message\":\"nothing\",\"param\":null,\"line\":null}]",
            "[{\"code\":\"invalid_json\",\"message\":\"no JSON\",\"param\":\"body\",\"line\":\"3\"},"
            "{\"code\":\"empty_file\",\"message\":\"nothing\",\"param\":\"\",\"line\":\"0\"}]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct job j = in_state(ROWS[i].state);
        j.stamp_us[j.state] = 1800000400 * INT64_C(1000000);
        j.error_code = ROWS[i].code;
        j.error = "why";
        j.batch_json = ROWS[i].batch_json;
        openai_is(&j, NULL, "errors.object", "\"list\"");
        openai_is(&j, NULL, "errors.data", ROWS[i].openai);
        openai_is(&j, NULL, "failed_at", "1800000400"); /* whichever way it failed */
        console_is(&j, &NO_EXTRAS, "errors", ROWS[i].console);
        console_is(&j, &NO_EXTRAS, "errorMessage", "\"why\"");
    }
}

/* A client of the Console tells the two failures apart by their times. */
static void the_console_has_each_failure_at_its_own_time(void **state)
{
    (void)state;
    struct job j = in_state(JOB_SUBMIT_FAILED);
    j.stamp_us[JOB_SUBMIT_FAILED] = 1800000400 * INT64_C(1000000);
    console_is(&j, &NO_EXTRAS, "submitFailedAt", "\"1800000400\"");
    console_is(&j, &NO_EXTRAS, "resourceFailedAt", "\"0\"");
    console_is(&j, &NO_EXTRAS, "failedAt", "\"0\"");
}

/* --- counts and usage --- */

#define ROW_COUNTS "\"request_counts\": {\"total\": 9, \"completed\": 4, \"failed\": 1}"
#define ROW_USAGE  "\"usage\": {\"input_tokens\": 30, \"output_tokens\": 20, \"total_tokens\": 50}"

static void fresh_counts_go_before_those_of_the_row_unless_they_are_behind(void **state)
{
    static const struct {
        const char *request_json;
        const char *batch_json;
        struct job_progress progress;
        const char *counts;
        const char *tokens;
    } ROWS[] = {
        { "{\"request_count_total\": 9}", "", { .known = false },
            "{\"total\":9,\"completed\":0,\"failed\":0}", "null" },
        { "{\"request_count_total\": 9}", "{" ROW_COUNTS "," ROW_USAGE "}", { .known = false },
            "{\"total\":9,\"completed\":4,\"failed\":1}", "\"50\"" },
        { "{}", "{" ROW_COUNTS "," ROW_USAGE "}",
            { true, .total = 9, .completed = 6, .failed = 1, 40, 25, 65 },
            "{\"total\":9,\"completed\":6,\"failed\":1}", "\"65\"" },
        { "{}", "{" ROW_COUNTS "," ROW_USAGE "}",
            { true, .total = 9, .completed = 2, .failed = 0, 10, 5, 15 },
            "{\"total\":9,\"completed\":4,\"failed\":1}", "\"50\"" },
        { "{}", "", { true, .total = 9, .completed = 2 },
            "{\"total\":9,\"completed\":2,\"failed\":0}", "null" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct job j = in_state(JOB_IN_PROGRESS);
        const struct console_extras x = { .progress = &ROWS[i].progress };
        j.request_json = ROWS[i].request_json;
        j.batch_json = ROWS[i].batch_json;
        openai_is(&j, &ROWS[i].progress, "request_counts", ROWS[i].counts);
        console_is(&j, &x, "requestCounts", ROWS[i].counts);
        console_is(&j, &x, "usage.totalTokens", ROWS[i].tokens);
    }
}

static void usage_has_all_that_a_typed_client_asks_of_it(void **state)
{
    (void)state;
    struct job j = in_state(JOB_COMPLETED);
    j.batch_json = "{" ROW_USAGE "}";
    openai_is(&j, NULL, "usage",
        "{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":20,"
        "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":50}");
    console_is(&j, &NO_EXTRAS, "usage",
        "{\"inputTokens\":\"30\",\"outputTokens\":\"20\",\"totalTokens\":\"50\"}");
}

/* --- what was asked --- */

static void the_request_is_shown_as_it_was(void **state)
{
    (void)state;
    struct job j = accepted();
    j.request_json = "{\"metadata\": {\"k\": \"v\"}, \"extra_body\": {\"aibrix\": {\"a\": [1]}},"
                     " \"model_template\": {\"name\": \"t\", \"version\": \"v2\"}}";
    console_is(&j, &NO_EXTRAS, "metadata", "{\"k\":\"v\"}");
    console_is(&j, &NO_EXTRAS, "extraBody", "{\"aibrix\":\"{\\\"a\\\":[1]}\"}"); /* JSON as text */
    console_is(&j, &NO_EXTRAS, "modelTemplateName", "\"t\"");
    console_is(&j, &NO_EXTRAS, "modelTemplateRef.version", "\"v2\"");
    console_is(&j, &NO_EXTRAS, "modelTemplateRef.rawJson",
        "\"{\\\"name\\\":\\\"t\\\",\\\"version\\\":\\\"v2\\\"}\"");
    openai_is(&j, NULL, "metadata", "{\"k\":\"v\"}");
}

/* --- machines, and the trail --- */

static struct provision machines(void)
{
    return (struct provision){ .key = UUID ":1",
        .id = "p-1",
        .job_id = UUID,
        .pool = "default",
        .provider = "runpod",
        .status = "running",
        .region = "eu",
        .spec_json = "{\"replicas\": 2, \"gpu_type\": \"H100\"}",
        .details_json = "{\"pods\": [\"a\", \"b\"]}",
        .starts_us = CREATED_S * US_PER_S,
        .ends_us = (CREATED_S + 3600) * US_PER_S,
        .error = "",
        .created_us = CREATED_S * US_PER_S,
        .updated_us = CREATED_S * US_PER_S };
}

static void machines_are_an_allocation_once_they_are_ours(void **state)
{
    (void)state;
    const struct job j = in_state(JOB_RESOURCE_PREPARING);
    struct provision p = machines();
    const struct console_extras x = { .provision = &p };
    console_is(&j, &x, "resourceAllocation",
        "{\"provisionId\":\"p-1\",\"provisionResourceDeadline\":\"1800003600\",\"resourceDetails\":"
        "[{\"endpointCluster\":\"eu\",\"gpuType\":\"H100\",\"replica\":2,\"extra\":{}}],"
        "\"rawJson\":\"{\\\"pods\\\":[\\\"a\\\",\\\"b\\\"]}\"}");
    console_is(&j, &x, "provision.idempotencyKey", "\"" UUID ":1\"");
    console_is(&j, &x, "provision.jobId", "\"job_" UUID "\"");
    console_is(&j, &x, "provisionId", "\"p-1\"");

    p.spec_json = "no JSON"; /* a row that makes no sense says nothing */
    p.details_json = "";
    console_is(&j, &x, "resourceAllocation.resourceDetails", "[]");
    console_is(&j, &x, "resourceAllocation.rawJson", "\"{}\"");
    p.starts_us = 0;
    console_is(&j, &x, "resourceAllocation", "null");
    console_is(&j, &x, "provision.status", "\"running\"");
}

static void the_trail_is_shown_whole_and_as_the_ui_reads_it(void **state)
{
    static struct job_happening steps[] = {
        { JOB_NONE, JOB_QUEUED, EV_ENQUEUE, CREATED_S * US_PER_S + 5, 0, "alice", "" },
        { JOB_QUEUED, JOB_PLANNED, EV_PLAN, (CREATED_S + 1) * US_PER_S + 6, 7, "planner h/1",
            "{\"policy\": \"fair\"}" },
        { JOB_SCHEDULING, JOB_IN_PROGRESS, EV_BATCH_IN_PROGRESS, (CREATED_S + 2) * US_PER_S, 7,
            "planner h/1", "" },
    };
    const struct job_history h = { .happening = steps, .n = sizeof steps / sizeof steps[0] };
    const struct console_extras x = { .history = &h };
    const struct job j = in_state(JOB_IN_PROGRESS);
    (void)state;
    cleanup_json json_object *o = console_history(&h);
    member_is(o, "events.0",
        "{\"from\":\"\",\"to\":\"queued\",\"event\":\"enqueue\",\"at\":\"2027-01-15T08:00:00.000005Z\","
        "\"actor\":\"alice\",\"epoch\":\"0\",\"detail\":{}}");
    member_is(o, "events.1",
        "{\"from\":\"queued\",\"to\":\"planned\",\"event\":\"plan\","
        "\"at\":\"2027-01-15T08:00:01.000006Z\",\"actor\":\"planner h/1\",\"epoch\":\"7\","
        "\"detail\":{\"policy\":\"fair\"}}");
    console_is(&j, &x, "events.1",
        "{\"id\":\"planned-1\",\"label\":\"planned\",\"status\":\"queued\",\"source\":\"planner\","
        "\"at\":\"1800000001\",\"message\":\"plan\"}");
    console_is(&j, &x, "events.2.source", "\"mds\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_its_word_in_both_dialects_and_the_real_one_rides_along),
        cmocka_unit_test(the_id_is_the_jobs_in_both_dialects),
        cmocka_unit_test(the_console_has_every_field_of_a_job_that_has_nothing_yet),
        cmocka_unit_test(what_is_unset_is_what_each_dialect_calls_unset),
        cmocka_unit_test(what_the_batch_service_says_of_a_time_goes_before_what_was_seen),
        cmocka_unit_test(only_a_queued_job_is_tried_again),
        cmocka_unit_test(a_failure_has_the_real_state_first_and_lines_stay_1_based),
        cmocka_unit_test(the_console_has_each_failure_at_its_own_time),
        cmocka_unit_test(fresh_counts_go_before_those_of_the_row_unless_they_are_behind),
        cmocka_unit_test(usage_has_all_that_a_typed_client_asks_of_it),
        cmocka_unit_test(the_request_is_shown_as_it_was),
        cmocka_unit_test(machines_are_an_allocation_once_they_are_ours),
        cmocka_unit_test(the_trail_is_shown_whole_and_as_the_ui_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
