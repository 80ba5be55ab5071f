/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quota.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { MOST = 1000000, WEIGHT_MOST = 1000 };

void quotas_free(struct quotas *q)
{
    free(q->quota);
    free(q->text);
    *q = (struct quotas)QUOTAS_INIT;
}

static int read_word(char *word, struct policy_quota *q, struct err *e)
{
    const struct {
        const char *key;
        int64_t least;
        int64_t most;
        int64_t *to;
    } words[] = {
        { "jobs", 0, MOST, &q->jobs },
        { "gpus", 0, MOST, &q->gpus },
        { "weight", 1, WEIGHT_MOST, &q->weight },
    };
    char *value = strchr(word, '=');

    if (value != NULL)
        *value++ = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].key, word) != 0)
            continue;
        if (value == NULL || str_to_i64(value, words[i].least, words[i].most, words[i].to) < 0)
            return err_set(e, ERR_INVALID, "%s of %s: a number from %lld to %lld", word,
                q->tenant[0] == '\0' ? "*" : q->tenant, (long long)words[i].least,
                (long long)words[i].most);
        return 0;
    }
    return err_set(e, ERR_INVALID, "%s: jobs=, gpus= or weight=", word);
}

static int check_new(const struct quotas *q, const char *tenant, struct err *e)
{
    for (size_t i = 0; i < q->n; i++) {
        if (strcmp(q->quota[i].tenant, tenant) == 0)
            return err_set(e, ERR_INVALID, "%s: named twice", tenant[0] == '\0' ? "*" : tenant);
    }
    return 0;
}

static int read_entry(char *entry, struct quotas *q, struct err *e)
{
    char *rest = NULL;
    char *tenant = strtok_r(entry, " \t", &rest);

    if (tenant == NULL)
        return err_set(e, ERR_INVALID, "an entry without a tenant");
    if (strcmp(tenant, "*") == 0)
        *tenant = '\0';
    if (check_new(q, tenant, e) < 0)
        return -1;
    q->quota = mem_resize(q->quota, q->n + 1, sizeof *q->quota);
    struct policy_quota *to = &q->quota[q->n++];
    *to = (struct policy_quota){ tenant, JOB_UNLIMITED, JOB_UNLIMITED, 1 };
    for (char *word = NULL; (word = strtok_r(NULL, " \t", &rest)) != NULL;) {
        if (read_word(word, to, e) < 0)
            return -1;
    }
    return 0;
}

int quotas_parse(const char *text, struct quotas *out, struct err *e)
{
    cleanup_quotas struct quotas q = QUOTAS_INIT;

    q.text = mem_strdup(text);
    if (text[strspn(text, " \t")] != '\0') {
        char *next = q.text;
        for (char *entry = NULL; (entry = strsep(&next, ",")) != NULL;) {
            if (read_entry(entry, &q, e) < 0)
                return -1;
        }
    }
    HAND_OVER(out, &q, ((struct quotas)QUOTAS_INIT));
    return 0;
}
