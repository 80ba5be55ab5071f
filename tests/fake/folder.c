/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"

enum { OPEN_AT_ONCE = 16 };

void folder_make(struct folder *f)
{
    (void)str_copy(f->path, sizeof f->path, "/tmp/wb-folder.XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void folder_remove(struct folder *f)
{
    assert_int_equal(nftw(f->path, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS), 0);
}

const char *folder_at(const struct folder *f, const char *name)
{
    static char text[512];
    assert_int_equal(str_format(text, sizeof text, "%s/%s", f->path, name), 0);
    return text;
}

void folder_put_bytes(
    const struct folder *f, const char *name, const void *data, size_t size, mode_t mode)
{
    cleanup_fd int fd = open(folder_at(f, name), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(file_write(fd, data, size), 0);
}

void folder_put(const struct folder *f, const char *name, const char *text, mode_t mode)
{
    folder_put_bytes(f, name, text, strlen(text), mode);
}

struct folder test_folder;

int folder_begin(void **state)
{
    (void)state;
    folder_make(&test_folder);
    return 0;
}

int folder_end(void **state)
{
    (void)state;
    folder_remove(&test_folder);
    return 0;
}
