/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MULTIPART_H
#define WB_MULTIPART_H

/* A multipart/form-data body (RFC 7578, RFC 2046 section 5.1) that lies in a file, part by part: where each is, without
 * reading it into memory. A reader is a plain value; one thread at a time. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70,
    MULTIPART_NAME_SIZE = 64,
    MULTIPART_FILENAME_SIZE = 1024,
    MULTIPART_HEADERS_MAX = 8192
};

struct multipart {
    int fd; /* borrowed */
    int64_t size;
    int64_t at;                                 /* behind the delimiter that was read last */
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CRLF, --, boundary */
};

/* content_type: the header of the whole, or NULL. Failures: ERR_MEDIA_TYPE (no form), ERR_INVALID (no part begins),
 * ERR_UNAVAILABLE (the file cannot be read). */
int multipart_open(
    struct multipart *m, int fd, int64_t size, const char *content_type, struct err *e) WARN_UNUSED;

struct multipart_part {
    char name[MULTIPART_NAME_SIZE];
    char filename[MULTIPART_FILENAME_SIZE]; /* as sent, to be judged; "" none */
    int64_t offset;                         /* of what it holds, in the file */
    int64_t size;
};

/* 1: there are no more. ERR_INVALID: malformed, or cut off. */
int multipart_next(struct multipart *m, struct multipart_part *out, struct err *e) WARN_UNUSED;

/* --- what needs no file; also for fuzzing --- */

/* The boundary that a Content-Type names. ERR_MEDIA_TYPE. */
int multipart_boundary(
    const char *content_type, char out[MULTIPART_BOUNDARY_MAX + 1], struct err *e) WARN_UNUSED;

/* Name and filename out of a part's headers: size bytes, up to and with the last CRLF. ERR_INVALID. */
int multipart_headers(
    const char *text, size_t size, struct multipart_part *out, struct err *e) WARN_UNUSED;

#endif
