/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

enum { ABORTED = 42 };

/* So that too large a request answers NULL, as it does without a sanitizer. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:detect_leaks=1";
}

static void on_abort(int sig)
{
    (void)sig;
    _exit(ABORTED);
}

/* Whether fn aborts a process. */
static bool aborts(void (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, on_abort);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == ABORTED;
}

static void ask_too_much(void)
{
    volatile size_t size = SIZE_MAX / 4; /* the compiler would warn of the number */
    free(mem_alloc(size));
}

static void grow_too_much(void)
{
    volatile size_t count = SIZE_MAX / 4;
    free(mem_resize(NULL, count, 1));
}

static void multiply_too_much(void)
{
    volatile size_t count = SIZE_MAX / 2; /* times 4 would be a small number */
    free(mem_resize(NULL, count, 4));
}

static void nothing(void)
{
}

static void want_of_memory_aborts(void **state)
{
    (void)state;
    assert_false(aborts(nothing));
    assert_true(aborts(ask_too_much));
    assert_true(aborts(grow_too_much));
    assert_true(aborts(multiply_too_much));
}

static void nothing_at_all_is_still_a_pointer(void **state)
{
    (void)state;
    cleanup_free char *alloc = mem_alloc(0);
    cleanup_free char *calloc = mem_calloc(0, 8);
    cleanup_free char *dup = mem_dup(NULL, 0);
    cleanup_free char *resized = mem_resize(NULL, 0, 8);
    assert_non_null(alloc);
    assert_non_null(calloc);
    assert_non_null(resized);
    assert_string_equal(dup, "");
}

static void a_copy_may_hold_nul_and_ends_with_one(void **state)
{
    (void)state;
    cleanup_free char *copy = mem_dup("a\0b", 3);
    assert_memory_equal(copy, "a\0b\0", 4);
}

static void a_text_is_replaced_by_a_copy(void **state)
{
    char with[] = "one";

    (void)state;
    cleanup_free char *text = NULL;
    mem_replace(&text, with);
    with[0] = 'x';
    assert_string_equal(text, "one");
    mem_replace(&text, "");
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(want_of_memory_aborts),
        cmocka_unit_test(nothing_at_all_is_still_a_pointer),
        cmocka_unit_test(a_copy_may_hold_nul_and_ends_with_one),
        cmocka_unit_test(a_text_is_replaced_by_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
