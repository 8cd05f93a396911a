/* SPDX-License-Identifier: MIT
 * io/listener_streams.c - what a stream needs of the listener that accepted
 * it. listener.c makes streams; this file calls neither. */

#include <stdlib.h>

#include "io/stream_internal.h"

void weir_listener_free_if_unused(struct weir_listener *listener)
{
    if (listener->acceptor || listener->live > 0)
        return;
    weir_ration_free(&listener->ration);
    free(listener);
}

void weir_listener_release(struct weir_listener *listener)
{
    weir_assert(listener->live > 0);
    listener->live--;
    if (listener->acceptor && listener->live < listener->options.max)
        weir_acceptor_set_open(listener->acceptor, true);
    weir_listener_free_if_unused(listener);
}

void weir_listener_open(struct weir_listener *listener,
                        struct weir_stream *stream)
{
    listener->options.on_accept(listener->options.context, stream);
}

void weir_listener_refuse(struct weir_listener *listener, const char *peer,
                          const char *why)
{
    listener->refused++;
    if (listener->acceptor && listener->options.on_refused)
        listener->options.on_refused(listener->options.context, peer, why);
}

void weir_listener_evicted(struct weir_listener *listener, const char *peer,
                           const char *why)
{
    if (listener->acceptor && listener->options.on_evicted)
        listener->options.on_evicted(listener->options.context, peer, why);
}
