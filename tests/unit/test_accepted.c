/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration and tokens that were accepted, as workers hand them on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/mem.h"
#include "base/str.h"
#include "web/accepted.h"
#include "web/auth.h"

#define INI_TEXT \
    "[db]\nurl = host=/run\n[auth]\nmode = open\n[fcgi]\nthreads = 7\n[operations]\nread_only = yes\n" \
    "[pool one]\npolicy = fair\n[pool two-2]\nprovisioner = aws\nmax_concurrent_provisioning = 9\n"

static char dir[] = "/tmp/wb-accepted-XXXXXX";
static char ini[64];
static char secret[64];

static int group_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(str_format(ini, sizeof ini, "%s/wb.ini", dir), 0);
    return str_format(secret, sizeof secret, "%s/secret", dir);
}

static int group_down(void **state)
{
    (void)state;
    (void)unlink(ini);
    (void)unlink(secret);
    return rmdir(dir);
}

static void write_text(const char *path, const char *text)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void load(const char *text, struct conf *c)
{
    struct err e = ERR_INIT;
    write_text(ini, text);
    if (conf_load(c, ini, &e) != 0)
        fail_msg("%s", e.msg);
}

static struct buf tokens_of(const char *text)
{
    struct buf tokens = BUF_INIT(AUTH_TOKENS_MAX);
    buf_puts(&tokens, text);
    return tokens;
}

/* Made of c and text; the caller closes it. */
static int make(const struct conf *c, const char *text)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf tokens = tokens_of(text);
    int fd = -1;
    if (accepted_make(c, &tokens, &fd, &e) != 0)
        fail_msg("%s", e.msg);
    return fd;
}

/* All effective values, secrets too. */
static void assert_same(const struct conf *a, const struct conf *b)
{
    cleanup_buf struct buf x = BUF_INIT(1 << 20);
    cleanup_buf struct buf y = BUF_INIT(1 << 20);
    conf_save(a, &x);
    conf_save(b, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
}

/* --- values --- */

static void all_values_come_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_conf struct conf c;
    cleanup_conf struct conf again = { .pools = 0 };
    cleanup_buf struct buf saved = BUF_INIT(1 << 20);
    load(INI_TEXT, &c);
    conf_save(&c, &saved);
    assert_int_equal(conf_restore(&again, saved.data, saved.len, &e), 0);
    assert_same(&c, &again);
    assert_string_equal(again.db_url, "host=/run");
    assert_int_equal(again.fcgi_threads, 7);
    assert_true(again.operations_read_only);
    assert_int_equal(again.pools, 2);
    assert_string_equal(again.pool[1].name, "two-2");
    assert_string_equal(again.pool[1].provisioner, "aws");
    assert_int_equal(again.pool[1].max_concurrent_provisioning, 9);
    assert_string_equal(again.planner_default_pool, "one");
}

/* An ini file would lose them. */
static void blanks_and_signs_of_secrets_come_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_conf struct conf c;
    cleanup_conf struct conf again = { .pools = 0 };
    cleanup_buf struct buf saved = BUF_INIT(1 << 20);
    write_text(secret, "  password=' a;b#c \" =[x] '  \n");
    assert_int_equal(setenv("WB_DB_URL_FILE", secret, 1), 0);
    load("[auth]\nmode = open\n", &c);
    (void)unsetenv("WB_DB_URL_FILE");
    conf_save(&c, &saved);
    assert_int_equal(conf_restore(&again, saved.data, saved.len, &e), 0);
    assert_string_equal(again.db_url, "  password=' a;b#c \" =[x] '  ");
}

/* What counts was effective when it was accepted: files and variables may say something else by now. */
static void neither_files_nor_variables_are_looked_at(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_conf struct conf c;
    cleanup_conf struct conf again = { .pools = 0 };
    cleanup_buf struct buf saved = BUF_INIT(1 << 20);
    cleanup_buf struct buf text = BUF_INIT(4096);
    buf_printf(&text, "[auth]\nmode = open\n[db]\nurl_file = %s\n", secret);
    write_text(secret, "first");
    load(text.data, &c);
    conf_save(&c, &saved);
    write_text(secret, "second");
    assert_int_equal(setenv("WB_FCGI_THREADS", "9", 1), 0);
    assert_int_equal(setenv("WB_POOL_DEFAULT_POLICY", "fair", 1), 0);
    assert_int_equal(conf_restore(&again, saved.data, saved.len, &e), 0);
    (void)unsetenv("WB_FCGI_THREADS");
    (void)unsetenv("WB_POOL_DEFAULT_POLICY");
    assert_string_equal(again.db_url, "first");
    assert_same(&c, &again);
}

static void put(struct buf *b, const char *section, const char *key, const char *text)
{
    buf_add(b, section, strlen(section) + 1);
    buf_add(b, key, strlen(key) + 1);
    buf_add(b, text, strlen(text) + 1);
}

static void what_another_version_knows_is_left_out(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_conf struct conf c = { .pools = 0 };
    cleanup_buf struct buf saved = BUF_INIT(4096);
    put(&saved, "fcgi", "threads", "5");
    put(&saved, "fcgi", "colour", "blue");
    put(&saved, "paint", "colour", "blue");
    put(&saved, "planner", "default_pool", "a");
    put(&saved, "pool a", "colour", "blue");
    put(&saved, "pool a", "policy", "fair");
    assert_int_equal(conf_restore(&c, saved.data, saved.len, &e), 0);
    assert_int_equal(c.fcgi_threads, 5);
    assert_string_equal(c.pool[0].policy, "fair");
    assert_int_equal(c.operations_workers, 1); /* not told: the default */
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct conf c;
    cleanup_conf struct conf whole;
    cleanup_buf struct buf saved = BUF_INIT(1 << 20);
    cleanup_buf struct buf bad = BUF_INIT(4096);
    load(INI_TEXT, &whole);
    conf_save(&whole, &saved);
    assert_int_equal(conf_restore(&c, saved.data, saved.len - 1, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(conf_restore(&c, saved.data, 0, &e), -1);
    put(&bad, "fcgi", "threads", "many");
    assert_int_equal(conf_restore(&c, bad.data, bad.len, &e), -1);
    assert_null(strstr(e.msg, "many")); /* it might be a secret */
}

/* --- the file in memory --- */

static void configuration_and_tokens_come_back(void **state)
{
    (void)state;
    static const char *const TOKENS[] = { "", "x", "# a\nline\n" };
    cleanup_conf struct conf c;
    load(INI_TEXT, &c);
    for (size_t i = 0; i < sizeof TOKENS / sizeof *TOKENS; i++) {
        struct err e = ERR_INIT;
        cleanup_conf struct conf again = { .pools = 0 };
        cleanup_buf struct buf tokens = tokens_of("");
        cleanup_fd int fd = make(&c, TOKENS[i]);
        for (int j = 0; j < 2; j++) { /* more than one reads it */
            buf_clear(&tokens);
            conf_free(&again);
            assert_int_equal(accepted_read(fd, &again, &tokens, &e), 0);
            assert_same(&c, &again);
            assert_int_equal(tokens.len, strlen(TOKENS[i]));
            if (tokens.len > 0)
                assert_string_equal(tokens.data, TOKENS[i]);
        }
    }
}

static void nobody_can_change_it(void **state)
{
    (void)state;
    cleanup_conf struct conf c;
    load(INI_TEXT, &c);
    cleanup_fd int fd = make(&c, "tokens");
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_ptr_equal(mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

/* A copy of fd with the first size bytes, and one of them changed. */
static int copy_of(int fd, size_t size, size_t at, char change)
{
    cleanup_free char *bytes = mem_calloc(1, size + 1);
    ssize_t n = pread(fd, bytes, size, 0);
    assert_true(n >= 0);
    if (at < size)
        bytes[at] = (char)(bytes[at] ^ change);
    int copy = memfd_create("copy", MFD_CLOEXEC);
    assert_int_equal(write(copy, bytes, (size_t)n), n);
    return copy;
}

static void what_was_made_otherwise_is_not_taken(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct conf again;
    cleanup_conf struct conf c;
    cleanup_buf struct buf tokens = tokens_of("");
    load(INI_TEXT, &c);
    cleanup_fd int fd = make(&c, "tokens");
    cleanup_fd int other_version = copy_of(fd, 1 << 20, 0, 1);
    cleanup_fd int shorter = copy_of(fd, 1000, 1000, 0);
    cleanup_fd int no_head = copy_of(fd, 10, 10, 0);
    cleanup_fd int huge_part = copy_of(fd, 1 << 20, 15, 0x7F); /* the top byte of a size */
    assert_int_equal(accepted_read(other_version, &again, &tokens, &e), 1);
    assert_int_equal(accepted_read(shorter, &again, &tokens, &e), -1);
    assert_int_equal(accepted_read(no_head, &again, &tokens, &e), -1);
    assert_int_equal(accepted_read(huge_part, &again, &tokens, &e), -1);
    assert_int_equal(accepted_read(-1, &again, &tokens, &e), -1);
    assert_int_equal(tokens.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_values_come_back),
        cmocka_unit_test(blanks_and_signs_of_secrets_come_back),
        cmocka_unit_test(neither_files_nor_variables_are_looked_at),
        cmocka_unit_test(what_another_version_knows_is_left_out),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(configuration_and_tokens_come_back),
        cmocka_unit_test(nobody_can_change_it),
        cmocka_unit_test(what_was_made_otherwise_is_not_taken),
    };
    return cmocka_run_group_tests(tests, group_up, group_down);
}
