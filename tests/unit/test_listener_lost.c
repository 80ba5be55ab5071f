/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a listening socket that somebody removes or replaces are made again, and nobody else's are
 * touched. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"
#include "tests/fake/listener_place.h"

static void remove_file(const char *suffix)
{
    char name[sizeof(listener_path) + 8];
    str_format(name, sizeof(name), "%s%s", listener_path, suffix);
    assert_int_equal(unlink(name), 0);
}

static void write_file(void)
{
    cleanup_fd int fd = open(listener_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "data", 4), 4);
}

/* l's socket is made again, once, and is as it should be. */
static void assert_made_again(struct listener *l)
{
    ino_t before = listener_inode(l->fd);
    assert_true(listener_tend(l));
    assert_true(listener_inode(l->fd) != before);
    assert_int_equal(listener_stat("").st_mode & 07777, 0660);
    assert_int_equal(listener_stat(".side").st_mode & 07777, 0600);
    assert_int_equal(fcntl(l->fd, F_GETFD), FD_CLOEXEC);
    listener_assert_accepts(l);
    assert_false(listener_tend(l));
    assert_true(l->lock_fd >= 0);
}

static void open_beside(struct listener *first, struct listener *second)
{
    struct listener_tender t;
    listener_tend_start(&t, first);
    listener_open_here(second);
    listener_tend_stop(&t);
    assert_int_equal(second->lock_fd, -1);
}

/* --- one instance --- */

static void what_is_in_order_is_left_alone(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    const ino_t fd = listener_inode(l.fd);
    const ino_t file = listener_stat("").st_ino;
    for (int i = 0; i < 3; i++)
        assert_false(listener_tend(&l));
    assert_int_equal(listener_inode(l.fd), fd);
    assert_int_equal(listener_stat("").st_ino, file);
}

static void a_removed_socket_is_made_again(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    for (int i = 0; i < 3; i++) {
        remove_file("");
        assert_made_again(&l);
    }
}

static void a_socket_that_a_dead_one_took_the_place_of_is_made_again(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    remove_file("");
    close(listener_plain_socket("", 1));
    assert_made_again(&l);
}

/* Who has accepted or still accepts from the old one loses nothing. */
static void connections_of_the_old_socket_go_on(void **state)
{
    (void)state;
    char byte = 0;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    cleanup_fd int workers = fcntl(l.fd, F_DUPFD_CLOEXEC, 3);
    cleanup_fd int client = listener_connect("");
    remove_file("");
    assert_made_again(&l);
    cleanup_fd int server = accept4(workers, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server >= 0);
    assert_int_equal(write(server, "x", 1), 1);
    assert_int_equal(read(client, &byte, 1), 1);
}

/* As at a start: it may be somebody's data. */
static void a_file_that_is_no_socket_is_waited_for_to_go(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    remove_file("");
    write_file();
    assert_false(listener_tend(&l));
    assert_int_equal(listener_stat("").st_size, 4);
    remove_file("");
    assert_made_again(&l);
}

static void a_live_socket_of_somebody_else_is_waited_for_to_go(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    remove_file("");
    int foreign = listener_plain_socket("", 8);
    const ino_t before = listener_stat("").st_ino;
    assert_false(listener_tend(&l));
    assert_int_equal(listener_stat("").st_ino, before);
    close(foreign);
    assert_made_again(&l);
}

static void what_is_wrong_is_told_once(void **state)
{
    (void)state;
    char text[8192];
    int n = 0;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    remove_file("");
    write_file();
    cleanup_fd int log = memfd_create("log", MFD_CLOEXEC);
    cleanup_fd int err = dup(STDERR_FILENO);
    assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
    for (int i = 0; i < 4; i++)
        (void)listener_tend(&l);
    remove_file("");
    (void)listener_tend(&l);
    remove_file("");
    write_file();
    for (int i = 0; i < 4; i++)
        (void)listener_tend(&l);
    assert_int_equal(dup2(err, STDERR_FILENO), STDERR_FILENO);
    ssize_t size = pread(log, text, sizeof(text) - 1, 0);
    assert_true(size > 0);
    text[size] = '\0';
    for (const char *at = text; (at = strstr(at, "is not a socket")) != NULL; at++)
        n++;
    assert_int_equal(n, 2); /* once each time that it went wrong */
    assert_non_null(strstr(text, "listening on a new one"));
}

static void removed_companions_are_made_again(void **state)
{
    (void)state;
    static const char *const SUFFIXES[] = { ".lock", ".side" };
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    const ino_t before = listener_inode(l.fd);
    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(SUFFIXES[0]); i++) {
        cleanup_listener struct listener second = LISTENER_INIT;
        remove_file(SUFFIXES[i]);
        assert_false(listener_tend(&l));
        assert_true(l.lock_fd >= 0);
        (void)listener_stat(SUFFIXES[i]);
        open_beside(&l, &second);
        assert_int_equal(listener_inode(second.fd), before);
    }
}

static void a_removed_folder_is_made_again_as_it_was(void **state)
{
    (void)state;
    struct stat before;
    struct stat after;
    cleanup_listener struct listener l = LISTENER_INIT;
    assert_int_equal(chmod(listener_folder, 02751), 0);
    assert_int_equal(stat(listener_folder, &before), 0);
    listener_open_here(&l);
    listener_place_clear();
    assert_int_equal(rmdir(listener_folder), 0);
    assert_made_again(&l);
    assert_int_equal(stat(listener_folder, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_gid, before.st_gid);
}

static void a_folder_that_cannot_be_made_is_waited_for(void **state)
{
    (void)state;
    char away[sizeof(listener_dir) + 8];
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    listener_place_clear();
    str_format(away, sizeof(away), "%s.away", listener_dir);
    assert_int_equal(rename(listener_dir, away), 0);
    assert_false(listener_tend(&l));
    assert_true(l.fd >= 0);
    assert_int_equal(rename(away, listener_dir), 0);
    assert_made_again(&l);
}

/* --- several --- */

static void a_second_instance_gets_the_new_socket(void **state)
{
    (void)state;
    struct listener_tender t;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    listener_open_here(&first);
    open_beside(&first, &second);
    remove_file("");
    listener_tend_start(&t, &first);
    assert_true(listener_tend(&second));
    listener_tend_stop(&t);
    assert_int_equal(listener_inode(second.fd), listener_inode(first.fd));
    listener_assert_accepts(&second);
    listener_assert_accepts(&first);
    assert_false(listener_tend(&second));
    assert_false(listener_tend(&first));
}

/* The first one hangs: the second one neither takes its place nor hangs with it. */
static void a_second_instance_waits_for_the_first(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    listener_open_here(&first);
    open_beside(&first, &second);
    const ino_t before = listener_inode(second.fd);
    remove_file("");
    assert_false(listener_tend(&second));
    assert_int_equal(listener_inode(second.fd), before);
    assert_int_equal(listener_connect(""), -1);
}

/* Whoever comes first after everything was removed leads; there is never more than one socket. */
static void who_notices_a_removed_folder_first_leads(void **state)
{
    (void)state;
    struct listener_tender t;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    listener_open_here(&first);
    open_beside(&first, &second);
    listener_place_clear();
    assert_int_equal(rmdir(listener_folder), 0);
    assert_made_again(&second);
    listener_tend_start(&t, &second);
    assert_true(listener_tend(&first));
    listener_tend_stop(&t);
    assert_int_equal(first.lock_fd, -1);
    assert_int_equal(listener_inode(second.fd), listener_inode(first.fd));
    for (int i = 0; i < 3; i++) {
        assert_false(listener_tend(&first));
        assert_false(listener_tend(&second));
    }
    listener_assert_accepts(&first);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, listener_place_setup, listener_place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_in_order_is_left_alone),
        TEST(a_removed_socket_is_made_again),
        TEST(a_socket_that_a_dead_one_took_the_place_of_is_made_again),
        TEST(connections_of_the_old_socket_go_on),
        TEST(a_file_that_is_no_socket_is_waited_for_to_go),
        TEST(a_live_socket_of_somebody_else_is_waited_for_to_go),
        TEST(what_is_wrong_is_told_once),
        TEST(removed_companions_are_made_again),
        TEST(a_removed_folder_is_made_again_as_it_was),
        TEST(a_folder_that_cannot_be_made_is_waited_for),
        TEST(a_second_instance_gets_the_new_socket),
        TEST(a_second_instance_waits_for_the_first),
        TEST(who_notices_a_removed_folder_first_leads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
