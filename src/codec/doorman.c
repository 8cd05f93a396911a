/* SPDX-License-Identifier: MIT
 * codec/doorman.c - Doorman's messages, by tables of their fields
 * (message_fields.h). A required field is written even if it is 0, but may be
 * absent in a message that is read. */

#include "codec/doorman.h"

#include "codec/message_fields.h"

#define THIS struct weir_doorman_lease
static const struct weir_proto_field lease_fields[] = {
    { 1, NUMBER(expiry_s), ALWAYS },
    { 2, NUMBER(refresh_s), ALWAYS },
    { 3, DOUBLE(capacity), ALWAYS },
};
static const struct weir_proto_message lease = { FIELDS(lease_fields) };
#undef THIS

#define THIS struct weir_doorman_mastership
static const struct weir_proto_field mastership_fields[] = {
    { 1, TEXT(address) },
};
static const struct weir_proto_message mastership = { FIELDS(
    mastership_fields) };
#undef THIS

#define THIS struct weir_doorman_resource
static const struct weir_proto_field resource_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, NUMBER(priority), ALWAYS },
    { 3, PART(has, lease), IF(has.given) },
    { 4, DOUBLE(wants), ALWAYS },
};
static const struct weir_proto_message resource = { FIELDS(resource_fields) };
#undef THIS

#define THIS struct weir_doorman_band
static const struct weir_proto_field band_fields[] = {
    { 1, NUMBER(priority), ALWAYS },
    { 2, NUMBER(num_clients), ALWAYS },
    { 3, DOUBLE(wants), ALWAYS },
};
static const struct weir_proto_message band = { FIELDS(band_fields) };
#undef THIS

#define THIS struct weir_doorman_server_resource
static const struct weir_proto_field server_resource_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, PART(has, lease), IF(has.given) },
    { 3, PARTS(bands, band_count, band), .max = WEIR_DOORMAN_BANDS_MAX },
};
static const struct weir_proto_message server_resource = { FIELDS(
    server_resource_fields) };
#undef THIS

#define THIS struct weir_doorman_parameter
static const struct weir_proto_field parameter_fields[] = {
    { 1, TEXT(name), ALWAYS },
    { 2, TEXT(value) },
};
static const struct weir_proto_message parameter = { FIELDS(parameter_fields) };
#undef THIS

#define THIS struct weir_doorman_algorithm
static const struct weir_proto_field algorithm_fields[] = {
    { 1, INT32(kind), ALWAYS },
    { 2, NUMBER(lease_length_s), ALWAYS },
    { 3, NUMBER(refresh_s), ALWAYS },
    { 4, PARTS(parameters, parameter_count, parameter),
      .max = WEIR_DOORMAN_PARAMETERS_MAX },
    { 5, NUMBER(learning_s), IF(learning_given) },
};
static const struct weir_proto_message algorithm = { FIELDS(algorithm_fields) };
#undef THIS

#define THIS struct weir_doorman_grant
static const struct weir_proto_field grant_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, PART(gets, lease), NOTED(gets.given) },
    { 3, DOUBLE(safe_capacity), IF(safe_given) },
};
static const struct weir_proto_message grant = { FIELDS(grant_fields) };
static const struct weir_proto_field server_grant_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, PART(gets, lease), NOTED(gets.given) },
    { 3, PART(algorithm, algorithm), IF(algorithm.given) },
    { 4, DOUBLE(safe_capacity), IF(safe_given) },
};
static const struct weir_proto_message server_grant = { FIELDS(
    server_grant_fields) };
#undef THIS

#define THIS struct weir_doorman_message
#define ROWS(rows, part_) \
    PARTS(rows, count, part_), .max = WEIR_DOORMAN_RESOURCES_MAX
static const struct weir_proto_field discovery_response_fields[] = {
    { 1, PART(mastership, mastership), NOTED(mastership.given) },
    { 2, BOOL(is_master), ALWAYS },
};
static const struct weir_proto_field get_request_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, ROWS(resources, resource) },
};
static const struct weir_proto_field get_response_fields[] = {
    { 1, ROWS(grants, grant) },
    { 2, PART(mastership, mastership), IF(mastership.given) },
};
static const struct weir_proto_field server_request_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, ROWS(server_resources, server_resource) },
};
static const struct weir_proto_field server_response_fields[] = {
    { 1, ROWS(grants, server_grant) },
    { 2, PART(mastership, mastership), IF(mastership.given) },
};
static const struct weir_proto_field release_request_fields[] = {
    { 1, TEXT(id), ALWAYS },
    { 2, TEXTS(released, count), .max = WEIR_DOORMAN_RESOURCES_MAX },
};
static const struct weir_proto_field release_response_fields[] = {
    { 1, PART(mastership, mastership), IF(mastership.given) },
};

static const struct weir_proto_message messages[WEIR_DOORMAN_TYPES] = {
    [WEIR_DOORMAN_DISCOVERY_REQUEST] = { .size = sizeof(THIS) },
    [WEIR_DOORMAN_DISCOVERY_RESPONSE] = { FIELDS(discovery_response_fields) },
    [WEIR_DOORMAN_GET_REQUEST] = { FIELDS(get_request_fields) },
    [WEIR_DOORMAN_GET_RESPONSE] = { FIELDS(get_response_fields) },
    [WEIR_DOORMAN_SERVER_REQUEST] = { FIELDS(server_request_fields) },
    [WEIR_DOORMAN_SERVER_RESPONSE] = { FIELDS(server_response_fields) },
    [WEIR_DOORMAN_RELEASE_REQUEST] = { FIELDS(release_request_fields) },
    [WEIR_DOORMAN_RELEASE_RESPONSE] = { FIELDS(release_response_fields) },
};
#undef THIS

size_t weir_doorman_size(const struct weir_doorman_message *message)
{
    return weir_proto_size(&messages[message->type], message);
}

int weir_doorman_encode(const struct weir_doorman_message *message, void *buf,
                        size_t size)
{
    size_t len = weir_doorman_size(message);
    if (len > size || len > WEIR_DOORMAN_BYTES_MAX)
        return WEIR_ETOOBIG;
    if (len > 0)
        weir_proto_put(&messages[message->type], message, len, buf);
    return (int)len;
}

int weir_doorman_decode(const void *bytes, size_t len,
                        enum weir_doorman_type type, struct weir_arena *arena,
                        struct weir_doorman_message *out,
                        struct weir_diag *diag)
{
    if (len > WEIR_DOORMAN_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "a message has at most 4 MiB");
    arena->used = 0;
    struct weir_doorman_message message;
    const char *why = NULL;
    int error =
        weir_proto_get(&messages[type], weir_wire_over(bytes, len),
                       WEIR_PROTO_AGAIN_PART_REFUSED, arena, &message, &why);
    if (error == WEIR_ESYNTAX)
        return weir_diag_put(diag, error, "the bytes are no protobuf message");
    if (error == WEIR_ETOOBIG)
        return weir_diag_put(
            diag, error,
            "too many resources, bands or parameters in one message");
    if (error < 0)
        return weir_diag_set(
            diag, error, "the bytes are no message of doorman.Capacity: ", why,
            NULL);
    message.type = type;
    *out = message;
    return 0;
}
