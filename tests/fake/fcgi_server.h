/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_SERVER_H
#define WB_FCGI_SERVER_H

/* fcgi_set_run() in a child process of the test, on a unix socket in a folder of its own, with a
 * handler whose behaviour each request chooses by its parameter DO:
 *   hello            "hello"
 *   size             SIZE bytes
 *   env              the value of the parameter NAME, or "(none)"
 *   hash             reads the body: "<bytes> <sha-256>", or "cut <bytes>" when it was cut off
 *   ignore           answers "ignored" without reading the body
 *   empty            a head without a body, as 204 and 304 have
 *   meet             answers "met" once as many handlers as the server has threads are here at once
 *   hold             says so on entered_fd, and answers "held" when a byte is in release_fd
 *   mute             does not answer at all
 * The child shares its metrics with the test. */
#include <stdint.h>
#include <sys/types.h>

#include "tests/fake/fcgi_client.h"

struct server {
    char dir[64];
    char path[80];
    pid_t pid;
    int listen_fd;
    int entered_fd; /* one byte for each handler that holds */
    int release_fd; /* one byte lets one of them go on */
};

struct server_options {
    int threads;             /* 0: 2 */
    int64_t read_timeout_ms; /* 0: 60 s, longer than the tests' guard: nothing ends by it unasked */
    int64_t drain_ms;        /* 0: 60 s */
    int64_t max_conns;       /* 0: 4096 */
    int spare_fds;           /* > 0: descriptors that the child may have for connections */
    int log_fd;              /* > 0: the child's log goes there */
};

/* Starts it and waits until it is ready. Fails the test otherwise. */
void server_start(struct server *s, const struct server_options *o);
/* Sends it a signal. */
void server_signal(const struct server *s, int sig);
/* Waits for its end, within the guard, and tidies up. Its exit status, 128 + signal when it was killed,
 * -1 when it hangs (it is killed then). */
int server_wait(struct server *s);
/* TERM, and server_wait() must be 0. */
void server_stop(struct server *s);

/* For cmocka: a server with two threads, which is *state; stopped by TERM afterwards. */
int server_setup(void **state);
int server_teardown(void **state);
#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, server_setup, server_teardown)

/* Waits until a metric of the child has the value, within the guard. */
void server_await(int metric, int64_t value);

/* --- requests --- */
int server_connect(const struct server *s);
/* A request of id 1 with DO and up to one more parameter (NULL: none), and its body. */
void server_request(
    struct buf *b, const char *what, const char *name, const char *value, bool keep);
void server_request_body(struct buf *b, const char *what, const void *data, size_t size, bool keep);
/* A request of id 1 with these parameters and no body. */
void server_request_pairs(struct buf *b, const struct buf *pairs, bool keep);
/* Sends b; what comes of it is looked at later. */
void server_send(int fd, const struct buf *b);
/* Sends b and checks that the reply's body is `expected`. */
void server_expect(int fd, const struct buf *b, const char *expected);
/* Reads a reply and checks its form and body. */
void server_expect_reply(int fd, const char *expected);
/* Asks hello on a new connection: the server lives and serves others. */
void server_expect_alive(const struct server *s);
/* The reply's body: what follows the head. */
const char *reply_body(const struct client_reply *r);

#endif
