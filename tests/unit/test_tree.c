/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of files: what is removed, opened up, and never left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/tree.h"
#include "store/seal.h"
#include "tests/fake/folder.h"

enum { HANG_S = 20 };

static struct folder folder;
static int top;

static int begin(void **state)
{
    (void)state;
    folder_make(&folder);
    top = open(folder_at(&folder, "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(top >= 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(tree_open_up(top), 0);
    cleanup_fd_(&top);
    folder_remove(&folder);
    return 0;
}

static void put(int dir, const char *path, mode_t mode)
{
    cleanup_fd int fd = -1;

    assert_int_equal(tree_make_parents(dir, path), 0);
    fd = tree_open(dir, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(fchmod(fd, mode), 0);
}

static mode_t mode_of(int dir, const char *path)
{
    struct stat st;

    assert_int_equal(fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st.st_mode & ALLPERMS;
}

static bool is_there(int dir, const char *path)
{
    return faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void a_read_only_tree_is_removed_whole(void **state)
{
    (void)state;
    put(top, "a/b/c", 0444);
    put(top, "a/d", 0444);
    assert_int_equal(fchmodat(top, "a/b", 0555, 0), 0);
    assert_int_equal(fchmodat(top, "a", 0555, 0), 0);
    assert_int_equal(tree_remove(top, "a"), 0);
    assert_false(is_there(top, "a"));
    assert_int_equal(tree_remove(top, "a"), 0); /* gone already */
}

static void of_a_link_the_link_is_removed_and_nothing_else(void **state)
{
    (void)state;
    put(top, "kept/file", 0400);
    assert_int_equal(fchmodat(top, "kept", 0500, 0), 0);
    assert_int_equal(symlinkat("kept", top, "link"), 0);
    put(top, "tree/file", 0644);
    assert_int_equal(symlinkat("../kept", top, "tree/link"), 0);
    assert_int_equal(tree_remove(top, "link"), 0);
    assert_int_equal(tree_remove(top, "tree"), 0);
    assert_false(is_there(top, "link") || is_there(top, "tree"));
    assert_int_equal(mode_of(top, "kept"), 0500);
    assert_int_equal(mode_of(top, "kept/file"), 0400);
}

static void a_file_is_removed_like_a_folder(void **state)
{
    (void)state;
    put(top, "file", 0400);
    assert_int_equal(tree_remove(top, "file"), 0);
    assert_false(is_there(top, "file"));
}

static void what_is_mounted_in_a_tree_is_not_removed(void **state)
{
    (void)state;
    put(top, "t/mounted/under", 0644);
    const char *at = folder_at(&folder, "t/mounted");
    if (mount("none", at, "tmpfs", 0, "size=64k") < 0)
        skip(); /* not root, or not allowed to here */
    put(top, "t/mounted/file", 0644);
    assert_int_equal(tree_remove(top, "t"), -1);
    const int code = errno;
    const bool there = is_there(top, "t/mounted/file");
    assert_int_equal(umount2(folder_at(&folder, "t/mounted"), MNT_DETACH), 0);
    assert_int_equal(code, EXDEV);
    assert_true(there);
}

static void a_tree_is_opened_up_with_its_top_and_no_link_of_it_followed(void **state)
{
    (void)state;
    put(top, "kept", 0400);
    put(top, "t/a/f", 0444);
    put(top, "t/x", 0555);
    assert_int_equal(symlinkat("../../kept", top, "t/a/link"), 0);
    assert_int_equal(fchmodat(top, "t/a", 0555, 0), 0);
    assert_int_equal(fchmodat(top, "t", 0555, 0), 0);
    cleanup_fd int t = tree_open_folder(top, "t");
    assert_int_equal(tree_open_up(t), 0);
    assert_int_equal(mode_of(top, "t"), 0755);
    assert_int_equal(mode_of(top, "t/a"), 0755);
    assert_int_equal(mode_of(top, "t/a/f"), 0644);
    assert_int_equal(mode_of(top, "t/x"), 0644);
    assert_int_equal(mode_of(top, "kept"), 0400);
}

static void nothing_leads_out_of_a_folder(void **state)
{
    (void)state;
    put(top, "t/f", 0644);
    assert_int_equal(symlinkat("/etc", top, "t/etc"), 0);
    cleanup_fd int t = tree_open_folder(top, "t");
    assert_int_equal(tree_open(t, "../t/f", O_RDONLY, 0), -1);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(tree_open(t, "/etc/passwd", O_RDONLY, 0), -1);
    assert_int_equal(tree_open(t, "etc/passwd", O_RDONLY, 0), -1);
    assert_int_equal(errno, ELOOP);
}

/* Whoever may write somewhere below a root may put a pipe there: to wait for its other end would be to wait for ever. */
static void what_is_no_plain_file_is_not_opened_and_nobody_waits_for_it(void **state)
{
    (void)state;
    assert_int_equal(mkfifoat(top, "pipe", 0644), 0);
    assert_int_equal(mkdirat(top, "folder", 0755), 0);
    (void)alarm(HANG_S);
    assert_int_equal(tree_open(top, "pipe", O_RDONLY, 0), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(tree_open(top, "pipe", O_RDWR, 0), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(tree_open(top, "folder", O_RDONLY, 0), -1);
    assert_int_equal(errno, ENXIO);
    (void)alarm(0);
}

static void sealing_a_tree_follows_no_link(void **state)
{
    const struct manifest none = MANIFEST_INIT;
    (void)state;
    put(top, "kept", 0600);
    put(top, "t/f", 0644);
    assert_int_equal(symlinkat("../kept", top, "t/link"), 0);
    cleanup_fd int t = tree_open_folder(top, "t");
    assert_int_equal(seal_tree(t, &none), -1);
    assert_int_equal(errno, ELOOP);
    assert_int_equal(mode_of(top, "kept"), 0600);
    assert_int_equal(unlinkat(t, "link", 0), 0);
    assert_int_equal(seal_tree(t, &none), 0);
    assert_int_equal(mode_of(top, "t/f"), 0444);
}

#define WITH_TOP(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TOP(a_read_only_tree_is_removed_whole),
        WITH_TOP(of_a_link_the_link_is_removed_and_nothing_else),
        WITH_TOP(a_file_is_removed_like_a_folder),
        WITH_TOP(what_is_mounted_in_a_tree_is_not_removed),
        WITH_TOP(a_tree_is_opened_up_with_its_top_and_no_link_of_it_followed),
        WITH_TOP(nothing_leads_out_of_a_folder),
        WITH_TOP(sealing_a_tree_follows_no_link),
        WITH_TOP(what_is_no_plain_file_is_not_opened_and_nobody_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
