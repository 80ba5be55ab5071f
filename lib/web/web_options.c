/* SPDX-License-Identifier: Apache-2.0 */
#include "web/web_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

struct web_options web_options_cgi(void)
{
    return (struct web_options){ .action = WEB_RUN, .config = conf_usual_path(), .worker = false };
}

static void print_config(struct web_options *o, const char *form)
{
    if (form == NULL) {
        o->action = WEB_PRINT_CONFIG;
    } else if (strcmp(form, "markdown") == 0) {
        o->action = WEB_PRINT_MANUAL;
    } else {
        (void)fprintf(stderr, "--print-config takes nothing or markdown\n");
        o->action = WEB_USAGE;
    }
}

struct web_options web_options_parse(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        { "config", required_argument, NULL, 'c' },
        { "check", no_argument, NULL, 't' },
        { "print-config", optional_argument, NULL, 'p' },
        { "version", no_argument, NULL, 'V' },
        { "help", no_argument, NULL, 'h' },
        { "worker", no_argument, NULL, 'w' },
        { NULL, 0, NULL, 0 },
    };
    struct web_options o = web_options_cgi();
    int c = 0;
    optind = 1;
    while (o.action != WEB_USAGE && (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (c) {
        case 'c':
            o.config = optarg;
            break;
        case 't':
            o.action = WEB_CHECK;
            break;
        case 'p':
            print_config(&o, optarg);
            break;
        case 'V':
            o.action = WEB_VERSION;
            break;
        case 'h':
            o.action = WEB_HELP;
            break;
        case 'w':
            o.worker = true;
            break;
        default:
            o.action = WEB_USAGE;
        }
    }
    if (o.action != WEB_USAGE && optind < argc) {
        (void)fprintf(stderr, "%s: unknown argument '%s'\n", argv[0], argv[optind]);
        o.action = WEB_USAGE;
    }
    return o;
}

void web_options_help(const struct web_app *app)
{
    (void)printf(
        "weighbridge-%s: %s\n\n"
        "usage: weighbridge-%s [--config FILE]\n\n"
        "  --config FILE             ini file (else $WB_CONFIG, else " CONF_USUAL_PATH ")\n"
        "  --check                   look at configuration and token file, then leave\n"
        "  --print-config            print the effective configuration\n"
        "  --print-config=markdown   print what can be configured\n"
        "%s"
        "  --version, --help\n\n"
        "Started by hand or by an init system it makes its socket, or takes the one that systemd\n"
        "passes, and runs its workers; with a listening socket as descriptor 0 it is a worker%s.\n"
        "HUP starts a new generation of workers, TERM ends.\n",
        app->name, app->summary, app->name, app->more_help == NULL ? "" : app->more_help,
        app->no_cgi ? "" : ";\nwith a CGI environment it answers one request");
}
