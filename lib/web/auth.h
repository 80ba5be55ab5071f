/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AUTH_H
#define WB_AUTH_H

/* Who calls. Tokens are kept as sha256 in a file, `hex role subject` a line, '#' comments; compared in
 * constant time over all of them. design.md, "Authentication". */
#include "base/conf.h"
#include "base/err.h"
#include "web/route.h"

enum { AUTH_SUBJECT_SIZE = 128 };

struct auth;
void auth_free(struct auth *a);
/* Reads the token file of conf. ERR_INVALID with the line for a bad one; ERR_FORBIDDEN when mode is
 * tokens and there is no file: a program refuses to start so. */
int auth_load(const struct conf *conf, struct auth **out, struct err *e) WARN_UNUSED;

struct auth_caller {
    unsigned role; /* one enum web_role, or ROLE_NONE: nobody */
    char subject[AUTH_SUBJECT_SIZE];
};

/* authorization: the header or NULL; remote_user: WB_REMOTE_USER or NULL. ERR_UNAUTHENTICATED for a
 * credential that is there and wrong; no credential is ROLE_NONE (or admin in mode open). */
int auth_check(const struct auth *a, const char *authorization, const char *remote_user,
    struct auth_caller *out, struct err *e) WARN_UNUSED;

/* May the caller use the route? ERR_UNAUTHENTICATED for nobody, ERR_FORBIDDEN for the wrong role. */
int auth_allows(const struct auth *a, const struct auth_caller *c, const struct web_route *route,
    struct err *e) WARN_UNUSED;

#endif
