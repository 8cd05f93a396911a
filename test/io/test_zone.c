/* SPDX-License-Identifier: MIT
 * test/io/test_zone.c - every zone of this machine, compared with the C
 * library. */

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "codec/tzif.h"
#include "compare.h"
#include "core/base/rng.h"
#include "io/zone.h"
#include "seed.h"

#define FOLDER "/usr/share/zoneinfo/"
#define LOOKS 60 /* instants per zone */
#define FROM_1901 (-2177452800ll)
#define TO_2200 7258118400ll

static struct weir_rng rng;
static unsigned zones;

static int32_t library_offset(int64_t at)
{
    time_t when = (time_t)at;
    struct tm local;
    assert_non_null(localtime_r(&when, &local));
    return (int32_t)local.tm_gmtoff;
}

static void check_instant(const char *name, int64_t at)
{
    int32_t offset;
    int64_t until;
    if (weir_zone_at(weir_text_of(name), at, &offset, &until, NULL) < 0)
        fail_msg("%s isn't read", name);
    if (offset != library_offset(at) || until <= at ||
        (until < TO_2200 && offset != library_offset(until - 1)))
        fail_msg("%s at %lld: %d until %lld, the C library says %d", name,
                 (long long)at, offset, (long long)until, library_offset(at));
}

/* At random instants, and around each listed change. */
static void check_zone(const char *name)
{
    setenv("TZ", name, 1);
    tzset();
    for (unsigned i = 0; i < LOOKS; i++) {
        int64_t at =
            FROM_1901 + (int64_t)weir_rng_below(&rng, TO_2200 - FROM_1901);
        int32_t offset;
        int64_t until;
        check_instant(name, at);
        assert_int_equal(
            weir_zone_at(weir_text_of(name), at, &offset, &until, NULL), 0);
        if (until < TO_2200) {
            check_instant(name, until - 1);
            check_instant(name, until);
        }
    }
    zones++;
}

static int visit(const char *path, const struct stat *is, int flag,
                 struct FTW *place)
{
    (void)is;
    (void)place;
    const char *name = path + strlen(FOLDER);
    char magic[4] = "";
    FILE *file = flag == FTW_F ? fopen(path, "rbe") : NULL;
    if (!file)
        return 0;
    bool whole = fread(magic, 1, 4, file) == 4;
    fclose(file);
    /* 'right' has leap seconds; a calendar's windows don't. */
    if (whole && memcmp(magic, "TZif", 4) == 0 &&
        strncmp(name, "right/", 6) != 0)
        check_zone(name);
    return 0;
}

static void zones_are_those_of_the_c_library(void **state)
{
    (void)state;
    if (access(FOLDER "Europe/Berlin", R_OK) != 0) {
        print_message("no tzdata on this machine\n");
        skip();
    }
    assert_int_equal(nftw(FOLDER, visit, 16, 0), 0);
    printf("%u zones, %u instants each\n", zones, LOOKS);
    assert_compare(zones, >, 200);
    unsetenv("TZ");
    tzset();
}

static void a_name_stays_in_its_folder(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "/etc/passwd",
        "../zoneinfo/UTC",
        "Europe/../UTC",
        "Nowhere/City",
        "Europe",
        "zone.tab",
        "Europe/Berlin ",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        int32_t offset = 7;
        int64_t until = 7;
        struct weir_diag diag = { 0 };
        int error =
            weir_zone_at(weir_text_of(wrong[i]), 0, &offset, &until, &diag);
        assert_int_equal(error, WEIR_ENOENT);
        assert_non_null(strstr(diag.text, "knows no time zone"));
        assert_int_equal(offset, 7);
    }
}

/* A small sound file: no transitions, one type, the rule of the footer. */
static size_t make_file(unsigned char *buf, const char *footer)
{
    static const unsigned char header[44] = {
        'T', 'Z', 'i', 'f', '2', [39] = 1, [43] = 4,
    };
    static const unsigned char type[10] = { 0, 0, 0, 0, 0, 0, 'L', 'M', 'T' };
    size_t len = 0;
    for (int i = 0; i < 2; i++) {
        memcpy(buf + len, header, sizeof(header));
        memcpy(buf + len + sizeof(header), type, sizeof(type));
        len += sizeof(header) + sizeof(type);
    }
    return len + (size_t)sprintf((char *)buf + len, "\n%s\n", footer);
}

static int look(const char *footer, int64_t at, struct weir_tzif_span *out)
{
    unsigned char buf[400];
    size_t size = make_file(buf, footer);
    return weir_tzif_at(buf, size, at, out);
}

static void rules_for_ever_after(void **state)
{
    (void)state;
    struct weir_tzif_span span;
    assert_int_equal(look("<+0330>-3:30", 5, &span), 0);
    assert_int_equal(span.offset_s, 12600);
    assert_int_equal(span.until, INT64_MAX);
    /* 2024-03-31 01:00 UTC is when Berlin goes to summer time */
    assert_int_equal(look("CET-1CEST,M3.5.0,M10.5.0/3", 1711846800, &span), 0);
    assert_int_equal(span.from, 1711846800);
    assert_int_equal(span.offset_s, 7200);
    assert_int_equal(span.until, 1729990800);
    /* summer time all year, in the way of RFC 9636 */
    assert_int_equal(look("XXX3EDT4,0/0,J365/23", 1711846800, &span), 0);
    assert_int_equal(span.offset_s, -4 * 3600);
    assert_int_equal(look("", 5, &span), 0);
    assert_int_equal(span.offset_s, 0);
    static const char *const wrong[] = {
        "CET",
        "C-1",
        "CET-1CEST",
        "CET-1CEST,M3.5.0",
        "<CET-1",
        "CET-25",
        "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0",
        "CET-1CEST,M3.5.7,M10.5.0",
        "CET-1CEST,J0,J5",
        "CET-1CEST,366,5",
        "CET-1CEST,M3.5.0/168,M10.5.0",
        "CET-1CEST,M3.5.0,M10.5.0x",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++)
        assert_int_equal(look(wrong[i], 5, &span), WEIR_ESYNTAX);
}

/* Every truncated file is refused, and any bytes give an answer. */
static void broken_files_are_answered(void **state)
{
    (void)state;
    unsigned char whole[400];
    unsigned char *bytes;
    size_t size = make_file(whole, "CET-1CEST,M3.5.0,M10.5.0/3");
    struct weir_tzif_span span;
    for (size_t cut = 0; cut < size; cut++) {
        bytes = malloc(cut + 1);
        memcpy(bytes, whole, cut);
        assert_int_equal(weir_tzif_at(bytes, cut, 5, &span), WEIR_ESYNTAX);
        free(bytes);
    }
    for (unsigned i = 0; i < 200000; i++) {
        bytes = malloc(size);
        memcpy(bytes, whole, size);
        bytes[weir_rng_below(&rng, size)] = (unsigned char)weir_rng_next(&rng);
        bytes[weir_rng_below(&rng, size)] = (unsigned char)weir_rng_next(&rng);
        (void)weir_tzif_at(bytes, size, (int64_t)weir_rng_next(&rng), &span);
        free(bytes);
    }
}

int main(void)
{
    rng = made_seed("zone");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zones_are_those_of_the_c_library),
        cmocka_unit_test(a_name_stays_in_its_folder),
        cmocka_unit_test(rules_for_ever_after),
        cmocka_unit_test(broken_files_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
