/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-agent: what a node does with artifacts. */
#include "daemons/agent.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const char USAGE[] =
    "usage: weighbridge-agent COMMAND [OPTION]... [ARGUMENT]...\n"
    "\n"
    "  run                            keeps this node as the control plane wants it: the daemon\n"
    "  fetch MANIFEST_URL             gets a version, verifies it and lands it\n"
    "  adopt DIR [MANIFEST_URL]       lands a version from files that are here already\n"
    "  verify ARTIFACT VERSION        reads a landed version whole\n"
    "  switch ARTIFACT VERSION        makes `current` point to a landed version\n"
    "  status                         says what there is, as JSON\n"
    "  publish DIR                    puts a directory into the store as a new version\n"
    "  import hf|oci DIR              likewise, of a directory of Hugging Face or an OCI image layout\n"
    "\n"
    "'weighbridge-agent COMMAND --help' says more.\n"
    "\n" TOOL_COMMON_USAGE;

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} COMMANDS[] = {
    { "run", agent_run },
    { "fetch", agent_fetch },
    { "adopt", agent_adopt },
    { "verify", agent_verify },
    { "switch", agent_switch },
    { "status", agent_status },
    { "publish", agent_publish },
    { "import", agent_import },
};

int agent_failed(const char *what, const struct mishap *m)
{
    const char *body = m->body[0] == '\0' ? NULL : m->body;
    const struct log_kv kvs[] = {
        LOG_MSG(what),
        LOG_S("class", mishap_class_name(m->grade)),
        LOG_S("reason", mishap_reason_name(m->reason)),
        LOG_S("error", m->text),
        { .key = body == NULL ? NULL : "body", .text = body, .number = 0 },
        { .key = NULL, .text = NULL, .number = 0 },
    };

    log_emit(LOG_ERROR, kvs);
    return m->grade == MISHAP_RETRYABLE ? AGENT_USED_UP : AGENT_FATAL;
}

int main(int argc, char **argv)
{
    const struct tool general = { .name = "weighbridge-agent", .usage = USAGE };
    cleanup_conf struct conf conf = { 0 };

    (void)signal(SIGPIPE,
        SIG_IGN); /* but in `run`, others end it at once: whatever lies there is taken up later */
    for (size_t i = 0; argc > 1 && i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1);
    }
    if (argc < 2 || argv[1][0] != '-') {
        fprintf(stderr, "weighbridge-agent: %s\nTry 'weighbridge-agent --help'.\n",
            argc < 2 ? "no command" : "unknown command");
        return TOOL_USAGE;
    }
    return tool_start(&general, argc, argv, &conf) < 0 ? TOOL_USAGE : EXIT_SUCCESS;
}
