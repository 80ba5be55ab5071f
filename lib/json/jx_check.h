/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_CHECK_H
#define WB_JX_CHECK_H

/* A walk over the tokens of a JSON text that refuses what json-c lets through. It does not look at
 * how tokens follow each other: json-c does that well. Pure. */
#include <stddef.h>

#include "base/err.h"

/* 0 when every token of text is one of RFC 8259, no string holds U+0000, a raw control character or
 * half a surrogate pair, and nothing is nested deeper than depth_max; *members is then the number of
 * colons, which is the number of object members in text that json-c accepts. -1 with ERR_INVALID and
 * the place otherwise. */
int jx_check(
    const char *text, size_t size, size_t depth_max, size_t *members, struct err *e) WARN_UNUSED;

#endif
