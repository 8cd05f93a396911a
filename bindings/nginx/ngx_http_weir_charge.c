/* SPDX-License-Identifier: MIT
 * ngx_http_weir_charge.c - costs that are known when a request has ended.
 *
 * With "charge=" a request takes its weight before the work, as without it. In
 * the log phase the difference to the cost is charged or given back
 * (weir_settle()), also if the client went away. A request that was refused has
 * taken nothing, and costs nothing. */

#include "ngx_http_weir_module.h"


ngx_int_t
ngx_http_weir_log_handler(ngx_http_request_t *r)
{
    uint64_t              cost;
    ngx_uint_t            i;
    struct weir          *weir;
    weir_instant          now;
    ngx_http_weir_ask_t  *asked;
    ngx_http_weir_ctx_t  *ctx;

    if (r != r->main) {
        return NGX_OK;
    }

    ctx = ngx_http_weir_get_ctx(r);
    weir = ngx_http_weir_limiter();

    /* the client of a request that still waits doesn't get its units back */

    if (ctx == NULL || weir == NULL || ctx->timer.timer_set) {
        return NGX_OK;
    }

    asked = ctx->asked.elts;
    now = 0;

    /* in a dry run further ones were asked after the first, which refused */

    i = ctx->verdict >= ngx_http_weir_limited ? 1 : 0;

    for ( /* void */ ; i < ctx->asked.nelts; i++) {

        if (asked[i].limit->charge == NULL) {
            continue;
        }

        if (now == 0) {
            now = ngx_http_weir_now();
        }

        /* without a cost the units taken stay charged */

        if (ngx_http_weir_read_units(r, asked[i].limit->charge, "charge",
                                     &cost)
            == NGX_OK)
        {
            ngx_http_weir_settle(weir, &asked[i], cost, now);
        }
    }

    return NGX_OK;
}


void
ngx_http_weir_settle(struct weir *weir, ngx_http_weir_ask_t *ask,
    uint64_t actual, weir_instant now)
{
    uint64_t  charged;

    charged = ask->peek ? 0 : ask->weight;

    if (ask->limit->quota.weir) {
        weir_settle(ask->limit->quota, &charged, actual, now);
        return;
    }

    (void) weir_settle_by_name(weir, (char *) ask->name.data, ask->name.len,
                               &charged, actual, now);
}
