/* SPDX-License-Identifier: Apache-2.0 */
#include "web/web_main.h"

#include "base/metrics.h"
#include "base/str.h"
#include "store/ready.h"

enum { METRICS_TEXT_MAX = 1 << 20 };

/* The process answers. */
static int get_health(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    (void)e;
    json_object *o = jx_object();
    jx_set_str(o, "status", "ok");
    reply_json(reply, o);
    return 0;
}

/* "ok", or "down: " and the kind of failure. Its text is for the log: anybody may ask. */
struct store_state {
    bool up;
    char text[32];
};

static struct store_state state_of(int result, const struct err *e)
{
    struct store_state s = { .up = result == 0, .text = "ok" };
    if (!s.up)
        (void)str_format(s.text, sizeof(s.text), "down: %s", err_name(e->code));
    return s;
}

/* Ready while at least one store answers, since polls are answered from the other then; "degraded"
 * when one does not, 503 when neither does. A program that needs Postgres is ready with it only. A site without Redis has
 * Postgres alone. */
static int get_ready(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)e;
    struct err why = ERR_INIT;
    struct store_state redis = { .up = false, .text = "off" };
    const bool has_redis = !str_empty(req->conf->redis_url);
    const struct store_state postgres = state_of(ready_postgres(req->db, &why), &why);
    if (has_redis)
        redis = state_of(ready_redis(req->kv, &why), &why);
    const bool ready = postgres.up || (redis.up && !req->needs_postgres);
    const bool whole = postgres.up && (redis.up || !has_redis);

    json_object *o = jx_object();
    jx_set_str(o, "status", whole ? "ok" : ready ? "degraded" : "down");
    jx_set_str(o, "postgres", postgres.text);
    jx_set_str(o, "redis", redis.text);
    if (ready) {
        reply_json(reply, o);
        return 0;
    }
    jx_set_str(o, "error",
        req->needs_postgres ? "Postgres does not answer" : "neither Postgres nor Redis answers");
    jx_set_str(o, "request_id", req->request_id);
    reply_unavailable(reply, o);
    return 0;
}

static int get_metrics(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    cleanup_buf struct buf text = BUF_INIT(METRICS_TEXT_MAX);
    metrics_print(&text);
    if (text.overflow)
        return err_set(e, ERR_INTERNAL, "the metrics do not fit in %d bytes", METRICS_TEXT_MAX);
    reply_text(reply, "text/plain; version=0.0.4", &text);
    return 0;
}

const struct web_route HEALTH_ROUTES[] = {
    { "GET", "/healthz", get_health, ROLE_NONE, WEB_OPEN | WEB_INSTANT },
    { "GET", "/readyz", get_ready, ROLE_NONE, WEB_OPEN },
    { "GET", "/metrics", get_metrics, ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN, WEB_BODY_NONE },
};
const size_t HEALTH_ROUTES_COUNT = sizeof(HEALTH_ROUTES) / sizeof(HEALTH_ROUTES[0]);
