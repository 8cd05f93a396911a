/* SPDX-License-Identifier: MIT
 * ngx_http_weir_module.c - quotas of a whole fleet, beside limit_req.
 *
 * limit_req keeps a table of keys in shared memory, and each nginx has its own.
 * Here the table is libweir's, in a zone of nginx's shared memory (weir.h, "A
 * table that processes share"), and its counts are reported to the roots, which
 * enforce one limit for all nginx and other services that share a quota:
 *
 *     master    reads the configuration and lays the zone out; never opens it
 *     worker    opens the table after fork(), decides on it in its own loop,
 *               by words of memory; never waits for a root or for a lock
 *     reporter  one of the workers: it has libweir's thread with the links to
 *               the roots; when it ends or is killed another takes that over
 *
 * A reload hands the zone to the new workers while the old ones go on with it:
 * both generations decide on the same counts, so none is lost. A binary upgrade
 * makes a new zone, which gets its counts from the roots.
 *
 * This file is the master's side: directives, and the zone. */

#include "ngx_http_weir_module.h"


#define NGX_HTTP_WEIR_NAMES_MIN      64     /* in a zone */
#define NGX_HTTP_WEIR_NAMES_MAX      (1 << 24)


static void *ngx_http_weir_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_weir_create_conf(ngx_conf_t *cf);
static char *ngx_http_weir_merge_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_weir_roots(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_weir_roots_parameter(ngx_conf_t *cf, ngx_str_t *value,
    struct weir_options *options);
static char *ngx_http_weir_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_weir(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_weir_name(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_parameter(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_status(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_weight(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_charge(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_units(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **units, char *what);
static char *ngx_http_weir_burst(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_undelayed(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit);
static char *ngx_http_weir_complete(ngx_conf_t *cf,
    ngx_http_weir_limit_t *limit);
static ngx_int_t ngx_http_weir_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_weir_reuse_zone(ngx_shm_zone_t *shm_zone,
    ngx_http_weir_zone_t *ozone);
static uint32_t ngx_http_weir_names_max(size_t room);
static size_t ngx_http_weir_bytes(uint32_t names_max);
static ngx_int_t ngx_http_weir_init(ngx_conf_t *cf);


static ngx_conf_enum_t  ngx_http_weir_log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};


/* of the "weir" directive, with a value */
static struct {
    ngx_str_t   name;
    char     *(*set)(ngx_conf_t *cf, ngx_str_t *value,
                     ngx_http_weir_limit_t *limit);
} ngx_http_weir_parameters[] = {
    { ngx_string("status="), ngx_http_weir_status },
    { ngx_string("weight="), ngx_http_weir_weight },
    { ngx_string("charge="), ngx_http_weir_charge },
    { ngx_string("burst="), ngx_http_weir_burst },
    { ngx_string("delay="), ngx_http_weir_undelayed },
};


static ngx_command_t  ngx_http_weir_commands[] = {

    { ngx_string("weir_roots"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_weir_roots,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("weir_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_weir_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("weir"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_weir,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("weir_log_level"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_weir_conf_t, log_level),
      &ngx_http_weir_log_levels },

    { ngx_string("weir_dry_run"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_weir_conf_t, dry_run),
      NULL },

    { ngx_string("weir_headers"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_weir_conf_t, headers),
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_weir_module_ctx = {
    ngx_http_weir_add_variables,           /* preconfiguration */
    ngx_http_weir_init,                    /* postconfiguration */

    ngx_http_weir_create_main_conf,        /* create main configuration */
    ngx_http_weir_init_main_conf,          /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_weir_create_conf,             /* create location configuration */
    ngx_http_weir_merge_conf               /* merge location configuration */
};


ngx_module_t  ngx_http_weir_module = {
    NGX_MODULE_V1,
    &ngx_http_weir_module_ctx,             /* module context */
    ngx_http_weir_commands,                /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_weir_init_process,            /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_weir_exit_process,            /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static void *
ngx_http_weir_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t  *wmcf;

    wmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_main_conf_t));
    if (wmcf == NULL) {
        return NULL;
    }

    wmcf->options.struct_size = sizeof(struct weir_options);
    wmcf->options.threads_max = WEIR_PROCESSES_MAX;
    wmcf->options.on_event = ngx_http_weir_hear;
    wmcf->options.event_context = wmcf;

    return wmcf;
}


static char *
ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_weir_main_conf_t *wmcf = conf;

    ngx_http_weir_zone_t  *zone;

    if (wmcf->shm_zone == NULL && wmcf->options.roots == NULL
        && !wmcf->used)
    {
        return NGX_CONF_OK;
    }

    if (wmcf->options.roots == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "no \"weir_roots\" is defined: quotas come from them");
        return NGX_CONF_ERROR;
    }

    if (wmcf->shm_zone == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "no \"weir_zone\" is defined: quotas are kept there");
        return NGX_CONF_ERROR;
    }

    zone = wmcf->shm_zone->data;
    zone->roots.data = (u_char *) wmcf->options.roots;
    zone->roots.len = ngx_strlen(wmcf->options.roots);

    return NGX_CONF_OK;
}


static void *
ngx_http_weir_create_conf(ngx_conf_t *cf)
{
    ngx_http_weir_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->limits.elts = NULL;
     *     conf->phases = 0;
     */

    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->dry_run = NGX_CONF_UNSET;
    conf->headers = NGX_CONF_UNSET;

    return conf;
}


static char *
ngx_http_weir_merge_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_weir_conf_t *prev = parent;
    ngx_http_weir_conf_t *conf = child;

    if (conf->limits.elts == NULL) {
        conf->limits = prev->limits;
        conf->phases = prev->phases;
    }

    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);
    ngx_conf_merge_value(conf->headers, prev->headers, 0);

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_roots(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_main_conf_t *wmcf = conf;

    int          error;
    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (wmcf->options.roots) {
        return "is duplicate";
    }

    value = cf->args->elts;

    wmcf->options.roots = (char *) value[1].data;

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_weir_roots_parameter(cf, &value[i], &wmcf->options);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    error = weir_check(&wmcf->options);

    if (error < 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid weir_roots \"%V\": %s", &value[1],
                           wmcf->why[0] ? wmcf->why : weir_strerror(error));
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_roots_parameter(ngx_conf_t *cf, ngx_str_t *value,
    struct weir_options *options)
{
    ngx_str_t     path;
    ngx_uint_t    i;

    static struct {
        ngx_str_t   name;
        size_t      offset;
    } parameters[] = {
        { ngx_string("tls_ca="), offsetof(struct weir_options, tls_ca) },
        { ngx_string("cert="), offsetof(struct weir_options, tls_cert) },
        { ngx_string("key="), offsetof(struct weir_options, tls_key) },
        { ngx_string("token_file="),
          offsetof(struct weir_options, token_file) },
    };

    for (i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {

        if (value->len <= parameters[i].name.len
            || ngx_strncmp(value->data, parameters[i].name.data,
                           parameters[i].name.len)
               != 0)
        {
            continue;
        }

        path.data = value->data + parameters[i].name.len;
        path.len = value->len - parameters[i].name.len;

        if (ngx_strcmp(path.data, "system") != 0
            && ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        *(const char **) ((u_char *) options + parameters[i].offset) =
                                                          (char *) path.data;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\"", value);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_weir_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_main_conf_t *wmcf = conf;

    ssize_t                size;
    ngx_str_t             *value;
    ngx_http_weir_zone_t  *zone;

    if (wmcf->shm_zone) {
        return "is duplicate";
    }

    value = cf->args->elts;

    size = ngx_parse_size(&value[2]);

    if (value[1].len == 0 || size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"%V\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    if (size < (ssize_t) (8 * ngx_pagesize)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small", &value[1]);
        return NGX_CONF_ERROR;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    wmcf->shm_zone = ngx_shared_memory_add(cf, &value[1], size,
                                           &ngx_http_weir_module);
    if (wmcf->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    wmcf->shm_zone->init = ngx_http_weir_init_zone;
    wmcf->shm_zone->data = zone;

    return NGX_CONF_OK;
}


static char *
ngx_http_weir(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_conf_t *wlcf = conf;

    char                       *rv;
    ngx_str_t                  *value;
    ngx_uint_t                  i;
    ngx_http_weir_limit_t      *limit;
    ngx_http_weir_main_conf_t  *wmcf;

    wmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    wmcf->used = 1;

    value = cf->args->elts;

    if (wlcf->limits.elts == NULL
        && ngx_array_init(&wlcf->limits, cf->pool, 1,
                          sizeof(ngx_http_weir_limit_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (wlcf->limits.nelts == NGX_HTTP_WEIR_LIMITS_MAX) {
        return "is given more than 16 times";
    }

    limit = ngx_array_push(&wlcf->limits);
    if (limit == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(limit, sizeof(ngx_http_weir_limit_t));
    limit->status = NGX_HTTP_TOO_MANY_REQUESTS;
    limit->phase = NGX_HTTP_WEIR_PREACCESS;
    limit->delay = NGX_CONF_UNSET;

    rv = ngx_http_weir_name(cf, &value[1], limit);

    for (i = 2; i < cf->args->nelts && rv == NGX_CONF_OK; i++) {
        rv = ngx_http_weir_parameter(cf, &value[i], limit);
    }

    wlcf->phases |= limit->phase;

    return rv == NGX_CONF_OK ? ngx_http_weir_complete(cf, limit) : rv;
}


static char *
ngx_http_weir_name(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    ngx_http_compile_complex_value_t   ccv;

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = &limit->name;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (limit->name.lengths == NULL
        && !weir_name_is_valid((char *) value->data, value->len))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" can't be the name of a quota", value);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_parameter(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    ngx_str_t   *name, rest;
    ngx_uint_t   i;

    if (ngx_strcmp(value->data, "peek") == 0) {
        limit->peek = 1;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value->data, "after_access") == 0) {
        limit->phase = NGX_HTTP_WEIR_AFTER_ACCESS;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value->data, "nodelay") == 0) {
        limit->delay = WEIR_WEIGHT_MAX;
        return NGX_CONF_OK;
    }

    for (i = 0;
         i < sizeof(ngx_http_weir_parameters)
             / sizeof(ngx_http_weir_parameters[0]);
         i++)
    {
        name = &ngx_http_weir_parameters[i].name;

        if (ngx_strncmp(value->data, name->data, name->len) == 0) {
            rest.data = value->data + name->len;
            rest.len = value->len - name->len;

            return ngx_http_weir_parameters[i].set(cf, &rest, limit);
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\"", value);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_weir_status(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    ngx_int_t  status;

    status = ngx_atoi(value->data, value->len);

    if (status < 400 || status > 599) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid status \"%V\", "
                           "it must be between 400 and 599", value);
        return NGX_CONF_ERROR;
    }

    limit->status = status;

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_weight(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    return ngx_http_weir_units(cf, value, &limit->weight, "weight");
}


static char *
ngx_http_weir_charge(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    return ngx_http_weir_units(cf, value, &limit->charge, "charge");
}


/* A number, or variables that make one. */
static char *
ngx_http_weir_units(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **units, char *what)
{
    ngx_http_compile_complex_value_t   ccv;

    *units = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (*units == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = *units;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if ((*units)->lengths == NULL
        && ngx_atoof(value->data, value->len) == NGX_ERROR)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid %s \"%V\"", what, value);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_burst(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    limit->burst = ngx_atoi(value->data, value->len);

    if (limit->burst <= 0 || limit->burst > (ngx_int_t) WEIR_WEIGHT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid burst \"%V\", it must be between 1 and %uL",
                           value, (uint64_t) WEIR_WEIGHT_MAX);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_weir_undelayed(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_weir_limit_t *limit)
{
    limit->delay = ngx_atoi(value->data, value->len);

    if (limit->delay == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid delay \"%V\", "
                           "it is the number of units that aren't delayed",
                           value);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* The parameters fit each other. */
static char *
ngx_http_weir_complete(ngx_conf_t *cf, ngx_http_weir_limit_t *limit)
{
    if (limit->delay != NGX_CONF_UNSET && limit->burst == 0) {
        return "needs \"burst=\" with \"delay=\" or \"nodelay\"";
    }

    if (limit->peek && limit->burst) {
        return "can't have both \"peek\" and \"burst=\": "
               "a peek doesn't wait";
    }

    if (limit->delay == NGX_CONF_UNSET) {
        limit->delay = 0;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_weir_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t                 room;
    ngx_slab_pool_t       *shpool;
    ngx_http_weir_zone_t  *zone;

    if (data) {
        return ngx_http_weir_reuse_zone(shm_zone, data);
    }

    zone = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;
    room = shpool->pfree * ngx_pagesize;

    zone->names_max = ngx_http_weir_names_max(room);

    if (zone->names_max < NGX_HTTP_WEIR_NAMES_MIN) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "weir_zone \"%V\" is too small, "
                      "it must have at least %uzk", &shm_zone->shm.name,
                      (ngx_http_weir_bytes(NGX_HTTP_WEIR_NAMES_MIN)
                       + shm_zone->shm.size - room) / 1024 + 1);
        return NGX_ERROR;
    }

    /* zeroed by the system, and not again: parts of it may stay unused */

    zone->size = room;
    zone->memory = ngx_slab_alloc(shpool, room);

    if (zone->memory == NULL) {
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                  "weir_zone \"%V\" has room for %uD names",
                  &shm_zone->shm.name, zone->names_max);

    return NGX_OK;
}


static ngx_int_t
ngx_http_weir_reuse_zone(ngx_shm_zone_t *shm_zone, ngx_http_weir_zone_t *ozone)
{
    ngx_http_weir_zone_t  *zone;

    zone = shm_zone->data;

    if (zone->roots.len != ozone->roots.len
        || ngx_strncmp(zone->roots.data, ozone->roots.data, zone->roots.len)
           != 0)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "weir_zone \"%V\" uses the roots \"%V\" "
                      "while previously it used \"%V\", "
                      "a zone of another name can use them",
                      &shm_zone->shm.name, &zone->roots, &ozone->roots);
        return NGX_ERROR;
    }

    zone->memory = ozone->memory;
    zone->size = ozone->size;
    zone->names_max = ozone->names_max;

    return NGX_OK;
}


/* The number of names for which a table of so many bytes has room. */
static uint32_t
ngx_http_weir_names_max(size_t room)
{
    uint32_t  least, most, some;

    least = 0;
    most = NGX_HTTP_WEIR_NAMES_MAX;

    while (least < most) {
        some = most - (most - least) / 2;

        if (ngx_http_weir_bytes(some) <= room) {
            least = some;

        } else {
            most = some - 1;
        }
    }

    return least;
}


static size_t
ngx_http_weir_bytes(uint32_t names_max)
{
    struct weir_options  shape;

    ngx_memzero(&shape, sizeof(struct weir_options));

    shape.struct_size = sizeof(struct weir_options);
    shape.threads_max = WEIR_PROCESSES_MAX;
    shape.memory_max = (uint64_t) names_max * NGX_HTTP_WEIR_NAME_BYTES;

    return weir_table_bytes(&shape);
}


static ngx_int_t
ngx_http_weir_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_weir_preaccess_handler;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_weir_precontent_handler;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_weir_log_handler;

    return NGX_OK;
}
