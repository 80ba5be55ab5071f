/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/kubernetes_read.h"

#include <string.h>

#include "base/str.h"
#include "json/jx.h"
#include "json/jx_bind.h"
#include "provision/fleet.h"

/* The condition of that type, or NULL. */
static json_object *condition_of(json_object *status, const char *type)
{
    json_object *list = jx_get(status, "conditions");
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *c = json_object_array_get_idx(list, i);
        const char *its = "";
        if (jx_get_str(c, "type", &its) && strcmp(its, type) == 0)
            return c;
    }
    return NULL;
}

static bool condition_is(json_object *c, const char *status, const char *reason)
{
    const char *its_status = "";
    const char *its_reason = "";
    return jx_get_str(c, "status", &its_status) && strcmp(its_status, status) == 0 &&
           jx_get_str(c, "reason", &its_reason) && strcmp(its_reason, reason) == 0;
}

/* --- Deployment ------------------------------------------------------------------------------- */

struct meta_row {
    const char *name;
    const char *uid;
    const char *deletionTimestamp;
    json_object *labels;
    int64_t generation;
};

struct status_row {
    int64_t observedGeneration;
    int64_t readyReplicas;
};

struct spec_row {
    int64_t replicas;
};

static int bind(json_object *deployment, struct meta_row *meta, struct spec_row *spec,
    struct status_row *status, struct err *e)
{
    static const struct jx_field META[] = {
        JX_TEXT(struct meta_row, name, JX_REQUIRED, 253),
        JX_TEXT(struct meta_row, uid, JX_REQUIRED, PROVISION_TEXT_SIZE - 1),
        JX_TEXT(struct meta_row, deletionTimestamp, 0, 64),
        JX_RAW(struct meta_row, labels, 0),
        JX_INT(struct meta_row, generation, 0, 0, INT64_MAX),
    };
    static const struct jx_field SPEC[] = {
        JX_INT(struct spec_row, replicas, JX_REQUIRED, 0, INT32_MAX),
    };
    static const struct jx_field STATUS[] = {
        JX_INT(struct status_row, observedGeneration, 0, 0, INT64_MAX),
        JX_INT(struct status_row, readyReplicas, 0, 0, INT32_MAX),
    };
    json_object *its_status = jx_get(deployment, "status");
    if (jx_bind(jx_get(deployment, "metadata"), META, sizeof META / sizeof META[0], JX_LENIENT,
            meta, e) < 0)
        return err_wrap(e, "metadata");
    if (jx_bind(jx_get(deployment, "spec"), SPEC, 1, JX_LENIENT, spec, e) < 0)
        return err_wrap(e, "spec");
    if (its_status != NULL && jx_bind(its_status, STATUS, 2, JX_LENIENT, status, e) < 0)
        return err_wrap(e, "status");
    return 0;
}

int kubernetes_read_deployment(
    json_object *o, struct kubernetes_deployment_state *out, struct err *e)
{
    struct meta_row meta = { .name = "", .deletionTimestamp = "" };
    struct spec_row spec = { .replicas = 0 };
    struct status_row status = { .readyReplicas = 0 };
    struct err why = ERR_INIT;
    struct kubernetes_deployment_state d = { .name = "" };
    const char *manager = "";
    json_object *its_status = jx_get(o, "status");

    if (bind(o, &meta, &spec, &status, &why) < 0)
        return err_set(e, ERR_INTERNAL, "the Deployment makes no sense: %s", why.msg);
    if (str_copy(d.name, sizeof d.name, meta.name) < 0)
        d.name[0] = '\0';
    http_quote(d.uid, sizeof d.uid, meta.uid, NULL);
    (void)jx_get_str(meta.labels, KUBERNETES_MANAGED_BY, &manager);
    d.ours = strcmp(manager, KUBERNETES_MANAGER) == 0;
    d.ending = meta.deletionTimestamp[0] != '\0';
    d.replicas = spec.replicas;
    d.ready = status.observedGeneration >= meta.generation ? status.readyReplicas : 0;
    d.stalled =
        condition_is(condition_of(its_status, "Progressing"), "False", "ProgressDeadlineExceeded");
    json_object *failure = condition_of(its_status, "ReplicaFailure");
    fleet_read_text(failure, "message", d.text, sizeof d.text);
    d.over_quota =
        condition_is(failure, "True", "FailedCreate") && strstr(d.text, "exceeded quota") != NULL;
    *out = d;
    return 0;
}

/* --- pods ------------------------------------------------------------------------------------- */

/* ErrImagePull is not among them: it becomes ImagePullBackOff when it lasts. */
static bool is_hopeless(const char *reason)
{
    static const char *const REASONS[] = { "ImagePullBackOff", "InvalidImageName",
        "ErrImageNeverPull", "CrashLoopBackOff", "CreateContainerConfigError",
        "CreateContainerError", "RunContainerError" };
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++) {
        if (strcmp(reason, REASONS[i]) == 0)
            return true;
    }
    return false;
}

/* One container's state. The reason why the last one ended says more than that it is not started again yet. */
static void read_container(json_object *container, struct kubernetes_trouble *out)
{
    json_object *waiting = jx_get(jx_get(container, "state"), "waiting");
    json_object *last = jx_get(jx_get(container, "lastState"), "terminated");
    char reason[PROVISION_TEXT_SIZE];
    char message[KUBERNETES_TEXT_SIZE];
    char ended[PROVISION_TEXT_SIZE];
    int64_t code = 0;

    fleet_read_text(waiting, "reason", reason, sizeof reason);
    if (!is_hopeless(reason) || out->hopeless)
        return;
    fleet_read_text(waiting, "message", message, sizeof message);
    fleet_read_text(last, "reason", ended, sizeof ended);
    out->hopeless = true;
    if (jx_get_int(last, "exitCode", &code))
        (void)str_format(out->text, sizeof out->text, "%.40s: the engine ended with %lld (%.60s)",
            reason, (long long)code, ended);
    else
        (void)str_format(out->text, sizeof out->text, "%.40s: %.110s", reason, message);
}

static void read_containers(json_object *list, struct kubernetes_trouble *out)
{
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++)
        read_container(json_object_array_get_idx(list, i), out);
}

void kubernetes_read_pod(json_object *pod, void *ctx)
{
    struct kubernetes_trouble *t = ctx;
    json_object *status = jx_get(pod, "status");
    json_object *scheduled = condition_of(status, "PodScheduled");

    if (jx_get(jx_get(pod, "metadata"), "deletionTimestamp") != NULL)
        return;
    if (condition_is(scheduled, "False", "Unschedulable")) {
        t->unschedulable++;
        if (t->text[0] == '\0')
            fleet_read_text(scheduled, "message", t->text, sizeof t->text);
    }
    read_containers(jx_get(status, "initContainerStatuses"), t);
    read_containers(jx_get(status, "containerStatuses"), t);
}

int kubernetes_count(json_object *quantities, const char *resource)
{
    const char *text = NULL;
    int64_t n = 0;
    if (!jx_get_str(quantities, resource, &text) || str_to_i64(text, 0, PROVISION_GPUS_MAX, &n) < 0)
        return 0;
    return (int)n;
}
