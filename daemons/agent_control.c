/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_control.h"

#include "base/log.h"
#include "base/str.h"

enum { CALL_MS = 10000, PATH_SIZE = 256, FAILURE_MAX = 4096 };

void control_begin(struct control *c, struct settings *s, int stop_fd)
{
    const struct http_options o = { .ca_file = s->conf.agent_ca_file,
        .timeout_ms = CALL_MS,
        .connect_ms = s->conf.agent_connect_ms < CALL_MS ? s->conf.agent_connect_ms : CALL_MS,
        .stop_fd = stop_fd };

    c->service =
        (struct service){ .http = http_new(&o), .url = s->conf.agent_url, .token = s->token };
    c->node = s->node;
}

void control_end(struct control *c)
{
    http_close(c->service.http);
    c->service.http = NULL;
}

static const struct {
    const char *method;
    const char *path; /* below the assignment; NULL: the node itself */
    const char *name;
} CALLS[CONTROL__CALLS] = {
    [CONTROL_HEARTBEAT] = { "PUT", NULL, "heartbeat" },
    [CONTROL_PROGRESS] = { "POST", "progress", "progress" },
    [CONTROL_RECEIPT] = { "POST", "receipt", "receipt" },
    [CONTROL_FAILURE] = { "POST", "failure", "failure" },
};

/* Told when it begins, when it becomes another, and when it is over. */
static void note(struct control *c, enum control_call call, const struct err *e)
{
    if (!err_is_news(&c->last[call], e))
        return;
    if (e->code == ERR_OK)
        log_info(LOG_MSG("the control plane answers again"), LOG_S("call", CALLS[call].name));
    else
        log_warn(LOG_MSG("the control plane does not do what it is asked"),
            LOG_S("call", CALLS[call].name), LOG_S("url", c->service.url), LOG_S("node", c->node),
            LOG_S("error", e->msg));
}

static enum control_said judge(int rc, const struct err *e)
{
    if (rc == 0)
        return CONTROL_DONE;
    if (rc > 0 || e->code == ERR_UNAUTHENTICATED || e->code == ERR_FORBIDDEN)
        return CONTROL_LATER;
    return e->code == ERR_CONFLICT || e->code == ERR_NOT_FOUND ? CONTROL_UNWANTED : CONTROL_REFUSED;
}

struct asking {
    enum control_call call;
    const struct order *order; /* NULL: of the node itself */
    const struct buf *body;
    struct service_said said;
};

static enum control_said ask(struct control *c, struct asking *a, json_object **out)
{
    struct err e = ERR_INIT;
    char path[PATH_SIZE];
    const struct service_call call = { .method = CALLS[a->call].method,
        .path = path,
        .type = "application/json",
        .body = a->body->data,
        .size = a->body->len,
        .once = a->call == CONTROL_FAILURE };

    if (a->order == NULL)
        (void)str_format(path, sizeof path, "/api/v1/nodes/%s", c->node);
    else
        (void)str_format(path, sizeof path, "/api/v1/nodes/%s/assignments/%s/%s", c->node,
            a->order->id, CALLS[a->call].path);
    const enum control_said said = judge(service_ask(&c->service, &call, &a->said, out, &e), &e);
    if (said != CONTROL_UNWANTED && !a->said.stopped) /* the former is an answer like any other */
        note(c, a->call, &e);
    return said;
}

enum control_said control_heartbeat(struct control *c, const struct buf *body,
    struct order out[ORDERS_MAX], size_t *n, int64_t *wait_ms)
{
    cleanup_json json_object *list = NULL;
    struct asking a = { .call = CONTROL_HEARTBEAT, .body = body };
    const enum control_said said = ask(c, &a, &list);

    *wait_ms = a.said.wait_ms;
    if (said == CONTROL_DONE)
        *n = orders_read(list, c->service.url, out);
    return said;
}

enum control_said control_progress(struct control *c, const struct order *o, const struct buf *body)
{
    cleanup_json json_object *ignored = NULL;
    struct asking a = { .call = CONTROL_PROGRESS, .order = o, .body = body };
    return ask(c, &a, &ignored);
}

enum control_said control_receipt(
    struct control *c, const struct order *o, const struct buf *body, int64_t *wait_ms)
{
    cleanup_json json_object *ignored = NULL;
    struct asking a = { .call = CONTROL_RECEIPT, .order = o, .body = body };
    const enum control_said said = ask(c, &a, &ignored);

    *wait_ms = a.said.wait_ms;
    return said;
}

enum control_said control_failure(struct control *c, const struct order *o, const struct mishap *m,
    int64_t *wait_ms, bool *may_be_done)
{
    cleanup_buf struct buf body = BUF_INIT(FAILURE_MAX);
    cleanup_json json_object *ignored = NULL;
    cleanup_json json_object *said_of_it = jx_object();
    struct asking a = { .call = CONTROL_FAILURE, .order = o, .body = &body };

    jx_set_str(said_of_it, "class", mishap_class_name(m->grade));
    jx_set_str(said_of_it, "reason", mishap_counted_as(m->reason));
    jx_print(said_of_it, &body);
    const enum control_said said = ask(c, &a, &ignored);
    *wait_ms = a.said.wait_ms;
    *may_be_done = a.said.may_be_done;
    return said;
}
