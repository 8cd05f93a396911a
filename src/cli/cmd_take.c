/* SPDX-License-Identifier: MIT
 * cli/cmd_take.c - weir take: one limiter, used as a service would.
 *
 * It is an ordinary limiter: it connects to all roots, waits until one has sent
 * its quotas, decides in its own memory, and sends its counts before it ends.
 * So it begins with the roots' fills, and a loop of `weir take` in a shell is
 * held to the limit as one process is. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/root_client.h"
#include "core/quota/long_name.h"

static const char take_help[] =
    "Asks for units of a quota, as a service would. Exit status 0: passed,\n"
    "1: limited, 2: an error.\n"
    "\n"
    "    weir take site && echo passed\n"
    "    weir take --weight 64Ki uploads\n"
    "    weir take --wait=30s nightly-jobs && ./job\n"
    "    weir take --in-flight=5s connections\n"
    "\n"
    "  -w, --weight UNITS   cost of the request                        [1]\n"
    "  -n, --count N        ask that many times                        [1]\n"
    "      --peek           decide, and charge nothing\n"
    "      --charge         count without asking\n"
    "      --refund         give back\n"
    "      --wait[=MAX]     wait for the turn, at most so long       [10s]\n"
    "      --in-flight=TIME of kind=concurrency: in flight for so long; with\n"
    "                       --wait as soon as the limit allows it\n"
    "      --class NAME     … as one of this class, of an adaptive quota\n"
    "      --timeout TIME   for a root to send its quotas             [2s]\n"
    "  -q, --quiet          print nothing, say it by the exit status\n"
    "  --roots HOST:PORT,…  all roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               the verdict as JSON\n"
    "\n"
    "A name without quota passes, with a note. Exact quotas ask their stores;\n"
    "$WEIR_STORE_SECRETS names a file with lines HOST:PORT USER PASSWORD.\n";

struct take {
    struct weir_cli cli;
    bool peek, charge, refund, quiet;
    const char *wait;      /* NULL: don't wait */
    const char *in_flight; /* NULL: no */
    const char *klass;     /* NULL: none */
    const char *weight_text, *count_text, *timeout_text;
    uint64_t weight;
    uint64_t count;
    weir_duration wait_max;
    weir_duration in_flight_for;
    weir_duration timeout;
    const char *name;
};

static int check_take_options(struct take *take)
{
    int modes = take->peek + take->charge + take->refund +
                (take->wait || take->in_flight);
    if (modes > 1)
        return weir_cli_fail("choose one of --peek, --charge, --refund, and "
                             "--wait or --in-flight or both");
    if (take->klass && !take->in_flight)
        return weir_cli_fail("--class is for units in flight; add --in-flight");
    int status =
        weir_cli_parse_units("--weight", take->weight_text, &take->weight);
    if (status == 0)
        status =
            weir_cli_parse_units("--count", take->count_text, &take->count);
    if (status == 0)
        status = weir_cli_parse_duration("--timeout", take->timeout_text,
                                         &take->timeout);
    if (status == 0 && take->wait)
        status = weir_cli_parse_duration(
            "--wait", take->wait[0] ? take->wait : "10s", &take->wait_max);
    if (status == 0 && take->in_flight)
        status = weir_cli_parse_duration("--in-flight", take->in_flight,
                                         &take->in_flight_for);
    if (status)
        return status;
    if (take->in_flight && take->count > 1)
        return weir_cli_fail("--in-flight is for one permit; for more units "
                             "say --weight");
    if (take->weight > WEIR_WEIGHT_MAX)
        return weir_cli_fail("--weight: a request weighs 4Gi units at most");
    struct weir_diag diag = { 0 };
    if (weir_given_name_check(weir_text_of(take->name), &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    return 0;
}

/* ---- The result ---- */

static void format_wait(weir_duration duration, char *buf, size_t size)
{
    /* Microseconds don't matter to people. */
    weir_duration step =
        duration > WEIR_SECOND ? WEIR_SECOND / 10 : WEIR_MILLISECOND;
    weir_duration shown = (duration + step - 1) / step * step;
    size_t len = weir_duration_format(shown, buf, size - 1);
    buf[len] = '\0';
}

/* A new reference, or NULL: the root doesn't say. */
static json_t *request_quota(struct weir_root_client *client, const char *name)
{
    char path[WEIR_CLI_PATH_MAX];
    json_t *quota = NULL;
    struct weir_diag diag = { 0 };
    if (client && weir_cli_quota_path(name, "", path) == 0)
        (void)weir_root_client_request(client, 0, "GET", path, NULL, &quota,
                                       &diag);
    return quota;
}

/* The quota in mode shadow that would have refused. A reply names the quota
 * that decided, and a shadow decides nothing: but if the chain has just one, it
 * was that one. False: it has several, or the answer can't be had. */
static bool find_shadow(const struct take *take, char *out)
{
    struct weir_root_client *client = weir_root_client_new(&take->cli);
    char name[WEIR_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", take->name);
    size_t found = 0;
    bool whole = false;
    for (int depth = 0; client && !whole && depth < WEIR_DEPTH_MAX; depth++) {
        json_t *quota = request_quota(client, name);
        if (!quota)
            break;
        if (strcmp(weir_cli_text(quota, "mode"), "shadow") == 0 && ++found == 1)
            memcpy(out, name, sizeof name);
        snprintf(name, sizeof name, "%s", weir_cli_text(quota, "parent"));
        whole = !name[0];
        json_decref(quota);
    }
    weir_root_client_free(&client);
    return whole && found == 1;
}

static void print_shadow(const struct take *take)
{
    char name[WEIR_NAME_MAX + 1];
    if (find_shadow(take, name))
        printf("passed (shadow: would be limited by %s)\n", name);
    else
        puts("passed (shadow: would be limited by a quota in mode shadow)");
}

/* " (counted in redis://…)": the store that decided an exact quota; the amount
 * granted to this process of a leased one. */
static void show_ground(const struct take *take, const struct weir_reply *reply,
                        char *buf, size_t size)
{
    buf[0] = '\0';
    if (reply->leased)
        snprintf(buf, size, " (leased: %.10g%s granted)", reply->granted,
                 take->in_flight ? "" : "/s");
    if (!reply->exact)
        return;
    struct weir_root_client *client = weir_root_client_new(&take->cli);
    json_t *quota = request_quota(client, reply->quota);
    const char *store = weir_cli_text(quota, "store");
    snprintf(buf, size, " (counted in %s)", store[0] ? store : "its store");
    json_decref(quota);
    weir_root_client_free(&client);
}

static void print_reply_json(const struct weir_reply *reply)
{
    json_t *object = json_pack(
        "{s:s, s:s*, s:b, s:b, s:b, s:b, s:b, s:b, s:o*, s:i, s:I, s:o, s:f,"
        " s:o}",
        "verdict", reply->verdict == WEIR_PASSED ? "passed" : "limited",
        "quota", reply->quota_len ? reply->quota : NULL, "unknown",
        reply->unknown, "never", reply->never, "stale", reply->stale, "shadow",
        reply->shadow, "contended", reply->contended, "exact", reply->exact,
        "granted", reply->leased ? json_real(reply->granted) : NULL, "level",
        (int)reply->level, "fill", (json_int_t)reply->fill, "remaining",
        reply->remaining > INT64_MAX
            ? json_null()
            : json_integer((json_int_t)reply->remaining),
        "wait_s", (double)reply->wait / 1e9, "retry_after_s",
        reply->retry_after == WEIR_NEVER
            ? json_null()
            : json_real((double)reply->retry_after / 1e9));
    weir_cli_print_json(object);
}

static void print_reply(const struct take *take, const struct weir_reply *reply)
{
    if (take->cli.json) {
        print_reply_json(reply);
        return;
    }
    char wait[64], level[32] = "", store[600];
    show_ground(take, reply, store, sizeof store);
    format_wait(reply->verdict == WEIR_PASSED ? reply->wait
                                              : reply->retry_after,
                wait, sizeof wait);
    if (reply->verdict == WEIR_PASSED && reply->shadow) {
        print_shadow(take);
        return;
    }
    if (reply->verdict == WEIR_PASSED) {
        /* A later one of several buckets paid. */
        if (reply->level > 0)
            snprintf(level, sizeof level, " at level %u", reply->level);
        printf("passed%s%s%s%s\n", reply->wait > 0 ? " after " : "",
               reply->wait > 0 ? wait : "", level, store);
        return;
    }
    if (reply->never) {
        printf("limited by %s: it never lets %" PRIu64 " units through at "
               "once; raise its high_burst (of kind=concurrency its limit) "
               "or ask for less\n",
               reply->quota, take->weight);
        return;
    }
    printf("limited by %s%s; try again in %s\n", reply->quota, store, wait);
}

static void print_many(const struct take *take, uint64_t passed,
                       uint64_t limited, uint64_t shadow)
{
    if (take->cli.json) {
        weir_cli_print_json(json_pack(
            "{s:I, s:I, s:I}", "passed", (json_int_t)passed, "limited",
            (json_int_t)limited, "shadow", (json_int_t)shadow));
        return;
    }
    printf("passed %" PRIu64, passed);
    if (shadow > 0)
        printf(" (shadow: %" PRIu64 " would be limited)", shadow);
    printf(", limited %" PRIu64 "\n", limited);
}

/* ---- Requests ---- */

static enum weir_verdict take_units(const struct take *take,
                                    struct weir_handle handle,
                                    struct weir_reply *reply)
{
    if (take->peek)
        return weir_peek(handle, take->weight, reply, 0);
    if (take->wait)
        return weir_wait(handle, take->weight, take->wait_max, reply);
    if (!take->charge && !take->refund)
        return weir_take(handle, take->weight, reply, 0);
    /* Charges and refunds have no verdict; the peek is for the note that the
     * name is unknown. */
    weir_peek(handle, 0, reply, 0);
    if (take->charge)
        weir_charge(handle, take->weight, 0);
    else
        weir_refund(handle, take->weight, 0);
    return WEIR_PASSED;
}

/* Prints the facts that a verdict doesn't have. */
static void note_reply(const struct take *take, const struct weir_reply *reply)
{
    if (reply->unknown)
        fprintf(stderr,
                "weir: no quota rules '%s', so it passes; make one: "
                "weir quota set %s limit=100/s\n",
                take->name, take->name);
    if (reply->full)
        fprintf(stderr, "weir: there is no room for this name's quota; decided "
                        "by the overflow quota or on_full\n");
    if (reply->stale && take->peek)
        fprintf(stderr, "weir: no root has sent this quota's fill or grant, or "
                        "no store answered; decided without\n");
    else if (reply->stale)
        fprintf(stderr, "weir: no root answered for a while, or no store of "
                        "an exact quota; decided by on_stale\n");
    if (reply->contended)
        fprintf(stderr, "weir: another thread held the lock of a quota for "
                        "longer than 1 ms; decided without it\n");
}

static int take_repeatedly(const struct take *take, struct weir_handle handle)
{
    uint64_t passed = 0;
    uint64_t shadow = 0;
    struct weir_reply reply = { 0 };
    for (uint64_t i = 0; i < take->count; i++) {
        bool pass = take_units(take, handle, &reply) == WEIR_PASSED;
        passed += pass;
        shadow += pass && reply.shadow;
    }
    note_reply(take, &reply);
    bool silent = take->quiet || take->count == 0;
    if (!silent && take->count > 1)
        print_many(take, passed, take->count - passed, shadow);
    else if (!silent && (take->charge || take->refund) && !take->cli.json)
        puts(take->charge ? "charged" : "refunded");
    else if (!silent)
        print_reply(take, &reply);
    return passed == take->count ? WEIR_EXIT_OK : WEIR_EXIT_LIMITED;
}

/* Prints why no root sent its quotas: the last link's reason. */
static int refuse_unready_take(struct take *take, struct weir *weir)
{
    struct weir_status status;
    weir_status(weir, &status);
    if (status.roots_up > 0)
        return weir_cli_fail("a root answers, but has not read its quotas "
                             "yet; `weir status` says why");
    return weir_cli_unready(weir, NULL, take->timeout_text);
}

/* A decision on a denied quota is this process's alone, not the fleet's. */
static int check_denied(struct weir *weir)
{
    struct weir_event event;
    while (weir_event_next(weir, &event))
        if (event.type == WEIR_EVENT_DENIED)
            return weir_cli_fail("a root says that this credential may not "
                                 "take from %s",
                                 event.text);
    return 0;
}

/* Enters, stays for the time of --in-flight, and leaves: meanwhile other
 * processes count the permit as in flight. */
static int stay_in_flight(const struct take *take, struct weir_handle handle)
{
    weir_assert(take->in_flight);
    struct weir_permit permit;
    struct weir_reply reply = { 0 };
    uint32_t klass =
        take->klass ? weir_class(take->klass, strlen(take->klass)) : 0;
    enum weir_verdict verdict =
        take->wait
            ? weir_enter_wait(handle, klass, take->weight, 0, take->wait_max,
                              &permit, &reply)
            : weir_enter(handle, klass, take->weight, &permit, &reply, 0);
    bool pass = verdict == WEIR_PASSED;
    note_reply(take, &reply);
    if (!take->quiet)
        print_reply(take, &reply);
    if (!pass)
        return WEIR_EXIT_LIMITED;
    fflush(stdout);
    struct timespec left = {
        .tv_sec = (time_t)(take->in_flight_for / WEIR_SECOND),
        .tv_nsec = (long)(take->in_flight_for % WEIR_SECOND),
    };
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    return WEIR_EXIT_OK;
}

static int run_take(struct take *take)
{
    char name[WEIR_NAME_MAX + 1];
    snprintf(name, sizeof name, "weir take %.200s", take->name);
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.name = name;
    struct weir *weir;
    int status = weir_cli_open(&take->cli, &options, &weir);
    if (status != 0)
        return status;
    struct weir_handle handle;
    if (weir_ready(weir, take->timeout) < 0) {
        status = refuse_unready_take(take, weir);
    } else {
        int error =
            weir_handle_open(weir, take->name, strlen(take->name), &handle);
        /* A process as short-lived as this one decides on the fleet's counts
         * only if it waits for them. */
        bool synced = error < 0 || weir_sync(weir, take->timeout) == 0;
        status = check_denied(weir);
        if (!synced && status == 0)
            fprintf(stderr, "weir: no root answered in time; deciding on "
                            "the counts of this process\n");
        if (error < 0 && error != WEIR_EFULL)
            status = weir_cli_fail("%s: %s", take->name, weir_strerror(error));
        else if (status == 0)
            status = take->in_flight ? stay_in_flight(take, handle)
                                     : take_repeatedly(take, handle);
        if (error == 0)
            weir_handle_close(handle);
    }
    /* An exact quota is denied only by the answer to a request. */
    if (status != WEIR_EXIT_ERROR && check_denied(weir) != 0)
        status = WEIR_EXIT_ERROR;
    weir_close(weir);
    return status;
}

int weir_cli_take(int argc, char **argv)
{
    struct take take = { .weight_text = "1",
                         .count_text = "1",
                         .timeout_text = "2s" };
    const struct weir_cli_option options[] = {
        { .name = "weight", .letter = 'w', .value = &take.weight_text },
        { .name = "count", .letter = 'n', .value = &take.count_text },
        { .name = "peek", .flag = &take.peek },
        { .name = "charge", .flag = &take.charge },
        { .name = "refund", .flag = &take.refund },
        { .name = "wait", .maybe = &take.wait },
        { .name = "in-flight", .value = &take.in_flight },
        { .name = "class", .value = &take.klass },
        { .name = "timeout", .value = &take.timeout_text },
        { .name = "quiet", .letter = 'q', .flag = &take.quiet },
    };
    int at = weir_cli_parse(&take.cli, take_help, options,
                            WEIR_COUNT_OF(options), argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one name, please; for example: weir take site");
    take.name = argv[at];
    if (weir_name_is_shadow(weir_text_of(take.name)))
        return weir_cli_fail(
            "no service asks for %s; take its name in the live "
            "set, and the shadow set is asked too",
            take.name);
    int status = check_take_options(&take);
    return status ? status : run_take(&take);
}
