/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what a source says: Content-Range, RateLimit, a signed URL. Artifacts contract, section 5. */
#include <stdio.h>

#include "base/mem.h"
#include "model/fetch_rules.h"
#include "tests/fuzz/fuzz.h"

enum { HOUR_MS = 3600000, PRINTED = 80 };

/* What is taken is what it would be printed as: but for zeros before a number. */
static void check_range(const char *text)
{
    struct content_range r = { -1, -1, -1 };
    char printed[PRINTED];

    if (content_range_parse(text, &r) < 0) {
        assert(r.first == -1);
        return;
    }
    assert(r.first >= 0 && r.first <= r.last && r.last < r.total);
    (void)snprintf(printed, sizeof printed, "bytes %lld-%lld/%lld", (long long)r.first,
        (long long)r.last, (long long)r.total);
    assert(strlen(printed) <= strlen(text));
    struct content_range again;
    const int rc = content_range_parse(printed, &again);
    assert(rc == 0 && again.first == r.first && again.last == r.last && again.total == r.total);
}

static void check_judgement(const char *text)
{
    struct mishap m = MISHAP_INIT;
    const struct fetch_answer a = { .status = 206, .content_range = text, .rate_limit = text };
    struct content_range r;

    if (fetch_judge(&a, 5, 10, 100, &m) == 0) {
        const int rc = content_range_parse(text, &r);
        assert(rc == 0 && r.first == 5 && r.last == 14 && r.total == 100);
    } else {
        assert(m.reason != MISHAP_NONE && m.grade == MISHAP_SOURCE_FATAL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *text = mem_dup(data, size);

    check_range(text);
    check_judgement(text);
    const int64_t wait_ms = rate_limit_wait_ms(text);
    assert(wait_ms >= 0 && wait_ms <= HOUR_MS);
    (void)url_expired(text, INT64_C(2000000000));
    return 0;
}
