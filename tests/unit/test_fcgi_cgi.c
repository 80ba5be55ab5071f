/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/str.h"
#include "fcgi/fcgi_set.h"

/* Each case runs in a child whose descriptors 0 and 1 and whose environment are those of a CGI. */

enum { OUT_MAX = 1 << 22, BIG = 1000000 };

struct cgi {
    const char *length; /* CONTENT_LENGTH; NULL: absent */
    const char *in;
    size_t in_size;
    struct buf out;
    int status;        /* exit status: 0 well, 4 fcgi_cgi_run() failed */
    bool short_writes; /* standard output does not block: writes are short */
};

static void echo(struct fcgi_req *r, void *ctx)
{
    (void)ctx;
    struct err e = ERR_INIT;
    struct buf body = BUF_INIT(OUT_MAX);
    char chunk[7];
    ssize_t n = 0;
    buf_printf(&body, "%s %s %d %d:", fcgi_env(r, "REQUEST_METHOD"),
        fcgi_env(r, "NOT_THERE") == NULL ? "none" : "some", fcgi_thread(r), fcgi_is_cgi(r));
    while ((n = fcgi_read(r, chunk, sizeof chunk)) > 0)
        buf_add(&body, chunk, (size_t)n);
    if (n < 0)
        buf_puts(&body, " cut");
    const char head[] = "Status: 201 Created\r\nContent-Type: text/plain\r\n\r\n";
    (void)!fcgi_send(r, head, sizeof head - 1, body.data, body.len, &e);
    buf_free(&body);
}

static void answer_big(struct fcgi_req *r, void *ctx)
{
    (void)ctx;
    struct err e = ERR_INIT;
    char *body = malloc(BIG);
    for (size_t k = 0; k < BIG; k++)
        body[k] = (char)('a' + k % 23);
    (void)!fcgi_send(r, "Status: 200\r\n\r\n", 15, body, BIG, &e);
    free(body);
}

static void say_nothing(struct fcgi_req *r, void *ctx)
{
    (void)r;
    (void)ctx;
}

static void be_cgi(
    const struct cgi *c, int in, int out, void (*handle)(struct fcgi_req *r, void *ctx))
{
    struct err e = ERR_INIT;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)dup2(in, 0);
    (void)dup2(out, 1);
    close(in);
    close(out);
    (void)setenv("REQUEST_METHOD", "POST", 1);
    if (c->length != NULL)
        (void)setenv("CONTENT_LENGTH", c->length, 1);
    _exit(fcgi_cgi_run(handle, NULL, &e) == 0 ? 0 : 4);
}

/* The child's standard input is a pipe that stays open behind the body unless `ends`: a CGI must not
 * wait for its end. */
static void run(struct cgi *c, bool ends, void (*handle)(struct fcgi_req *r, void *ctx))
{
    int in[2];
    int out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    if (c->short_writes)
        assert_int_equal(fcntl(out[1], F_SETFL, O_NONBLOCK), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(in[1]);
        close(out[0]);
        be_cgi(c, in[0], out[1], handle);
    }
    close(out[1]);
    assert_int_equal(write(in[1], c->in, c->in_size), c->in_size);
    close(in[0]); /* only now: a child that refuses before it reads may have gone */
    if (ends)
        close(in[1]);
    char chunk[1000];
    ssize_t n = 0;
    while ((n = read(out[0], chunk, sizeof chunk)) > 0)
        buf_add(&c->out, chunk, (size_t)n);
    if (!ends)
        close(in[1]);
    close(out[0]);
    assert_int_equal(waitpid(pid, &c->status, 0), pid);
    assert_true(WIFEXITED(c->status));
    c->status = WEXITSTATUS(c->status);
}

#define HEAD "Status: 201 Created\r\nContent-Type: text/plain\r\n\r\n"

static void expect(const char *length, const char *in, bool ends, const char *expected)
{
    struct cgi c = { .length = length, .in = in, .in_size = strlen(in), .out = BUF_INIT(OUT_MAX) };
    run(&c, ends, echo);
    assert_string_equal(c.out.data, expected);
    assert_int_equal(c.status, 0);
    buf_free(&c.out);
}

static void test_a_request_without_a_body(void **state)
{
    (void)state;
    expect(NULL, "", false, HEAD "POST none 0 1:");
    expect("", "", false, HEAD "POST none 0 1:");
    expect("0", "", false, HEAD "POST none 0 1:");
}

/* RFC 3875, section 4.2: no more than CONTENT_LENGTH is read, and no end of file is to be expected. */
static void test_a_body_is_content_length_bytes(void **state)
{
    (void)state;
    expect("20", "twenty bytes of text", false, HEAD "POST none 0 1:twenty bytes of text");
    expect("6", "twenty bytes of text", false, HEAD "POST none 0 1:twenty");
}

static void test_a_short_body_is_cut_off(void **state)
{
    (void)state;
    expect("21", "twenty bytes of text", true, HEAD "POST none 0 1:twenty bytes of text cut");
    expect("1", "", true, HEAD "POST none 0 1: cut");
}

static void test_a_senseless_length_is_cut_off(void **state)
{
    (void)state;
    expect("-1", "x", false, HEAD "POST none 0 1: cut");
    expect("1x", "x", false, HEAD "POST none 0 1: cut");
    expect("99999999999999999999", "x", false, HEAD "POST none 0 1: cut");
}

static void test_an_answer_larger_than_a_pipe_is_written_whole(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cgi c = { .in = "", .out = BUF_INIT(OUT_MAX), .short_writes = i == 1 };
        run(&c, true, answer_big);
        assert_int_equal(c.out.len, 15 + BIG);
        assert_int_equal(c.status, 0);
        for (size_t k = 0; k < BIG; k++)
            if (c.out.data[15 + k] != (char)('a' + k % 23))
                fail_msg("byte %zu", k);
        buf_free(&c.out);
    }
}

/* Apache's mod_cgid has one socket for both ways: when it closes with bytes in it that nobody read, the answer is lost
 * with them. */
static void test_a_body_that_nobody_wanted_does_not_cost_the_answer(void **state)
{
    (void)state;
    static const char BODY[50000];
    char chunk[1000];
    size_t got = 0;
    ssize_t n = 0;
    int status = 0;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(write(pair[0], BODY, sizeof BODY), sizeof BODY);
    pid_t pid = fork();
    if (pid == 0) {
        struct cgi c = { .length = "50000" };
        be_cgi(&c, pair[1], pair[1], answer_big);
    }
    close(pair[1]);
    while ((n = read(pair[0], chunk, sizeof chunk)) > 0)
        got += (size_t)n;
    assert_int_equal(n, 0); /* ECONNRESET else */
    assert_int_equal(got, 15 + BIG);
    close(pair[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_handler_that_does_not_answer_is_an_error(void **state)
{
    (void)state;
    struct cgi c = { .in = "", .out = BUF_INIT(OUT_MAX) };
    run(&c, true, say_nothing);
    assert_int_equal(c.status, 4);
    assert_int_equal(c.out.len, 0);
}

static void test_a_reader_that_is_gone_is_an_error_and_no_signal(void **state)
{
    (void)state;
    int out[2];
    int status = 0;
    assert_int_equal(pipe(out), 0);
    close(out[0]);
    pid_t pid = fork();
    if (pid == 0) {
        struct cgi c = { .length = NULL };
        be_cgi(&c, open("/dev/null", O_RDONLY | O_CLOEXEC), out[1], answer_big);
    }
    close(out[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 4);
}

/* --- how it was started: reference section 2, item 14 --- */

enum stdin_kind { IN_NULL, IN_PIPE, IN_CLOSED, IN_CONNECTED, IN_LISTENING, IN__COUNT };

static void become_stdin(enum stdin_kind kind)
{
    int fds[2] = { -1, -1 };
    const struct sockaddr_un any = { .sun_family = AF_UNIX };
    close(0);
    switch (kind) {
    case IN_NULL:
        (void)!open("/dev/null", O_RDONLY);
        break;
    case IN_PIPE:
        (void)!pipe(fds);
        break;
    case IN_CONNECTED:
        (void)socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
        break;
    case IN_LISTENING:
        fds[0] = socket(AF_UNIX, SOCK_STREAM, 0);
        (void)bind(fds[0], (const struct sockaddr *)&any, sizeof any.sun_family);
        (void)listen(fds[0], 1);
        break;
    case IN_CLOSED:
    case IN__COUNT:
        break;
    }
}

static enum fcgi_start started(enum stdin_kind kind, const char *variable)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)unsetenv("GATEWAY_INTERFACE");
        (void)unsetenv("REQUEST_METHOD");
        if (variable != NULL)
            (void)setenv(variable, "CGI/1.1", 1);
        become_stdin(kind);
        _exit((int)fcgi_how_started());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (enum fcgi_start)WEXITSTATUS(status);
}

static void test_how_it_was_started(void **state)
{
    (void)state;
    for (int kind = 0; kind < IN__COUNT; kind++) {
        bool listens = kind == IN_LISTENING;
        enum stdin_kind in = (enum stdin_kind)kind;
        assert_int_equal(started(in, NULL), listens ? FCGI_START_SOCKET : FCGI_START_COMMAND);
        assert_int_equal(
            started(in, "GATEWAY_INTERFACE"), listens ? FCGI_START_SOCKET : FCGI_START_CGI);
        assert_int_equal(
            started(in, "REQUEST_METHOD"), listens ? FCGI_START_SOCKET : FCGI_START_CGI);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_without_a_body),
        cmocka_unit_test(test_a_body_is_content_length_bytes),
        cmocka_unit_test(test_a_short_body_is_cut_off),
        cmocka_unit_test(test_a_senseless_length_is_cut_off),
        cmocka_unit_test(test_an_answer_larger_than_a_pipe_is_written_whole),
        cmocka_unit_test(test_a_body_that_nobody_wanted_does_not_cost_the_answer),
        cmocka_unit_test(test_a_handler_that_does_not_answer_is_an_error),
        cmocka_unit_test(test_a_reader_that_is_gone_is_an_error_and_no_signal),
        cmocka_unit_test(test_how_it_was_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
