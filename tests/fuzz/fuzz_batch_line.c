/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a batch's input: each line is judged, with its number and place; and what is taken apart makes one line of
 * output, whatever the server answered. The bytes are an answer, and the headers of a form's part, too. */
#include <sys/mman.h>
#include <unistd.h>

#include "lines/jsonl.h"
#include "lines/line.h"
#include "tests/fuzz/fuzz.h"
#include "web/multipart.h"

enum { LINE_MAX_BYTES = 256, OUT_MAX = 1 << 22 };

static void put(const struct batch_line *is, const char *data, size_t size)
{
    const struct line_of of = { "batch_00", 1, is->custom_id };
    cleanup_json json_object *parsed = NULL;
    cleanup_json json_object *back = NULL;
    cleanup_buf struct buf out = BUF_INIT(OUT_MAX);
    cleanup_buf struct buf body = BUF_INIT(OUT_MAX);

    buf_add(&body, data, size);
    if (jx_parse_deep(data, size, size, LINE_DEPTH_MAX, &parsed, NULL) == 0 &&
        !json_object_is_type(parsed, json_type_object)) {
        json_object_put(parsed);
        parsed = NULL;
    }
    const struct line_answer a = { 200, "", body.data == NULL ? "" : body.data, size, parsed,
        "secret" };
    line_put_answer(&out, &of, &a);
    assert(!out.overflow && memchr(out.data, '\n', out.len) == out.data + out.len - 1);
    assert(
        memmem(out.data, out.len, "secret", 6) == NULL || strstr(is->custom_id, "secret") != NULL);
    const int rc = jx_parse_deep(out.data, out.len, out.len, LINE_DEPTH_MAX + 2, &back, NULL);
    assert(rc == 0);
}

static void judge(const char *text, size_t size, const char *data, size_t data_size)
{
    const struct batch_endpoint *endpoint = batch_endpoint_find("/v1/embeddings");
    struct batch_fault fault = { .code = NULL };
    cleanup_line struct line line = LINE_INIT;

    if (line_read(text, size, endpoint, &line, NULL) < 0)
        return;
    if (batch_line_check(&line.is, endpoint, &fault) == 0)
        put(&line.is, data, data_size);
    else
        assert(fault.code != NULL && fault.message != NULL);
}

static void read_lines(int fd, const char *data, size_t size)
{
    cleanup_jsonl struct jsonl *j = jsonl_open(fd, LINE_MAX_BYTES);
    struct jsonl_line at;
    int64_t last = 0;
    int64_t number = 0;

    while (jsonl_next(j, &at, NULL) == 0) {
        assert(at.number > number && at.offset + (int64_t)at.size <= (int64_t)size);
        number = at.number;
        if (at.text == NULL)
            continue;
        assert(memcmp(at.text, data + at.offset, at.size) == 0);
        assert(memchr(at.text, '\n', at.size) == NULL);
        judge(at.text, at.size, data, size);
    }
    const int rc = jsonl_last(fd, &last, NULL);
    assert(rc == 0 && last >= number);
}

static void read_form(int fd, const char *data, size_t size)
{
    struct multipart m;
    struct multipart_part p;

    if (multipart_open(&m, fd, (int64_t)size, "multipart/form-data; boundary=b", NULL) < 0)
        return;
    while (multipart_next(&m, &p, NULL) == 0)
        assert(p.offset >= 0 && p.size >= 0 && p.offset + p.size <= (int64_t)size);
    (void)data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    cleanup_fd int fd = memfd_create("fuzz", MFD_CLOEXEC);
    const ssize_t n = size == 0 ? 0 : write(fd, data, size);

    assert(n == (ssize_t)size);
    read_lines(fd, text, size);
    read_form(fd, text, size);
    return 0;
}
