/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

enum { HANG_GUARD_MS = 20000 };

static void must(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

static int unix_socket(const char *path, int bound)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    (void)str_copy(a.sun_path, sizeof a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0, "socket");
    int rc = bound ? bind(fd, (const struct sockaddr *)&a, sizeof a)
                   : connect(fd, (const struct sockaddr *)&a, sizeof a);
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0, "bind");
    must(getsockname(fd, (struct sockaddr *)&a, &size) == 0, "getsockname");
    close(fd);
    return ntohs(a.sin_port);
}

static void run_server(const struct redis_server *s)
{
    char port[16];
    char log[96];
    (void)str_format(port, sizeof port, "%d", s->port);
    (void)str_format(log, sizeof log, "%s/log", s->dir);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1",
        "--unixsocket", s->socket, "--save", "", "--appendonly", "no", "--dir", s->dir, "--logfile",
        log, "--requirepass", s->password == NULL ? "" : s->password, (char *)NULL);
    perror("redis-server");
    _exit(127);
}

void redis_server_start(struct redis_server *s)
{
    (void)unlink(s->socket);
    s->pid = fork();
    must(s->pid >= 0, "fork");
    if (s->pid == 0)
        run_server(s);
    int64_t guard = clock_deadline(HANG_GUARD_MS);
    for (;;) {
        int fd = unix_socket(s->socket, 0);
        if (fd >= 0) {
            close(fd);
            return;
        }
        must(waitpid(s->pid, NULL, WNOHANG) == 0 && clock_left_ms(guard) > 0, "redis-server");
        (void)poll(NULL, 0, 5);
    }
}

void redis_server_open(struct redis_server *s, const char *password)
{
    *s = (struct redis_server){ .dir = "/tmp/wb-redis-XXXXXX", .password = password };
    must(mkdtemp(s->dir) != NULL, "mkdtemp");
    (void)str_format(s->socket, sizeof s->socket, "%s/redis.sock", s->dir);
    (void)str_format(s->url, sizeof s->url, "unix:%s", s->socket);
    if (password != NULL) {
        s->port = free_port();
        (void)str_format(s->tcp, sizeof s->tcp, "127.0.0.1:%d", s->port);
    }
    redis_server_start(s);
}

void redis_server_kill(struct redis_server *s)
{
    if (s->pid <= 0)
        return;
    must(kill(s->pid, SIGKILL) == 0 && waitpid(s->pid, NULL, 0) == s->pid, "kill");
    s->pid = 0;
}

void redis_server_freeze(const struct redis_server *s)
{
    int status = 0;
    must(kill(s->pid, SIGSTOP) == 0 && waitpid(s->pid, &status, WUNTRACED) == s->pid, "freeze");
}

void redis_server_thaw(const struct redis_server *s)
{
    must(kill(s->pid, SIGCONT) == 0, "thaw");
}

void redis_server_close(struct redis_server *s)
{
    char log[96];
    redis_server_kill(s);
    (void)str_format(log, sizeof log, "%s/log", s->dir);
    (void)unlink(log);
    (void)unlink(s->socket);
    (void)rmdir(s->dir);
}

/* --- the fake -------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    const struct fake_redis *f = arg;
    int fd = -1;
    for (size_t i = 0; i < f->n; i++) {
        char request[65536];
        if (fd < 0)
            fd = accept(f->listen_fd, NULL, NULL);
        if (fd < 0)
            break;
        if (f->steps[i] == NULL) {
            close(fd);
            fd = -1;
            continue;
        }
        if (read(fd, request, sizeof request) <= 0)
            break;
        size_t size = strlen(f->steps[i]);
        must(send(fd, f->steps[i], size, MSG_NOSIGNAL) == (ssize_t)size, "send");
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

void fake_redis_open(struct fake_redis *f, const char *const *steps, size_t n)
{
    char path[96];
    *f = (struct fake_redis){ .dir = "/tmp/wb-fake-XXXXXX", .steps = steps, .n = n };
    must(mkdtemp(f->dir) != NULL, "mkdtemp");
    (void)str_format(path, sizeof path, "%s/s", f->dir);
    (void)str_format(f->url, sizeof f->url, "unix:%s", path);
    f->listen_fd = unix_socket(path, 1);
    must(f->listen_fd >= 0 && listen(f->listen_fd, 8) == 0, "listen");
    must(pthread_create(&f->thread, NULL, serve, f) == 0, "pthread_create");
}

void fake_redis_close(struct fake_redis *f)
{
    char path[96];
    (void)pthread_join(f->thread, NULL);
    close(f->listen_fd);
    (void)str_format(path, sizeof path, "%s/s", f->dir);
    (void)unlink(path);
    (void)rmdir(f->dir);
}
