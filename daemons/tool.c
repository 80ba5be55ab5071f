/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/tool.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "config.h"

enum { OPTIONS_MAX = 8, OWN = 256 };

struct arguments {
    const char *config;
    bool print_config;
};

/* The table for getopt_long(): the tool's own options as OWN and their number. */
static void options_of(const struct tool *t, struct option out[OPTIONS_MAX + 5])
{
    static const struct option COMMON[] = {
        { "config", required_argument, NULL, 'c' },
        { "print-config", no_argument, NULL, 'p' },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'v' },
        { NULL, 0, NULL, 0 },
    };
    assert(t->options <= OPTIONS_MAX);
    for (size_t i = 0; i < t->options; i++)
        out[i] = (struct option){ .name = t->option[i].name,
            .has_arg = t->option[i].value ? required_argument : no_argument,
            .val = OWN + (int)i };
    for (size_t i = 0; i < sizeof(COMMON) / sizeof(COMMON[0]); i++)
        out[t->options + i] = COMMON[i];
}

static void set_own(const struct tool_option *o)
{
    if (o->value)
        *o->value = optarg;
    else
        *o->flag = true;
}

static int refuse(const struct tool *t)
{
    fprintf(stderr, "Try '%s --help'.\n", t->name);
    return -1;
}

static int take_operands(const struct tool *t, int argc, char **argv)
{
    const size_t n = (size_t)(argc - optind);
    struct tool_operands *o = t->operands;

    if (n > (o == NULL ? 0 : o->most)) {
        fprintf(stderr, "%s: unknown argument '%s'\n", t->name, argv[argc - 1]);
        return refuse(t);
    }
    if (o == NULL)
        return 0;
    o->n = n;
    o->at = argv + optind;
    if (n >= o->least)
        return 0;
    fprintf(stderr, "%s: an argument is missing\n", t->name);
    return refuse(t);
}

static int parse(const struct tool *t, int argc, char **argv, struct arguments *a)
{
    struct option options[OPTIONS_MAX + 5];
    int c;
    options_of(t, options);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c >= OWN) {
            set_own(&t->option[c - OWN]);
        } else if (c == 'c') {
            a->config = optarg;
        } else if (c == 'p') {
            a->print_config = true;
        } else if (c == 'h') {
            fputs(t->usage, stdout);
            return 1;
        } else if (c == 'v') {
            printf("%s %s\n", t->name, PACKAGE_VERSION);
            return 1;
        } else {
            return refuse(t);
        }
    }
    return take_operands(t, argc, argv);
}

int tool_start(const struct tool *t, int argc, char **argv, struct conf *conf)
{
    struct err e = ERR_INIT;
    struct arguments a = { .config = conf_usual_path() };
    int rc = parse(t, argc, argv, &a);
    if (rc != 0)
        return rc;
    if (t->config != NULL)
        *t->config = a.config;
    log_setup(t->name, LOG_INFO);
    if (conf_load(conf, a.config, &e) < 0) {
        log_error(LOG_MSG("the configuration cannot be used"), LOG_S("error", e.msg));
        return -1;
    }
    if (!a.print_config)
        return 0;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    conf_print(conf, &text);
    fputs(text.data, stdout);
    return 1;
}
