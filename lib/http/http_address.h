/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_ADDRESS_H
#define WB_HTTP_ADDRESS_H

/* Which addresses a URL of somebody else's may lead to. Looked at when connecting, so that no name and no trick of spelling leads past
 * it. Pure; any thread. */
#include <stdbool.h>
#include <sys/socket.h>

/* 127.0.0.0/8, ::1, and those as an IPv4-mapped IPv6 address. */
bool address_is_loopback(const struct sockaddr *a);

/* Loopback, link-local (169.254.0.0/16, fe80::/10), "this host" (0.0.0.0/8, ::), and those mapped. What is no IP is local, too. */
bool address_is_local(const struct sockaddr *a);

#endif
