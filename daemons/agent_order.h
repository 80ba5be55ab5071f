/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_ORDER_H
#define WB_AGENT_ORDER_H

/* An assignment as the control plane gives it in answer to a heartbeat, and how it is carried out: artifacts contract section 3, "Nodes". */
#include "daemons/agent_settings.h"
#include "daemons/agent_watch.h"
#include "json/jx.h"

enum { ORDER_ID_SIZE = 37, ORDER_URL_SIZE = 2049, ORDERS_MAX = 64 };

struct order {
    char id[ORDER_ID_SIZE];
    char artifact[ARTIFACT_NAME_MAX + 1];
    char version[VERSION_NAME_MAX + 1];
    struct digest digest;
    char manifest_url[ORDER_URL_SIZE]; /* of the first source */
    int64_t per_source;                /* 0: not told */
    int64_t total_bytes;
    int64_t attempts_left;
};

/* Reads the array of a heartbeat's answer; what makes no sense, or comes after ORDERS_MAX, is left out and logged. Paths of sources count from
 * the service's own scheme, host and port. Gives how many there are. */
size_t orders_read(json_object *list, const char *service_url, struct order out[ORDERS_MAX]);

/* Lands the version, unless it is here. 0, and the body of the receipt to be handed in is appended to *receipt: made of the version's receipt.json,
 * which lies there as long as the version does, so none is ever lost. The token goes to the service and to [agent] token_urls only. */
int order_carry_out(const struct settings *s, const struct order *o, struct watch *w,
    struct buf *receipt, struct mishap *m) WARN_UNUSED;

#endif
