/* SPDX-License-Identifier: MIT
 * lab/live_fleet.c - a fleet of real processes on loopback.
 *
 *       stdin, stdout                      relay                  HTTP
 *     parent <----> weir lab agent ---- parent ----> weir serve <---- parent
 *                                                        |
 *                                                 one store's file
 *
 * Only the parent waits, on its loop, and only for events. A root is ready when
 * its log says so and its ports are in the file named by its options (read
 * again at each line of the log); an agent when its output says so. A process
 * has ended when its output has.
 *
 * The kernel chooses all ports, and a restarted root gets new ones: the relays
 * follow it, so the limiters needn't.
 *
 * An agent or root that ends by itself ends the run: only the scenario's faults
 * may happen. */

#include "lab/live_fleet.h"

#include <errno.h>
#include <event2/event.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/live_internal.h"
#include "lab/memory.h"

/* ---- Ends ---- */

/* Ends the run with this error; only the first call counts. */
static void fail_run(struct weir_live_fleet *fleet, int error, const char *what,
                     const char *why)
{
    if (fleet->error != 0 || fleet->ending)
        return;
    fleet->error =
        weir_diag_set(&fleet->why, error, "--live: ", what, why, NULL);
}

static void on_fleet_signal(void *context, enum weir_signal signal)
{
    if (signal == WEIR_SIGNAL_STOP)
        fail_run(context, WEIR_ECLOSED, "interrupted", "");
}

static void on_patience(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    *(bool *)context = true;
}

int weir_live_run(struct weir_live_fleet *fleet, const bool *done,
                  const char *what, weir_duration patience,
                  struct weir_diag *diag)
{
    bool late = false;
    struct timeval in = { .tv_sec = (time_t)(patience / WEIR_SECOND) };
    struct event *timeout =
        weir_must(event_new(fleet->base, -1, 0, on_patience, &late));
    if (patience > 0)
        event_add(timeout, &in);
    while (!*done && fleet->error == 0) {
        if (late || event_base_loop(fleet->base, EVLOOP_ONCE) != 0)
            fail_run(fleet, WEIR_ETIMEOUT, what,
                     ": not within 30 s; is the machine busy?");
    }
    event_free(timeout);
    if (fleet->error < 0 && diag)
        *diag = fleet->why;
    return fleet->error;
}

struct event_base *weir_live_base(const struct weir_live_fleet *fleet)
{
    return fleet->base;
}

/* ---- Roots ---- */

static uint32_t live_root_index(const struct weir_live_root *root)
{
    return (uint32_t)(root - root->fleet->roots);
}

static struct weir_relay *relay_of(const struct weir_live_fleet *fleet,
                                   uint32_t limiter, uint32_t root)
{
    weir_assert(limiter < fleet->scenario->limiters &&
                root < fleet->scenario->roots);
    return fleet->relays[limiter * fleet->scenario->roots + root];
}

static void aim_relays(struct weir_live_root *root,
                       const struct weir_address *target)
{
    const struct weir_live_fleet *fleet = root->fleet;
    for (uint32_t i = 0; i < fleet->scenario->limiters; i++)
        weir_relay_aim(relay_of(fleet, i, live_root_index(root)), target);
}

static void port_file_of(const struct weir_live_root *root, char *buf)
{
    snprintf(buf, WEIR_LIVE_PATH_MAX + 16, "%s/ports%u", root->fleet->folder,
             live_root_index(root) + 1);
}

static void read_ports(struct weir_live_root *root)
{
    char path[WEIR_LIVE_PATH_MAX + 16];
    char listen[64];
    char http[64];
    port_file_of(root, path);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    struct weir_address limiters;
    struct weir_address people;
    if (fscanf(file, "listen=%63s http=%63s", listen, http) == 2 &&
        weir_address_parse(weir_text_of(listen), &limiters, NULL) == 0 &&
        weir_address_parse(weir_text_of(http), &people, NULL) == 0) {
        root->client = weir_live_client_new(root->fleet->base, &people);
        aim_relays(root, &limiters);
    }
    fclose(file);
}

static void note_all_arrived(struct weir_live_fleet *fleet)
{
    const struct weir_scenario *scenario = fleet->scenario;
    fleet->arrived = true;
    for (uint32_t i = 0; i < scenario->roots; i++)
        fleet->arrived &= fleet->roots[i].ready;
    for (uint32_t i = 0; i < scenario->limiters; i++)
        fleet->arrived &= !fleet->agents[i].process || fleet->agents[i].ready;
}

static void on_root_line(void *context, const char *line)
{
    struct weir_live_root *root = context;
    snprintf(root->last_line, sizeof root->last_line, "%s", line);
    if (!root->client)
        read_ports(root);
    if (root->ready || !root->client || !strstr(line, "ready; quotas"))
        return;
    root->ready = true;
    note_all_arrived(root->fleet);
}

static void on_root_end(void *context, const char *why)
{
    struct weir_live_root *root = context;
    char what[300];
    snprintf(what, sizeof what,
             "root%u ended by itself (%s): ", live_root_index(root) + 1,
             why ? why : "exit status 0");
    fail_run(root->fleet, WEIR_ESYSTEM, what, root->last_line);
}

static void start_root(struct weir_live_root *root)
{
    weir_assert(!root->process);
    struct weir_live_fleet *fleet = root->fleet;
    const struct weir_settings *node = &fleet->scenario->node;
    char store[WEIR_LIVE_PATH_MAX + 32];
    char ports[WEIR_LIVE_PATH_MAX + 16];
    char name[16], interval[32], stale[32], ratio[32];
    snprintf(store, sizeof store, "sqlite:%s/quotas.db", fleet->folder);
    port_file_of(root, ports);
    unlink(ports);
    snprintf(name, sizeof name, "root%u", live_root_index(root) + 1);
    snprintf(interval, sizeof interval, "%" PRIu64 "ns", node->report_interval);
    snprintf(stale, sizeof stale, "%" PRIu64 "ns", node->stale_after);
    snprintf(ratio, sizeof ratio, "%.6f", node->correction_ppm * 1e-6);
    const char *argv[] = { fleet->program,
                           "serve",
                           "--store",
                           store,
                           "--listen",
                           "127.0.0.1:0",
                           "--http",
                           "127.0.0.1:0",
                           "--port-file",
                           ports,
                           "--name",
                           name,
                           "--report-interval",
                           interval,
                           "--stale-after",
                           stale,
                           "--slack",
                           node->slack ? "on" : "off",
                           "--correction-ratio",
                           node->correction_auto ? "auto" : ratio,
                           NULL };
    struct weir_process_handler handler = { .context = root,
                                            .on_line = on_root_line,
                                            .on_end = on_root_end };
    struct weir_diag diag = { 0 };
    if (weir_process_new(fleet->base, (char *const *)argv, WEIR_LINES_BOTH,
                         &handler, &root->process, &diag) < 0)
        fail_run(fleet, WEIR_ESYSTEM, "", diag.text);
}

static void kill_root(struct weir_live_root *root)
{
    weir_process_free(&root->process);
    root->ready = root->paused = root->looking = false;
    aim_relays(root, NULL);
    weir_live_client_free(&root->client);
}

bool weir_live_root_runs(const struct weir_live_fleet *fleet, uint32_t root)
{
    return fleet->roots[root].client;
}

/* ---- Limiters ---- */

static uint32_t agent_number(const struct weir_live_agent *agent)
{
    return (uint32_t)(agent - agent->fleet->agents);
}

static bool is_within(const struct weir_selection *nodes, uint32_t index)
{
    return index >= nodes->first && index <= nodes->last;
}

/* Whether the limiter links to the root at all. */
static bool is_linked(const struct weir_scenario *scenario, uint32_t limiter,
                      uint32_t root)
{
    bool named = false;
    for (size_t i = 0; i < scenario->linkage_count; i++) {
        const struct weir_linkage *linkage = &scenario->linkages[i];
        if (!is_within(&linkage->limiters, limiter))
            continue;
        if (is_within(&linkage->roots, root))
            return true;
        named = true;
    }
    return !named;
}

/* Parses a line "sample …", from the reports on: the counts of this step. */
static void read_agent_counts(struct weir_live_agent *agent, uint64_t reports,
                              const char *text)
{
    const struct weir_live_fleet *fleet = agent->fleet;
    struct weir_live_counts news[WEIR_LIVE_LOADS_MAX] = { 0 };
    char *at = (char *)text;
    for (size_t i = 0; i < fleet->scenario->load_count; i++) {
        struct weir_live_counts *received = &agent->received[i];
        struct weir_live_counts now;
        now.requests = strtod(at, &at);
        now.offered = strtod(at, &at);
        now.passed = strtod(at, &at);
        now.refused = strtod(at, &at);
        agent->seen.fills[i] = strtod(at, &at);
        news[i].requests = now.requests - received->requests;
        news[i].offered = now.offered - received->offered;
        news[i].passed = now.passed - received->passed;
        news[i].refused = now.refused - received->refused;
        *received = now;
    }
    fleet->watch.counted(fleet->watch.context, agent_number(agent),
                         agent->seen.sample - 1, news,
                         reports - agent->reports);
    agent->reports = reports;
}

static void on_agent_line(void *context, const char *line)
{
    struct weir_live_agent *agent = context;
    struct weir_live_limiter *seen = &agent->seen;
    if (sscanf(line, "ready %" SCNu32 " %" SCNu64, &seen->links,
               &seen->epoch) == 2) {
        agent->ready = seen->settled = true;
        note_all_arrived(agent->fleet);
        return;
    }
    int settled;
    uint64_t reports;
    int at = 0;
    if (sscanf(line,
               "sample %" SCNu64 " %" SCNu32 " %" SCNu64 " %d %" SCNu64 "%n",
               &seen->sample, &seen->links, &seen->epoch, &settled, &reports,
               &at) != 5) {
        fail_run(agent->fleet, WEIR_EPROTOCOL,
                 "an agent wrote an unknown line: ", line);
        return;
    }
    seen->settled = settled;
    read_agent_counts(agent, reports, line + at);
}

static void on_agent_end(void *context, const char *why)
{
    const struct weir_live_agent *agent = context;
    char what[64];
    snprintf(what, sizeof what,
             "limiter%u ended by itself: ", agent_number(agent) + 1);
    fail_run(agent->fleet, WEIR_ESYSTEM, what, why ? why : "exit status 0");
}

uint32_t weir_live_links(const struct weir_live_fleet *fleet, uint32_t limiter)
{
    const struct weir_live_limiter *seen = &fleet->agents[limiter].seen;
    uint32_t up = 0;
    for (uint32_t i = 0; i < fleet->scenario->roots; i++)
        up += weir_relay_is_up(relay_of(fleet, limiter, i));
    /* A connection isn't a link yet, and the agent may report its end later. */
    return !seen->running ? 0 : seen->links < up ? seen->links : up;
}

static void send_start(const struct weir_live_agent *agent)
{
    weir_process_write(agent->process, "start %" PRIu64 " %" PRIu64,
                       agent->fleet->start, agent->fleet->step);
}

static void send_loads(const struct weir_live_agent *agent)
{
    const struct weir_scenario *scenario = agent->fleet->scenario;
    for (size_t i = 0; i < scenario->load_count; i++) {
        const struct weir_load *load = &scenario->loads[i];
        weir_process_write(agent->process, "load %s %" PRIu64 " %" PRIu64 " %s",
                           load->arrivals == WEIR_ARRIVALS_POISSON ? "poisson"
                                                                   : "regular",
                           load->weight_min, load->weight_max, load->quota);
    }
}

static void list_roots(const struct weir_live_agent *agent, char *buf,
                       size_t size)
{
    const struct weir_live_fleet *fleet = agent->fleet;
    size_t len = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < fleet->scenario->roots; i++) {
        if (!is_linked(fleet->scenario, agent_number(agent), i))
            continue;
        const struct weir_relay *relay =
            relay_of(fleet, agent_number(agent), i);
        len += (size_t)snprintf(buf + len, size - len, "%s127.0.0.1:%u",
                                len > 0 ? "," : "", weir_relay_port(relay));
    }
}

static void start_agent(struct weir_live_agent *agent)
{
    weir_assert(!agent->process && agent->fleet);
    struct weir_live_fleet *fleet = agent->fleet;
    char roots[WEIR_LIVE_ROOTS_MAX * 32];
    char name[16], slots[16], seed[32];
    list_roots(agent, roots, sizeof roots);
    snprintf(name, sizeof name, "limiter%u", agent_number(agent) + 1);
    snprintf(slots, sizeof slots, "%u", fleet->scenario->slots);
    snprintf(seed, sizeof seed, "%" PRIu64, fleet->seed + ++fleet->born);
    const char *argv[] = { fleet->program, "lab",    "agent", "--roots",
                           roots,          "--name", name,    "--slots",
                           slots,          "--seed", seed,    NULL };
    struct weir_process_handler handler = { .context = agent,
                                            .on_line = on_agent_line,
                                            .on_end = on_agent_end };
    struct weir_diag diag = { 0 };
    if (weir_process_new(fleet->base, (char *const *)argv, WEIR_LINES_OUTPUT,
                         &handler, &agent->process, &diag) < 0) {
        fail_run(fleet, WEIR_ESYSTEM, "", diag.text);
        return;
    }
    agent->seen.running = true;
    send_loads(agent);
    if (fleet->start != 0)
        send_start(agent);
}

static void kill_agent(struct weir_live_agent *agent)
{
    struct weir_live_fleet *fleet = agent->fleet;
    weir_process_free(&agent->process);
    *agent = (struct weir_live_agent){ .fleet = fleet };
}

void weir_live_rate(struct weir_live_fleet *fleet, uint32_t limiter,
                    size_t load, double per_s)
{
    weir_assert(load < fleet->scenario->load_count);
    struct weir_live_agent *agent = &fleet->agents[limiter];
    bool news = agent->process && agent->rates[load] != per_s;
    if (!news)
        return;
    agent->rates[load] = per_s;
    weir_process_write(agent->process, "rate %zu %.9g", load, per_s);
}

const struct weir_live_limiter *weir_live_limiter(
    const struct weir_live_fleet *fleet, uint32_t limiter)
{
    return &fleet->agents[limiter].seen;
}

void weir_live_begin(struct weir_live_fleet *fleet, weir_instant start,
                     weir_duration step)
{
    weir_assert(step > 0);
    fleet->start = start;
    fleet->step = step;
    for (uint32_t i = 0; i < fleet->scenario->limiters; i++)
        if (fleet->agents[i].process)
            send_start(&fleet->agents[i]);
}

/* ---- Faults ---- */

void weir_live_kill(struct weir_live_fleet *fleet, struct weir_node_place place)
{
    if (place.root)
        kill_root(&fleet->roots[place.index]);
    else
        kill_agent(&fleet->agents[place.index]);
}

void weir_live_start(struct weir_live_fleet *fleet,
                     struct weir_node_place place)
{
    if (place.root && !fleet->roots[place.index].process)
        start_root(&fleet->roots[place.index]);
    if (!place.root && !fleet->agents[place.index].process)
        start_agent(&fleet->agents[place.index]);
}

void weir_live_pause(struct weir_live_fleet *fleet,
                     struct weir_node_place place, bool paused)
{
    struct weir_process *process = place.root
                                       ? fleet->roots[place.index].process
                                       : fleet->agents[place.index].process;
    if (!process)
        return;
    weir_process_pause(process, paused);
    if (place.root)
        fleet->roots[place.index].paused = paused;
    else
        fleet->agents[place.index].seen.paused = paused;
}

void weir_live_reset(struct weir_live_fleet *fleet,
                     struct weir_node_place place)
{
    uint32_t others =
        place.root ? fleet->scenario->limiters : fleet->scenario->roots;
    for (uint32_t i = 0; i < others; i++)
        weir_relay_reset(place.root ? relay_of(fleet, i, place.index)
                                    : relay_of(fleet, place.index, i));
}

void weir_live_cut(struct weir_live_fleet *fleet, uint32_t limiter,
                   uint32_t root, enum weir_way ways, weir_duration noticed)
{
    weir_relay_cut(relay_of(fleet, limiter, root), ways, noticed);
}

void weir_live_store_away(struct weir_live_fleet *fleet, bool away)
{
    char here[WEIR_LIVE_PATH_MAX + 16];
    char there[WEIR_LIVE_PATH_MAX + 16];
    snprintf(here, sizeof here, "%s/quotas.db", fleet->folder);
    snprintf(there, sizeof there, "%s/away.db", fleet->folder);
    if (rename(away ? here : there, away ? there : here) < 0 && errno != ENOENT)
        fail_run(fleet, WEIR_ESYSTEM, here, strerror(errno));
}

uint64_t weir_live_bytes(const struct weir_live_fleet *fleet)
{
    uint64_t bytes = 0;
    uint32_t links = fleet->scenario->limiters * fleet->scenario->roots;
    for (uint32_t i = 0; i < links; i++)
        bytes += weir_relay_bytes(fleet->relays[i]);
    return bytes;
}

/* ---- Start ---- */

static int make_folder(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    const char *where = getenv("TMPDIR");
    char path[WEIR_LIVE_PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/weir-live-XXXXXX",
                       where && where[0] ? where : "/tmp");
    if (len >= (int)sizeof path || !mkdtemp(path))
        return weir_diag_set(
            diag, WEIR_ESYSTEM, "--live can't make the folder ", path, ": ",
            strerror(errno), "; set TMPDIR to where it may", NULL);
    memcpy(fleet->folder, path, sizeof path);
    return 0;
}

static void on_maker_line(void *context, const char *line)
{
    struct weir_live_fleet *fleet = context;
    snprintf(fleet->last_line, sizeof fleet->last_line, "%s", line);
}

static void on_maker_end(void *context, const char *why)
{
    struct weir_live_fleet *fleet = context;
    if (why)
        fail_run(fleet, WEIR_ESTORE, "weir store init: ", fleet->last_line);
    fleet->arrived = true;
}

static int make_store(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    char store[WEIR_LIVE_PATH_MAX + 32];
    snprintf(store, sizeof store, "sqlite:%s/quotas.db", fleet->folder);
    const char *argv[] = { fleet->program, "store", "init", store, NULL };
    struct weir_process_handler handler = { .context = fleet,
                                            .on_line = on_maker_line,
                                            .on_end = on_maker_end };
    int error =
        weir_process_new(fleet->base, (char *const *)argv, WEIR_LINES_BOTH,
                         &handler, &fleet->maker, diag);
    if (error == 0)
        error = weir_live_run(fleet, &fleet->arrived, "making a store",
                              WEIR_LIVE_PATIENCE, diag);
    weir_process_free(&fleet->maker);
    return error;
}

static int make_relays(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    uint32_t links = fleet->scenario->limiters * fleet->scenario->roots;
    fleet->relays = weir_must_zeroed(links, sizeof(struct weir_relay *));
    (void)weir_files_spare(4 * links);
    int error = 0;
    for (uint32_t i = 0; i < links && error == 0; i++)
        error = weir_relay_new(fleet->base, &fleet->relays[i], diag);
    return error;
}

static int start_roots(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    fleet->arrived = false;
    for (uint32_t i = 0; i < fleet->scenario->roots; i++)
        start_root(&fleet->roots[i]);
    return weir_live_run(fleet, &fleet->arrived, "the roots' start",
                         WEIR_LIVE_PATIENCE, diag);
}

static void on_first_quotas(void *context, uint64_t epoch, const char *why)
{
    struct weir_live_fleet *fleet = context;
    (void)epoch;
    if (why)
        fail_run(fleet, WEIR_EQUOTA, "the scenario's quotas: ", why);
    fleet->arrived = true;
}

static int import_quotas(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    fleet->arrived = false;
    weir_live_put(fleet, fleet->scenario->quotas, fleet->scenario->quota_count,
                  on_first_quotas, fleet);
    return weir_live_run(fleet, &fleet->arrived, "the scenario's quotas",
                         WEIR_LIVE_PATIENCE, diag);
}

static int start_agents(struct weir_live_fleet *fleet, struct weir_diag *diag)
{
    for (uint32_t i = 0; i < fleet->scenario->limiters_started; i++)
        start_agent(&fleet->agents[i]);
    note_all_arrived(fleet);
    return weir_live_run(fleet, &fleet->arrived, "the limiters' start",
                         WEIR_LIVE_PATIENCE, diag);
}

struct weir_live_fleet *weir_live_fleet_new(
    const struct weir_scenario *scenario, const char *program, uint64_t seed,
    const struct weir_live_watch *watch, struct weir_diag *diag)
{
    struct weir_live_fleet *fleet = weir_must_zeroed(1, sizeof *fleet);
    fleet->scenario = scenario;
    fleet->program = program;
    fleet->seed = seed;
    fleet->watch = *watch;
    fleet->agents = weir_must_zeroed(scenario->limiters, sizeof *fleet->agents);
    for (uint32_t i = 0; i < scenario->limiters; i++)
        fleet->agents[i].fleet = fleet;
    for (uint32_t i = 0; i < scenario->roots; i++)
        fleet->roots[i].fleet = fleet;
    fleet->base = weir_must(event_base_new());
    fleet->signals =
        weir_must(weir_signals_new(fleet->base, on_fleet_signal, fleet));
    int error = make_folder(fleet, diag);
    if (error == 0)
        error = make_store(fleet, diag);
    if (error == 0)
        error = make_relays(fleet, diag);
    if (error == 0)
        error = start_roots(fleet, diag);
    if (error == 0)
        error = import_quotas(fleet, diag);
    if (error == 0)
        error = start_agents(fleet, diag);
    if (error == 0)
        return fleet;
    weir_live_fleet_free(fleet);
    return NULL;
}

/* ---- End ---- */

static int remove_one(const char *path, const struct stat *stat, int kind,
                      struct FTW *at)
{
    (void)stat;
    (void)kind;
    (void)at;
    return remove(path);
}

void weir_live_fleet_free(struct weir_live_fleet *fleet)
{
    if (!fleet)
        return;
    fleet->ending = true;
    for (uint32_t i = 0; i < fleet->scenario->limiters; i++)
        weir_process_free(&fleet->agents[i].process);
    for (uint32_t i = 0; i < fleet->scenario->roots; i++) {
        weir_process_free(&fleet->roots[i].process);
        weir_live_client_free(&fleet->roots[i].client);
    }
    uint32_t links = fleet->scenario->limiters * fleet->scenario->roots;
    for (uint32_t i = 0; fleet->relays && i < links; i++)
        weir_relay_free(&fleet->relays[i]);
    if (fleet->folder[0])
        nftw(fleet->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    weir_signals_free(&fleet->signals);
    event_base_free(fleet->base);
    free(fleet->relays);
    free(fleet->agents);
    free(fleet);
}
