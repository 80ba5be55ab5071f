/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_H
#define WB_AGENT_H

/* The commands of weighbridge-agent: artifacts contract section 4, "Command lines". A command gives the exit status of the program. */
#include "base/conf.h"
#include "daemons/tool.h"
#include "model/mishap.h"

enum { AGENT_DONE = 0, AGENT_USED_UP = 1, AGENT_FATAL = 3 }; /* TOOL_USAGE beside */

int agent_run(int argc, char **argv);
int agent_fetch(int argc, char **argv);
int agent_adopt(int argc, char **argv);
int agent_verify(int argc, char **argv);
int agent_status(int argc, char **argv);
int agent_switch(int argc, char **argv);
int agent_publish(int argc, char **argv);
int agent_import(int argc, char **argv);

enum { AGENT_TOKEN_SIZE = 4096 + 1 };

/* The first line of a file, or [agent] token when file is NULL; "": none. The caller wipes it. MISHAP_PERMISSION and the like: it
 * cannot be read, or holds none. */
int agent_read_token(const char *file, const struct conf *conf, char token[AGENT_TOKEN_SIZE],
    struct mishap *m) WARN_UNUSED;

/* Says in one line what went wrong, class and reason first, and gives the exit status for it. */
int agent_failed(const char *what, const struct mishap *m);

#endif
