/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AUTH_H
#define WB_AUTH_H

/* Who calls. Tokens are kept as sha256 in a file, `hex role subject` a line, '#' comments; compared in
 * constant time over all of them. design.md, "Authentication". */
#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "web/route.h"

enum { AUTH_SUBJECT_SIZE = 128 };

struct auth;
void auth_free(struct auth *a);
/* Reads the token file of conf, if mode is tokens. ERR_FORBIDDEN when there is none: a program refuses to start
 * so. ERR_INVALID: cannot be read, or larger than 1 MiB. */
int auth_read_tokens(const struct conf *conf, struct buf *out, struct err *e) WARN_UNUSED;
enum {
    AUTH_TOKENS_MAX = (1 << 20) + 4096
}; /* of out: the read that finds a file's end needs room too */

/* Makes sense of what a token file holds. ERR_INVALID with the line. */
int auth_make(const struct conf *conf, const struct buf *tokens, struct auth **out,
    struct err *e) WARN_UNUSED;

/* Both. */
int auth_load(const struct conf *conf, struct auth **out, struct err *e) WARN_UNUSED;

struct auth_caller {
    unsigned role; /* one enum web_role, or ROLE_NONE: nobody */
    char subject[AUTH_SUBJECT_SIZE];
};

/* authorization: the header or NULL; remote_user: WB_REMOTE_USER or NULL. ERR_UNAUTHENTICATED for a
 * credential that is there and wrong; no credential is ROLE_NONE (or admin in mode open). */
int auth_check(const struct auth *a, const char *authorization, const char *remote_user,
    struct auth_caller *out, struct err *e) WARN_UNUSED;

/* Is the route open to all, whatever they bring ([auth] anonymous)? Operations contract, section 7. */
bool auth_is_open(const struct auth *a, const struct web_route *route);

/* May the caller use the route? ERR_UNAUTHENTICATED for nobody, ERR_FORBIDDEN for the wrong role. */
int auth_allows(const struct auth *a, const struct auth_caller *c, const struct web_route *route,
    struct err *e) WARN_UNUSED;

#endif
