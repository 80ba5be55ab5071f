/* SPDX-License-Identifier: Apache-2.0 */

/* Models and deployment templates: reference 1.3 and 1.6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "store/template.h"
#include "tests/store/job_fixture.h"

static void make_model(const char *id, const char *name, const char *info)
{
    struct err e = ERR_INIT;
    cleanup_models struct models out = MODELS_INIT;
    struct model_row m = { .id = id, .name = name, .serving_name = "org/m", .info_json = info };
    ok(model_create(fx.db, &m, &out, &e));
    assert_int_equal(out.n, 1);
    assert_string_equal(out.model[0].id, id);
    assert_true(out.model[0].created_us > 0);
}

static void make(const char *model, const char *name, const char *version, const char *status)
{
    struct err e = ERR_INIT;
    cleanup_templates struct templates out = TEMPLATES_INIT;
    struct template_row t = { .model_id = model,
        .name = name,
        .version = version,
        .status = status,
        .spec_json = "{\"a\": 1}" };
    ok(template_create(fx.db, &t, &out, &e));
}

static void models_are_found(void **state)
{
    static const struct {
        const char *search;
        const char *category;
        size_t n;
    } cases[] = {
        { NULL, NULL, 3 },
        { "", "", 3 },
        { "LLAMA", NULL, 2 },
        { "model-q", NULL, 1 },
        { "org/", NULL, 3 },
        { "100%", NULL, 0 },
        { NULL, "LLM", 2 },
        { "llama", "Vision", 1 },
        { NULL, "llm", 0 },
    };
    struct err e = ERR_INIT;
    cleanup_models struct models out = MODELS_INIT;
    (void)state;
    make_model("model-l3", "Llama 3", "{\"categories\": [\"LLM\"]}");
    make_model("model-l4", "Llama 4", "{\"categories\": [\"LLM\", \"Vision\"]}");
    make_model("model-q", "Qwen", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cleanup_models struct models found = MODELS_INIT;
        ok(model_list(fx.db, cases[i].search, cases[i].category, &found, &e));
        assert_int_equal(found.n, cases[i].n);
        for (size_t k = 1; k < found.n; k++)
            assert_true(strcmp(found.model[k - 1].name, found.model[k].name) < 0);
    }
    ok(model_get(fx.db, "model-q", &out, &e));
    assert_string_equal(out.model[0].name, "Qwen");
    assert_string_equal(out.model[0].serving_name, "org/m");
    assert_string_equal(out.model[0].info_json, "{}");
    models_free(&out);
    fx_fails(model_get(fx.db, "none", &out, &e), &e, ERR_NOT_FOUND, "none");
    struct model_row again = { .id = "model-q", .name = "Other" };
    fx_fails(model_create(fx.db, &again, &out, &e), &e, ERR_CONFLICT, "model-q");
}

static void a_version_of_a_name_is_there_once(void **state)
{
    struct err e = ERR_INIT;
    cleanup_templates struct templates out = TEMPLATES_INIT;
    struct template_row t = { .model_id = "m", .name = "t", .spec_json = "{}" };
    (void)state;
    make_model("m", "M", NULL);
    ok(template_create(fx.db, &t, &out, &e)); /* what is not said */
    assert_string_equal(out.row[0].version, "v1.0.0");
    assert_string_equal(out.row[0].status, "active");
    assert_true(job_uuid_valid(out.row[0].id));
    assert_string_equal(out.row[0].serving_name, "org/m");
    assert_string_equal(out.row[0].spec_json, "{}");
    assert_true(out.row[0].created_us > 0 && out.row[0].updated_us > 0);
    templates_free(&out);
    fx_fails(template_create(fx.db, &t, &out, &e), &e, ERR_CONFLICT, "already");
    t.version = "v2";
    t.status = "retired";
    fx_fails(template_create(fx.db, &t, &out, &e), &e, ERR_INVALID, "status");
    t.status = NULL;
    t.model_id = "none";
    fx_fails(template_create(fx.db, &t, &out, &e), &e, ERR_NOT_FOUND, "none");
}

/* Without a version the highest dotted-numeric active one is meant. */
static void the_highest_active_version_is_meant(void **state)
{
    struct err e = ERR_INIT;
    cleanup_templates struct templates out = TEMPLATES_INIT;
    (void)state;
    make_model("m", "M", NULL);
    make("m", "t", "v1.9.0", "active");
    make("m", "t", "v1.10.0", "active");
    make("m", "t", "v2.0.0", "draft");
    make("m", "t", "latest", "active");
    make("m", "old", "v1", "deprecated");
    ok(template_resolve(fx.db, "m", "t", "", &out, &e));
    assert_string_equal(out.row[0].version, "v1.10.0");
    assert_int_equal(out.n, 1);
    templates_free(&out);
    ok(template_resolve(
        fx.db, NULL, "t", "v2.0.0", &out, &e)); /* an exact one, whatever its status */
    assert_string_equal(out.row[0].status, "draft");
    templates_free(&out);
    fx_fails(template_resolve(fx.db, "m", "old", NULL, &out, &e), &e, ERR_INVALID, "active");
    fx_fails(template_resolve(fx.db, "m", "t", "v3", &out, &e), &e, ERR_NOT_FOUND, "v3");
    fx_fails(template_resolve(fx.db, "m", "none", "", &out, &e), &e, ERR_NOT_FOUND, "none");
    fx_fails(template_resolve(fx.db, "other", "t", "", &out, &e), &e, ERR_NOT_FOUND, "t");
}

static void without_a_model_it_is_the_first_that_has_the_name(void **state)
{
    struct err e = ERR_INIT;
    cleanup_templates struct templates out = TEMPLATES_INIT;
    (void)state;
    make_model("b", "B", NULL);
    make_model("c", "C", NULL);
    make_model("a", "A", NULL);
    make("c", "t", "v9", "active");
    make("b", "t", "v1", "active");
    ok(template_resolve(fx.db, "", "t", "", &out, &e));
    assert_string_equal(out.row[0].model_id, "b");
    templates_free(&out);
    ok(template_resolve(fx.db, "c", "t", "", &out, &e));
    assert_string_equal(out.row[0].model_id, "c");
}

static void the_list_is_by_name_and_version(void **state)
{
    struct err e = ERR_INIT;
    cleanup_templates struct templates all = TEMPLATES_INIT;
    cleanup_templates struct templates some = TEMPLATES_INIT;
    cleanup_templates struct templates none = TEMPLATES_INIT;
    (void)state;
    make_model("m", "M", NULL);
    make_model("empty", "E", NULL);
    make("m", "b", "v1", "active");
    make("m", "a", "v9", "draft");
    make("m", "a", "v10", "active");
    ok(template_list(fx.db, "m", NULL, NULL, &all, &e));
    assert_int_equal(all.n, 3);
    assert_string_equal(all.row[0].version, "v10");
    assert_string_equal(all.row[1].version, "v9");
    assert_string_equal(all.row[2].name, "b");
    ok(template_list(fx.db, "m", "active", "a", &some, &e));
    assert_int_equal(some.n, 1);
    ok(template_list(fx.db, "empty", NULL, NULL, &none, &e));
    assert_int_equal(none.n, 0);
    fx_fails(template_list(fx.db, "none", NULL, NULL, &none, &e), &e, ERR_NOT_FOUND, "none");
}

static void a_template_is_changed_and_removed(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_templates struct templates out = TEMPLATES_INIT;
    cleanup_templates struct templates got = TEMPLATES_INIT;
    (void)state;
    make_model("m", "M", NULL);
    make("m", "t", "v1", "draft");
    make("m", "t", "v2", "draft");
    ok(template_resolve(fx.db, "m", "t", "v1", &out, &e));
    (void)str_copy(id, sizeof id, out.row[0].id);
    templates_free(&out);
    struct template_row t = {
        .model_id = "m", .id = id, .status = "active", .spec_json = "{\"b\": 2}"
    };
    ok(template_update(fx.db, &t, &out, &e));
    assert_string_equal(out.row[0].version, "v1"); /* not said, so as it was */
    assert_string_equal(out.row[0].status, "active");
    assert_string_equal(out.row[0].spec_json, "{\"b\": 2}");
    assert_true(out.row[0].updated_us > out.row[0].created_us);
    templates_free(&out);
    ok(template_get(fx.db, "m", id, &got, &e));
    assert_string_equal(got.row[0].name, "t");
    t.version = "v2";
    fx_fails(template_update(fx.db, &t, &out, &e), &e, ERR_CONFLICT, "already");
    t.version = NULL;
    t.status = "odd";
    fx_fails(template_update(fx.db, &t, &out, &e), &e, ERR_INVALID, "status");
    ok(template_delete(fx.db, "m", id, &e));
    t.status = NULL;
    fx_fails(template_delete(fx.db, "m", id, &e), &e, ERR_NOT_FOUND, id);
    fx_fails(template_update(fx.db, &t, &out, &e), &e, ERR_NOT_FOUND, id);
    fx_fails(template_get(fx.db, "m", "no uuid", &out, &e), &e, ERR_NOT_FOUND, "no uuid");
    t.id = "no uuid";
    fx_fails(template_update(fx.db, &t, &out, &e), &e, ERR_NOT_FOUND, "no uuid");
    fx_fails(template_delete(fx.db, "m", "no uuid", &e), &e, ERR_NOT_FOUND, "no uuid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(models_are_found),
        FX_BOTH(a_version_of_a_name_is_there_once),
        FX_BOTH(the_highest_active_version_is_meant),
        FX_BOTH(without_a_model_it_is_the_first_that_has_the_name),
        FX_BOTH(the_list_is_by_name_and_version),
        FX_BOTH(a_template_is_changed_and_removed),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
