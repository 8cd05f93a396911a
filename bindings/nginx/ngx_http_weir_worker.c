/* SPDX-License-Identifier: MIT
 * ngx_http_weir_worker.c - a worker opens the table of the zone, after fork(),
 * and closes it; libweir's events go to the error log.
 *
 * While the table can't be opened everything passes, and the log says why. */

#include "ngx_http_weir_module.h"

#include <ngx_event.h>
#include <ngx_channel.h>


typedef struct {
    enum weir_event_type          type;
    ngx_uint_t                    level;
    const char                   *text;
} ngx_http_weir_news_t;


static void ngx_http_weir_open(ngx_event_t *ev);
static void ngx_http_weir_news_handler(ngx_event_t *ev);


static ngx_http_weir_news_t  ngx_http_weir_news[] = {
    { WEIR_EVENT_ROOT_UP, NGX_LOG_NOTICE, "a root is there" },
    { WEIR_EVENT_ROOT_DOWN, NGX_LOG_WARN, "a root can't be reached" },
    { WEIR_EVENT_READY, NGX_LOG_NOTICE,
      "the quotas of a root are complete here" },
    { WEIR_EVENT_STALE, NGX_LOG_ERR,
      "no root answered for stale_after: on_stale rules" },
    { WEIR_EVENT_FRESH, NGX_LOG_NOTICE, "a root answers again" },
    { WEIR_EVENT_TABLE_FULL, NGX_LOG_ERR,
      "the table has no room; its memory_max is weir_zone's size" },
    { WEIR_EVENT_STORE_CHANGED, NGX_LOG_WARN,
      "a root speaks for another quota store" },
    { WEIR_EVENT_REPORT_BACKOFF, NGX_LOG_WARN,
      "an overloaded root asks for fewer reports" },
    { WEIR_EVENT_LOST, NGX_LOG_WARN, "events were lost" },
    { WEIR_EVENT_CREDENTIAL, NGX_LOG_ERR,
      "the credential for the roots can't be used" },
    { WEIR_EVENT_QUOTA_UNKNOWN, NGX_LOG_ERR,
      "a quota is of a later version and lets all pass" },
    { WEIR_EVENT_EXACT_AWAY, NGX_LOG_ERR,
      "quotas with sharing=exact are refused here, for a worker must not wait "
      "for their store: they go by their on_stale" },
    { WEIR_EVENT_ZONE, NGX_LOG_WARN,
      "a time zone isn't known here, its windows go by UTC" },
    { WEIR_EVENT_ADAPTIVE_FULL, NGX_LOG_ERR,
      "adaptive quotas let all pass here" },
    { WEIR_EVENT_ELSEWHERE, NGX_LOG_ERR,
      "leases are handed out by a root to which no link leads" },
    { WEIR_EVENT_DENIED, NGX_LOG_ERR,
      "the credential may not take from a quota, which is counted here alone" },
    { WEIR_EVENT_REPORTER, NGX_LOG_NOTICE,
      "this worker keeps the links to the roots" },
    { 0, NGX_LOG_NOTICE, "event" }
};


struct weir *
ngx_http_weir_limiter(void)
{
    ngx_http_weir_main_conf_t  *wmcf;

    wmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle, ngx_http_weir_module);

    return wmcf ? wmcf->weir : NULL;
}


ngx_int_t
ngx_http_weir_init_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t  *wmcf;

    wmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);

    /* helpers (of the cache) decide nothing */

    if (wmcf == NULL || wmcf->shm_zone == NULL
        || (ngx_process != NGX_PROCESS_WORKER
            && ngx_process != NGX_PROCESS_SINGLE))
    {
        return NGX_OK;
    }

    wmcf->retry.handler = ngx_http_weir_open;
    wmcf->retry.data = wmcf;
    wmcf->retry.log = cycle->log;
    wmcf->retry.cancelable = 1;

    ngx_http_weir_open(&wmcf->retry);

    return NGX_OK;
}


void
ngx_http_weir_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t  *wmcf;

    wmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);

    if (wmcf) {
        weir_close(wmcf->weir);
        wmcf->weir = NULL;
    }
}


/* If it can't be opened, it is tried again in a second. */
static void
ngx_http_weir_open(ngx_event_t *ev)
{
    ngx_http_weir_main_conf_t *wmcf = ev->data;

    int                    error;
    ngx_http_weir_zone_t  *zone;

    zone = wmcf->shm_zone->data;
    wmcf->options.memory_max = (uint64_t) zone->names_max
                               * NGX_HTTP_WEIR_NAME_BYTES;
    wmcf->why[0] = '\0';

    error = weir_open_in(zone->memory, zone->size, &wmcf->options,
                         &wmcf->weir);
    if (error < 0) {
        ngx_log_error(NGX_LOG_ALERT, ev->log, 0,
                      "weir_zone \"%V\" can't be used by this worker, "
                      "which lets all pass: %s%s%s",
                      &wmcf->shm_zone->shm.name, weir_strerror(error),
                      wmcf->why[0] ? ": " : "", wmcf->why);

        ngx_add_timer(ev, 1000);
        return;
    }

    /* the worker's own thread logs what follows, and it isn't vital */

    (void) ngx_add_channel_event((ngx_cycle_t *) ngx_cycle,
                                 weir_event_fd(wmcf->weir), NGX_READ_EVENT,
                                 ngx_http_weir_news_handler);
}


/*
 * The reason why the options are refused or the table can't be opened.
 * libweir's thread calls it later, too, when the reason isn't read any more.
 */
void
ngx_http_weir_hear(void *context, const struct weir_event *event)
{
    ngx_http_weir_main_conf_t *wmcf = context;

    if (event->type == WEIR_EVENT_CREDENTIAL || event->type == WEIR_EVENT_TABLE)
    {
        ngx_memcpy(wmcf->why, event->text, sizeof(wmcf->why));
    }
}


static void
ngx_http_weir_news_handler(ngx_event_t *ev)
{
    struct weir           *weir;
    struct weir_event      event;
    ngx_http_weir_news_t  *news;

    weir = ngx_http_weir_limiter();

    if (weir == NULL) {
        return;
    }

    while (weir_event_next(weir, &event)) {

        for (news = ngx_http_weir_news; news->type; news++) {
            if (news->type == event.type) {
                break;
            }
        }

        ngx_log_error(news->level, ev->log, 0, "weir: %s%s%s", news->text,
                      event.text[0] ? ": " : "", event.text);
    }
}
