/* SPDX-License-Identifier: MIT
 * io/address.c - "HOST:PORT" as people write it, and as the system has it. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/stream_internal.h"

static bool parse_port(struct weir_text text, uint16_t *out)
{
    unsigned port = 0;
    if (text.len == 0 || text.len > 5)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        port = port * 10 + (unsigned)(text.p[i] - '0');
    }
    if (port > UINT16_MAX)
        return false;
    *out = (uint16_t)port;
    return true;
}

static bool is_address_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool is_host_name(struct weir_text host)
{
    for (size_t i = 0; i < host.len; i++) {
        if (!is_address_byte(host.p[i]))
            return false;
    }
    return true;
}

/* Removes the brackets of an IPv6 address; false: there are none, or no
 * IPv6. */
static bool unwrap_v6(struct weir_text *host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    size_t len = host->len;
    if (len < 4 || host->p[0] != '[' || host->p[len - 1] != ']' ||
        len - 2 >= sizeof(text))
        return false;
    memcpy(text, host->p + 1, len - 2);
    text[len - 2] = '\0';
    if (inet_pton(AF_INET6, text, &ignored) != 1)
        return false;
    host->p++;
    host->len -= 2;
    return true;
}

int weir_address_parse(struct weir_text text, struct weir_address *out,
                       struct weir_diag *diag)
{
    size_t colon = text.len;
    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon == 0)
        return weir_diag_set(diag, WEIR_ESYNTAX,
                             "an address is HOST:PORT, for example "
                             "127.0.0.1:7077: the port is missing",
                             NULL);
    struct weir_text host = { text.p, colon - 1 };
    struct weir_text port_text = { text.p + colon, text.len - colon };
    uint16_t port;
    if (!parse_port(port_text, &port))
        return weir_diag_set(diag, WEIR_ESYNTAX,
                             "a port is a number from 0 to 65535", NULL);
    if (host.len == 0)
        host = WEIR_TEXT("127.0.0.1");
    if (host.len >= sizeof(out->host) ||
        (!is_host_name(host) && !unwrap_v6(&host)))
        return weir_diag_set(diag, WEIR_ESYNTAX,
                             "a host is a name, 127.0.0.1, or an IPv6 "
                             "address in brackets, as in [::1]:7077",
                             NULL);
    struct weir_address address = { .port = port };
    memcpy(address.host, host.p, host.len);
    *out = address;
    return 0;
}

bool weir_address_is_loopback(const struct weir_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address->host, &v6) == 1)
        return memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
    return strcasecmp(address->host, "localhost") == 0;
}

bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET,
        .sin_port = htons(address->port),
    };
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(address->port),
    };
    const char *host = address->host;
    if (strcasecmp(host, "localhost") == 0)
        host = "127.0.0.1";
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        *out_len = sizeof(v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        *out_len = sizeof(v6);
        return true;
    }
    return false;
}

void weir_address_show(const struct sockaddr *address, char *buf)
{
    char host[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    unsigned port = 0;
    bool is_v6 = address->sa_family == AF_INET6;
    if (is_v6) {
        memcpy(&v6, address, sizeof(v6));
        port = ntohs(v6.sin6_port);
        (void)inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    } else if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof(v4));
        port = ntohs(v4.sin_port);
        (void)inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    }
    snprintf(buf, WEIR_PEER_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host, port);
}
