/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KV_INTERNAL_H
#define WB_KV_INTERNAL_H

/* The connection behind kv.h, for the files of this folder. hiredis formats and parses; waiting is
 * done here, because its own timeouts are per system call and not per call of ours. */
#include <hiredis/hiredis.h>

#include "base/cleanup.h"
#include "kv/kv.h"
#include "kv/kv_url.h"

enum { KV_READ_MAX = 64 * 1024 };

struct kv {
    struct kv_url url;
    struct err no_url; /* why there is no url to connect to; ERR_OK when there is one */
    char *name;
    int64_t timeout_ms;
    struct breaker *breaker;
    int64_t set_deadline_ns;  /* by kv_set_deadline(); 0: timeout_ms counts */
    int64_t deadline_ns;      /* of the call or pipeline in hand */
    int64_t patient_until_ns; /* by kv_be_patient(); 0: not */
    char *in;                 /* KV_READ_MAX bytes: what is read at once */
    redisContext *context;    /* NULL: not connected */
    size_t due;               /* replies of a pipeline that were not taken yet */
    bool gone;                /* the last failure was the peer closing */
    const char **argv;        /* the command being put together: kv_argv_add() */
    size_t *argv_size;
    size_t argv_n;
    size_t argv_cap;
};

void kv_argv_clear(struct kv *kv);
void kv_argv_add(struct kv *kv, struct kv_arg a);
void kv_argv_add_all(struct kv *kv, struct kv_args a);

/* Starts a call: asks the breaker, sets the deadline, drops a connection whose last pipeline was
 * left half taken. */
int kv_begin(struct kv *kv, struct err *e) WARN_UNUSED;

/* Sends the command put together and hands out its reply, error replies too. Connects as needed; a
 * connection that had been idle and turns out closed is replaced once. Tells the breaker. */
int kv_round(struct kv *kv, redisReply **out, struct err *e) WARN_UNUSED;

/* Closes the connection. The next call makes a new one. */
void kv_drop(struct kv *kv);

/* 1 with a reply that is complete in what was read, 0 when more must be read, -1. */
int kv_buffered(struct kv *kv, redisReply **out, struct err *e) WARN_UNUSED;

/* Reads what there is to read, after poll() said so. */
int kv_read(struct kv *kv, struct err *e) WARN_UNUSED;

/* True when an error reply begins with that word. */
bool kv_reply_says(const redisReply *r, const char *word);

#endif
