/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TOOL_H
#define WB_TOOL_H

/* What the programs that do one thing and leave have in common: their arguments, the configuration, the log. */
#include <stdbool.h>
#include <stddef.h>

#include "base/conf.h"

enum { TOOL_USAGE = 2 }; /* exit status: the arguments or the configuration are wrong */

/* An option of a program's own: with a value, or a flag. The other is NULL. */
struct tool_option {
    const char *name;
    const char **value;
    bool *flag;
};

/* What stands after the options. */
struct tool_operands {
    size_t least;
    size_t most;
    size_t n;
    char **at;
};

struct tool {
    const char *name;  /* of the program */
    const char *usage; /* whole text, with the common options */
    const struct tool_option *option;
    size_t options;
    struct tool_operands *operands; /* NULL: none */
    const char **config; /* where to put the path of the configuration; NULL: nobody asks */
};

/* The text of the options that every tool has. */
#define TOOL_COMMON_USAGE \
    "  --config FILE    ini file (else $WB_CONFIG, else " CONF_USUAL_PATH ")\n" \
    "  --print-config   print the effective configuration\n" \
    "  --version, --help\n"

/* Reads the arguments, fills *conf (which the caller frees) and sets up the log. 0: go on; 1: all that was
 * asked for has been printed; -1: what is wrong has been said. */
int tool_start(const struct tool *t, int argc, char **argv, struct conf *conf);

#endif
