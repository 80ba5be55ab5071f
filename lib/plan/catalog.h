/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CATALOG_H
#define WB_CATALOG_H

/* What a pool's provider could give, as it last told: read by the crew, looked at by the decider, which never waits
 * for a provider. Jobs contract section 5, policy `capacity`. */
#include <stdbool.h>
#include <stdint.h>

#include "model/provision.h"

/* One answer, shared by reference. */
struct catalog_view {
    struct provision_catalog offers;
    bool told;        /* false: this provider does not tell, or has not for too long */
    int64_t since_us; /* Postgres' time before the provider was asked */
};

struct catalog;

struct catalog *catalog_new(void);
void catalog_free(struct catalog *c); /* NULL is fine */

/* The last answer, or NULL before the first; *stale when it is older than max_age_ns or there is none: somebody should
 * ask, and the caller is told so once in RETRY_MS only. catalog_done() gives it back. Any thread. */
struct catalog_view *catalog_look(struct catalog *c, int64_t max_age_ns, bool *stale);
void catalog_done(struct catalog_view *view); /* NULL is fine */

/* Takes over an answer's offers; told as above. Any thread. */
void catalog_put(struct catalog *c, struct provision_catalog *offers, bool told, int64_t since_us);

/* The provider did not answer: what it told before counts for another while, then as not told. */
void catalog_failed(struct catalog *c);

#endif
