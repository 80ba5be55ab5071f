/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_WRITE_H
#define WB_JX_WRITE_H

/* JSON written straight into a buffer, for what is printed many times a second: an object of json-c costs
 * several times as much. Byte for byte what jx_print() makes of the same values. Any thread. */
#include <stdint.h>

#include "base/buf.h"

/* text: valid UTF-8. Quoted and escaped; '/' is not. */
void jx_write_text(struct buf *out, const char *text);
void jx_write_int(struct buf *out, int64_t n);
/* Shortest text that reads back the same. n must be finite. */
void jx_write_double(struct buf *out, double n);

enum { JX_DOUBLE_SIZE = 40 };
void jx_double_text(char dst[JX_DOUBLE_SIZE], double n);

#endif
