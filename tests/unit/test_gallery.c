/* SPDX-License-Identifier: Apache-2.0 */

/* Rules of gallery operations: operations contract, sections 2 to 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/gallery.h"

#define NOW    INT64_C(1800000000000000)
#define AGO(s) (NOW - (s)*US_PER_S)

static struct gallery_op op_of(const char *status)
{
    return (struct gallery_op){ .id = "job",
        .element_name = "llama-cpp",
        .cache_key = "",
        .op_type = "backend_install",
        .status = gallery_status_parse(status),
        .phase = "",
        .message = "",
        .error = "",
        .file_name = "" };
}

static struct gallery_row row_of(const char *status, int64_t updated_us)
{
    return (struct gallery_row){
        .op = op_of(status), .created_us = AGO(86400 * 7), .updated_us = updated_us
    };
}

/* --- what is shown --- */

static void each_status_has_its_kind(void **state)
{
    static const struct {
        const char *name;
        bool active, settled, final;
    } CASES[] = { { "pending", true, false, false }, { "downloading", true, false, false },
        { "processing", true, false, false }, { "completed", false, true, true },
        { "failed", false, false, true }, { "cancelled", false, true, true },
        { "paused", false, false, false }, { "", false, false, false },
        { "Pending", false, false, false } };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        enum gallery_status s = gallery_status_parse(CASES[i].name);
        assert_string_equal(gallery_status_name(s), i < 6 ? CASES[i].name : "unknown");
        assert_int_equal(gallery_is_active(s), CASES[i].active);
        assert_int_equal(gallery_is_settled(s), CASES[i].settled);
        assert_int_equal(gallery_is_final(s), CASES[i].final);
    }
}

static void class_is(const char *status, int64_t updated_us, enum gallery_class expected)
{
    struct gallery_row r = row_of(status, updated_us);
    assert_int_equal(gallery_classify(&r, NOW), expected);
}

/* "pending, downloading, processing; updated within 30 minutes". */
static void an_active_row_is_shown_for_30_minutes(void **state)
{
    static const char *const ACTIVE[] = { "pending", "downloading", "processing" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        class_is(ACTIVE[i], NOW, GALLERY_CLASS_ACTIVE);
        class_is(ACTIVE[i], AGO(1800), GALLERY_CLASS_ACTIVE);
        class_is(ACTIVE[i], AGO(1800) - 1, GALLERY_CLASS_STALE);
        class_is(ACTIVE[i], NOW + 3600 * US_PER_S, GALLERY_CLASS_ACTIVE);
        class_is(ACTIVE[i], 0, GALLERY_CLASS_STALE); /* made a week ago */
    }
}

/* "failed row that nobody dismissed and that is under 24 h old". */
static void a_failure_is_shown_for_24_hours_unless_dismissed(void **state)
{
    (void)state;
    class_is("failed", AGO(86399), GALLERY_CLASS_FAILED);
    class_is("failed", AGO(86400), GALLERY_CLASS_OVER);
    struct gallery_row r = row_of("failed", NOW);
    r.dismissed = true;
    assert_int_equal(gallery_classify(&r, NOW), GALLERY_CLASS_OVER);
    r.op.status = GALLERY_PENDING; /* taken up again: the dismissal was of the failure */
    assert_int_equal(gallery_classify(&r, NOW), GALLERY_CLASS_ACTIVE);
}

static void what_is_settled_is_over_and_what_is_unknown_is_not_shown(void **state)
{
    (void)state;
    class_is("completed", NOW, GALLERY_CLASS_OVER);
    class_is("cancelled", NOW, GALLERY_CLASS_OVER);
    class_is("paused", NOW, GALLERY_CLASS_UNKNOWN);
    class_is("", NOW, GALLERY_CLASS_UNKNOWN);
}

static void unset_stamps_do_not_count_and_future_ones_count_as_now(void **state)
{
    (void)state;
    struct gallery_row r = { .created_us = AGO(5) };
    assert_int_equal(gallery_changed_us(&r, NOW), AGO(5));
    r.updated_us = AGO(3);
    assert_int_equal(gallery_changed_us(&r, NOW), AGO(3));
    r.created_us = 0;
    assert_int_equal(gallery_changed_us(&r, NOW), AGO(3));
    r.updated_us = NOW + 9;
    assert_int_equal(gallery_changed_us(&r, NOW), NOW);
    r.updated_us = 0;
    assert_int_equal(gallery_changed_us(&r, NOW), 0);
}

static void each_time_stands_in_for_one_that_is_unset(void **state)
{
    (void)state;
    const struct gallery_row both = { .created_us = 5, .updated_us = 9 };
    const struct gallery_row created = { .created_us = 5 };
    const struct gallery_row updated = { .updated_us = 9 };
    const struct gallery_row none = { .created_us = 0 };
    assert_int_equal(gallery_started_us(&both), 5);
    assert_int_equal(gallery_finished_us(&both), 9);
    assert_int_equal(gallery_started_us(&created), 5);
    assert_int_equal(gallery_finished_us(&created), 5);
    assert_int_equal(gallery_started_us(&updated), 9);
    assert_int_equal(gallery_finished_us(&updated), 9);
    assert_int_equal(gallery_started_us(&none) + gallery_finished_us(&none), 0);
}

/* --- names --- */

/* "id = cache_key (or gallery_element_name when empty) with a node:<nodeID>: prefix taken off; name = id
 * after its first @, if any [...] backend names may contain colons, split at the first after the
 * prefix; an empty node or backend part means it is no prefix". */
static void an_operation_is_called_by_its_cache_key(void **state)
{
    static const struct {
        const char *cache_key, *element, *id, *name, *node;
    } CASES[] = {
        { "localai@llama-cpp", "x", "localai@llama-cpp", "llama-cpp", "" },
        { "", "localai@phi", "localai@phi", "phi", "" },
        { "plain", "", "plain", "plain", "" },
        { "a@b@c", "", "a@b@c", "b@c", "" },
        { "@b", "", "@b", "b", "" },
        { "a@", "", "a@", "a@", "" },
        { "node:n1:llama-cpp", "", "llama-cpp", "llama-cpp", "n1" },
        { "node:n1:localai@llama-cpp", "", "localai@llama-cpp", "llama-cpp", "n1" },
        { "node:n1:oci://quay.io/a:v1", "", "oci://quay.io/a:v1", "oci://quay.io/a:v1", "n1" },
        { "node:n1::b", "", ":b", ":b", "n1" },
        { "", "node:n1:b", "b", "b", "n1" },
        { "node:n@1:b", "", "b", "b", "n@1" },
        { "node::b", "", "node::b", "node::b", "" },
        { "node:n1:", "", "node:n1:", "node:n1:", "" },
        { "node:n1", "", "node:n1", "node:n1", "" },
        { "node:", "", "node:", "node:", "" },
        { "Node:n1:b", "", "Node:n1:b", "Node:n1:b", "" },
        { "a node:n1:b", "", "a node:n1:b", "a node:n1:b", "" },
        { "", "", "job", "job", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gallery_op op = op_of("pending");
        op.cache_key = CASES[i].cache_key;
        op.element_name = CASES[i].element;
        struct gallery_names n = gallery_names(&op);
        assert_string_equal(n.id, CASES[i].id);
        assert_string_equal(n.name, CASES[i].name);
        assert_int_equal(n.node_size, strlen(CASES[i].node));
        assert_memory_equal(n.node_id ? n.node_id : "", CASES[i].node, n.node_size);
    }
}

static void the_type_says_what_is_done_to_what(void **state)
{
    static const struct {
        const char *type;
        bool flag, deletion, backend;
    } CASES[] = { { "model_install", false, false, false }, { "model_delete", false, true, false },
        { "backend_install", false, false, true }, { "backend_delete", false, true, true },
        { "model_install", true, false, true }, { "", false, false, false },
        { "backend_upgrade", false, false, true }, { "_delete", true, true, true },
        { "delete_all", false, false, false }, { "a_backend_b", false, false, false } };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gallery_op op = op_of("pending");
        op.op_type = CASES[i].type;
        op.is_backend_op = CASES[i].flag;
        assert_int_equal(gallery_is_deletion(&op), CASES[i].deletion);
        assert_int_equal(gallery_is_backend(&op), CASES[i].backend);
    }
}

/* "status pending and (phase = "queued", or no phase and no progress)". */
static void queued_is_pending_without_a_sign_of_life(void **state)
{
    static const struct {
        const char *status, *phase;
        double progress;
        bool queued;
    } CASES[] = { { "pending", "", 0, true }, { "pending", "queued", 0, true },
        { "pending", "queued", 40, true }, { "pending", "", 0.4, false },
        { "pending", "downloading", 0, false }, { "downloading", "", 0, false },
        { "downloading", "queued", 0, false }, { "failed", "queued", 0, false } };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gallery_op op = op_of(CASES[i].status);
        op.phase = CASES[i].phase;
        op.progress = CASES[i].progress;
        assert_int_equal(gallery_is_queued(&op), CASES[i].queued);
    }
}

/* "sorted by node_name then node_id". */
static void nodes_are_sorted_by_name_and_id(void **state)
{
    struct gallery_node n[] = { { .node_id = "2", .node_name = "b" },
        { .node_id = "1", .node_name = "b" }, { .node_id = "9", .node_name = "a" },
        { .node_id = "0", .node_name = "\xC3\xA4" }, { .node_id = "5", .node_name = "" } };
    static const char *const IDS[] = { "5", "9", "1", "2", "0" };
    (void)state;
    gallery_nodes_sort(n, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(n[i].node_id, IDS[i]);
    gallery_nodes_sort(NULL, 0);
}

/* --- reports --- */

static const struct gallery_node NODES[] = { { .node_id = "1",
    .node_name = "a",
    .status = "queued",
    .file_name = "",
    .current = "",
    .total = "",
    .phase = "",
    .error = "" } };

static struct gallery_op stored(void)
{
    struct gallery_op op = op_of("downloading");
    op.cancellable = true;
    op.progress = 40;
    op.phase = "pull";
    op.message = "m";
    op.error = "e";
    op.file_name = "f";
    op.current_bytes = 4;
    op.total_bytes = 10;
    op.node = NODES;
    op.nodes = 1;
    return op;
}

static void a_report_keeps_what_it_does_not_bring(void **state)
{
    const struct gallery_op old = stored();
    struct gallery_report r = GALLERY_REPORT_INIT;
    struct gallery_op o;
    (void)state;
    for (int round = 0; round < 2; round++) {
        gallery_apply(&old, &r, &o);
        assert_int_equal(o.status, GALLERY_DOWNLOADING);
        assert_float_equal(o.progress, 40, 0);
        assert_string_equal(o.phase, "pull");
        assert_string_equal(o.message, "m");
        assert_string_equal(o.error, "e");
        assert_string_equal(o.file_name, "f");
        assert_int_equal(o.current_bytes, 4);
        assert_int_equal(o.total_bytes, 10);
        assert_true(o.cancellable);
        assert_ptr_equal(o.node, NODES);
        assert_int_equal(o.nodes, 1);
        r.status = r.phase = r.message = r.error = r.file_name = ""; /* the same as missing */
    }
}

static void what_a_report_brings_is_laid_on_top(void **state)
{
    const struct gallery_op old = stored();
    const struct gallery_report r = { .status = "processing",
        .progress = 0,
        .phase = "verify",
        .message = "n",
        .current_bytes = 0,
        .total_bytes = 0,
        .file_name = "g",
        .cancellable = 0,
        .error = "d",
        .has_nodes = true };
    struct gallery_op o;
    (void)state;
    gallery_apply(&old, &r, &o);
    assert_int_equal(o.status, GALLERY_PROCESSING);
    assert_float_equal(o.progress, 0, 0);
    assert_string_equal(o.phase, "verify");
    assert_string_equal(o.message, "n");
    assert_string_equal(o.error, "d");
    assert_string_equal(o.file_name, "g");
    assert_int_equal(o.current_bytes + o.total_bytes, 0);
    assert_false(o.cancellable);
    assert_int_equal(o.nodes, 0);
    assert_string_equal(o.element_name, "llama-cpp");
    assert_string_equal(o.id, "job");
}

static void an_end_is_not_cancellable_and_a_correction_clears_the_error(void **state)
{
    static const char *const FINAL[] = { "completed", "cancelled", "failed" };
    struct gallery_op o;
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct gallery_op old = stored();
        struct gallery_report r = GALLERY_REPORT_INIT;
        r.status = FINAL[i];
        r.cancellable = 1;
        gallery_apply(&old, &r, &o);
        assert_false(o.cancellable);
        assert_string_equal(o.error, i == 2 ? "e" : "");
        r.error = "new";
        gallery_apply(&old, &r, &o);
        assert_string_equal(o.error, "new");
    }
}

/* The newer report has been acknowledged and stands; what only the older one says is kept too. */
static void a_report_that_was_overtaken_only_fills_what_is_empty(void **state)
{
    const struct gallery_op old = stored();
    const struct gallery_report r = { .status = "completed",
        .progress = 90,
        .phase = "verify",
        .message = "n",
        .current_bytes = 9,
        .total_bytes = 99,
        .file_name = "g",
        .cancellable = 0,
        .error = "d",
        .has_nodes = true };
    struct gallery_op o;
    (void)state;
    assert_false(gallery_apply_late(&old, &r, &o));
    assert_memory_equal(&o, &old, sizeof(o));

    struct gallery_op bare = op_of("pending");
    bare.progress = 3;
    struct gallery_report full = r;
    full.node = NODES;
    full.nodes = 1;
    assert_true(gallery_apply_late(&bare, &full, &o));
    assert_int_equal(o.status, GALLERY_PENDING);
    assert_float_equal(o.progress, 3, 0);
    assert_string_equal(o.phase, "verify");
    assert_string_equal(o.message, "n");
    assert_string_equal(o.error, "d");
    assert_string_equal(o.file_name, "g");
    assert_int_equal(o.current_bytes, 9);
    assert_int_equal(o.total_bytes, 99);
    assert_int_equal(o.nodes, 1);
    assert_false(gallery_apply_late(&o, &full, &o)); /* nothing is left to fill */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_has_its_kind),
        cmocka_unit_test(an_active_row_is_shown_for_30_minutes),
        cmocka_unit_test(a_failure_is_shown_for_24_hours_unless_dismissed),
        cmocka_unit_test(what_is_settled_is_over_and_what_is_unknown_is_not_shown),
        cmocka_unit_test(unset_stamps_do_not_count_and_future_ones_count_as_now),
        cmocka_unit_test(each_time_stands_in_for_one_that_is_unset),
        cmocka_unit_test(an_operation_is_called_by_its_cache_key),
        cmocka_unit_test(the_type_says_what_is_done_to_what),
        cmocka_unit_test(queued_is_pending_without_a_sign_of_life),
        cmocka_unit_test(nodes_are_sorted_by_name_and_id),
        cmocka_unit_test(a_report_keeps_what_it_does_not_bring),
        cmocka_unit_test(what_a_report_brings_is_laid_on_top),
        cmocka_unit_test(an_end_is_not_cancellable_and_a_correction_clears_the_error),
        cmocka_unit_test(a_report_that_was_overtaken_only_fills_what_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
