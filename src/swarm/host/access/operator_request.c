/* operator_request.c - requests of the operator as JSON. */
#include "swarm/host/access/operator.h"

#include <stdio.h>
#include <string.h>

static const double seconds_max = 1e9; // three decades
static const char *const names[STRAIT_OPERATOR_KINDS] = {"status", "kick",   "ban",     "unban",
                                                         "rotate", "invite", "invites", "revoke"};

char *strait_operator_format(const strait_operator_request *request) {
    json_t *object = json_pack("{ss ss sf sI sI}", "command", names[request->kind], "target",
                               request->target, "seconds", request->seconds, "uses",
                               (json_int_t)request->uses, "id", (json_int_t)request->id);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* A missing number is 0. */
static strait_err read_number(const json_t *object, const char *key, double most, double *out) {
    const json_t *value = json_object_get(object, key);
    *out = json_number_value(value);
    if (value == NULL || (json_is_number(value) && *out >= 0.0 && *out <= most)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "\"%s\": expected a number from 0 to %.0f", key, most);
}

static strait_err read_request(const json_t *object, strait_operator_request *out) {
    const char *name = json_string_value(json_object_get(object, "command"));
    const char *target = json_string_value(json_object_get(object, "target"));
    double uses = 0.0, id = 0.0;
    int kind = 0;
    while (kind < STRAIT_OPERATOR_KINDS && (name == NULL || strcmp(name, names[kind]) != 0))
        kind++;
    if (kind == STRAIT_OPERATOR_KINDS)
        return STRAIT_FAIL(STRAIT_ECONFIG, "unknown command '%.40s'", name != NULL ? name : "");
    *out = (strait_operator_request){.kind = (strait_operator_kind)kind};
    const int needs_target = kind == STRAIT_OPERATOR_KICK || kind == STRAIT_OPERATOR_BAN ||
                             kind == STRAIT_OPERATOR_UNBAN;
    if (target != NULL && strlen(target) >= sizeof out->target)
        return STRAIT_FAIL(STRAIT_ECONFIG, "\"target\" has more than %zu characters",
                           sizeof out->target - 1);
    if (needs_target && (target == NULL || target[0] == '\0'))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: no worker is named", names[kind]);
    (void)snprintf(out->target, sizeof out->target, "%s", target != NULL ? target : "");
    STRAIT_TRY(read_number(object, "seconds", seconds_max, &out->seconds));
    STRAIT_TRY(read_number(object, "uses", UINT32_MAX, &uses));
    STRAIT_TRY(read_number(object, "id", UINT32_MAX, &id));
    out->uses = (uint32_t)uses;
    out->id = (uint32_t)id;
    return STRAIT_OK;
}

strait_err strait_operator_parse(const char *text, strait_operator_request *out) {
    json_t *object = NULL;
    strait_err err = strait_json_parse(text, strlen(text), &object);
    if (err == STRAIT_OK && !json_is_object(object))
        err = STRAIT_FAIL(STRAIT_ECONFIG, "a request is a JSON object");
    if (err == STRAIT_OK) err = read_request(object, out);
    json_decref(object);
    return err == STRAIT_OK || err == STRAIT_ENOMEM ? err : STRAIT_ECONFIG;
}
