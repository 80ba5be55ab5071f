/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"

enum { HANG_MS = 30000, HEARD_MAX = 1 << 20, CHUNK = 4096 };

/* Bytes of body that the head, which ends at end, tells of. */
static size_t told_length(const char *head, const char *end)
{
    for (const char *line = head; line < end; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, "content-length:", 15) == 0)
            return (size_t)strtoul(line + 15, NULL, 10);
    }
    return 0;
}

/* Appends one whole request to heard: false at the end of the connection. */
static bool read_request(struct http_server *s, int fd)
{
    const size_t start = s->heard.len;
    for (;;) {
        const char *head = s->heard.data == NULL ? "" : s->heard.data + start;
        const char *end = strstr(head, "\r\n\r\n");
        if (end != NULL &&
            s->heard.len - start >= (size_t)(end + 4 - head) + told_length(head, end))
            return true;
        char *room = buf_room(&s->heard, CHUNK);
        assert_non_null(room);
        if (wait_fd(fd, POLLIN, clock_deadline(HANG_MS)) != 1)
            return false;
        ssize_t n = read(fd, room, CHUNK);
        if (n <= 0)
            return false;
        buf_grew(&s->heard, (size_t)n);
    }
}

static void hold(const struct http_server *s, int fd)
{
    char c;
    const uint64_t one = 1;
    assert_int_equal(write(s->holding_fd, &one, sizeof one), sizeof one);
    assert_int_equal(wait_fd(fd, POLLIN, clock_deadline(HANG_MS)), 1);
    assert_true(read(fd, &c, 1) <= 0);
}

/* True while the connection goes on. */
static bool take(struct http_server *s, int fd)
{
    const struct http_step *step = &s->steps[s->done++];
    if (step->kind == HTTP_STEP_HOLD)
        hold(s, fd);
    if (step->kind != HTTP_STEP_ANSWER && step->kind != HTTP_STEP_LAST)
        return false;
    /* A client may have gone, or have had enough of a large answer. */
    (void)send(fd, step->bytes, strlen(step->bytes), MSG_NOSIGNAL);
    return step->kind == HTTP_STEP_ANSWER;
}

static void *serve(void *arg)
{
    struct http_server *s = arg;
    while (s->done < s->n) {
        if (wait_fd(s->listen_fd, POLLIN, clock_deadline(HANG_MS)) != 1)
            break;
        cleanup_fd int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        s->connections++;
        while (s->done < s->n && read_request(s, fd) && take(s, fd)) {
        }
    }
    return NULL;
}

static void listen_unix(struct http_server *s)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    (void)str_copy(s->dir, sizeof s->dir, "/tmp/wb-http-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    (void)str_format(s->unix_socket, sizeof s->unix_socket, "%s/s", s->dir);
    (void)str_copy(a.sun_path, sizeof a.sun_path, s->unix_socket);
    (void)str_copy(s->url, sizeof s->url, "http://server");
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listen_fd, (const struct sockaddr *)&a, sizeof a), 0);
}

static void listen_port(struct http_server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof a;
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listen_fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(s->listen_fd, (struct sockaddr *)&a, &size), 0);
    (void)str_format(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(a.sin_port));
}

void http_server_open(
    struct http_server *s, const struct http_step *steps, size_t n, bool unix_socket)
{
    *s = (struct http_server){ .steps = steps, .n = n, .heard = BUF_INIT(HEARD_MAX) };
    (void)setenv("no_proxy", "*", 1); /* loopback, wherever the tests run */
    s->holding_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(s->holding_fd >= 0);
    if (unix_socket)
        listen_unix(s);
    else
        listen_port(s);
    assert_int_equal(listen(s->listen_fd, 8), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

void http_server_wait_held(struct http_server *s)
{
    assert_int_equal(wait_fd(s->holding_fd, POLLIN, clock_deadline(HANG_MS)), 1);
}

void http_server_close(struct http_server *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    assert_int_equal(s->done, s->n);
    close(s->listen_fd);
    close(s->holding_fd);
    if (s->dir[0] != '\0') {
        (void)unlink(s->unix_socket);
        (void)rmdir(s->dir);
    }
}

void http_server_free(struct http_server *s)
{
    buf_free(&s->heard);
}

int http_server_heard(const struct http_server *s, const char *text)
{
    int n = 0;
    const char *p = s->heard.data;
    const char *end = p == NULL ? p : p + s->heard.len;
    while (p != end) { /* bodies may hold NULs */
        const char *found = memmem(p, (size_t)(end - p), text, strlen(text));
        if (found == NULL)
            break;
        n++;
        p = found + strlen(text);
    }
    return n;
}
