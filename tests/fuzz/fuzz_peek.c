/* SPDX-License-Identifier: Apache-2.0 */

#include "fcgi/fcgi_peek.h"
#include "tests/fuzz/fuzz.h"

/* Whatever comes: the same verdict in one piece and in pieces, and never more bytes than there are. The
 * first byte chooses the size of the pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = (size_t)data[0] % 32 + 1;
    data++;
    size--;
    size_t end = 0;
    enum fcgi_peek whole = fcgi_peek(data, size, false, &end);
    assert(end <= size);
    assert(whole != FCGI_PEEK_STREAM);
    assert(end == size || whole == FCGI_PEEK_WHOLE || whole == FCGI_PEEK_BAD);
    struct fcgi_scan s = { 0 };
    size_t at = 0;
    while (at < size) {
        size_t n = size - at < piece ? size - at : piece;
        size_t used = fcgi_scan(&s, data + at, n);
        at += used;
        if (used < n)
            break;
    }
    assert(fcgi_scan_verdict(&s, false) == whole);
    /* where bad parameters were found may differ within their record; a whole request's end may not */
    assert(whole == FCGI_PEEK_BAD || at == end);
    assert(whole == FCGI_PEEK_BAD || s.params <= FCGI_PARAMS_MAX);
    return 0;
}
