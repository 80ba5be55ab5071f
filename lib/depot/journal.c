/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/journal.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

#define MAGIC "weighbridge-journal 1 "
enum { LINE_MAX_SIZE = 160, NUMBER_MAX = 20 };

void journal_head(struct buf *out, const struct digest *digest, int64_t total_bytes)
{
    char text[DIGEST_TEXT_SIZE];

    digest_print(digest, text);
    buf_printf(out, MAGIC "%s %" PRId64 "\n", text, total_bytes);
}

void journal_mark(struct buf *out, size_t shard)
{
    buf_printf(out, "%zu\n", shard);
}

/* Cuts a line that ends with a newline into line; bytes used, or 0. Longer ones are cut. */
static size_t take_line(const char *text, size_t size, char line[LINE_MAX_SIZE])
{
    const char *end = size == 0 ? NULL : memchr(text, '\n', size);

    if (end == NULL)
        return 0;
    const size_t length = (size_t)(end - text);
    const size_t kept = length < LINE_MAX_SIZE ? length : LINE_MAX_SIZE - 1;
    memcpy(line, text, kept);
    line[kept] = '\0';
    return length + 1;
}

static int read_head(char line[LINE_MAX_SIZE], struct journal *out, struct err *e)
{
    char *digest = line + sizeof MAGIC - 1;
    char *space = str_starts(line, MAGIC) ? strchr(digest, ' ') : NULL;

    if (space == NULL)
        return err_set(e, ERR_INVALID, "no journal");
    *space = '\0';
    if (digest_parse(digest, &out->digest, e) < 0)
        return -1;
    if (str_to_i64(space + 1, 0, ARTIFACT_BYTES_MAX, &out->total_bytes) < 0)
        return err_set(e, ERR_INVALID, "no number of bytes");
    return 0;
}

int journal_read(const char *text, size_t size, struct journal *out, struct err *e)
{
    char line[LINE_MAX_SIZE] = "";
    struct journal j = { .marks = 0 };
    size_t used = take_line(text, size, line);

    if (used == 0 || read_head(line, &j, e) < 0)
        return used == 0 ? err_set(e, ERR_INVALID, "no journal") : -1;
    for (size_t n = 0; (n = take_line(text + used, size - used, line)) > 0; used += n) {
        int64_t shard = 0;
        if (strlen(line) <= NUMBER_MAX && str_to_i64(line, 0, INT64_MAX, &shard) == 0)
            j.marks++;
    }
    *out = j;
    return 0;
}
