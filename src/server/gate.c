/* SPDX-License-Identifier: MIT
 * server/gate.c - the doors' one way in.
 *
 * Every refusal is counted. Of the log strangers get a line a second for each
 * kind of refusal at each door and no more, or they could fill the disk; the
 * line says how many such went before it without one. */

#include "server/gate.h"

#include <string.h>

const char *weir_door_name(enum weir_door door)
{
    switch (door) {
    case WEIR_DOOR_GRPC:
        return "grpc";
    case WEIR_DOOR_HTTP:
        return "http";
    }
    return "unknown";
}

const char *weir_refusal_name(enum weir_refusal refusal)
{
    switch (refusal) {
    case WEIR_REFUSED_TLS:
        return "tls";
    case WEIR_REFUSED_CREDENTIAL:
        return "credential";
    case WEIR_REFUSED_ROLE:
        return "role";
    }
    return "unknown";
}

bool weir_gate_is_shut(const struct weir_gate *gate)
{
    return gate->credentials != NULL;
}

void weir_gate_note(struct weir_gate *gate, enum weir_door door,
                    enum weir_refusal refusal, const char *address,
                    const char *why, weir_instant now)
{
    weir_instant *logged = &gate->logged[door][refusal];
    uint64_t *unlogged = &gate->unlogged[door][refusal];
    gate->refused[door][refusal]++;
    bool soon = *logged != 0 && now < *logged + WEIR_GATE_LOG_EVERY;
    if (soon || !gate->log) {
        ++*unlogged;
        return;
    }
    weir_log(gate->log, WEIR_LOG_WARNING,
             "%s door: %s refused (%s): %s; %llu more since the last such "
             "line", weir_door_name(door), address,
             weir_refusal_name(refusal), why,
             (unsigned long long)*unlogged);
    *logged = now;
    *unlogged = 0;
}

int weir_gate_identify(struct weir_gate *gate, const struct weir_caller *who,
                       struct weir_identity *out, struct weir_diag *diag,
                       weir_instant now)
{
    const char *names[WEIR_TLS_NAMES_MAX];
    size_t count = who->names ? who->names->count : 0;
    for (size_t i = 0; i < count; i++)
        names[i] = who->names->name[i];
    struct weir_diag why = { 0 };
    int error =
        weir_credentials_find(gate->credentials, names, count,
                              weir_text_of(who->authorization), out, &why);
    if (error == 0)
        return 0;
    weir_gate_note(gate, who->door, WEIR_REFUSED_CREDENTIAL, who->address,
                   why.text, now);
    return weir_diag_set(diag, error, why.text, NULL);
}

int weir_gate_admit(struct weir_gate *gate, const struct weir_caller *who,
                    const struct weir_identity *identity, enum weir_role role,
                    struct weir_diag *diag, weir_instant now)
{
    struct weir_diag why = { 0 };
    int error = weir_identity_check(identity, role, &why);
    if (error == 0)
        return 0;
    weir_gate_note(gate, who->door, WEIR_REFUSED_ROLE, who->address, why.text,
                   now);
    return weir_diag_set(diag, error, why.text, NULL);
}
