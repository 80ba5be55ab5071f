/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBERNETES_OBJECTS_H
#define WB_KUBERNETES_OBJECTS_H

/* What is made in a cluster for a provision: a Deployment, which is it, and a Service, which goes with it and is
 * its one address. Pure. Rule: jobs contract, section 5. */
#include <json-c/json.h>

#include "base/conf.h"
#include "base/err.h"
#include "provision/hooks.h"

#define KUBERNETES_MANAGED_BY    "app.kubernetes.io/managed-by"
#define KUBERNETES_MANAGER       "weighbridge"
#define KUBERNETES_INSTANCE      "app.kubernetes.io/instance" /* the provision's name */
#define KUBERNETES_LABEL_CLUSTER "weighbridge/cluster"
#define KUBERNETES_LABEL_JOB     "weighbridge/job"

enum { KUBERNETES_PORT = 8000 };

/* What a template says of the engine; all borrowed from the job. */
struct kubernetes_engine {
    const char *image;         /* "": none is named */
    const char *health;        /* path of the readiness probe */
    const char *default_model; /* --model of an engine of type vllm whose arguments name none; "" */
    json_object *args;         /* list of texts, or NULL */
};

/* job NULL: all defaults. ERR_INVALID names the field. */
int kubernetes_engine_read(
    const struct hook_job *job, struct kubernetes_engine *out, struct err *e) WARN_UNUSED;

struct kubernetes_made {
    const struct conf *conf;
    const char *name;
    const char *cluster;
    const char *job;
    const struct provision_spec *spec;
    const struct kubernetes_engine *engine;
    json_object *gpu_types; /* values of the label that serve; NULL: any node */
};

/* The caller's. */
json_object *kubernetes_deployment(const struct kubernetes_made *m);
json_object *kubernetes_service(const struct kubernetes_made *m, const char *deployment_uid);

/* GPUs of a replica: what is asked for, and one where only a type is. */
int kubernetes_gpus(const struct provision_spec *spec);

#endif
