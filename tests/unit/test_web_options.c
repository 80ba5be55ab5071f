/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "web/web_options.h"

enum { ARGS_MAX = 4 };

/* Parses up to three arguments; NULL ends them. */
static struct web_options parse(char *first, char *second, char *third)
{
    static char name[] = "test";
    char *argv[ARGS_MAX + 1] = { name, first, second, third, NULL };
    int argc = 1;
    while (argv[argc] != NULL)
        argc++;
    return web_options_parse(argc, argv);
}

static char check[] = "--check";
static char config[] = "--config";
static char file[] = "some.ini";
static char worker[] = "--worker";
static char print[] = "--print-config";
static char manual[] = "--print-config=markdown";
static char wrong_form[] = "--print-config=xml";
static char version[] = "--version";
static char help[] = "--help";
static char unknown[] = "--unknown";
static char word[] = "word";

static void no_arguments_run(void **state)
{
    struct web_options o = parse(NULL, NULL, NULL);
    (void)state;
    assert_int_equal(o.action, WEB_RUN);
    assert_false(o.worker);
}

static void arguments_choose_the_action(void **state)
{
    (void)state;
    assert_int_equal(parse(check, NULL, NULL).action, WEB_CHECK);
    assert_int_equal(parse(print, NULL, NULL).action, WEB_PRINT_CONFIG);
    assert_int_equal(parse(manual, NULL, NULL).action, WEB_PRINT_MANUAL);
    assert_int_equal(parse(version, NULL, NULL).action, WEB_VERSION);
    assert_int_equal(parse(help, NULL, NULL).action, WEB_HELP);
    struct web_options o = parse(worker, config, file);
    assert_int_equal(o.action, WEB_RUN);
    assert_true(o.worker);
    assert_string_equal(o.config, "some.ini");
}

static void unknown_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse(unknown, NULL, NULL).action, WEB_USAGE);
    assert_int_equal(parse(word, NULL, NULL).action, WEB_USAGE);
    assert_int_equal(parse(check, word, NULL).action, WEB_USAGE);
    assert_int_equal(parse(unknown, check, NULL).action, WEB_USAGE);
    assert_int_equal(parse(wrong_form, NULL, NULL).action, WEB_USAGE);
    assert_int_equal(parse(config, NULL, NULL).action, WEB_USAGE);
}

static void the_environment_names_the_file_but_the_argument_goes_first(void **state)
{
    (void)state;
    assert_int_equal(setenv("WB_CONFIG", "other.ini", 1), 0);
    assert_string_equal(parse(NULL, NULL, NULL).config, "other.ini");
    assert_string_equal(web_options_cgi().config, "other.ini");
    assert_string_equal(parse(config, file, NULL).config, "some.ini");
    assert_int_equal(unsetenv("WB_CONFIG"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_arguments_run),
        cmocka_unit_test(arguments_choose_the_action),
        cmocka_unit_test(unknown_arguments_are_refused),
        cmocka_unit_test(the_environment_names_the_file_but_the_argument_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
