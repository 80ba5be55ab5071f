/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLEET_H
#define WB_FLEET_H

/* What all providers of machines have in common: the verbs of provisioner.h by four small things that a
 * provider can do (list, launch one, look at one, end some). A struct fleet is the head of such a
 * provisioner's own struct. Rules: jobs contract, section 5; reference 1.8 and 1.12 s, t. */
#include "http/http.h"
#include "provision/provisioner.h"

enum fleet_state {
    FLEET_STARTING, /* also whatever word we do not know: the pool's time-out ends it */
    FLEET_RUNNING,  /* and reachable */
    FLEET_BROKEN,   /* there, and will not serve */
    FLEET_GONE      /* ended, ending, or not there */
};

struct fleet_machine {
    struct machine m;
    char name[PROVISION_NAME_SIZE]; /* "" for one whose name cannot be ours */
    char region[PROVISION_TEXT_SIZE];
    char launched
        [32]; /* when, in the provider's words, where `look` needs that; also kept in the details */
    int replica;  /* which of the provision's, where the provider can be told */
    bool no_room; /* gone, as there was no capacity for it after all */
    enum fleet_state state;
};

struct fleet_machines {
    struct fleet_machine *at; /* owned */
    size_t n;
};
#define FLEET_MACHINES_INIT \
    { \
        .at = NULL, .n = 0 \
    }
void fleet_machines_fini(struct fleet_machines *l);
#define cleanup_fleet __attribute__((cleanup(fleet_machines_fini)))
void fleet_add(struct fleet_machines *l, const struct fleet_machine *m);

/* What is launched: chosen once, the same for all replicas. The first launch may take another of `others`, and leaves
 * there what it took and no others. */
struct fleet_choice {
    char type[PROVISION_TEXT_SIZE];
    char others[512]; /* types that would do as well, separated by commas */
    char region[PROVISION_TEXT_SIZE];
};

struct fleet;

struct fleet_ops {
    /* All machines, or at least all of that name. They may be of others, too. */
    int (*list)(struct fleet *f, const char *name, int64_t deadline_ns, struct fleet_machines *out,
        struct provision_note *note, struct err *e);
    /* What to launch. NULL: nothing is to be chosen. */
    int (*choose)(struct fleet *f, const struct provision_request *r, struct fleet_choice *out,
        struct provision_note *note, struct err *e);
    /* One more machine; of out, name and replica are filled. -1 with note->unsure: it may have been launched all the same. */
    int (*launch)(struct fleet *f, const struct provision_request *r, struct fleet_choice *choice,
        struct fleet_machine *out, struct provision_note *note, struct err *e);
    /* One by its id: 0, 1 there is none, -1. Of out, id and launched are filled. */
    int (*look)(struct fleet *f, const char *id, int64_t deadline_ns, struct fleet_machine *out,
        struct provision_note *note, struct err *e);
    /* Ends machines: 0 all are told to (or gone); 1 the deadline came before the last; -1. */
    int (*end)(struct fleet *f, const struct fleet_machines *l, int64_t deadline_ns,
        struct provision_note *note, struct err *e);
    /* The details of a result, and the ids in them: an array of objects and the name of the member. */
    json_object *(*details)(const struct provision_spec *spec, const struct fleet_machines *l);
    json_object *(*machines_of)(json_object *details);
    const char *id_key;
    /* What an error of the provider is, where its status alone does not tell; NONE: what the status says. */
    enum provision_error (*error_of)(int status, json_object *answer);
};

struct fleet {
    struct provisioner base;
    const struct fleet_ops *ops;
    struct http *http;
    enum http_auth auth;
    const struct http_aws *aws; /* borrowed; of HTTP_AUTH_AWS, whose answers are XML */
    char *url;
    char *key;
    char *sent_key; /* as it goes out, to be kept out of texts, too */
    char cluster[PROVISION_CLUSTER_MAX + 1];
};

/* Fills a new fleet's head; key must be there. */
struct fleet_options {
    const char *url;
    const char *key;
    const char *ca_file;
    enum http_auth auth;
    const struct http_aws *aws; /* of HTTP_AUTH_AWS; key is the secret access key */
};
void fleet_init(struct fleet *f, const struct fleet_ops *ops, const struct provisioner_env *env,
    const struct fleet_options *o);
void fleet_fini(struct fleet *f);

/* Another key from now on. */
void fleet_set_key(struct fleet *f, const char *key);

/* One call to the provider. 0: a 2xx, *out its JSON (may be NULL); -1: note->error says what it was, and
 * *status (may be NULL) the answer's, 0 for none. Calls that launch set launch, so that they are sent
 * once and note->unsure is set when they may have been done. */
struct fleet_call {
    const char *method;
    const char *path;
    json_object *body; /* borrowed, or NULL */
    const char *form;  /* instead of that: fields in application/x-www-form-urlencoded */
    int64_t deadline_ns;
    bool launch;
    int *status;
    json_object **refusal; /* NULL, or where the answer that is no good one goes; the caller's */
};
int fleet_ask(struct fleet *f, const struct fleet_call *c, json_object **out,
    struct provision_note *note, struct err *e) WARN_UNUSED;

/* An answer that makes no sense: sets note and e, always -1. */
int fleet_nonsense(struct provision_note *note, struct err *e, const char *why);

/* A text of a foreign answer, printable and cut to size; "" when there is none. */
void fleet_read_text(json_object *o, const char *key, char *out, size_t size);

/* What is told of a machine to people: ids, addresses, how to get in; an object, the caller's. */
json_object *fleet_instance(const struct fleet_machine *f);

/* Bytes in base64; the caller's. */
char *fleet_base64(const char *data, size_t size);

/* A list of words separated by commas as a JSON array; the caller's. */
json_object *fleet_words(const char *text);

/* The verbs, for struct provisioner_ops. */
int fleet_provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e);
int fleet_status(struct provisioner *p, const struct provision_request *r, const char *details,
    struct provision_result *out, struct provision_note *note, struct err *e);
int fleet_list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e);
int fleet_release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e);

/* What n machines of which states make of a provision. Pure; n >= 1. */
enum provision_status fleet_fold(const struct fleet_machines *l);

#endif
