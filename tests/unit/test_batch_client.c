/* SPDX-License-Identifier: Apache-2.0
 * The batch client against a double of the service: what goes out, what comes back, and what came of a
 * call that went wrong (jobs contract, section 5; reference 1.9 and 1.10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/stop.h"
#include "base/mem.h"
#include "base/str.h"
#include "batch/batch_client.h"
#include "json/jx.h"
#include "tests/fake/batch_scene.h"
#include "tests/fake/json_of.h"

enum { SHORT_MS = 2000 }; /* to be sent in, on a busy machine; never to be answered in */

/* A create that must not return 0: whatever the server did with it. */
static void create_fails(struct batch_scene *s, enum batch_outcome outcome, enum err_code code)
{
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    assert_int_equal(batch_client_create(s->client, &r, &b, &s->note, &s->e), -1);
    assert_string_equal(batch_outcome_name(s->note.outcome), batch_outcome_name(outcome));
    assert_string_equal(err_name(s->e.code), err_name(code));
    assert_string_equal(b.id, "");
}

/* --- what goes out ---------------------------------------------------------------------------- */

static void the_extension_goes_out_as_the_service_knows_it(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch struct batch b = BATCH_INIT;
    cleanup_json json_object *metadata = json_of("{\"k\":\"v\"}");
    cleanup_json json_object *runtime =
        json_of("{\"target\":\"LambdaCloud\",\"options\":{\"host\":\"192.0.2.1\"}}");
    cleanup_json json_object *allocation = json_of(
        "{\"provision_id\":\"p\",\"resource_details\":[{\"gpu_type\":\"A10\",\"replica\":2}]}");
    cleanup_json json_object *spec = json_of("{\"engine\":{\"image\":\"i\"}}");
    cleanup_json json_object *limits = json_of("{\"max_concurrency\":4}");
    struct batch_create r = batch_plain();
    r.metadata = metadata;
    r.model = "m";
    r.runtime = runtime;
    r.resource_allocation = allocation;
    r.template_name = "t";
    r.template_version = "v1.0.0";
    r.template_spec = spec;
    r.client = limits;
    if (batch_client_create(s->client, &r, &b, &s->note, &s->e) < 0)
        fail_msg("%s", s->e.msg);
    cleanup_free char *sent = child_server_body(&s->server, "POST", "/v1/batches");
    assert_string_equal(sent,
        "{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/chat/completions\",\"completion_window\":\"90m\","
        "\"metadata\":{\"k\":\"v\"},\"aibrix\":{\"job_id\":\"" BATCH_JOB "\","
        "\"runtime\":{\"target\":\"LambdaCloud\",\"options\":{\"host\":\"192.0.2.1\"}},"
        "\"resource_allocation\":{\"provision_id\":\"p\",\"resource_details\":[{\"gpu_type\":\"A10\","
        "\"replica\":2}]},\"model_template\":{\"name\":\"t\",\"version\":\"v1.0.0\",\"spec\":{\"engine\":"
        "{\"image\":\"i\"}}},\"model\":\"m\",\"client\":{\"max_concurrency\":4}}}");
    assert_int_equal(s->note.outcome, BATCH_DONE);
    assert_int_equal(b.status, BATCH_SCHEDULING);
    assert_string_equal(b.job_id, BATCH_JOB);
    assert_string_equal(b.input_file_id, "file-1");
    assert_int_equal(b.times.expires_at - b.times.created_at, 90 * 60);
    assert_false(b.counts.known);
    assert_false(b.usage.known);
}

static void empty_parts_are_left_out(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch struct batch b = BATCH_INIT;
    cleanup_json json_object *empty = json_of("{}");
    struct batch_create r = batch_plain();
    r.metadata = empty;
    r.client = empty;
    r.template_name = "";
    assert_int_equal(batch_client_create(s->client, &r, &b, &s->note, &s->e), 0);
    cleanup_free char *sent = child_server_body(&s->server, "POST", "/v1/batches");
    assert_string_equal(sent,
        "{\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/chat/completions\",\"completion_window\":\"90m\","
        "\"aibrix\":{\"job_id\":\"" BATCH_JOB "\"}}");
}

static void the_url_may_end_in_v1(void **state)
{
    struct batch_scene *s = *state;
    static const char *const ENDS[] = { "/", "/v1", "/v1/", "//" };
    struct batch b = batch_make(s, BATCH_JOB);
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        char url[128];
        cleanup_batch struct batch again = BATCH_INIT;
        (void)snprintf(url, sizeof url, "%s%s", s->server.url, ENDS[i]);
        cleanup_batch_client struct batch_client *c =
            batch_client_of(url, BATCH_TOKEN, BATCH_HANG_MS);
        assert_int_equal(batch_client_get(c, b.id, &again, &s->note, &s->e), 0);
    }
}

static void a_client_needs_a_url(void **state)
{
    static const char *const BAD[] = { "", "host:80", "ftp://host", "/v1" };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct batch_client *c = NULL;
        struct err e = ERR_INIT;
        struct batch_client_options o = { .url = BAD[i], .stop_fd = -1 };
        assert_int_equal(batch_client_open(&o, &c, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        assert_null(c);
    }
}

static void the_options_of_its_section_are_used(void **state)
{
    struct batch_scene *s = *state;
    cleanup_conf struct conf conf;
    cleanup_batch_client struct batch_client *c = NULL;
    struct batch b = batch_make(s, BATCH_JOB);
    assert_int_equal(conf_load(&conf, NULL, &s->e), 0);
    mem_replace(&conf.batch_url, s->server.url);
    mem_replace(&conf.batch_token, BATCH_TOKEN);
    assert_int_equal(batch_client_open_conf(&conf, -1, &c, &s->e), 0);
    assert_int_equal(batch_client_get(c, b.id, &b, &s->note, &s->e), 0);
}

static void windows_are_whole_minutes(void **state)
{
    char text[BATCH_WINDOW_SIZE];
    (void)state;
    batch_window_text(1, text);
    assert_string_equal(text, "1m");
    batch_window_text(INT64_C(527040), text);
    assert_string_equal(text, "527040m");
}

/* --- the life of a batch ---------------------------------------------------------------------- */

static void a_batch_is_followed_to_its_end(void **state)
{
    static const enum batch_status ORDER[] = { BATCH_VALIDATING, BATCH_IN_PROGRESS,
        BATCH_FINALIZING, BATCH_COMPLETED };
    struct batch_scene *s = *state;
    struct batch made = batch_make(s, BATCH_JOB);
    for (size_t i = 0; i < sizeof ORDER / sizeof ORDER[0]; i++) {
        cleanup_batch struct batch b = BATCH_INIT;
        assert_int_equal(batch_client_get(s->client, made.id, &b, &s->note, &s->e), 0);
        assert_int_equal(b.status, ORDER[i]);
        assert_string_equal(b.id, made.id);
        if (b.status == BATCH_IN_PROGRESS) {
            assert_true(b.counts.known);
            assert_int_equal(b.counts.total, 10);
            assert_int_equal(b.counts.completed, 5);
            assert_true(b.times.in_progress_at >= b.times.created_at);
        }
        if (b.status != BATCH_COMPLETED)
            continue;
        assert_int_equal(b.counts.completed, 10);
        assert_true(b.usage.known);
        assert_int_equal(b.usage.input_tokens, 100);
        assert_int_equal(b.usage.output_tokens, 200);
        assert_int_equal(b.usage.total_tokens, 300);
        assert_int_equal(b.usage.cached_tokens, 10);
        assert_string_not_equal(b.output_file_id, "");
        assert_string_equal(b.error_file_id, "");
    }
}

static void a_batch_is_cancelled(void **state)
{
    struct batch_scene *s = *state;
    struct batch made = batch_make(s, BATCH_JOB);
    for (int i = 0; i < 2; i++) { /* once more while it is being cancelled: the same */
        cleanup_batch struct batch b = BATCH_INIT;
        assert_int_equal(batch_client_cancel(s->client, made.id, &b, &s->note, &s->e), 0);
        assert_int_equal(b.status, BATCH_CANCELLING);
        assert_true(b.times.cancelling_at > 0);
    }
    cleanup_batch struct batch b = BATCH_INIT;
    assert_int_equal(batch_client_get(s->client, made.id, &b, &s->note, &s->e), 0);
    assert_int_equal(b.status, BATCH_CANCELLED);
}

static void an_ended_batch_cannot_be_cancelled(void **state)
{
    struct batch_scene *s = *state;
    struct batch made = batch_make(s, BATCH_JOB);
    struct batch b = BATCH_INIT;
    char order[256];
    (void)snprintf(order, sizeof order, "{'batch':{'%s':{'status':'finalizing'}}}", made.id);
    child_server_order(&s->server, order);
    assert_int_equal(batch_client_cancel(s->client, made.id, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_CONFLICT);
    assert_int_equal(s->e.code, ERR_CONFLICT);
    assert_non_null(strstr(s->e.msg, "Cannot cancel a batch with status 'finalizing'."));
}

static void an_unknown_batch_is_not_found(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    assert_int_equal(batch_client_get(s->client, "batch_none", &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_NOT_FOUND);
    assert_int_equal(s->e.code, ERR_NOT_FOUND);
    assert_int_equal(batch_client_cancel(s->client, "../x?y", &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_NOT_FOUND);
    assert_int_equal(child_server_requests(&s->server, "POST", "/v1/batches/..%2Fx%3Fy/cancel"), 1);
}

/* --- what came of a call ---------------------------------------------------------------------- */

static void what_is_refused_says_why(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    cleanup_json json_object *runtime = json_of("{\"target\":\"Mars\"}");
    cleanup_json json_object *limits = json_of("{\"speed\":1}");
    r.runtime = runtime;
    assert_int_equal(batch_client_create(s->client, &r, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_REFUSED);
    assert_int_equal(s->note.status, 400);
    assert_string_equal(s->note.request_id, "batch-request");
    assert_int_equal(s->e.code, ERR_INVALID);
    assert_string_equal(s->e.msg, "batch service: 400 Unknown runtime target 'Mars'.");
    r.runtime = NULL;
    r.client = limits;
    assert_int_equal(batch_client_create(s->client, &r, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_REFUSED);
    assert_string_equal(
        s->e.msg, "batch service: 422 body.aibrix.client.speed: extra fields not permitted");
    child_server_order(&s->server,
        "{'faults':[{'match':'POST /v1/batches','do':'status','status':413,"
        "'body':{'detail':'too large'}}]}");
    create_fails(s, BATCH_REFUSED, ERR_INVALID);
    assert_string_equal(s->e.msg, "batch service: 413 too large");
}

static void a_wrong_token_is_denied_and_not_told(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    cleanup_batch_client struct batch_client *c =
        batch_client_of(s->server.url, "wrong-token-987654321", BATCH_HANG_MS);
    assert_int_equal(batch_client_create(c, &r, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_DENIED);
    assert_int_equal(s->e.code, ERR_FORBIDDEN);
    assert_null(strstr(s->e.msg, "wrong-token")); /* though the service repeats it */
    assert_non_null(strstr(s->e.msg, "Bearer ***"));
    assert_int_equal(child_server_number(&s->server, "alive"), 0);
}

/* Statuses that need looking before a repeat, and those that do not. */
static void statuses_mean_for_a_create(void **state)
{
    static const struct {
        int status;
        enum batch_outcome outcome;
        enum err_code code;
    } TABLE[] = {
        { 408, BATCH_UNSURE, ERR_UNAVAILABLE },
        { 500, BATCH_UNSURE, ERR_UNAVAILABLE },
        { 502, BATCH_UNSURE, ERR_UNAVAILABLE },
        { 503, BATCH_UNSURE, ERR_UNAVAILABLE },
        { 504, BATCH_UNSURE, ERR_UNAVAILABLE },
        { 429, BATCH_BUSY, ERR_UNAVAILABLE },
        { 425, BATCH_BUSY, ERR_UNAVAILABLE },
        { 409, BATCH_CONFLICT, ERR_CONFLICT },
        { 400, BATCH_REFUSED, ERR_INVALID },
        { 422, BATCH_REFUSED, ERR_INVALID },
        { 401, BATCH_DENIED, ERR_FORBIDDEN },
        { 403, BATCH_DENIED, ERR_FORBIDDEN },
        { 404, BATCH_DENIED, ERR_FORBIDDEN }, /* there is no such path: the URL is wrong */
        { 405, BATCH_DENIED, ERR_FORBIDDEN },
        { 301, BATCH_DENIED, ERR_FORBIDDEN },
    };
    struct batch_scene *s = *state;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        char order[256];
        (void)snprintf(order, sizeof order,
            "{'faults':[{'match':'POST /v1/batches','do':'status','status':%d}]}", TABLE[i].status);
        child_server_order(&s->server, order);
        create_fails(s, TABLE[i].outcome, TABLE[i].code);
        assert_int_equal(s->note.status, TABLE[i].status);
    }
    assert_int_equal(child_server_number(&s->server, "alive"), 0);
}

/* A look that fails changes nothing, so it is never unsure. */
static void statuses_mean_for_a_look(void **state)
{
    static const struct {
        int status;
        enum batch_outcome outcome;
    } TABLE[] = {
        { 408, BATCH_UNREACHABLE },
        { 500, BATCH_UNREACHABLE },
        { 503, BATCH_UNREACHABLE },
        { 429, BATCH_BUSY },
        { 404, BATCH_NOT_FOUND },
        { 403, BATCH_DENIED },
    };
    struct batch_scene *s = *state;
    struct batch made = batch_make(s, BATCH_JOB);
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        struct batch b = BATCH_INIT;
        char order[256];
        (void)snprintf(order, sizeof order,
            "{'faults':[{'match':'GET /v1/batches/.*','do':'status','status':%d}]}",
            TABLE[i].status);
        child_server_order(&s->server, order);
        assert_int_equal(batch_client_get(s->client, made.id, &b, &s->note, &s->e), -1);
        assert_int_equal(s->note.outcome, TABLE[i].outcome);
    }
}

static void retry_after_is_handed_on(void **state)
{
    struct batch_scene *s = *state;
    child_server_order(&s->server, "{'faults':[{'match':'.*','do':'status','status':429,"
                                   "'headers':{'Retry-After':'17'}}]}");
    create_fails(s, BATCH_BUSY, ERR_UNAVAILABLE);
    assert_int_equal(s->note.again_ms, 17000);
    struct batch b = batch_make(s, BATCH_JOB);
    assert_int_equal(s->note.again_ms, 0); /* of this call, not of the last */
    batch_fini(&b);
}

/* 408 after 30 s although the batch exists: it is found by our job id (reference 1.10). */
static void a_batch_whose_create_timed_out_is_found(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    child_server_order(&s->server,
        "{'faults':[{'match':'POST /v1/batches','do':'status_after',"
        "'status':408,'body':{'error':{'message':'Batch creation timed out'}}}]}");
    create_fails(s, BATCH_UNSURE, ERR_UNAVAILABLE);
    assert_non_null(strstr(s->e.msg, "Batch creation timed out"));
    assert_int_equal(batch_find_all(s, &search), 1);
    assert_string_equal(search.batch[0].job_id, BATCH_JOB);
}

static void a_lost_answer_is_unsure_whether_it_was_done_or_not(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search none = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    cleanup_batch_search struct batch_search one = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    child_server_order(&s->server, "{'faults':[{'match':'POST /v1/batches','do':'drop'}]}");
    create_fails(s, BATCH_UNSURE, ERR_UNAVAILABLE);
    assert_int_equal(batch_find_all(s, &none), 0);
    child_server_order(&s->server, "{'faults':[{'match':'POST /v1/batches','do':'drop_after'}]}");
    create_fails(s, BATCH_UNSURE, ERR_UNAVAILABLE);
    assert_int_equal(batch_find_all(s, &one), 1);
    assert_int_equal(child_server_requests(&s->server, "POST", "/v1/batches"), 2);
}

/* libcurl would send it again on a kept connection that breaks. */
static void a_create_is_sent_once(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    assert_int_equal(batch_client_get(s->client, "batch_none", &b, &s->note, &s->e), -1);
    child_server_order(&s->server, "{'faults':[{'match':'POST /v1/batches','do':'drop'}]}");
    create_fails(s, BATCH_UNSURE, ERR_UNAVAILABLE);
    assert_int_equal(child_server_requests(&s->server, "POST", "/v1/batches"), 1);
}

static void no_answer_in_time_is_unsure(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    cleanup_batch_client struct batch_client *c =
        batch_client_of(s->server.url, BATCH_TOKEN, SHORT_MS);
    child_server_order(&s->server, "{'faults':[{'match':'.*','do':'hold','name':'g','times':-1}]}");
    assert_int_equal(batch_client_create(c, &r, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_UNSURE);
    assert_int_equal(s->e.code, ERR_TIMEOUT);
    assert_int_equal(batch_client_get(c, "batch_1", &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_UNREACHABLE);
    child_server_order(&s->server, "{'clear':true}");
}

static void a_service_that_is_down_did_nothing(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    cleanup_batch_client struct batch_client *c =
        batch_client_of("http://127.0.0.1:1", "", BATCH_HANG_MS);
    assert_int_equal(batch_client_create(c, &r, &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_UNREACHABLE);
    assert_int_equal(s->note.status, 0);
}

static void a_stop_is_told_from_an_outage(void **state)
{
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    struct batch_client *c = NULL;
    int stop = stop_event_fd(&s->e);
    struct batch_client_options o = { .url = s->server.url, .token = BATCH_TOKEN, .stop_fd = stop };
    assert_int_equal(batch_client_open(&o, &c, &s->e), 0);
    stop_raise(stop);
    child_server_order(&s->server, "{'faults':[{'match':'.*','do':'hold','name':'g','times':-1}]}");
    assert_int_equal(batch_client_get(c, "batch_1", &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_STOPPED);
    child_server_order(&s->server, "{'clear':true}");
    batch_client_close(c);
    close(stop);
}

/* What says 200 but makes no sense: the batch may have been made. */
static void nonsense_is_unsure(void **state)
{
    static const char *const BODIES[] = { "null", "[]", "{}", "{'id':7}", "{'id':''}",
        "{'id':'batch_1','aibrix':{'job_id':'another'}}", "'text'" };
    struct batch_scene *s = *state;
    struct batch b = BATCH_INIT;
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        char order[256];
        (void)snprintf(order, sizeof order,
            "{'faults':[{'match':'.*','do':'status','status':200,'body':%s}]}", BODIES[i]);
        child_server_order(&s->server, order);
        create_fails(s, BATCH_UNSURE, ERR_INTERNAL);
    }
    child_server_order(&s->server,
        "{'faults':[{'match':'.*','do':'status','status':200,'body':{'id':'batch_2'}}]}");
    assert_int_equal(batch_client_get(s->client, "batch_1", &b, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_UNREACHABLE);
    assert_int_equal(s->e.code, ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, batch_setup, batch_teardown)
        SCENE(the_extension_goes_out_as_the_service_knows_it),
        SCENE(empty_parts_are_left_out),
        SCENE(the_url_may_end_in_v1),
        cmocka_unit_test(a_client_needs_a_url),
        SCENE(the_options_of_its_section_are_used),
        cmocka_unit_test(windows_are_whole_minutes),
        SCENE(a_batch_is_followed_to_its_end),
        SCENE(a_batch_is_cancelled),
        SCENE(an_ended_batch_cannot_be_cancelled),
        SCENE(an_unknown_batch_is_not_found),
        SCENE(what_is_refused_says_why),
        SCENE(a_wrong_token_is_denied_and_not_told),
        SCENE(statuses_mean_for_a_create),
        SCENE(statuses_mean_for_a_look),
        SCENE(retry_after_is_handed_on),
        SCENE(a_batch_whose_create_timed_out_is_found),
        SCENE(a_lost_answer_is_unsure_whether_it_was_done_or_not),
        SCENE(a_create_is_sent_once),
        SCENE(no_answer_in_time_is_unsure),
        SCENE(a_service_that_is_down_did_nothing),
        SCENE(a_stop_is_told_from_an_outage),
        SCENE(nonsense_is_unsure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
