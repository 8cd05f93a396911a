/* SPDX-License-Identifier: MIT
 * test_output.c - results of runs as JSON, CSV and figures. */

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lab/model.h"
#include "lab/output.h"

#define SAMPLES 100
#define VARIANTS 6

/* A batch of VARIANTS x one quota, ten seconds of a saw. */
struct world {
    struct weir_batch batch;
    struct weir_scenario scenarios[VARIANTS];
    struct weir_result results[VARIANTS];
    struct weir_scenario *scenario_list[VARIANTS];
    struct weir_result *result_list[VARIANTS];
    struct weir_quota_series series[VARIANTS];
    struct weir_quota_sample samples[VARIANTS][SAMPLES];
    struct weir_fleet_sample fleet[VARIANTS][SAMPLES];
    double measured[VARIANTS][2];
    struct weir_setting settings[VARIANTS][2];
    struct weir_measure measures[2];
    struct weir_figure figures[2];
    struct weir_claim claim;
    struct weir_outcome_line expected;
    bool claims[VARIANTS];
    char folder[64];
};

static char api[] = "api";
static char echo[] = "echo", mean[] = "passed_mean";
static char width[] = "width", load[] = "load";
static char held[] = "passed_mean within 0.98..1.02";
static char claimed[] = "it's flat";
static char over_time[] = "What passes swings about the limit";
static char against[] = "A wider band echoes longer";
static char *widths[] = { "0.1s", "0.5s", "2s" };
static char *loads[] = { "0.9x", "0.5x" };
static char *names[] = { "width=0.1s,load=0.9x", "width=0.5s,load=0.9x",
                         "width=2s,load=0.9x",   "width=0.1s,load=0.5x",
                         "width=0.5s,load=0.5x", "width=2s,load=0.5x" };

static void fill_samples(struct world *world, size_t v)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        double saw = (double)(i % 30) / 15 * (1 - (double)v / VARIANTS);
        world->samples[v][i] =
            (struct weir_quota_sample){ .offered = 300,
                                        .passed = 100 * saw,
                                        .refused = 300 - 100 * saw,
                                        .ideal_passed = 100,
                                        .ideal_refused = 200,
                                        .limit_per_s = 1000,
                                        .low = 1000,
                                        .high = 1500,
                                        .fill_most = 1000 + 400 * saw,
                                        .fill = 1000 + 390 * saw,
                                        .root_fill = 990 + 380 * saw,
                                        .limiter_fill = 980 + 370 * saw,
                                        .divergence = NAN };
        world->fleet[v][i] = (struct weir_fleet_sample){ .reports = 3,
                                                         .messages = 6,
                                                         .bytes = 120,
                                                         .links = 6,
                                                         .limiters = 3,
                                                         .roots = 2 };
    }
}

static void fill_variant(struct world *world, size_t v)
{
    world->settings[v][0] = (struct weir_setting){ width, widths[v % 3] };
    world->settings[v][1] = (struct weir_setting){ load, loads[v / 3] };
    world->scenarios[v] =
        (struct weir_scenario){ .variant = names[v],
                                .settings = world->settings[v],
                                .setting_count = 2,
                                .span = 10 * WEIR_SECOND,
                                .bin = WEIR_SECOND,
                                .measures = world->measures,
                                .measure_count = 2,
                                .figures = world->figures,
                                .figure_count = 2,
                                .claims = &world->claim,
                                .claim_count = 1 };
    world->results[v] = (struct weir_result){ .seed = 7,
                                              .step = WEIR_SECOND / 10,
                                              .sample_count = SAMPLES,
                                              .quotas = &world->series[v],
                                              .quota_count = 1,
                                              .fleet = world->fleet[v],
                                              .measures = world->measured[v],
                                              .claims = &world->claims[v],
                                              .events = 20,
                                              .takes = 10 };
    world->series[v] = (struct weir_quota_series){ api, world->samples[v] };
    world->measured[v][0] = 0.25 * (double)(v + 1);
    world->measured[v][1] = v == 5 ? NAN : 1;
    world->claims[v] = true;
    world->scenario_list[v] = &world->scenarios[v];
    world->result_list[v] = &world->results[v];
    fill_samples(world, v);
}

static int given_results(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world->measures[0] =
        (struct weir_measure){ .name = echo, .metric = WEIR_METRIC_ECHO };
    world->measures[1] =
        (struct weir_measure){ .name = mean,
                               .metric = WEIR_METRIC_PASSED_MEAN };
    world->figures[0] = (struct weir_figure){
        .title = over_time,
        .series_count = 6,
        .series = { WEIR_SERIES_OFFERED, WEIR_SERIES_PASSED, WEIR_SERIES_IDEAL,
                    WEIR_SERIES_LIMIT, WEIR_SERIES_FILL, WEIR_SERIES_ROOT_FILL }
    };
    world->figures[1] = (struct weir_figure){
        .title = against, .measure = echo, .against = width, .by = load
    };
    world->claim.text = claimed;
    world->expected =
        (struct weir_outcome_line){ .held = true, .value = 1, .text = held };
    for (size_t v = 0; v < VARIANTS; v++)
        fill_variant(world, v);
    world->batch = (struct weir_batch){ "saw", 7, world->scenario_list,
                                        world->result_list, VARIANTS };
    strcpy(world->folder, "/tmp/test_output.XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    *state = world;
    return 0;
}

static int remove_folder(void **state)
{
    struct world *world = *state;
    DIR *folder = opendir(world->folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", world->folder, entry->d_name);
        unlink(path);
    }
    closedir(folder);
    rmdir(world->folder);
    free(world);
    return 0;
}

/* The whole file, to be freed; NULL: there is none. */
static char *text_of(const struct world *world, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", world->folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    char *text = NULL;
    size_t size = 0;
    if (getdelim(&text, &size, '\0', file) < 0)
        text[0] = '\0';
    fclose(file);
    return text;
}

static char *json_of(const struct weir_batch *batch)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    weir_output_json(batch, out);
    fclose(out);
    return text;
}

static void test_json_of_one_variant_is_flat(void **state)
{
    struct world *world = *state;
    world->batch.count = 1;
    world->scenarios[0].variant = NULL;
    world->scenarios[0].claim_count = 0;
    world->measured[0][0] = 1.0 / 3;
    char *text = json_of(&world->batch);
    assert_string_equal(text, "{\"scenario\":\"saw\",\"seed\":7,\"metrics\":"
                              "{\"echo\":0.333333,\"passed_mean\":1.0},"
                              "\"events\":20,\"takes\":10}\n");
    free(text);
}

static void test_json_of_variants_has_a_line_each(void **state)
{
    struct world *world = *state;
    char a[] = "a", b[] = "b";
    world->scenarios[4].variant = a;
    world->scenarios[5].variant = b;
    world->batch.scenarios += 4;
    world->batch.results += 4;
    world->batch.count = 2;
    world->claims[5] = false;
    world->results[4].expects = &world->expected;
    world->results[4].expect_count = 1;
    world->results[5].violation = claimed;
    world->results[5].violation_event = 99;
    char *text = json_of(&world->batch);
    /* A measure without a value is null; a claim holds if it does in every
     * variant. */
    assert_string_equal(
        text, "{\"scenario\":\"saw\",\"seed\":7,\"variant\":\"a\","
              "\"metrics\":{\"echo\":1.25,\"passed_mean\":1.0},"
              "\"events\":20,\"takes\":10,"
              "\"expectations\":[{\"text\":\"passed_mean within "
              "0.98..1.02\",\"held\":true,\"value\":1.0}],"
              "\"claims\":[{\"text\":\"it's flat\",\"holds\":false}]}\n"
              "{\"scenario\":\"saw\",\"seed\":7,\"variant\":\"b\","
              "\"metrics\":{\"echo\":1.5,\"passed_mean\":null},"
              "\"events\":20,\"takes\":10,"
              "\"claims\":[{\"text\":\"it's flat\",\"holds\":false}],"
              "\"violations\":[{\"text\":\"it's flat\",\"event\":99}]}\n");
    free(text);
}

static void test_csv_has_a_row_a_sample(void **state)
{
    struct world *world = *state;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_output_csv(&world->batch, world->folder, &diag), 0);
    char *text = text_of(world, "saw-width=0.5s,load=0.9x-7.csv");
    assert_non_null(text);
    assert_non_null(strstr(text, "time_s,reports,messages,bytes,"));
    assert_non_null(strstr(text, ",\"api.offered\",\"api.passed\","));
    assert_non_null(strstr(text, "\n0.1,3,6,120,6,3,2,0,0,300,0,300,100,"));
    size_t rows = 0;
    for (const char *c = text; *c; c++)
        rows += *c == '\n';
    assert_int_equal(rows, SAMPLES + 1);
    /* A value that is unknown is an empty cell. */
    assert_non_null(strstr(text, ",980,\n"));
    free(text);
}

static void test_figures_are_drawn(void **state)
{
    struct world *world = *state;
    struct weir_diag diag = { 0 };
    int error = weir_output_figures(&world->batch, 1, world->folder, &diag);
    char *script = text_of(world, "saw-1.gp");
    char *data = text_of(world, "saw-1.dat");
    char *curves = text_of(world, "saw-2.dat");
    assert_non_null(script);
    assert_non_null(strstr(script, "'What passes swings about the limit'"));
    assert_non_null(strstr(script, "'saw, seed 7'"));
    /* Rates by bins of a second: samples 0 to 9 of the first saw. */
    assert_non_null(strstr(data, "\n0.5 3000 300 1000 1000\n"));
    /* Levels by samples, between the bursts. */
    assert_non_null(strstr(data, "\n0.05 1500 1000 1000 990\n"));
    /* A curve for each load, in the order of width. */
    assert_non_null(strstr(curves, "\n0.1 0.25 0\n0.5 0.5 0\n2 0.75 0\n"));
    assert_non_null(strstr(curves, "\n0.1 1 0\n0.5 1.25 0\n2 1.5 0\n"));
    free(script);
    free(data);
    free(curves);
    if (error == WEIR_ENOENT)
        skip(); /* no gnuplot here; the message says so */
    assert_int_equal(error, 0);
    char *once = text_of(world, "saw-1.svg");
    assert_non_null(strstr(once, "units a second"));
    assert_non_null(strstr(once, "</svg>"));
    error = weir_output_figures(&world->batch, 1, world->folder, &diag);
    assert_int_equal(error, 0);
    char *again = text_of(world, "saw-1.svg");
    assert_string_equal(once, again);
    free(once);
    free(again);
}

/* The second figure's data and script, drawn from two seeds; under the second
 * seed the first variant measures 'other'. */
static void draw_second(struct world *world, double other[2], char **out_data,
                        char **out_script)
{
    struct weir_result second = world->results[0];
    struct weir_result *results[VARIANTS];
    memcpy(results, world->result_list, sizeof results);
    second.measures = other;
    results[0] = &second;
    struct weir_batch batches[] = { world->batch, world->batch };
    batches[1].seed = 8;
    batches[1].results = results;
    struct weir_diag diag = { 0 };
    int error = weir_output_figures(batches, 2, world->folder, &diag);
    assert_true(error == 0 || error == WEIR_ENOENT);
    *out_data = text_of(world, "saw-2.dat");
    *out_script = text_of(world, "saw-2.gp");
    assert_non_null(*out_data);
    assert_non_null(*out_script);
}

static void test_measures_are_means_over_seeds(void **state)
{
    struct world *world = *state;
    double other[2] = { 0.75, 1 };
    char *curves, *script;
    draw_second(world, other, &curves, &script);
    assert_non_null(strstr(curves, "\n0.1 0.5 0.25\n0.5 0.5 0\n"));
    assert_non_null(strstr(script, "yerrorlines"));
    assert_non_null(strstr(script, "'saw, seeds 7..8'"));
    free(curves);
    free(script);
}

static void test_words_stand_side_by_side(void **state)
{
    struct world *world = *state;
    static char *words[] = { "zipf:1", "sticky", "round_robin" };
    for (size_t v = 0; v < VARIANTS; v++)
        world->settings[v][0].value = words[v % 3];
    struct weir_diag diag = { 0 };
    int error = weir_output_figures(&world->batch, 1, world->folder, &diag);
    assert_true(error == 0 || error == WEIR_ENOENT);
    char *script = text_of(world, "saw-2.gp");
    assert_non_null(strstr(script, "set xtics ('zipf:1' 0"));
    assert_non_null(strstr(script, "'round_robin' 2"));
    free(script);
}

static void test_a_measure_stands_against_another(void **state)
{
    struct world *world = *state;
    double paid[VARIANTS] = { 3, 0.125, 5, 40, 7, NAN };
    for (size_t v = 0; v < VARIANTS; v++)
        world->measured[v][1] = paid[v];
    world->figures[1].against = mean;
    /* The first variant pays 3 and 4 under the two seeds. */
    double other[2] = { 0.25, 4 };
    char *data, *script;
    draw_second(world, other, &data, &script);
    /* In the order of width, not of the cost. The last one's cost is unknown,
     * so it isn't drawn. */
    assert_non_null(strstr(data, "\n3.5 0.25 0\n0.125 0.5 0\n5 0.75 0\n\n"));
    assert_non_null(strstr(data, "\n40 1 0\n7 1.25 0\n"));
    assert_null(strstr(data, " 1.5 0"));
    assert_non_null(strstr(script, "set xlabel 'passed_mean, of the limit'"));
    /* It spans decades, with gnuplot's own tics. */
    assert_non_null(strstr(script, "set logscale x"));
    assert_null(strstr(script, "set xtics"));
    free(data);
    free(script);
}

/* Its metrics have numbers of their own, and may be more than a fleet's. */
static void test_a_models_measure_has_its_unit_in_its_name(void **state)
{
    struct world *world = *state;
    static const struct weir_model model = { .name = "model" };
    for (size_t v = 0; v < VARIANTS; v++)
        world->scenarios[v].model = &model;
    world->measures[0].metric = WEIR_METRIC_COUNT + 5;
    world->measures[1].metric = WEIR_METRIC_PASSED_MEAN;
    world->figures[1].against = mean;
    world->figures[0] = world->figures[1];
    double other[2] = { 0.25, 4 };
    char *data, *script;
    draw_second(world, other, &data, &script);
    assert_non_null(strstr(script, "set xlabel 'passed_mean'"));
    assert_non_null(strstr(script, "set ylabel 'echo'"));
    free(data);
    free(script);
}

static void test_a_setting_wins_over_a_measure_of_its_name(void **state)
{
    struct world *world = *state;
    world->measures[1].name = width;
    char *data, *script;
    draw_second(world, world->measured[0], &data, &script);
    assert_non_null(strstr(data, "\n0.1 0.25 0\n0.5 0.5 0\n2 0.75 0\n"));
    free(data);
    free(script);
}

static bool draws_decades_of_y(struct world *world, double one, double other)
{
    double second[2] = { other, 1 };
    char *data, *script;
    world->measured[0][0] = one;
    draw_second(world, second, &data, &script);
    bool decades = strstr(script, "set logscale y") != NULL;
    free(data);
    free(script);
    return decades;
}

static void test_means_that_span_decades_are_told_apart(void **state)
{
    struct world *world = *state; /* the others go from 0.5 to 1.5 */
    assert_false(draws_decades_of_y(world, 0.25, 0.25));
    assert_true(draws_decades_of_y(world, 0.01, 0.01));
    assert_true(draws_decades_of_y(world, 0.01, 0.02));
    /* A bar down to 0 or below can't be drawn on a logarithmic axis. */
    assert_false(draws_decades_of_y(world, 0, 0.02));
    assert_false(draws_decades_of_y(world, 0, 0));
}

static void test_a_folder_that_cant_be_made_is_named(void **state)
{
    struct world *world = *state;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_output_csv(&world->batch, "/proc/none", &diag),
                     WEIR_ESYSTEM);
    assert_non_null(strstr(diag.text, "can't write into the folder"));
}

int main(void)
{
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, given_results, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_json_of_one_variant_is_flat),
        TEST(test_json_of_variants_has_a_line_each),
        TEST(test_csv_has_a_row_a_sample),
        TEST(test_figures_are_drawn),
        TEST(test_measures_are_means_over_seeds),
        TEST(test_words_stand_side_by_side),
        TEST(test_a_measure_stands_against_another),
        TEST(test_a_models_measure_has_its_unit_in_its_name),
        TEST(test_a_setting_wins_over_a_measure_of_its_name),
        TEST(test_means_that_span_decades_are_told_apart),
        TEST(test_a_folder_that_cant_be_made_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
