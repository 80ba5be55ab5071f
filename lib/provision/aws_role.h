/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AWS_ROLE_H
#define WB_AWS_ROLE_H

/* Temporary keys of the role that this machine has, from its instance metadata service (IMDSv2): a session token by PUT,
 * the role's name, its keys and until when they hold. They are asked for again five minutes before that, which is when
 * EC2 has new ones at the latest; old keys serve for as long as they hold. The service is on a link-local address, so it
 * is never asked through a proxy. Facts: the EC2 user guide, "Use the Instance Metadata Service", and "Retrieve security
 * credentials from instance metadata". A struct aws_role belongs to one thread. */
#include <stdbool.h>

#include "http/http.h"
#include "provision/provisioner.h"

enum { AWS_KEY_ID_SIZE = 129, AWS_IMDS_TOKEN_SIZE = 1025 };

struct aws_role {
    struct http *http; /* NULL: no role is used */
    char *url;
    char token[AWS_IMDS_TOKEN_SIZE]; /* of the session with the service; "" none */
    char key_id[AWS_KEY_ID_SIZE];    /* "" until there are keys */
    char *secret;
    char *session_token;
    int64_t expires_us; /* of the keys, since 1970 */
    int64_t again_ns;   /* not before this after a failure, while the keys hold */
};

/* Fills a zeroed *r. ERR_INVALID names the option. No call is made. */
int aws_role_open(struct aws_role *r, const struct provisioner_env *env, struct err *e) WARN_UNUSED;
void aws_role_close(struct aws_role *r);

/* Sees to it that the keys hold: 0 they are as before, 1 they are others now, -1 there are none that hold: note->error is
 * DENIED where the machine has no role, else UNAVAILABLE, TIMEOUT or STOPPED; nothing was asked of AWS then. */
int aws_role_refresh(struct aws_role *r, int64_t deadline_ns, struct provision_note *note,
    struct err *e) WARN_UNUSED;

/* AWS would not have them: the next refresh asks, however long they were to hold. */
void aws_role_forget(struct aws_role *r);

#endif
