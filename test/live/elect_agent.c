/* SPDX-License-Identifier: MIT
 * test/live/elect_agent.c - a process that stands in an election, or watches a
 * key, for live_election.py.
 *
 *     elect_agent none|file|etcd WHERE IDENTITY TTL_S SEEN [CA CERT KEY]
 *     elect_agent watch WHERE KEY
 *
 * WHERE: of etcd "ENDPOINTS/KEY" or, to watch, "ENDPOINTS"; of file the path.
 * It prints one line per event; times are CLOCK_MONOTONIC in nanoseconds:
 *
 *     change TIME IS_MASTER TERM MASTER   "-": none is known
 *     hold TIME TERM                      holds() is true, and was not before
 *     end TIME                            the last time that it was true
 *     found TIME NUMBER                   by a new master: the number kept
 *     keep TIME NUMBER                    the master asks to keep a number …
 *     kept TIME NUMBER                    … which is kept now
 *     value TIME REVISION FOUND BYTES
 *     trouble TIME TEXT
 *
 * The agent calls holds() each millisecond. It also writes the last time that
 * the answer was true to the file SEEN, as eight bytes, where the test finds it
 * after a SIGKILL. Times are read so that the mastership is certainly held from
 * the time of 'hold' to that of 'end'. SIGTERM: resigns, and ends. */

#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/etcd_watch.h"
#include "server/election/election.h"

struct agent {
    struct event_base *base;
    struct weir_election *election;
    struct weir_log log;
    int seen;
    bool was_held;
    uint64_t term; /* of the last change */
    uint64_t held; /* last time that holds() was true */
    weir_instant last;
    uint64_t number; /* the last that it asked to keep */
};

static void fail(const char *what)
{
    fprintf(stderr, "elect_agent: %s\n", what);
    exit(2);
}

static unsigned long long now_text(void)
{
    return weir_clock_now();
}

static void keep(struct agent *agent)
{
    printf("keep %llu %llu\n", now_text(), (unsigned long long)++agent->number);
    weir_election_keep(agent->election, agent->number);
}

static void on_kept(void *context, uint64_t number, int error, const char *why)
{
    (void)context;
    if (error == 0)
        printf("kept %llu %llu\n", now_text(), (unsigned long long)number);
    else
        fprintf(stderr, "elect_agent: %llu isn't kept: %s\n",
                (unsigned long long)number, why);
}

static void on_change(void *context, const struct weir_election_news *news)
{
    struct agent *agent = context;
    agent->term = news->term;
    printf("change %llu %d %llu %s\n", now_text(), news->is_master,
           (unsigned long long)news->term,
           news->master[0] ? news->master : "-");
    if (!news->is_master || !weir_election_keeps(agent->election))
        return;
    printf("found %llu %llu\n", now_text(), (unsigned long long)news->number);
    agent->number = news->term << 10; /* rises, as terms do */
    keep(agent);
}

static void on_resigned(void *context)
{
    struct agent *agent = context;
    event_base_loopbreak(agent->base);
}

static void look(struct agent *agent)
{
    weir_instant before = weir_clock_now();
    bool holds = weir_election_holds(agent->election);
    weir_instant after = weir_clock_now();
    weir_instant last = agent->last;
    if (holds) {
        agent->last = before;
        if (pwrite(agent->seen, &before, sizeof before, 0) < 0)
            fail("can't write the file SEEN");
    }
    bool is_other = holds && agent->held != agent->term;
    if (agent->was_held && (!holds || is_other))
        printf("end %llu\n", (unsigned long long)last);
    if (holds && (!agent->was_held || is_other))
        printf("hold %llu %llu\n", (unsigned long long)after,
               (unsigned long long)agent->term);
    agent->held = agent->term;
    agent->was_held = holds;
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct agent *agent = context;
    look(agent);
    weir_log_tick(&agent->log);
}

static void on_signal(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct agent *agent = context;
    if (agent->was_held && weir_election_keeps(agent->election))
        keep(agent);
    weir_election_resign(agent->election);
    look(agent);
}

static void on_value(void *context, const struct weir_etcd_value *value)
{
    (void)context;
    printf("value %llu %lld %d %.*s\n", now_text(), (long long)value->revision,
           value->found, (int)value->bytes.len,
           value->bytes.len > 0 ? value->bytes.p : "");
}

static void on_trouble(void *context, const char *why)
{
    (void)context;
    printf("trouble %llu %s\n", now_text(), why ? why : "-");
}

/* Endpoints, and the text after the slash. */
static uint32_t parse_where(const char *where, struct weir_address *endpoints,
                            const char **out_key)
{
    uint32_t count;
    struct weir_diag diag;
    const char *slash = strchr(where, '/');
    struct weir_text text = weir_text_of(where);
    if (slash)
        text.len = (size_t)(slash - where);
    if (weir_etcd_endpoints_parse(text, endpoints, &count, &diag) < 0)
        fail(diag.text);
    *out_key = slash ? slash + 1 : NULL;
    return count;
}

static void watch(struct agent *agent, char **argv)
{
    struct weir_diag diag;
    struct weir_etcd_watch *watch;
    struct weir_address endpoints[WEIR_ETCD_ENDPOINTS_MAX];
    struct weir_etcd_watch_options options = {
        .base = agent->base,
        .endpoints = endpoints,
        .key = argv[3],
        .on_value = on_value,
        .on_trouble = on_trouble,
    };
    const char *ignored;
    options.count = parse_where(argv[2], endpoints, &ignored);
    if (weir_etcd_watch_new(&options, &watch, &diag) < 0)
        fail(diag.text);
    event_base_dispatch(agent->base);
    weir_etcd_watch_free(&watch);
}

static void stand(struct agent *agent, int argc, char **argv)
{
    struct weir_diag diag = { .text = "" };
    struct weir_address endpoints[WEIR_ETCD_ENDPOINTS_MAX];
    struct weir_election_options options = {
        .base = agent->base,
        .log = &agent->log,
        .kind = strcmp(argv[1], "etcd") == 0   ? WEIR_ELECTION_ETCD
                : strcmp(argv[1], "file") == 0 ? WEIR_ELECTION_FILE
                                               : WEIR_ELECTION_NONE,
        .identity = argv[3],
        .path = argv[2],
        .endpoints = endpoints,
        .ttl = strtoull(argv[4], NULL, 10) * WEIR_SECOND,
        .on_change = on_change,
        .on_kept = on_kept,
        .on_resigned = on_resigned,
        .context = agent,
    };
    if (options.kind == WEIR_ELECTION_ETCD)
        options.count = parse_where(argv[2], endpoints, &options.key);
    if (argc > 6)
        options.login.tls_ca = argv[6];
    if (argc > 8) {
        options.login.tls_cert = argv[7];
        options.login.tls_key = argv[8];
    }
    agent->seen = open(argv[5], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (weir_election_new(&options, &agent->election, &diag) < 0)
        fail(diag.text);
    struct timeval millisecond = { .tv_usec = 1000 };
    struct event *ask = event_new(agent->base, -1, EV_PERSIST, on_look, agent);
    struct event *end = evsignal_new(agent->base, SIGTERM, on_signal, agent);
    event_add(ask, &millisecond);
    event_add(end, NULL);
    event_base_dispatch(agent->base);
    look(agent);
    event_free(ask);
    event_free(end);
    weir_election_free(&agent->election);
}

int main(int argc, char **argv)
{
    struct agent agent = { .log = { .level = WEIR_LOG_DEBUG } };
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    agent.base = event_base_new();
    if (argc == 4 && strcmp(argv[1], "watch") == 0)
        watch(&agent, argv);
    else if (argc >= 6)
        stand(&agent, argc, argv);
    else
        fail("none|file|etcd WHERE IDENTITY TTL_S SEEN [CA CERT KEY], or "
             "watch WHERE KEY");
    event_base_free(agent.base);
    return 0;
}
