/* SPDX-License-Identifier: MIT
 * server/election/election_etcd.c - carries a candidate's requests to etcd and
 * the answers back.
 *
 *     weir_candidate -- ask --> asked -- weir_etcd_call() --> etcd
 *          ^                      |
 *          +----- answer ---------+ (and freed)
 *
 * Nothing is decided here. The candidate's clock is CLOCK_BOOTTIME, because
 * etcd's goes on while this machine sleeps, and a mastership that ended during
 * the sleep must be over on waking. (Even that clock doesn't run while the host
 * has stopped a virtual machine: there the term in each message is the guard.)
 *
 * The timer runs on the loop's own clock and may come too late after a sleep;
 * holding doesn't wait for it. */

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/node/candidate.h"
#include "io/clock.h"
#include "server/election/election_internal.h"

#define BESIDE "#number" /* no region is called so */

#define NUMBER_DIGITS 16 /* of base 16 */

struct by_etcd {
    struct weir_election *election;
    struct weir_candidate candidate;
    struct weir_etcd *etcd; /* owned, as the next */
    struct event *turn;
    char beside[WEIR_ETCD_KEY_MAX + 1];  /* the number's key */
    bool is_begun;                       /* the mastership was reported */
    struct weir_candidate_change change; /* the last one */
    unsigned refused; /* logged refusals: a bit for each type of request */
    bool is_resigned; /* it was reported */
    bool is_closing;
};

/* One request that is under way. */
struct asked {
    struct by_etcd *by;
    struct weir_candidate_ask ask;
};

static void log_etcd_line(const struct by_etcd *by, enum weir_log_level level,
                          const char *text)
{
    weir_log_limited(by->election->options.log, WEIR_LOG_ETCD, level,
                     "election: %s", text);
}

/* ---- Changes ---- */

static void log_change(const struct by_etcd *by,
                       const struct weir_candidate_change *change)
{
    static const enum weir_log_level levels[] = {
        [WEIR_CANDIDATE_WON] = WEIR_LOG_INFO,
        [WEIR_CANDIDATE_OTHER] = WEIR_LOG_INFO,
        [WEIR_CANDIDATE_VACANT] = WEIR_LOG_INFO,
        [WEIR_CANDIDATE_UNKNOWN] = WEIR_LOG_WARNING,
        [WEIR_CANDIDATE_RAN_OUT] = WEIR_LOG_WARNING,
        [WEIR_CANDIDATE_NO_LEASE] = WEIR_LOG_WARNING,
        [WEIR_CANDIDATE_KEY_LOST] = WEIR_LOG_ERROR,
        [WEIR_CANDIDATE_RESIGNED] = WEIR_LOG_INFO,
    };
    static const char *const words[] = {
        [WEIR_CANDIDATE_WON] = "this server is master",
        [WEIR_CANDIDATE_OTHER] = "another is master",
        [WEIR_CANDIDATE_VACANT] = "no server is master",
        [WEIR_CANDIDATE_UNKNOWN] =
            "the master isn't known: etcd hasn't answered for a ttl",
        [WEIR_CANDIDATE_RAN_OUT] =
            "no longer master: etcd confirmed no keep-alive for a ttl (or "
            "this process was stopped)",
        [WEIR_CANDIDATE_NO_LEASE] =
            "no longer master: etcd has ended the lease",
        [WEIR_CANDIDATE_KEY_LOST] =
            "no longer master: a client removed the key or wrote to it; "
            "leave it to Weir alone",
        [WEIR_CANDIDATE_RESIGNED] = "no longer master: handed over",
    };
    struct weir_text master = weir_candidate_master(&by->candidate);
    char term[32] = "";
    if (change->term > 0)
        snprintf(term, sizeof term, "term %llu, ",
                 (unsigned long long)change->term);
    weir_log_limited(
        by->election->options.log, WEIR_LOG_ELECTION, levels[change->why],
        "election: %s%s%.*s%s (%skey %s)", words[change->why],
        master.len > 0 ? ": " : "", (int)master.len,
        master.len > 0 ? master.p : "",
        change->why == WEIR_CANDIDATE_OTHER && master.len == 0
            ? ", by this server's own name: it was here before, or two "
              "servers have one name"
            : "",
        term, by->election->options.key);
}

static void report_with_number(struct by_etcd *by, uint64_t number)
{
    struct weir_text text = weir_candidate_master(&by->candidate);
    char master[WEIR_CANDIDATE_TEXT_MAX + 1];
    snprintf(master, sizeof master, "%.*s", (int)text.len,
             text.len > 0 ? text.p : "");
    struct weir_election_news news = {
        .is_master = by->change.is_master,
        .master = master,
        .term = by->change.term,
        .number = number,
        .is_first = by->change.is_master && number == 0,
    };
    by->is_begun = news.is_master;
    weir_election_report(by->election, &news);
}

/* ---- The number ---- */

struct number_call {
    struct by_etcd *by;
    uint64_t term;
    uint64_t number;
};

/* Has the patience that a candidate has with a slow etcd: an answer before the
 * mastership is over is good. False: the request failed, and no outcome
 * comes. */
static bool call_number(struct by_etcd *by, struct weir_etcd_ask ask,
                        uint64_t number, weir_etcd_outcome_fn *on_number)
{
    struct number_call *made = malloc(sizeof *made);
    if (!made)
        return false;
    *made = (struct number_call){ by, by->change.term, number };
    struct weir_etcd_call call = {
        .ask = ask,
        .patience = by->election->options.ttl,
        .on_outcome = on_number,
        .context = made,
    };
    if (weir_etcd_call(by->etcd, &call) == WEIR_OK)
        return true;
    free(made);
    return false;
}

static uint64_t parse_kept_number(struct weir_text text)
{
    char copy[NUMBER_DIGITS + 1];
    if (text.len != NUMBER_DIGITS)
        return WEIR_ELECTION_UNREAD;
    memcpy(copy, text.p, text.len);
    copy[text.len] = '\0';
    uint64_t number = strtoull(copy, NULL, 16);
    return number > 0 ? number : WEIR_ELECTION_UNREAD;
}

/* A number that can't be read may be any. */
static void on_number_found(void *context,
                            const struct weir_etcd_outcome *outcome)
{
    struct number_call *call = context;
    struct by_etcd *by = call->by;
    uint64_t number = WEIR_ELECTION_UNREAD;
    if (outcome->answer)
        number = outcome->answer->found
                     ? parse_kept_number(outcome->answer->value)
                     : 0;
    bool is_asked = !by->is_closing && by->change.is_master &&
                    by->change.term == call->term && !by->is_begun;
    free(call);
    if (is_asked)
        report_with_number(by, number);
}

static void on_number_put(void *context,
                          const struct weir_etcd_outcome *outcome)
{
    struct number_call *call = context;
    struct by_etcd *by = call->by;
    uint64_t number = call->number;
    free(call);
    if (by->is_closing)
        return;
    int error = outcome->answer ? WEIR_OK : WEIR_ESYSTEM;
    if (outcome->answer && !outcome->answer->created)
        error = WEIR_ENOTREADY;
    char why[256];
    snprintf(why, sizeof why, "etcd %s, asked to keep a number: %s",
             weir_etcd_endpoint(by->etcd),
             outcome->answer ? "" : outcome->message);
    weir_election_kept(by->election, number, error, why);
}

static void etcd_keep(void *part, uint64_t number)
{
    struct by_etcd *by = part;
    char value[32];
    snprintf(value, sizeof value, "%016llx", (unsigned long long)number);
    struct weir_etcd_ask ask = {
        .type = WEIR_ETCD_PUT_BESIDE,
        .key = weir_text_of(by->election->options.key),
        .beside = weir_text_of(by->beside),
        .value = weir_text_of(value),
        .lease = by->candidate.lease,
    };
    if (!by->is_begun || ask.lease == 0)
        weir_election_kept(by->election, number, WEIR_ENOTREADY, "");
    else if (!call_number(by, ask, number, on_number_put))
        weir_election_kept(by->election, number, WEIR_ESYSTEM,
                           "etcd isn't connected");
}

/* A mastership is reported when the number of the former one has been read. */
static void report_etcd_change(struct by_etcd *by)
{
    if (!weir_candidate_change(&by->candidate, &by->change))
        return;
    log_change(by, &by->change);
    by->is_begun = false;
    struct weir_etcd_ask ask = { .type = WEIR_ETCD_READ,
                                 .key = weir_text_of(by->beside) };
    if (!by->change.is_master || !call_number(by, ask, 0, on_number_found))
        report_with_number(by, WEIR_ELECTION_UNREAD);
}

static void turn_soon(struct by_etcd *by)
{
    event_active(by->turn, EV_TIMEOUT, 0);
}

/* ---- An answer ---- */

/* Once, until a request of that type is answered. */
static void log_refusal(struct by_etcd *by, const struct asked *asked,
                        const struct weir_etcd_outcome *outcome)
{
    unsigned bit = 1u << asked->ask.type;
    if ((by->refused & bit) || !weir_etcd_is_up(by->etcd))
        return; /* the link logs a lost connection itself */
    static const char *const names[] = {
        [WEIR_CANDIDATE_GRANT] = "a lease",
        [WEIR_CANDIDATE_KEEP] = "a keep-alive",
        [WEIR_CANDIDATE_CREATE] = "the key",
        [WEIR_CANDIDATE_WATCH] = "a watch of the key",
        [WEIR_CANDIDATE_REVOKE] = "the end of a lease",
        [WEIR_CANDIDATE_LEAVE] = "",
    };
    by->refused |= bit;
    weir_log_limited(by->election->options.log, WEIR_LOG_ETCD, WEIR_LOG_WARNING,
                     "election: etcd %s, asked for %s: %s; trying again%s",
                     weir_etcd_endpoint(by->etcd), names[asked->ask.type],
                     outcome->message, weir_etcd_advice(outcome->status));
}

static void copy_answer(const struct weir_etcd_answer *from,
                        struct weir_candidate_answer *to)
{
    to->created = to->ask.type == WEIR_CANDIDATE_CREATE && from->created;
    to->changed = from->changes > 0;
    to->found = from->found;
    to->value = from->value;
    to->create_revision = from->create_revision;
    to->lease = from->lease;
    to->revision = from->revision;
    to->ttl_s = from->ttl_s;
    to->raft_term = from->raft_term;
    if (to->ask.type == WEIR_CANDIDATE_KEEP)
        to->gone = from->ttl_s <= 0;
}

/* etcd's NOT_FOUND is always about the lease. */
#define GRPC_NOT_FOUND 5

static void receive_from_etcd(struct by_etcd *by, const struct asked *asked,
                              const struct weir_etcd_outcome *outcome)
{
    struct weir_candidate_answer answer = { .ask = asked->ask };
    if (outcome->answer) {
        by->refused &= ~(1u << asked->ask.type);
        copy_answer(outcome->answer, &answer);
    } else if (outcome->status == GRPC_NOT_FOUND) {
        answer.gone = true;
    } else {
        answer.failed = asked->ask.type != WEIR_CANDIDATE_WATCH ||
                        outcome->status != WEIR_GRPC_OK;
        answer.refused = weir_etcd_is_refusal(outcome->status);
        if (answer.failed)
            log_refusal(by, asked, outcome);
    }
    answer.over = asked->ask.type == WEIR_CANDIDATE_WATCH && outcome->is_over;
    if (outcome->answer && outcome->answer->compacted > 0)
        weir_log_limited(by->election->options.log, WEIR_LOG_ETCD,
                         WEIR_LOG_INFO,
                         "election: etcd has dropped all before its "
                         "revision %lld: reading the key again",
                         (long long)outcome->answer->compacted);
    weir_candidate_receive(&by->candidate, &answer, weir_clock_boot());
    report_etcd_change(by);
    turn_soon(by);
}

static void on_outcome(void *context, const struct weir_etcd_outcome *outcome)
{
    struct asked *asked = context;
    if (!asked->by->is_closing)
        receive_from_etcd(asked->by, asked, outcome);
    if (outcome->is_over)
        free(asked);
}

/* ---- A request ---- */

static struct weir_etcd_ask to_etcd(const struct by_etcd *by,
                                    const struct weir_candidate_ask *ask)
{
    static const enum weir_etcd_type types[] = {
        [WEIR_CANDIDATE_GRANT] = WEIR_ETCD_GRANT,
        [WEIR_CANDIDATE_KEEP] = WEIR_ETCD_KEEP,
        [WEIR_CANDIDATE_CREATE] = WEIR_ETCD_CREATE,
        [WEIR_CANDIDATE_WATCH] = WEIR_ETCD_WATCH,
        [WEIR_CANDIDATE_REVOKE] = WEIR_ETCD_REVOKE,
    };
    const struct weir_election_options *options = &by->election->options;
    return (struct weir_etcd_ask){
        .type = types[ask->type],
        .key = weir_text_of(options->key),
        .value = weir_text_of(options->identity),
        .lease = ask->lease,
        .ttl_s = (int64_t)(options->ttl / WEIR_SECOND),
        .revision = ask->revision,
    };
}

static void leave_endpoint(struct by_etcd *by)
{
    weir_log_limited(
        by->election->options.log, WEIR_LOG_ETCD, WEIR_LOG_WARNING,
        "election: etcd %s has answered nothing for a third of the ttl, "
        "or three failures in a row: on to the next endpoint (if etcd is "
        "well and only slow, give the election a longer ttl)",
        weir_etcd_endpoint(by->etcd));
    weir_etcd_leave(by->etcd, "left, as it doesn't answer as it should");
}

/* A request that can't be sent has failed; it is made again after a pause. */
static void send_to_etcd(struct by_etcd *by,
                         const struct weir_candidate_ask *ask)
{
    weir_assert(ask->type != WEIR_CANDIDATE_LEAVE);
    struct asked *asked = malloc(sizeof *asked);
    if (asked) {
        *asked = (struct asked){ .by = by, .ask = *ask };
        struct weir_etcd_call call = {
            .ask = to_etcd(by, ask),
            .patience = by->election->options.ttl,
            .on_outcome = on_outcome,
            .context = asked,
        };
        if (weir_etcd_call(by->etcd, &call) == WEIR_OK)
            return;
    }
    free(asked);
    struct weir_candidate_answer none = { .ask = *ask, .failed = true };
    weir_candidate_receive(&by->candidate, &none, weir_clock_boot());
}

static void set_candidate_timer(struct by_etcd *by)
{
    weir_instant at = weir_candidate_deadline(&by->candidate);
    weir_instant now = weir_clock_boot();
    if (at == WEIR_NEVER)
        return;
    /* A microsecond more: weir_timeval_of() rounds down. */
    struct timeval time = weir_timeval_of((at > now ? at - now : 0) + 1000);
    (void)evtimer_add(by->turn, &time);
}

static void on_candidate_turn(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct by_etcd *by = context;
    struct weir_candidate_ask ask;
    /* The clock is read before anything is sent: a lease counts from here. */
    weir_instant now = weir_clock_boot();
    weir_candidate_tick(&by->candidate, now);
    report_etcd_change(by);
    while (weir_candidate_next(&by->candidate, &ask, now)) {
        if (ask.type == WEIR_CANDIDATE_LEAVE) {
            leave_endpoint(by);
            break;
        }
        send_to_etcd(by, &ask);
    }
    report_etcd_change(by);
    if (by->is_resigned)
        return;
    by->is_resigned = weir_candidate_is_gone(&by->candidate, now);
    if (by->is_resigned)
        weir_election_resigned(by->election);
    else
        set_candidate_timer(by);
}

/* ---- The link ---- */

static void on_etcd_up(void *context)
{
    struct by_etcd *by = context;
    weir_candidate_link(&by->candidate, true, weir_clock_boot());
    weir_log_limited(by->election->options.log, WEIR_LOG_ETCD, WEIR_LOG_INFO,
                     "election: connected to etcd %s",
                     weir_etcd_endpoint(by->etcd));
    turn_soon(by);
}

static void on_etcd_down(void *context, const char *why)
{
    struct by_etcd *by = context;
    weir_candidate_link(&by->candidate, false, weir_clock_boot());
    if (why)
        weir_log_limited(
            by->election->options.log, WEIR_LOG_ETCD, WEIR_LOG_WARNING,
            "election: %s; trying again%s", why,
            by->candidate.is_master ? ", master until the ttl is over" : "");
    report_etcd_change(by);
    turn_soon(by);
}

static void on_etcd_file(void *context, const char *why)
{
    log_etcd_line(context, WEIR_LOG_WARNING, why);
}

/* ---- The kind ---- */

static bool etcd_holds(void *part)
{
    const struct by_etcd *by = part;
    return by->is_begun &&
           weir_candidate_holds(&by->candidate, weir_clock_boot());
}

static void etcd_resign(void *part)
{
    struct by_etcd *by = part;
    weir_candidate_resign(&by->candidate, weir_clock_boot());
    turn_soon(by);
}

static void etcd_free(void *part)
{
    struct by_etcd *by = part;
    by->is_closing = true;
    weir_etcd_free(&by->etcd);
    if (by->turn)
        event_free(by->turn);
    free(by);
}

static int make_etcd(struct by_etcd *by, struct weir_diag *diag)
{
    const struct weir_election_options *options = &by->election->options;
    struct weir_etcd_options of_etcd = {
        .base = options->base,
        .endpoints = options->endpoints,
        .count = options->count,
        .login = options->login,
        .patience = options->ttl / 5,
        .pause = options->ttl / 10,
        .handler = { .context = by,
                     .on_up = on_etcd_up,
                     .on_down = on_etcd_down,
                     .on_file = on_etcd_file },
    };
    return weir_etcd_new(&of_etcd, &by->etcd, diag);
}

int weir_election_make_etcd(struct weir_election *election,
                            struct weir_diag *diag)
{
    static const struct weir_election_methods methods = {
        .holds = etcd_holds,
        .resign = etcd_resign,
        .free = etcd_free,
        .keep = etcd_keep,
    };
    struct by_etcd *by = calloc(1, sizeof *by);
    if (!by)
        return WEIR_ENOMEM;
    election->methods = &methods;
    election->part = by;
    by->election = election;
    snprintf(by->beside, sizeof by->beside, "%s" BESIDE, election->options.key);
    struct weir_candidate_options options = {
        .ttl = election->options.ttl,
        .identity = weir_text_of(election->options.identity),
    };
    weir_entropy(&options.seed, sizeof options.seed);
    by->turn = evtimer_new(election->options.base, on_candidate_turn, by);
    if (!by->turn)
        return WEIR_ENOMEM;
    int error = weir_candidate_init(&by->candidate, &options);
    return error < 0 ? error : make_etcd(by, diag);
}
