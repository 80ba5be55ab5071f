/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_VERSION_H
#define WB_VERSION_H

/* Dotted-numeric versions of templates: v1.10.0 > v1.9.2 (reference 1.6). Pure. */
#include <stdbool.h>

/* An optional `v`, then numbers of up to 9 digits between dots. */
bool version_is_numeric(const char *text);

/* < 0, 0, > 0. Missing parts count as 0 (1.2 = 1.2.0). What is not dotted-numeric comes before all that is,
 * in byte order. */
int version_compare(const char *a, const char *b);

#endif
