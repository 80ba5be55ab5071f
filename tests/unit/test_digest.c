/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/digest.h"

/* FIPS 180-4 examples. */
static void known_answers(void **state)
{
    char hex[DIGEST_HEX_SIZE];
    cleanup_free char *million = malloc(1000000);

    (void)state;
    digest_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_hex(NULL, 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_non_null(million);
    memset(million, 'a', 1000000);
    digest_hex(million, 1000000, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void tokens_differ_and_are_hex(void **state)
{
    char a[TOKEN_HEX_SIZE];
    char b[TOKEN_HEX_SIZE];

    (void)state;
    digest_token(a);
    digest_token(b);
    assert_int_equal(strlen(a), 64);
    assert_int_equal(strspn(a, "0123456789abcdef"), 64);
    assert_string_not_equal(a, b);
}

static void equality_looks_at_every_byte(void **state)
{
    char a[32] = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof a; i++) {
        char b[32] = { 0 };
        b[i] = 1;
        assert_false(digest_equal(a, b, sizeof a));
    }
    assert_true(digest_equal(a, (const char[32]){ 0 }, sizeof a));
    assert_true(digest_equal("", "", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(tokens_differ_and_are_hex),
        cmocka_unit_test(equality_looks_at_every_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
