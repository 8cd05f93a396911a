/* SPDX-License-Identifier: MIT
 * ngx_http_weir_delay.c - requests over the limit wait for their turn.
 *
 * With "burst=" a request reserves its units (weir_reserve()): they are charged
 * at once, beyond the quota's burst, and the answer is how long to wait until
 * they fit. So requests go on in the order in which they came, at all users of
 * the quota, without a queue: the bucket is the queue. The request itself waits
 * by a timer of nginx and takes no other resource.
 *
 * The units of "burst=" and "delay=" are converted to a time by the limit of
 * the quota that the directive names. Other quotas of its chain count by the
 * time that they demand.
 *
 * The units of a client that goes away while it waits stay charged, as with
 * limit_req: others already wait behind them, and a client that gives up and
 * asks again must not get its units for nothing. */

#include "ngx_http_weir_module.h"


static double ngx_http_weir_unit(struct weir *weir, ngx_str_t *name);
static weir_duration ngx_http_weir_units_time(ngx_int_t units, double unit);
static struct weir_reply *ngx_http_weir_keep(ngx_http_request_t *r,
    struct weir_reply *reply);
static void ngx_http_weir_waiting(ngx_http_request_t *r);
static void ngx_http_weir_delay_handler(ngx_event_t *ev);


ngx_int_t
ngx_http_weir_reserve(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    ngx_http_weir_ask_t *ask, struct weir_reply **why, weir_instant now)
{
    int                  error;
    double               unit;
    ngx_uint_t           kept;
    struct weir         *weir;
    weir_duration        max, undelayed;
    struct weir_reply    reply;
    enum weir_verdict    verdict;
    struct weir_handle   quota;

    weir = ngx_http_weir_limiter();

    kept = ngx_http_weir_find(weir, ask->limit);
    quota = ask->limit->quota;

    if (!kept) {
        error = weir_handle_open(weir, (char *) ask->name.data, ask->name.len,
                                 &quota);

        if (error < 0 && error != WEIR_EFULL) {
            return NGX_BUSY;
        }

        /* a bucket that was made just now looks fuller at an earlier instant */

        now = ngx_http_weir_now();
    }

    unit = ngx_http_weir_unit(weir, &ask->name);
    max = ngx_http_weir_units_time(ask->limit->burst, unit);
    undelayed = ngx_http_weir_units_time(ask->limit->delay, unit);

    verdict = weir_reserve(quota, ask->weight, max, &reply, now);

    if (!kept) {
        weir_handle_close(quota);
    }

    if (verdict == WEIR_LIMITED) {

        /* not until its turn, but until that is no further away than max */

        if (reply.wait != WEIR_NEVER && reply.wait > max) {
            reply.retry_after -= ngx_min(reply.retry_after, max);
        }

        *why = ngx_http_weir_keep(r, &reply);

        return *why ? NGX_BUSY : NGX_ERROR;
    }

    if (reply.wait >= undelayed + NGX_HTTP_WEIR_WAIT_MIN
        && reply.wait - undelayed > ctx->wait)
    {
        ctx->wait = reply.wait - undelayed;
        ctx->delaying = ngx_http_weir_keep(r, &reply);

        if (ctx->delaying == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The time in ns in which its limit lets a unit pass; 0: it has none. */
static double
ngx_http_weir_unit(struct weir *weir, ngx_str_t *name)
{
    struct weir_policy  policy;

    if (weir_policy(weir, (char *) name->data, name->len, &policy) < 0
        || policy.quantity == 0)
    {
        return 0;
    }

    return (double) policy.window / policy.quantity;
}


static weir_duration
ngx_http_weir_units_time(ngx_int_t units, double unit)
{
    double  time;

    time = units * unit;

    return time < (double) NGX_HTTP_WEIR_WAIT_MAX ? (weir_duration) time
                                                  : NGX_HTTP_WEIR_WAIT_MAX;
}


static struct weir_reply *
ngx_http_weir_keep(ngx_http_request_t *r, struct weir_reply *reply)
{
    struct weir_reply  *kept;

    kept = ngx_palloc(r->main->pool, sizeof(struct weir_reply));
    if (kept == NULL) {
        return NULL;
    }

    *kept = *reply;

    return kept;
}


/* The request waits for ctx->wait; NGX_DECLINED: not in a dry run. */
ngx_int_t
ngx_http_weir_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx)
{
    ngx_msec_t             ms;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    ngx_http_weir_log_delay(r, ctx);

    if (wlcf->dry_run) {
        if (ctx->verdict < ngx_http_weir_delayed) {
            ctx->verdict = ngx_http_weir_delayed_dry_run;
        }

        return NGX_DECLINED;
    }

    ctx->verdict = ngx_http_weir_delayed;

    /* the connection is read to hear of its end, which may have come already */

    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);

    } else if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_weir_waiting;

    ctx->timer.handler = ngx_http_weir_delay_handler;
    ctx->timer.data = r;
    ctx->timer.log = r->connection->log;

    /* not early: a timer counts whole ms from the time of the event loop */

    ngx_time_update();

    ms = ctx->wait / WEIR_MILLISECOND + 1;

    ngx_add_timer(&ctx->timer, ms);

    return NGX_AGAIN;
}


/* Does nothing: it marks a request that waits. */
static void
ngx_http_weir_waiting(ngx_http_request_t *r)
{
}


static void
ngx_http_weir_delay_handler(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ev->data;
    c = r->connection;

    /* its client went away, and it goes on as its own "post_action" */

    if (r->write_event_handler != ngx_http_weir_waiting) {
        return;
    }

    ngx_http_set_log_request(c->log, r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    ngx_http_run_posted_requests(c);
}
