/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kv/kv_internal.h"

/* What Redis means by the first word of an error, for who has to put it right. */
static const struct {
    const char *word;
    enum err_code code;
    const char *text;
} REFUSALS[] = {
    { "LOADING", ERR_UNAVAILABLE,
        "redis is still loading its data (LOADING): try again in a moment" },
    { "MASTERDOWN", ERR_UNAVAILABLE,
        "redis is a replica that has lost its primary (MASTERDOWN): name the primary in [redis] url" },
    { "READONLY", ERR_UNAVAILABLE,
        "redis is a read-only replica (READONLY): name the primary in [redis] url" },
    { "OOM", ERR_UNAVAILABLE, "redis is out of memory (OOM): raise its maxmemory" },
    { "MISCONF", ERR_UNAVAILABLE,
        "redis cannot save to its disk and takes no writes (MISCONF): its log says why" },
    { "NOREPLICAS", ERR_UNAVAILABLE,
        "redis has too few replicas to take writes (NOREPLICAS): see its min-replicas-to-write" },
    { "BUSY", ERR_UNAVAILABLE,
        "redis is busy with a script of somebody's (BUSY): SCRIPT KILL ends it" },
    { "NOAUTH", ERR_UNAVAILABLE, "redis wants a password (NOAUTH): give it in [redis] url" },
    { "NOPERM", ERR_UNAVAILABLE, "redis does not let its user do this (NOPERM): see its ACL" },
    { "MOVED", ERR_UNAVAILABLE, "redis is a cluster (MOVED): name a single server in [redis] url" },
    { "CLUSTERDOWN", ERR_UNAVAILABLE,
        "redis is a cluster (CLUSTERDOWN): name a single server in [redis] url" },
};

bool kv_reply_says(const redisReply *r, const char *word)
{
    size_t size = strlen(word);
    return r->type == REDIS_REPLY_ERROR && r->len >= size && memcmp(r->str, word, size) == 0 &&
           (r->len == size || r->str[size] == ' ');
}

/* Bytes of an error without what Redis adds when it came of a script: ` script: <sha>, on @user_script:1.` */
static int told(const redisReply *r)
{
    const char *script = memmem(r->str, r->len, " script: ", 9);
    return (int)(script == NULL ? r->len : (size_t)(script - r->str));
}

int kv_refused(const redisReply *r, struct err *e)
{
    for (size_t i = 0; i < sizeof REFUSALS / sizeof REFUSALS[0]; i++)
        if (kv_reply_says(r, REFUSALS[i].word))
            return err_set(e, REFUSALS[i].code, "%s", REFUSALS[i].text);
    return err_set(e, ERR_INTERNAL, "redis: %.*s", told(r), r->str);
}
