/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PG_SERVER_H
#define WB_PG_SERVER_H

/* A Postgres server of a test's own, to be killed, frozen and started again. As root it runs as the
 * user postgres. Where there is no Postgres installed the test that wants one is skipped. */
#include <stdbool.h>
#include <sys/types.h>

struct pg_server {
    char folder[64]; /* data and socket */
    char url[128];
    pid_t pid; /* of the postmaster; 0 while it is down */
};

/* Makes and starts a server: false when Postgres is not installed. */
bool pg_server_init(struct pg_server *s);
void pg_server_fini(struct pg_server *s);

void pg_server_start(struct pg_server *s); /* returns when it answers */
void pg_server_stop(struct pg_server *s);  /* at once: connections break without a word */

#endif
