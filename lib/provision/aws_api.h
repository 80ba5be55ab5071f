/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AWS_API_H
#define WB_AWS_API_H

/* Calls to EC2: its Query API, a POST of form fields signed with Signature Version 4, answered in XML. Options:
 * [aws], or the AWS_ variables of the environment. Rule: jobs contract, section 5. */
#include "provision/aws_role.h"
#include "provision/fleet.h"

struct aws {
    struct fleet fleet;
    struct http_aws signer;
    const struct conf *conf;
    struct aws_role role; /* whose keys the signer has, where it has its own none */
    char region[64];
};

/* Fills *a, which is zeroed, but for its ops. ERR_INVALID names the option. Borrows env->conf. */
int aws_connect(struct aws *a, const struct fleet_ops *ops, const struct provisioner_env *env,
    struct err *e) WARN_UNUSED;
void aws_disconnect(struct aws *a);

/* A form: begun with its action, fields added. "Filter.2.Value.1" has numbers: {name} with %d for them. */
enum { AWS_FORM_MAX = 64 << 10 };
void aws_begin(struct buf *form, const char *action);
void aws_add(struct buf *form, const char *name, const char *value);
void aws_add_number(struct buf *form, const char *name, int64_t value);
void aws_add_nth(struct buf *form, const char *name, size_t n, const char *value); /* "Name.n" */
/* One filter with its values, a list of texts. */
void aws_add_filter(struct buf *form, size_t n, const char *name, json_object *values);

struct aws_call {
    const struct buf *form;
    int64_t deadline_ns;
    bool launch;
    char *code; /* NULL, or AWS_CODE_SIZE for the error's code, "" for none */
};
enum { AWS_CODE_SIZE = 96 };
int aws_ask(struct aws *a, const struct aws_call *c, json_object **out, struct provision_note *note,
    struct err *e) WARN_UNUSED;

/* What comes in pages: each answer goes to each(), borrowed, until there is no nextToken. */
struct aws_pages {
    struct buf *form; /* of the first page; its fields go with all */
    int64_t deadline_ns;
    char *code;
    void (*each)(json_object *answer, void *ctx);
    void *ctx;
};
int aws_ask_pages(struct aws *a, const struct aws_pages *p, struct provision_note *note,
    struct err *e) WARN_UNUSED;

/* For struct fleet_ops. */
enum provision_error aws_error_of(int status, json_object *answer);

#endif
