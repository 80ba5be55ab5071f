/* SPDX-License-Identifier: Apache-2.0 */

/* The commands that put a version into the store. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "daemons/agent.h"
#include "daemons/agent_progress.h"
#include "daemons/agent_publish_from.h"
#include "fetch/publish.h"
#include "fetch/service.h"
#include "store/manifest_json.h"

enum { THREADS = 4, TRIES = 8, POLL_MS = 250 };

#define COMMON_USAGE \
    "  --url URL          of the service: https://HOST (http:// only for this machine)\n" \
    "  --token-file FILE  bearer token of a publisher (else [agent] token)\n" \
    "  --artifact NAME    what it is\n" \
    "  --version VERSION  and which one: never used again for other bytes\n" \
    "  --shard-bytes N    a multiple of 1048576; else 16 MiB, or 64 MiB over 100 GB\n"

static const char PUBLISH_USAGE[] =
    "usage: weighbridge-agent publish [OPTION]... DIR\n"
    "\n"
    "Puts the files below DIR into the store as a new version, and waits until it is verified and published. What the\n"
    "store has already is not sent; whoever was interrupted starts again.\n"
    "\n" COMMON_USAGE "  --kind KIND        weights (the default) or image\n" TOOL_COMMON_USAGE;

static const char IMPORT_USAGE[] =
    "usage: weighbridge-agent import [OPTION]... hf|oci DIR\n"
    "\n"
    "Publishes what is on this disk in another form. hf: a model of Hugging Face's cache, one of its snapshots, or a clone. oci: an\n"
    "OCI image layout, whose blobs are held against their names.\n"
    "\n" COMMON_USAGE
    "  --revision REV     hf: which snapshot; else that of refs/main, or the only one\n" TOOL_COMMON_USAGE;

struct arguments {
    const char *url;
    const char *token_file;
    const char *artifact;
    const char *version;
    const char *shard_bytes;
    const char *kind;
    const char *revision;
};

static void show(struct progress *p, const char *phase, int64_t done, int64_t total)
{
    if (p->phase != phase)
        progress_phase(p, phase, 0, total);
    progress_show_some(p, done);
}

static void show_hashing(void *ctx, int64_t done, int64_t total)
{
    show(ctx, "hashing", done, total);
}

static void show_publishing(void *ctx, enum publish_phase phase, int64_t done, int64_t total)
{
    static const char *const PHASES[] = {
        [PUBLISH_UPLOADING] = "sending",
        [PUBLISH_VERIFYING] = "being verified",
    };
    show(ctx, PHASES[phase], done, total);
}

/* A command in hand. */
struct command {
    struct arguments a;
    struct tool_operands operands;
    struct conf conf;
    char token[AGENT_TOKEN_SIZE];
    struct progress shown;
    struct outbound_options options;
};

static void command_end(struct command *c)
{
    progress_end(&c->shown);
    conf_free(&c->conf);
    explicit_bzero(c->token, sizeof c->token);
}
#define cleanup_command __attribute__((cleanup(command_end)))

static int usage(const char *what)
{
    fprintf(stderr, "weighbridge-agent: %s\n", what);
    return TOOL_USAGE;
}

/* One line, class first, as all commands have it. A conflict is for people to resolve: status 1, as whatever may be tried again. */
static int failed(struct command *c, const struct err *e)
{
    static const enum mishap_reason OF[ERR__COUNT] = {
        [ERR_UNAVAILABLE] = MISHAP_CONNECT,
        [ERR_TIMEOUT] = MISHAP_TIMEOUT,
        [ERR_UNAUTHENTICATED] = MISHAP_PERMISSION,
        [ERR_FORBIDDEN] = MISHAP_PERMISSION,
        [ERR_NOT_FOUND] = MISHAP_ARTIFACT_MISSING,
    };
    struct mishap m = MISHAP_INIT;

    progress_end(&c->shown);
    (void)mishap_err(&m, OF[e->code] == MISHAP_NONE ? MISHAP_MANIFEST_MISMATCH : OF[e->code], e);
    const int status = agent_failed("not published", &m);
    return e->code == ERR_CONFLICT ? AGENT_USED_UP : status;
}

static int check_arguments(struct command *c)
{
    struct err e = ERR_INIT;
    int64_t shard_bytes = 0;

    if (c->a.url == NULL || c->a.artifact == NULL || c->a.version == NULL)
        return usage("--url, --artifact and --version are needed");
    if (service_url_check(c->a.url, &e) < 0) {
        (void)err_wrap(&e, "--url");
        return usage(e.msg);
    }
    if (artifact_name_check("--artifact", c->a.artifact, ARTIFACT_NAME_MAX, &e) < 0 ||
        artifact_name_check("--version", c->a.version, VERSION_NAME_MAX, &e) < 0)
        return usage(e.msg);
    if (c->a.shard_bytes != NULL &&
        (str_to_i64(c->a.shard_bytes, SHARD_UNIT, SHARD_BYTES_MAX, &shard_bytes) < 0 ||
            shard_bytes % SHARD_UNIT != 0))
        return usage("--shard-bytes: a multiple of 1048576, up to 1073741824");
    if (c->a.kind != NULL && !artifact_kind_parse(c->a.kind, &c->options.kind))
        return usage("--kind: weights or image");
    c->options.artifact = c->a.artifact;
    c->options.version = c->a.version;
    c->options.shard_bytes = shard_bytes;
    return AGENT_DONE;
}

/* What one of the commands has by itself. */
struct form {
    const char *name;
    const char *usage;
    struct tool_option option;
};

/* 0: go on; 1: *status is the exit status. */
static int command_begin(
    struct command *c, const struct form *form, int argc, char **argv, int *status)
{
    struct mishap m = MISHAP_INIT;
    const struct tool_option own[] = { { "url", &c->a.url, NULL },
        { "token-file", &c->a.token_file, NULL }, { "artifact", &c->a.artifact, NULL },
        { "version", &c->a.version, NULL }, { "shard-bytes", &c->a.shard_bytes, NULL },
        form->option };
    const struct tool tool = { form->name, form->usage, own, sizeof own / sizeof own[0],
        &c->operands, NULL };
    const int rc = tool_start(&tool, argc, argv, &c->conf);

    *status = rc < 0 ? TOOL_USAGE : AGENT_DONE;
    if (rc != 0)
        return 1;
    *status = check_arguments(c);
    if (*status != AGENT_DONE)
        return 1;
    if (agent_read_token(c->a.token_file, &c->conf, c->token, &m) < 0) {
        *status = agent_failed("the token cannot be read", &m);
        return 1;
    }
    progress_begin(&c->shown, c->a.artifact, c->a.version);
    c->options.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    c->options.progress = show_hashing;
    c->options.ctx = &c->shown;
    return 0;
}

static int say(struct command *c, const struct publication *p, const struct publish_result *r)
{
    char digest[DIGEST_TEXT_SIZE];
    const struct digest d = manifest_digest(p->text, p->size);

    progress_end(&c->shown);
    digest_print(&d, digest);
    printf("%s %s published: %" PRId64 " bytes in %zu files, %" PRId64 " sent, %" PRId64
           " of %zu shards there already\n",
        c->shown.what, digest, p->manifest->total_bytes, p->manifest->files, r->bytes_sent,
        r->shards_there, p->manifest->shards);
    return AGENT_DONE;
}

static int publish_tree(struct command *c, const struct outbound *tree, const struct manifest *m)
{
    struct err e = ERR_INIT;
    struct publish_result result = { 0 };
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    const struct publish_options o = { .url = c->a.url,
        .token = c->token[0] == '\0' ? NULL : c->token,
        .ca_file = c->conf.agent_ca_file,
        .threads = THREADS,
        .tries = TRIES,
        .backoff = { 500, 30000 },
        .poll_ms = POLL_MS,
        .progress = show_publishing,
        .ctx = &c->shown };

    manifest_print(m, NULL, &text);
    if (text.overflow) {
        (void)err_set(&e, ERR_INVALID, "the manifest would be over 8 MiB: use larger shards");
        return failed(c, &e);
    }
    const struct publication p = { tree, m, text.data, text.len };
    return publish(&p, &o, &result, &e) < 0 ? failed(c, &e) : say(c, &p, &result);
}

int agent_publish(int argc, char **argv)
{
    struct err e = ERR_INIT;
    cleanup_command struct command c = { .operands = { .least = 1, .most = 1 } };
    cleanup_outbound struct outbound tree = OUTBOUND_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    const struct form form = { "weighbridge-agent publish", PUBLISH_USAGE,
        { "kind", &c.a.kind, NULL } };
    int status = AGENT_DONE;

    if (command_begin(&c, &form, argc, argv, &status) != 0)
        return status;
    if (from_folder(c.operands.at[0], &tree, &e) < 0 ||
        outbound_manifest(&tree, &c.options, &m, &e) < 0)
        return failed(&c, &e);
    return publish_tree(&c, &tree, &m);
}

int agent_import(int argc, char **argv)
{
    struct err e = ERR_INIT;
    cleanup_command struct command c = { .operands = { .least = 2, .most = 2 } };
    cleanup_outbound struct outbound tree = OUTBOUND_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    const struct form form = { "weighbridge-agent import", IMPORT_USAGE,
        { "revision", &c.a.revision, NULL } };
    int status = AGENT_DONE;

    if (command_begin(&c, &form, argc, argv, &status) != 0)
        return status;
    const bool oci = strcmp(c.operands.at[0], "oci") == 0;
    if (!oci && strcmp(c.operands.at[0], "hf") != 0)
        return usage("import: hf or oci");
    if (oci)
        c.options.kind = ARTIFACT_IMAGE;
    const char *dir = c.operands.at[1];
    if ((oci ? from_oci(dir, &tree, &e) : from_hf(dir, c.a.revision, &tree, &e)) < 0 ||
        outbound_manifest(&tree, &c.options, &m, &e) < 0 || (oci && from_oci_check(&m, &e) < 0))
        return failed(&c, &e);
    return publish_tree(&c, &tree, &m);
}
