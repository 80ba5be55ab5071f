/* SPDX-License-Identifier: Apache-2.0 */

/* The commands that land a version. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "daemons/agent.h"
#include "daemons/agent_pull.h"
#include "depot/depot.h"
#include "fetch/fetch.h"
#include "store/manifest_json.h"

#define PULL_USAGE \
    "  --root ROOT        folder of the versions (else [agent] root)\n" \
    "  --token-file FILE  bearer token for the origin (else [agent] token)\n"

static const char FETCH_USAGE[] =
    "usage: weighbridge-agent fetch [OPTION]... MANIFEST_URL\n"
    "\n"
    "Gets the version whose manifest is at MANIFEST_URL, and whose files are below MANIFEST_URL/files/.\n"
    "\n" PULL_USAGE TOOL_COMMON_USAGE;

static const char ADOPT_USAGE[] =
    "usage: weighbridge-agent adopt [OPTION]... DIR [MANIFEST_URL]\n"
    "\n"
    "Lands a version from the files in DIR, each shard hashed; what is missing or wrong is fetched, if MANIFEST_URL is given.\n"
    "\n"
    "  --manifest FILE    the manifest (else that of MANIFEST_URL, else DIR/manifest.json, the files then in DIR/files)\n"
    "  --move             move the files out of DIR rather than cloning them\n" PULL_USAGE
        TOOL_COMMON_USAGE;

struct arguments {
    const char *root;
    const char *token_file;
    const char *manifest_file;
    bool move;
};

int agent_read_token(
    const char *file, const struct conf *conf, char token[AGENT_TOKEN_SIZE], struct mishap *m)
{
    cleanup_free char *text = NULL;
    size_t size = 0;

    if (file == NULL)
        return str_copy(token, AGENT_TOKEN_SIZE, conf->agent_token);
    if (depot_read_file(file, AGENT_TOKEN_SIZE - 1, &text, &size, m) < 0)
        return mishap_wrap(m, "--token-file");
    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] == '\0')
        return mishap_set(m, MISHAP_PERMISSION, "--token-file: no token in it");
    return str_copy(token, AGENT_TOKEN_SIZE, text);
}

static int read_manifest_file(const char *path, struct buf *text, struct mishap *m)
{
    cleanup_free char *got = NULL;
    size_t size = 0;

    if (depot_read_file(path, MANIFEST_BYTES_MAX, &got, &size, m) < 0)
        return mishap_wrap(m, "manifest");
    buf_add(text, got, size);
    return 0;
}

static int say_landed(const struct pull *p, const struct receipt *r, int rc)
{
    char digest[DIGEST_TEXT_SIZE];
    const struct digest d = manifest_digest(p->text, p->size);

    digest_print(&d, digest);
    if (rc == 1)
        printf("%s@%s %s was here already\n", p->manifest->artifact, p->manifest->version, digest);
    else
        printf("%s@%s %s landed: %" PRId64 " bytes, %" PRId64 " fetched, %" PRId64
               " resumed, %" PRId64 " avoided\n",
            p->manifest->artifact, p->manifest->version, digest, r->total_bytes, r->bytes_fetched,
            r->bytes_resumed, r->bytes_avoided);
    return AGENT_DONE;
}

/* The manifest is read; the rest is the same whatever it came from. */
static int pull_it(const struct pull *asked, const struct buf *text, const char *what)
{
    struct pull p = *asked;
    struct mishap m = MISHAP_INIT;
    struct err e = ERR_INIT;
    struct receipt r = { .sources = 0 };
    cleanup_manifest struct manifest manifest = MANIFEST_INIT;

    if (manifest_read(text->data == NULL ? "" : text->data, text->len, &manifest, &e) < 0) {
        (void)mishap_err(&m, MISHAP_MANIFEST_MISMATCH, &e);
        (void)mishap_wrap(&m, "manifest");
        return agent_failed(what, &m);
    }
    p.manifest = &manifest;
    p.text = text->data;
    p.size = text->len;
    const int rc = pull_version(&p, &r, &m);
    return rc < 0 ? agent_failed(what, &m) : say_landed(&p, &r, rc);
}

static int wrong_url(const struct err *e)
{
    fprintf(stderr, "weighbridge-agent: MANIFEST_URL: %s\n", e->msg);
    return TOOL_USAGE;
}

/* A command in hand. */
struct command {
    const char *name;
    const char *usage;
    struct tool_operands operands;
    struct arguments a;
    struct conf conf;
    char token[AGENT_TOKEN_SIZE];
    struct pull pull;
};

static void command_end(struct command *c)
{
    conf_free(&c->conf);
    explicit_bzero(c->token, sizeof c->token);
}
#define cleanup_command __attribute__((cleanup(command_end)))

/* Reads the arguments. 0: go on; 1: *status is the exit status. */
static int command_begin(struct command *c, int argc, char **argv, int *status)
{
    struct mishap m = MISHAP_INIT;
    const struct tool_option own[] = { { "root", &c->a.root, NULL },
        { "token-file", &c->a.token_file, NULL }, { "manifest", &c->a.manifest_file, NULL },
        { "move", NULL, &c->a.move } };
    const bool adopts = c->operands.most > 1;
    const struct tool tool = { c->name, c->usage, own, adopts ? 4 : 2, &c->operands, NULL };
    const int rc = tool_start(&tool, argc, argv, &c->conf);

    *status = rc < 0 ? TOOL_USAGE : AGENT_DONE;
    if (rc != 0)
        return 1;
    if (agent_read_token(c->a.token_file, &c->conf, c->token, &m) < 0) {
        *status = agent_failed("the token cannot be read", &m);
        return 1;
    }
    c->pull = (struct pull){ .conf = &c->conf,
        .root = c->a.root != NULL ? c->a.root : c->conf.agent_root,
        .token = c->token[0] != '\0' ? c->token : NULL,
        .move = c->a.move };
    return 0;
}

int agent_fetch(int argc, char **argv)
{
    struct mishap m = MISHAP_INIT;
    struct err e = ERR_INIT;
    cleanup_command struct command c = { .name = "weighbridge-agent fetch",
        .usage = FETCH_USAGE,
        .operands = { .least = 1, .most = 1 } };
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    enum http_peer peer = HTTP_PEER_ANY;
    int status = AGENT_DONE;

    if (command_begin(&c, argc, argv, &status) != 0)
        return status;
    c.pull.manifest_url = c.operands.at[0];
    if (source_url_check(c.pull.manifest_url, &peer, &e) < 0)
        return wrong_url(&e);
    if (pull_manifest(&c.pull, peer, &text, &m) < 0)
        return agent_failed("not fetched", &m);
    return pull_it(&c.pull, &text, "not fetched");
}

/* Where the manifest of what is adopted comes from, in the order that the usage states. The files are then in *files. */
static int find_manifest(struct command *c, enum http_peer peer, struct buf *text,
    char files[PATH_MAX], struct mishap *m)
{
    char inside[PATH_MAX];
    const char *folder = c->operands.at[0];

    (void)str_copy(files, PATH_MAX, folder);
    if (c->a.manifest_file != NULL)
        return read_manifest_file(c->a.manifest_file, text, m);
    if (c->pull.manifest_url != NULL)
        return pull_manifest(&c->pull, peer, text, m);
    if (str_format(inside, sizeof inside, "%s/" DEPOT_MANIFEST, folder) < 0 ||
        str_format(files, PATH_MAX, "%s/" DEPOT_FILES, folder) < 0)
        return mishap_set(m, MISHAP_ARTIFACT_MISSING, "DIR: too long a name");
    return read_manifest_file(inside, text, m);
}

int agent_adopt(int argc, char **argv)
{
    struct mishap m = MISHAP_INIT;
    struct err e = ERR_INIT;
    cleanup_command struct command c = { .name = "weighbridge-agent adopt",
        .usage = ADOPT_USAGE,
        .operands = { .least = 1, .most = 2 } };
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    enum http_peer peer = HTTP_PEER_ANY;
    char files[PATH_MAX];
    int status = AGENT_DONE;

    if (command_begin(&c, argc, argv, &status) != 0)
        return status;
    c.pull.manifest_url = c.operands.n > 1 ? c.operands.at[1] : NULL;
    if (c.pull.manifest_url != NULL && source_url_check(c.pull.manifest_url, &peer, &e) < 0)
        return wrong_url(&e);
    if (find_manifest(&c, peer, &text, files, &m) < 0)
        return agent_failed("not adopted", &m);
    c.pull.adopt = files;
    return pull_it(&c.pull, &text, "not adopted");
}
