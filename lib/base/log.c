/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

/* A line is at most PIPE_BUF bytes: one write(2) of it to a pipe is whole among other writers. */
enum { LINE_SIZE = 4096, TAIL_SIZE = 256, STALL_MS = 100, PROGRAM_SIZE = 64 };

/* Kept for what ends a value that is cut ("…" and the quote, twice) and for the newline. */
enum { ENDING_SIZE = 16 };
static const char ELLIPSIS[] = "…";

struct line {
    char text[LINE_SIZE];
    size_t len;
    size_t limit;
    bool cut;
};

static struct {
    char program[PROGRAM_SIZE];
    enum log_level level;
    bool journal;
} setup = { .program = "", .level = LOG_INFO, .journal = false };

static _Atomic int64_t dropped;
static _Thread_local const char *request;
static _Thread_local const char *job;

static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM"); /* device:inode */
    struct stat st;
    char own[64];

    if (!stream || fstat(STDERR_FILENO, &st) != 0)
        return false;
    (void)str_format(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(own, stream) == 0;
}

void log_setup(const char *program, enum log_level level)
{
    (void)str_copy(setup.program, sizeof setup.program, program);
    setup.level = level;
    setup.journal = stderr_is_journal();
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_ERROR:
        return "error";
    case LOG_WARN:
        return "warn";
    case LOG_INFO:
        return "info";
    case LOG_DEBUG:
        return "debug";
    }
    return "unknown";
}

int log_level_parse(const char *text, enum log_level *out)
{
    static const enum log_level ALL[] = { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        if (strcmp(text, level_name(ALL[i])) == 0) {
            *out = ALL[i];
            return 0;
        }
    }
    return -1;
}

void log_set_request(const char *request_id)
{
    request = request_id;
}

void log_set_job(const char *job_id)
{
    job = job_id;
}

/* Adds a piece that must stay whole; the first that does not fit ends the line's body visibly. */
static void put(struct line *l, const char *piece, size_t size)
{
    if (l->cut)
        return;
    if (l->len + size > l->limit) {
        l->cut = true;
        piece = ELLIPSIS;
        size = sizeof ELLIPSIS - 1;
    }
    memcpy(l->text + l->len, piece, size);
    l->len += size;
}

static void put_text(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

static bool is_plain(const char *text)
{
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text <= ' ' || *text > '~' || strchr("=\"\\", *text))
            return false;
    }
    return true;
}

static const char *short_escape(char c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

/* Adds the character at text, escaped where it could forge a line or steer a terminal (C0, DEL, C1)
 * or is no UTF-8. Returns its size in bytes. */
static size_t put_char(struct line *l, const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t step = str_utf8_char(text, size);
    const char *named = short_escape(*text);
    char escape[8];

    if (named)
        put_text(l, named);
    else if (step == 0 || p[0] < ' ' || p[0] == 0x7F) {
        (void)str_format(escape, sizeof escape, "\\x%02x", p[0]);
        put_text(l, escape);
    } else if (p[0] == 0xC2 && p[1] < 0xA0) {
        (void)str_format(escape, sizeof escape, "\\u%04x", p[1]);
        put_text(l, escape);
    } else
        put(l, text, step);
    return step ? step : 1;
}

static void put_value(struct line *l, const char *text)
{
    size_t size = strlen(text);

    if (is_plain(text)) {
        for (size_t i = 0; i < size && !l->cut; i++)
            put(l, text + i, 1);
        return;
    }
    put_text(l, "\"");
    if (l->cut)
        return;
    for (size_t i = 0; i < size && !l->cut;)
        i += put_char(l, text + i, size - i);
    l->text[l->len++] = '"';
}

static void put_pair(struct line *l, const char *key, const char *text)
{
    put_text(l, " ");
    put_text(l, key);
    put_text(l, "=");
    if (!l->cut)
        put_value(l, text);
}

static void put_number(struct line *l, const char *key, int64_t number)
{
    char digits[24];

    (void)str_format(digits, sizeof digits, "%" PRId64, number);
    put_pair(l, key, digits);
}

/* A journal has priorities and stamps of its own; for all others a stamp is printed. */
static void put_head(struct line *l, enum log_level level)
{
    char head[64] = "";

    if (setup.journal) {
        (void)str_format(head, sizeof head, "<%d>level=", (int)level);
    } else {
        int64_t now_us = clock_wall_us();
        time_t seconds = (time_t)(now_us / US_PER_S);
        struct tm utc;
        char stamp[32] = "";
        if (gmtime_r(&seconds, &utc))
            (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
        (void)str_format(
            head, sizeof head, "ts=%s.%03dZ level=", stamp, (int)(now_us % US_PER_S / US_PER_MS));
    }
    put_text(l, head);
    put_text(l, level_name(level));
    if (*setup.program)
        put_pair(l, "program", setup.program);
}

/* A reader of stderr that does not read must not stop the service: the line is dropped and counted
 * when there is no room for it in time, at once if there was none for the line before. A pipe that
 * poll(2) calls writable has room for a whole line; a gone reader shows as an error without room. */
static bool write_line(const char *text, size_t size)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT, .revents = 0 };
    int n = 0;

    do
        n = poll(&p, 1, atomic_load(&dropped) ? 0 : STALL_MS);
    while (n < 0 && errno == EINTR);
    return n == 1 && !(p.revents & (POLLERR | POLLNVAL)) &&
           write(STDERR_FILENO, text, size) == (ssize_t)size;
}

void log_emit(enum log_level level, const struct log_kv *kvs)
{
    int saved_errno = errno;
    struct line l; /* not zeroed: most calls are for lines that are not written */

    if (level > setup.level)
        return;
    l.len = 0;
    l.limit = LINE_SIZE - TAIL_SIZE - ENDING_SIZE;
    l.cut = false;
    put_head(&l, level);
    for (; kvs->key; kvs++) {
        if (kvs->text)
            put_pair(&l, kvs->key, kvs->text);
        else
            put_number(&l, kvs->key, kvs->number);
    }
    l.cut = false;
    l.limit = LINE_SIZE - ENDING_SIZE;
    int64_t lost = atomic_load(&dropped);
    if (lost)
        put_number(&l, "dropped", lost);
    if (request)
        put_pair(&l, "request_id", request);
    if (job)
        put_pair(&l, "job_id", job);
    l.text[l.len++] = '\n';
    if (write_line(l.text, l.len))
        atomic_fetch_sub(&dropped, lost);
    else
        atomic_fetch_add(&dropped, 1);
    errno = saved_errno;
}
