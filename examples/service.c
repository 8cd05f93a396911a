/* SPDX-License-Identifier: MIT
 * examples/service.c - an HTTP server that shares a quota with its other
 * instances.
 *
 *     service --listen 127.0.0.1:8080 --roots 127.0.0.1:7077,127.0.0.1:7087
 *
 * Each request takes from the quota "site/CLIENT". CLIENT is the header
 * X-Client, or else the peer's address. A template gives every client a bucket
 * of its own, and the template's parent limits the whole site. A request that
 * passes gets 200, a refused one 429 with Retry-After. GET /stats returns the
 * counts.
 *
 * Weir is four calls here: weir_open() and weir_close() in main(), and
 * weir_name_is_valid() and weir_take_by_name() in answer(). The server starts
 * and serves whether or not a root answers. */

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>

#include <weir/weir.h>

struct service {
    struct weir *weir;
    struct event_base *loop;
    uint64_t offered;
    uint64_t passed;
};

/* ---- Requests ---- */

static const char *client_of(struct evhttp_request *request)
{
    const char *client = evhttp_find_header(
        evhttp_request_get_input_headers(request), "X-Client");
    if (client != NULL)
        return client;
    char *address = NULL;
    ev_uint16_t port;
    evhttp_connection_get_peer(evhttp_request_get_connection(request), &address,
                               &port);
    return address != NULL ? address : "nobody";
}

static void set_header(struct evhttp_request *request, const char *name,
                       uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    evhttp_add_header(evhttp_request_get_output_headers(request), name, text);
}

/* Whole seconds, as in HTTP: rounded up, so that an obedient client doesn't
 * come too early. */
static uint64_t seconds(weir_duration duration)
{
    uint64_t whole = duration / WEIR_SECOND;
    return duration % WEIR_SECOND > 0 || whole == 0 ? whole + 1 : whole;
}

static void answer(struct evhttp_request *request, void *context)
{
    struct service *service = context;
    char quota[WEIR_NAME_MAX + 1];
    int len = snprintf(quota, sizeof(quota), "site/%s", client_of(request));
    /* An invalid name has no quota and would pass, without a charge even to the
     * site. */
    if (len > WEIR_NAME_MAX || !weir_name_is_valid(quota, (size_t)len)) {
        evhttp_send_error(request, 400, "X-Client can't be in a quota's name");
        return;
    }
    struct weir_reply reply;
    service->offered++;
    if (weir_take_by_name(service->weir, quota, (size_t)len, 1, &reply, 0) ==
        WEIR_LIMITED) {
        if (!reply.never)
            set_header(request, "Retry-After", seconds(reply.retry_after));
        evhttp_send_reply(request, 429, "Too Many Requests", NULL);
        return;
    }
    service->passed++;
    /* Without a quota there is no remainder. */
    if (!reply.unknown)
        set_header(request, "X-RateLimit-Remaining", reply.remaining);
    evbuffer_add_printf(evhttp_request_get_output_buffer(request),
                        "You asked for %s.\n", evhttp_request_get_uri(request));
    evhttp_send_reply(request, 200, "OK", NULL);
}

static void tell_stats(struct evhttp_request *request, void *context)
{
    struct service *service = context;
    struct weir_status status;
    weir_status(service->weir, &status);
    evbuffer_add_printf(evhttp_request_get_output_buffer(request),
                        "{\"offered\": %" PRIu64 ", \"passed\": %" PRIu64
                        ", \"limited\": %" PRIu64 ", \"roots_up\": %" PRIu32
                        ", \"epoch\": %" PRIu64 "}\n",
                        service->offered, service->passed,
                        service->offered - service->passed, status.roots_up,
                        status.epoch);
    evhttp_add_header(evhttp_request_get_output_headers(request),
                      "Content-Type", "application/json");
    evhttp_send_reply(request, 200, "OK", NULL);
}

static void stop(evutil_socket_t number, short what, void *context)
{
    (void)number;
    (void)what;
    event_base_loopbreak(context);
}

/* ---- Start ---- */

static void on_event(void *context, const struct weir_event *event)
{
    fprintf(stderr, "%s: weir: %s\n", (const char *)context, event->text);
}

static int serve(struct service *service, char *listen)
{
    char *colon = strrchr(listen, ':');
    if (colon == NULL) {
        fprintf(stderr, "service: --listen %s: write ADDR:PORT\n", listen);
        return 2;
    }
    *colon = '\0';
    struct evhttp *http = evhttp_new(service->loop);
    evhttp_set_cb(http, "/stats", tell_stats, service);
    evhttp_set_gencb(http, answer, service);
    if (evhttp_bind_socket(http, listen, (ev_uint16_t)atoi(colon + 1)) < 0) {
        fprintf(stderr, "service: can't listen on %s port %s\n", listen,
                colon + 1);
        evhttp_free(http);
        return 2;
    }
    struct event *term =
        evsignal_new(service->loop, SIGTERM, stop, service->loop);
    event_add(term, NULL);
    event_base_dispatch(service->loop);
    event_free(term);
    evhttp_free(http);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        { "listen", required_argument, NULL, 'l' },
        { "roots", required_argument, NULL, 'r' },
        { "name", required_argument, NULL, 'n' },
        { NULL, 0, NULL, 0 },
    };
    struct weir_options options = WEIR_OPTIONS_INIT;
    char *listen = NULL;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'l')
            listen = optarg;
        else if (c == 'r')
            options.roots = optarg;
        else if (c == 'n')
            options.name = optarg;
        else
            return 2;
    }
    if (listen == NULL || optind < argc) {
        fprintf(stderr,
                "usage: %s --listen ADDR:PORT [--roots "
                "HOST:PORT,...] [--name NAME]\n",
                argv[0]);
        return 2;
    }
    const char *name = options.name != NULL ? options.name : "service";
    options.on_event = on_event;
    options.event_context = (void *)name;

    struct service service = { .loop = event_base_new() };
    int error = weir_open(&options, &service.weir);
    if (error < 0) {
        fprintf(stderr, "service: %s\n", weir_strerror(error));
        return 2;
    }
    int status = serve(&service, listen);
    weir_close(service.weir);
    event_base_free(service.loop);
    return status;
}
