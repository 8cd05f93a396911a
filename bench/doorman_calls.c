/* SPDX-License-Identifier: MIT
 * bench/doorman_calls.c - as many calls of GetCapacity as a server answers.
 *
 *     weir-bench-doorman ADDRESS CALLS CLIENTS   "seconds calls errors"
 *     weir-bench-doorman --echo                  its port; serves until killed
 *
 * Some connections, each with the maximum number of calls under way. Each call
 * is of the next client, and reports the capacity of the client's last answer.
 * Each answer makes room for the next call. --echo is the floor: a server that
 * reads the call as gRPC, and answers prepared bytes of the same length.
 * bench/doorman starts both and measures the server's processor time. */

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/doorman.h"
#include "io/clock.h"
#include "io/h2_link.h"

#define CONNECTIONS 8
#define STREAMS 100
#define ID_SIZE 24

struct load {
    struct event_base *base;
    const char *at;
    uint64_t left, under_way, answered, errors;
    uint32_t clients, next;
    double *has;                                  /* of each client */
    uint32_t of[CONNECTIONS][2 * STREAMS * 4096]; /* client by stream id */
    struct weir_h2_link *links[CONNECTIONS];
    struct weir_arena arena;
};
struct slot {
    struct load *load;
    uint32_t index;
};

static void call(struct load *load, uint32_t index)
{
    char id[ID_SIZE];
    uint32_t client = load->next++ % load->clients;
    snprintf(id, sizeof id, "client-%08u", client);
    const struct weir_doorman_resource resource = {
        .id = WEIR_TEXT("fleet"),
        .has = { .given = true,
                 .refresh_s = 15,
                 .capacity = load->has[client] },
        .wants = 5 + client % 7 * 7,
    };
    const struct weir_doorman_message message = { .type =
                                                      WEIR_DOORMAN_GET_REQUEST,
                                                  .id = weir_text_of(id),
                                                  .count = 1,
                                                  .resources = &resource };
    unsigned char bytes[256];
    struct weir_h2 *h2 = weir_h2_link_h2(load->links[index]);
    int len = weir_doorman_encode(&message, bytes, sizeof bytes);
    int32_t stream =
        weir_h2_call(h2, WEIR_DOORMAN_GET_CAPACITY, load->at, NULL);
    if (len < 0 || stream < 0 ||
        weir_h2_send(h2, stream, bytes, (size_t)len, true) < 0)
        abort();
    load->of[index][(uint32_t)stream % WEIR_COUNT_OF(load->of[0])] = client;
    load->left--;
    load->under_way++;
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    (void)h2;
    const struct slot *slot = context;
    struct load *load = slot->load;
    struct weir_doorman_message m;
    if (weir_doorman_decode(bytes, len, WEIR_DOORMAN_GET_RESPONSE, &load->arena,
                            &m, NULL) < 0 ||
        m.count != 1) {
        load->errors++;
        return;
    }
    uint32_t at = (uint32_t)stream % WEIR_COUNT_OF(load->of[0]);
    load->has[load->of[slot->index][at]] = m.grants[0].gets.capacity;
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int status, const char *message)
{
    (void)h2;
    (void)stream;
    (void)message;
    const struct slot *slot = context;
    struct load *load = slot->load;
    load->under_way--;
    load->answered++;
    load->errors += status != WEIR_GRPC_OK;
    if (load->left > 0)
        call(load, slot->index);
    else if (load->under_way == 0)
        event_base_loopbreak(load->base);
}

static void on_lost(void *context, struct weir_h2_link *link, const char *why)
{
    (void)context;
    (void)link;
    fprintf(stderr, "lost: %s\n", why);
    exit(1);
}

static int drive(const char *at, uint64_t calls, uint32_t clients)
{
    static struct load load;
    static struct slot slots[CONNECTIONS];
    struct weir_address address;
    if (weir_address_parse(weir_text_of(at), &address, NULL) < 0)
        return 2;
    load.base = event_base_new();
    load.at = at;
    load.left = calls;
    load.clients = clients;
    load.has = calloc(clients, sizeof *load.has);
    load.arena.size = 1 << 16;
    load.arena.base = malloc(load.arena.size);
    weir_instant start = weir_clock_now();
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        slots[i] = (struct slot){ &load, i };
        const struct weir_stream_handler none = { 0 };
        const struct weir_h2_link_handler handler = {
            .context = &slots[i],
            .calls = { .context = &slots[i],
                       .on_message = on_message,
                       .on_close = on_close },
            .on_lost = on_lost,
        };
        load.links[i] = weir_h2_link_new(
            weir_stream_connect(load.base, &address, NULL, 0, &none), false,
            &handler);
        for (uint32_t k = 0; k < STREAMS && load.left > 0; k++)
            call(&load, i);
    }
    event_base_dispatch(load.base);
    printf("%.6f %llu %llu\n", (double)(weir_clock_now() - start) / 1e9,
           (unsigned long long)load.answered, (unsigned long long)load.errors);
    return 0;
}

/* ---- The floor ---- */

static unsigned char answer[256];
static int answer_len;

static bool echo_call(void *context, struct weir_h2 *h2, int32_t stream,
                      const char *path, const char *authorization)
{
    (void)context;
    (void)h2;
    (void)stream;
    (void)path;
    (void)authorization;
    return true;
}

static void echo_message(void *context, struct weir_h2 *h2, int32_t stream,
                         const void *bytes, size_t len)
{
    (void)context;
    (void)bytes;
    (void)len;
    (void)weir_h2_send(h2, stream, answer, (size_t)answer_len, false);
    (void)weir_h2_finish(h2, stream, WEIR_GRPC_OK, NULL);
}

static void echo_lost(void *context, struct weir_h2_link *link, const char *why)
{
    (void)context;
    (void)why;
    weir_h2_link_close(&link);
}

static void echo_accept(void *context, struct weir_stream *stream)
{
    (void)context;
    const struct weir_h2_link_handler handler = {
        .calls = { .on_call = echo_call, .on_message = echo_message },
        .on_lost = echo_lost,
    };
    (void)weir_h2_link_new(stream, true, &handler);
}

static int echo(void)
{
    const struct weir_doorman_grant grant = {
        .id = WEIR_TEXT("fleet"),
        .gets = { .expiry_s = 1456502411, .refresh_s = 15, .capacity = 20 },
        .safe_given = true,
    };
    const struct weir_doorman_message message = {
        .type = WEIR_DOORMAN_GET_RESPONSE, .count = 1, .grants = &grant
    };
    answer_len = weir_doorman_encode(&message, answer, sizeof answer);
    struct event_base *base = event_base_new();
    struct weir_listener *listener;
    struct weir_diag diag;
    struct weir_listener_options options = { .max = 64,
                                             .on_accept = echo_accept };
    (void)weir_address_parse(WEIR_TEXT("127.0.0.1:0"), &options.address, NULL);
    if (weir_listener_new(base, &options, &listener, &diag) < 0)
        return 1;
    printf("%u\n", weir_listener_port(listener));
    fflush(stdout);
    event_base_dispatch(base);
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "--echo") == 0)
        return echo();
    if (argc == 4)
        return drive(argv[1], strtoull(argv[2], NULL, 10),
                     (uint32_t)strtoul(argv[3], NULL, 10));
    fprintf(stderr, "weir-bench-doorman ADDRESS CALLS CLIENTS | --echo\n");
    return 2;
}
