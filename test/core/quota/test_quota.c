/* SPDX-License-Identifier: MIT
 * test/core/quota/test_quota.c - the fields of a quota, and which values are
 * refused. */

#include "compare.h"

#include <stdio.h>
#include <string.h>

#include "core/quota/quota_bucket.h"
#include "core/quota/quota_text.h"
#include "quota_by_text.h"
#include "quota_maker.h"

static void names(void **state)
{
    (void)state;
    accept("name=a");
    accept("name=\xE2\x82\xAC/\xF0\x9F\x98\x80");
    refuse("limit=1/s", WEIR_ENAME, "the name is empty");
    refuse("name=a\tb", WEIR_ENAME, "control character at byte 2");
    refuse("name=a\x7F", WEIR_ENAME, "control character");
    refuse("name=\xC2\x85", WEIR_ENAME, "control character");
    refuse("name=a\xFFz", WEIR_ENAME, "isn't UTF-8 at byte 2");
    refuse("name=\xC0\xAF", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xED\xA0\x80", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xF4\x90\x80\x80", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xE2\x82", WEIR_ENAME, "isn't UTF-8");
    refuse("name=a{1}", WEIR_ENAME, "brace");
    refuse("name=**********", WEIR_ENAME, "more than 9");
    struct weir_text nul = { "a\0b", 3 };
    struct weir_diag diag;
    assert_int_equal(weir_name_check(nul, &diag), WEIR_ENAME);
    assert_non_null(strstr(diag.text, "holds a NUL at byte 2"));
    char name[257];
    memset(name, 'x', sizeof(name));
    assert_int_equal(weir_name_check((struct weir_text){ name, 255 }, NULL), 0);
    assert_int_equal(weir_name_check((struct weir_text){ name, 256 }, &diag),
                     WEIR_ENAME);
    assert_non_null(strstr(diag.text, "too long"));
}

static void parents(void **state)
{
    (void)state;
    accept("name=a;parent=b");
    accept("name=s3_*_put;parent=s3_{1}");
    accept("name=s3_*;parent=s3");
    refuse("name=a;parent=b{1}", WEIR_ENAME, "of a template only");
    refuse("name=a;parent=b*", WEIR_ENAME, "holds a '*'");
    refuse("name=a*;parent=b*", WEIR_ENAME, "write {1}");
    refuse("name=a*;parent=b{2}", WEIR_ENAME, "no '*' for");
    refuse("name=a*;parent=b{0}", WEIR_ENAME, "isn't part of");
    refuse("name=a*;parent=b{1", WEIR_ENAME, "isn't part of");
    refuse("name=a*;parent=b}", WEIR_ENAME, "isn't part of");
    refuse("name=a*b*;parent=a{1}b{2}", WEIR_ECYCLE, "itself");
    refuse("name=a;overflow=b", WEIR_EQUOTA, "no template");
    refuse("name=a*;overflow=b*", WEIR_ENAME, "name one quota");
    accept("name=a*;overflow=b");
}

static void globs_of_paths(void **state)
{
    (void)state;
    accept("name=db/[a-c]?\\*;glob=path;parent=db;overflow=rest");
    accept("name=plain;glob=path;parent=p");
    accept("name=**********;glob=path");
    accept("name=[;parent=p?");
    static const char *const broken[] = { "[", "[]", "a\\", "[a-", "[z-]" };
    for (size_t i = 0; i < WEIR_COUNT_OF(broken); i++) {
        char text[64];
        snprintf(text, sizeof(text), "name=%s;glob=path", broken[i]);
        refuse(text, WEIR_ENAME, "has a syntax error in its pattern");
    }
    refuse("name=db/*;glob=path;parent=x{1}", WEIR_ENAME,
           "uses a capture, and a template with glob=path has none; name one "
           "quota, or use glob=name");
    refuse("name=db/?;glob=path;parent=x*", WEIR_ENAME, "name one quota");
    refuse("name=a;glob=path;parent=x{1}", WEIR_ENAME, "of a template only");
    refuse("name=a;glob=path;overflow=b", WEIR_EQUOTA, "no template");
    refuse("name=a;glob=regex", WEIR_EQUOTA, "it is one of name, path");
    struct weir_quota quota;
    static const char *const names[] = { "a*", "a?", "[a]", "a\\b", "a]" };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++) {
        weir_quota_init(&quota);
        quota.name = weir_text_of(names[i]);
        assert_int_equal(weir_quota_is_template(&quota), i == 0);
        quota.glob = WEIR_GLOB_PATH;
        assert_int_equal(weir_quota_is_template(&quota), i < 4);
    }
    quota.glob = (enum weir_glob)3;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
}

/* Units in flight; the fields may come in any order. */
static void what_is_in_flight(void **state)
{
    (void)state;
    accept("name=a;sharing=local;kind=concurrency;limit=40");
    accept("name=a;sharing=local;limit=16Ki;kind=concurrency");
    accept("name=a;sharing=local;kind=concurrency;limit=0");
    accept("name=a;sharing=local;kind=concurrency");
    accept("name=a;sharing=local;kind=concurrency;limit=unlimited");
    refuse("name=a;sharing=local;kind=concurrency;limit=40/s", WEIR_EQUOTA,
           "has no period; write limit=40");
    refuse("name=a;limit=40", WEIR_EQUOTA,
           "the limit 40 has no period; write it as 40/s or 40/min, or write "
           "kind=concurrency for 40 at a time");
    refuse("name=a;sharing=local;kind=concurrency;limit=4;high_burst=9",
           WEIR_EQUOTA, "high_burst goes with kind=rate only");
    refuse("name=a;sharing=local;kind=concurrency;limit=4;"
           "algorithm=token_bucket",
           WEIR_EQUOTA, "leave algorithm out");
    accept("name=a;kind=concurrency;limit=4;on_stale=share");
    refuse("name=a;kind=concurrency;limit=4;on_stale=hold", WEIR_EQUOTA,
           "use share, pass or limit");
    struct weir_quota quota;
    char text[64];
    build("name=a;sharing=local;kind=concurrency;limit=16Ki", &quota, NULL);
    text[weir_quota_get(&quota, "limit", text, sizeof(text) - 1)] = '\0';
    assert_string_equal(text, "16384");
    assert_int_equal(weir_quota_get(&quota, "high_burst", text, 64), 0);
    quota.limit.units = WEIR_BURST_MAX + 1;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
}

static void combinations(void **state)
{
    (void)state;
    accept("name=a;sharing=local");
    accept("name=a;sharing=counted;kind=rate;algorithm=leaky");
    accept("name=a;sharing=leased;limit=1/s");
    accept("name=a;sharing=exact");
    refuse("name=a;sharing=adaptive", WEIR_EQUOTA, "kind=concurrency only");
    accept("name=a;kind=concurrency");
    accept("name=a;kind=concurrency;sharing=exact;limit=4;permit_timeout=5s;"
           "store=redis://localhost:6379;deadline=1s;on_stale=share");
    refuse("name=a;kind=concurrency;sharing=exact;algorithm=sliding_log",
           WEIR_EQUOTA, "leave algorithm out");
    refuse("name=a;kind=concurrency;sharing=exact;permit_timeout=1ms",
           WEIR_EQUOTA, "write it as permit_timeout=60s");
    refuse("name=a;kind=concurrency;sharing=exact;on_stale=hold", WEIR_EQUOTA,
           "use share, pass or limit");
    refuse("name=a;algorithm=magic", WEIR_EQUOTA,
           "algorithm can't be 'magic'; it is one of leaky, leaky_queue, "
           "token_bucket, token_buckets, fixed_window, sliding_log, "
           "sliding_window");
    refuse("name=a;mode=loud", WEIR_EQUOTA, "enforce, shadow, off");
    struct weir_quota quota;
    build("name=a", &quota, NULL);
    quota.sharing = (enum weir_sharing)99;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    build("name=a", &quota, NULL);
    quota.algorithm = (enum weir_algorithm)0;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota.algorithm = (enum weir_algorithm)(WEIR_SLIDING_WINDOW + 1);
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    build("name=a;sharing=local;algorithm=fixed_window", &quota, NULL);
    quota.window = (struct weir_window){ .calendar = (enum weir_calendar)(
                                             WEIR_CALENDAR_MONTH + 1) };
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
}

#define EXACT "sharing=exact;store=redis://s:6379"

/* Each sharing with each algorithm: allowed, or the reason why not. */
static void algorithms_and_sharings(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "algorithm=leaky",         "algorithm=leaky_queue",
        "algorithm=token_bucket",  "algorithm=token_buckets;next_buckets=1/s:5",
        "algorithm=fixed_window",  "algorithm=sliding_log",
        "algorithm=sliding_window"
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rules); i++) {
        char text[160];
        snprintf(text, sizeof(text), "name=a;limit=9/s;%s;sharing=local",
                 rules[i]);
        accept(text);
        snprintf(text, sizeof(text), "name=a;limit=9/s;%s;" EXACT, rules[i]);
        accept(text);
        snprintf(text, sizeof(text), "name=a;limit=9/s;%s", rules[i]);
        if (i == 0 || i == 2)
            accept(text);
        else
            refuse(text, WEIR_EQUOTA, "t be counted");
        snprintf(text, sizeof(text), "name=a;limit=9/s;%s;sharing=leased",
                 rules[i]);
        if (i == 0 || i == 2)
            accept(text);
        else
            refuse(text, WEIR_EQUOTA, "a lease is a rate");
    }
    refuse("name=a;algorithm=leaky_queue", WEIR_EQUOTA,
           "use sharing=exact or local, or algorithm=leaky");
    refuse("name=a;algorithm=token_buckets", WEIR_EQUOTA,
           "or algorithm=token_bucket");
    refuse("name=a;algorithm=sliding_log", WEIR_EQUOTA,
           "windows and logs can't be counted; use sharing=exact or local");
}

/* A field without meaning is refused by name, with the fields it goes with. */
static void fields_go_with_algorithms(void **state)
{
    (void)state;
    static const struct {
        const char *quota;
        const char *sentence;
    } wrong[] = {
        { "algorithm=token_bucket;low_burst=1",
          "low_burst goes with algorithm=leaky that is local, counted or "
          "leased only; leave it out, as by algorithm=token_bucket "
          "low_burst=" },
        { EXACT ";low_burst=1", "low_burst goes with algorithm=leaky that" },
        { "algorithm=fixed_window;sharing=local;high_burst=5",
          "high_burst goes with the algorithms leaky, leaky_queue, "
          "token_bucket and token_buckets only" },
        { "window=1s", "window goes with the algorithms fixed_window, "
                       "sliding_log and sliding_window only" },
        { "algorithm=token_bucket;window=day", "window goes with" },
        { "tz=+01:00", "tz goes with algorithm=fixed_window and a window of "
                       "minute, hour, day, week or month only" },
        { "algorithm=fixed_window;sharing=local;window=1h;tz=+01:00",
          "tz goes with" },
        { "algorithm=fixed_window;sharing=local;sub_windows=5",
          "sub_windows goes with algorithm=sliding_window only" },
        { "algorithm=sliding_window;sharing=local;max_entries=5",
          "max_entries goes with algorithm=sliding_log only" },
        { "algorithm=leaky_queue;sharing=local;count_limited=yes",
          "count_limited goes with the algorithms fixed_window" },
        { "algorithm=token_bucket;initial=7",
          "initial goes with algorithm=token_bucket that is local or exact "
          "only" },
        { "sharing=local;initial=7", "initial goes with" },
        { "algorithm=token_bucket;next_buckets=1/s:1",
          "next_buckets goes with algorithm=token_buckets only" },
        { "store=redis://s:6379", "store goes with sharing=exact only" },
        { "sharing=local;deadline=5ms", "deadline goes with sharing=exact" },
        { "sharing=counted;refresh=1s;lease=5s;priority=-1",
          "lease goes with sharing=leased only; leave it out, as by "
          "sharing=counted lease= refresh= priority=" },
        { "sharing=leased;store=redis://s:6379;deadline=1s",
          "as by sharing=leased store= deadline=" },
        { "sharing=leased;permit_timeout=5s",
          "permit_timeout goes with kind=concurrency that is leased, exact "
          "or adaptive only; leave it out, as by kind=rate permit_timeout=" },
        { "algorithm=fixed_window;sharing=local;window=1h;tz=+01:00",
          "as by window=1h tz=" },
        { "queue=lifo", "queue goes with kind=concurrency that isn't exact" },
        { "sharing=local;max_debt=5s",
          "max_debt goes with sharing=counted and kind=rate only; leave it "
          "out, as by sharing=local max_debt=" },
        { "max_debt=10ms", "write it as max_debt=60s" },
        { "max_debt=367d", "max_debt may be 1 s to 366 d" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[200];
        snprintf(text, sizeof(text), "name=a;limit=9/s;%s", wrong[i].quota);
        refuse(text, WEIR_EQUOTA, wrong[i].sentence);
    }
    /* given at its default is no error */
    accept("name=a;tz=UTC;store=root;deadline=20ms;sub_windows=4;"
           "count_limited=no;share_algorithm=fair_share;lease=60s;"
           "safe_capacity=dynamic;priority=0;decay_factor=1.0;"
           "permit_timeout=1min;max_debt=1min");
    accept("name=a;limit=9/s;max_debt=366d");
    struct weir_quota quota;
    build("name=a", &quota, NULL);
    assert_true(weir_quota_applies(&quota, "low_burst"));
    assert_false(weir_quota_applies(&quota, "window"));
    assert_false(weir_quota_applies(&quota, "no such field"));
}

#define LOCAL "name=a;sharing=local;limit=9/s;algorithm="

static void windows(void **state)
{
    (void)state;
    accept(LOCAL "fixed_window;window=month;limit=1000/month");
    accept(LOCAL "fixed_window;window=day;tz=+03:00");
    accept(LOCAL "fixed_window;window=week;tz=-09:30");
    accept(LOCAL "fixed_window;window=hour;tz=America/Argentina/Ushuaia");
    accept(LOCAL "fixed_window;window=minute;tz=Etc/GMT+5");
    accept(LOCAL "sliding_window;window=366d;sub_windows=60");
    accept(LOCAL "sliding_log;window=1ms;limit=9000/s;count_limited=yes");
    refuse(LOCAL "fixed_window;window=0", WEIR_EQUOTA, "has no unit");
    refuse(LOCAL "fixed_window;window=0s", WEIR_EQUOTA,
           "the window 0s can't be; write one of 1 ms to 366 days");
    refuse(LOCAL "sliding_log;window=367d", WEIR_EQUOTA, "to 366 days");
    refuse(LOCAL "sliding_window;window=900us", WEIR_EQUOTA, "can't be");
    refuse(LOCAL "sliding_window;limit=5/us", WEIR_EQUOTA,
           "the limit's period 1us is no window");
    refuse(LOCAL "fixed_window;window=year", WEIR_EQUOTA, "");
    refuse(LOCAL "sliding_window;window=month", WEIR_EQUOTA,
           "write a duration as window=30d, or algorithm=fixed_window");
    refuse(LOCAL "sliding_log;window=day", WEIR_EQUOTA, "a window that");
    refuse(LOCAL "fixed_window;limit=1/day;window=hour", WEIR_EQUOTA,
           "at 1/day less than one unit passes in a window of hour; write a "
           "window of 1d or more, or a higher limit");
    refuse(LOCAL "sliding_log;limit=2/3s;window=1.499s", WEIR_EQUOTA,
           "a window of 1.5s or more");
    accept(LOCAL "sliding_log;limit=2/3s;window=1.5s");
    accept(LOCAL "sliding_log;limit=0;window=1ms");
    refuse(LOCAL "sliding_window;sub_windows=61", WEIR_EQUOTA, "1 to 60");
    refuse(LOCAL "sliding_window;sub_windows=0", WEIR_EQUOTA, "from 1 to");
    refuse(LOCAL "sliding_log;max_entries=0", WEIR_EQUOTA, "from 1 to");
    refuse(LOCAL "sliding_log;max_entries=4097", WEIR_EQUOTA, "1 to 4096");
    refuse(LOCAL "sliding_log;limit=1025/s", WEIR_EQUOTA,
           "1025 units pass in its window; say how many takes it shall "
           "remember, at most max_entries=4096");
    accept(LOCAL "sliding_log;limit=1024/s");
    accept(LOCAL "sliding_log;limit=1025/s;max_entries=4096");
    accept(LOCAL "sliding_log;limit=unlimited");
    refuse(LOCAL "sliding_log;count_limited=maybe", WEIR_EQUOTA,
           "count_limited can't be 'maybe'; it is yes or no");
}

static void zones(void **state)
{
    (void)state;
    static const char *const wrong[] = { "+3:00",          "+14:01",
                                         "-15:00",         "+03:60",
                                         "+03-00",         "+0300",
                                         "/UTC",           "Europe/",
                                         "Europe//Berlin", "../etc/passwd",
                                         "Europe/../x",    "a b",
                                         "+aa:00",         "1" };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[120];
        snprintf(text, sizeof(text), LOCAL "fixed_window;window=day;tz=%s",
                 wrong[i]);
        refuse(text, WEIR_EQUOTA, "write UTC, an offset");
    }
    int32_t offset = 5;
    assert_true(weir_tz_fixed(WEIR_TEXT("-09:30"), &offset));
    assert_int_equal(offset, -34200);
    assert_true(weir_tz_fixed(WEIR_TEXT("+14:00"), &offset));
    assert_int_equal(offset, 50400);
    assert_false(weir_tz_fixed(WEIR_TEXT("Asia/Tokyo"), &offset));
    assert_int_equal(offset, 50400);
    assert_true(weir_tz_fixed(WEIR_TEXT("UTC"), &offset));
    assert_int_equal(offset, 0);
}

static void further_buckets(void **state)
{
    (void)state;
    accept(LOCAL "token_buckets;next_buckets=20/s:200, spill:500");
    accept(LOCAL "token_buckets;next_buckets= 1/day : 1Ki ,spill:1,5/s:5");
    refuse(LOCAL "token_buckets", WEIR_EQUOTA, "needs further buckets");
    static const struct {
        const char *buckets;
        const char *sentence;
    } wrong[] = {
        { "20/s", "write LIMIT:BURST" },
        { ",", "write LIMIT:BURST" },
        { "20/s:200,", "write LIMIT:BURST" },
        { "20/s:200,,spill:5", "write LIMIT:BURST" },
        { "20:200", "has no period" },
        { "20/s:0", "may be 1 to 2^50" },
        { "20/s:2s", "no factor" },
        { "spill:", "is empty" },
        { "spill:2000T", "may be 1 to 2^50" },
        { "0:5", "has a limit above 0" },
        { "unlimited:5", "has a limit above 0" },
        { "1/s:1,1/s:1,1/s:1,1/s:1", "may be 3 at most" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[160];
        snprintf(text, sizeof(text), LOCAL "token_buckets;next_buckets=%s",
                 wrong[i].buckets);
        refuse(text, WEIR_EQUOTA, wrong[i].sentence);
    }
}

static void shared_stores(void **state)
{
    (void)state;
    static const char *const right[] = {
        "redis://s:6379",         "redis://10.0.0.1:1/15",
        "rediss://a-b_c.d:65535", "redis://[::1]:6379/0",
        "memcached://s:11211",    "memcached://s:11211,[fe80::1%eth0]:2,t:3"
    };
    /* clang-format off */
    static const char *const wrong[] = {
        "redis", "redis://", "redis://s", "redis://s:", "redis://s:0",
        "redis://s:65536", "redis://:6379", "redis://s:6379/x",
        "redis://s:6379/", "redis://s:1,t:2", "memcached://s:1/0",
        "memcached://s:1,", "memcached://,s:1", "http://s:1", "Redis://s:1",
        "redis://[::1:6379", "redis://s s:1", "redis://s:1?x=y",
        "redis://[]:1"
    };
    /* clang-format on */
    char text[160];
    for (size_t i = 0; i < WEIR_COUNT_OF(right); i++) {
        snprintf(text, sizeof(text), "name=a;sharing=exact;store=%s", right[i]);
        accept(text);
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        snprintf(text, sizeof(text), "name=a;sharing=exact;store=%s", wrong[i]);
        refuse(text, WEIR_EQUOTA, "write root, redis://HOST:PORT");
    }
    refuse("name=a;sharing=exact;store=redis://me:secret@s:1", WEIR_EQUOTA,
           "no place for a store's password");
    refuse("name=a;" EXACT ";on_stale=hold", WEIR_EQUOTA, "use share");
    accept("name=a;" EXACT ";on_stale=share;deadline=100us");
    refuse("name=a;" EXACT ";deadline=99us", WEIR_EQUOTA, "deadline may be");
    refuse("name=a;" EXACT ";deadline=61s", WEIR_EQUOTA, "deadline may be");
}

#define LEASED "name=a;limit=100/s;sharing=leased"

static void leases(void **state)
{
    (void)state;
    accept(LEASED ";share_algorithm=proportional_share;safe_capacity=2.5/s;"
                  "lease=24h;refresh=100ms;learning=0s;priority=-7;"
                  "decay_factor=0.000000001;low_burst=1s;high_burst=2s");
    accept(LEASED ";lease=1s;refresh=1s;learning=24h;limit=0");
    accept(LEASED ";limit=unlimited;share_algorithm=none");
    accept(LEASED ";safe_capacity=0;on_stale=hold");
    accept("name=a;kind=concurrency;limit=4;sharing=leased;lease=5s;"
           "permit_timeout=1s;on_stale=share;share_algorithm=priority");
    refuse("name=a;kind=concurrency;limit=4;sharing=leased;on_stale=hold",
           WEIR_EQUOTA, "use share, pass or limit");
    refuse("name=a;kind=concurrency;sharing=leased;share_algorithm=none",
           WEIR_EQUOTA, "or sharing=counted");
    refuse("name=a;kind=concurrency;limit=4;sharing=leased;safe_capacity=1/s",
           WEIR_EQUOTA, "leave it out");
    static const struct {
        const char *fields;
        const char *sentence;
    } wrong[] = {
        { "limit=unlimited", "write a limit as limit=100/s, or "
                             "share_algorithm=none" },
        { "share_algorithm=fair", "it is one of none, static, "
                                  "proportional_share, fair_share, priority" },
        { "safe_capacity=unlimited", "write on_stale=pass" },
        { "on_stale=open", "it is one of pass, limit, share, hold" },
        { "on_stale=closed", "it is one of pass, limit, share, hold" },
        { "safe_capacity=-1/s", "is negative" },
        { "safe_capacity=nan", "is not a number" },
        { "safe_capacity=5", "has no period" },
        { "safe_capacity=101G/s", "above 100G/s" },
        { "lease=999ms", "lease may be 1 s to 24 h" },
        { "lease=24.1h", "lease may be 1 s to 24 h" },
        { "refresh=99ms", "refresh may be 100 ms up to the lease" },
        { "refresh=61s", "the lease, which is 1min" },
        { "lease=5s;refresh=5.001s", "the lease, which is 5s" },
        { "learning=25h", "learning may be 0s to 24 h" },
        { "priority=1.5", "it is a whole number from -2^63" },
        { "priority=9223372036854775808", "to 2^63 - 1" },
        { "priority=--1", "a whole number" },
        { "priority=-", "a whole number" },
        { "decay_factor=0", "is no factor above 0 and at most 1" },
        { "decay_factor=1.1", "is no factor above 0 and at most 1" },
        { "decay_factor=0.5x", "is no factor above 0 and at most 1" },
        { "decay_factor=-0.5", "is negative" },
        { "decay_factor=0.1234567891", "more than 9 decimals" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[200];
        snprintf(text, sizeof(text), LEASED ";%s", wrong[i].fields);
        refuse(text, WEIR_EQUOTA, wrong[i].sentence);
    }
}

/* Values that no text can express are refused, too: quotas also come by
 * wire. */
static void leases_that_nobody_wrote(void **state)
{
    (void)state;
    struct weir_quota quota;
    struct weir_quota sound;
    assert_int_equal(build(LEASED, &sound, NULL), 0);
    quota = sound;
    quota.share_algorithm = (enum weir_share_algorithm)6;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota = sound;
    quota.decay_factor = 0;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota.decay_factor = WEIR_DECAY_ONE + 1;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota = sound;
    quota.safe_capacity = (struct weir_limit){ UINT64_MAX, 1, false };
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota.safe_capacity = (struct weir_limit){ 0, UINT64_MAX, false };
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    quota = sound;
    quota.permit_timeout = 0;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
}

static void check_refresh(const char *fields, unsigned level,
                          weir_duration wanted)
{
    char text[120];
    struct weir_quota quota;
    snprintf(text, sizeof(text), LEASED ";%s", fields);
    assert_int_equal(build(text, &quota, NULL), 0);
    assert_int_equal(weir_quota_refresh(&quota, level), wanted);
}

static void refreshes_follow_from_leases_and_levels(void **state)
{
    (void)state;
    check_refresh("lease=60s", 0, 15 * WEIR_SECOND);
    check_refresh("lease=20s", 0, 5 * WEIR_SECOND);
    check_refresh("lease=1s", 0, 250 * WEIR_MILLISECOND);
    check_refresh("lease=24h", 0, 15 * WEIR_SECOND);
    check_refresh("lease=24h", 9, 15 * WEIR_SECOND);
    check_refresh("refresh=8s;decay_factor=0.5", 0, 8 * WEIR_SECOND);
    check_refresh("refresh=8s;decay_factor=0.5", 2, 2 * WEIR_SECOND);
    check_refresh("refresh=8s;decay_factor=0.5", 6, 125 * WEIR_MILLISECOND);
    check_refresh("refresh=8s;decay_factor=0.5", 7, WEIR_REFRESH_MIN);
    check_refresh("refresh=8s;decay_factor=0.5", UINT32_MAX, WEIR_REFRESH_MIN);
    struct weir_quota quota;
    assert_int_equal(build(LEASED ";lease=7s", &quota, NULL), 0);
    assert_int_equal(weir_quota_learning(&quota), 7 * WEIR_SECOND);
    assert_compare(weir_quota_safe(&quota), <, 0);
    assert_int_equal(
        build(LEASED ";learning=0s;safe_capacity=5/2s", &quota, NULL), 0);
    assert_int_equal(weir_quota_learning(&quota), 0);
    assert_true(weir_quota_safe(&quota) == 2.5);
}

/* A field's text as views show it. */
static void check_shown(const char *text, const char *field, const char *wanted)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
    char value[WEIR_FIELD_VALUE_MAX + 1];
    value[weir_quota_get(&quota, field, value, sizeof(value) - 1)] = '\0';
    assert_string_equal(value, wanted);
}

static void what_is_unset_is_shown_as_in_force(void **state)
{
    (void)state;
    check_shown(LOCAL "fixed_window", "window", "1s");
    check_shown(LOCAL "fixed_window;limit=1000/month", "window", "30d");
    check_shown(LOCAL "fixed_window;window=month", "window", "month");
    check_shown(LOCAL "fixed_window;window=month", "tz", "UTC");
    check_shown(LOCAL "fixed_window;window=60s", "window", "1min");
    check_shown(LOCAL "sliding_window", "sub_windows", "4");
    check_shown(LOCAL "sliding_log;window=1min", "max_entries", "540");
    check_shown(LOCAL "sliding_log;limit=unlimited", "max_entries", "1024");
    check_shown(LOCAL "sliding_log;limit=0", "max_entries", "1");
    check_shown(LOCAL "sliding_log", "count_limited", "no");
    check_shown(LOCAL "sliding_log;count_limited=true", "count_limited", "yes");
    check_shown(LOCAL "token_bucket;high_burst=5", "initial", "5");
    check_shown(LOCAL "token_bucket;high_burst=5;initial=9", "initial", "9");
    check_shown("name=a;" EXACT, "deadline", "20ms");
    check_shown(LEASED ";lease=20s", "refresh", "5s");
    check_shown(LEASED ";lease=20s", "learning", "20s");
    check_shown(LEASED ";learning=0s", "learning", "0s");
    check_shown(LEASED, "lease", "1min");
    check_shown(LEASED, "safe_capacity", "dynamic");
    check_shown(LEASED ";safe_capacity=0.1/s", "safe_capacity", "1/10s");
    check_shown(LEASED, "share_algorithm", "fair_share");
    check_shown(LEASED, "priority", "0");
    check_shown(LEASED ";priority=-12", "priority", "-12");
    check_shown(LEASED, "decay_factor", "1");
    check_shown(LEASED ";decay_factor=.250", "decay_factor", "0.25");
    check_shown(LEASED ";decay_factor=0.05", "decay_factor", "0.05");
    /* a field that doesn't apply isn't shown */
    check_shown(LOCAL "fixed_window", "tz", "");
    check_shown(LOCAL "fixed_window", "high_burst", "");
    check_shown(LOCAL "token_bucket", "low_burst", "");
    check_shown("name=a", "window", "");
    check_shown("name=a", "store", "");
    check_shown("name=a", "lease", "");
}

/* The bucket state's rule of a quota, in numbers. */
static struct weir_algorithm_rule rule_of(const char *text)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
    struct weir_algorithm_rule rule;
    weir_quota_algorithm_rule(&quota, -3600, &rule);
    assert_true(weir_algorithm_check(&rule));
    return rule;
}

static void bucket_states_of_windows(void **state)
{
    (void)state;
    struct weir_algorithm_rule rule =
        rule_of(LOCAL "fixed_window;limit=1000/month;window=month;tz=-01:00");
    assert_int_equal(rule.algorithm, WEIR_FIXED_WINDOW);
    assert_int_equal(rule.calendar, WEIR_CALENDAR_MONTH);
    assert_int_equal(rule.quantity, 1000);
    assert_int_equal(rule.utc_offset_s, -3600);
    assert_false(rule.count_limited);
    rule = rule_of(LOCAL "sliding_window;limit=7/2s;window=1s;sub_windows=9;"
                         "count_limited=yes");
    assert_int_equal(rule.quantity, 3);
    assert_int_equal(rule.window, WEIR_SECOND);
    assert_int_equal(rule.sub_windows, 9);
    assert_true(rule.count_limited);
    rule = rule_of(LOCAL "sliding_log;limit=100/min");
    assert_int_equal(rule.quantity, 100);
    assert_int_equal(rule.entries, 100);
    assert_int_equal(rule.window, 60 * WEIR_SECOND);
    /* the largest values don't overflow */
    rule = rule_of(LOCAL "fixed_window;limit=100G/s;window=200d");
    assert_int_equal(rule.quantity, 100000000000ull * 200 * 86400);
    rule = rule_of(LOCAL "fixed_window;limit=100G/s;window=366d");
    assert_int_equal(rule.quantity, WEIR_ALGORITHM_QUANTITY_MAX);
}

static void bucket_states_of_buckets(void **state)
{
    (void)state;
    struct weir_algorithm_rule rule = rule_of("name=a;limit=100/s");
    assert_int_equal(rule.algorithm, WEIR_LEAKY);
    assert_int_equal(rule.bucket[0].bucket.high,
                     (int64_t)150 << rule.bucket[0].bucket.leak.frac);
    rule = rule_of(LOCAL "token_bucket;limit=100/s;high_burst=5;initial=2s");
    assert_int_equal(rule.algorithm, WEIR_TOKEN_BUCKET);
    assert_int_equal(rule.initial, 200);
    rule = rule_of(LOCAL "token_bucket");
    assert_int_equal(rule.initial, -1);
    /* the largest of every value is still a rule */
    rule = rule_of(LOCAL "token_bucket;limit=100G/s;high_burst=1;"
                         "initial=366d");
    assert_int_equal(rule.initial, WEIR_BURST_MAX);
    rule_of(LOCAL "leaky_queue;limit=1/366d;high_burst=366d");
    rule_of(LOCAL "token_buckets;limit=1/366d;high_burst=1;"
                  "next_buckets=100G/s:1024T,spill:1,spill:1000T");
    rule = rule_of(LOCAL "token_buckets;limit=10/s;high_burst=3;"
                         "next_buckets=20/s:40,spill:500");
    assert_int_equal(rule.buckets, 3);
    assert_false(rule.bucket[1].spill);
    assert_int_equal(rule.bucket[1].bucket.high,
                     (int64_t)40 << rule.bucket[1].bucket.leak.frac);
    assert_true(rule.bucket[2].spill);
    assert_int_equal(rule.bucket[2].bucket.leak.part, 0);
    assert_int_equal(rule.bucket[2].bucket.high,
                     (int64_t)500 << rule.bucket[2].bucket.leak.frac);
    /* nothing to decide: no state is needed */
    rule = rule_of(LOCAL "sliding_log;limit=0");
    assert_int_equal(rule.algorithm, WEIR_LEAKY);
    assert_compare(rule.bucket[0].bucket.high, <, 0);
    rule = rule_of(LOCAL "token_bucket;limit=unlimited");
    assert_int_equal(rule.algorithm, WEIR_LEAKY);
    assert_int_equal(rule.bucket[0].bucket.high, WEIR_SCALED_MAX);
}

static void unknown_fields_name_the_nearest(void **state)
{
    (void)state;
    refuse("limt=1/s", WEIR_ENOENT, "did you mean 'limit'");
    refuse("hig_burst=1", WEIR_ENOENT, "did you mean 'high_burst'");
    refuse("a_field_with_a_name_far_longer_than_any=1", WEIR_ENOENT, "did");
    refuse("id=1", WEIR_EQUOTA, "the store's to set");
    refuse("name=a*;order=-1", WEIR_EQUOTA, "whole number");
    refuse("name=a*;order=4294967296", WEIR_EQUOTA, "whole number");
}

static void check_bursts(const char *text, uint64_t low, uint64_t high)
{
    struct weir_quota quota;
    struct weir_diag diag;
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
    uint64_t got_low;
    uint64_t got_high;
    weir_quota_bursts(&quota, &got_low, &got_high);
    if (got_low != low || got_high != high)
        fail_msg("'%s' gave %llu and %llu", text, (unsigned long long)got_low,
                 (unsigned long long)got_high);
}

static void bursts_in_units(void **state)
{
    (void)state;
    check_bursts("name=a;limit=100/s", 100, 150);
    check_bursts("name=a;limit=1/day", 1, 1);
    check_bursts("name=a;limit=3/2s", 2, 3);
    check_bursts("name=a;limit=1/s", 1, 2);
    check_bursts("name=a;limit=0", 0, 1);
    check_bursts("name=a;limit=100G/s;low_burst=366d;high_burst=366d",
                 WEIR_BURST_MAX, WEIR_BURST_MAX);
    check_bursts("name=a;limit=100/s;low_burst=0", 0, 150);
    check_bursts("name=a;limit=100/s;low_burst=0;high_burst=0", 0, 1);
    /* only one of them is never an error */
    check_bursts("name=a;limit=100/s;high_burst=500ms", 50, 50);
    check_bursts("name=a;limit=100/s;high_burst=10", 10, 10);
    check_bursts("name=a;limit=100/s;high_burst=120", 100, 120);
    check_bursts("name=a;limit=100/s;low_burst=5s", 500, 500);
    check_bursts("name=a;limit=100/s;low_burst=140", 140, 150);
    check_bursts("name=a;limit=100/s;low_burst=1000", 1000, 1000);
    /* both, mixed */
    check_bursts("name=a;limit=100/s;low_burst=100;high_burst=1s", 100, 100);
    check_bursts("name=a;limit=0;low_burst=100;high_burst=1s", 1, 1);
    refuse("name=a;limit=100/s;low_burst=101;high_burst=1s", WEIR_EQUOTA,
           "low_burst 101 is above high_burst 1s");
    refuse("name=a;limit=100/s;low_burst=2s;high_burst=1s", WEIR_EQUOTA,
           "is above");
    refuse("name=a;limit=0;low_burst=2;high_burst=1", WEIR_EQUOTA, "is above");
}

static void labels_and_descriptions(void **state)
{
    (void)state;
    char buf[WEIR_LABELS_MAX];
    struct weir_text out;
    assert_int_equal(
        weir_labels_parse(WEIR_TEXT("b=2, a=1,,c=x=y "), buf, &out, NULL), 0);
    assert_true(weir_text_equal(out, WEIR_TEXT("a=1\nb=2\nc=x=y")));
    struct weir_diag diag;
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a=1,a=2"), buf, &out, &diag),
                     WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "'a' is given twice"));
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a"), buf, &out, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a b=1"), buf, &out, &diag),
                     WEIR_EQUOTA);
    refuse("name=a;labels=b=1\na=1", WEIR_EQUOTA, "aren't sorted");
    refuse("name=a;labels=a=1\n", WEIR_EQUOTA, "empty line");
    refuse("name=a;labels=a=\x01", WEIR_EQUOTA, "control");
    refuse("name=a;description=\xFF", WEIR_EQUOTA, "isn't UTF-8");
    accept("name=a;description=two\nlines\t.;labels=a=1\nb=");
    char long_text[1100];
    memset(long_text, 'x', sizeof(long_text));
    struct weir_quota quota;
    build("name=a", &quota, NULL);
    quota.description = (struct weir_text){ long_text, 1025 };
    assert_int_equal(weir_quota_check(&quota, &diag), WEIR_EQUOTA);
}

/* Every field of a random quota, read back from its text. */
static void fields_are_read_back(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("fields");
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (unsigned i = 0; i < 5000; i++) {
        static struct made_quota made;
        make_quota(&rng, i, &made);
        struct weir_quota back;
        weir_quota_init(&back);
        static char values[48][WEIR_FIELD_VALUE_MAX];
        assert_compare(count, <=, WEIR_COUNT_OF(values));
        for (size_t f = 0; f < count; f++) {
            size_t len = weir_quota_get(&made.quota, fields[f].name, values[f],
                                        sizeof(values[f]));
            struct weir_text value = { values[f], len };
            bool skip = fields[f].read_only ||
                        weir_quota_is_default(&made.quota, fields[f].name);
            if (!skip)
                assert_int_equal(weir_quota_set(&back,
                                                weir_text_of(fields[f].name),
                                                value, NULL),
                                 0);
        }
        assert_true(weir_quota_equal(&made.quota, &back));
        uint64_t want[2];
        uint64_t got[2];
        if (back.limit.unlimited)
            continue;
        weir_quota_bursts(&made.quota, &want[0], &want[1]);
        weir_quota_bursts(&back, &got[0], &got[1]);
        assert_memory_equal(want, got, sizeof(want));
    }
}

static void an_empty_value_is_the_default(void **state)
{
    (void)state;
    struct weir_quota quota;
    struct weir_quota fresh;
    assert_int_equal(build("name=a;limit=5/s;low_burst=1;mode=off;"
                           "sharing=local;parent=p;limit=;low_burst=;mode=;"
                           "sharing=;parent=",
                           &quota, NULL),
                     0);
    build("name=a", &fresh, NULL);
    assert_true(weir_quota_equal(&quota, &fresh));
}

/* Every byte at every position of an otherwise plain text: words of plain bytes
 * are skipped whole, and no other byte is. */
static void clean_text_ends_where_a_byte_is_not(void **state)
{
    (void)state;
    char text[21] = "a/~ Z0123456789~/ bc";
    for (size_t at = 0; at < 20; at++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            char before = text[at];
            text[at] = (char)byte;
            bool plain = byte >= 0x20 && byte < 0x7F;
            size_t clean = weir_utf8_clean((struct weir_text){ text, 20 }, "");
            assert_int_equal(clean, plain ? 20 : at);
            text[at] = before;
        }
    }
    assert_int_equal(weir_utf8_clean(WEIR_TEXT("12345678\u00e9"), ""), 10);
    assert_int_equal(weir_utf8_clean(WEIR_TEXT("1234567\t\n"), "\t\n"), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(clean_text_ends_where_a_byte_is_not),
        cmocka_unit_test(parents),
        cmocka_unit_test(globs_of_paths),
        cmocka_unit_test(combinations),
        cmocka_unit_test(what_is_in_flight),
        cmocka_unit_test(algorithms_and_sharings),
        cmocka_unit_test(fields_go_with_algorithms),
        cmocka_unit_test(windows),
        cmocka_unit_test(zones),
        cmocka_unit_test(further_buckets),
        cmocka_unit_test(shared_stores),
        cmocka_unit_test(leases),
        cmocka_unit_test(leases_that_nobody_wrote),
        cmocka_unit_test(refreshes_follow_from_leases_and_levels),
        cmocka_unit_test(what_is_unset_is_shown_as_in_force),
        cmocka_unit_test(bucket_states_of_windows),
        cmocka_unit_test(bucket_states_of_buckets),
        cmocka_unit_test(unknown_fields_name_the_nearest),
        cmocka_unit_test(bursts_in_units),
        cmocka_unit_test(labels_and_descriptions),
        cmocka_unit_test(fields_are_read_back),
        cmocka_unit_test(an_empty_value_is_the_default)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
