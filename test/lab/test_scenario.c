/* SPDX-License-Identifier: MIT
 * test/lab/test_scenario.c - the language of the lab: accepted and refused
 * files, the messages, and that a printed scenario builds to the same one. */

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "lab/scenario.h"
#include "seed.h"

/* ---- Helpers -------------------------------------------------------- */

/* Six sound lines; the line under test is line 7. */
static const char base[] = "title \"a test\"\n"
                           "roots 2\n"
                           "limiters 5\n"
                           "quota api limit=10/s\n"
                           "load users to api rate=1x\n"
                           "run 10s\n";

static char *join(const char *head, const char *tail)
{
    char *text = malloc(strlen(head) + strlen(tail) + 1);
    assert_non_null(text);
    return strcat(strcpy(text, head), tail);
}

static struct weir_lab_script *read_text(const char *text,
                                         struct weir_diag *diag)
{
    return weir_script_read("dir/x.weir", weir_text_of(text), diag);
}

/* Reads and builds the first variant; NULL: refused. */
static struct weir_scenario *try_build(const char *text, struct weir_diag *diag)
{
    struct weir_lab_script *script = read_text(text, diag);
    struct weir_scenario *scenario =
        script ? weir_scenario_build(script, 0, diag) : NULL;
    weir_script_free(script);
    return scenario;
}

static struct weir_scenario *build(const char *text)
{
    struct weir_diag diag = { 0 };
    struct weir_scenario *scenario = try_build(text, &diag);
    char shown[1024];
    if (scenario)
        return scenario;
    weir_script_show("x.weir", weir_text_of(text), &diag, shown, sizeof shown);
    fail_msg("%s", shown);
    return NULL;
}

/* The base with more lines. */
static struct weir_scenario *build_more(const char *more)
{
    char *text = join(base, more);
    struct weir_scenario *scenario = build(text);
    free(text);
    return scenario;
}

static void check_refusal(const char *text, uint32_t line, uint32_t column,
                          const char *sentence)
{
    struct weir_diag diag = { 0 };
    struct weir_scenario *scenario = try_build(text, &diag);
    if (scenario)
        fail_msg("this was taken, without '%s':\n%s", sentence, text);
    if (!strstr(diag.text, sentence) || diag.line != line ||
        diag.column != column)
        fail_msg("wanted %u:%u '%s', got %u:%u '%s' for:\n%s", line, column,
                 sentence, diag.line, diag.column, diag.text, text);
}

/* A seventh line that is refused at that column. */
static void refuse(const char *line, uint32_t column, const char *sentence)
{
    char *text = join(base, line);
    check_refusal(text, 7, column, sentence);
    free(text);
}

/* Printed, built and printed again, the text is the same. */
static void check_round_trip(const struct weir_scenario *scenario,
                             const char *what)
{
    char *printed = weir_scenario_print(scenario);
    struct weir_diag diag = { 0 };
    struct weir_scenario *again = try_build(printed, &diag);
    if (!again)
        fail_msg("%s, printed, is refused at %u:%u: %s\n%s", what, diag.line,
                 diag.column, diag.text, printed);
    char *reprinted = weir_scenario_print(again);
    if (strcmp(printed, reprinted) != 0)
        fail_msg("%s is printed as\n%s\nand then as\n%s", what, printed,
                 reprinted);
    free(printed);
    free(reprinted);
    weir_scenario_free(again);
}

/* ---- Accepted files -------------------------------------------------- */

static void a_scenario_says_what_its_file_says(void **state)
{
    (void)state;
    struct weir_scenario *s =
        build("# about nothing\n"
              "title \"of $limiters, \\\"quoted\\\", $$1\"\n"
              "set limiters = 50\nset rtt = 3ms\n"
              "roots 3\nlimiters $limiters started=${limiters}\n"
              "network rtt=$rtt jitter=1ms shape=exponential loss=1%\n"
              "node slack=off correction_ratio=0.5\n"
              "quota api limit=1000/s high_burst=2s\n"
              "quota client/* parent=api limit=100/min\n"
              "load users to client/* rate=0.5x,300/s@10s keys=9:1.1\n"
              "    spread=zipf:0.9 weight=1..4 on=\"10% of l1..l20\"\n"
              "run 60s\n");
    assert_string_equal(s->name, "x");
    assert_string_equal(s->title, "of 50, \"quoted\", $1");
    assert_null(s->variant);
    assert_int_equal(s->limiters, 50);
    assert_int_equal(s->limiters_started, 50);
    assert_int_equal(s->net.delay, 1500000);
    assert_int_equal(s->net.shape, WEIR_DELAY_EXPONENTIAL);
    assert_true(s->net.loss == 0.01);
    assert_false(s->node.slack);
    assert_int_equal(s->node.correction_ppm, 500000);
    assert_int_equal(s->quota_count, 2);
    assert_int_equal(s->quotas[1].limit.units, 100);
    const struct weir_load *load = &s->loads[0];
    assert_string_equal(load->quota, "client/*");
    assert_true(load->steps[0].times_limit && load->steps[0].per_s == 0.5);
    assert_true(!load->steps[1].times_limit && load->steps[1].per_s == 300);
    assert_int_equal(load->steps[1].at, 10 * WEIR_SECOND);
    assert_true(load->key_skew == 1.1 && load->skew == 0.9);
    assert_int_equal(load->weight_max, 4);
    assert_int_equal(load->on.count, 2);
    assert_int_equal(load->on.last, 19);
    assert_int_equal(s->span, 60 * WEIR_SECOND);
    weir_scenario_free(s);
}

static void actions_come_in_the_order_of_time(void **state)
{
    (void)state;
    struct weir_scenario *s =
        build_more("at 8s kill root2; cut root1 from l2..l3 up\n"
                   "at 2s set api limit=20/s\n"
                   "at 8s mend root1\n"
                   "clock l1 step=-5ms drift=-20.5ppm\n");
    static const enum weir_action_kind kinds[] = {
        WEIR_ACTION_CLOCK, WEIR_ACTION_SET,  WEIR_ACTION_KILL,
        WEIR_ACTION_CUT,   WEIR_ACTION_MEND,
    };
    assert_int_equal(s->action_count, WEIR_COUNT_OF(kinds));
    for (size_t i = 0; i < WEIR_COUNT_OF(kinds); i++)
        assert_int_equal(s->actions[i].kind, kinds[i]);
    assert_int_equal(s->actions[0].step, -5000000);
    assert_true(s->actions[0].ppm == -20.5);
    /* In any order in the file, 'nodes' are limiters. */
    assert_false(s->actions[3].nodes.root);
    assert_int_equal(s->actions[3].nodes.first, 1);
    assert_true(s->actions[3].others.root);
    assert_int_equal(s->actions[3].ways, WEIR_WAY_UP);
    assert_string_equal(s->actions[3].text, "cut root1 from l2..l3 up");
    assert_int_equal(s->actions[4].nodes.last, 4);
    weir_scenario_free(s);
}

static void edits_go_on_from_those_before_them_in_time(void **state)
{
    (void)state;
    struct weir_scenario *s =
        build_more("at 6s set api mode=shadow\n"
                   "at 3s set api limit=20/s\n"
                   "at 4s store away\nat 4s set api limit=99/s\n"
                   "at 5s store back\n"
                   "at 8s remove api\nat 9s set api limit=7/s\n");
    const struct weir_quota *shadow = &s->actions[4].quota;
    assert_int_equal(shadow->mode, WEIR_SHADOW);
    /* Changes that the store refused while it was away are missing. */
    assert_int_equal(shadow->limit.units, 20);
    const struct weir_quota *fresh = &s->actions[6].quota;
    assert_int_equal(fresh->mode, WEIR_ENFORCE);
    assert_int_equal(fresh->limit.units, 7);
    check_round_trip(s, "a file with edits");
    weir_scenario_free(s);
}

static void quotas_have_every_algorithm(void **state)
{
    (void)state;
    struct weir_scenario *s = build_more(
        "quota w limit=1000/month algorithm=fixed_window window=month "
        "tz=Europe/Berlin sharing=local count_limited=yes\n"
        "quota v limit=9/s algorithm=token_buckets sharing=local "
        "next_buckets=\"20/s:200, spill:500\"\n"
        "quota e limit=9/s sharing=exact store=redis://[::1]:1/2 "
        "deadline=3ms\n"
        "at 2s set w algorithm=leaky window= tz= count_limited=\n");
    const struct weir_quota *edited = &s->actions[0].quota;
    assert_int_equal(edited->algorithm, WEIR_LEAKY);
    assert_true(edited->window.unset);
    check_round_trip(s, "a file with algorithms");
    weir_scenario_free(s);
    refuse("quota b algorithm=leaky window=5s", 7, "window goes with");
    refuse("quota b algorithm=magic", 19, "it is one of leaky");
}

static void a_name_is_the_measure_before_it_is_the_metric(void **state)
{
    (void)state;
    struct weir_scenario *s =
        build_more("expect passed_mean > 0.5\n"
                   "expect passed_mean of api within 10%..2\n"
                   "measure passed_mean over 2s..4s against 600/min\n"
                   "measure passed_mean over 5s.. as late\n"
                   "expect late < 3\n");
    assert_int_equal(s->expects[0].measure.over.to, 4 * WEIR_SECOND);
    assert_true(s->expects[0].measure.against_per_s == 10);
    assert_int_equal(s->expects[1].measure.over.to, 0);
    assert_true(s->expects[1].value == 0.1 && s->expects[1].value2 == 2);
    assert_int_equal(s->expects[2].measure.over.from, 5 * WEIR_SECOND);
    assert_string_equal(s->expects[2].text, "late < 3");
    check_round_trip(s, "a file with measures");
    weir_scenario_free(s);
}

/* "load" is a keyword before the name of a load, and else a quota's name. */
static void a_measure_is_of_a_quota_or_of_a_load(void **state)
{
    (void)state;
    struct weir_scenario *s =
        build_more("quota load limit=5/s\n"
                   "load these to load rate=1/s\n"
                   "measure passed_mean of load over 2s.. as all\n"
                   "measure passed_mean of load these over 2s.. as some\n"
                   "expect echo_s of load < 1\n"
                   "expect limited_share of load users within 0..1\n");
    assert_null(s->measures[0].load);
    assert_string_equal(s->measures[0].quota, "load");
    assert_string_equal(s->measures[1].load, "these");
    assert_string_equal(s->measures[1].quota, "load");
    assert_null(s->expects[0].measure.load);
    assert_string_equal(s->expects[1].measure.load, "users");
    assert_string_equal(s->expects[1].measure.quota, "api");
    check_round_trip(s, "a file with measures of loads");
    weir_scenario_free(s);
}

/* ---- Variants ------------------------------------------------------- */

static const char varied[] =
    "title \"$a and $b\"\nset a = 1\nset b = 10\nset c = x\n"
    "variant one c=y\nvariant two c=z a=5\n"
    "vary b 10 20 30\n"
    "roots $a\nlimiters $b\nquota api limit=10/s\nrun 10s\n"
    "measure passed_mean\nmeasure reports\n"
    "claim \"c\" holds if one,b=20.passed_mean < 1\n"
    "figure \"f\" passed_mean against b by a\n"
    "figure \"g\" passed_mean against reports by b\n";

static struct weir_scenario *build_variant(struct weir_lab_script *script,
                                           size_t variant)
{
    struct weir_diag diag = { 0 };
    struct weir_scenario *s = weir_scenario_build(script, variant, &diag);
    if (!s)
        fail_msg("%u:%u %s", diag.line, diag.column, diag.text);
    return s;
}

static void variants_are_a_grid(void **state)
{
    (void)state;
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script = read_text(varied, &diag);
    assert_non_null(script);
    assert_string_equal(weir_script_name(script), "x");
    assert_string_equal(weir_script_title(script), "$a and $b");
    assert_int_equal(weir_script_variants(script), 6);
    struct weir_scenario *s = build_variant(script, 5);
    assert_string_equal(s->variant, "two,b=30");
    assert_string_equal(s->title, "5 and 30");
    assert_string_equal(s->settings[2].value, "z");
    assert_int_equal(s->limiters, 30);
    assert_string_equal(s->figures[0].against, "b");
    assert_string_equal(s->figures[0].by, "a");
    assert_string_equal(s->figures[1].measure, "passed_mean");
    assert_string_equal(s->figures[1].against, "reports");
    assert_string_equal(s->figures[1].by, "b");
    check_round_trip(s, varied);
    weir_scenario_free(s);
    s = build_variant(script, 1);
    assert_string_equal(s->variant, "one,b=20");
    assert_string_equal(s->claims[0].conditions[0].variant, "one,b=20");
    weir_scenario_free(s);
    weir_script_free(script);
}

static void a_setting_from_outside_rules_over_variants(void **state)
{
    (void)state;
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script = read_text(varied, &diag);
    assert_int_equal(weir_script_set(script, "b=7", &diag), 0);
    assert_int_equal(weir_script_set(script, "a=2", &diag), 0);
    /* Variant two has an 'a' of its own. */
    assert_int_equal(weir_script_variants(script), 1);
    struct weir_scenario *s = build_variant(script, 0);
    assert_string_equal(s->variant, "one,b=7");
    assert_string_equal(s->settings[2].value, "y");
    assert_int_equal(s->roots, 2);
    assert_int_equal(s->limiters, 7);
    assert_int_equal(s->claim_count, 0); /* its variant is gone */
    weir_scenario_free(s);
    assert_int_equal(weir_script_set(script, "d=1", &diag), WEIR_ENOENT);
    assert_string_equal(diag.text, "there is no setting 'd' in x; those there "
                                   "are: a, b, c");
    assert_int_equal(weir_script_set(script, "a", &diag), WEIR_EINVAL);
    assert_int_equal(weir_script_set(script, "a=$b", &diag), WEIR_EINVAL);
    assert_int_equal(weir_script_set(script, "a=\x01", &diag), WEIR_EINVAL);
    /* A senseless value is refused where it is used. */
    assert_int_equal(weir_script_set(script, "b=0", &diag), 0);
    assert_null(weir_scenario_build(script, 0, &diag));
    assert_int_equal(diag.line, 9);
    assert_int_equal(diag.column, 10);
    weir_script_free(script);
}

/* A variant named by a value is never run with another one. */
static void a_setting_from_outside_leaves_names_true(void **state)
{
    (void)state;
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script = read_text(varied, &diag);
    assert_int_equal(weir_script_set(script, "c=z", &diag), 0);
    assert_int_equal(weir_script_variants(script), 3);
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = { "two,b=10", "two,b=20",
                                             "two,b=30" };
        struct weir_scenario *s = build_variant(script, i);
        assert_string_equal(s->variant, names[i]);
        assert_string_equal(s->settings[2].value, "z");
        weir_scenario_free(s);
    }
    assert_int_equal(weir_script_set(script, "c=x", &diag), WEIR_EINVAL);
    assert_string_equal(diag.text,
                        "no variant of x is left with c=x, for each has values "
                        "of its own; choose one with --variant: one, two");
    weir_script_free(script);
}

/* ---- Refused files --------------------------------------------------- */

static void unknown_words_get_the_nearest_one(void **state)
{
    (void)state;
    refuse("rots 3", 1, "no statement 'rots'; did you mean 'roots'?");
    refuse("bananas 3", 1, "no statement 'bananas'; those there are: title");
    refuse("node slak=on", 6, "no field 'slak'; did you mean 'slack'?");
    refuse("network rtt=1ms los=1%", 17, "did you mean 'loss'?");
    refuse("quota b limt=3/s", 9, "no field 'limt'; did you mean 'limit'?");
    refuse("load u to apis rate=1/s", 11,
           "no quota 'apis'; did you mean 'api'?");
    refuse("measure passed_men", 9, "did you mean 'passed_mean'?");
    refuse("measure echo of nobody", 17,
           "no quota 'nobody'; those there "
           "are: api");
    refuse("measure echo of load usrs", 22, "did you mean 'users'?");
    refuse("measure divergence of load users", 28,
           "divergence is not known for a load; measure it of a quota");
    refuse("at 1s kil l1", 7, "no verb 'kil'; did you mean 'kill'?");
    refuse("at 1s load usrs rate=1/s", 12, "did you mean 'users'?");
    refuse("at 1s expect fil = 1", 14, "did you mean 'fill'?");
    refuse("figure \"f\" pased", 12, "did you mean 'passed'?");
    refuse("figure \"f\" passed_mean against b", 12, "there is no measure");
    refuse("figure \"f\" echo against ehco\nmeasure echo", 25,
           "no setting or measure 'ehco'; did you mean 'echo'?");
    refuse("figure \"f\" echo against echo by echo\nmeasure echo", 33,
           "no setting 'echo', nor any other");
    refuse("always fill api == 3", 17, "there is no comparison '=='");
    refuse("claim \"c\" holds if v.echo < 1", 20, "no variant 'v', nor any");
    refuse("limiters $limit", 10, "no setting 'limit', nor any other");
    refuse("at 1s kill l6", 12, "there is no 'l6'; the limiters are l1 to l5");
    refuse("at 1s kill root0", 12, "the roots are root1 to root2");
    refuse("at 1s kill everybody", 12, "'everybody' names no node");
    refuse("at 1s remove apis", 14, "no quota 'apis'");
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    check_refusal("run 1s\nquota a limit=1/s\n", 2, 1, "the title is missing");
    check_refusal("title \"t\"\nquota a limit=1/s", 2, 1, "no 'run' here");
    check_refusal("title \"t\"\nrun 1s\n", 2, 1, "there is no quota here");
    check_refusal("", 0, 0, "the title is missing");
    check_refusal("title \"\"", 1, 7, "the title is empty");
    refuse("roots", 1, "there is 'roots' already");
    refuse("slots", 6, "something is missing here: how many");
    refuse("at", 3, "an instant, such as 10s");
    refuse("at 1s", 6, "a verb, such as kill");
    refuse("at 1s kill l1;", 15, "a verb, such as kill");
    refuse("at 1s ; kill l1", 7, "a verb, such as kill");
    refuse("load u to api", 6, "either a rate= or a log=");
    refuse("load u to api rate=", 20, "rate needs a value");
    refuse("load u rate=1/s", 6, "say what the load goes to");
    refuse("network", 1, "say how the network is");
    refuse("figure \"f\"", 11, "series, or MEASURE against KEY");
    refuse("claim \"c\"", 7, "say when it holds");
    refuse("at 1s cut l1", 11, "a link has two ends; write NODES from NODES");
    refuse("slots 3 4", 9, "nothing may follow here; take '4' away");
    refuse("set a", 5, "'a' has no '='");
    refuse("; roots 3", 1, "nothing may follow here; take ';' away");
}

static void bad_and_impossible_numbers_are_refused(void **state)
{
    (void)state;
    check_refusal("title \"t\"\nlimiters 0", 2, 10, "it must be 1 to 65536");
    check_refusal("title \"t\"\nlimiters 65537", 2, 10, "1 to 65536");
    check_refusal("title \"t\"\nlimiters 5.5", 2, 10, "isn't a whole number");
    check_refusal("title \"t\"\nlimiters 5 started=6", 2, 20, "0 to 5");
    check_refusal("title \"t\"\nroots 9", 2, 7, "1 to 8");
    check_refusal("title \"t\"\nrun 25h", 2, 5, "24h at most");
    check_refusal("title \"t\"\nrun 0s", 2, 5, "1ms or more");
    check_refusal("title \"t\"\nrun 10", 2, 5, "has no unit");
    refuse("network rtt=-1ms", 13, "'-1ms' is negative");
    refuse("network loss=101%", 14, "a share is 0% to 100%");
    refuse("network loss=1.5", 14, "a share is 0% to 100%");
    refuse("network loss=nan", 14, "doesn't begin with a number");
    refuse("network loss=1e999", 14, "more than a number can be");
    refuse("network rtt=1ms delay=1ms", 1, "rtt= is twice delay=");
    refuse("network delay=1ms jitter=2ms", 1, "can't be above the delay");
    refuse("network delay=1ms delay=1ms", 19, "delay is given twice");
    refuse("network rate=0.5/s", 14, "at least 1/s");
    refuse("node report_interval=1ms", 1, "10ms to 1h");
    refuse("node stale_after=0.5s", 1, "can't be shorter");
    refuse("node correction_ratio=inf", 23, "doesn't begin with a number");
    refuse("load u to api rate=3", 21, "as 3x: three times");
    refuse("load u to api rate=3/parsec", 22, "is no period");
    refuse("load u to api rate=3zx/s", 21, "'zx' is no factor");
    refuse("load u to api rate=1e15/s", 20, "is out of range");
    refuse("load u to api rate=1x,2x@3s,1x@2s", 29, "is out of order");
    refuse("load u to api rate=1x@1s", 20, "the first rate has no @");
    refuse("load u to api rate=1x weight=4..1", 33, "is out of range");
    refuse("load u to api rate=1x keys=0", 28, "1 to 10000000");
    refuse("load u to api rate=1x burst=2s/1s", 29, "must be shorter");
    refuse("load u to api rate=1x on=root1", 26, "roots take no requests");
    refuse("quota b limit=-3/s", 15, "is negative");
    refuse("clock l1 drift=5", 16, "written as 200ppm");
    refuse("at 1s kill 9 of limiters", 12, "it must be 1 to 5");
    refuse("at 1s kill 200% of limiters", 12, "0% to 100%");
    refuse("at 1s kill l4..l2", 12, "the range 'l4..l2' is empty");
    refuse("at 1s kill l4..root2", 12, "from a root to a limiter");
    refuse("expect echo < nan", 15, "doesn't begin with a number");
    refuse("expect echo within 2..1", 20, "is empty");
    refuse("expect echo within 2", 20, "within wants both ends");
    refuse("measure echo against 0/s", 22, "a limit of 0");
}

static void times_outside_the_run_are_refused(void **state)
{
    (void)state;
    refuse("at 11s kill l1", 4, "'11s' is after the end of the run");
    refuse("at 9s expect fill = 1 within 2s", 30, "the run ends before");
    refuse("measure echo over 3s..3s", 19, "the window '3s..3s' is empty");
    refuse("measure echo over 5s..3s", 19, "is empty");
    refuse("measure echo over 3s..11s", 23, "after the end of the run");
    refuse("measure echo over 10s..", 19, "is empty");
    refuse("measure echo over 10s", 19, "isn't a window");
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    refuse("quota api limit=1/s", 7, "there is a quota 'api' already");
    refuse("quota b parent=nobody", 7, "nobody");
    refuse("quota b low_burst=9 high_burst=5", 7, "low_burst");
    refuse("quota b labels=a=b", 9, "a scenario sets no 'labels'");
    refuse("load users to api rate=1x", 6, "there is a load 'users' already");
    refuse("at 1s cut l1 from l2", 19, "limiters on both ends");
    refuse("at 1s cut l1 from root1 up noticed after 1s", 28, "by nobody");
    refuse("measure echo as a.b", 17, "has no dot");
    /* A cycle that only edits can cause. */
    refuse("at 1s set b parent=api limit=1/s; set api parent=b", 35, "api");
    refuse("at 1s set b parent=api limit=1/s; remove api", 35, "b");
}

static void a_setting_is_set_once(void **state)
{
    (void)state;
    check_refusal("set a = 1\nset a = 2\n", 2, 5, "is set already");
    check_refusal("set A = 1\n", 1, 5, "1 to 32 of a-z");
    check_refusal("set a = $b\n", 1, 9, "settings aren't made of settings");
    check_refusal("vary a 1 2\n", 1, 6, "no setting above here called 'a'");
    check_refusal("set a = 1\nvary a 1 2\nvary a 3\n", 3, 6, "varied already");
    check_refusal("set a = 1\nvary a 1 1\n", 2, 10, "stands here already");
    check_refusal("set a = 1\nvariant x b=1\n", 2, 11,
                  "no setting above here called 'b'");
    check_refusal("title \"a $\"\nrun 1s\nquota a", 1, 10, "'$' is followed");
}

static void texts_that_are_no_scenario_are_refused(void **state)
{
    (void)state;
    check_refusal("title \"a\n", 1, 7, "no end on its line");
    check_refusal("title \"a\\n\"\n", 1, 9, "a backslash is followed");
    check_refusal("title \"a\"\n\xC3\xA4\xFF", 2, 2, "clean UTF-8");
    size_t size = WEIR_SCENARIO_BYTES_MAX + 2;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, '#', size);
    text[size - 1] = '\0';
    check_refusal(text, 0, 0, "longer than 256 KiB");
    memset(text, '\n', WEIR_SCENARIO_LINES_MAX + 1);
    text[WEIR_SCENARIO_LINES_MAX + 1] = '\0';
    check_refusal(text, WEIR_SCENARIO_LINES_MAX, 1, "at most 2000 lines");
    for (size_t i = 0; i < 2 * WEIR_SCENARIO_WORDS_MAX + 2; i++)
        text[i] = "a "[i % 2];
    text[2 * WEIR_SCENARIO_WORDS_MAX + 2] = '\0';
    check_refusal(text, 1, 513, "at most 256 words");
    free(text);
}

static void a_message_shows_the_line_with_a_caret(void **state)
{
    (void)state;
    const struct weir_text text = WEIR_TEXT("title \"t\"\n"
                                            "\xC3\xA4\tat 5s kil l1\n");
    struct weir_diag diag = { 2, 9, "there is no verb 'kil'" };
    char shown[256];
    weir_script_show("a/b.weir", text, &diag, shown, sizeof shown);
    assert_string_equal(shown, "a/b.weir:2:9: there is no verb 'kil'\n"
                               "    \xC3\xA4 at 5s kil l1\n"
                               "            ^\n");
    weir_script_show("a/b.weir", text, &diag, shown, 20);
    assert_int_equal(strlen(shown), 19);
    diag.line = 0;
    weir_script_show("a/b.weir", text, &diag, shown, sizeof shown);
    assert_string_equal(shown, "a/b.weir: there is no verb 'kil'\n");
    diag.line = 99;
    weir_script_show("a/b.weir", text, &diag, shown, sizeof shown);
    assert_string_equal(shown, "a/b.weir:99:9: there is no verb 'kil'\n");
}

/* ---- Printing ------------------------------------------------------- */

static void every_builtin_builds_and_prints_to_the_same(void **state)
{
    (void)state;
    for (const struct weir_builtin *b = weir_builtins; b->name; b++) {
        assert_true(b == weir_builtins || strcmp(b[-1].name, b->name) < 0);
        struct weir_diag diag = { 0 };
        struct weir_lab_script *script =
            weir_script_read(b->name, weir_text_of(b->text), &diag);
        if (!script)
            fail_msg("%s:%u:%u: %s", b->name, diag.line, diag.column,
                     diag.text);
        assert_string_equal(weir_script_name(script), b->name);
        for (size_t i = 0; i < weir_script_variants(script); i++) {
            struct weir_scenario *s = weir_scenario_build(script, i, &diag);
            if (!s)
                fail_msg("%s:%u:%u: %s", b->name, diag.line, diag.column,
                         diag.text);
            check_round_trip(s, b->name);
            weir_scenario_free(s);
        }
        weir_script_free(script);
    }
}

/* Every file must be named in the build, else it isn't in the program. */
static void every_file_is_a_builtin(void **state)
{
    (void)state;
    const char *source = getenv("WEIR_SOURCE");
    if (!source)
        skip();
    char *path = join(source, "/lab/scenarios");
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (;;) {
        struct dirent *entry = readdir(folder);
        if (!entry)
            break;
        char *dot = strstr(entry->d_name, ".weir");
        if (!dot)
            continue;
        *dot = '\0';
        const struct weir_builtin *b = weir_builtins;
        while (b->name && strcmp(b->name, entry->d_name) != 0)
            b++;
        if (!b->name)
            fail_msg("%s.weir isn't listed in lab/meson.build", entry->d_name);
    }
    closedir(folder);
    free(path);
}

/* Lines that go with 'base' in any number and order; '%' is a digit. */
static const char *const pool[] = {
    "network rtt=%ms jitter=0.%ms shape=pareto loss=0.0% twice=%%",
    "network l%..l5 to root2 delay=%ms reorder=0.% rate=%MiB/s",
    "links l1..l% to root1",
    "cpu roots message=%ms item=%us",
    "clock limiters step=-%.5ms drift=1%ppm",
    "node slack=off report_interval=0.%5s correction_ratio=0.3%",
    "node correction_ratio=auto stale_after=1%s",
    "slots 1%",
    "bin 1%0ms",
    "live",
    "ideal curve=smooth",
    "set key% = \"a b\"",
    "quota q% limit=%k/min low_burst=1% high_burst=2% on_stale=hold",
    "quota w% limit=%0/min sharing=local algorithm=fixed_window window=day "
    "tz=+0%:00",
    "quota v% limit=%/s sharing=local algorithm=token_buckets "
    "next_buckets=\"%/s:5, spill:%\"",
    "quota \"t %/*\" parent=api limit=1%/s mode=shadow order=%",
    "load a% to api rate=0.%x,1%/s@1.%s sine=%%/%3s weight=%..90",
    "load b% to api/% rate=1%/min burst=%0ms/1s arrivals=regular",
    "load c% to api rate=0.1x on=\"% of l1..l5\" keys=1%:0.% spread=zipf:0.%",
    "load d% to api log=\"an access log\" speed=%.5 spread=sticky",
    "at %.%s kill l%; start l1..l%",
    "at %.%s restart %% of limiters after %0ms",
    "at %s pause root1; resume root1; reset l1",
    "at %s cut root1 from l%..l5 noticed after %ms",
    "at %s cut l1 from roots down",
    "at %s mend; mend l%; mend root2 from l1..l2",
    "at %s network delay=%ms; network l1 to root1 loss=%%",
    "at %.%s set api limit=%0/s high_burst=%.5s; set api mode=enforce",
    "at %.%s set fresh% limit=%/10s; remove fresh%",
    "at %.%s store away; set api limit=%/s; store back",
    "at %s load users rate=%.5x",
    "at %s expect fill of api within %..9% within 0.%s",
    "always over_high of api <= 0.%",
    "expect epochs = 0",
    "measure passed_sd over %s..9.9s against %00/s as m%",
    "measure reports over %s..",
    "expect passed_mean of api over %s..9.5s within 0.%..1%",
    "expect echo < %.%",
    "claim \"of %\" holds if echo < % and passed_mean > 0.%",
    "figure \"a \\\"title\\\" $$%\" passed limit of api over %s..9.5s",
};

static char *random_text(struct weir_rng *rng)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    fputs(base, out);
    for (uint64_t n = weir_rng_below(rng, 30); n > 0; n--) {
        const char *line = pool[weir_rng_below(rng, WEIR_COUNT_OF(pool))];
        char digit = (char)('1' + weir_rng_below(rng, 5));
        for (; *line; line++) {
            /* "%%" is a digit and a percent sign. */
            bool is_digit = *line == '%' && line[-1] != '%';
            fputc(is_digit ? digit : *line, out);
        }
        fputc('\n', out);
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

static void random_scenarios_print_to_the_same(void **state)
{
    (void)state;
    struct weir_rng rng = { seed_or(1) };
    size_t built = 0;
    for (int i = 0; i < 4000; i++) {
        char *text = random_text(&rng);
        struct weir_diag diag = { 0 };
        /* Some lines may not occur twice; such files are refused. */
        struct weir_scenario *s = try_build(text, &diag);
        if (s)
            check_round_trip(s, text);
        else
            assert_true(diag.line > 6 && diag.column > 0);
        built += s != NULL;
        weir_scenario_free(s);
        free(text);
    }
    print_message("%zu of 4000 random files were sound\n", built);
    assert_compare(built, >, 400);
}

static void each_line_of_the_pool_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(pool); i++) {
        bool mentions = strstr(pool[i], "api/") || strstr(pool[i], "epochs");
        char line[256] = "";
        for (size_t j = 0; pool[i][j]; j++) {
            bool is_digit =
                pool[i][j] == '%' && (j == 0 || pool[i][j - 1] != '%');
            line[j] = is_digit ? '2' : pool[i][j];
        }
        char *text = join(base, line);
        struct weir_diag diag = { 0 };
        struct weir_scenario *s = try_build(text, &diag);
        /* Two of the lines must be refused: an unknown quota, an unknown
         * metric. */
        if (!s != mentions)
            fail_msg("%s: %u %s", line, diag.column, diag.text);
        weir_scenario_free(s);
        free(text);
    }
}

/* Random bytes of a sound file are changed: the result is a scenario, or a
 * refusal that points into the file. */
static void broken_files_are_refused_in_place(void **state)
{
    (void)state;
    struct weir_rng rng = { seed_or(1) };
    for (int i = 0; i < 20000; i++) {
        char *text = random_text(&rng);
        size_t len = strlen(text);
        for (uint64_t n = 1 + weir_rng_below(&rng, 4); n > 0; n--)
            text[weir_rng_below(&rng, len)] =
                " \n\";=.$%#@/-09axls\t"[weir_rng_below(&rng, 19)];
        struct weir_diag diag = { 0 };
        struct weir_scenario *s = try_build(text, &diag);
        size_t lines = 1;
        for (const char *p = text; *p; p++)
            lines += *p == '\n';
        if (!s && (diag.text[0] == '\0' || diag.line == 0 ||
                   diag.line > lines || diag.column == 0))
            fail_msg("%u:%u: %s for\n%s", diag.line, diag.column, diag.text,
                     text);
        weir_scenario_free(s);
        free(text);
    }
}

static void a_scenario_made_by_hand_prints_and_builds(void **state)
{
    (void)state;
    struct weir_scenario *s = weir_scenario_new("made");
    s->title = weir_scenario_text(s, WEIR_TEXT("made by hand"));
    s->span = WEIR_SECOND;
    s->quotas = weir_scenario_grow(s, s->quotas, 0, sizeof *s->quotas);
    weir_quota_init(&s->quotas[0]);
    s->quotas[0].name = WEIR_TEXT("a b");
    s->quotas[0].parent = (struct weir_text){ NULL, 0 };
    s->quota_count = 1;
    for (uint64_t i = 3; i > 0; i--)
        weir_scenario_act(s, &(struct weir_action){
                                 .at = i * 1000,
                                 .kind = WEIR_ACTION_KILL,
                                 .some = true,
                             });
    assert_int_equal(s->actions[0].at, 1000);
    char *text = weir_scenario_print(s);
    assert_string_equal(text, "title \"made by hand\"\n"
                              "roots 1\nlimiters 1\nslots 64\n"
                              "network delay=0s\n"
                              "quota \"a b\"\n"
                              "run 1s\nbin 1s\n"
                              "at 1us kill l1\nat 2us kill l1\n"
                              "at 3us kill l1\n");
    check_round_trip(s, "a scenario made by hand");
    free(text);
    weir_scenario_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scenario_says_what_its_file_says),
        cmocka_unit_test(actions_come_in_the_order_of_time),
        cmocka_unit_test(edits_go_on_from_those_before_them_in_time),
        cmocka_unit_test(quotas_have_every_algorithm),
        cmocka_unit_test(a_name_is_the_measure_before_it_is_the_metric),
        cmocka_unit_test(a_measure_is_of_a_quota_or_of_a_load),
        cmocka_unit_test(variants_are_a_grid),
        cmocka_unit_test(a_setting_from_outside_rules_over_variants),
        cmocka_unit_test(a_setting_from_outside_leaves_names_true),
        cmocka_unit_test(unknown_words_get_the_nearest_one),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(bad_and_impossible_numbers_are_refused),
        cmocka_unit_test(times_outside_the_run_are_refused),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_setting_is_set_once),
        cmocka_unit_test(texts_that_are_no_scenario_are_refused),
        cmocka_unit_test(a_message_shows_the_line_with_a_caret),
        cmocka_unit_test(every_builtin_builds_and_prints_to_the_same),
        cmocka_unit_test(every_file_is_a_builtin),
        cmocka_unit_test(each_line_of_the_pool_is_sound),
        cmocka_unit_test(random_scenarios_print_to_the_same),
        cmocka_unit_test(broken_files_are_refused_in_place),
        cmocka_unit_test(a_scenario_made_by_hand_prints_and_builds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
