/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_CHILD_SERVER_H
#define WB_TEST_CHILD_SERVER_H

/* A double of a foreign API (tests/fake/fake_*.py) as a child process, and how a test scripts and looks
 * at it. It ends with the test. Where there is no /usr/bin/python3 the test program is skipped. Failures
 * end the test. */
#include <json-c/json.h>
#include <stdint.h>
#include <sys/types.h>

#include "http/http.h"

struct child_server {
    char url[64]; /* http://127.0.0.1:port; https:// with --tls */
    pid_t pid;
    int in_fd; /* its standard input: closed, it ends */
    struct http *http;
};

/* script: "fake_lambda.py"; args: NULL-terminated, or NULL. */
void child_server_open(struct child_server *s, const char *script, const char *const args[]);
void child_server_close(struct child_server *s);

/* Its orders, see fake_api.py: JSON with ' for ". */
void child_server_order(struct child_server *s, const char *order);

/* GET /_state; the caller's. */
json_object *child_server_state(struct child_server *s);

/* A number of its state. */
int64_t child_server_number(struct child_server *s, const char *name);

/* How many requests it had of that method whose path begins so. */
int child_server_requests(struct child_server *s, const char *method, const char *path);

/* The body of the last of them, as plain JSON text; the caller's. */
char *child_server_body(struct child_server *s, const char *method, const char *path);

#endif
