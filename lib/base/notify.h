/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NOTIFY_H
#define WB_NOTIFY_H

/* Tells the service manager how the service is, by datagrams to $NOTIFY_SOCKET as sd_notify(3) describes
 * them. Each call does nothing when that is not set, as under any other way of being started. What cannot
 * be told is logged. One process of a service tells: the one that the manager started. Any thread. */

/* The service is up; also the end of a reload, however it went. */
void notify_ready(void);

/* A reload has begun; notify_ready() ends it. */
void notify_reloading(void);

/* The service is on its way down. */
void notify_stopping(void);

/* The service is not stuck. Only told when the manager watches for it ($WATCHDOG_USEC). */
void notify_alive(void);

#endif
