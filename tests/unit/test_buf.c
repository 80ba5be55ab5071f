/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

static void empty_has_no_memory(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(10);

    (void)state;
    assert_null(b.data);
    buf_add(&b, "", 0);
    buf_printf(&b, "%s", "");
    assert_null(b.data);
    assert_false(b.overflow);
}

static void adding_grows_and_terminates(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(5000);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        buf_puts(&b, "ab");
        buf_putc(&b, 'c');
        buf_printf(&b, "%d", i % 10);
        assert_int_equal(b.data[b.len], 0);
    }
    assert_int_equal(b.len, 4000);
    assert_false(b.overflow);
    assert_memory_equal(b.data, "abc0abc1abc2", 12);
    assert_memory_equal(b.data + b.len - 4, "abc9", 5);
}

static void the_maximum_itself_fits(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(4);

    (void)state;
    buf_puts(&b, "abcd");
    assert_false(b.overflow);
    assert_string_equal(b.data, "abcd");
    buf_putc(&b, 'e');
    assert_true(b.overflow);
    assert_string_equal(b.data, "abcd");
}

/* What would fit after a piece that did not is not added either: the text would have a hole. */
static void overflow_lasts(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(300);

    (void)state;
    buf_puts(&b, "abc");
    buf_printf(&b, "%0400d", 1);
    assert_true(b.overflow);
    buf_puts(&b, "d");
    assert_null(buf_room(&b, 1));
    assert_string_equal(b.data, "abc");
    buf_clear(&b);
    assert_false(b.overflow);
    buf_puts(&b, "d");
    assert_string_equal(b.data, "d");
}

static void an_endless_maximum_does_not_wrap(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(SIZE_MAX - 1);

    (void)state;
    buf_puts(&b, "abc");
    assert_null(buf_room(&b, SIZE_MAX - 2));
    assert_true(b.overflow);
}

static void room_is_written_by_the_caller(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(1000);

    (void)state;
    buf_puts(&b, "ab");
    char *room = buf_room(&b, 600);
    assert_non_null(room);
    memset(room, 'x', 600);
    buf_grew(&b, 599);
    assert_int_equal(b.len, 601);
    assert_int_equal(b.data[601], 0);
}

static void zero_bytes_may_be_held(void **state)
{
    cleanup_buf struct buf b = BUF_INIT(10);

    (void)state;
    buf_add(&b, "a\0b", 3);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
}

static void steal_never_gives_null(void **state)
{
    struct buf b = BUF_INIT(10);
    cleanup_free char *nothing = buf_steal(&b);

    (void)state;
    assert_string_equal(nothing, "");
    buf_puts(&b, "abc");
    cleanup_free char *text = buf_steal(&b);
    assert_string_equal(text, "abc");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void clearing_an_empty_one_is_harmless(void **state)
{
    struct buf b = BUF_INIT(10);

    (void)state;
    buf_clear(&b);
    assert_null(b.data);
    buf_free(&b);
    buf_free(&b);
}

static void mem_copies_and_zeroes(void **state)
{
    cleanup_free char *text = mem_strdup("abc");
    cleanup_free char *bytes = mem_dup("a\0b", 3);
    cleanup_free char *none = mem_dup(NULL, 0);
    cleanup_free int *zeroes = mem_calloc(4, sizeof *zeroes);
    cleanup_free void *nothing = mem_alloc(0);
    cleanup_free void *also_nothing = mem_calloc(0, 8);

    (void)state;
    assert_string_equal(text, "abc");
    assert_memory_equal(bytes, "a\0b", 4);
    assert_string_equal(none, "");
    assert_int_equal(zeroes[3], 0);
    assert_non_null(nothing);
    assert_non_null(also_nothing);
}

static void mem_resize_keeps_what_was(void **state)
{
    int *numbers = mem_resize(NULL, 2, sizeof *numbers);

    (void)state;
    numbers[0] = 1;
    numbers[1] = 2;
    numbers = mem_resize(numbers, 1000, sizeof *numbers);
    assert_int_equal(numbers[1], 2);
    numbers = mem_resize(numbers, 0, sizeof *numbers);
    assert_non_null(numbers);
    free(numbers);
}

static void dies(void (*body)(void))
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        close(STDERR_FILENO);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void ask_too_much(void)
{
    volatile size_t much = SIZE_MAX / 4;

    free(mem_alloc(much));
}

static void ask_for_a_product_that_wraps(void)
{
    volatile size_t much = SIZE_MAX / 4;

    free(mem_resize(NULL, much, 8));
}

static void grow_past_the_room(void)
{
    struct buf b = BUF_INIT(1000);

    (void)buf_room(&b, 10);
    buf_grew(&b, 300);
}

static void broken_promises_end_the_process(void **state)
{
    (void)state;
    dies(ask_too_much);
    dies(ask_for_a_product_that_wraps);
    dies(grow_past_the_room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_has_no_memory),
        cmocka_unit_test(adding_grows_and_terminates),
        cmocka_unit_test(the_maximum_itself_fits),
        cmocka_unit_test(overflow_lasts),
        cmocka_unit_test(an_endless_maximum_does_not_wrap),
        cmocka_unit_test(room_is_written_by_the_caller),
        cmocka_unit_test(zero_bytes_may_be_held),
        cmocka_unit_test(steal_never_gives_null),
        cmocka_unit_test(clearing_an_empty_one_is_harmless),
        cmocka_unit_test(mem_copies_and_zeroes),
        cmocka_unit_test(mem_resize_keeps_what_was),
        cmocka_unit_test(broken_promises_end_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
