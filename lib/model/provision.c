/* SPDX-License-Identifier: Apache-2.0 */
#include "model/provision.h"

#include <string.h>

#include "base/str.h"

enum { ATTEMPT_MAX = 99999 };

static const char *const STATUS[PROVISION_STATUS__COUNT] = {
#define PROVISION_STATUS(id, name, help) [PROVISION_##id] = (name),
#include "model/provision_status.def"
#undef PROVISION_STATUS
};

static const struct {
    const char *name;
    bool retryable;
} ERRORS[PROVISION_ERROR__COUNT] = {
#define PROVISION_ERROR(id, name_, retryable_, help) \
    [PROVISION_ERROR_##id] = { .name = (name_), .retryable = (retryable_) },
#include "model/provision_error.def"
#undef PROVISION_ERROR
};

const char *provision_status_name(enum provision_status s)
{
    return STATUS[s];
}

bool provision_status_parse(const char *name, enum provision_status *out)
{
    for (enum provision_status s = 0; s < PROVISION_STATUS__COUNT; s++) {
        if (strcmp(name, STATUS[s]) == 0) {
            *out = s;
            return true;
        }
    }
    return false;
}

const char *provision_error_name(enum provision_error error)
{
    return ERRORS[error].name;
}

bool provision_error_retryable(enum provision_error error)
{
    return ERRORS[error].retryable;
}

void provision_result_fini(struct provision_result *r)
{
    free(r->machine);
    free(r->details);
    r->machine = NULL;
    r->details = NULL;
    r->n = 0;
}

void provision_catalog_fini(struct provision_catalog *c)
{
    free(c->offer);
    c->offer = NULL;
    c->n = 0;
}

bool provision_cluster_valid(const char *cluster)
{
    size_t size = strlen(cluster);
    return size >= 1 && size <= PROVISION_CLUSTER_MAX &&
           strspn(cluster, "abcdefghijklmnopqrstuvwxyz0123456789") == size;
}

/* The first 36 characters of text: 8-4-4-4-12 lower-case hex digits. */
static bool begins_with_uuid(const char *text)
{
    static const char SHAPE[PROVISION_JOB_SIZE] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    for (size_t i = 0; SHAPE[i] != '\0'; i++) {
        bool fits = SHAPE[i] == '-'
                        ? text[i] == '-'
                        : text[i] != '\0' && strchr("0123456789abcdef", text[i]) != NULL;
        if (!fits)
            return false;
    }
    return true;
}

int provision_name(
    const char *cluster, const char *job, int attempt, char out[PROVISION_NAME_SIZE], struct err *e)
{
    if (!provision_cluster_valid(cluster))
        return err_set(
            e, ERR_INVALID, "cluster id: must be 1 to %d of a-z and 0-9", PROVISION_CLUSTER_MAX);
    if (!begins_with_uuid(job) || job[PROVISION_JOB_SIZE - 1] != '\0')
        return err_set(e, ERR_INVALID, "job id: not a uuid");
    if (attempt < 0 || attempt > ATTEMPT_MAX)
        return err_set(e, ERR_INVALID, "attempt: must be from 0 to %d", ATTEMPT_MAX);
    (void)str_format(out, PROVISION_NAME_SIZE, "wb-%s-%s-%d", cluster, job, attempt);
    return 0;
}

bool provision_name_parse(
    const char *name, const char *cluster, char job[PROVISION_JOB_SIZE], int *attempt)
{
    char prefix[PROVISION_NAME_SIZE];
    int64_t n = 0;
    if (!provision_cluster_valid(cluster) ||
        str_format(prefix, sizeof prefix, "wb-%s-", cluster) < 0 || !str_starts(name, prefix))
        return false;
    const char *uuid = name + strlen(prefix);
    if (!begins_with_uuid(uuid) || uuid[PROVISION_JOB_SIZE - 1] != '-')
        return false;
    const char *digits = uuid + PROVISION_JOB_SIZE;
    if ((digits[0] == '0' && digits[1] != '\0') || str_to_i64(digits, 0, ATTEMPT_MAX, &n) < 0)
        return false;
    (void)str_format(job, PROVISION_JOB_SIZE, "%.*s", PROVISION_JOB_SIZE - 1, uuid);
    *attempt = (int)n;
    return true;
}
