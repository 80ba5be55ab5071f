/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROVISION_HOOKS_H
#define WB_PROVISION_HOOKS_H

/* What a type of provisioner may decide about a job, in the order in which the planner asks. Pure
 * functions over JSON. A type sets those it wants otherwise in its struct provisioner_ops; NULL is the
 * default, which reads accelerator.type, accelerator.count, engine.image and engine.serve_args of the
 * template's spec. Rule: jobs contract, section 5 (backend hooks); reference sections 1.7 and 1.9. */
#include <json-c/json.h>
#include <stdint.h>

#include "base/err.h"
#include "model/provision.h"

/* A job as the hooks see it; all borrowed. */
struct hook_job {
    const char *model;            /* as the batch is told; may be "" */
    int64_t replicas;             /* 0: not asked for, counts as 1 */
    json_object *spec;            /* the template's; NULL: a job without a template */
    json_object *provider_config; /* of the request; NULL: none */
};

struct provision_window {
    int64_t start_us; /* nothing is submitted before; 0: at once */
    int64_t end_us;   /* 0: no end */
};

struct provision_hooks {
    /* May this type run the job at all? Asked when the job is accepted and again when it is planned.
     * ERR_INVALID names the field. */
    int (*validate_request)(const struct hook_job *job, struct err *e);

    /* What to provision. A job without a template needs one replica and no accelerator. */
    int (*schedule)(const struct hook_job *job, struct provision_spec *out, struct err *e);

    /* aibrix.runtime of the batch: how to reach the machines. *out NULL: none is sent. ERR_INVALID:
     * what was got cannot serve, the job ends as resource_failed. */
    int (*build_runtime)(const struct hook_job *job, const struct provision_result *r,
        json_object **out, struct err *e);

    /* aibrix.resource_allocation of the batch. */
    int (*build_resource_allocation)(const struct hook_job *job, const struct provision_spec *spec,
        const char *provision_id, json_object **out, struct err *e);

    /* When the machines are ours: 0 with *out, 1 no window. */
    int (*allocation_time_window)(const struct hook_job *job, const struct provision_result *r,
        struct provision_window *out, struct err *e);
};

/* runtime.target by the default of build_runtime. Types with SSH machines pass their own target. */
int hook_runtime_ssh(const char *target, const struct hook_job *job,
    const struct provision_result *r, json_object **out, struct err *e) WARN_UNUSED;

/* The same of a server that runs already. *out NULL: its place is not known. */
int hook_runtime_url(const char *target, const struct hook_job *job,
    const struct provision_result *r, json_object **out, struct err *e) WARN_UNUSED;

extern const struct provision_hooks PROVISION_DEFAULT_HOOKS;

struct provisioner_ops;

/* The hooks of a type, defaults filled in. */
struct provision_hooks provisioner_hooks(const struct provisioner_ops *ops);

/* A spec as JSON for its row, and back. Reading is strict: ERR_INVALID names the field. */
json_object *provision_spec_json(const struct provision_spec *spec);
int provision_spec_read(json_object *o, struct provision_spec *out, struct err *e) WARN_UNUSED;

#endif
