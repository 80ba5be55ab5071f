/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LIVE_INTERNAL_H
#define WB_LIVE_INTERNAL_H

/* What the overlays of copies (staging.c) and of gallery operations (op_overlay.c) share: their names in
 * Redis, how a value is compared and written, and how all that are live are read. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "json/jx.h"
#include "kv/kv.h"
#include "model/key.h"

#define LIVE_INDEX "wb:1:live"

enum { LIVE_NAME_SIZE = 32 + KEY_MAX_BYTES, LIVE_SENDER_SIZE = 2048 };

/* One kind of overlay. Its struct begins with its key. */
struct live_kind {
    const char *value;  /* prefix of the key of a value */
    const char *ended;  /* and of its sorted set of senders that are refused */
    const char *member; /* and of its member of the index */
    const char *over;   /* what a refused sender is told */
    size_t size;        /* of its struct */
    size_t expires;     /* where expires_ns lies in it */
    int (*check)(const char *key, struct err *e);
    int (*parse)(const char *key, const char *text, size_t size, void *out, json_object **json,
        struct err *e);
};
extern const struct live_kind LIVE_STAGING;
extern const struct live_kind LIVE_OPS;

/* The names of a key in Redis. ERR_INVALID when it is too long. */
struct live_names {
    char value[LIVE_NAME_SIZE];
    char ended[LIVE_NAME_SIZE];
    char member[LIVE_NAME_SIZE];
};
int live_names(
    const struct live_kind *kind, const char *key, struct live_names *n, struct err *e) WARN_UNUSED;

/* --- writing --- */

enum live_step {
    LIVE_WRITE,  /* value is to be stored if what is stored is still what was expected */
    LIVE_REREAD, /* what is stored was guessed, and must be known */
    LIVE_DONE,   /* there is nothing to write */
    LIVE_FAILED  /* with *e set */
};

/* A value in the making. merge makes value and sender of expected and what else it knows; it is called
 * again when what is stored turns out to be something else. */
struct live_put {
    struct kv *kv;
    const struct live_kind *kind;
    struct live_names names;
    bool guessed;           /* expected is a guess */
    struct kv_arg expected; /* what is stored; size 0: nothing */
    struct buf stored;      /* what expected points to when it was read */
    struct buf value;
    char sender[LIVE_SENDER_SIZE]; /* who has to be looked up among the refused; "": nobody */
    enum live_step (*merge)(struct live_put *p, struct err *e);
};

/* A stored value may be anything and must be handed back as it is to be replaced. */
#define LIVE_PUT(kv_, kind_, merge_, max) \
    { \
        .kv = (kv_), .kind = (kind_), .guessed = true, .expected = { .data = "", .size = 0 }, \
        .stored = BUF_INIT(SIZE_MAX / 2), .value = BUF_INIT(max), .merge = (merge_) \
    }
void live_put_free(struct live_put *p);

/* 0 when it was stored, or there was nothing to write. ERR_CONFLICT when the sender is refused. */
int live_put_run(struct live_put *p, const char *key, struct err *e) WARN_UNUSED;

/* Whom an end refuses for 60 s: the session that the value names, its claim too, nobody (who is refused
 * already stays so), or every sender. */
enum live_refused { LIVE_SESSION, LIVE_ALL, LIVE_NOBODY, LIVE_ANYBODY };

/* The sender that stands for every one. */
#define LIVE_ANY_SENDER "any:"

/* Removes the value. Idempotent. */
int live_end(struct kv *kv, const struct live_kind *kind, const char *key,
    enum live_refused refused, struct err *e) WARN_UNUSED;

/* --- reading --- */

/* A list of overlays of one kind, each with what it borrows from. */
struct live_shelf {
    const struct live_kind *kind;
    void *item; /* array of the kind's struct; owned */
    size_t n;
    size_t malformed;
    json_object **json; /* owned, one for each */
};

/* The live value of one key: 1 when there is none. */
int live_get(struct kv *kv, const char *key, struct live_shelf *out, struct err *e) WARN_UNUSED;

/* All that are live, of up to two kinds, each in key order. before: as many lists, which may be empty.
 * The kinds of out are set; all else is filled. */
int live_read(struct kv *kv, const struct live_shelf *before, struct live_shelf *out, size_t kinds,
    struct err *e) WARN_UNUSED;

void live_shelf_free(struct live_shelf *s);

#endif
