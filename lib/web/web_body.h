/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WEB_BODY_H
#define WB_WEB_BODY_H

/* The body of a request, as the flags of its route want it. */
#include <stdint.h>

#include "base/err.h"
#include "fcgi/fcgi_req.h"
#include "json/jx.h"

/* *out is the caller's; NULL when there is no body or the route takes none. Failures: ERR_NO_LENGTH
 * (required, or chunked, and no CONTENT_LENGTH), ERR_TOO_LARGE (over REQUEST_BODY_MAX),
 * ERR_MEDIA_TYPE (not application/json), ERR_INVALID (malformed, or not as long as announced: then
 * nothing may be done for it). */
int web_body_read(struct fcgi_req *r, unsigned flags, json_object **out, struct err *e) WARN_UNUSED;

/* The body as the web server spooled it, when the route takes files: an ordinary file, open for reading, the caller's.
 * Failures: ERR_INVALID (there is no body), ERR_UNAVAILABLE, ERR_INTERNAL. */
int web_body_spooled(struct fcgi_req *r, int *out, int64_t *size, struct err *e) WARN_UNUSED;

#endif
