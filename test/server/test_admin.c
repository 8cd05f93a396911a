/* SPDX-License-Identifier: MIT
 * test/server/test_admin.c - the administration with a real root node and a
 * SQLite file in a folder of its own: its answers, above all its errors. */

#include <errno.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin_house.h"
#include "compare.h"
#include "core/node/root_lease.h"
#include "front/http_problem.h"
#include "front/uri.h"
#include "patience.h"
#include "server/admin/changes.h"
#include "server/metrics/metrics.h"

/* ---- Quotas, one by one ---- */

static void test_put_get_patch_delete(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/site",
         "{\"limit\": \"1000/s\", \"labels\": {\"team\": \"web\"}}");
    assert_string_equal(h->type, "application/json");
    assert_string_equal(member(h, "limit"), "1000/s");
    assert_int_equal(number(h, "epoch"), 1);

    must(h, 200, "PATCH", "/v1/quotas/site", "{\"high_burst\": 3000}");
    assert_string_equal(member(h, "limit"), "1000/s");
    assert_string_equal(member(h, "high_burst"), "3000");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(h->json, "labels"), "team")),
                        "web");

    must(h, 200, "PATCH", "/v1/quotas/site", "{\"limit\": null}");
    assert_string_equal(member(h, "limit"), "unlimited");
    assert_string_equal(member(h, "high_burst"), "3000");

    must(h, 200, "PUT", "/v1/quotas/site", "{\"limit\": \"5/min\"}");
    assert_string_equal(member(h, "limit"), "5/min");
    assert_string_equal(member(h, "high_burst"), "1.5s");

    must(h, 200, "GET", "/v1/quotas/site", NULL);
    assert_string_equal(member(h, "limit"), "5/min");
    must(h, 200, "DELETE", "/v1/quotas/site", NULL);
    assert_int_equal(number(h, "removed"), 1);
    refused(h, "WEIR_ENOENT", "no quota 'site'", "GET", "/v1/quotas/site",
            NULL);
}

static void test_what_alters_nothing_takes_no_epoch(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    must(h, 200, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    assert_int_equal(number(h, "epoch"), 1);
    must(h, 200, "PATCH", "/v1/quotas/a", "{}");
    assert_int_equal(number(h, "epoch"), 1);
}

static void test_an_answer_can_be_sent_back(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    must(h, 200, "GET", "/v1/quotas/a?usage=1", NULL);
    char *body = strdup(h->text);
    must(h, 200, "PUT", "/v1/quotas/a", body);
    free(body);
}

static void test_names_in_paths(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/client/*", "{\"limit\": \"5/s\"}");
    must(h, 200, "GET", "/v1/quotas/client%2F%2a", NULL);
    assert_string_equal(member(h, "name"), "client/*");
    must(h, 201, "PUT", "/v1/quotas/%D0%B9%20%3F%25", "{}");
    assert_string_equal(member(h, "name"), "й ?%");
    refused(h, "WEIR_ENOENT", "template 'client/*' rules it", "GET",
            "/v1/quotas/client/7", NULL);
    refused(h, "WEIR_ENAME", "NUL", "GET", "/v1/quotas/a%00b", NULL);
    refused(h, "WEIR_ENAME", "hexadecimal", "GET", "/v1/quotas/a%0", NULL);
    refused(h, "WEIR_ENAME", "hexadecimal", "PUT", "/v1/quotas/a%zz", "{}");
    refused(h, "WEIR_ENAME", "UTF-8", "PUT", "/v1/quotas/%ff", "{}");
    refused(h, "WEIR_ENAME", "empty", "GET", "/v1/quotas/", NULL);
    char target[400] = "/v1/quotas/";
    memset(target + 11, 'x', 256);
    refused(h, "WEIR_ENAME", "too long", "PUT", target, "{}");
    target[11 + 255] = '\0';
    must(h, 201, "PUT", target, "{}");
}

static void test_bad_quotas(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    must(h, 201, "PUT", "/v1/quotas/b", "{\"parent\": \"a\"}");
    must(h, 201, "PUT", "/v1/quotas/c", "{\"parent\": \"b\"}");
    refused(h, "WEIR_EPARENT", "'nope'", "PUT", "/v1/quotas/d",
            "{\"parent\": \"nope\"}");
    refused(h, "WEIR_ECYCLE", "a -> c -> b -> a", "PATCH", "/v1/quotas/a",
            "{\"parent\": \"c\"}");
    refused(h, "WEIR_ECHILDREN", "'b'", "DELETE", "/v1/quotas/a", NULL);
    refused(h, "WEIR_ENOENT", "'d'", "DELETE", "/v1/quotas/d", NULL);
    refused(h, "WEIR_EEXIST", "'a' exists", "PATCH", "/v1/quotas/a?new=1",
            "{\"limit\": \"6/s\"}");
    refused(h, "WEIR_EQUOTA", "negative", "PUT", "/v1/quotas/d",
            "{\"limit\": \"-5/s\"}");
    refused(h, "WEIR_EQUOTA", "NaN", "PUT", "/v1/quotas/d",
            "{\"limit\": \"NaN\"}");
    refused(h, "WEIR_EQUOTA", "low_burst", "PUT", "/v1/quotas/d",
            "{\"limit\": \"5/s\", \"low_burst\": 9, \"high_burst\": 8}");
    refused(h, "WEIR_EQUOTA", "knows no time zone 'Europe/Berlyn'", "PUT",
            "/v1/quotas/d",
            "{\"limit\": \"5/day\", \"sharing\": \"local\","
            " \"algorithm\": \"fixed_window\", \"window\": \"day\","
            " \"tz\": \"Europe/Berlyn\"}");
    refused(h, "WEIR_EQUOTA", "it is one of leaky, leaky_queue", "PUT",
            "/v1/quotas/d", "{\"algorithm\": \"magic\"}");
    refused(h, "WEIR_EQUOTA", "window goes with", "PUT", "/v1/quotas/d",
            "{\"window\": \"1s\"}");
    refused(h, "WEIR_EQUOTA", "leased", "PUT", "/v1/quotas/d",
            "{\"sharing\": \"leased\"}");
    refused(h, "WEIR_EQUOTA", "did you mean 'limit'", "PUT", "/v1/quotas/d",
            "{\"limt\": \"5/s\"}");
    refused(h, "WEIR_EINVAL", "can't be renamed", "PUT", "/v1/quotas/d",
            "{\"name\": \"e\"}");
    refused(h, "WEIR_EINVAL", "JSON object", "PUT", "/v1/quotas/d", "[]");
    refused(h, "WEIR_ESYNTAX", "isn't JSON", "PUT", "/v1/quotas/d", "{");
    assert_int_equal(number(h, "line"), 1);
    refused(h, "WEIR_ESYNTAX", "isn't JSON", "PUT", "/v1/quotas/d", "");
    refused(h, "WEIR_ESYNTAX", "duplicate", "PUT", "/v1/quotas/d",
            "{\"limit\": \"1/s\", \"limit\": \"2/s\"}");
    /* None of these requests had an effect. */
    must(h, 200, "GET", "/v1/quotas", NULL);
    assert_int_equal(number(h, "total"), 3);
    assert_int_equal(number(h, "epoch"), 3);
}

static void test_a_chain_has_an_end(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/q0", "{}");
    char target[32], body[48];
    for (int i = 1; i < WEIR_DEPTH_MAX; i++) {
        snprintf(target, sizeof target, "/v1/quotas/q%d", i);
        snprintf(body, sizeof body, "{\"parent\": \"q%d\"}", i - 1);
        must(h, 201, "PUT", target, body);
    }
    refused(h, "WEIR_EDEPTH", "16", "PUT", "/v1/quotas/q16",
            "{\"parent\": \"q15\"}");
}

/* ---- Many at once ---- */

static void test_pages(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    char body[8192] = "[{\"name\": \"a0\"}";
    for (int i = 1; i < 25; i++)
        snprintf(body + strlen(body), sizeof body - strlen(body),
                 ", {\"name\": \"%c%d\"}", i % 2 ? 'b' : 'a', i);
    strcat(body, "]");
    must(h, 200, "POST", "/v1/quotas:import", body);
    assert_int_equal(number(h, "created"), 25);
    char target[96] = "/v1/quotas?limit=4&match=a*";
    size_t seen = 0;
    char last[8] = "";
    for (;;) {
        must(h, 200, "GET", target, NULL);
        size_t index;
        json_t *quota;
        json_array_foreach(json_object_get(h->json, "quotas"), index, quota)
        {
            const char *name =
                json_string_value(json_object_get(quota, "name"));
            assert_compare(strcmp(name, last), >, 0);
            snprintf(last, sizeof last, "%s", name);
            seen++;
        }
        if (!json_object_get(h->json, "next"))
            break;
        snprintf(target, sizeof target, "/v1/quotas?limit=4&match=a*&after=%s",
                 member(h, "next"));
    }
    assert_int_equal(seen, 13);
    refused(h, "WEIR_EINVAL", "limit", "GET", "/v1/quotas?limit=1001", NULL);
    refused(h, "WEIR_EINVAL", "limit", "GET", "/v1/quotas?limit=x", NULL);
    refused(h, "WEIR_EINVAL", "usage=1", "GET", "/v1/quotas?usage=yes", NULL);
    refused(h, "WEIR_EINVAL", "hexadecimal", "GET", "/v1/quotas?match=%", NULL);
}

static void test_import_and_export(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 200, "POST", "/v1/quotas:import",
         "{\"weir\": 1, \"quotas\": ["
         "{\"name\": \"child\", \"parent\": \"top\", \"limit\": \"5/s\"},"
         "{\"name\": \"top\", \"limit\": \"9/s\"},"
         "{\"name\": \"old\"}]}");
    assert_int_equal(number(h, "created"), 3);

    must(h, 200, "GET", "/v1/quotas:export", NULL);
    char *whole = strdup(h->text);
    must(h, 200, "POST", "/v1/quotas:import?replace=1", whole);
    assert_int_equal(number(h, "unchanged"), 3);
    assert_int_equal(number(h, "removed"), 0);
    assert_int_equal(number(h, "epoch"), 3);

    must(h, 200, "POST", "/v1/quotas:import",
         "[{\"name\": \"top\", \"limit\": \"8/s\"}, {\"name\": \"new\"}]");
    assert_int_equal(number(h, "created"), 1);
    assert_int_equal(number(h, "changed"), 1);
    must(h, 200, "POST", "/v1/quotas:import?replace=1", whole);
    assert_int_equal(number(h, "removed"), 1);
    assert_int_equal(number(h, "changed"), 1);
    assert_int_equal(number(h, "unchanged"), 2);
    must(h, 200, "GET", "/v1/quotas:export", NULL);
    json_t *before = json_loads(whole, 0, NULL);
    assert_true(json_equal(json_object_get(before, "quotas"),
                           json_object_get(h->json, "quotas")));
    json_decref(before);
    free(whole);
}

static void test_bad_imports(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    refused(h, "WEIR_EEXIST", "'a' is named twice", "POST", "/v1/quotas:import",
            "[{\"name\": \"a\"}, {\"name\": \"b\"}, {\"name\": \"a\"}]");
    refused(h, "WEIR_EQUOTA", "quotas[1]", "POST", "/v1/quotas:import",
            "[{\"name\": \"a\"}, {\"name\": \"b\", \"limit\": \"x\"}]");
    refused(h, "WEIR_ENAME", "quotas[0]", "POST", "/v1/quotas:import",
            "[{\"limit\": \"5/s\"}]");
    refused(h, "WEIR_ENAME", "NUL", "POST", "/v1/quotas:import",
            "[{\"name\": \"a\\u0000b\"}]");
    refused(h, "WEIR_EPARENT", "'x'", "POST", "/v1/quotas:import",
            "[{\"name\": \"a\"}, {\"name\": \"b\", \"parent\": \"x\"}]");
    refused(h, "WEIR_ECYCLE", "->", "POST", "/v1/quotas:import",
            "[{\"name\": \"a\", \"parent\": \"b\"},"
            " {\"name\": \"b\", \"parent\": \"a\"}]");
    refused(h, "WEIR_EINVAL", "list of quotas", "POST", "/v1/quotas:import",
            "{\"quota\": []}");
    refused(h, "WEIR_ESCHEMA", "another version", "POST", "/v1/quotas:import",
            "{\"weir\": 2, \"quotas\": []}");
    refused(h, "WEIR_EINVAL", "replace", "POST",
            "/v1/quotas:import?replace=maybe", "[]");
    must(h, 200, "GET", "/v1/quotas", NULL);
    assert_int_equal(number(h, "total"), 0);
}

/* ---- Invalid requests ---- */

static void test_routes(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    refused(h, "WEIR_ENOENT", "GET /v1 lists", "GET", "/", NULL);
    refused(h, "WEIR_ENOENT", "GET /v1 lists", "GET", "", NULL);
    refused(h, "WEIR_ENOENT", "GET /v1 lists", "GET", "/v1/quotass", NULL);
    refused(h, "WEIR_EINVAL", "answers", "POST", "/v1/quotas/a", "{}");
    assert_int_equal(h->status, 405);
    assert_string_equal(h->allow, "GET, PUT, PATCH, DELETE");
    refused(h, "WEIR_EINVAL", "GET only", "DELETE", "/v1/status", NULL);
    assert_string_equal(h->allow, "GET");
    refused(h, "WEIR_ETOOBIG", "no body", "GET", "/v1/status", "x");
    char *body = calloc(1, WEIR_ADMIN_BODY_MAX + 2);
    memset(body, ' ', WEIR_ADMIN_BODY_MAX + 1);
    refused(h, "WEIR_ETOOBIG", "1 MiB", "PUT", "/v1/quotas/a", body);
    free(body);
    body = calloc(1, WEIR_ADMIN_IMPORT_MAX + 2);
    memset(body, ' ', WEIR_ADMIN_IMPORT_MAX + 1);
    refused(h, "WEIR_ETOOBIG", "64 MiB", "POST", "/v1/quotas:import", body);
    free(body);
}

static void test_uri(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char raw[2] = { (char)c, 'x' };
        char encoded[8], back[8];
        int len = weir_uri_encode((struct weir_text){ raw, 2 }, encoded,
                                  sizeof encoded);
        assert_compare(len, >, 0);
        struct weir_text text = { encoded, (size_t)len };
        assert_int_equal(weir_uri_decode(text, false, back, 8), 2);
        assert_memory_equal(back, raw, 2);
    }
    struct weir_text value;
    struct weir_text query = WEIR_TEXT("a=1&bb&c=x=y&");
    assert_true(weir_uri_query(query, "bb", &value) && value.len == 0);
    assert_true(weir_uri_query(query, "c", &value) && value.len == 3);
    assert_false(weir_uri_query(query, "b", &value));
}

/* ---- The root's own status ---- */

static void hear(struct house *h, const struct weir_message *message)
{
    weir_instant now = weir_clock_now();
    assert_int_equal(weir_root_receive(h->root, 0, message, now), 0);
    uint32_t peer;
    struct weir_message out;
    while (weir_root_next(h->root, &peer, &out, now))
        ;
}

/* A limiter with 'passed' units of quota 'name'. */
static void use(struct house *h, const char *name, uint64_t created,
                int64_t passed, uint64_t refused)
{
    weir_root_link(h->root, 0, true, weir_clock_now());
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = 1,
        .hello = { .protocol = WEIR_PROTOCOL,
                   .incarnation = { 7 },
                   .name = WEIR_TEXT("service \"1\"") },
    };
    hear(h, &hello);
    struct weir_announce announce = { .slot = 3,
                                      .name = weir_text_of(name),
                                      .created = created };
    struct weir_count count = { .slot = 3,
                                .passed = passed,
                                .refused = refused };
    struct weir_message report = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 1,
        .report = { .number = 1,
                    .epoch = created,
                    .unknown = 4,
                    .contended = 5,
                    .lacking = 7,
                    .overflowed = 9,
                    .announce_count = 1,
                    .announces = &announce,
                    .count = 1,
                    .counts = &count },
    };
    hear(h, &report);
}

static void test_usage_status_metrics(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/a%22b%5C",
         "{\"limit\": \"100/h\", \"high_burst\": 50}");
    use(h, "a\"b\\", 1, 30, 12);
    must(h, 200, "GET", "/v1/usage", NULL);
    json_t *list = json_object_get(h->json, "quotas");
    assert_int_equal(json_array_size(list), 1);
    json_t *entry = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(entry, "passed")), 30);
    assert_int_equal(json_integer_value(json_object_get(entry, "limited")), 12);
    assert_int_equal(json_integer_value(json_object_get(entry, "high")), 50);
    assert_string_equal(json_string_value(json_object_get(entry, "mode")),
                        "enforce");
    assert_int_equal(number(h, "used"), 1);
    must(h, 200, "GET", "/v1/usage?match=z*", NULL);
    assert_int_equal(json_array_size(json_object_get(h->json, "quotas")), 0);

    must(h, 200, "GET", "/v1/quotas/a%22b%5C?usage=1", NULL);
    assert_non_null(json_object_get(h->json, "usage"));

    must(h, 200, "GET", "/v1/status", NULL);
    assert_string_equal(member(h, "version"), "1.2.3");
    json_t *limiters = json_object_get(h->json, "limiters");
    assert_int_equal(json_array_size(limiters), 1);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(limiters, 0), "name")),
        "service \"1\"");

    must(h, 200, "GET", "/metrics", NULL);
    assert_non_null(strstr(h->type, "version=0.0.4"));
    assert_non_null(strstr(h->text, "weir_quota_limited_units_total{quota="
                                    "\"a\\\"b\\\\\",mode=\"enforce\"} 12\n"));
    assert_non_null(strstr(h->text, "weir_unknown_requests_total 4\n"));
    assert_non_null(strstr(h->text, "weir_contended_requests_total 5\n"));
    assert_non_null(strstr(h->text, "weir_overflowed_requests_total 9\n"));
    assert_non_null(strstr(h->text, "weir_limiters_lacking 1\n"));
    must(h, 200, "GET", "/healthz", NULL);
    must(h, 200, "GET", "/readyz", NULL);
}

/* /v1/why and the metrics name a limiter that exceeds its debt. */
static void test_a_debtor_is_named(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/q", "{\"limit\": \"10/s\"}");
    must(h, 200, "GET", "/v1/why?name=q", NULL);
    json_t *link = json_array_get(json_object_get(h->json, "chain"), 0);
    assert_true(json_is_null(json_object_get(link, "beyond_debt")));
    use(h, "q", 1, 10 * 60 + 81000, 0);

    must(h, 200, "GET", "/v1/why?name=q", NULL);
    link = json_array_get(json_object_get(h->json, "chain"), 0);
    json_t *beyond = json_object_get(link, "beyond_debt");
    assert_string_equal(json_string_value(json_object_get(beyond, "limiter")),
                        "service \"1\"");
    assert_int_equal(json_integer_value(json_object_get(beyond, "units")),
                     81000);
    assert_non_null(strstr(json_string_value(json_object_get(link, "why")),
                           "; limiter 'service \"1\"' reported more than its "
                           "max_debt, at last "));
    must(h, 200, "GET", "/metrics", NULL);
    assert_non_null(strstr(h->text, "\nweir_beyond_debt_units_total 81000\n"));
    assert_non_null(strstr(h->text,
                           "weir_quota_beyond_debt_units_total{quota=\"q\","
                           "limiter=\"service \\\"1\\\"\",incarnation="
                           "\"07000000000000000000000000000000\"} 81000\n"));
    struct weir_debtor debtor;
    weir_instant now = weir_clock_now();
    assert_true(weir_root_new_debtor(h->root, &debtor, now));
    assert_int_equal(debtor.units, 81000);
    assert_false(weir_root_new_debtor(h->root, &debtor, now));
}

#define MANY 300

static void test_metrics_are_bounded(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/c%2A", "{\"limit\": \"1/h\"}");
    weir_root_link(h->root, 0, true, weir_clock_now());
    struct weir_message hello = { .type = WEIR_MESSAGE_HELLO,
                                  .session = 1,
                                  .hello = { .protocol = WEIR_PROTOCOL,
                                             .incarnation = { 7 } } };
    hear(h, &hello);
    static char names[MANY][8];
    static struct weir_announce announces[MANY];
    static struct weir_count counts[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "c%u", i);
        announces[i] = (struct weir_announce){ .slot = i,
                                               .name = weir_text_of(names[i]),
                                               .created = 1 };
        /* 7 and 300 have no common factor: each number occurs once. */
        counts[i] = (struct weir_count){ .slot = i,
                                         .passed = 1,
                                         .refused = 1 + i * 7 % MANY };
    }
    struct weir_message report = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 1,
        .report = { .number = 1,
                    .epoch = 1,
                    .announce_count = MANY,
                    .announces = announces,
                    .count = MANY,
                    .counts = counts },
    };
    hear(h, &report);
    must(h, 200, "GET", "/metrics", NULL);
    size_t lines = 0;
    uint64_t last = UINT64_MAX;
    static const char head[] = "weir_quota_limited_units_total{";
    for (char *at = strstr(h->text, head); at; at = strstr(at + 1, head)) {
        uint64_t refused = strtoull(strchr(at, ' '), NULL, 10);
        assert_compare(refused, <, last);
        last = refused;
        lines++;
    }
    assert_int_equal(lines, WEIR_METRICS_QUOTAS_MAX);
    assert_int_equal(last, MANY - WEIR_METRICS_QUOTAS_MAX + 1);
    must(h, 200, "GET", "/v1/usage?limit=10", NULL);
    assert_int_equal(json_array_size(json_object_get(h->json, "quotas")), 10);
    assert_int_equal(number(h, "used"), MANY);
}

/* ---- The limit of a whole fleet ---- */

static void want_part(struct house *h, const char *client, double wants)
{
    struct weir_client known = { .id = weir_text_of(client),
                                 .way = WEIR_WAY_NONE };
    struct weir_band band = { .wants = wants, .clients = 1 };
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    struct weir_grant grant;
    assert_int_equal(weir_root_lease_ask(h->root, &known, WEIR_TEXT("db"), &ask,
                                         &grant, weir_clock_now()),
                     0);
}

/* What the root says of it while no process uses it. */
static void assert_unused(struct house *h, bool leads)
{
    must(h, 200, "GET", "/v1/fleet?name=db", NULL);
    assert_int_equal(json_is_true(json_object_get(h->json, "leads")), leads);
    assert_true(json_is_null(json_object_get(h->json, "fleet")));
    assert_int_equal(json_array_size(json_object_get(h->json, "members")), 0);
}

static void test_the_limit_of_a_fleet(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/own",
         "{\"kind\": \"concurrency\", \"sharing\": \"adaptive\"}");
    must(h, 201, "PUT", "/v1/quotas/db",
         "{\"kind\": \"concurrency\", \"sharing\": \"adaptive\","
         " \"scope\": \"fleet\", \"target\": \"200ms\"}");
    refused(h, "WEIR_ENOENT", "scope=fleet", "GET", "/v1/fleet?name=own", NULL);
    refused(h, "WEIR_ENOENT", "no quota", "GET", "/v1/fleet?name=none", NULL);
    refused(h, "WEIR_ENAME", "empty", "GET", "/v1/fleet", NULL);
    weir_root_lease_end(h->root, 1, WEIR_TEXT("east:7077"), weir_clock_now());
    assert_unused(h, false);
    assert_string_equal(member(h, "master"), "east:7077");
    weir_root_lease_begin(h->root, 2, WEIR_NEVER, weir_clock_now());
    assert_unused(h, true);
    assert_string_equal(member(h, "master"), "");

    want_part(h, "ann", 0.25);
    want_part(h, "bob", 50);
    must(h, 200, "GET", "/v1/fleet?name=db", NULL);
    json_t *fleet = json_object_get(h->json, "fleet");
    double limit = json_real_value(json_object_get(fleet, "limit"));
    assert_true(limit >= 1);
    assert_true(json_is_null(json_object_get(fleet, "latency_s")));
    assert_float_equal(json_real_value(json_object_get(fleet, "target_s")), 0.2,
                       1e-9);
    double granted = 0;
    json_t *members = json_object_get(h->json, "members");
    assert_int_equal(json_array_size(members), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(members, i);
        granted += json_real_value(json_object_get(one, "granted"));
        assert_true(json_is_false(json_object_get(one, "left_out")));
        assert_true(json_is_null(json_object_get(one, "incarnation")));
    }
    assert_true(granted > 0 && granted <= limit + 1e-9);
    must(h, 200, "GET", "/v1/status", NULL);
    json_t *fleets = json_object_get(h->json, "fleets");
    assert_int_equal(json_array_size(fleets), 1);
    fleet = json_array_get(fleets, 0);
    assert_string_equal(json_string_value(json_object_get(fleet, "quota")),
                        "db");
    assert_int_equal(json_array_size(json_object_get(fleet, "left_out")), 0);
    must(h, 200, "GET", "/metrics", NULL);
    assert_non_null(
        strstr(h->text, "\nweir_fleet_target_seconds{quota=\"db\"} 0.2"));
    assert_non_null(strstr(h->text, "\nweir_fleet_outliers{quota=\"db\"} 0\n"));
}

/* ---- A store in trouble ---- */

static sqlite3 *lock(const char *path)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, PATIENCE_MS);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL),
                     SQLITE_OK);
    return db;
}

static void test_locked(void **state)
{
    struct fixture *f = *state;
    struct house *h = &f->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    sqlite3 *db = lock(f->path);
    refused(h, "WEIR_ELOCKED", "locked", "PUT", "/v1/quotas/a",
            "{\"limit\": \"6/s\"}");
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    assert_string_equal(member(h, "limit"), "5/s");
    must(h, 200, "GET", "/readyz", NULL);
    sqlite3_close(db);
    must(h, 200, "PUT", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    assert_int_equal(number(h, "epoch"), 2);
}

static void by_hand(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, PATIENCE_MS);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static bool is_well(struct house *h)
{
    must(h, 200, "GET", "/v1/status", NULL);
    json_t *store = json_object_get(h->json, "store");
    return strcmp(json_string_value(json_object_get(store, "state")), "ok") ==
           0;
}

/* Damages the first page of a text that goes on on other pages, or mends it: it
 * begins with the number of the next one. */
static void damage_page(const char *path, bool damaged)
{
    static char page[4096];
    static char number[4];
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    size_t at = 0;
    while (fread(page, 1, sizeof page, file) == sizeof page &&
           !(page[4] == 'x' && page[4095] == 'x'))
        at += sizeof page;
    assert_int_equal(page[4095], 'x');
    if (damaged)
        memcpy(number, page, sizeof number);
    fseek(file, (long)at, SEEK_SET);
    fwrite(damaged ? "\x7f\xff\xff\xf0" : number, 1, sizeof number, file);
    assert_int_equal(fclose(file), 0);
}

/* An edit of two quotas of which only the first can be read, because the second
 * one's page is damaged: neither is in force until both can be read. */
static void test_no_edit_is_served_by_half(void **state)
{
    struct fixture *f = *state;
    struct house *h = &f->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    must(h, 201, "PUT", "/v1/quotas/b", "{\"limit\": \"5/s\"}");
    /* In a table that the root doesn't read, until all is as it shall be. */
    by_hand(f->path,
            "BEGIN IMMEDIATE; CREATE TABLE fresh (id INTEGER PRIMARY KEY,"
            " epoch INTEGER NOT NULL UNIQUE, created INTEGER NOT NULL,"
            " name TEXT NOT NULL UNIQUE, fields TEXT NOT NULL) STRICT;"
            "INSERT INTO fresh SELECT * FROM quotas;"
            "UPDATE fresh SET epoch = 3, fields = 'limit: 6/s' || char(10)"
            " WHERE name = 'a';"
            "UPDATE fresh SET epoch = 4, fields = printf('%.*c', 100000, 'x')"
            " WHERE name = 'b'; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
    damage_page(f->path, true);
    by_hand(f->path, "BEGIN IMMEDIATE; DROP TABLE quotas;"
                     "ALTER TABLE fresh RENAME TO quotas;"
                     "UPDATE meta SET epoch = 4; COMMIT");
    while (STILL(is_well(h)))
        turn(h);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    assert_string_equal(member(h, "limit"), "5/s");
    assert_int_equal(weir_catalog_epoch(weir_root_catalog(h->root)), 2);
    damage_page(f->path, false);
    by_hand(f->path, "BEGIN IMMEDIATE; UPDATE quotas SET epoch = 5, fields ="
                     " 'limit: 6/s' || char(10) WHERE name = 'b';"
                     "UPDATE meta SET epoch = 5; COMMIT");
    while (STILL(!is_well(h)))
        turn(h);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    assert_string_equal(member(h, "limit"), "6/s");
    must(h, 200, "GET", "/v1/quotas/b", NULL);
    while (STILL(strcmp(member(h, "limit"), "6/s") != 0)) {
        turn(h);
        must(h, 200, "GET", "/v1/quotas/b", NULL);
    }
}

static void test_gone_and_back(void **state)
{
    struct fixture *f = *state;
    struct house *h = &f->house;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    char away[128];
    snprintf(away, sizeof away, "%s-away", f->path);
    assert_int_equal(rename(f->path, away), 0);
    ask(h, "PUT", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    assert_int_equal(h->status,
                     weir_error_status(weir_error_named(member(h, "error"))));
    assert_true(h->status == 503 || h->status == 404);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    must(h, 200, "GET", "/v1/status", NULL);
    json_t *store = json_object_get(h->json, "store");
    assert_string_equal(json_string_value(json_object_get(store, "state")),
                        "unreachable");
    assert_int_equal(rename(away, f->path), 0);
    weir_instant until = weir_clock_now() + PATIENCE_MS * WEIR_MILLISECOND;
    do
        ask(h, "PUT", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    while (h->status != 200 && weir_clock_now() < until);
    assert_int_equal(h->status, 200);
    assert_int_equal(number(h, "epoch"), 2);
}

static void test_not_ready_at_the_start(void **state)
{
    struct fixture *f = *state;
    must(&f->house, 201, "PUT", "/v1/quotas/a", "{}");
    close_house(&f->house);
    struct house *h = &f->house;
    open_house(h, f->url, false);
    /* The thread may have read all, but its result was not handed over. */
    refused(h, "WEIR_ENOTREADY", "not read", "GET", "/v1/quotas/a", NULL);
    refused(h, "WEIR_ENOTREADY", "not read", "GET", "/v1/quotas", NULL);
    must(h, 503, "GET", "/readyz", NULL);
    must(h, 200, "GET", "/healthz", NULL);
    must(h, 200, "GET", "/v1/status", NULL);
    assert_true(json_is_false(json_object_get(h->json, "ready")));
    while (STILL(!weir_root_ready(h->root)))
        turn(h);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
}

static void test_missing_store(void **state)
{
    (void)state;
    struct weir_store_listener listener = { 0 };
    struct weir_store_thread *thread = NULL;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_store_thread_new("sqlite:/tmp/weir-no-such/q.db",
                                           &listener, &thread, &diag),
                     WEIR_ENOENT);
    assert_non_null(strstr(diag.text, "weir store init"));
    assert_null(thread);
}

/* ---- Two roots, one file; the end ---- */

static void test_two_roots(void **state)
{
    struct fixture *f = *state;
    struct house other;
    open_house(&other, f->url, true);
    must(&f->house, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    do
        ask(&other, "GET", "/v1/quotas/a", NULL);
    while (other.status == 404 && (turn(&other), true));
    assert_int_equal(other.status, 200);
    /* An edit reads first: no edit by the other root is lost. */
    must(&f->house, 200, "PATCH", "/v1/quotas/a", "{\"order\": 7}");
    must(&other, 200, "PATCH", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    assert_int_equal(number(&other, "order"), 7);
    must(&f->house, 200, "PATCH", "/v1/quotas/a", "{\"mode\": \"shadow\"}");
    assert_string_equal(member(&f->house, "limit"), "6/s");
    close_house(&other);
}

/* The other root's edit falls between this one's read and its edit: the store
 * refuses it, and it is repeated. */
static void test_two_roots_at_once(void **state)
{
    struct fixture *f = *state;
    struct house *h = &f->house;
    struct house other;
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    open_house(&other, f->url, true);
    forget(h);
    struct weir_admin_request request = { WEIR_TEXT("PATCH"),
                                          WEIR_TEXT("/v1/quotas/a"),
                                          WEIR_TEXT("{\"order\": 7}"),
                                          WEIR_TEXT("ann") };
    weir_admin_call(h->admin, &request, on_answer, h, weir_clock_now());
    struct pollfd looked = { weir_store_thread_fd(h->store), POLLIN, 0 };
    assert_int_equal(poll(&looked, 1, PATIENCE_MS), 1);
    must(&other, 200, "PATCH", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    while (STILL(!h->answered))
        turn(h);
    assert_int_equal(h->status, 200);
    assert_string_equal(member(h, "limit"), "6/s");
    assert_int_equal(number(h, "order"), 7);
    close_house(&other);
}

struct counter {
    size_t calls;
    size_t closed;
};

static void count_answer(void *context, const struct weir_admin_answer *answer)
{
    struct counter *counter = context;
    counter->calls++;
    counter->closed += answer->status == 503;
}

static void test_many_edits_wait_and_all_are_answered(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    struct counter counter = { 0 };
    for (int i = 0; i < WEIR_ADMIN_EDITS_MAX + 5; i++) {
        char target[48];
        snprintf(target, sizeof target, "/v1/quotas/q%d", i);
        struct weir_admin_request request = { WEIR_TEXT("PUT"),
                                              weir_text_of(target),
                                              WEIR_TEXT("{}") };
        weir_admin_call(h->admin, &request, count_answer, &counter,
                        weir_clock_now());
    }
    assert_int_equal(counter.calls, 5); /* the last five exceeded the bound */
    assert_int_equal(counter.closed, 5);
    while (counter.calls < 20)
        turn(h);
    weir_admin_stop_edits(h->admin);
    refused(h, "WEIR_ECLOSED", "stopping", "DELETE", "/v1/quotas/q0", NULL);
    weir_admin_free(&h->admin);
    assert_int_equal(counter.calls, WEIR_ADMIN_EDITS_MAX + 5);
    forget(h);
    weir_store_thread_free(&h->store);
    weir_root_free(h->root);
}

static void test_changes_own_their_texts(void **state)
{
    (void)state;
    struct weir_changes list = { 0 };
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        struct weir_change change = { .removed = i % 2 };
        weir_quota_init(&change.quota);
        change.quota.name = weir_text_of(name);
        assert_int_equal(weir_changes_add(&list, &change), 0);
    }
    assert_int_equal(list.count, 100);
    assert_true(weir_text_equal(list.at[42].quota.name, WEIR_TEXT("n42")));
    weir_changes_fini(&list);
    assert_int_equal(list.count, 0);
}

/* A detail that quotes a client's bytes may end in half a character; the
 * problem is reported all the same. */
static void test_a_detail_that_was_cut(void **state)
{
    (void)state;
    struct weir_diag diag = { 0 };
    weir_diag_set(&diag, WEIR_EQUOTA, "there is no field '\xe2\x82", NULL);
    json_t *problem = weir_http_problem(WEIR_EQUOTA, 422, &diag);
    assert_string_equal(json_string_value(json_object_get(problem, "error")),
                        "WEIR_EQUOTA");
    assert_string_equal(json_string_value(json_object_get(problem, "detail")),
                        weir_strerror(WEIR_EQUOTA));
    json_decref(problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_detail_that_was_cut),
        WITH_HOUSE(test_put_get_patch_delete),
        WITH_HOUSE(test_what_alters_nothing_takes_no_epoch),
        WITH_HOUSE(test_an_answer_can_be_sent_back),
        WITH_HOUSE(test_names_in_paths),
        WITH_HOUSE(test_bad_quotas),
        WITH_HOUSE(test_a_chain_has_an_end),
        WITH_HOUSE(test_pages),
        WITH_HOUSE(test_import_and_export),
        WITH_HOUSE(test_bad_imports),
        WITH_HOUSE(test_routes),
        cmocka_unit_test(test_uri),
        WITH_HOUSE(test_usage_status_metrics),
        WITH_HOUSE(test_a_debtor_is_named),
        WITH_HOUSE(test_metrics_are_bounded),
        WITH_HOUSE(test_the_limit_of_a_fleet),
        WITH_HOUSE(test_locked),
        WITH_HOUSE(test_no_edit_is_served_by_half),
        WITH_HOUSE(test_gone_and_back),
        WITH_HOUSE(test_not_ready_at_the_start),
        cmocka_unit_test(test_missing_store),
        WITH_HOUSE(test_two_roots),
        WITH_HOUSE(test_two_roots_at_once),
        WITH_HOUSE(test_many_edits_wait_and_all_are_answered),
        cmocka_unit_test(test_changes_own_their_texts),
    };
    return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
