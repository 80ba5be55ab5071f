/* SPDX-License-Identifier: Apache-2.0 */

/* What counts as sane, in bodies and in Redis: operations contract, sections 3, 5 and 7. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/gallery.h"
#include "model/overlay.h"

static struct gallery_node node(void)
{
    return (struct gallery_node){ .node_id = "1",
        .node_name = "a",
        .status = "queued",
        .percentage = 0,
        .file_name = "",
        .current = "",
        .total = "",
        .phase = "",
        .error = "" };
}

static struct gallery_overlay overlay(void)
{
    return (struct gallery_overlay){ .op = { .id = "job",
                                         .element_name = "",
                                         .cache_key = "",
                                         .op_type = "",
                                         .status = GALLERY_PROCESSING,
                                         .progress = 100,
                                         .phase = "",
                                         .message = "",
                                         .error = "",
                                         .file_name = "",
                                         .current_bytes = OVERLAY_NUMBER_MAX,
                                         .total_bytes = OVERLAY_NUMBER_MAX },
        .stamp_us = 1 };
}

/* n times a character of two bytes. Owned by the caller. */
static char *long_text(size_t n)
{
    char *text = mem_calloc(2 * n + 1, 1);
    for (size_t i = 0; i < n; i++)
        memcpy(text + 2 * i, "\xC3\xA4", 2);
    return text;
}

static void a_node_has_a_name_a_known_status_and_a_percentage(void **state)
{
    static const char *const KNOWN[] = { "queued", "running_on_worker", "downloading", "success",
        "error" };
    static const char *const UNKNOWN[] = { "", "Queued", "done", "queued " };
    static const double GOOD[] = { 0, 0.5, 100 };
    static const double BAD[] = { -0.1, 100.1, NAN, INFINITY, -INFINITY };
    struct gallery_node n = node();
    (void)state;
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        n.status = KNOWN[i];
        assert_true(gallery_node_is_sane(&n));
    }
    for (size_t i = 0; i < sizeof(UNKNOWN) / sizeof(UNKNOWN[0]); i++) {
        n.status = UNKNOWN[i];
        assert_false(gallery_node_is_sane(&n));
    }
    n.status = "success";
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        n.percentage = GOOD[i];
        assert_true(gallery_node_is_sane(&n));
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        n.percentage = BAD[i];
        assert_false(gallery_node_is_sane(&n));
    }
    n = node();
    n.node_id = "";
    assert_true(gallery_node_is_sane(&n));
    n.node_name = "";
    assert_false(gallery_node_is_sane(&n));
    n.node_id = "1";
    assert_true(gallery_node_is_sane(&n));
}

static void texts_of_a_node_are_utf8_and_bounded(void **state)
{
    static const size_t AT[] = { offsetof(struct gallery_node, node_id),
        offsetof(struct gallery_node, node_name), offsetof(struct gallery_node, file_name),
        offsetof(struct gallery_node, current), offsetof(struct gallery_node, total),
        offsetof(struct gallery_node, phase), offsetof(struct gallery_node, error) };
    (void)state;
    for (size_t i = 0; i < sizeof(AT) / sizeof(AT[0]); i++) {
        const size_t most = i == 6 ? GALLERY_NODE_ERROR_MAX : GALLERY_NODE_TEXT_MAX;
        cleanup_free char *fits = long_text(most);
        cleanup_free char *over = long_text(most + 1);
        const char *const texts[] = { fits, over, "\xFF" };
        for (int t = 0; t < 3; t++) {
            struct gallery_node n = node();
            memcpy((char *)&n + AT[i], &texts[t], sizeof(texts[t]));
            assert_int_equal(gallery_node_is_sane(&n), t == 0);
        }
    }
}

/* "Malformed overlay values (wrong types, NaN, negative or absurd numbers, not UTF-8, too large) count as
 * absent". */
static void an_overlay_has_sane_numbers_and_an_active_status(void **state)
{
    struct gallery_overlay o = overlay();
    (void)state;
    assert_true(gallery_overlay_is_sane(&o));
    for (int s = 0; s <= GALLERY_STATUS__COUNT; s++) {
        o.op.status = (enum gallery_status)s;
        assert_int_equal(gallery_overlay_is_sane(&o), gallery_is_active((enum gallery_status)s));
    }
    static const double BAD[] = { -0.1, 100.1, NAN, INFINITY };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        o = overlay();
        o.op.progress = BAD[i];
        assert_false(gallery_overlay_is_sane(&o));
    }
    static const size_t AT[] = { offsetof(struct gallery_overlay, op.current_bytes),
        offsetof(struct gallery_overlay, op.total_bytes),
        offsetof(struct gallery_overlay, stamp_us) };
    static const int64_t NUMBERS[] = { -1, INT64_MIN, OVERLAY_NUMBER_MAX + 1 };
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 3; k++) {
            o = overlay();
            memcpy((char *)&o + AT[i], &NUMBERS[k], sizeof(NUMBERS[k]));
            assert_false(gallery_overlay_is_sane(&o));
        }
    }
}

static void texts_of_an_overlay_are_utf8_and_bounded(void **state)
{
    static const struct {
        size_t at, most;
    } CASES[] = { { offsetof(struct gallery_overlay, op.element_name), GALLERY_NAME_MAX },
        { offsetof(struct gallery_overlay, op.cache_key), GALLERY_CACHE_KEY_MAX },
        { offsetof(struct gallery_overlay, op.phase), GALLERY_PHASE_MAX },
        { offsetof(struct gallery_overlay, op.file_name), GALLERY_FILE_MAX },
        { offsetof(struct gallery_overlay, op.message), GALLERY_TEXT_KEPT },
        { offsetof(struct gallery_overlay, op.error), GALLERY_TEXT_KEPT },
        { offsetof(struct gallery_overlay, op.id), GALLERY_ID_MAX } };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        cleanup_free char *fits = long_text(CASES[i].most);
        cleanup_free char *over = long_text(CASES[i].most + 1);
        const char *const texts[] = { fits, over, "\xFF" };
        for (int t = 0; t < 3; t++) {
            struct gallery_overlay o = overlay();
            memcpy((char *)&o + CASES[i].at, &texts[t], sizeof(texts[t]));
            assert_int_equal(gallery_overlay_is_sane(&o), t == 0);
        }
    }
}

static void an_overlay_has_sane_nodes_and_not_too_many(void **state)
{
    cleanup_free struct gallery_node *n = mem_calloc(GALLERY_NODES_MAX + 1, sizeof(*n));
    struct gallery_overlay o = overlay();
    (void)state;
    for (int i = 0; i <= GALLERY_NODES_MAX; i++)
        n[i] = node();
    o.op.node = n;
    o.op.nodes = GALLERY_NODES_MAX;
    assert_true(gallery_overlay_is_sane(&o));
    o.op.nodes++;
    assert_false(gallery_overlay_is_sane(&o));
    o.op.nodes = 2;
    n[1].percentage = NAN;
    assert_false(gallery_overlay_is_sane(&o));
}

static void fails_with(int rc, const struct err *e, const char *part)
{
    assert_int_equal(rc, -1);
    assert_int_equal(e->code, ERR_INVALID);
    if (strstr(e->msg, part) == NULL)
        fail_msg("%s, where \"%s\" was due", e->msg, part);
}

static void an_id_has_up_to_36_characters(void **state)
{
    struct err e = ERR_INIT;
    cleanup_free char *fits = long_text(36);
    cleanup_free char *over = long_text(37);
    (void)state;
    assert_int_equal(gallery_id_check("2f1c9d2e-0000-4000-8000-000000000001", &e), 0);
    assert_int_equal(gallery_id_check("a/b@c:d", &e), 0);
    assert_int_equal(gallery_id_check(fits, &e), 0);
    fails_with(gallery_id_check(over, &e), &e, "id: longer than 36");
    fails_with(gallery_id_check("", &e), &e, "empty");
    fails_with(gallery_id_check("a\nb", &e), &e, "control");
    fails_with(gallery_id_check("\xFF", &e), &e, "UTF-8");
    fails_with(gallery_id_check("..", &e), &e, "dot");
}

static void an_admission_names_the_wrong_field(void **state)
{
    struct err e = ERR_INIT;
    struct gallery_admission a = GALLERY_ADMISSION_INIT;
    static const char *const TYPES[] = { "model_install", "model_delete", "backend_install",
        "backend_delete" };
    (void)state;
    fails_with(gallery_admission_check(&a, &e), &e, "gallery_element_name");
    a.element_name = "";
    fails_with(gallery_admission_check(&a, &e), &e, "gallery_element_name");
    a.element_name = "x";
    fails_with(gallery_admission_check(&a, &e), &e, "op_type");
    a.op_type = "upgrade";
    fails_with(gallery_admission_check(&a, &e), &e, "op_type");
    for (int i = 0; i < 4; i++) {
        a.op_type = TYPES[i];
        assert_int_equal(gallery_admission_check(&a, &e), 0);
    }
    a.id = "";
    assert_int_equal(gallery_admission_check(&a, &e), 0); /* missing: one is made */
    a.id = "staging:d"; /* what a copy is called in the same list */
    fails_with(gallery_admission_check(&a, &e), &e, "id: ");
    a.id = "staging";
    assert_int_equal(gallery_admission_check(&a, &e), 0);
    a.id = "..";
    fails_with(gallery_admission_check(&a, &e), &e, "id: ");
}

static void a_report_names_the_wrong_field(void **state)
{
    struct err e = ERR_INIT;
    struct gallery_report r = GALLERY_REPORT_INIT;
    (void)state;
    assert_int_equal(gallery_report_check(&r, &e), 0);
    r.status = "";
    assert_int_equal(gallery_report_check(&r, &e), 0);
    for (int s = 0; s < GALLERY_STATUS__COUNT; s++) {
        r.status = gallery_status_name((enum gallery_status)s);
        assert_int_equal(gallery_report_check(&r, &e), 0);
    }
    r.status = "unknown";
    fails_with(gallery_report_check(&r, &e), &e, "status");
    r.status = NULL;
    r.progress = 100;
    assert_int_equal(gallery_report_check(&r, &e), 0);
    r.progress = 100.5;
    fails_with(gallery_report_check(&r, &e), &e, "progress");
    r.progress = NAN;
    fails_with(gallery_report_check(&r, &e), &e, "progress");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_has_a_name_a_known_status_and_a_percentage),
        cmocka_unit_test(texts_of_a_node_are_utf8_and_bounded),
        cmocka_unit_test(an_overlay_has_sane_numbers_and_an_active_status),
        cmocka_unit_test(texts_of_an_overlay_are_utf8_and_bounded),
        cmocka_unit_test(an_overlay_has_sane_nodes_and_not_too_many),
        cmocka_unit_test(an_id_has_up_to_36_characters),
        cmocka_unit_test(an_admission_names_the_wrong_field),
        cmocka_unit_test(a_report_names_the_wrong_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
