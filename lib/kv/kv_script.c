/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/sha.h>
#include <string.h>

#include "base/str.h"
#include "kv/kv_internal.h"

enum { SHA_EMPTY, SHA_FILLING, SHA_READY };

/* The SHA-1 by which Redis knows the script. Threads that come while another fills it in compute it
 * for themselves. */
static void script_sha(struct kv_script *s, char out[KV_SHA_SIZE])
{
    if (atomic_load_explicit(&s->state, memory_order_acquire) == SHA_READY) {
        memcpy(out, s->sha, KV_SHA_SIZE);
        return;
    }
    unsigned char digest[SHA_DIGEST_LENGTH];
    (void)SHA1((const unsigned char *)s->text, strlen(s->text), digest);
    str_hex(out, digest, sizeof digest);
    int empty = SHA_EMPTY;
    if (atomic_compare_exchange_strong(&s->state, &empty, SHA_FILLING)) {
        memcpy(s->sha, out, KV_SHA_SIZE);
        atomic_store_explicit(&s->state, SHA_READY, memory_order_release);
    }
}

struct script_call {
    const char *verb;   /* EVALSHA or EVAL */
    const char *script; /* digest or text */
    struct kv_args keys;
    struct kv_args args;
};

static int run(struct kv *kv, const struct script_call *c, redisReply **out, struct err *e)
{
    char n[24];
    (void)str_format(n, sizeof n, "%zu", c->keys.n);
    kv_argv_clear(kv);
    kv_argv_add(kv, kv_text(c->verb));
    kv_argv_add(kv, kv_text(c->script));
    kv_argv_add(kv, kv_text(n));
    kv_argv_add_all(kv, c->keys);
    kv_argv_add_all(kv, c->args);
    return kv_round(kv, out, e);
}

int kv_script_run(struct kv *kv, struct kv_script *s, struct kv_args keys, struct kv_args args,
    redisReply **out, struct err *e)
{
    char sha[KV_SHA_SIZE];
    script_sha(s, sha);
    struct script_call call = { .verb = "EVALSHA", .script = sha, .keys = keys, .args = args };
    cleanup_reply redisReply *r = NULL;
    if (run(kv, &call, &r, e) < 0)
        return -1;
    if (kv_reply_says(r, "NOSCRIPT")) {
        kv_reply_free_p(&r);
        r = NULL;
        call.verb = "EVAL";
        call.script = s->text;
        if (run(kv, &call, &r, e) < 0)
            return -1;
    }
    if (r->type == REDIS_REPLY_ERROR)
        return kv_refused(r, e);
    *out = STEAL(r);
    return 0;
}
