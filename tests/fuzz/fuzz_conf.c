/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a configuration file. What loads prints as one that loads and prints the same. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/fuzz/fuzz.h"

enum { PRINT_MAX = 1 << 20 };

/* A file in memory that holds just that, and its path. */
static void keep(const void *data, size_t size, char path[64])
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    assert(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    assert(str_format(path, 64, "/proc/self/fd/%d", fd) == 0);
}

/* Options that name another file open it: what a reader of this machine may read is no part of the input. */
static int names_files(const char *text)
{
    return strstr(text, "_file") != NULL;
}

/* A secret that is set prints as a comment with stars, which loads as one that is not. */
static void forget_secrets(struct buf *print)
{
    static const char STARS[] = " = ***\n";
    char *to = print->data;
    for (char *line = print->data; *line != '\0';) {
        size_t n = strcspn(line, "\n") + 1;
        size_t end = sizeof(STARS) - 1;
        int comment = line[0] == '#';
        memmove(to, line, n);
        to += n;
        if (comment && n > end && memcmp(to - end, STARS, end) == 0) {
            to -= 3; /* the stars */
            to[-1] = '\n';
        }
        line += n;
    }
    print->len = (size_t)(to - print->data);
}

static void check_print(const struct conf *c)
{
    char path[64];
    struct err e = ERR_INIT;
    cleanup_buf struct buf first = BUF_INIT(PRINT_MAX);
    cleanup_buf struct buf second = BUF_INIT(PRINT_MAX);
    cleanup_conf struct conf again;
    conf_print(c, &first);
    assert(!first.overflow);
    memset(&again, 0, sizeof(again));
    keep(first.data, first.len, path);
    assert(conf_load(&again, path, &e) == 0);
    conf_print(&again, &second);
    forget_secrets(&first);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct err e = ERR_INIT;
    cleanup_free char *text = mem_dup(data, size);
    cleanup_conf struct conf c;
    memset(&c, 0, sizeof(c));
    if (names_files(text))
        return 0;
    keep(data, size, path);
    if (conf_load(&c, path, &e) < 0) {
        assert(e.code == ERR_INVALID && str_starts(e.msg, path));
        assert(str_utf8_valid(e.msg, strlen(e.msg)) || !str_utf8_valid(text, size));
        return 0;
    }
    check_print(&c);
    return 0;
}
