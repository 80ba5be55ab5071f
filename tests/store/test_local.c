/* SPDX-License-Identifier: Apache-2.0
 * The provisioner local: slots that no two planners can take at once and that no restart forgets (jobs contract,
 * section 5, provisioners). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "json/jx.h"
#include "provision/local.h"
#include "provision/provisioner.h"
#include "tests/store/stores.h"

#define JOB "0197a5c2-0d4e-7b1a-9c3d-5e6f70819203"
#define A   "wb-c1-" JOB "-1"
#define B   "wb-c1-" JOB "-2"

enum { TAKERS = 8, ROUNDS = 20 };

struct scene {
    struct stores stores;
    struct conf conf;
    struct db *db;
    struct provisioner *p;
    struct provision_note note;
    struct err e;
};

static struct db *connect_to(const struct stores *s)
{
    struct db_options o = stores_options(s, true, &LOCAL_STMTS, 1);
    return db_new(&o);
}

static void open_local(struct scene *s)
{
    const struct provisioner_env env = {
        .conf = &s->conf, .cluster = "c1", .db = s->db, .stop_fd = -1
    };
    provisioner_register_builtin();
    assert_int_equal(provisioner_open("local", &env, &s->p, &s->e), 0);
}

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene){ .note = PROVISION_NOTE_INIT, .e = ERR_INIT };
    assert_int_equal(conf_load(&s.conf, NULL, &s.e), 0);
    s.conf.local_slots = 3;
    stores_init(&s.stores, true);
    s.db = connect_to(&s.stores);
    open_local(&s);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    provisioner_close(s->p);
    db_close(s->db);
    conf_free(&s->conf);
    stores_fini(&s->stores);
    return 0;
}

static int take(struct scene *s, const char *name, int replicas, struct provision_result *out)
{
    const struct provision_spec spec = { .replicas = replicas };
    const struct provision_request r = { .name = name, .spec = &spec };
    return provisioner_provision(s->p, &r, out, &s->note, &s->e);
}

static void take_ok(struct scene *s, const char *name, int replicas)
{
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    if (take(s, name, replicas, &r) != 0)
        fail_msg("%s", s->e.msg);
    assert_int_equal(r.status, PROVISION_RUNNING); /* ready at once */
    assert_int_equal(r.n, replicas);
    assert_int_equal(s->note.error, PROVISION_ERROR_NONE);
    assert_true(s->note.may_exist);
}

static void take_fails(struct scene *s, const char *name, int replicas)
{
    struct provision_result r = PROVISION_RESULT_INIT;
    assert_int_equal(take(s, name, replicas, &r), -1);
    assert_int_equal(s->note.error, PROVISION_ERROR_NO_CAPACITY);
    assert_true(provision_error_retryable(s->note.error));
    assert_false(s->note.may_exist);
    assert_null(r.details);
}

static void taken_are(struct scene *s, const char *expected)
{
    cleanup_free char *text = stores_value(&s->stores,
        "SELECT string_agg(slot || '=' || right(name, 1), ' ' ORDER BY slot) FROM local_slot");
    assert_string_equal(text, expected);
}

static void slots_are_ready_at_once(void **state)
{
    struct scene *s = *state;
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    free(s->conf.local_endpoint);
    s->conf.local_endpoint = strdup("http://127.0.0.1:8000");
    assert_int_equal(take(s, A, 2, &r), 0);
    assert_int_equal(r.status, PROVISION_RUNNING);
    assert_string_equal(r.details, "{\"local\":{\"slots\":[1,2]}}");
    assert_string_equal(r.region, "local");
    assert_string_equal(r.machine[1].id, "2");
    assert_string_equal(r.machine[1].url, "http://127.0.0.1:8000");
    assert_int_equal(r.start_us, 0);
    taken_are(s, "1=1 2=1");
}

static void all_replicas_or_none(void **state)
{
    struct scene *s = *state;
    take_ok(s, A, 2);
    take_fails(s, B, 2);
    taken_are(s, "1=1 2=1");
    take_ok(s, B, 1);
    taken_are(s, "1=1 2=1 3=2");
    take_fails(s, "wb-c1-" JOB "-3", 4); /* more than there are at all */
}

static void a_repeat_takes_no_more(void **state)
{
    struct scene *s = *state;
    s->conf.local_slots = 9;
    take_ok(s, A, 2);
    take_ok(s, A, 2);
    taken_are(s, "1=1 2=1");
    take_ok(s, A, 3); /* what it has already counts */
    taken_are(s, "1=1 2=1 3=1");
    assert_int_equal(local_slot_take(s->db, A, 2, 9, &s->e), 0); /* it has more than enough */
    taken_are(s, "1=1 2=1 3=1");
}

static void a_restart_forgets_nothing(void **state)
{
    struct scene *s = *state;
    take_ok(s, A, 3);
    provisioner_close(s->p);
    db_close(s->db);
    s->db = connect_to(&s->stores);
    open_local(s);
    take_fails(s, B, 1);
    assert_int_equal(provisioner_release(s->p, A, &s->note, &s->e), 0);
    take_ok(s, B, 1);
}

static void what_is_released_can_be_taken(void **state)
{
    struct scene *s = *state;
    take_ok(s, A, 2);
    take_ok(s, B, 1);
    for (int i = 0; i < 2; i++) { /* again: nothing is left to do */
        assert_int_equal(provisioner_release(s->p, A, &s->note, &s->e), 0);
        assert_false(s->note.may_exist);
        taken_are(s, "3=2");
    }
    take_ok(s, A, 2);
    taken_are(s, "1=1 2=1 3=2");
}

/* What is taken stays when there are fewer slots: no more is given until enough are back. */
static void fewer_slots_hold_for_what_comes(void **state)
{
    struct scene *s = *state;
    take_ok(s, A, 3);
    s->conf.local_slots = 1;
    take_fails(s, B, 1);
    assert_int_equal(provisioner_release(s->p, A, &s->note, &s->e), 0);
    take_ok(s, B, 1);
    s->conf.local_slots = 0;
    assert_int_equal(provisioner_release(s->p, B, &s->note, &s->e), 0);
    take_fails(s, A, 1);
}

static enum provision_status status_of(struct scene *s, const char *name, int replicas)
{
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
    const struct provision_spec spec = { .replicas = replicas };
    const struct provision_request q = { .name = name, .spec = &spec };
    if (provisioner_status(s->p, &q, "{}", &r, &s->note, &s->e) != 0)
        fail_msg("%s", s->e.msg);
    assert_non_null(r.details);
    return r.status;
}

static void slots_that_were_given_back_are_lost(void **state)
{
    struct scene *s = *state;
    take_ok(s, A, 2);
    assert_int_equal(status_of(s, A, 2), PROVISION_RUNNING);
    stores_sql(&s->stores, "DELETE FROM local_slot WHERE slot = 2");
    assert_int_equal(status_of(s, A, 2), PROVISION_FAILED);
    assert_int_equal(provisioner_release(s->p, A, &s->note, &s->e), 0);
    assert_int_equal(status_of(s, A, 2), PROVISION_RELEASED);
}

static void names_that_have_slots_are_listed(void **state)
{
    struct scene *s = *state;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    take_ok(s, A, 2);
    take_ok(s, B, 1);
    stores_sql(&s->stores, "INSERT INTO local_slot VALUES (9, 'wb-other-" JOB "-1'), (10, 'odd')");
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.seen[0].name, A);
    assert_int_equal(l.seen[0].machines, 2);
    assert_string_equal(l.seen[1].name, B);
}

static void the_catalog_tells_what_is_free(void **state)
{
    static const int64_t FREE[] = { 3, 1, 0 };
    struct scene *s = *state;
    for (size_t i = 0; i < 3; i++) {
        cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
        assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
        assert_int_equal(c.n, 1);
        assert_string_equal(c.offer[0].type, "slot");
        assert_int_equal(c.offer[0].free, FREE[i]);
        assert_int_equal(c.offer[0].price_cents_per_hour, 0);
        if (i == 0)
            take_ok(s, A, 2);
        s->conf.local_slots = i == 0 ? 3 : 1; /* fewer than are taken: none, not less than none */
    }
}

static void an_outage_is_for_later(void **state)
{
    struct scene *s = *state;
    struct provision_result r = PROVISION_RESULT_INIT;
    struct db_options o = stores_options(&s->stores, true, &LOCAL_STMTS, 1);
    provisioner_close(s->p);
    db_close(s->db);
    o.url = "host=/nonexistent";
    s->db = db_new(&o);
    open_local(s);
    assert_int_equal(take(s, A, 1, &r), -1);
    assert_int_equal(s->note.error, PROVISION_ERROR_UNAVAILABLE);
    assert_true(s->note.may_exist); /* a commit whose answer was lost may have happened */
    assert_int_equal(provisioner_release(s->p, A, &s->note, &s->e), -1);
    assert_true(s->note.may_exist);
}

static void without_a_database_there_is_no_local(void **state)
{
    struct scene *s = *state;
    struct provisioner *p = NULL;
    const struct provisioner_env env = { .conf = &s->conf, .cluster = "c1", .stop_fd = -1 };
    assert_int_equal(provisioner_open("local", &env, &p, &s->e), -1);
    assert_non_null(strstr(s->e.msg, "[db] url"));
}

/* --- at once ---------------------------------------------------------------------------------- */

struct taker {
    struct scene *scene;
    int number;
    int won;
    int lost;
    int odd;
};

/* Takes two of three slots and gives them back, again and again, as a planner of its own. */
static void *take_and_give(void *arg)
{
    struct taker *t = arg;
    struct scene mine = { .conf = t->scene->conf, .note = PROVISION_NOTE_INIT, .e = ERR_INIT };
    const struct provisioner_env env = {
        .conf = &mine.conf, .cluster = "c1", .db = connect_to(&t->scene->stores), .stop_fd = -1
    };
    char name[PROVISION_NAME_SIZE];
    if (provisioner_open("local", &env, &mine.p, &mine.e) < 0 ||
        provision_name("c1", JOB, t->number, name, &mine.e) < 0)
        t->odd++;
    for (int i = 0; i < ROUNDS; i++) {
        cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;
        int rc = take(&mine, name, 2, &r);
        if (rc == 0 && r.n == 2)
            t->won++;
        else if (mine.note.error == PROVISION_ERROR_NO_CAPACITY)
            t->lost++;
        else
            t->odd++;
        if (rc == 0 && provisioner_release(mine.p, name, &mine.note, &mine.e) != 0)
            t->odd++;
    }
    provisioner_close(mine.p);
    db_close(env.db);
    return NULL;
}

/* Two of three: whoever has them is alone, so that who is lost got none. */
static void planners_never_take_the_same_slot(void **state)
{
    struct scene *s = *state;
    pthread_t thread[TAKERS];
    struct taker taker[TAKERS];
    int won = 0;
    for (int i = 0; i < TAKERS; i++) {
        taker[i] = (struct taker){ .scene = s, .number = i };
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, &taker[i]), 0);
    }
    for (int i = 0; i < TAKERS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(taker[i].odd, 0);
        assert_int_equal(taker[i].won + taker[i].lost, ROUNDS);
        won += taker[i].won;
    }
    assert_true(won > 0);
    taken_are(s, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        SCENE(slots_are_ready_at_once),
        SCENE(all_replicas_or_none),
        SCENE(a_repeat_takes_no_more),
        SCENE(a_restart_forgets_nothing),
        SCENE(what_is_released_can_be_taken),
        SCENE(fewer_slots_hold_for_what_comes),
        SCENE(slots_that_were_given_back_are_lost),
        SCENE(names_that_have_slots_are_listed),
        SCENE(the_catalog_tells_what_is_free),
        SCENE(an_outage_is_for_later),
        SCENE(without_a_database_there_is_no_local),
        SCENE(planners_never_take_the_same_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
