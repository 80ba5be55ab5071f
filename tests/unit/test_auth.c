/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/digest.h"
#include "web/auth.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char path[] = "/tmp/wb-test-auth-XXXXXX";

/* Text options of a struct conf are not const. */
static char mode_open[] = "open";
static char mode_tokens[] = "tokens";
static char none[] = "none";
static char viewer[] = "viewer";
static char empty[] = "";
static char bogus[] = "bogus";
static char admins[] = "root ann";

static struct conf conf_of(char *mode)
{
    return (struct conf){ .auth_mode = mode,
        .auth_token_file = path,
        .auth_anonymous = none,
        .auth_remote_user_role = empty,
        .auth_remote_admins = empty };
}

static void write_file(const void *data, size_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static int load_with(const struct conf *c, const char *text, struct auth **a, struct err *e)
{
    write_file(text, strlen(text));
    return auth_load(c, a, e);
}

static struct auth *loaded(const struct conf *c, const char *text)
{
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    if (load_with(c, text, &a, &e) < 0)
        fail_msg("%s", e.msg);
    return a;
}

static void expect_refused(const char *text, const char *why)
{
    const struct conf c = conf_of(mode_tokens);
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    assert_int_equal(load_with(&c, text, &a, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (strstr(e.msg, why) == NULL)
        fail_msg("%s", e.msg);
    assert_null(a);
}

/* A line of the token file. */
static const char *line_of(const char *token, const char *rest)
{
    static char line[512];
    char hash[DIGEST_HEX_SIZE];
    digest_hex(token, strlen(token), hash);
    (void)snprintf(line, sizeof(line), "# tokens\n\n%s %s\n", hash, rest);
    return line;
}

static void expect_caller(const struct auth *a, const char *authorization, const char *user,
    unsigned role, const char *subject)
{
    struct err e = ERR_INIT;
    struct auth_caller c = { .role = 77, .subject = "nobody" };
    if (auth_check(a, authorization, user, &c, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(c.role, role);
    assert_string_equal(c.subject, subject);
}

static void expect_unknown(const struct auth *a, const char *authorization, const char *user)
{
    struct err e = ERR_INIT;
    struct auth_caller c = { .role = 77, .subject = "nobody" };
    assert_int_equal(auth_check(a, authorization, user, &c, &e), -1);
    assert_int_equal(e.code, ERR_UNAUTHENTICATED);
    assert_int_equal(c.role, 77); /* untouched */
}

static void a_token_gives_role_and_subject(void **state)
{
    const struct conf c = conf_of(mode_tokens);
    struct auth *a = loaded(&c, line_of("secret", "worker node-1"));
    (void)state;
    expect_caller(a, "Bearer secret", NULL, ROLE_WORKER, "node-1");
    expect_caller(a, "bEARER   secret", NULL, ROLE_WORKER, "node-1");
    expect_caller(a, NULL, NULL, ROLE_NONE, "");
    expect_caller(a, "", "", ROLE_NONE, "");
    auth_free(a);
}

static void a_wrong_credential_is_refused(void **state)
{
    const struct conf c = conf_of(mode_tokens);
    struct auth *a = loaded(&c, line_of("secret", "worker node-1"));
    (void)state;
    expect_unknown(a, "Bearer Secret", NULL);
    expect_unknown(a, "Bearer secret ", NULL);
    expect_unknown(a, "Bearer ", NULL);
    expect_unknown(a, "Bearer", NULL);
    expect_unknown(a, "Bearersecret", NULL);
    expect_unknown(a, "secret", NULL);
    expect_unknown(a, "Basic c2VjcmV0", NULL);
    expect_unknown(a, "Basic c2VjcmV0", "ann"); /* the web server's users do not count here */
    auth_free(a);
}

static void hashes_in_capitals_count(void **state)
{
    char line[512];
    char hash[DIGEST_HEX_SIZE];
    const struct conf c = conf_of(mode_tokens);
    (void)state;
    digest_hex("secret", 6, hash);
    for (size_t i = 0; hash[i] != '\0'; i++)
        hash[i] = hash[i] >= 'a' ? (char)(hash[i] - 'a' + 'A') : hash[i];
    (void)snprintf(line, sizeof(line), "%s\tadmin\troot", hash);
    struct auth *a = loaded(&c, line);
    expect_caller(a, "Bearer secret", NULL, ROLE_ADMIN, "root");
    auth_free(a);
}

static void bad_lines_are_refused_with_their_number(void **state)
{
    (void)state;
    expect_refused("# one\n\nsecret admin root\n", "line 3: must begin with 64 hex digits");
    expect_refused(A64 "a admin root\n", "line 1: must begin");
    expect_refused(A64 " root admin\n", "line 1: unknown role");
    expect_refused(A64 " Admin root\n", "line 1: unknown role");
    expect_refused(A64 "\n", "line 1: unknown role");
    expect_refused(A64 " admin\n", "line 1: the subject is missing");
    expect_refused(A64 " admin a b\n", "line 1: more than three words");
    expect_refused(A64 " admin root\r\n", "line 1: more than three words");
    expect_refused(A64 " admin \xff\n", "line 1: the subject must be UTF-8");
    expect_refused(A64 " admin " A64 A64 "\n", "line 1: the subject must be UTF-8 of at most");
}

static void a_bad_line_is_not_repeated(void **state)
{
    const struct conf c = conf_of(mode_tokens);
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    (void)state;
    assert_int_equal(load_with(&c, "my-plain-token admin root\n", &a, &e), -1);
    assert_null(strstr(e.msg, "my-plain-token"));
}

static void the_same_token_twice_is_refused(void **state)
{
    (void)state;
    expect_refused(A64 " admin root\n" B64 " worker w\n" A64 " viewer v\n", "hold the same token");
}

static void nul_bytes_and_large_files_are_refused(void **state)
{
    const struct conf c = conf_of(mode_tokens);
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    (void)state;
    write_file("#\0\n", 3);
    assert_int_equal(auth_load(&c, &a, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);

    const size_t size = (1 << 20) + 1;
    char *big = malloc(size);
    assert_non_null(big);
    memset(big, '#', size);
    write_file(big, size);
    assert_int_equal(auth_load(&c, &a, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    write_file(big, size - 1);
    free(big);
    assert_int_equal(auth_load(&c, &a, &e), 0);
    auth_free(a);
}

static void without_a_token_file_it_does_not_start(void **state)
{
    struct conf c = conf_of(mode_tokens);
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    char missing[] = "/nonexistent/tokens";
    (void)state;
    c.auth_token_file = empty;
    assert_int_equal(auth_load(&c, &a, &e), -1);
    assert_int_equal(e.code, ERR_FORBIDDEN);
    c.auth_token_file = missing;
    assert_int_equal(auth_load(&c, &a, &e), -1);
    assert_int_equal(e.code, ERR_FORBIDDEN);
    c.auth_mode = mode_open;
    assert_int_equal(auth_load(&c, &a, &e), 0);
    auth_free(a);
}

static void unknown_modes_are_refused(void **state)
{
    struct conf c = conf_of(bogus);
    struct err e = ERR_INIT;
    struct auth *a = NULL;
    (void)state;
    write_file("", 0);
    assert_int_equal(auth_load(&c, &a, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    c = conf_of(mode_tokens);
    c.auth_anonymous = bogus;
    assert_int_equal(auth_load(&c, &a, &e), -1);
    c = conf_of(mode_tokens);
    c.auth_remote_user_role = bogus;
    assert_int_equal(auth_load(&c, &a, &e), -1);
}

static void in_mode_open_everybody_is_admin(void **state)
{
    const struct conf c = conf_of(mode_open);
    struct auth *a = loaded(&c, "");
    (void)state;
    expect_caller(a, NULL, NULL, ROLE_ADMIN, "open");
    expect_caller(a, "Bearer wrong", "ann", ROLE_ADMIN, "open");
    auth_free(a);
}

static void the_web_servers_users_count_only_when_configured(void **state)
{
    struct conf c = conf_of(mode_tokens);
    struct auth *a = loaded(&c, "");
    (void)state;
    expect_caller(a, NULL, "ann", ROLE_NONE, "");
    auth_free(a);

    c.auth_remote_user_role = viewer;
    c.auth_remote_admins = admins;
    a = loaded(&c, line_of("secret", "worker w"));
    expect_caller(a, NULL, "bob", ROLE_VIEWER, "bob");
    expect_caller(a, NULL, "ann", ROLE_ADMIN, "ann");
    expect_caller(a, NULL, "an", ROLE_VIEWER, "an");
    expect_caller(a, NULL, "root ann", ROLE_VIEWER, "root ann");
    expect_caller(a, NULL, "", ROLE_NONE, "");
    expect_caller(a, "Basic YW5uOng=", "ann", ROLE_ADMIN, "ann"); /* nginx has checked it */
    expect_caller(a, "Bearer secret", "ann", ROLE_WORKER, "w");   /* a token goes first */
    expect_unknown(a, "Bearer wrong", "ann");
    expect_unknown(a, "Basic YW5uOng=", NULL);
    expect_unknown(a, NULL, A64 A64);
    auth_free(a);
}

static int allows(const struct auth *a, unsigned role, unsigned roles, unsigned flags)
{
    struct err e = ERR_INIT;
    const struct auth_caller c = { .role = role, .subject = "x" };
    const struct web_route route = { "GET", "/", NULL, roles, flags };
    return auth_allows(a, &c, &route, &e) == 0 ? 0 : (int)e.code;
}

static void roles_are_checked(void **state)
{
    struct conf c = conf_of(mode_tokens);
    struct auth *a = loaded(&c, "");
    const unsigned readers = ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN;
    (void)state;
    assert_int_equal(allows(a, ROLE_VIEWER, readers, 0), 0);
    assert_int_equal(allows(a, ROLE_NODE, readers, 0), ERR_FORBIDDEN);
    assert_int_equal(allows(a, ROLE_VIEWER, ROLE_ADMIN, 0), ERR_FORBIDDEN);
    assert_int_equal(allows(a, ROLE_ADMIN, ROLE_WORKER, 0), ERR_FORBIDDEN);
    assert_int_equal(allows(a, ROLE_NONE, readers, 0), ERR_UNAUTHENTICATED);
    assert_int_equal(allows(a, ROLE_NONE, readers, WEB_ANONYMOUS), ERR_UNAUTHENTICATED);
    assert_int_equal(allows(a, ROLE_NONE, 0, WEB_OPEN), 0);
    auth_free(a);

    c.auth_anonymous = viewer;
    a = loaded(&c, "");
    assert_int_equal(allows(a, ROLE_NONE, readers, WEB_ANONYMOUS), 0);
    assert_int_equal(allows(a, ROLE_NODE, readers, WEB_ANONYMOUS), 0); /* open means open */
    assert_int_equal(allows(a, ROLE_NODE, readers, 0), ERR_FORBIDDEN);
    assert_int_equal(allows(a, ROLE_NONE, readers, 0), ERR_UNAUTHENTICATED);
    auth_free(a);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* Whatever lies there: the program says so and does not wait for it. */
static void what_is_no_file_is_refused(void **state)
{
    static char folder[] = "/tmp";
    static char device[] = "/dev/zero";
    char pipe_path[] = "/tmp/wb-test-auth-pipe-XXXXXX";
    char *const PATHS[] = { folder, device, pipe_path };

    (void)state;
    int fd = mkstemp(pipe_path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(unlink(pipe_path), 0);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        struct err e = ERR_INIT;
        struct auth *a = NULL;
        struct conf c = conf_of(mode_tokens);
        c.auth_token_file = PATHS[i];
        assert_int_equal(auth_load(&c, &a, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        assert_non_null(strstr(e.msg, "not a regular file"));
    }
    assert_int_equal(unlink(pipe_path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_gives_role_and_subject),
        cmocka_unit_test(a_wrong_credential_is_refused),
        cmocka_unit_test(hashes_in_capitals_count),
        cmocka_unit_test(bad_lines_are_refused_with_their_number),
        cmocka_unit_test(a_bad_line_is_not_repeated),
        cmocka_unit_test(the_same_token_twice_is_refused),
        cmocka_unit_test(nul_bytes_and_large_files_are_refused),
        cmocka_unit_test(without_a_token_file_it_does_not_start),
        cmocka_unit_test(unknown_modes_are_refused),
        cmocka_unit_test(in_mode_open_everybody_is_admin),
        cmocka_unit_test(the_web_servers_users_count_only_when_configured),
        cmocka_unit_test(roles_are_checked),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
