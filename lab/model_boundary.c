/* SPDX-License-Identifier: MIT
 * lab/model_boundary.c - a client that knows when windows begin.
 *
 * Twice a window it makes as many calls as a whole window allows: in the last
 * instants before an edge, and in the first ones after it. The result is the
 * most that passes within any span of a window's length. */

#include "lab/memory.h"
#include "lab/model.h"
#include "lab/model_algorithm.h"

enum { ALGORITHM, LIMIT, WINDOW, MARGIN };
static const struct weir_model_field fields[] = {
    { .name = "algorithm",
      .kind = WEIR_MODEL_WORD,
      .preset = 3,
      .words = weir_model_algorithms,
      .sentence = "what refuses" },
    { .name = "limit",
      .kind = WEIR_MODEL_COUNT,
      .preset = 100,
      .min = 1,
      .max = WEIR_ENTRIES_MAX,
      .sentence = "calls that pass in a window" },
    { .name = "window",
      .kind = WEIR_MODEL_DURATION,
      .preset = 60e9,
      .sentence = "that the limit is of" },
    { .name = "margin",
      .kind = WEIR_MODEL_DURATION,
      .preset = 1e9,
      .sentence = "how far from the edge the calls are, at most" },
    { .name = NULL },
};

enum { MOST, MEAN, REFUSED };
static const struct weir_model_metric metrics[] = {
    { "passed_max", "most that passed in any window, over the limit" },
    { "passed_mean", "calls passed a window, over the limit" },
    { "limited_share", "limited over offered" },
    { NULL, NULL },
};

enum { OFFERED, PASSED };
static const struct weir_model_series series[] = {
    { "offered", "calls a second", true },
    { "passed", "calls a second", true },
    { NULL, NULL, false },
};

struct client {
    struct weir_model_run *run;
    struct weir_model_algorithm bucket_state;
    weir_instant *passed;
    size_t passed_count, first, most, offered;
};

static void decide_boundary_call(struct client *client, weir_instant now)
{
    struct weir_model_run *run = client->run;
    weir_duration window = (weir_duration)run->values[WINDOW];
    client->offered++;
    weir_model_add(run, OFFERED, now, 1);
    if (!weir_model_algorithm_decide(&client->bucket_state, WEIR_ALGORITHM_TAKE,
                                     1, now)
             .passed)
        return;
    weir_model_add(run, PASSED, now, 1);
    client->passed[client->passed_count++] = now;
    while (now - client->passed[client->first] >= window)
        client->first++;
    size_t here = client->passed_count - client->first;
    client->most = here > client->most ? here : client->most;
}

static void play_boundary(struct weir_model_run *run)
{
    const double *values = run->values;
    uint64_t limit = (uint64_t)values[LIMIT];
    weir_duration window = (weir_duration)values[WINDOW];
    weir_duration gap = (weir_duration)(values[MARGIN] / values[LIMIT]);
    size_t windows = run->span / window;
    struct client client = {
        .run = run,
        .passed =
            weir_must_zeroed(2 * limit * (windows + 1), sizeof *client.passed),
    };
    weir_model_algorithm_init(&client.bucket_state, (size_t)values[ALGORITHM],
                              limit, window, limit, limit);
    for (weir_instant edge = window; edge < run->span; edge += window) {
        for (uint64_t i = limit; i > 0; i--)
            decide_boundary_call(&client, edge - i * gap);
        for (uint64_t i = 0; i < limit; i++)
            decide_boundary_call(&client, edge + i * gap);
    }
    double edges = (double)(run->span - 1) / (double)window;
    run->metrics[MOST] = (double)client.most / values[LIMIT];
    run->metrics[MEAN] =
        (double)client.passed_count / values[LIMIT] / (edges < 1 ? 1 : edges);
    run->metrics[REFUSED] = 1 - (double)client.passed_count /
                                    (double)(client.offered + !client.offered);
    run->events = run->takes = client.offered;
    free(client.passed);
    weir_model_algorithm_fini(&client.bucket_state);
}

const struct weir_model weir_model_boundary = {
    .name = "boundary",
    .sentence = "a client that puts its calls around the edges of windows",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_boundary,
};
