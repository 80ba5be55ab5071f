/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROVISIONER_H
#define WB_PROVISIONER_H

/* A provisioner gets machines for a job and gives them back. Types are entries of a registry.
 *
 * To add one: write a const struct provisioner_ops in a file of its own (local.c is the shortest, docs/providers.md
 * shows one), give it its options in base/options.def, and name it in provisioner_register_builtin(). A test or
 * another program calls provisioner_register() itself after that: the last entry of a type wins.
 *
 * The provider is the truth. All that belongs to one attempt of a job has one name (provision_name());
 * every verb begins by looking what there is of that name, so any verb may be repeated, by anyone, at
 * any time after any crash: nothing is doubled and nothing lost. A provisioner keeps no state.
 *
 * Each verb that talks to a provider ends within PROVISION_CALL_MS, or what is left until the deadline
 * of its request. Work that takes longer is cut into calls: result 1 means "go on, call again after
 * note->again_ms". A struct provisioner belongs to one thread; open one for each worker.
 *
 * Rules: jobs contract, section 5 (provisioners, intents); reference section 1.8. */
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"
#include "model/provision.h"
#include "provision/hooks.h"

enum { PROVISION_CALL_MS = 20000 };

struct db;

/* What an instance is opened with; all borrowed for its life. */
struct provisioner_env {
    const struct conf *conf;
    const char *cluster; /* this installation's id: machines of others are never touched */
    struct db *db;       /* used by `local`; NULL: that cannot be opened */
    int stop_fd;         /* readable: end soon; -1: none */
};

struct provisioner_ops;

/* The head of every provisioner's own struct. */
struct provisioner {
    const struct provisioner_ops *ops;
};

struct provision_request {
    const char *name; /* of this attempt's machines */
    const struct provision_spec *spec;
    const struct hook_job *job; /* what was asked for, where ops->wants_job; else NULL */
    int64_t deadline_ns;        /* 0: PROVISION_CALL_MS from now */
};

/* What a caller must know beyond success, failure and its text. Filled by every verb, on failure too. */
struct provision_note {
    enum provision_error error;
    bool may_exist;   /* something of this name may be outside: whoever gives up must release it */
    bool unsure;      /* the answer to a launch was lost: a machine may turn up for another minute
                     * (see provisioner_ops.late) */
    int64_t again_ms; /* before this many do not ask again (Retry-After, pacing); 0: whenever */
};
#define PROVISION_NOTE_INIT \
    { \
        .error = PROVISION_ERROR_NONE, .may_exist = false, .unsure = false, .again_ms = 0 \
    }

/* One name with how many machines it has, in whatever state but gone. */
struct provision_seen {
    char name[PROVISION_NAME_SIZE];
    int machines;
};

struct provision_list {
    struct provision_seen *seen; /* owned */
    size_t n;
};
#define PROVISION_LIST_INIT \
    { \
        .seen = NULL, .n = 0 \
    }
/* Adds machines under a name, to those that are there already. */
void provision_list_add(struct provision_list *l, const char *name, int machines);
void provision_list_fini(struct provision_list *l);
#define cleanup_provision_list __attribute__((cleanup(provision_list_fini)))

struct provisioner_ops {
    const char *type; /* "local", "lambdaCloud", ...: as in [pool] provisioner= */
    int ready_s;      /* how long machines may take to become usable, where the pool says nothing */
    bool late; /* a machine may be listed later than it was launched: what is released soon after a
                  launch is looked at once more, [planner] launch_wait_s after it */
    bool wants_job; /* provision() starts the engine itself, and reads of the template which */

    /* Checks the options of this type, without any call. ERR_INVALID names what is missing. */
    int (*open)(const struct provisioner_env *env, struct provisioner **out, struct err *e);
    void (*close)(struct provisioner *p);

    /* Sees to it that spec->replicas machines of that name have been asked for: adopts what is there,
     * launches what is missing, gives back what is too many. 0: all are asked for, *out is how they
     * stand (running at best, but also provisioning). 1: call again, *out is untouched. -1: it cannot
     * be; machines launched so far stay until they are released (note->may_exist). */
    int (*provision)(struct provisioner *p, const struct provision_request *r,
        struct provision_result *out, struct provision_note *note, struct err *e);

    /* How the machines stand that `details`, as provision() gave them, tells of. One that is there no
     * more is gone, and the provision failed; with all gone it is released. 0 or -1. */
    int (*status)(struct provisioner *p, const struct provision_request *r, const char *details,
        struct provision_result *out, struct provision_note *note, struct err *e);

    /* All names of this cluster that have machines: whatever no row knows of is a stray, to be
     * released. 0 or -1. */
    int (*list)(struct provisioner *p, struct provision_list *out, struct provision_note *note,
        struct err *e);

    /* Gives back all machines of a name. 0: none is left or each has been told to end. 1: call again. */
    int (*release)(
        struct provisioner *p, const char *name, struct provision_note *note, struct err *e);

    /* What could be had now. 0, -1, or 1: this provider does not tell. */
    int (*catalog)(struct provisioner *p, struct provision_catalog *out,
        struct provision_note *note, struct err *e);

    struct provision_hooks hooks; /* NULL members: the defaults */
};

/* The registry. Before threads start: register, then freeze (registering later aborts). */
void provisioner_register_builtin(void);
void provisioner_register(const struct provisioner_ops *ops);
void provisioner_freeze(void);
const struct provisioner_ops *provisioner_find(const char *type); /* NULL: no such type */

/* The verbs of whatever type. Those of out parameters as in the ops; *note is set afresh. */
int provisioner_open(const char *type, const struct provisioner_env *env, struct provisioner **out,
    struct err *e) WARN_UNUSED;
void provisioner_close(struct provisioner *p); /* NULL is fine */
static inline void provisioner_close_p(struct provisioner **p)
{
    provisioner_close(*p);
}
#define cleanup_provisioner __attribute__((cleanup(provisioner_close_p)))

int provisioner_provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e) WARN_UNUSED;
int provisioner_status(struct provisioner *p, const struct provision_request *r,
    const char *details, struct provision_result *out, struct provision_note *note,
    struct err *e) WARN_UNUSED;
int provisioner_list(struct provisioner *p, struct provision_list *out, struct provision_note *note,
    struct err *e) WARN_UNUSED;
int provisioner_release(struct provisioner *p, const char *name, struct provision_note *note,
    struct err *e) WARN_UNUSED;
int provisioner_catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e) WARN_UNUSED;

#endif
