/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOG_H
#define WB_LOG_H

/* Logs: one logfmt line per event on stderr, with a journald priority when stderr is a journal.
 *
 *     log_warn(LOG_MSG("postgres does not answer"), LOG_S("error", e.msg), LOG_I("after_ms", 100));
 *
 * prints `<4>level=warn msg="postgres does not answer" error="..." after_ms=100 request_id=...`.
 * Values are quoted and escaped where needed, so that input cannot forge lines. Lines are written by
 * one write(2) of at most 4096 bytes; longer ones are cut visibly ("…"). Never log a secret or a
 * body. Any thread. */
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_INFO = 6, LOG_DEBUG = 7 };

struct log_kv {
    const char *key;  /* NULL ends the list */
    const char *text; /* NULL: the value is number */
    int64_t number;
};

#define LOG_MSG(t) \
    { \
        .key = "msg", .text = (t), .number = 0 \
    }
#define LOG_S(k, t) \
    { \
        .key = (k), .text = (t), .number = 0 \
    }
#define LOG_I(k, n) \
    { \
        .key = (k), .text = NULL, .number = (int64_t)(n) \
    }
#define LOG_KVS(...) \
    ((const struct log_kv[]){ __VA_ARGS__, { .key = NULL, .text = NULL, .number = 0 } })

#define log_error(...) log_emit(LOG_ERROR, LOG_KVS(__VA_ARGS__))
#define log_warn(...)  log_emit(LOG_WARN, LOG_KVS(__VA_ARGS__))
#define log_info(...)  log_emit(LOG_INFO, LOG_KVS(__VA_ARGS__))
#define log_debug(...) log_emit(LOG_DEBUG, LOG_KVS(__VA_ARGS__))

/* Sets the program name and the least urgent level that is written. Before threads start. */
void log_setup(const char *program, enum log_level level);

/* "error", "warn", "info", "debug" to a level. 0, or -1 for any other text. */
int log_level_parse(const char *text, enum log_level *out);

/* Request id that every line of this thread carries; borrowed until set again; NULL for none. */
void log_set_request(const char *request_id);

/* The same for the id of the job that a planner's thread has in hand. */
void log_set_job(const char *job_id);

void log_emit(enum log_level level, const struct log_kv *kvs);

#endif
