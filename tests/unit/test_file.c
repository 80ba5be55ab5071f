/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads, writes and copies of files, and threads that share one piece of work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "tests/fake/folder.h"

static int opened(const char *name, int flags)
{
    const int fd = open(folder_at(&test_folder, name), flags | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    return fd;
}

static void reads_and_writes_go_where_they_are_told(void **state)
{
    char got[6] = "";
    (void)state;
    cleanup_fd int fd = opened("f", O_RDWR | O_CREAT);
    assert_int_equal(file_write_at(fd, "world", 5, 6), 0);
    assert_int_equal(file_write_at(fd, "hello ", 6, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0); /* wherever fd stands */
    assert_int_equal(file_read_at(fd, got, 5, 6), 0);
    assert_string_equal(got, "world");
    assert_int_equal(file_read(fd, got, 5), 0);
    assert_string_equal(got, "hello");
    assert_int_equal(file_read_at(fd, got, 5, 7), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(file_write_at(-1, "x", 1, 0), -1);
    assert_int_equal(errno, EBADF);
}

/* Over more than one piece, into the middle of what is there. */
static void a_range_is_copied_and_nothing_else(void **state)
{
    const size_t size = ((size_t)2 << 20) + 17;
    (void)state;
    cleanup_free char *data = mem_calloc(1, size);
    cleanup_free char *got = mem_calloc(1, size + 8);
    memset(data, 'x', size);
    folder_put_bytes(&test_folder, "from", data, size, 0644);
    cleanup_fd int from = opened("from", O_RDONLY);
    cleanup_fd int to = opened("to", O_RDWR | O_CREAT);
    assert_int_equal(file_write_at(to, "aaaa", 4, 0), 0);
    assert_int_equal(file_write_at(to, "bbbb", 4, (int64_t)size + 4 - 1), 0);
    assert_int_equal(
        file_copy((struct file_range){ from, 1 }, (struct file_range){ to, 4 }, (int64_t)size - 1),
        0);
    assert_int_equal(file_read(to, got, size + 7), 0);
    assert_memory_equal(got, "aaaa", 4);
    assert_memory_equal(got + 4, data, size - 1);
    assert_memory_equal(got + 4 + size - 1, "bbbb", 4);
}

/* Whose fault it is is told apart: artifacts contract section 4, read errors and write errors. */
static void a_copy_that_fails_tells_which_end_it_was(void **state)
{
    (void)state;
    folder_put(&test_folder, "from", "12345", 0644);
    cleanup_fd int from = opened("from", O_RDONLY);
    cleanup_fd int to = opened("to", O_RDWR | O_CREAT);
    cleanup_fd int closed = opened("to", O_RDONLY);
    assert_int_equal(file_copy((struct file_range){ from, 0 }, (struct file_range){ to, 0 }, 6), 1);
    assert_int_equal(file_copy((struct file_range){ -1, 0 }, (struct file_range){ to, 0 }, 5), 1);
    assert_int_equal(
        file_copy((struct file_range){ from, 0 }, (struct file_range){ closed, 0 }, 5), -1);
    assert_int_equal(errno, EBADF);
}

static void *count(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    return NULL;
}

static void a_team_has_as_many_as_were_asked_for(void **state)
{
    static const int ASKED[][2] = { { 1, 1 }, { 3, 3 }, { 0, 1 }, { -5, 1 },
        { THREAD_TEAM_MAX, THREAD_TEAM_MAX }, { 1000, THREAD_TEAM_MAX } };
    (void)state;
    for (size_t i = 0; i < sizeof ASKED / sizeof ASKED[0]; i++) {
        atomic_int ran = 0;
        thread_team(ASKED[i][0], count, &ran, "team");
        assert_int_equal(atomic_load(&ran), ASKED[i][1]);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_begin, folder_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_and_writes_go_where_they_are_told),
        TEST(a_range_is_copied_and_nothing_else),
        TEST(a_copy_that_fails_tells_which_end_it_was),
        TEST(a_team_has_as_many_as_were_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
