/* SPDX-License-Identifier: MIT
 * io/origin.c - checks Host, Origin, Sec-Fetch-Site and Content-Type.
 *
 * Origins are compared as (scheme, host, port), each parsed completely:
 * "http://127.0.0.1:7078" is also a prefix of
 * "http://127.0.0.1:7078.example". */

#include "io/origin.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/stream.h"

#define HTTP_PORT 80
#define HTTPS_PORT 443

struct origin {
    bool tls;
    struct weir_address address; /* of IPv6 without brackets */
};

/* ---- Parsing ---- */

static bool is_origin_host_byte(char c)
{
    return isalnum((unsigned char)c) || strchr("-._", c);
}

/* The port behind a host: "" (the scheme's default) or ":7078". */
static bool read_port(const char *text, uint16_t usual, uint16_t *out)
{
    size_t digits = text[0] == ':' ? strspn(text + 1, "0123456789") : 0;
    unsigned long port = usual;
    if (text[0] != '\0') {
        if (digits == 0 || digits > 5 || text[1 + digits] != '\0')
            return false;
        port = strtoul(text + 1, NULL, 10);
    }
    *out = (uint16_t)port;
    return port > 0 && port <= UINT16_MAX;
}

/* "localhost", "127.0.0.1:7078", "[::1]:7078" …, up to the text's end. */
static bool read_host(const char *text, bool tls, struct origin *out)
{
    bool brackets = text[0] == '[';
    const char *begin = text + brackets;
    size_t len = 0;
    while (begin[len] != '\0' &&
           (brackets ? isxdigit((unsigned char)begin[len]) ||
                           strchr(":.", begin[len])
                     : is_origin_host_byte(begin[len])))
        len++;
    if (len == 0 || len >= sizeof out->address.host ||
        (brackets && begin[len] != ']'))
        return false;
    *out = (struct origin){ .tls = tls };
    memcpy(out->address.host, begin, len);
    return read_port(begin + len + brackets, tls ? HTTPS_PORT : HTTP_PORT,
                     &out->address.port);
}

static bool read_origin(const char *text, struct origin *out)
{
    static const char plain[] = "http://";
    static const char sealed[] = "https://";
    if (strncasecmp(text, plain, sizeof plain - 1) == 0)
        return read_host(text + sizeof plain - 1, false, out);
    return strncasecmp(text, sealed, sizeof sealed - 1) == 0 &&
           read_host(text + sizeof sealed - 1, true, out);
}

static bool is_same_origin(const struct origin *a, const struct origin *b)
{
    return a->tls == b->tls && weir_address_is_equal(&a->address, &b->address);
}

int weir_origin_parse(const char *text, struct weir_diag *diag)
{
    struct origin ignored;
    if (strlen(text) <= WEIR_ORIGIN_MAX && read_origin(text, &ignored))
        return 0;
    return weir_diag_put(
        diag, WEIR_EINVAL,
        "an origin is a scheme, a host and perhaps a port, without a path: "
        "https://weir.example");
}

/* ---- Checking ---- */

static bool is_own(const struct weir_origin_own *own, const char *host,
                   const char *origin)
{
    struct origin from;
    struct origin to;
    if (!read_origin(origin, &from))
        return false; /* also "null", which a sandbox or a file has */
    if (own->public_origin && read_origin(own->public_origin, &to) &&
        is_same_origin(&from, &to))
        return true;
    return host && read_host(host, own->tls, &to) && is_same_origin(&from, &to);
}

/* Whether Host is a name of a listener on loopback. */
static bool is_known_host(const struct weir_origin_own *own, const char *host)
{
    struct origin named;
    struct origin public;
    if (!host)
        return true; /* HTTP/1.0: no browser */
    if (!read_host(host, own->tls, &named))
        return false;
    if (weir_address_is_loopback(&named.address))
        return true;
    /* A proxy may pass on the Host that the browser sent. Its default port is
     * that of the proxy's scheme, not of ours. */
    return own->public_origin && read_origin(own->public_origin, &public) &&
           read_host(host, public.tls, &named) &&
           is_same_origin(&named, &public);
}

static bool comes_from_here(const char *fetch_site)
{
    return !fetch_site || strcasecmp(fetch_site, "same-origin") == 0 ||
           strcasecmp(fetch_site, "none") == 0;
}

/* Whether a form may have sent this type: none at all, or one of three. */
static bool is_simple(const char *type)
{
    static const char *const of_forms[] = {
        "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"
    };
    if (!type)
        return true;
    type += strspn(type, " \t");
    size_t len = strcspn(type, "; \t,");
    for (size_t i = 0; i < WEIR_COUNT_OF(of_forms); i++)
        if (len == strlen(of_forms[i]) &&
            strncasecmp(type, of_forms[i], len) == 0)
            return true;
    return len == 0;
}

static bool is_method(const struct weir_origin_request *request,
                      const char *method)
{
    return strcmp(request->method, method) == 0;
}

enum weir_origin_verdict weir_origin_check(
    const struct weir_origin_own *own,
    const struct weir_origin_request *request)
{
    if (own->of_loopback && !is_known_host(own, request->host))
        return WEIR_ORIGIN_FOREIGN;
    if (request->origin && !is_own(own, request->host, request->origin))
        return WEIR_ORIGIN_FOREIGN;
    if (is_method(request, "GET") || is_method(request, "HEAD"))
        return WEIR_ORIGIN_WELCOME;
    if (!comes_from_here(request->sec_fetch_site))
        return WEIR_ORIGIN_FOREIGN;
    return !is_method(request, "DELETE") && is_simple(request->content_type)
               ? WEIR_ORIGIN_SIMPLE
               : WEIR_ORIGIN_WELCOME;
}
