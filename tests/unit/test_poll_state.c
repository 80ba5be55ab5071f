/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "base/str.h"
#include "handlers/operation_json.h"
#include "handlers/poll_state.h"
#include "model/ops.h"
#include "tests/fake/poll_scene.h"

enum { ROOM = 1 << 20 };

static void assert_node(const struct gallery_node *got, const struct gallery_node *want)
{
    assert_string_equal(got->node_id, want->node_id);
    assert_string_equal(got->node_name, want->node_name);
    assert_string_equal(got->status, want->status);
    assert_true(got->percentage == want->percentage);
    assert_string_equal(got->file_name, want->file_name);
    assert_string_equal(got->current, want->current);
    assert_string_equal(got->total, want->total);
    assert_string_equal(got->phase, want->phase);
    assert_string_equal(got->error, want->error);
}

static void assert_op(const struct gallery_op *got, const struct gallery_op *want)
{
    assert_string_equal(got->id, want->id);
    assert_string_equal(got->element_name, want->element_name);
    assert_string_equal(got->cache_key, want->cache_key);
    assert_string_equal(got->op_type, want->op_type);
    assert_int_equal(got->status, want->status);
    assert_int_equal(got->is_backend_op, want->is_backend_op);
    assert_int_equal(got->cancellable, want->cancellable);
    assert_true(got->progress == want->progress);
    assert_string_equal(got->phase, want->phase);
    assert_string_equal(got->message, want->message);
    assert_string_equal(got->error, want->error);
    assert_string_equal(got->file_name, want->file_name);
    assert_int_equal(got->current_bytes, want->current_bytes);
    assert_int_equal(got->total_bytes, want->total_bytes);
    assert_int_equal(got->nodes, want->nodes);
    for (size_t i = 0; i < want->nodes; i++)
        assert_node(&got->node[i], &want->node[i]);
}

static void assert_row(const struct load_row *got, const struct load_row *want)
{
    assert_string_equal(got->key, want->key);
    assert_int_equal(got->state, want->state);
    assert_string_equal(got->owner, want->owner);
    assert_string_equal(got->node_id, want->node_id);
    assert_string_equal(got->node_name, want->node_name);
    assert_int_equal(got->replica_index, want->replica_index);
    assert_int_equal(got->bytes_sent, want->bytes_sent);
    assert_int_equal(got->total_bytes, want->total_bytes);
    assert_int_equal(got->file_index, want->file_index);
    assert_int_equal(got->total_files, want->total_files);
    assert_int_equal(got->started_us, want->started_us);
    assert_int_equal(got->last_progress_us, want->last_progress_us);
    assert_int_equal(got->created_us, want->created_us);
    assert_int_equal(got->updated_us, want->updated_us);
    assert_int_equal(got->bytes_moved_us, want->bytes_moved_us);
    assert_string_equal(got->last_error, want->last_error);
    assert_string_equal(got->claim, want->claim);
}

static void assert_overlay(const struct overlay *got, const struct overlay *want)
{
    assert_string_equal(got->key, want->key);
    assert_string_equal(got->node_name, want->node_name);
    assert_string_equal(got->file_name, want->file_name);
    assert_string_equal(got->speed, want->speed);
    assert_string_equal(got->message, want->message);
    assert_string_equal(got->started_at, want->started_at);
    assert_string_equal(got->claim, want->claim);
    assert_string_equal(got->session, want->session);
    assert_int_equal(got->bytes_sent, want->bytes_sent);
    assert_int_equal(got->total_bytes, want->total_bytes);
    assert_int_equal(got->file_index, want->file_index);
    assert_int_equal(got->total_files, want->total_files);
    assert_true(got->progress == want->progress);
    assert_int_equal(got->stamp_us, want->stamp_us);
    assert_int_equal(got->expires_ns, want->expires_ns);
}

static void assert_full(const struct poll_state *got)
{
    const struct poll_state want = poll_scene();
    assert_int_equal(got->rows, 2);
    assert_int_equal(got->rows_now_us, 11);
    assert_int_equal(got->rows_read_ns, 12);
    assert_int_equal(got->overlays, 1);
    assert_row(&got->row[0], &want.row[0]);
    assert_row(&got->row[1], &want.row[1]);
    assert_overlay(&got->overlay[0], &want.overlay[0]);
    assert_int_equal(got->gallery_rows, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_op(&got->gallery_row[i].op, &want.gallery_row[i].op);
        assert_int_equal(got->gallery_row[i].dismissed, want.gallery_row[i].dismissed);
        assert_int_equal(got->gallery_row[i].created_us, want.gallery_row[i].created_us);
        assert_int_equal(got->gallery_row[i].updated_us, want.gallery_row[i].updated_us);
    }
    assert_int_equal(got->gallery_overlays, 1);
    assert_op(&got->gallery_overlay[0].op, &want.gallery_overlay[0].op);
    assert_int_equal(got->gallery_overlay[0].stamp_us, want.gallery_overlay[0].stamp_us);
    assert_int_equal(got->gallery_overlay[0].expires_ns, want.gallery_overlay[0].expires_ns);
}

static void a_state_comes_back_as_it_was(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    assert_false(block.overflow);

    cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
    struct err e = ERR_INIT;
    assert_int_equal(poll_state_unpack(block.data, block.len, &got, &e), 0);
    buf_clear(&block); /* nothing borrows from the block */
    memset(block.data, 'x', block.cap);
    assert_full(&got);
}

static void an_unpacked_state_can_be_packed_again(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf first = BUF_INIT(ROOM);
    poll_state_pack(&s, &first);
    cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
    struct err e = ERR_INIT;
    assert_int_equal(poll_state_unpack(first.data, first.len, &got, &e), 0);
    cleanup_buf struct buf second = BUF_INIT(ROOM);
    poll_state_pack(&got, &second);
    assert_int_equal(first.len, second.len);
    cleanup_poll_state struct poll_state again = POLL_STATE_INIT;
    assert_int_equal(poll_state_unpack(second.data, second.len, &again, &e), 0);
    assert_full(&again);
}

static void an_empty_state_comes_back_empty(void **state)
{
    (void)state;
    struct poll_state s = POLL_STATE_INIT;
    s.rows_read_ns = 5;
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
    struct err e = ERR_INIT;
    assert_int_equal(poll_state_unpack(block.data, block.len, &got, &e), 0);
    assert_int_equal(got.rows, 0);
    assert_int_equal(got.overlays, 0);
    assert_int_equal(got.gallery_rows, 0);
    assert_int_equal(got.gallery_overlays, 0);
    assert_int_equal(got.rows_read_ns, 5);
}

static void a_block_is_appended_and_read_at_any_alignment(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    for (size_t shift = 1; shift < 8; shift++) {
        cleanup_buf struct buf block = BUF_INIT(ROOM);
        buf_add(&block, "12345678", shift);
        poll_state_pack(&s, &block);
        cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
        struct err e = ERR_INIT;
        assert_int_equal(poll_state_unpack(block.data + shift, block.len - shift, &got, &e), 0);
        assert_full(&got);
    }
}

static void what_does_not_fit_marks_the_buffer(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf whole = BUF_INIT(ROOM);
    poll_state_pack(&s, &whole);
    for (size_t max = 0; max < whole.len; max++) {
        cleanup_buf struct buf block = BUF_INIT(max);
        poll_state_pack(&s, &block);
        assert_true(block.overflow);
    }
}

/* The block in memory of exactly its size, so that a sanitizer sees any step outside. */
static int unpack_exact(const char *data, size_t size, struct err *e)
{
    cleanup_free char *exact = mem_alloc(size ? size : 1);
    memcpy(exact, data, size);
    cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
    int rc = poll_state_unpack(exact, size, &got, e);
    if (rc != 0)
        assert_null(got.row);
    return rc;
}

static void a_block_cut_anywhere_is_refused(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    for (size_t size = 0; size < block.len; size++) {
        struct err e = ERR_INIT;
        assert_int_equal(unpack_exact(block.data, size, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
    }
    buf_putc(&block, '\0');
    struct err e = ERR_INIT;
    assert_int_equal(unpack_exact(block.data, block.len, &e), -1);
}

/* What the poll does with a state. */
static void merge_and_print(const struct poll_state *s)
{
    const struct ops_input in = poll_scene_input(s, false);
    cleanup_ops_list struct ops_list list = OPS_LIST_INIT;
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    ops_merge(&in, &list);
    operations_print(&list, &out);
    assert_true(str_utf8_valid(out.data, out.len));
}

/* Any answer will do; what comes back must be safe to read, which packing it again, merging and printing
 * do. */
static void a_block_with_any_byte_changed_is_safe(void **state)
{
    (void)state;
    static const unsigned char VALUE[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    cleanup_buf struct buf again = BUF_INIT(ROOM);
    for (size_t i = 0; i < block.len * sizeof(VALUE); i++) {
        char *byte = &block.data[i / sizeof(VALUE)];
        char old = *byte;
        *byte = (char)VALUE[i % sizeof(VALUE)];
        cleanup_poll_state struct poll_state got = POLL_STATE_INIT;
        struct err e = ERR_INIT;
        buf_clear(&again);
        if (poll_state_unpack(block.data, block.len, &got, &e) == 0) {
            poll_state_pack(&got, &again);
            merge_and_print(&got);
        }
        *byte = old;
    }
}

/* Where the first row lies, told by its claim. */
static char *first_row(struct buf *block)
{
    const struct load_row *row = poll_scene().row;
    char *claim = memmem(block->data, block->len, row->claim, sizeof(row->claim));
    assert_non_null(claim);
    return claim - offsetof(struct load_row, claim);
}

/* Where the items of a kind begin: they follow the first row in this order. */
static char *first_gallery_row(struct buf *block)
{
    return first_row(block) + 2 * sizeof(struct load_row) + sizeof(struct overlay);
}

static char *first_gallery_overlay(struct buf *block)
{
    return first_gallery_row(block) + 2 * sizeof(struct gallery_row);
}

static char *first_node(struct buf *block)
{
    return first_gallery_overlay(block) + sizeof(struct gallery_overlay);
}

static char *pool_of(struct buf *block)
{
    return first_node(block) + 3 * sizeof(struct gallery_node);
}

static void assert_refused(const struct buf *block)
{
    struct err e = ERR_INIT;
    assert_int_equal(unpack_exact(block->data, block->len, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
}

static void texts_and_claims_must_end_within_the_block(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    block.data[block.len - 1] = 'x';
    assert_refused(&block);
    block.data[block.len - 1] = '\0';

    char *row = first_row(&block);
    row[offsetof(struct load_row, claim) + CLAIM_SHORT_SIZE - 1] = 'x';
    assert_refused(&block);
}

static void a_text_outside_the_block_is_refused(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    char *row = first_row(&block);
    uintptr_t size = (uintptr_t)(block.data + block.len - pool_of(&block));
    uintptr_t offset = size - 1; /* the last end of a text: an empty one */
    memcpy(row + offsetof(struct load_row, key), &offset, sizeof(offset));
    assert_int_equal(unpack_exact(block.data, block.len, NULL), 0);
    offset = size;
    memcpy(row + offsetof(struct load_row, key), &offset, sizeof(offset));
    assert_refused(&block);
}

/* A block in which size bytes at the place that find() tells are others. */
static void assert_change_refused(
    char *(*find)(struct buf *), size_t at, const void *bytes, size_t size)
{
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    assert_int_equal(unpack_exact(block.data, block.len, NULL), 0);
    memcpy(find(&block) + at, bytes, size);
    assert_refused(&block);
}

static void nodes_outside_the_block_are_refused(void **state)
{
    (void)state;
    static const uintptr_t FIRST[] = { 2, 3, 4, SIZE_MAX,
        SIZE_MAX / 2 }; /* of two: there are three */
    static const size_t MANY[] = { 4, SIZE_MAX };
    const size_t op = offsetof(struct gallery_row, op);
    for (size_t i = 0; i < sizeof(FIRST) / sizeof(FIRST[0]); i++)
        assert_change_refused(
            first_gallery_row, op + offsetof(struct gallery_op, node), &FIRST[i], sizeof(FIRST[i]));
    for (size_t i = 0; i < sizeof(MANY) / sizeof(MANY[0]); i++) {
        assert_change_refused(
            first_gallery_row, op + offsetof(struct gallery_op, nodes), &MANY[i], sizeof(MANY[i]));
        assert_change_refused(first_gallery_overlay,
            offsetof(struct gallery_overlay, op) + offsetof(struct gallery_op, nodes), &MANY[i],
            sizeof(MANY[i]));
    }
}

static void what_is_no_truth_no_status_and_no_number_is_refused(void **state)
{
    (void)state;
    static const unsigned char TWO = 2;
    static const int STATUS[] = { GALLERY_STATUS__COUNT + 1, -1 };
    static const double NOT[] = { NAN, INFINITY };
    const size_t op = offsetof(struct gallery_row, op);
    const size_t bools[] = { op + offsetof(struct gallery_op, is_backend_op),
        op + offsetof(struct gallery_op, cancellable), offsetof(struct gallery_row, dismissed) };
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++)
        assert_change_refused(first_gallery_row, bools[i], &TWO, sizeof(TWO));
    for (size_t i = 0; i < 2; i++) {
        assert_change_refused(first_gallery_overlay,
            offsetof(struct gallery_overlay, op) + offsetof(struct gallery_op, status), &STATUS[i],
            sizeof(STATUS[i]));
        assert_change_refused(
            first_gallery_row, op + offsetof(struct gallery_op, progress), &NOT[i], sizeof(NOT[i]));
        assert_change_refused(
            first_node, offsetof(struct gallery_node, percentage), &NOT[i], sizeof(NOT[i]));
    }
}

/* Texts of entries are mended when they are printed; those of nodes are printed as they are. */
static void texts_of_nodes_must_be_utf8(void **state)
{
    (void)state;
    struct poll_state s = poll_scene();
    cleanup_buf struct buf block = BUF_INIT(ROOM);
    poll_state_pack(&s, &block);
    char *text = memmem(block.data, block.len, "disk full", sizeof("disk full"));
    assert_non_null(text);
    text[0] = '\xff';
    assert_refused(&block);
}

static void a_foreign_block_is_refused(void **state)
{
    (void)state;
    char zeros[4096] = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(unpack_exact(zeros, sizeof(zeros), &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(unpack_exact(zeros, 0, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_comes_back_as_it_was),
        cmocka_unit_test(an_unpacked_state_can_be_packed_again),
        cmocka_unit_test(an_empty_state_comes_back_empty),
        cmocka_unit_test(a_block_is_appended_and_read_at_any_alignment),
        cmocka_unit_test(what_does_not_fit_marks_the_buffer),
        cmocka_unit_test(a_block_cut_anywhere_is_refused),
        cmocka_unit_test(a_block_with_any_byte_changed_is_safe),
        cmocka_unit_test(texts_and_claims_must_end_within_the_block),
        cmocka_unit_test(a_text_outside_the_block_is_refused),
        cmocka_unit_test(nodes_outside_the_block_are_refused),
        cmocka_unit_test(what_is_no_truth_no_status_and_no_number_is_refused),
        cmocka_unit_test(texts_of_nodes_must_be_utf8),
        cmocka_unit_test(a_foreign_block_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
