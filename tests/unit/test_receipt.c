/* SPDX-License-Identifier: Apache-2.0 */
/* What a node hands in, made of what lies beside a version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "depot/receipt.h"

#define DIGEST_HEX "0101010101010101010101010101010101010101010101010101010101010101"

static struct digest some_digest(void)
{
    struct digest d;

    memset(d.byte, 1, sizeof d.byte);
    return d;
}

static void expect_hand_in(const char *text, const char *expected)
{
    cleanup_buf struct buf out = BUF_INIT(RECEIPT_TEXT_MAX);
    const struct digest d = some_digest();

    receipt_hand_in(text, strlen(text), &d, &out);
    assert_string_equal(out.data, expected);
}

/* Artifacts contract, section 3: receipt {digest, bytes_fetched, bytes_avoided, per_source, retries, phases}. */
static void a_receipt_is_handed_in_with_the_fields_of_the_contract(void **state)
{
    struct receipt r = { .digest = some_digest(),
        .total_bytes = 100,
        .bytes_fetched = 50,
        .bytes_avoided = 20,
        .bytes_resumed = 30,
        .source = { { "https://a", 50 } },
        .sources = 1,
        .fetch_ms = 7,
        .verify_ms = 8 };
    const struct manifest m = { .artifact = "a", .version = "v" };
    cleanup_buf struct buf text = BUF_INIT(RECEIPT_TEXT_MAX);

    (void)state;
    receipt_print(&r, &m, &text);
    expect_hand_in(text.data,
        "{\"digest\":\"sha256:" DIGEST_HEX "\",\"bytes_fetched\":80,\"bytes_avoided\":20,"
        "\"per_source\":[{\"source\":\"https://a\",\"bytes\":50}],\"retries\":{},"
        "\"phases\":{\"fetch_ms\":7,\"verify_ms\":8}}");
}

/* dist_retry_total knows six reasons. */
static void retries_go_by_the_reasons_that_are_counted(void **state)
{
    (void)state;
    expect_hand_in("{\"retries\":{\"connect\":1,\"stall\":2,\"timeout\":4,\"upstream_throttle\":8,"
                   "\"not_found\":16,\"no_such\":32,\"disk_full\":\"x\",\"short_body\":-1}}",
        "{\"digest\":\"sha256:" DIGEST_HEX "\",\"bytes_fetched\":0,\"bytes_avoided\":0,"
        "\"per_source\":{},\"retries\":{\"timeout\":7,\"upstream_throttle\":8,\"artifact_missing\":16},"
        "\"phases\":{}}");
}

static void a_text_that_makes_no_sense_leaves_the_digest(void **state)
{
    static const char *const TEXTS[] = { "", "no json", "[1]", "{\"bytes_fetched\":-5}",
        "{\"bytes_fetched\":\"7\",\"retries\":[1]}" };

    (void)state;
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        expect_hand_in(TEXTS[i],
            "{\"digest\":\"sha256:" DIGEST_HEX "\",\"bytes_fetched\":0,\"bytes_avoided\":0,"
            "\"per_source\":{},\"retries\":{},\"phases\":{}}");
}

static void a_reason_is_known_by_its_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < MISHAP__COUNT; i++) {
        const enum mishap_reason reason = (enum mishap_reason)i;
        assert_int_equal(mishap_reason_parse(mishap_reason_name(reason)), reason);
        if (i > 0) /* what it is counted as is a reason itself, and counted as itself */
            assert_string_equal(mishap_counted_as(mishap_reason_parse(mishap_counted_as(reason))),
                mishap_counted_as(reason));
    }
    assert_int_equal(mishap_reason_parse("no_such"), MISHAP_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receipt_is_handed_in_with_the_fields_of_the_contract),
        cmocka_unit_test(retries_go_by_the_reasons_that_are_counted),
        cmocka_unit_test(a_text_that_makes_no_sense_leaves_the_digest),
        cmocka_unit_test(a_reason_is_known_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
