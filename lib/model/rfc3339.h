/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_RFC3339_H
#define WB_RFC3339_H

/* Time as text, always UTC with microseconds: "2026-11-30T16:14:03.123456Z". Pure, any thread. */
#include <stdint.h>

enum { RFC3339_SIZE = 32 };

/* Microseconds since 1970 as text. "" for 0 (unset), for anything earlier, and for years that RFC 3339
 * cannot hold. */
void rfc3339_us(char out[RFC3339_SIZE], int64_t us);

#endif
