/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs as users see them: jobs contract, sections 2 and 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/store/job_fixture.h"

enum { MANY = 8 };

/* The database's table of transitions is the model's (jobs contract, section 2). */
static void the_database_holds_the_models_transitions(void **state)
{
    size_t n = 0;
    const struct job_transition *t = job_transitions(&n);
    cleanup_buf struct buf want = BUF_INIT(1 << 16);
    (void)state;
    for (size_t i = 0; i < n; i++)
        buf_printf(&want, "%d %d %d %s\n", t[i].from, (int)t[i].event, (int)t[i].to, t[i].why);
    fx_value("SELECT string_agg(concat_ws(' ', from_state, event, to_state, why) || E'\\n', ''"
             " ORDER BY ctid) FROM job_transition",
        want.data);
}

/* The trigger refuses whatever is not in the table, whoever writes. */
static void the_database_refuses_any_other_transition(void **state)
{
    static const struct db_stmt MOVE = { "t_move",
        "UPDATE job_run SET state = $2::smallint, event = $3::smallint WHERE job_id = $1::uuid",
        3 };
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    (void)state;
    job_make("j", id);
    for (int to = 1; to < JOB_STATE__COUNT; to++) {
        for (int event = 0; event < JOB_EVENT__COUNT; event++) {
            enum job_state leads = JOB_NONE;
            cleanup_txn struct db_txn t = DB_TXN_INIT;
            ok(db_begin(fx.db, &t, &e));
            int moved =
                db_exec(fx.db, &MOVE, DB_ARGS(DB_TEXT(id), DB_INT8(to), DB_INT8(event)), NULL, &e);
            bool listed =
                job_next(JOB_QUEUED, (enum job_event)event, &leads) == 0 && (int)leads == to;
            if (listed)
                ok(moved);
            else
                fx_fails(moved, &e, ERR_INVALID, id);
        }
    }
}

static void what_was_asked_is_kept_whole(void **state)
{
    struct err e = ERR_INIT;
    enum job_fate fate = JOB_FATE_SAME;
    cleanup_jobs struct jobs made = JOBS_INIT;
    cleanup_jobs struct jobs got = JOBS_INIT;
    struct job_new j = job_asked("name \xc3\xa4");
    (void)state;
    j.completion_window = "1d2h";
    j.window_minutes = 1560;
    j.queue_deadline_s = 3600; /* shorter than the window, which counts then */
    j.priority = -3;
    j.replicas = 4;
    j.gpus = 8;
    j.gpu_type = "H100";
    j.request_json = "{\"replicas\": 4, \"model_template\": {\"name\": \"t\"}}";
    ok(job_enqueue(fx.db, &j, &made, &fate, &e));
    assert_int_equal(made.n, 1);
    job_now(made.job[0].id, &got);
    const struct job *all[] = { &made.job[0], &got.job[0] };
    for (size_t i = 0; i < 2; i++) {
        const struct job *g = all[i];
        assert_true(job_uuid_valid(g->id));
        assert_string_equal(g->pool, "default");
        assert_string_equal(g->created_by, "alice");
        assert_string_equal(g->name, "name \xc3\xa4");
        assert_string_equal(g->endpoint, "/v1/chat/completions");
        assert_string_equal(g->model, "m");
        assert_string_equal(g->input_file, "file-in");
        assert_string_equal(g->completion_window, "1d2h");
        assert_int_equal(g->window_minutes, 1560);
        assert_string_equal(
            g->request_json, "{\"replicas\": 4, \"model_template\": {\"name\": \"t\"}}");
        assert_int_equal(g->state, JOB_QUEUED);
        assert_int_equal(g->queue_deadline_us, g->created_us + 1560 * 60 * US_PER_S);
        assert_in_range(g->stamp_us[JOB_QUEUED] - g->created_us, 0, 60 * US_PER_S);
        assert_int_equal(g->stamp_us[JOB_PLANNED], 0);
        assert_int_equal(g->attempts + g->expires_us + g->not_before_us + g->finished_us, 0);
        assert_string_equal(g->batch_id, "");
        assert_string_equal(g->batch_json, "");
        assert_string_equal(g->error, "");
    }
    assert_in_range(made.now_us - made.job[0].created_us, 0, 60 * US_PER_S);
    fx_value("SELECT concat_ws('|', tenant, prio, replicas, gpus, gpu_type) FROM job_run",
        "alice|-3|4|8|H100");
    fx_value("SELECT file_id || role FROM job_file_ref", "file-in0");
    job_history_is(made.job[0].id, "queued");
    jobs_consistent();
}

/* The longer of window and option. */
static void the_queue_deadline_may_be_the_configured_one(void **state)
{
    char id[UUID_SIZE];
    cleanup_jobs struct jobs got = JOBS_INIT;
    struct job_new j = job_asked("j");
    (void)state;
    j.window_minutes = 1;
    j.queue_deadline_s = 7200;
    job_accept(&j, id);
    job_now(id, &got);
    assert_int_equal(got.job[0].queue_deadline_us, got.job[0].created_us + 7200 * US_PER_S);
}

static void ids_are_of_version_7_and_grow(void **state)
{
    char before[UUID_SIZE] = "";
    (void)state;
    for (int i = 0; i < 20; i++) {
        char id[UUID_SIZE];
        job_make("j", id);
        assert_int_equal(id[14], '7');
        assert_non_null(strchr("89ab", id[19]));
        assert_true(strncmp(before, id, 13) <= 0);
        (void)str_copy(before, sizeof before, id);
    }
    fx_value("SELECT count(*) FROM job WHERE abs(extract(epoch FROM created_at) * 1000 -"
             " ('x0000' || left(replace(id::text, '-', ''), 12))::bit(64)::bigint) < 60000",
        "20");
}

static void a_job_of_an_unknown_pool_is_refused(void **state)
{
    struct err e = ERR_INIT;
    enum job_fate fate = JOB_FATE_SAME;
    cleanup_jobs struct jobs out = JOBS_INIT;
    struct job_new j = job_asked("j");
    (void)state;
    j.pool = "nowhere";
    fx_fails(job_enqueue(fx.db, &j, &out, &fate, &e), &e, ERR_INVALID, "nowhere");
    j.idem_key = "k";
    j.idem_hash = "h";
    fx_fails(job_enqueue(fx.db, &j, &out, &fate, &e), &e, ERR_INVALID, "nowhere");
    fx_value("SELECT count(*) FROM job", "0");
}

/* Jobs contract, section 3: same key and body, the same job; same key and another body, 409. */
static void a_key_makes_one_job(void **state)
{
    struct err e = ERR_INIT;
    enum job_fate fate = JOB_FATE_SAME;
    cleanup_jobs struct jobs first = JOBS_INIT;
    cleanup_jobs struct jobs second = JOBS_INIT;
    cleanup_jobs struct jobs other = JOBS_INIT;
    struct job_new j = job_asked("j");
    (void)state;
    j.idem_key = "k";
    j.idem_hash = "h1";
    ok(job_enqueue(fx.db, &j, &first, &fate, &e));
    assert_int_equal(fate, JOB_FATE_NEW);
    ok(job_enqueue(fx.db, &j, &second, &fate, &e));
    assert_int_equal(fate, JOB_FATE_SAME);
    assert_string_equal(second.job[0].id, first.job[0].id);

    j.idem_hash = "h2";
    fx_fails(job_enqueue(fx.db, &j, &other, &fate, &e), &e, ERR_CONFLICT, "Idempotency-Key");
    j.created_by = "bob"; /* keys are each user's own */
    j.input_file = "of-bob";
    ok(job_enqueue(fx.db, &j, &other, &fate, &e));
    assert_int_equal(fate, JOB_FATE_NEW);
    fx_value("SELECT count(*) FROM job_run", "2");
    jobs_consistent();
}

/* Also when the job has ended since. */
static void a_key_outlives_the_run(void **state)
{
    struct err e = ERR_INIT;
    enum job_fate fate = JOB_FATE_NEW;
    enum job_state s = JOB_NONE;
    char id[UUID_SIZE];
    cleanup_jobs struct jobs again = JOBS_INIT;
    struct job_new j = job_asked("j");
    (void)state;
    j.idem_key = "k";
    j.idem_hash = "h";
    job_accept(&j, id);
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    ok(job_enqueue(fx.db, &j, &again, &fate, &e));
    assert_int_equal(fate, JOB_FATE_SAME);
    assert_string_equal(again.job[0].id, id);
    assert_int_equal(again.job[0].state, JOB_CANCELLED);
}

struct racer {
    pthread_barrier_t *start;
    struct db *db;
    const char *hash;
    int result;
    enum job_fate fate;
    enum err_code code;
    char id[UUID_SIZE];
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct err e = ERR_INIT;
    cleanup_jobs struct jobs out = JOBS_INIT;
    struct job_new j = job_asked("j");
    j.idem_key = "k";
    j.idem_hash = r->hash;
    pthread_barrier_wait(r->start);
    r->result = job_enqueue(r->db, &j, &out, &r->fate, &e);
    r->code = e.code;
    if (r->result == 0)
        (void)str_copy(r->id, sizeof r->id, out.job[0].id);
    return NULL;
}

static void of_many_with_one_key_at_once_exactly_one_makes_the_job(void **state)
{
    pthread_barrier_t start;
    pthread_t thread[MANY];
    struct racer racer[MANY];
    int made = 0;
    const char *id = "";
    const char *hash = "";
    (void)state;
    assert_int_equal(pthread_barrier_init(&start, NULL, MANY), 0);
    for (int i = 0; i < MANY; i++) {
        racer[i] = (struct racer){ .start = &start, .db = fx_new_db(), .hash = i % 2 ? "a" : "b" };
        assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
    }
    for (int i = 0; i < MANY; i++) {
        pthread_join(thread[i], NULL);
        db_close(racer[i].db);
        if (racer[i].result == 0 && racer[i].fate == JOB_FATE_NEW) {
            made++;
            id = racer[i].id;
            hash = racer[i].hash;
        }
    }
    pthread_barrier_destroy(&start);
    assert_int_equal(made, 1);
    for (int i = 0; i < MANY; i++) {
        bool same = strcmp(racer[i].hash, hash) == 0;
        assert_int_equal(racer[i].result, same ? 0 : -1);
        if (same)
            assert_string_equal(racer[i].id, id);
        else
            assert_int_equal(racer[i].code, ERR_CONFLICT);
    }
    fx_value("SELECT count(*) FROM job", "1");
}

static void what_is_no_job_is_not_found(void **state)
{
    static const char *const ID = "00000000-0000-4000-8000-000000000001";
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    int64_t position = -1;
    cleanup_jobs struct jobs out = JOBS_INIT;
    cleanup_job_history struct job_history h = JOB_HISTORY_INIT;
    (void)state;
    fx_fails(job_get(fx.db, ID, &out, &e), &e, ERR_NOT_FOUND, ID);
    fx_fails(job_events(fx.db, ID, &h, &e), &e, ERR_NOT_FOUND, ID);
    fx_fails(job_cancel(fx.db, ID, "a", &s, &e), &e, ERR_NOT_FOUND, ID);
    ok(job_queue_position(fx.db, ID, &position, &e));
    assert_int_equal(position, 0);
}

/* Jobs contract, section 2: a queued job is cancelled at once, in the handler's own statement. */
static void a_queued_job_is_cancelled_at_once(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    char id[UUID_SIZE];
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    job_make("j", id);
    ok(job_cancel(fx.db, id, "bob", &s, &e));
    assert_int_equal(s, JOB_CANCELLED);
    job_now(id, &got);
    assert_int_equal(got.job[0].state, JOB_CANCELLED);
    assert_true(got.job[0].cancel_requested_us > 0);
    assert_int_equal(got.job[0].finished_us, got.job[0].stamp_us[JOB_CANCELLED]);
    assert_true(got.job[0].stamp_us[JOB_QUEUED] > 0);
    job_history_is(id, "queued cancelled");
    fx_value("SELECT actor FROM job_event WHERE to_state = 12", "bob");
    fx_value("SELECT count(*) FROM job_run", "0");
    fx_value("SELECT count(*) FROM intent", "0");              /* nothing was ever begun */
    assert_int_equal(job_cancel(fx.db, id, "bob", &s, &e), 1); /* how it ended */
    assert_int_equal(s, JOB_CANCELLED);
    jobs_consistent();
}

/* Any other is cancelling at once, and its version stays, so that a result in flight still lands. */
static void a_job_under_way_is_cancelling_and_keeps_its_version(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    char id[UUID_SIZE];
    (void)state;
    job_make("j", id);
    fx_sql("UPDATE job_run SET state = 1, event = 1, version = 7, machines = true,"
           " provision_key = job_id || ':1', next_poll_at = now() + interval '1 hour'");
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    assert_int_equal(s, JOB_CANCELLING);
    fx_value("SELECT concat_ws('|', version, state, next_poll_at, cancel_requested_at IS NOT NULL)"
             " FROM job_run",
        "7|8|-infinity|t");
    fx_sql("UPDATE job_run SET cancel_requested_at = '2020-01-01Z', next_poll_at = '2030-01-01Z'");
    ok(job_cancel(fx.db, id, "alice", &s, &e)); /* said again: nothing changes */
    assert_int_equal(s, JOB_CANCELLING);
    fx_value("SELECT cancel_requested_at || '|' || next_poll_at FROM job_run",
        "2020-01-01 00:00:00+00|2030-01-01 00:00:00+00");
    job_history_is(id, "queued planned cancelling");
    jobs_consistent();
}

/* The intent to cancel a known batch is written with it; one that was to end the job otherwise is now the
 * user's. */
static void the_batch_of_a_cancelled_job_is_to_be_cancelled(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    char id[UUID_SIZE];
    (void)state;
    job_make("j", id);
    fx_sql("UPDATE job_run SET state = 1, event = 1");
    fx_sql("UPDATE job_run SET state = 2, event = 2");
    fx_sql("UPDATE job_run SET state = 3, event = 5");
    fx_sql("UPDATE job_run SET state = 6, event = 9, batch_id = 'b1'");
    fx_sql(
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key, payload) SELECT job_id, pool_id, 2, 'b1',"
        " 'cancel_batch:' || job_id || ':b1', '{\"then\": \"run_expire\"}' FROM job_run");
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    fx_value("SELECT concat_ws('|', kind, state, payload IS NULL, idem_key = 'cancel_batch:' ||"
             " job_id || ':b1') FROM intent",
        "2|0|t|t");
    fx_sql("DELETE FROM intent");
    fx_sql("UPDATE job_run SET cancel_requested_at = NULL"); /* as cancelled at the batch service */
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    assert_int_equal(s, JOB_CANCELLING);
    fx_value("SELECT count(*) FROM intent WHERE kind = 2", "1");
    fx_value("SELECT cancel_requested_at IS NOT NULL FROM job_run", "t");
}

/* The audit trail is a log: a state visited twice is there twice, with microseconds. */
static void the_history_is_a_log(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_job_history struct job_history h = JOB_HISTORY_INIT;
    (void)state;
    job_make("j", id);
    for (int i = 0; i < 2; i++) {
        fx_sql("UPDATE job_run SET state = 1, event = 1, event_epoch = 5, actor = 'p',"
               " detail = '{\"why\": \"first\"}'");
        fx_sql("UPDATE job_run SET state = 0, event = 3, event_epoch = 6, detail = NULL");
    }
    job_history_is(id, "queued planned queued planned queued");
    ok(job_events(fx.db, id, &h, &e));
    assert_int_equal(h.happening[1].event, EV_PLAN);
    assert_int_equal(h.happening[1].epoch, 5);
    assert_string_equal(h.happening[1].actor, "p");
    assert_string_equal(h.happening[1].detail_json, "{\"why\": \"first\"}");
    assert_string_equal(h.happening[2].detail_json, "");
    int microseconds = 0;
    for (size_t i = 0; i < h.n; i++)
        microseconds += h.happening[i].at_us % 1000 != 0;
    assert_true(microseconds > 0);
}

static void counts_come_from_counters(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    int64_t count[JOB_STATE__COUNT] = { 0 };
    char id[UUID_SIZE];
    (void)state;
    for (int i = 0; i < 3; i++)
        job_make("j", id);
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    fx_sql("ALTER TABLE job RENAME TO elsewhere"); /* they are not counted */
    int result = job_stats(fx.db, count, &e);
    fx_sql("ALTER TABLE elsewhere RENAME TO job");
    ok(result);
    assert_int_equal(count[JOB_QUEUED], 2);
    assert_int_equal(count[JOB_CANCELLED], 1);
    assert_int_equal(count[JOB_FAILED], 0);
}

static void a_file_is_for_those_whose_jobs_name_it(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    bool named = true;
    bool owned = true;
    struct job_new j = job_asked("j");
    (void)state;
    ok(job_file_access(fx.db, "file-in", "alice", &named, &owned, &e));
    assert_false(named || owned);
    job_accept(&j, id);
    ok(job_file_access(fx.db, "file-in", "alice", &named, &owned, &e));
    assert_true(named && owned);
    ok(job_file_access(fx.db, "file-in", "bob", &named, &owned, &e));
    assert_true(named && !owned);
    cleanup_jobs struct jobs refused = JOBS_INIT;
    enum job_fate fate = JOB_FATE_NEW;
    j.created_by = "bob";
    fx_fails(job_enqueue(fx.db, &j, &refused, &fate, &e), &e, ERR_FORBIDDEN, "somebody else");
    fx_value("SELECT count(*) FROM job", "1");
    j.any_file = true;
    job_accept(&j, id);
    ok(job_file_access(fx.db, "file-in", "bob", &named, &owned, &e));
    assert_true(named && !owned);
    ok(job_file_access(fx.db, "file-in", "alice", &named, &owned, &e));
    assert_true(named && owned);
    j.any_file = false;
    j.created_by = "";
    j.input_file = "free";
    job_accept(&j, id);
    ok(job_file_access(fx.db, "free", "eve", &named, &owned, &e));
    assert_true(named && owned);
}

/* Of the n queued jobs, whether they are counted from the front or from the end. */
static void every_place_is_told(int n)
{
    static const int64_t FROM_END[] = { 0, 1, 98, 99, 100, 101, 200, 204, 205, 206, 1100 };
    char sql[256];
    for (size_t i = 0; i < sizeof FROM_END / sizeof FROM_END[0]; i++) {
        struct err e = ERR_INIT;
        const int64_t place = n - FROM_END[i];
        int64_t at = -1;
        (void)snprintf(sql, sizeof sql,
            "SELECT job_id FROM job_run WHERE state = 0 ORDER BY prio DESC, enqueued_at, job_id"
            " LIMIT 1 OFFSET %lld",
            (long long)(place - 1));
        cleanup_free char *id = stores_value(&fx.stores, sql);
        ok(job_queue_position(fx.db, id, &at, &e));
        assert_int_equal(at, place < 1000 ? place : 1000);
    }
}

/* As the queue is served: priority, then first come; those that are delayed keep their place. */
static void the_queue_position_is_the_place_in_line(void **state)
{
    struct err e = ERR_INIT;
    static const int64_t PRIO[] = { 0, 0, 5, 0 };
    static const int64_t WANT[] = { 2, 3, 1, 4 };
    char id[4][UUID_SIZE];
    int64_t at = -1;
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job_new j = job_asked("j");
        j.priority = PRIO[i];
        job_accept(&j, id[i]);
    }
    fx_sql("UPDATE job_run SET not_before = now() + interval '1 hour' WHERE prio = 0");
    for (int i = 0; i < 4; i++) {
        ok(job_queue_position(fx.db, id[i], &at, &e));
        assert_int_equal(at, WANT[i]);
    }
    fx_sql(
        "INSERT INTO job (pool_id, endpoint, input_file, completion_window, window_minutes, request,"
        " created_at) SELECT pool_id, 'e', 'f', '1h', 60, '{}', now() - interval '1 hour'"
        " FROM job, generate_series(1, 300)");
    fx_sql("INSERT INTO job_run (job_id, pool_id, enqueued_at, queue_deadline) SELECT id, pool_id,"
           " created_at, now() + interval '1 hour' FROM job WHERE endpoint = 'e'");
    ok(job_queue_position(fx.db, id[0], &at, &e));
    assert_int_equal(at, 1000); /* no further is counted */
    every_place_is_told(1204);
    fx_sql("UPDATE job_run SET state = 1, event = 1 WHERE prio = 5");
    ok(job_queue_position(fx.db, id[2], &at, &e));
    assert_int_equal(at, 0);
}

static void every_statement_can_be_prepared(void **state)
{
    (void)state;
    for (size_t i = 0; i < fx.n_stmts; i++)
        fx_prepares(&fx.stmts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(the_database_holds_the_models_transitions),
        FX_BOTH(the_database_refuses_any_other_transition),
        FX_BOTH(what_was_asked_is_kept_whole),
        FX_BOTH(the_queue_deadline_may_be_the_configured_one),
        FX_BOTH(ids_are_of_version_7_and_grow),
        FX_BOTH(a_job_of_an_unknown_pool_is_refused),
        FX_BOTH(a_key_makes_one_job),
        FX_BOTH(a_key_outlives_the_run),
        FX_BOTH(of_many_with_one_key_at_once_exactly_one_makes_the_job),
        FX_BOTH(what_is_no_job_is_not_found),
        FX_BOTH(a_queued_job_is_cancelled_at_once),
        FX_BOTH(a_job_under_way_is_cancelling_and_keeps_its_version),
        FX_BOTH(the_batch_of_a_cancelled_job_is_to_be_cancelled),
        FX_BOTH(the_history_is_a_log),
        FX_BOTH(counts_come_from_counters),
        FX_BOTH(a_file_is_for_those_whose_jobs_name_it),
        FX_BOTH(the_queue_position_is_the_place_in_line),
        FX_BOTH(every_statement_can_be_prepared),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
