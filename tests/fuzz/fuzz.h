/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FUZZ_H
#define WB_FUZZ_H

/* What fuzz targets share. What has to hold is asserted. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts the next line off *at, a text that is changed; "" when there is none. */
static inline char *next_line(char **at)
{
    char *line = *at;
    size_t n = strcspn(line, "\n");
    *at = line + n;
    if (line[n] != '\0') {
        line[n] = '\0';
        ++*at;
    }
    return line;
}

#endif
