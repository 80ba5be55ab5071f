/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

enum { LOOPBACK_NET = 127, LINK_LOCAL_NET = 0xA9FE };

/* The IPv4 address, mapped ones too, in host order. */
static bool v4_of(const struct sockaddr *a, uint32_t *out)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof v4);
        *out = ntohl(v4.sin_addr.s_addr);
        return true;
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&v6, a, sizeof v6);
    if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return false;
    memcpy(out, v6.sin6_addr.s6_addr + 12, sizeof *out);
    *out = ntohl(*out);
    return true;
}

bool address_is_loopback(const struct sockaddr *a)
{
    struct sockaddr_in6 v6;
    uint32_t v4 = 0;

    if (v4_of(a, &v4))
        return v4 >> 24 == LOOPBACK_NET;
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&v6, a, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool address_is_local(const struct sockaddr *a)
{
    struct sockaddr_in6 v6;
    uint32_t v4 = 0;

    if (address_is_loopback(a))
        return true;
    if (v4_of(a, &v4))
        return v4 >> 16 == LINK_LOCAL_NET || v4 >> 24 == 0;
    if (a->sa_family != AF_INET6)
        return true;
    memcpy(&v6, a, sizeof v6);
    return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}
