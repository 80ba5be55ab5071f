/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KEY_H
#define WB_KEY_H

/* Keys of loads and copies: any UTF-8 but control characters and dot segments, 1 to 255 bytes.
 * Operations contract, section 5, last paragraph. Pure. */
#include <stdbool.h>

#include "base/err.h"

enum { KEY_MAX_BYTES = 255 };

/* 0, or -1 with ERR_INVALID that says what is wrong with the key (dot segments are "." and ".."
 * between slashes or as the whole key). */
int key_check(const char *key, struct err *e) WARN_UNUSED;
/* The same of a text that is called something else. */
int key_check_named(const char *name, const char *key, struct err *e) WARN_UNUSED;

#endif
