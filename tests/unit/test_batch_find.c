/* SPDX-License-Identifier: Apache-2.0
 * Looking for a job's batches among the service's (jobs contract, section 5, intents). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/fake/batch_scene.h"

static void duplicates_are_all_found_newest_first(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    struct batch first = batch_make(s, BATCH_JOB);
    struct batch second = batch_make(s, BATCH_JOB); /* this service does not deduplicate */
    assert_string_not_equal(first.id, second.id);
    assert_int_equal(batch_find_all(s, &search), 2);
    assert_string_equal(search.batch[0].id, second.id);
    assert_string_equal(search.batch[1].id, first.id);
    child_server_order(&s->server, "{'dedupe':true}");
    struct batch third = batch_make(s, BATCH_JOB);
    assert_string_equal(third.id, first.id);
}

/* For a sweep: whatever belongs to some job, and nothing that belongs to none. */
static void a_search_without_a_job_finds_those_of_all_jobs(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(NULL, 0);
    struct batch mine = batch_make(s, BATCH_JOB);
    struct batch other = batch_make(s, "another");
    (void)batch_make(s, "");
    assert_int_equal(batch_find_all(s, &search), 2);
    assert_string_equal(search.batch[0].id, other.id);
    assert_string_equal(search.batch[1].id, mine.id);
    assert_string_equal(search.batch[1].job_id, BATCH_JOB);
}

static void a_search_goes_page_by_page(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    struct batch oldest = batch_make(s, BATCH_JOB);
    for (int i = 0; i < 201; i++)
        batch_make(s, "another");
    assert_int_equal(batch_client_find(s->client, &search, &s->note, &s->e), 1);
    assert_int_equal(search.n, 0);
    /* A page that fails is looked at again: nothing is skipped, nothing found twice. */
    child_server_order(&s->server, "{'faults':[{'match':'GET .*','do':'status','status':503}]}");
    assert_int_equal(batch_client_find(s->client, &search, &s->note, &s->e), -1);
    assert_int_equal(s->note.outcome, BATCH_UNREACHABLE);
    assert_int_equal(batch_find_all(s, &search), 1);
    assert_string_equal(search.batch[0].id, oldest.id);
    assert_int_equal(child_server_requests(&s->server, "GET", "/v1/batches"), 4);
}

/* Back to those made a minute before the intent, and no further. */
static void a_search_ends_where_older_ones_begin(void **state)
{
    struct batch_scene *s = *state;
    char order[256];
    struct batch oldest = batch_make(s, BATCH_JOB);
    for (int i = 0; i < 110; i++)
        batch_make(s, "another");
    struct batch border = batch_make(s, BATCH_JOB);
    const int64_t since = border.times.created_at;
    for (int i = 0; i < 99; i++)
        batch_make(s, "another");
    cleanup_batch_search struct batch_search within = BATCH_SEARCH_INIT(BATCH_JOB, since + 60);
    assert_int_equal(batch_client_find(s->client, &within, &s->note, &s->e), 1);
    assert_int_equal(within.n, 1);
    assert_string_equal(within.batch[0].id, border.id);
    cleanup_batch_search struct batch_search beyond = BATCH_SEARCH_INIT(BATCH_JOB, since);
    (void)snprintf(order, sizeof order, "{'batch':{'%s':{'created_at':%lld}}}", border.id,
        (long long)since - 61);
    child_server_order(&s->server, order);
    assert_int_equal(batch_client_find(s->client, &beyond, &s->note, &s->e), 0);
    (void)oldest;
}

static void a_list_without_end_is_an_error(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    child_server_order(&s->server,
        "{'faults':[{'match':'GET .*','do':'status','status':200,'times':-1,'body':{'data':[{'id':'b1',"
        "'aibrix':{'job_id':'" BATCH_JOB "'}}],'has_more':true,'last_id':'b1'}}]}");
    assert_int_equal(batch_client_find(s->client, &search, &s->note, &s->e), 1);
    assert_int_equal(batch_client_find(s->client, &search, &s->note, &s->e), -1);
    assert_int_equal(s->e.code, ERR_INTERNAL);
    assert_int_equal(search.n, 1); /* the page that failed left nothing behind */
}

static void hostile_entries_do_not_hide_ours(void **state)
{
    struct batch_scene *s = *state;
    cleanup_batch_search struct batch_search search = BATCH_SEARCH_INIT(BATCH_JOB, 0);
    child_server_order(&s->server,
        "{'faults':[{'match':'GET .*','do':'status','status':200,'body':{'data':[null,7,[],{'id':{}},"
        "{'id':'b1','aibrix':7},{'id':'b2','aibrix':{'job_id':'" BATCH_JOB
        "'},'created_at':'x'},{'id':'\\n'}],"
        "'has_more':true,'last_id':'b9'}},"
        "{'match':'GET .*','do':'status','status':200,'body':{'data':[],'has_more':true}}]}");
    assert_int_equal(batch_find_all(s, &search), 1);
    assert_string_equal(search.batch[0].id, "b2");
    assert_string_equal(search.after, "b9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, batch_setup, batch_teardown)
        SCENE(duplicates_are_all_found_newest_first),
        SCENE(a_search_without_a_job_finds_those_of_all_jobs),
        SCENE(a_search_goes_page_by_page),
        SCENE(a_search_ends_where_older_ones_begin),
        SCENE(a_list_without_end_is_an_error),
        SCENE(hostile_entries_do_not_hide_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
