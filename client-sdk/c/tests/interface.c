/* The interface without a network: arguments, buffers, versions. Fails with the line that is wrong. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packrat.h"

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static const uint8_t seed[PACKRAT_SEED_LENGTH] = {7};

static packrat_shim *make(void) {
    packrat_config config;
    packrat_shim *shim = NULL;
    CHECK(packrat_config_init(&config, sizeof config) == PACKRAT_OK);
    CHECK(config.size == sizeof config && config.maximum_hold == 1000000);
    CHECK(packrat_shim_new(&config, seed, 1000000, &shim) == PACKRAT_OK && shim != NULL);
    return shim;
}

static void arguments(void) {
    packrat_config config;
    packrat_statistics statistics;
    packrat_shim *shim = (packrat_shim *)&config;
    uint8_t out[64], mark;
    size_t length, skip;
    CHECK(packrat_config_init(NULL, sizeof config) == PACKRAT_ARGUMENT);
    CHECK(packrat_config_init(&config, offsetof(packrat_config, uploads) - 1) == PACKRAT_ARGUMENT);
    CHECK(packrat_config_init(&config, sizeof config) == PACKRAT_OK);
    CHECK(packrat_shim_new(NULL, seed, 0, &shim) == PACKRAT_ARGUMENT && shim == NULL);
    CHECK(packrat_shim_new(&config, NULL, 0, &shim) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_new(&config, seed, 0, NULL) == PACKRAT_ARGUMENT);
    config.scheme = 9;
    CHECK(packrat_shim_new(&config, seed, 0, &shim) == PACKRAT_ARGUMENT);
    config.scheme = PACKRAT_SCHEME_PAYLOAD;
    config.uploads = 2;
    CHECK(packrat_shim_new(&config, seed, 0, &shim) == PACKRAT_ARGUMENT);
    config.uploads = 0;
    config.scheme = PACKRAT_SCHEME_TRAILER;
    config.token_length = 1; /* and no token */
    CHECK(packrat_shim_new(&config, seed, 0, &shim) == PACKRAT_ARGUMENT);
    uint8_t token[4096] = {0};
    config.token = token;
    config.token_length = sizeof token;
    CHECK(packrat_shim_new(&config, seed, 0, &shim) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_receive(NULL, out, 1, 0, 0, &skip) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_deliver(NULL, out, sizeof out, &length, &mark) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_transmit(NULL, out, sizeof out, &length, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_timeout(NULL) == PACKRAT_NEVER);
    CHECK(packrat_shim_on_timeout(NULL, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_set_access(NULL, NULL, token, 1, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_network_changed(NULL, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_overflowed(NULL, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_release(NULL) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_close(NULL, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_sent(NULL, 1, 1) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_send(NULL, out, 1, 0, out) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_bundle(NULL, out, 1, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_statistics(NULL, &statistics, sizeof statistics) == PACKRAT_ARGUMENT);
    packrat_shim_free(NULL);

    shim = make();
    CHECK(packrat_shim_receive(shim, NULL, 1, 0, 0, &skip) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_receive(shim, NULL, 0, 0, 0, &skip) == PACKRAT_PASS && skip == 0);
    CHECK(packrat_shim_receive(shim, out, 1, 0, 0, NULL) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_set_access(shim, NULL, token, sizeof token, 0) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_statistics(shim, NULL, sizeof statistics) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_statistics(shim, &statistics, 1) == PACKRAT_ARGUMENT);
    packrat_shim_free(shim);
}

static void buffers(void) {
    packrat_shim *shim = make();
    uint8_t out[2048], mark = 9;
    size_t length = 0, skip = 9;
    /* The question for a gateway: it survives a call with too little space. */
    CHECK(packrat_shim_transmit(shim, out, 3, &length, 1000000) == PACKRAT_SPACE && length > 3);
    size_t needed = length;
    uint8_t *exact = malloc(needed);
    CHECK(packrat_shim_transmit(shim, exact, needed, &length, 1000000) == PACKRAT_OK && length == needed);
    free(exact);
    CHECK(packrat_shim_transmit(shim, out, sizeof out, &length, 1000000) == PACKRAT_EMPTY);
    CHECK(packrat_shim_deliver(shim, out, sizeof out, &length, &mark) == PACKRAT_EMPTY);
    /* It is asked again, in the shim's own time. */
    uint64_t due = packrat_shim_timeout(shim);
    CHECK(due > 1000000 && due != PACKRAT_NEVER);
    CHECK(packrat_shim_on_timeout(shim, due) == PACKRAT_OK);
    CHECK(packrat_shim_transmit(shim, out, sizeof out, &length, due) == PACKRAT_OK);
    /* Outgoing datagrams get no number, as no gateway has agreed. */
    uint8_t number[PACKRAT_NUMBER_LENGTH];
    CHECK(packrat_shim_send(shim, out, 1, due, number) == PACKRAT_EMPTY);
    CHECK(packrat_shim_bundle(shim, out, 1, due) == PACKRAT_EMPTY);
    CHECK(packrat_shim_bundle(shim, NULL, 1, due) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_send(shim, NULL, 1, due, number) == PACKRAT_ARGUMENT);
    CHECK(packrat_shim_send(shim, out, 1, due, NULL) == PACKRAT_ARGUMENT);
    /* Without a gateway everything passes, also what only begins like a gateway's message. */
    CHECK(packrat_shim_receive(shim, (const uint8_t *)"hello", 5, 2, due, &skip) == PACKRAT_PASS && skip == 0);
    CHECK(packrat_shim_receive(shim, (const uint8_t *)"\x0bPkr forged", 11, 2, due, &skip) == PACKRAT_PASS && skip == 0);
    packrat_statistics statistics;
    CHECK(packrat_shim_statistics(shim, &statistics, sizeof statistics) == PACKRAT_OK);
    CHECK(statistics.size == sizeof statistics && statistics.condition == PACKRAT_ASKING);
    CHECK(statistics.delivered_datagrams == 2 && statistics.delivered_bytes == 16);
    CHECK(packrat_shim_close(shim, due) == PACKRAT_OK);
    packrat_shim_free(shim);
}

static void texts(void) {
    CHECK(packrat_abi() == PACKRAT_ABI);
    CHECK(strncmp(packrat_version(), "0.1.", 4) == 0);
    CHECK(packrat_protocol_version() > 0);
    for (int32_t code = -10; code < 10; code++)
        CHECK(strlen(packrat_error_text(code)) > 4);
    for (uint32_t condition = 0; condition < 10; condition++)
        CHECK(strlen(packrat_condition_text(condition)) > 4);
    CHECK(strcmp(packrat_condition_text(PACKRAT_ASSISTED), "assisted") == 0);
}

int main(void) {
    arguments();
    buffers();
    texts();
    return 0;
}
