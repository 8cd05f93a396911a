/* SPDX-License-Identifier: MIT
 * codec/doorman.h - Google's Doorman on the wire: doorman.Capacity, messages to
 * bytes and back, requests and responses of all four calls.
 *
 * The bytes are one protobuf message (proto/doorman.proto), without the gRPC
 * frame. The encoder writes every required field, zeros included, as the
 * original's decoder demands. The decoder also accepts messages that leave
 * zeros out, as proto3 does. */

#ifndef WEIR_DOORMAN_H
#define WEIR_DOORMAN_H

#include "codec/arena.h"

#define WEIR_DOORMAN_DISCOVERY "/doorman.Capacity/Discovery"
#define WEIR_DOORMAN_GET_CAPACITY "/doorman.Capacity/GetCapacity"
#define WEIR_DOORMAN_GET_SERVER_CAPACITY "/doorman.Capacity/GetServerCapacity"
#define WEIR_DOORMAN_RELEASE_CAPACITY "/doorman.Capacity/ReleaseCapacity"

/* Bounds. A message over one of them is refused, not cut. */
#define WEIR_DOORMAN_BYTES_MAX (4u << 20) /* of a message, as gRPC's default */
#define WEIR_DOORMAN_RESOURCES_MAX 65536u /* of a request or response */
#define WEIR_DOORMAN_BANDS_MAX 64u        /* of a resource */
#define WEIR_DOORMAN_PARAMETERS_MAX 16u   /* of an algorithm */
#define WEIR_DOORMAN_ID_MAX 255u          /* bytes of a resource's id */
/* Bytes of a client's or server's id. */
#define WEIR_DOORMAN_CLIENT_ID_MAX WEIR_GIVEN_NAME_MAX
#define WEIR_DOORMAN_ADDRESS_MAX 512u       /* bytes of a master's address */
#define WEIR_DOORMAN_WANTS_MAX 1e18         /* of a resource, over its bands */
#define WEIR_DOORMAN_CLIENTS_MAX 1000000000 /* likewise */
/* Enough for any message within the bounds of bytes and resources, with each of
 * its parts filled in. A message that finds no room is refused. */
#define WEIR_DOORMAN_ARENA_SIZE (16u << 20)

enum weir_doorman_type {
    WEIR_DOORMAN_DISCOVERY_REQUEST,
    WEIR_DOORMAN_DISCOVERY_RESPONSE,
    WEIR_DOORMAN_GET_REQUEST,
    WEIR_DOORMAN_GET_RESPONSE,
    WEIR_DOORMAN_SERVER_REQUEST, /* of GetServerCapacity */
    WEIR_DOORMAN_SERVER_RESPONSE,
    WEIR_DOORMAN_RELEASE_REQUEST,
    WEIR_DOORMAN_RELEASE_RESPONSE,
};
#define WEIR_DOORMAN_TYPES 8

/* The kinds that are known. A number on the wire or in a file may be another
 * one. */
enum weir_doorman_kind {
    WEIR_DOORMAN_NO_ALGORITHM = 0,
    WEIR_DOORMAN_STATIC = 1,
    WEIR_DOORMAN_PROPORTIONAL_SHARE = 2,
    WEIR_DOORMAN_FAIR_SHARE = 3,
};

/* 'given' of an optional part: whether it is present. A part that the protocol
 * requires is written whatever 'given' is. */

struct weir_doorman_mastership {
    bool given;               /* the sender isn't the master (in discovery it
                               * may be; see is_master) */
    struct weir_text address; /* the master, HOST:PORT; empty: unknown */
};

struct weir_doorman_lease {
    bool given;
    int64_t expiry_s;  /* Unix time on the sender's clock */
    int64_t refresh_s; /* seconds between two requests of the client */
    double capacity;   /* in a 'has' of an old client it may be negative, which
                        * the original granted by mistake: take it for 0 */
};

struct weir_doorman_resource {
    struct weir_text id;
    int64_t priority;
    struct weir_doorman_lease has; /* optional */
    double wants;
};

/* The sum of the wants of all clients of one priority below the requesting
 * server. */
struct weir_doorman_band {
    int64_t priority;
    int64_t num_clients;
    double wants;
};
struct weir_doorman_server_resource {
    struct weir_text id;
    struct weir_doorman_lease has; /* optional */
    size_t band_count;
    const struct weir_doorman_band *bands;
};

struct weir_doorman_parameter {
    struct weir_text name;
    struct weir_text value; /* optional */
};
struct weir_doorman_algorithm {
    bool given;
    int32_t kind; /* enum weir_doorman_kind, or another number */
    int64_t lease_length_s;
    int64_t refresh_s;
    size_t parameter_count;
    const struct weir_doorman_parameter *parameters;
    bool learning_given;
    int64_t learning_s;
};

struct weir_doorman_grant {
    struct weir_text id;            /* the resource's id */
    struct weir_doorman_lease gets; /* required */
    bool safe_given;
    double safe_capacity; /* below 0: no limit while no server answers */
    struct weir_doorman_algorithm algorithm; /* optional, SERVER_RESPONSE */
};

struct weir_doorman_message {
    enum weir_doorman_type type;
    struct weir_text id; /* the requesting client or server; not in discovery */
    struct weir_doorman_mastership mastership; /* responses: optional, in that
                                                * of discovery required */
    bool is_master;                            /* DISCOVERY_RESPONSE */
    size_t count;                              /* of the list that follows */
    union {
        const struct weir_doorman_resource *resources; /* GET_REQUEST */
        const struct weir_doorman_server_resource *server_resources;
        const struct weir_doorman_grant *grants; /* GET_, SERVER_RESPONSE */
        const struct weir_text *released;        /* RELEASE_REQUEST */
    };
};

/* The bytes 'message' takes. */
size_t weir_doorman_size(const struct weir_doorman_message *message);

/* Encodes into 'buf' of 'size' bytes. Returns the bytes written, which may be
 * none for some messages, or WEIR_ETOOBIG (they didn't fit). */
int weir_doorman_encode(const struct weir_doorman_message *message, void *buf,
                        size_t size);

/* Decodes a message of that type into 'arena', which is set back first. Texts
 * point into 'bytes', lists into 'arena': both must outlive 'out'. Numbers and
 * texts aren't validated: see weir_doorman_check(). Of a number that comes
 * twice the last one counts; unknown fields are skipped. Returns 0,
 * WEIR_ESYNTAX (broken bytes), WEIR_EPROTOCOL (a field of another type, a part
 * that comes twice) or WEIR_ETOOBIG, with 'diag' (may be NULL). */
int weir_doorman_decode(const void *bytes, size_t len,
                        enum weir_doorman_type type, struct weir_arena *arena,
                        struct weir_doorman_message *out,
                        struct weir_diag *diag);

/* Validates the values of a response, or those of a request without its rows.
 * 0, or WEIR_EINVAL with a sentence for the peer in 'diag' (gRPC:
 * INVALID_ARGUMENT): ids are UTF-8 without control characters, and not empty;
 * that of a client or server has at most WEIR_DOORMAN_CLIENT_ID_MAX bytes, that
 * of a resource WEIR_DOORMAN_ID_MAX; capacities are finite; a resource of a
 * SERVER_REQUEST has a band, and each band 1 .. WEIR_DOORMAN_CLIENTS_MAX
 * clients, that many at most in sum. */
int weir_doorman_check(const struct weir_doorman_message *message,
                       struct weir_diag *diag);
/* Validates the id of one row of a GET_, SERVER_ or RELEASE_REQUEST likewise: a
 * row with a bad one can't be answered. A resource may be named twice. 'index'
 * is below the request's count (both asserted). */
int weir_doorman_check_row(const struct weir_doorman_message *message,
                           size_t index, struct weir_diag *diag);
/* Validates the amounts of one row of a GET_ or SERVER_REQUEST likewise: 'has'
 * is finite; wants are from 0 to WEIR_DOORMAN_WANTS_MAX, also in sum. A row
 * with bad ones must be answered all the same (doorman_check.c): a bad 'has' is
 * then taken for none, and bad wants for the sound ones. */
int weir_doorman_check_amounts(const struct weir_doorman_message *message,
                               size_t index, struct weir_diag *diag);
/* The nearest number from 0 to 'most', at most WEIR_DOORMAN_WANTS_MAX; of no
 * number 0. */
double weir_doorman_sound_wants(double wants, double most);

#endif /* WEIR_DOORMAN_H */
