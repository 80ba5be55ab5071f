/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROVISION_H
#define WB_PROVISION_H

/* What is asked of a provisioner and what came of it, as values: shared by the rows, the policies and
 * the provisioners. Pure. Rules: jobs contract, sections 2 and 5. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum provision_status {
#define PROVISION_STATUS(id, name, help) PROVISION_##id,
#include "model/provision_status.def"
#undef PROVISION_STATUS
    PROVISION_STATUS__COUNT
};

enum provision_error {
#define PROVISION_ERROR(id, name, retryable, help) PROVISION_ERROR_##id,
#include "model/provision_error.def"
#undef PROVISION_ERROR
    PROVISION_ERROR__COUNT
};

/* Names as on the wire, static storage. */
const char *provision_status_name(enum provision_status s);
bool provision_status_parse(const char *name, enum provision_status *out);
const char *provision_error_name(enum provision_error error);

/* True: the job goes back to the queue with back-off; false: resource_failed. */
bool provision_error_retryable(enum provision_error error);

enum {
    PROVISION_REPLICAS_MAX = 1024, /* of a job (jobs contract, section 3) */
    PROVISION_NAME_SIZE = 65,      /* 64 characters: the shortest limit of the providers */
    PROVISION_CLUSTER_MAX = 12,    /* so that any name fits */
    PROVISION_TEXT_SIZE = 96,
    PROVISION_URL_SIZE = 256,
    PROVISION_GPUS_MAX = 1024
};

/* What a job needs. Kept with the row from `planned` on, so that a restart asks for the same. */
struct provision_spec {
    int replicas;         /* 1 to PROVISION_REPLICAS_MAX */
    int gpus_per_replica; /* 0: none asked for */
    char gpu_type[PROVISION_TEXT_SIZE];
    char region[PROVISION_TEXT_SIZE]; /* "": wherever there is room */
};

struct machine {
    char id[PROVISION_TEXT_SIZE];    /* the provider's */
    char type[PROVISION_TEXT_SIZE];  /* the provider's instance or GPU type */
    char state[PROVISION_TEXT_SIZE]; /* the provider's word */
    char host[PROVISION_TEXT_SIZE];  /* "" until it has an address */
    char private_host[PROVISION_TEXT_SIZE];
    char ssh_user[16];
    int ssh_port;                 /* 0: none */
    char url[PROVISION_URL_SIZE]; /* of the inference server on it, or "" */
};

struct provision_result {
    enum provision_status status;
    char region[PROVISION_TEXT_SIZE];
    struct machine *machine; /* owned */
    size_t n;
    int64_t start_us; /* window in which the machines are ours; 0: none is told */
    int64_t end_us;
    char *
        details; /* owned: JSON for the row and for people, without secrets; never NULL once filled */
};
#define PROVISION_RESULT_INIT \
    { \
        .status = PROVISION_PENDING, .region = "", .machine = NULL, .n = 0, .start_us = 0, \
        .end_us = 0, .details = NULL \
    }
void provision_result_fini(struct provision_result *r);
#define cleanup_provision_result __attribute__((cleanup(provision_result_fini)))

/* 1 to PROVISION_CLUSTER_MAX of a-z and 0-9. */
bool provision_cluster_valid(const char *cluster);

/* "wb-<cluster>-<job uuid>-<attempt>". cluster: 1 to PROVISION_CLUSTER_MAX of a-z and 0-9; job: 36
 * characters, lower case, as Postgres prints a uuid; attempt: 0 to 99999. ERR_INVALID otherwise. */
int provision_name(const char *cluster, const char *job, int attempt, char out[PROVISION_NAME_SIZE],
    struct err *e) WARN_UNUSED;

enum { PROVISION_JOB_SIZE = 37 };

/* Takes a name of this cluster apart. False for any other name: those machines are never ours. */
bool provision_name_parse(
    const char *name, const char *cluster, char job[PROVISION_JOB_SIZE], int *attempt);

/* An instance type that could be had, for policies that look before they plan. */
struct provision_offer {
    char type[PROVISION_TEXT_SIZE];     /* the provider's name for it */
    char gpu_type[PROVISION_TEXT_SIZE]; /* as the provider describes it */
    int gpus;
    int64_t price_cents_per_hour;
    char regions[512]; /* that have one to give now, separated by spaces; "" none */
    int64_t free;      /* how many can be had now; -1: the provider does not tell */
    bool any;          /* serves a replica whatever it asks for */
    bool shared;       /* replicas may share it: gpus is what it has left */
};

struct provision_catalog {
    struct provision_offer *offer; /* owned */
    size_t n;
};
#define PROVISION_CATALOG_INIT \
    { \
        .offer = NULL, .n = 0 \
    }
void provision_catalog_fini(struct provision_catalog *c);
#define cleanup_provision_catalog __attribute__((cleanup(provision_catalog_fini)))

#endif
