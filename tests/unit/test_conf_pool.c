/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/conf_table.h"
#include "base/str.h"

static char path[] = "/tmp/wb-conf-pool-XXXXXX";

static int group_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int group_down(void **state)
{
    (void)state;
    return unlink(path);
}

static int load(const char *text, struct conf *c, struct err *e)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return conf_load(c, path, e);
}

static void refuse(const char *text, const char *piece)
{
    struct conf c;
    struct err e = ERR_INIT;
    assert_int_equal(load(text, &c, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (!strstr(e.msg, piece))
        fail_msg("\"%s\" does not hold \"%s\"", e.msg, piece);
}

/* Jobs contract, section 1: a job without a pool takes the default one, so there always is one. */
static void without_sections_there_is_a_default_pool(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(load("", &c, &e), 0);
    assert_int_equal(c.pools, 1);
    assert_string_equal(c.pool[0].name, "default");
    assert_string_equal(c.pool[0].provisioner, "local");
    assert_string_equal(c.pool[0].policy, "simple");
    assert_int_equal(c.pool[0].max_concurrent_provisioning, 1);
    assert_string_equal(c.planner_default_pool, "default");
}

static void without_sections_the_default_pool_may_have_a_name(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(load("[planner]\ndefault_pool = gpus\n", &c, &e), 0);
    assert_int_equal(c.pools, 1);
    assert_string_equal(c.pool[0].name, "gpus");
    refuse("[planner]\ndefault_pool = no name\n", "default_pool");
}

static void sections_keep_their_order_and_values(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(load("[pool cloud-1]\nprovisioner = aws\nmax_concurrent_provisioning = 7\n"
                          "[planner]\nworkers = 3\n"
                          "[pool here]\npolicy = fair\n"
                          "[pool cloud-1]\nprovision_timeout_s = 9\n",
                         &c, &e),
        0);
    assert_int_equal(c.pools, 2);
    assert_string_equal(c.pool[0].name, "cloud-1");
    assert_string_equal(c.pool[0].provisioner, "aws");
    assert_int_equal(c.pool[0].max_concurrent_provisioning, 7);
    assert_int_equal(c.pool[0].provision_timeout_s, 9);
    assert_string_equal(c.pool[1].name, "here");
    assert_string_equal(c.pool[1].provisioner, "local");
    assert_string_equal(c.pool[1].policy, "fair");
    assert_int_equal(c.planner_workers, 3);
    assert_string_equal(c.planner_default_pool, "cloud-1");
    assert_ptr_equal(conf_pool_find(&c, "here"), &c.pool[1]);
    assert_null(conf_pool_find(&c, "cloud"));
}

static void a_section_without_a_key_is_a_pool(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(load("[pool here]\n[pool cloud]", &c, &e), 0);
    assert_int_equal(c.pools, 2);
    assert_string_equal(c.pool[1].name, "cloud");
    assert_string_equal(c.pool[1].provisioner, "local");
    assert_string_equal(c.planner_default_pool, "here");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    refuse("[pool]\npolicy = fair\n", "the pool's name");
    refuse("[pool ]\npolicy = fair\n", "the pool's name");
    refuse("[pool a b]\npolicy = fair\n", "the pool's name");
    refuse("[pool  a]\npolicy = fair\n", "the pool's name");
    refuse("[pool -a]\npolicy = fair\n", "the pool's name");
    refuse("[pool a.b]\npolicy = fair\n", "the pool's name");
    refuse("[pool 01234567890123456789012345678901234567890]\npolicy = fair\n", "the pool's name");
    refuse("[pools]\npolicy = fair\n", "no such section");
    refuse("[pool a.b]\n", ":1: [pool a.b]: one space and the pool's name");
    refuse("[pool a]\nspeed = 1\n", ":2: [pool a] speed: no such key");
    refuse("[pool a]\npolicy = fair\n[pool b]\npolicy = x\n[pool a]\npolicy = y\n",
        ":6: [pool a] policy: set twice");
    refuse("[pool a]\nmax_concurrent_provisioning = 0\n", "must be a number from 1");
    refuse("[pool a-b]\npolicy = x\n[pool a_b]\npolicy = x\n", "too like [pool a-b]");
    refuse("[pool a]\npolicy = x\n[planner]\ndefault_pool = b\n", "no such [pool] section");
}

static void variables_override_the_pools_that_there_are(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    struct err e = ERR_INIT;
    setenv("WB_POOL_CLOUD_1_POLICY", "capacity", 1);
    setenv("WB_POOL_OTHER_POLICY", "fair", 1);
    assert_int_equal(load("[pool cloud-1]\npolicy = fair\n", &c, &e), 0);
    assert_int_equal(c.pools, 1);
    assert_string_equal(c.pool[0].policy, "capacity");
    setenv("WB_POOL_CLOUD_1_MAX_CONCURRENT_PROVISIONING", "many", 1);
    refuse("[pool cloud-1]\npolicy = fair\n", "WB_POOL_CLOUD_1_MAX_CONCURRENT_PROVISIONING");
    unsetenv("WB_POOL_CLOUD_1_POLICY");
    unsetenv("WB_POOL_OTHER_POLICY");
    unsetenv("WB_POOL_CLOUD_1_MAX_CONCURRENT_PROVISIONING");
}

static void what_is_printed_is_read_back(void **state)
{
    (void)state;
    cleanup_conf struct conf c = { 0 };
    cleanup_conf struct conf again = { 0 };
    struct err e = ERR_INIT;
    cleanup_buf struct buf out = BUF_INIT(65536);
    assert_int_equal(load("[pool b]\npolicy = fair\n[pool a]\nprovisioner = aws\n", &c, &e), 0);
    conf_print(&c, &out);
    assert_int_equal(load(out.data, &again, &e), 0);
    assert_int_equal(again.pools, 2);
    assert_string_equal(again.pool[0].name, "b");
    assert_string_equal(again.pool[0].policy, "fair");
    assert_string_equal(again.pool[1].provisioner, "aws");
    assert_string_equal(again.planner_default_pool, "b");
}

static void the_manual_lists_every_option_of_a_pool(void **state)
{
    (void)state;
    cleanup_buf struct buf out = BUF_INIT(65536);
    conf_markdown(&out);
    assert_non_null(strstr(out.data, "\n## [pool NAME]\n"));
    for (size_t i = 0; i < CONF_POOL_OPTION_COUNT; i++) {
        char name[CONF_VARIABLE_SIZE];
        conf_pool_variable("NAME", &CONF_POOL_OPTIONS[i], name);
        assert_non_null(strstr(out.data, name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_sections_there_is_a_default_pool),
        cmocka_unit_test(without_sections_the_default_pool_may_have_a_name),
        cmocka_unit_test(sections_keep_their_order_and_values),
        cmocka_unit_test(a_section_without_a_key_is_a_pool),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(variables_override_the_pools_that_there_are),
        cmocka_unit_test(what_is_printed_is_read_back),
        cmocka_unit_test(the_manual_lists_every_option_of_a_pool),
    };
    return cmocka_run_group_tests(tests, group_up, group_down);
}
