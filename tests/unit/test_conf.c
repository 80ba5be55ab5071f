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

static char dir[] = "/tmp/wb-conf-XXXXXX";
static char path[64];
static char secret_path[64];

static int group_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(str_format(path, sizeof path, "%s/wb.conf", dir), 0);
    assert_int_equal(str_format(secret_path, sizeof secret_path, "%s/secret", dir), 0);
    return 0;
}

static int group_down(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(secret_path);
    return rmdir(dir);
}

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        char name[CONF_VARIABLE_SIZE];
        conf_variable(&CONF_OPTIONS[i], "", name);
        unsetenv(name);
        conf_variable(&CONF_OPTIONS[i], "_FILE", name);
        unsetenv(name);
    }
    return 0;
}

static void write_bytes(const char *where, const char *data, size_t size)
{
    FILE *file = fopen(where, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *where, const char *text)
{
    write_bytes(where, text, strlen(text));
}

/* Loads a file of that text. */
static int load(const char *text, struct conf *c, struct err *e)
{
    write_text(path, text);
    return conf_load(c, path, e);
}

/* The file must be refused with a message that holds the piece. */
static void refuse(const char *text, const char *piece)
{
    struct conf c;
    struct err e = ERR_INIT;

    memset(&c, 0x5A, sizeof c);
    assert_int_equal(load(text, &c, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (!strstr(e.msg, piece))
        fail_msg("\"%s\" does not hold \"%s\"", e.msg, piece);
    for (size_t i = 0; i < sizeof c; i++)
        assert_int_equal(((const unsigned char *)&c)[i], 0x5A);
}

static void without_a_file_there_are_defaults(void **state)
{
    cleanup_conf struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    assert_int_equal(conf_load(&c, NULL, &e), 0);
    assert_string_equal(c.db_url, "");
    assert_true(c.db_prepared);
    assert_int_equal(c.db_timeout_ms, 1000);
    assert_string_equal(c.auth_mode, "tokens");
    assert_false(c.operations_read_only);
}

/* Every default is a value that the file could hold. */
static void defaults_are_in_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        cleanup_conf struct conf c;
        struct err e = ERR_INIT;
        cleanup_buf struct buf text = BUF_INIT(1000);
        buf_printf(&text, "[%s]\n%s = %s\n", o->section, o->key, o->dflt);
        assert_int_equal(load(text.data, &c, &e), 0);
        assert_true(strlen(o->help) > 10);
    }
}

static void a_file_overrides_defaults(void **state)
{
    cleanup_conf struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    assert_int_equal(load("# comment\n; comment\n\n[db]\nurl = host=/run user=a ; b\n"
                          "  timeout_ms=50\n[operations]\nworkers : 64\r\nread_only = yes",
                         &c, &e),
        0);
    assert_string_equal(c.db_url, "host=/run user=a ; b");
    assert_int_equal(c.db_timeout_ms, 50);
    assert_int_equal(c.operations_workers, 64);
    assert_true(c.operations_read_only);
}

static void booleans_have_many_names(void **state)
{
    static const char *const ON[] = { "on", "yes", "true", "1", "ON", "True" };
    static const char *const OFF[] = { "off", "no", "false", "0", "OFF", "No" };

    (void)state;
    for (size_t i = 0; i < sizeof ON / sizeof ON[0]; i++) {
        cleanup_conf struct conf on;
        cleanup_conf struct conf off;
        struct err e = ERR_INIT;
        setenv("WB_DB_PREPARED", ON[i], 1);
        assert_int_equal(conf_load(&on, NULL, &e), 0);
        assert_true(on.db_prepared);
        setenv("WB_DB_PREPARED", OFF[i], 1);
        assert_int_equal(conf_load(&off, NULL, &e), 0);
        assert_false(off.db_prepared);
    }
}

static void the_environment_overrides_the_file(void **state)
{
    cleanup_conf struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    setenv("WB_DB_TIMEOUT_MS", "700", 1);
    setenv("WB_AUTH_MODE", "open", 1);
    setenv("WB_URL", "http://not-ours", 1);
    assert_int_equal(load("[db]\ntimeout_ms = 60\n", &c, &e), 0);
    assert_int_equal(c.db_timeout_ms, 700);
    assert_string_equal(c.auth_mode, "open");
}

static void bad_variables_are_refused(void **state)
{
    struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    setenv("WB_DB_TIMEOUT_MS", "", 1);
    assert_int_equal(conf_load(&c, NULL, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_non_null(strstr(e.msg, "WB_DB_TIMEOUT_MS: must be a number from 50 to 60000"));
    clear_environment(NULL);
    setenv("WB_RUNTIME_DIR", "a\nb", 1);
    assert_int_equal(conf_load(&c, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "WB_RUNTIME_DIR: holds a control character"));
}

static void a_missing_file_is_told_apart(void **state)
{
    struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    assert_int_equal(conf_load(&c, "/nonexistent/wb.conf", &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(conf_load(&c, dir, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(conf_load(&c, "/dev/null/wb.conf", &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
}

static void mistakes_name_their_line(void **state)
{
    (void)state;
    refuse("[db]\n\nurll = x\n", "wb.conf:3: [db] urll: no such key");
    refuse("[dbx]\nurl = x\n", "wb.conf:1: [dbx]: no such section");
    refuse("[db]\n\n  [bogus]\n", "wb.conf:3: [bogus]: no such section");
    refuse("\xEF\xBB\xBF[bogus]\n", "wb.conf:1: [bogus]: no such section");
    refuse("[db]\n[auth]\n\njust words\n", "wb.conf:4: neither");
    refuse("[db]\nbegins =\n", "wb.conf:2: [db] begins: no such key");
    refuse("url = x\n", ":1: [] url: no such section");
    refuse("[db]\njust words\n", ":2: neither a [section] nor a key = value");
    refuse("[db\nurl = x\n", ":1: neither");
    refuse("[db]\ntimeout_ms = 49\n", ":2: [db] timeout_ms: must be a number from 50 to 60000");
    refuse("[db]\ntimeout_ms = 60001\n", "from 50 to 60000");
    refuse("[db]\ntimeout_ms = 1e3\n", "from 50 to 60000");
    refuse("[db]\nprepared = maybe\n", ":2: [db] prepared: must be on or off");
    refuse("[auth]\nmode =\n", ":2: [auth] mode: must not be empty");
    refuse("[auth]\nmode = 12345678901234567\n", "longer than 16 bytes");
    refuse("[auth]\nmode = open\n[db]\n[auth]\nmode = open\n", ":5: [auth] mode: set twice");
    refuse("[auth]\nmode_file = x\n", "mode_file: no such key");
    refuse("[db]\ntimeout_ms = 1\nprepared = maybe\n", ":2:");
}

static void bytes_that_are_no_text_are_refused(void **state)
{
    static const char NUL[] = "[db]\nurl = a\0b\n";
    struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    refuse("[auth]\nmode = a\x01\n", "control character");
    write_bytes(path, NUL, sizeof NUL - 1);
    assert_int_equal(conf_load(&c, path, &e), -1);
    assert_non_null(strstr(e.msg, ":2: "));
}

static void long_lines_are_read_whole_or_refused(void **state)
{
    cleanup_conf struct conf c;
    struct err e = ERR_INIT;
    char text[20000] = "[db]\nurl = ";
    size_t begin = strlen(text);

    (void)state;
    memset(text + begin, 'a', 4096);
    assert_int_equal(load(text, &c, &e), 0);
    assert_int_equal(strlen(c.db_url), 4096);
    text[begin + 4096] = 'a';
    refuse(text, "longer than 4096 bytes");
    memset(text + begin, 'a', 15000);
    refuse(text, ":2: line too long");
}

static void secrets_come_from_files_too(void **state)
{
    static const char *const HELD[] = { "s3cret", "s3cret\n", "s3cret\r\n" };
    char text[128];

    (void)state;
    (void)str_format(text, sizeof text, "[db]\nurl_file = %s\n", secret_path);
    for (size_t i = 0; i < sizeof HELD / sizeof HELD[0]; i++) {
        cleanup_conf struct conf by_file;
        cleanup_conf struct conf by_variable;
        struct err e = ERR_INIT;
        write_text(secret_path, HELD[i]);
        assert_int_equal(load(text, &by_file, &e), 0);
        assert_string_equal(by_file.db_url, "s3cret");
        setenv("WB_REDIS_URL_FILE", secret_path, 1);
        assert_int_equal(conf_load(&by_variable, NULL, &e), 0);
        assert_string_equal(by_variable.redis_url, "s3cret");
    }
}

static void bad_secret_files_are_refused_and_not_shown(void **state)
{
    char text[128];
    char big[9000] = "";
    struct conf c;
    struct err e = ERR_INIT;

    (void)state;
    (void)str_format(text, sizeof text, "[db]\nurl_file = %s\n", secret_path);
    write_text(secret_path, "s3cret\nmore\n");
    refuse(text, ":2: [db] url_file: holds a control character");
    write_bytes(secret_path, "s3c\0ret", 7);
    refuse(text, "holds a NUL");
    memset(big, 's', sizeof big - 1);
    write_text(secret_path, big);
    refuse(text, "longer than 4096 bytes");
    (void)unlink(secret_path);
    refuse(text, "No such file");
    refuse("[db]\nurl_file = /tmp\n", "url_file: /tmp: Is a directory");
    refuse("[db]\nurl = a\nurl_file = b\n", ":3: [db] url_file: set twice");
    setenv("WB_DB_URL_FILE", secret_path, 1);
    assert_int_equal(conf_load(&c, NULL, &e), -1);
    setenv("WB_DB_URL", "s3cret\n", 1);
    assert_int_equal(conf_load(&c, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "WB_DB_URL_FILE: set beside WB_DB_URL"));
    unsetenv("WB_DB_URL_FILE");
    assert_int_equal(conf_load(&c, NULL, &e), -1);
    assert_null(strstr(e.msg, "s3cret"));
}

static void assert_same(const struct conf *a, const struct conf *b)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        const void *x = conf_at(a, o);
        const void *y = conf_at(b, o);
        if (o->type == CONF_STR)
            assert_string_equal(*(char *const *)x, *(char *const *)y);
        else if (o->type == CONF_INT)
            assert_int_equal(*(const int64_t *)x, *(const int64_t *)y);
        else if (o->type == CONF_BOOL)
            assert_true(*(const bool *)x == *(const bool *)y);
    }
}

static void what_is_printed_is_read_back(void **state)
{
    cleanup_conf struct conf c;
    cleanup_conf struct conf again;
    struct err e = ERR_INIT;
    cleanup_buf struct buf out = BUF_INIT(65536);

    (void)state;
    assert_int_equal(load("[db]\nurl = s3cret\nprepared = no\ntimeout_ms = 77\n"
                          "[auth]\nremote_admins = ann bob ; # \"c\" = d\n"
                          "[runtime]\nsocket_group = w\xC3\xA4"
                          "g\n",
                         &c, &e),
        0);
    conf_print(&c, &out);
    assert_false(out.overflow);
    assert_null(strstr(out.data, "s3cret"));
    assert_non_null(strstr(
        out.data, "[db]\n# url = ***\nprepared = off\ntimeout_ms = 77\n\n[redis]\n# url = \n"));
    assert_int_equal(load(out.data, &again, &e), 0);
    assert_same(&c, &again);
}

static void the_manual_lists_every_option(void **state)
{
    cleanup_buf struct buf out = BUF_INIT(65536);

    (void)state;
    conf_markdown(&out);
    assert_false(out.overflow);
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        char name[CONF_VARIABLE_SIZE];
        char cell[CONF_VARIABLE_SIZE + 8];
        conf_variable(&CONF_OPTIONS[i], "", name);
        assert_int_equal(str_format(cell, sizeof cell, "| `%s` |", name), 0);
        assert_non_null(strstr(out.data, cell));
    }
    assert_non_null(strstr(out.data, "\n## [fcgi]\n"));
    assert_non_null(strstr(out.data, "`WB_DB_URL_FILE`"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_file_there_are_defaults, clear_environment),
        cmocka_unit_test_setup(defaults_are_in_range, clear_environment),
        cmocka_unit_test_setup(a_file_overrides_defaults, clear_environment),
        cmocka_unit_test_setup(booleans_have_many_names, clear_environment),
        cmocka_unit_test_setup(the_environment_overrides_the_file, clear_environment),
        cmocka_unit_test_setup(bad_variables_are_refused, clear_environment),
        cmocka_unit_test_setup(a_missing_file_is_told_apart, clear_environment),
        cmocka_unit_test_setup(mistakes_name_their_line, clear_environment),
        cmocka_unit_test_setup(bytes_that_are_no_text_are_refused, clear_environment),
        cmocka_unit_test_setup(long_lines_are_read_whole_or_refused, clear_environment),
        cmocka_unit_test_setup(secrets_come_from_files_too, clear_environment),
        cmocka_unit_test_setup(bad_secret_files_are_refused_and_not_shown, clear_environment),
        cmocka_unit_test_setup(what_is_printed_is_read_back, clear_environment),
        cmocka_unit_test_setup(the_manual_lists_every_option, clear_environment),
    };

    return cmocka_run_group_tests(tests, group_up, group_down);
}
