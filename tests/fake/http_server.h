/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_HTTP_SERVER_H
#define WB_TEST_HTTP_SERVER_H

/* A server that does what the test wrote down: it reads one whole request for each step and answers
 * with the step's bytes. Listens on a free port of loopback, or on a unix socket in a folder of its
 * own. Failures end the test. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum http_step_kind {
    HTTP_STEP_ANSWER, /* bytes as they are; the connection stays */
    HTTP_STEP_LAST,   /* bytes, then the connection is closed */
    HTTP_STEP_DROP,   /* closes without a word */
    HTTP_STEP_HOLD    /* says nothing until the client gives up */
};

struct http_step {
    enum http_step_kind kind;
    const char *bytes;
};

struct http_server {
    char url[64];         /* http://127.0.0.1:port, or http://server for a unix socket */
    char unix_socket[96]; /* "" for a port */
    const struct http_step *steps;
    size_t n;
    size_t done;      /* steps taken */
    int connections;  /* accepted */
    struct buf heard; /* all requests, one after the other */
    int holding_fd;   /* written to once a step holds */
    int listen_fd;
    pthread_t thread;
    char dir[64];
};

void http_server_open(
    struct http_server *s, const struct http_step *steps, size_t n, bool unix_socket);

/* Waits until a step holds. */
void http_server_wait_held(struct http_server *s);

/* Waits until all steps were taken and ends; then done, connections and heard may be read. */
void http_server_close(struct http_server *s);
void http_server_free(struct http_server *s);

/* How often text stands in what was heard. */
int http_server_heard(const struct http_server *s, const char *text);

#endif
