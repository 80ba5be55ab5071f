/* SPDX-License-Identifier: Apache-2.0 */
/* Forms with files (RFC 7578), as browsers, curl and the SDKs of OpenAI send them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tests/fake/folder.h"
#include "web/multipart.h"

/* "name/filename=content|...", then "." for the end or "!" for what is malformed. */
static void read_as(const char *type, const char *body, size_t size, const char *expected)
{
    cleanup_buf struct buf got = BUF_INIT(4096);
    struct multipart m;
    struct multipart_part p;
    struct err e = ERR_INIT;
    int rc = -1;

    folder_put_bytes(&test_folder, "body", body, size, 0600);
    cleanup_fd int fd = open(folder_at(&test_folder, "body"), O_RDONLY | O_CLOEXEC);
    if (multipart_open(&m, fd, (int64_t)size, type, &e) == 0) {
        while ((rc = multipart_next(&m, &p, &e)) == 0) {
            assert_true(p.offset + p.size <= (int64_t)size);
            buf_printf(&got, "%s/%s=%.*s|", p.name, p.filename, (int)p.size, body + p.offset);
        }
    }
    buf_putc(&got, rc == 1 ? '.' : '!');
    assert_string_equal(got.data, expected);
}

#define TYPE                 "multipart/form-data; boundary=xYz"
#define READ(body, expected) read_as(TYPE, body, sizeof(body) - 1, expected)

static void parts_come_one_by_one(void **state)
{
    (void)state;
    READ(
        "--xYz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
        "--xYz\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".jsonl\"\r\n"
        "Content-Type: application/octet-stream\r\n\r\n{}\r\n\n--xY\r\n\r\n--xYz--\r\n",
        "purpose/=batch|file/a \"b\".jsonl={}\r\n\n--xY\r\n|.");
    READ("preamble\r\n--xYz\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--xYz--", "a/=|.");
    READ("--xYz--\r\n", ".");
}

static void what_is_cut_off_or_malformed_is_refused(void **state)
{
    (void)state;
    READ("", "!");
    READ("--other\r\n", "!");
    READ("--xYz", "!");
    READ("--xYz\r\n", "!");
    READ("--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nno end", "!");
    READ("--xYz\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--xYz--", "!");
    READ("--xYz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xYz--", "!");
    READ("--xYz\r\nContent-Type: text/plain\r\n\r\nx\r\n--xYz--", "!");
    READ("--xYz\r\nContent-Disposition: form-data; name=\"a\0b\"\r\n\r\nx\r\n--xYz--", "!");
}

static void a_delimiter_across_what_is_read_at_once_is_found(void **state)
{
    enum { PIECE = 1 << 16 };
    static const char HEAD[] = "--xYz\r\nContent-Disposition: form-data; name=f\r\n\r\n";
    static const char TAIL[] = "\r\n--xYz--";
    struct err e = ERR_INIT;
    (void)state;

    for (size_t shift = 0; shift < sizeof TAIL; shift++) {
        const size_t content = PIECE + 2 - shift; /* the search begins two bytes before it */
        const size_t size = sizeof HEAD - 1 + content + sizeof TAIL - 1;
        cleanup_free char *body = mem_alloc(size);
        struct multipart m;
        struct multipart_part p;
        memcpy(body, HEAD, sizeof HEAD - 1);
        memset(body + sizeof HEAD - 1, 'x', content);
        memcpy(body + sizeof HEAD - 1 + content, TAIL, sizeof TAIL - 1);
        folder_put_bytes(&test_folder, "body", body, size, 0600);
        cleanup_fd int fd = open(folder_at(&test_folder, "body"), O_RDONLY | O_CLOEXEC);
        assert_int_equal(multipart_open(&m, fd, (int64_t)size, TYPE, &e), 0);
        assert_int_equal(multipart_next(&m, &p, &e), 0);
        assert_int_equal(p.size, content);
        assert_int_equal(multipart_next(&m, &p, &e), 1);
    }
}

static void the_boundary_is_taken_from_the_type(void **state)
{
    static const struct {
        const char *type;
        const char *boundary; /* NULL: none */
    } TABLE[] = {
        { "multipart/form-data; boundary=abc", "abc" },
        { "Multipart/Form-Data; charset=utf-8; Boundary=\"a b;c\"", "a b;c" },
        { "multipart/form-data;boundary=abc; x=y", "abc" },
        { "multipart/form-data", NULL },
        { "multipart/form-data; boundary=", NULL },
        { "multipart/mixed; boundary=abc", NULL },
        { "application/json", NULL },
        { "", NULL },
        { NULL, NULL },
        { "multipart/form-data; boundary="
          "12345678901234567890123456789012345678901234567890123456789012345678901",
            NULL },
    };
    char out[MULTIPART_BOUNDARY_MAX + 1];
    struct err e = ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        const int rc = multipart_boundary(TABLE[i].type, out, &e);
        assert_int_equal(rc, TABLE[i].boundary == NULL ? -1 : 0);
        if (rc == 0)
            assert_string_equal(out, TABLE[i].boundary);
        else
            assert_int_equal(e.code, ERR_MEDIA_TYPE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_come_one_by_one, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            what_is_cut_off_or_malformed_is_refused, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            a_delimiter_across_what_is_read_at_once_is_found, folder_begin, folder_end),
        cmocka_unit_test(the_boundary_is_taken_from_the_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
