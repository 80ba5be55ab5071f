/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum { GUARD_S = 30, LINE_MAX_SIZE = 4096 };

/* Standard error is a pipe between begin() and end(), which takes what was written. */
static int saved = -1;
static int reader = -1;
static char seen[65536];

static void begin(void)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    reader = fds[0];
}

static void restore(void)
{
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
}

static const char *end(void)
{
    size_t size = 0;
    ssize_t n = 0;

    restore();
    while ((n = read(reader, seen + size, sizeof seen - 1 - size)) > 0)
        size += (size_t)n;
    close(reader);
    seen[size] = '\0';
    return seen;
}

/* The line from "level=" on. */
static const char *line_of(const char *text)
{
    const char *p = strstr(text, "level=");

    assert_non_null(p);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    log_setup("test", LOG_INFO);
    log_set_request(NULL);
    return 0;
}

static void a_line_has_stamp_level_program_and_pairs(void **state)
{
    (void)state;
    begin();
    log_warn(LOG_MSG("no answer"), LOG_S("store", "redis"), LOG_I("after_ms", -100));
    const char *text = end();
    assert_string_equal(
        line_of(text), "level=warn program=test msg=\"no answer\" store=redis after_ms=-100\n");
    /* ts=2024-01-02T03:04:05.678Z */
    assert_int_equal(line_of(text) - text, 28);
    assert_true(str_starts(text, "ts=2"));
    assert_memory_equal(text + 26, "Z ", 2);
    assert_int_equal(text[22], '.');
    assert_int_equal(text[13], 'T');
}

static void less_urgent_lines_are_left_out(void **state)
{
    (void)state;
    begin();
    log_debug(LOG_MSG("x"));
    assert_string_equal(end(), "");
    log_setup("test", LOG_DEBUG);
    begin();
    log_debug(LOG_MSG("x"));
    log_info(LOG_MSG("x"));
    log_error(LOG_MSG("x"));
    const char *text = end();
    assert_non_null(strstr(text, "level=debug"));
    assert_non_null(strstr(text, "level=info"));
    assert_non_null(strstr(text, "level=error"));
    log_setup("test", LOG_ERROR);
    begin();
    log_warn(LOG_MSG("x"));
    assert_string_equal(end(), "");
}

static void check_value(const char *value, const char *printed)
{
    char want[256];

    begin();
    log_info(LOG_S("v", value));
    assert_int_equal(str_format(want, sizeof want, "level=info program=test v=%s\n", printed), 0);
    assert_string_equal(line_of(end()), want);
}

/* Input must not forge lines, pairs or terminal commands. */
static void values_are_quoted_and_escaped(void **state)
{
    (void)state;
    check_value("plain/value-1.0:x", "plain/value-1.0:x");
    check_value("", "\"\"");
    check_value("a b", "\"a b\"");
    check_value("a=b", "\"a=b\"");
    check_value("say \"hi\"", "\"say \\\"hi\\\"\"");
    check_value("back\\slash", "\"back\\\\slash\"");
    check_value("x\nlevel=error msg=forged", "\"x\\nlevel=error msg=forged\"");
    check_value("\r\t", "\"\\r\\t\"");
    check_value("\x1b[31m\x7f\x01", "\"\\x1b[31m\\x7f\\x01\"");
    check_value("\xC2\x9B"
                "31m",
        "\"\\u009b31m\"");
    check_value("caf\xC3\xA9 €", "\"café €\"");
    check_value("\xFF\xC3", "\"\\xff\\xc3\"");
}

static void check_cut(const char *value, const char *quote)
{
    char tail[64];

    log_set_request("r-1");
    begin();
    log_info(LOG_S("v", value), LOG_S("after", "x"));
    const char *text = end();
    size_t size = strlen(text);
    assert_true(size <= LINE_MAX_SIZE && size > 3500);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    assert_int_equal(str_format(tail, sizeof tail, "…%s request_id=r-1\n", quote), 0);
    assert_true(str_ends(text, tail));
    assert_true(str_utf8_valid(text, size));
}

static void long_lines_are_cut_visibly(void **state)
{
    char value[20000] = "";

    (void)state;
    memset(value, 'a', 10000);
    check_cut(value, "");
    memset(value, '\n', 10000);
    check_cut(value, "\"");
    for (int shift = 0; shift < 3; shift++) {
        memset(value, 0, sizeof value);
        memset(value, 'x', (size_t)shift);
        for (size_t i = 0; i < 5000; i++)
            memcpy(value + shift + 3 * i, "€", 3);
        check_cut(value, "\"");
    }
}

/* Whatever the length, a line ends within 4096 bytes, quotes closed. */
static void no_length_breaks_a_line(void **state)
{
    char value[LINE_MAX_SIZE + 100] = "";
    char id[600] = "";

    (void)state;
    memset(id, ' ', sizeof id - 1);
    log_set_request(id);
    memset(value, ' ', 3700);
    for (size_t size = 3700; size < sizeof value - 1; size += 3) {
        memset(value, ' ', size);
        begin();
        log_info(LOG_S("v", value), LOG_S("w", "a b"));
        const char *text = end();
        size_t quotes = 0;
        for (const char *p = text; (p = strchr(p, '"')) != NULL; p++)
            quotes++;
        assert_int_equal(quotes % 2, 0);
        assert_true(strlen(text) <= LINE_MAX_SIZE);
        assert_true(str_ends(text, "…\"\n"));
    }
}

static void *log_without_request(void *arg)
{
    log_info(LOG_S("thread", "other"));
    return arg;
}

static void the_request_is_the_threads_own(void **state)
{
    pthread_t thread;

    (void)state;
    log_set_request("r-7");
    begin();
    log_info(LOG_S("thread", "own"));
    assert_int_equal(pthread_create(&thread, NULL, log_without_request, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    const char *text = end();
    assert_non_null(strstr(text, "thread=own request_id=r-7\n"));
    assert_non_null(strstr(text, "thread=other\n"));
}

static void a_job_in_hand_is_named(void **state)
{
    (void)state;
    log_set_request("r-8");
    log_set_job("0190");
    begin();
    log_info(LOG_MSG("job"));
    log_set_job(NULL);
    log_info(LOG_MSG("none"));
    const char *text = end();
    assert_non_null(strstr(text, "msg=job request_id=r-8 job_id=0190\n"));
    assert_non_null(strstr(text, "msg=none request_id=r-8\n"));
}

static void name_stream(const char *format)
{
    char name[64];
    struct stat st;

    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    (void)snprintf(
        name, sizeof name, "%ju:%ju%s", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino, format);
    setenv("JOURNAL_STREAM", name, 1);
    log_setup("test", LOG_INFO);
}

static void a_journal_gets_priorities_and_no_stamp(void **state)
{
    (void)state;
    begin();
    name_stream("");
    log_warn(LOG_MSG("x"));
    log_error(LOG_MSG("x"));
    assert_string_equal(
        end(), "<4>level=warn program=test msg=x\n<3>level=error program=test msg=x\n");
}

static void another_stream_is_no_journal(void **state)
{
    (void)state;
    begin();
    name_stream("0");
    log_warn(LOG_MSG("x"));
    assert_true(str_starts(end(), "ts="));
}

static void errno_is_left_alone(void **state)
{
    (void)state;
    begin();
    /* poll(2) finds it writable, write(2) does not. */
    cleanup_fd int read_only = open("/dev/null", O_RDONLY);
    assert_int_equal(dup2(read_only, STDERR_FILENO), STDERR_FILENO);
    errno = ENOENT;
    log_info(LOG_MSG("x"));
    assert_int_equal(errno, ENOENT);
    log_debug(LOG_MSG("x"));
    assert_int_equal(errno, ENOENT);
    end();
}

/* In a child, as a SIGPIPE would kill it. */
static void a_gone_reader_is_harmless(void **state)
{
    int status = -1;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        begin();
        close(reader);
        for (int i = 0; i < 10; i++)
            log_info(LOG_MSG("x"));
        close(STDERR_FILENO);
        log_info(LOG_MSG("x"));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A reader that reads nothing costs lines, not the service; what was lost is told. */
static void a_stalled_reader_is_not_waited_for(void **state)
{
    static char much[1 << 20];

    (void)state;
    begin();
    int flags = fcntl(STDERR_FILENO, F_GETFL);
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK), 0);
    while (write(STDERR_FILENO, "0123456789abcdef", 16) > 0)
        continue;
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags), 0);
    for (int i = 0; i < 100; i++)
        log_info(LOG_I("lost", i));
    assert_true(read(reader, much, sizeof much) > 0);
    log_info(LOG_MSG("back"));
    log_info(LOG_MSG("again"));
    const char *text = end();
    assert_null(strstr(text, "lost="));
    assert_non_null(strstr(text, "msg=back dropped="));
    assert_non_null(strstr(text, "msg=again\n"));
}

static void levels_have_names(void **state)
{
    enum log_level level = LOG_INFO;

    (void)state;
    assert_int_equal(log_level_parse("error", &level), 0);
    assert_int_equal(level, LOG_ERROR);
    assert_int_equal(log_level_parse("warn", &level), 0);
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(log_level_parse("info", &level), 0);
    assert_int_equal(level, LOG_INFO);
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, LOG_DEBUG);
    assert_int_equal(log_level_parse("warning", &level), -1);
    assert_int_equal(log_level_parse("", &level), -1);
    assert_int_equal(level, LOG_DEBUG);
    begin();
    log_emit((enum log_level)0, LOG_KVS(LOG_MSG("x")));
    assert_non_null(strstr(end(), "level=unknown"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_line_has_stamp_level_program_and_pairs, set_up),
        cmocka_unit_test_setup(less_urgent_lines_are_left_out, set_up),
        cmocka_unit_test_setup(values_are_quoted_and_escaped, set_up),
        cmocka_unit_test_setup(long_lines_are_cut_visibly, set_up),
        cmocka_unit_test_setup(no_length_breaks_a_line, set_up),
        cmocka_unit_test_setup(the_request_is_the_threads_own, set_up),
        cmocka_unit_test_setup(a_job_in_hand_is_named, set_up),
        cmocka_unit_test_setup(a_journal_gets_priorities_and_no_stamp, set_up),
        cmocka_unit_test_setup(another_stream_is_no_journal, set_up),
        cmocka_unit_test_setup(a_gone_reader_is_harmless, set_up),
        cmocka_unit_test_setup(a_stalled_reader_is_not_waited_for, set_up),
        cmocka_unit_test_setup(levels_have_names, set_up),
        cmocka_unit_test_setup(errno_is_left_alone, set_up),
    };

    alarm(GUARD_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
