/* A client of plain datagrams with POSIX sockets: asks a server for COUNT datagrams, and reports
 * their arrival. Every UDP program has these three parts: the socket, the timer, the shim between.
 *
 *   cc download.c $(pkg-config --cflags --libs packrat) -o download
 *   ./download 192.0.2.7 4000 5000
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "packrat.h"

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct progress {
    uint32_t count, received, wrong, out_of_order;
    int64_t newest;
    unsigned char *seen;
};

/* The program's own part: a datagram has its number, and bytes that follow from that. */
static void on_datagram(struct progress *progress, const uint8_t *data, size_t length) {
    if (length < 4) {
        progress->wrong++;
        return;
    }
    uint32_t number = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    uint32_t state = number * 2654435761u | 1;
    for (size_t at = 4; at + 4 <= length; at += 4) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        uint8_t expected[4] = {(uint8_t)(state >> 24), (uint8_t)(state >> 16), (uint8_t)(state >> 8), (uint8_t)state};
        if (memcmp(data + at, expected, 4) != 0) {
            progress->wrong++;
            return;
        }
    }
    if (number >= progress->count) {
        progress->wrong++;
        return;
    }
    if (progress->seen[number]) /* a copy: any path may have some */
        return;
    progress->seen[number] = 1;
    progress->received++;
    if ((int64_t)number < progress->newest)
        progress->out_of_order++;
    else
        progress->newest = number;
}

/* After every call: the ready datagrams, for the program and for the gateway. */
static void serve(packrat_shim *shim, int fd, struct progress *progress) {
    uint8_t buffer[65536];
    size_t length;
    uint8_t mark;
    while (packrat_shim_deliver(shim, buffer, sizeof buffer, &length, &mark) == PACKRAT_OK)
        on_datagram(progress, buffer, length);
    while (packrat_shim_transmit(shim, buffer, sizeof buffer, &length, now_us()) == PACKRAT_OK)
        (void)!send(fd, buffer, length, 0); /* one that is not sent is lost, as any datagram may be */
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDRESS PORT COUNT\n", argv[0]);
        return 2;
    }
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (inet_pton(AF_INET, argv[1], &server.sin_addr) != 1 || fd < 0 ||
        connect(fd, (struct sockaddr *)&server, sizeof server) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        fprintf(stderr, "cannot reach %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    packrat_config config;
    packrat_shim *shim = NULL;
    uint8_t seed[PACKRAT_SEED_LENGTH];
    packrat_config_init(&config, sizeof config);
    int32_t code = getrandom(seed, sizeof seed, 0) == (ssize_t)sizeof seed
                       ? packrat_shim_new(&config, seed, now_us(), &shim)
                       : PACKRAT_ARGUMENT;
    if (code != PACKRAT_OK) {
        fprintf(stderr, "no shim: %s\n", packrat_error_text(code));
        return 1;
    }

    struct progress progress = {.count = (uint32_t)strtoul(argv[3], NULL, 10), .newest = -1};
    progress.seen = calloc(progress.count + 1, 1);
    char question[32];
    int asked = snprintf(question, sizeof question, "get %u", progress.count);
    uint64_t ask_at = now_us(), last_news = now_us();
    uint8_t buffer[65536];
    /* Ten seconds of silence are the end: the last one may be lost for good. */
    while (progress.received < progress.count && now_us() - last_news < 10000000u) {
        uint64_t now = now_us();
        if (progress.received == 0 && now >= ask_at) {
            if (send(fd, question, (size_t)asked, 0) == asked)
                packrat_shim_sent(shim, 1, (uint32_t)asked);
            ask_at = now + 1000000;
        }
        if (packrat_shim_timeout(shim) <= now)
            packrat_shim_on_timeout(shim, now);
        serve(shim, fd, &progress);
        uint64_t due = packrat_shim_timeout(shim), wait = 100000;
        if (due != PACKRAT_NEVER && due < now + wait)
            wait = due > now ? due - now : 0;
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (poll(&readable, 1, (int)((wait + 999) / 1000)) <= 0)
            continue;
        ssize_t length;
        while ((length = recv(fd, buffer, sizeof buffer, 0)) >= 0) {
            size_t skip;
            last_news = now_us();
            if (packrat_shim_receive(shim, buffer, (size_t)length, 0, last_news, &skip) == PACKRAT_PASS)
                on_datagram(&progress, buffer + skip, (size_t)length - skip);
            serve(shim, fd, &progress);
        }
    }
    packrat_shim_close(shim, now_us());
    serve(shim, fd, &progress);

    packrat_statistics statistics;
    packrat_shim_statistics(shim, &statistics, sizeof statistics);
    printf("received %u of %u, wrong %u, out of order %u\n", progress.received, progress.count, progress.wrong,
           progress.out_of_order);
    printf("condition %s, sessions %llu, holes %llu, repaired in time %llu, late %llu, given up %llu\n",
           packrat_condition_text(statistics.condition), (unsigned long long)statistics.sessions,
           (unsigned long long)statistics.holes, (unsigned long long)statistics.repaired_in_time,
           (unsigned long long)statistics.repaired_late, (unsigned long long)statistics.given_up);
    packrat_shim_free(shim);
    free(progress.seen);
    close(fd);
    return 0;
}
