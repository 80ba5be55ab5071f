/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WEB_OPTIONS_H
#define WB_WEB_OPTIONS_H

/* The command line of a FastCGI program. */
#include <stdbool.h>

#include "web/web_main.h"

enum web_action {
    WEB_RUN,
    WEB_CHECK,        /* --check */
    WEB_PRINT_CONFIG, /* --print-config */
    WEB_PRINT_MANUAL, /* --print-config=markdown */
    WEB_VERSION,
    WEB_HELP,
    WEB_USAGE, /* wrong arguments; what is wrong is on stderr */
};

struct web_options {
    enum web_action action;
    const char *config; /* NULL: no file */
    bool worker;        /* started by a supervisor */
};

/* Reads argv and, for the configuration file, WB_CONFIG and the usual place. Before threads. */
struct web_options web_options_parse(int argc, char **argv);

/* The same for a CGI process: a web server may pass a query string as arguments, so that a stranger
 * would choose them. */
struct web_options web_options_cgi(void);

void web_options_help(const struct web_app *app);

#endif
