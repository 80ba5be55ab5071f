/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KV_URL_H
#define WB_KV_URL_H

/* Where Redis is, read from a url:
 *
 *     unix:/path/of/socket
 *     host:port                          numeric address or name; [::1]:6379 for IPv6
 *     redis://[:password@]host[:port][/db]     port 6379, db 0 when not given
 *
 * The password is percent-decoded, so that it may hold '@', '/' and '%'. A name is looked up by the
 * system's resolver, which may block past a deadline: numeric addresses are the better choice.
 * Pure. */
#include <stdint.h>

#include "base/err.h"

enum { KV_PORT = 6379, KV_DB_MAX = 1000000 };

struct kv_url {
    char *path;     /* of the unix socket, or NULL */
    char *host;     /* or NULL */
    char *password; /* or NULL */
    int64_t port;
    int64_t db;
};

#define KV_URL_INIT \
    { \
        .path = NULL, .host = NULL, .password = NULL, .port = 0, .db = 0 \
    }

/* 0, or -1 with ERR_INVALID and what is wrong. No text quotes the url: it may hold a password. */
int kv_url_parse(const char *url, struct kv_url *out, struct err *e) WARN_UNUSED;
void kv_url_free(struct kv_url *u); /* wipes the password */
#define cleanup_kv_url __attribute__((cleanup(kv_url_free)))

#endif
