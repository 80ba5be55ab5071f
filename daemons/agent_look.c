/* SPDX-License-Identifier: Apache-2.0 */

/* The commands about what has landed. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemons/agent.h"
#include "store/inspect.h"
#include "depot/land.h"
#include "depot/rehash.h"
#include "depot/status.h"
#include "json/jx.h"

enum { HASH_THREADS = 2, STATUS_MAX = 16 << 20 };

#define LOOK_USAGE "  --root ROOT        folder of the versions (else [agent] root)\n"

static const char VERIFY_USAGE[] =
    "usage: weighbridge-agent verify [OPTION]... ARTIFACT VERSION\n"
    "\n"
    "Reads a landed version from disk and compares every shard with its manifest.\n"
    "\n" LOOK_USAGE TOOL_COMMON_USAGE;

static const char SWITCH_USAGE[] =
    "usage: weighbridge-agent switch [OPTION]... ARTIFACT VERSION\n"
    "\n"
    "Makes `current` of the artifact point to a landed version whose set of files is whole.\n"
    "\n" LOOK_USAGE TOOL_COMMON_USAGE;

static const char STATUS_USAGE[] = "usage: weighbridge-agent status [OPTION]...\n"
                                   "\n"
                                   "Prints as JSON what lies below the root.\n"
                                   "\n" LOOK_USAGE TOOL_COMMON_USAGE;

struct look {
    const char *name;
    const char *usage;
    struct tool_operands operands;
    struct conf conf;
    const char *root;
    struct depot depot; /* of the artifact that was named */
    struct landed landed;
};

static void look_end(struct look *l)
{
    landed_close(&l->landed);
    depot_close(&l->depot);
    conf_free(&l->conf);
}
#define cleanup_look __attribute__((cleanup(look_end)))

/* 0: go on; 1: *status is the exit status. */
static int look_begin(struct look *l, int argc, char **argv, int *status)
{
    const struct tool_option own[] = { { "root", &l->root, NULL } };
    const struct tool tool = { l->name, l->usage, own, 1, &l->operands, NULL };
    const int rc = tool_start(&tool, argc, argv, &l->conf);

    *status = rc < 0 ? TOOL_USAGE : AGENT_DONE;
    if (rc == 0 && l->root == NULL)
        l->root = l->conf.agent_root;
    return rc != 0;
}

/* Names from the command line: no path gets past this. */
static int check_names(const struct look *l)
{
    struct err e = ERR_INIT;

    if (artifact_name_check("ARTIFACT", l->operands.at[0], ARTIFACT_NAME_MAX, &e) == 0 &&
        artifact_name_check("VERSION", l->operands.at[1], VERSION_NAME_MAX, &e) == 0)
        return 0;
    fprintf(stderr, "%s: %s\n", l->name, e.msg);
    return -1;
}

/* Opens the version that was named, and looks whether its set of files is whole. */
static int open_version(struct look *l, struct mishap *m)
{
    const char *version = l->operands.at[1];

    if (depot_open(&l->depot, l->root, l->operands.at[0], false, m) < 0)
        return -1;
    const int rc = landed_open(&l->depot, version, &l->landed, m);
    if (rc > 0)
        return mishap_set(m, MISHAP_ARTIFACT_MISSING, "version %s has not landed here", version);
    if (rc < 0)
        return -1;
    return inspect_tree(&l->landed.manifest, l->landed.files, true, m);
}

static int hash_all(const struct landed *v, struct mishap *m)
{
    size_t bad = 0;
    size_t first = 0;
    cleanup_free bool *good = mem_calloc(v->manifest.shards + 1, sizeof *good);
    const struct rehash r = { .manifest = &v->manifest,
        .files = v->files,
        .good = good,
        .from_disk = true,
        .threads = HASH_THREADS };

    if (rehash_run(&r, m) < 0)
        return -1;
    for (size_t i = v->manifest.shards; i-- > 0;) {
        if (good[i])
            continue;
        bad++;
        first = i;
    }
    if (bad == 0)
        return 0;
    const struct shard_place at = manifest_place(&v->manifest, first);
    (void)mishap_set(m, MISHAP_SHARD_MISMATCH,
        "%zu of %zu shards are wrong, the first in %.80s at %lld", bad, v->manifest.shards,
        v->manifest.file[at.file].path, (long long)at.offset);
    m->grade = MISHAP_TASK_FATAL; /* trying again does not help what lies here */
    return -1;
}

int agent_verify(int argc, char **argv)
{
    cleanup_look struct look l = { .name = "weighbridge-agent verify",
        .usage = VERIFY_USAGE,
        .operands = { .least = 2, .most = 2 },
        .depot = DEPOT_INIT,
        .landed = LANDED_INIT };
    struct mishap m = MISHAP_INIT;
    int status = AGENT_DONE;
    char digest[DIGEST_TEXT_SIZE];

    if (look_begin(&l, argc, argv, &status) != 0)
        return status;
    if (check_names(&l) < 0)
        return TOOL_USAGE;
    if (open_version(&l, &m) < 0 || hash_all(&l.landed, &m) < 0)
        return agent_failed("not verified", &m);
    digest_print(&l.landed.digest, digest);
    printf("%s@%s %s verified: %lld bytes\n", l.landed.manifest.artifact, l.landed.manifest.version,
        digest, (long long)l.landed.manifest.total_bytes);
    return AGENT_DONE;
}

int agent_switch(int argc, char **argv)
{
    cleanup_look struct look l = { .name = "weighbridge-agent switch",
        .usage = SWITCH_USAGE,
        .operands = { .least = 2, .most = 2 },
        .depot = DEPOT_INIT,
        .landed = LANDED_INIT };
    struct mishap m = MISHAP_INIT;
    int status = AGENT_DONE;

    if (look_begin(&l, argc, argv, &status) != 0)
        return status;
    if (check_names(&l) < 0)
        return TOOL_USAGE;
    if (open_version(&l, &m) < 0 || switch_current(&l.depot, l.operands.at[1], &m) < 0)
        return agent_failed("not switched", &m);
    return AGENT_DONE;
}

int agent_status(int argc, char **argv)
{
    cleanup_look struct look l = { .name = "weighbridge-agent status",
        .usage = STATUS_USAGE,
        .operands = { .least = 0, .most = 0 },
        .depot = DEPOT_INIT,
        .landed = LANDED_INIT };
    struct mishap m = MISHAP_INIT;
    cleanup_buf struct buf text = BUF_INIT(STATUS_MAX);
    int status = AGENT_DONE;

    if (look_begin(&l, argc, argv, &status) != 0)
        return status;
    if (status_print(l.root, &text, &m) < 0)
        return agent_failed("no status", &m);
    puts(text.data);
    return AGENT_DONE;
}
