/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a journal: it is a hint, so all that matters is that it does no harm. */
#include "depot/journal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal j = { .total_bytes = -1 };
    cleanup_buf struct buf head = BUF_INIT(1 << 12);
    struct journal again;

    if (journal_read((const char *)data, size, &j, NULL) < 0) {
        assert(j.total_bytes == -1);
        return 0;
    }
    assert(j.total_bytes >= 0 && j.marks <= size);
    journal_head(&head, &j.digest, j.total_bytes);
    journal_mark(&head, j.marks);
    const int rc = journal_read(head.data, head.len, &again, NULL);
    assert(rc == 0 && again.total_bytes == j.total_bytes && again.marks == 1);
    assert(memcmp(&again.digest, &j.digest, sizeof j.digest) == 0);
    return 0;
}
