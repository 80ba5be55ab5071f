/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/openai_error.h"

#include <string.h>

#include "base/str.h"
#include "web/reply.h"

/* The field that an error's text begins with, in room; NULL when it begins with none. */
static const char *field_of(const struct err *e, char room[64])
{
    const size_t n =
        strspn(e->msg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if ((e->code != ERR_INVALID && e->code != ERR_FORBIDDEN) || n == 0 || n >= 64 ||
        strncmp(e->msg + n, ": ", 2) != 0)
        return NULL;
    (void)str_format(room, 64, "%.*s", (int)n, e->msg);
    return room;
}

json_object *openai_error(const struct err *e)
{
    char room[64];
    const bool ours = e->code == ERR_TIMEOUT || e->code == ERR_UNAVAILABLE ||
                      e->code == ERR_NO_ROOM || e->code == ERR_NOT_DONE || e->code == ERR_INTERNAL;
    json_object *error = jx_object();
    json_object *o = jx_object();
    jx_set_str(error, "message", reply_error_text(e));
    jx_set_str(error, "type", ours ? "server_error" : "invalid_request_error");
    jx_set_str(error, "param", field_of(e, room));
    jx_set_str(error, "code", err_name(e->code));
    jx_set(o, "error", error);
    return o;
}
