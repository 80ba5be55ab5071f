/* SPDX-License-Identifier: Apache-2.0
 * How machines stand, which are ours, and giving them back: what providers have in common, by lambdaCloud (jobs
 * contract, section 5; reference 1.8 state fold, 1.12 t). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/fake/provider_scene.h"

#define TERMINATE "/api/v1/instance-operations/terminate"

static void two_running(struct provider_scene *s)
{
    scene_want(s, 2, 1, "A10");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
}

static void status_becomes(struct provider_scene *s, enum provision_status status)
{
    if (scene_status(s) != 0)
        fail_msg("%s", s->e.msg);
    assert_string_equal(provision_status_name(s->result.status), provision_status_name(status));
}

static void one_broken_is_failed(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order_machine(s, 1, "{'status':{'%s':'unhealthy'}}");
    status_becomes(s, PROVISION_FAILED);
}

/* AIBrix has it provisioning for ever (reference 1.12 t). */
static void one_terminated_of_two_is_failed(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order_machine(s, 1, "{'status':{'%s':'terminated'}}");
    status_becomes(s, PROVISION_FAILED);
}

static void an_instance_that_is_unknown_is_gone(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order_machine(s, 0, "{'vanish':['%s']}");
    status_becomes(s, PROVISION_FAILED);
    assert_int_equal(s->result.n, 2); /* both are still told */
    scene_order_machine(s, 1, "{'vanish':['%s']}");
    status_becomes(s, PROVISION_RELEASED);
}

static void all_terminated_is_released(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order_machine(s, 0, "{'status':{'%s':'terminated'}}");
    scene_order_machine(s, 1, "{'status':{'%s':'terminating'}}");
    status_becomes(s, PROVISION_RELEASED);
}

static void an_unknown_word_is_waited_for(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order_machine(s, 0, "{'status':{'%s':'rebooting'}}");
    status_becomes(s, PROVISION_PROVISIONING);
}

static void booting_is_waited_for(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'stuck':true}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    for (int i = 0; i < 3; i++)
        status_becomes(s, PROVISION_PROVISIONING);
    scene_order_machine(s, 0, "{'status':{'%s':'active'}}"); /* but without an address */
    status_becomes(s, PROVISION_PROVISIONING);
}

/* A list may be late: what it leaves out is looked at by itself. */
static void what_the_list_leaves_out_is_not_gone_for_that(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_order(s, "{'delay_visible':5}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    status_becomes(s, PROVISION_PROVISIONING);
    status_becomes(s, PROVISION_RUNNING);
}

static void a_status_that_cannot_be_had_is_an_error(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order(s, "{'faults':[{'match':'GET .*','do':'status','status':500}]}");
    scene_failed(s, scene_status(s), PROVISION_ERROR_UNAVAILABLE, "500");
    scene_order_machine(s, 0, "{'vanish':['%s']}");
    scene_order(s, "{'faults':[{'match':'GET .*/instances/.*','do':'status','status':500}]}");
    scene_failed(s, scene_status(s), PROVISION_ERROR_UNAVAILABLE, "500");
    assert_true(s->note.may_exist);
    status_becomes(s, PROVISION_FAILED);
}

static void details_that_make_no_sense_are_an_error(void **state)
{
    static const char *const DETAILS[] = { NULL, "", "{", "[]",
        "{\"lambdaCloud\":{\"groupResults\":[]}}",
        "{\"lambdaCloud\":{\"groupResults\":[{\"instances\":[{\"instanceId\":7}]}]}}" };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof DETAILS / sizeof DETAILS[0]; i++) {
        struct provision_result r = PROVISION_RESULT_INIT;
        int rc = provisioner_status(s->p, &s->request, DETAILS[i], &r, &s->note, &s->e);
        scene_failed(s, rc, PROVISION_ERROR_NONSENSE, "which machines");
    }
}

/* --- list, release, catalog ------------------------------------------------------------------- */

static void only_our_machines_are_listed(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    two_running(s);
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-2'}}");
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-3','status':'terminating'}}");
    scene_order(s, "{'launch':{'name':'wb-other-" SCENE_JOB "-1'}}");
    scene_order(s, "{'launch':{'name':'wb-c1-trainer'}}");
    scene_order(s, "{'launch':{'name':null}}");
    scene_order(
        s, "{'launch':{'name':'" SCENE_NAME "00000000000000000000000000000000000000000000'}}");
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.seen[0].name, SCENE_NAME);
    assert_int_equal(l.seen[0].machines, 2);
    assert_string_equal(l.seen[1].name, "wb-c1-" SCENE_JOB "-2");
    assert_int_equal(l.seen[1].machines, 1);
}

static void a_release_ends_all_of_a_name_and_no_others(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-2'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','status':'unhealthy'}}");
    assert_int_equal(scene_release(s), 0);
    assert_false(s->note.may_exist);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(scene_release(s), 0); /* again: nothing is left to do */
    assert_int_equal(child_server_requests(&s->server, "POST", TERMINATE), 1);
}

/* One that is unknown spoils the call for all: then each is ended by itself. */
static void an_unknown_one_does_not_keep_the_others_running(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order(
        s, "{'faults':[{'match':'POST .*terminate','do':'status','status':404,'times':2}]}");
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(child_server_requests(&s->server, "POST", TERMINATE), 3);
    assert_int_equal(scene_alive(s), 1); /* the one that was said to be unknown */
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 0);
}

static void a_release_that_fails_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    two_running(s);
    scene_order(s, "{'faults':[{'match':'POST .*terminate','do':'status','status':500}]}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_UNAVAILABLE, "500");
    assert_true(s->note.may_exist);
    scene_order(s, "{'faults':[{'match':'.*','do':'drop','times':-1}]}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_UNAVAILABLE, "");
    scene_order(s, "{'clear':true,'faults':[{'match':'POST .*','do':'drop_after','times':-1}]}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_int_equal(scene_release(s), 0); /* it was done */
    assert_int_equal(scene_alive(s), 0);
}

static void machines_of_others_are_not_released(void **state)
{
    static const char *const NAMES[] = { "wb-other-" SCENE_JOB "-1", "trainer", "" };
    struct provider_scene *s = *state;
    scene_order(s, "{'launch':{'name':'wb-other-" SCENE_JOB "-1'}}");
    scene_order(s, "{'launch':{'name':'trainer'}}");
    for (size_t i = 0; i < 3; i++) {
        scene_failed(s, provisioner_release(s->p, NAMES[i], &s->note, &s->e),
            PROVISION_ERROR_REFUSED, "no machines of this installation");
    }
    assert_int_equal(scene_alive(s), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_lambda, scene_teardown)
        SCENE(one_broken_is_failed),
        SCENE(one_terminated_of_two_is_failed),
        SCENE(an_instance_that_is_unknown_is_gone),
        SCENE(all_terminated_is_released),
        SCENE(an_unknown_word_is_waited_for),
        SCENE(booting_is_waited_for),
        SCENE(what_the_list_leaves_out_is_not_gone_for_that),
        SCENE(a_status_that_cannot_be_had_is_an_error),
        SCENE(details_that_make_no_sense_are_an_error),
        SCENE(only_our_machines_are_listed),
        SCENE(a_release_ends_all_of_a_name_and_no_others),
        SCENE(an_unknown_one_does_not_keep_the_others_running),
        SCENE(a_release_that_fails_is_for_later),
        SCENE(machines_of_others_are_not_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
