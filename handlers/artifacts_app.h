/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ARTIFACTS_APP_H
#define WB_ARTIFACTS_APP_H

/* What the handlers of the artifacts program share. Artifacts contract, section 3. */
#include "base/err.h"
#include "base/fault.h"
#include "handlers/gate_thread.h"
#include "store/artifact.h"
#include "store/assignment.h"
#include "web/reply.h"
#include "web/request.h"

struct artifacts_app {
    struct faults *faults;    /* of tests; NULL: none */
    struct gate_thread *gate; /* NULL in CGI: housekeeping has to do */
};

/* The path's {name} and {version}, checked: ERR_INVALID. */
struct artifacts_named {
    const char *artifact;
    const char *version;
};
int artifacts_named(
    const struct web_req *req, struct artifacts_named *out, struct err *e) WARN_UNUSED;

/* The path's {node}, which a caller of role node must be: ERR_INVALID, ERR_FORBIDDEN. */
int artifacts_node(const struct web_req *req, const char **out, struct err *e) WARN_UNUSED;

/* After work that took long: the stores have their full time from now on. */
void artifacts_go_on(struct web_req *req);

/* The same, with a time that grows with the size of what is stored. */
void artifacts_go_on_with(struct web_req *req, size_t size);

/* Publishing. */
int put_manifest(struct web_req *req, struct web_reply *reply, struct err *e);
int put_shard(struct web_req *req, struct web_reply *reply, struct err *e);
int post_withdraw(struct web_req *req, struct web_reply *reply, struct err *e);

/* Reading. */
int get_artifacts(struct web_req *req, struct web_reply *reply, struct err *e);
int get_artifact(struct web_req *req, struct web_reply *reply, struct err *e);
int get_versions(struct web_req *req, struct web_reply *reply, struct err *e);
int get_version(struct web_req *req, struct web_reply *reply, struct err *e);
int get_file(struct web_req *req, struct web_reply *reply, struct err *e);
int get_distribution(struct web_req *req, struct web_reply *reply, struct err *e);

/* Nodes and their assignments. */
int put_node(struct web_req *req, struct web_reply *reply, struct err *e);
int get_nodes(struct web_req *req, struct web_reply *reply, struct err *e);
int get_node(struct web_req *req, struct web_reply *reply, struct err *e);
int post_assignment(struct web_req *req, struct web_reply *reply, struct err *e);
int get_assignments(struct web_req *req, struct web_reply *reply, struct err *e);
int delete_assignment(struct web_req *req, struct web_reply *reply, struct err *e);
int post_progress(struct web_req *req, struct web_reply *reply, struct err *e);
int post_receipt(struct web_req *req, struct web_reply *reply, struct err *e);
int post_failure(struct web_req *req, struct web_reply *reply, struct err *e);

int get_artifact_metrics(struct web_req *req, struct web_reply *reply, struct err *e);

#endif
