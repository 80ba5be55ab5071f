/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLONE_H
#define WB_CLONE_H

/* Bytes of a file into another at the cheapest that the file systems can. Any thread. */
#include <stdint.h>

#include "base/cleanup.h"

/* size bytes from `from` at from_offset to `to` at to_offset. 1: as asked; 0: `from` has fewer, or cannot be read; -1 with errno: `to`
 * cannot be written. */
int clone_range(int from, int64_t from_offset, int to, int64_t to_offset, int64_t size) WARN_UNUSED;

#endif
