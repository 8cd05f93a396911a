/* SPDX-License-Identifier: MIT
 * ngx_http_weir_handler.c - the quotas of a request are checked.
 *
 * The quotas of its location are checked in order. All or none are charged: if
 * one refuses, the charges of those before it are given back. Two rounds, first
 * with peeks, would cost each request that passes; so only refused ones pay.
 *
 * A quota may have units in flight: the request enters it, and its permit is
 * given back by the cleanup of the main request's pool, however the request
 * ends. On a chain of rates an enter is a take.
 *
 * Finding a name costs as much again as the decision. So a name without
 * variables is found once, by its first request, and its place is kept for as
 * long as the worker lives.
 *
 * An error page and other internal redirects aren't checked again: the context,
 * which outlives them, knows it (ngx_http_weir_get_ctx()). A refused request
 * isn't checked "after_access" on its way to the error page.
 *
 * Quotas are checked in the preaccess phase, as limit_req's zones are; those
 * that need the client's identity are checked "after_access", in the phase
 * after that. Subrequests aren't checked there, nor in the access phase: that
 * of auth_request inherits the request's quotas, and comes before them. Neither
 * are subrequests of a request that has passed its own checks. */

#include "ngx_http_weir_module.h"


static ngx_int_t ngx_http_weir_handler(ngx_http_request_t *r,
    ngx_uint_t phase);
static ngx_int_t ngx_http_weir_ask(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, struct weir *weir, ngx_uint_t phase);
static ngx_int_t ngx_http_weir_read(ngx_http_request_t *r,
    ngx_http_weir_limit_t *limit, ngx_http_weir_ask_t *ask);
static ngx_int_t ngx_http_weir_decide(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, struct weir *weir, ngx_http_weir_ask_t *ask,
    weir_instant now);
static ngx_int_t ngx_http_weir_enter(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, struct weir *weir, ngx_http_weir_ask_t *ask,
    weir_instant now);
static void ngx_http_weir_leave(ngx_http_weir_ctx_t *ctx);
static void ngx_http_weir_refund(struct weir *weir, ngx_http_weir_ctx_t *ctx,
    weir_instant now);
static ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, ngx_http_weir_limit_t *limit);
static ngx_int_t ngx_http_weir_ask_limit(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, struct weir *weir, ngx_http_weir_limit_t *limit,
    weir_instant now);

static ngx_http_weir_ctx_t *ngx_http_weir_create_ctx(ngx_http_request_t *r,
    ngx_uint_t n);
static void ngx_http_weir_cleanup(void *data);


ngx_int_t
ngx_http_weir_preaccess_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_handler(r, NGX_HTTP_WEIR_PREACCESS);
}


ngx_int_t
ngx_http_weir_precontent_handler(ngx_http_request_t *r)
{
    if (r != r->main) {
        return NGX_DECLINED;
    }

    return ngx_http_weir_handler(r, NGX_HTTP_WEIR_AFTER_ACCESS);
}


static ngx_int_t
ngx_http_weir_handler(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_int_t              rc;
    struct weir           *weir;
    ngx_http_weir_ctx_t   *ctx;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    if (!(wlcf->phases & phase)) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_weir_get_ctx(r->main);

    if (ctx && (ctx->phases & phase)) {
        return NGX_DECLINED;
    }

    /* its refusal would give back what the request was charged */

    if (ctx && r != r->main && (ctx->phases & NGX_HTTP_WEIR_AFTER_ACCESS)) {
        return NGX_DECLINED;
    }

    weir = ngx_http_weir_limiter();

    if (weir == NULL) {
        return NGX_DECLINED;
    }

    if (ctx == NULL) {
        ctx = ngx_http_weir_create_ctx(r->main, wlcf->limits.nelts);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ctx->phases |= phase;

    rc = ngx_http_weir_ask(r, ctx, weir, phase);

    /* headers are added once, after all checks */

    if (rc == NGX_DECLINED && wlcf->headers
        && !(wlcf->phases & ~ctx->phases)
        && ctx->verdict < ngx_http_weir_limited
        && ngx_http_weir_add_headers(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_DECLINED && ctx->wait) {
        return ngx_http_weir_delay(r, ctx);
    }

    return rc;
}


/* NGX_DECLINED: it passes, after ctx->wait. */
static ngx_int_t
ngx_http_weir_ask(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    struct weir *weir, ngx_uint_t phase)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    weir_instant            now;
    ngx_http_weir_conf_t   *wlcf;
    ngx_http_weir_limit_t  *limits;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    limits = wlcf->limits.elts;
    now = ngx_http_weir_now();

    ctx->wait = 0;
    ctx->delaying = NULL;

    /* details of the phase before are incomplete now */

    if (ctx->verdict < ngx_http_weir_limited) {
        ctx->reply = NULL;
    }

    if (ctx->verdict == ngx_http_weir_unknown) {
        ctx->verdict = ngx_http_weir_pass;
    }

    for (i = 0; i < wlcf->limits.nelts; i++) {

        if (limits[i].phase != phase) {
            continue;
        }

        rc = ngx_http_weir_ask_limit(r, ctx, weir, &limits[i], now);

        if (rc == NGX_BUSY) {
            return ngx_http_weir_refuse(r, ctx, &limits[i]);
        }

        if (rc != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return NGX_DECLINED;
}


/* NGX_BUSY: it refuses, and those before it are given back. */
static ngx_int_t
ngx_http_weir_ask_limit(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    struct weir *weir, ngx_http_weir_limit_t *limit, weir_instant now)
{
    ngx_int_t             rc;
    struct weir_reply    *why;
    ngx_http_weir_ask_t  *ask;

    ask = ngx_array_push(&ctx->asked);
    if (ask == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_weir_read(r, limit, ask);

    if (rc != NGX_OK) {
        ctx->asked.nelts--;
        return rc == NGX_DECLINED ? NGX_OK : rc;
    }

    why = NULL;

    rc = limit->burst ? ngx_http_weir_reserve(r, ctx, ask, &why, now)
                      : ngx_http_weir_decide(r, ctx, weir, ask, now);

    if (rc == NGX_BUSY) {
        ngx_http_weir_refund(weir, ctx, now);
        ctx->reply = why;
    }

    return rc;
}


/* The quotas to check; NGX_DECLINED: none. */
static ngx_int_t
ngx_http_weir_read(ngx_http_request_t *r, ngx_http_weir_limit_t *limit,
    ngx_http_weir_ask_t *ask)
{
    if (limit->name.lengths == NULL) {
        ask->name = limit->name.value;

    } else if (ngx_http_complex_value(r, &limit->name, &ask->name) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ask->name.len == 0) {
        return NGX_DECLINED;
    }

    ask->limit = limit;
    ask->weight = 1;
    ask->peek = limit->peek;

    /* an invalid number weighs 1: a client must not evade a limit by it */

    if (limit->weight
        && ngx_http_weir_read_units(r, limit->weight, "weight", &ask->weight)
           == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    ask->weight = ngx_min(ask->weight, WEIR_WEIGHT_MAX);

    return NGX_OK;
}


ngx_int_t
ngx_http_weir_read_units(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, char *what, uint64_t *units)
{
    off_t      n;
    ngx_str_t  text;

    if (ngx_http_complex_value(r, value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    n = ngx_atoof(text.data, text.len);

    if (n == NGX_ERROR) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "the value of the \"%V\" %s is no number: \"%V\"",
                      &value->value, what, &text);
        return NGX_DECLINED;
    }

    *units = (uint64_t) n;

    return NGX_OK;
}


/*
 * A name that can't be a quota's is refused: clients make names, and one that
 * is too long must not be the way around a limit.
 */
static ngx_int_t
ngx_http_weir_decide(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    struct weir *weir, ngx_http_weir_ask_t *ask, weir_instant now)
{
    char               *name;
    enum weir_verdict   verdict;

    name = (char *) ask->name.data;

    if (!ngx_http_weir_find(weir, ask->limit)
        && !weir_name_is_valid(name, ask->name.len))
    {
        return NGX_BUSY;
    }

    if (!ask->peek) {
        return ngx_http_weir_enter(r, ctx, weir, ask, now);
    }

    if (ask->limit->quota.weir) {
        verdict = weir_peek(ask->limit->quota, ask->weight, NULL, now);

    } else {
        verdict = weir_peek_by_name(weir, name, ask->name.len, ask->weight,
                                    NULL, now);
    }

    return verdict == WEIR_LIMITED ? NGX_BUSY : NGX_OK;
}


/* The units of rates are charged, those in flight are held by a permit. */
static ngx_int_t
ngx_http_weir_enter(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    struct weir *weir, ngx_http_weir_ask_t *ask, weir_instant now)
{
    enum weir_verdict            verdict;
    struct weir_permit           permit, *kept;
    static struct weir_permit    none;

    if (ask->limit->quota.weir) {
        verdict = weir_enter(ask->limit->quota, 0, ask->weight, &permit, NULL,
                             now);

    } else {
        verdict = weir_enter_by_name(weir, (char *) ask->name.data,
                                     ask->name.len, 0, ask->weight, &permit,
                                     NULL, now);
    }

    if (verdict == WEIR_LIMITED) {
        return NGX_BUSY;
    }

    if (ngx_memcmp(&permit, &none, sizeof(struct weir_permit)) == 0) {
        return NGX_OK;
    }

    kept = NULL;

    if (ctx->permits.elts
        || ngx_array_init(&ctx->permits, r->main->pool, 1,
                          sizeof(struct weir_permit))
           == NGX_OK)
    {
        kept = ngx_array_push(&ctx->permits);
    }

    if (kept == NULL) {
        weir_leave(&permit, WEIR_PERMIT_IGNORED, now);
        return NGX_ERROR;
    }

    *kept = permit;

    return NGX_OK;
}


/* A worker that is exiting has closed its limiter, and left with that. */
static void
ngx_http_weir_leave(ngx_http_weir_ctx_t *ctx)
{
    ngx_uint_t           i;
    struct weir_permit  *permits;

    if (ngx_http_weir_limiter() == NULL) {
        return;
    }

    permits = ctx->permits.elts;

    for (i = 0; i < ctx->permits.nelts; i++) {
        weir_leave(&permits[i], WEIR_PERMIT_SUCCESS, 0);
    }

    ctx->permits.nelts = 0;
}


/*
 * Whether its quota has a place that is kept: not if its name has variables. If
 * the table is full, the next request tries again.
 */
ngx_uint_t
ngx_http_weir_find(struct weir *weir, ngx_http_weir_limit_t *limit)
{
    int                  error;
    struct weir_handle   quota;

    if (limit->quota.weir) {
        return 1;
    }

    if (limit->name.lengths) {
        return 0;
    }

    error = weir_handle_open(weir, (char *) limit->name.value.data,
                             limit->name.value.len, &quota);

    if (error == WEIR_OK) {
        limit->quota = quota;
        return 1;
    }

    if (error == WEIR_EFULL) {
        weir_handle_close(quota);
    }

    return 0;
}


/* Refunds all but the last, which refused, and keeps only that one. */
static void
ngx_http_weir_refund(struct weir *weir, ngx_http_weir_ctx_t *ctx,
    weir_instant now)
{
    ngx_uint_t            i;
    ngx_http_weir_ask_t  *asked;

    asked = ctx->asked.elts;

    for (i = 0; i + 1 < ctx->asked.nelts; i++) {
        ngx_http_weir_settle(weir, &asked[i], 0, now);
    }

    asked[0] = asked[i];
    asked[0].peek = 1;
    ctx->asked.nelts = 1;

    ctx->wait = 0;
    ctx->delaying = NULL;

    ngx_http_weir_leave(ctx);
}


static ngx_int_t
ngx_http_weir_refuse(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    ngx_http_weir_limit_t *limit)
{
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    ctx->verdict = wlcf->dry_run ? ngx_http_weir_limited_dry_run
                                 : ngx_http_weir_limited;

    if (ngx_http_weir_explain(r, ctx) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_weir_log_refusal(r, ctx, limit);

    if (wlcf->dry_run) {
        return NGX_DECLINED;
    }

    ctx->phases = NGX_HTTP_WEIR_PREACCESS|NGX_HTTP_WEIR_AFTER_ACCESS;

    if (ngx_http_weir_add_headers(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return limit->status;
}


/* nginx's own clock has steps of some ms. One reading serves all quotas. */
weir_instant
ngx_http_weir_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (weir_instant) ts.tv_sec * WEIR_SECOND + ts.tv_nsec;
}


/* An internal redirect forgets contexts, but not the pool's cleanups. */
ngx_http_weir_ctx_t *
ngx_http_weir_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_weir_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_weir_module);

    if (ctx || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_weir_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_weir_module);
            return cln->data;
        }
    }

    return NULL;
}


/* 'n': so many will be checked, or somewhat more. */
static ngx_http_weir_ctx_t *
ngx_http_weir_create_ctx(ngx_http_request_t *r, ngx_uint_t n)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_weir_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_weir_cleanup;

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_weir_ctx_t));
    ctx->verdict = ngx_http_weir_pass;

    if (ngx_array_init(&ctx->asked, r->pool, n, sizeof(ngx_http_weir_ask_t))
        != NGX_OK)
    {
        return NULL;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_weir_module);

    return ctx;
}


/* The request ends. */
static void
ngx_http_weir_cleanup(void *data)
{
    ngx_http_weir_ctx_t *ctx = data;

    if (ctx->timer.timer_set) {
        ngx_del_timer(&ctx->timer);
    }

    ngx_http_weir_leave(ctx);
}
