/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_REDIS_SERVER_H
#define WB_TEST_REDIS_SERVER_H

/* A real redis-server of a test's own, on a unix socket in a folder of its own under /tmp, that can be
 * stopped, frozen and started again; and a fake that answers what the test wrote down. Failures end
 * the test. */
#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

struct redis_server {
    char dir[64];
    char socket[96];
    char url[128]; /* unix:... */
    char tcp[128]; /* 127.0.0.1:port, when a password was given */
    const char *password;
    int port;
    pid_t pid;
};

/* password: NULL, or one to be asked for; the server then listens on a free port of loopback too. */
void redis_server_open(struct redis_server *s, const char *password);
void redis_server_start(struct redis_server *s); /* after redis_server_kill() */
void redis_server_kill(struct redis_server *s);
void redis_server_freeze(const struct redis_server *s);
void redis_server_thaw(const struct redis_server *s);
void redis_server_close(struct redis_server *s);

/* Answers each read with the next step; NULL closes the connection and awaits the next one. After the
 * last step it closes everything. */
struct fake_redis {
    char dir[64];
    char url[128];
    const char *const *steps;
    size_t n;
    int listen_fd;
    pthread_t thread;
};
void fake_redis_open(struct fake_redis *f, const char *const *steps, size_t n);
void fake_redis_close(struct fake_redis *f); /* waits until all steps were taken */

#endif
