/**
 * @file packrat.h
 * The client of Packrat for programs in C. Version 0.1.
 *
 * A shim is between a UDP socket and an unmodified transport: datagrams in, the same datagrams out,
 * in the order in which a gateway has forwarded them, repairs included. Without a gateway every
 * datagram passes at once and uncopied.
 *
 * - One shim per peer that the program is a client of, over one socket.
 * - Buffers are the caller's, handles the library's. Neither keeps pointers to the other's memory
 *   after a call.
 * - The library never blocks, opens a socket, starts a thread or calls back.
 * - A handle is used by one thread at a time, and may move between threads. Handles are independent.
 * - Times are microseconds of any one monotonic clock.
 * - Errors are negative. A failure inside the library never reaches the program: the shim is
 *   removed, its condition is PACKRAT_FAILED, and datagrams pass.
 * - Structures begin with their size: programs that were built with an older header keep working.
 *
 * Written by cbindgen from client-sdk/c/src/lib.rs: make write-c-header.
 */

#ifndef PACKRAT_H
#define PACKRAT_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. Functions are added to it, never changed.
 */
#define PACKRAT_ABI 1

/**
 * The value of packrat_shim_timeout() when no timer is set.
 */
#define PACKRAT_NEVER UINT64_MAX

/**
 * Done.
 */
#define PACKRAT_OK 0

/**
 * Result of packrat_shim_receive(): the datagram is the transport's, now, without its first bytes.
 */
#define PACKRAT_PASS 0

/**
 * Result of packrat_shim_receive(): the datagram was copied, and comes out of
 * packrat_shim_deliver().
 */
#define PACKRAT_KEPT 1

/**
 * Result of packrat_shim_receive(): the datagram is not the transport's, or the second copy of one
 * that was passed on or copied. Discard it.
 */
#define PACKRAT_CONSUMED 2

/**
 * There is no result (any more).
 */
#define PACKRAT_EMPTY -1

/**
 * An argument is NULL or out of its range.
 */
#define PACKRAT_ARGUMENT -2

/**
 * The buffer is too small. The length needed was stored, and the datagram remains.
 */
#define PACKRAT_SPACE -3

/**
 * The library has failed. The handle is still usable.
 */
#define PACKRAT_INTERNAL -4

/**
 * A gateway repairs for this shim.
 */
#define PACKRAT_ASSISTED 0

/**
 * A gateway is asked.
 */
#define PACKRAT_ASKING 1

/**
 * No gateway answers; it is asked again now and then.
 */
#define PACKRAT_NO_GATEWAY 2

/**
 * A gateway will not assist.
 */
#define PACKRAT_REFUSED 3

/**
 * Assistance has failed in this process; datagrams pass.
 */
#define PACKRAT_FAILED 4

/**
 * Identifiers of all bytes: right for every transport.
 */
#define PACKRAT_SCHEME_PAYLOAD 0

/**
 * Identifiers of the last 16 bytes, which are faster: for QUIC, whose packets end with a tag.
 */
#define PACKRAT_SCHEME_TRAILER 1

/**
 * Bytes of a gateway's key.
 */
#define PACKRAT_KEY_LENGTH 32

/**
 * Bytes in front of a datagram that packrat_shim_send() has taken.
 */
#define PACKRAT_NUMBER_LENGTH 8

/**
 * Bytes of a seed.
 */
#define PACKRAT_SEED_LENGTH 32

/**
 * A shim: the assistance of one peer's datagrams over one socket.
 */
typedef struct packrat_shim packrat_shim;

/**
 * Settings of a shim. packrat_config_init() sets the defaults.
 */
typedef struct {
  /**
   * Bytes of this structure, as the caller knows it.
   */
  uint32_t size;
  /**
   * PACKRAT_SCHEME_PAYLOAD (the default) or PACKRAT_SCHEME_TRAILER.
   */
  uint32_t scheme;
  /**
   * Longest time that a datagram waits for the repair of an earlier one, in microseconds; 0:
   * datagrams never wait. Defaults to 1 s; the actual time follows the measured last mile.
   */
  uint64_t maximum_hold;
  /**
   * The gateway's static public key, PACKRAT_KEY_LENGTH bytes: another gateway is refused. NULL
   * (the default): the first one is trusted.
   */
  const uint8_t *gateway_key;
  /**
   * The token that a token endpoint has issued; NULL (the default): no token.
   */
  const uint8_t *token;
  /**
   * Bytes of the token.
   */
  size_t token_length;
  /**
   * 1: repairs the program's own datagrams as well; the program passes each to
   * packrat_shim_send(). For transports that reduce their rate after each loss (CUBIC, NewReno),
   * not for BBR. Defaults to 0.
   */
  uint32_t uploads;
  /**
   * 0.
   */
  uint32_t reserved;
} packrat_config;

/**
 * Figures of a shim, the same as in every SDK.
 */
typedef struct {
  /**
   * Bytes of this structure that were filled in.
   */
  uint32_t size;
  /**
   * PACKRAT_ASSISTED, PACKRAT_ASKING, PACKRAT_NO_GATEWAY, PACKRAT_REFUSED or PACKRAT_FAILED.
   */
  uint32_t condition;
  /**
   * Round trip to the gateway in microseconds; 0: not measured yet.
   */
  uint64_t round_trip;
  /**
   * Bytes that wait for repairs now.
   */
  uint64_t waiting_bytes;
  /**
   * Datagrams that the program has sent: packrat_shim_sent().
   */
  uint64_t sent_datagrams;
  /**
   * Bytes of the datagrams that the program has sent (UDP payload).
   */
  uint64_t sent_bytes;
  /**
   * Datagrams that the program got.
   */
  uint64_t delivered_datagrams;
  /**
   * Bytes of the datagrams that the program got (UDP payload).
   */
  uint64_t delivered_bytes;
  /**
   * Sessions with gateways that were begun.
   */
  uint64_t sessions;
  /**
   * Datagrams that were missing when a later one arrived.
   */
  uint64_t holes;
  /**
   * Missing datagrams that were repaired before the program could notice.
   */
  uint64_t repaired_in_time;
  /**
   * Missing datagrams that were repaired after a later one had been passed on.
   */
  uint64_t repaired_late;
  /**
   * Missing datagrams whose wait ended without a repair.
   */
  uint64_t given_up;
  /**
   * Datagrams that were put together from the gateway's repair symbols.
   */
  uint64_t recovered;
  /**
   * Datagrams that waited for a repair of an earlier one.
   */
  uint64_t kept;
  /**
   * Datagrams that came more than once.
   */
  uint64_t duplicates;
  /**
   * Control datagrams that were dropped as malformed, forged or replayed.
   */
  uint64_t control_dropped;
  /**
   * eACKs to gateways.
   */
  uint64_t eacks;
  /**
   * Bytes of eACKs to gateways (UDP payload).
   */
  uint64_t eack_bytes;
  /**
   * Bytes of all control datagrams to gateways (UDP payload).
   */
  uint64_t control_bytes_sent;
  /**
   * Bytes of all control datagrams from gateways (UDP payload).
   */
  uint64_t control_bytes_received;
  /**
   * Datagrams of the program's that left with a number, so that they can be repaired.
   */
  uint64_t upward_numbered;
  /**
   * Numbered datagrams that the gateway was missing when a later one had arrived.
   */
  uint64_t upward_missing;
  /**
   * Datagrams of the program's that were sent again, repetitions included.
   */
  uint64_t upward_repairs;
} packrat_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.1.0".
 */
const char *packrat_version(void);

/**
 * The version of the library's interface: PACKRAT_ABI of the header that it was built with.
 */
uint32_t packrat_abi(void);

/**
 * The version of the protocol that the library speaks with gateways.
 */
uint32_t packrat_protocol_version(void);

/**
 * The meaning of a code, in English. Never NULL.
 */
const char *packrat_error_text(int32_t code);

/**
 * The name of a condition, such as "assisted". Never NULL.
 */
const char *packrat_condition_text(uint32_t condition);

/**
 * Sets the defaults. `size`: sizeof(packrat_config); settings that the caller's header lacks have
 * theirs without it.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_config_init(packrat_config *config, size_t size);

/**
 * Makes a shim for one peer. `seed`: PACKRAT_SEED_LENGTH fresh random bytes of the operating
 * system, of which the session's keys are made. `out` gets the handle: packrat_shim_free().
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT; of the latter also for a token that is too long.
 */
int32_t packrat_shim_new(const packrat_config *config,
                         const uint8_t *seed,
                         uint64_t now,
                         packrat_shim **out);

/**
 * Frees a shim. NULL is allowed. Call packrat_shim_close() first, and send the shim's remaining
 * messages.
 */
void packrat_shim_free(packrat_shim *shim);

/**
 * A UDP payload arrived from the peer, exactly as received. `mark` passes through untouched, such
 * as the datagram's ECN bits. `skip` gets the number of bytes in front that are not the
 * transport's. Afterwards call packrat_shim_deliver() and packrat_shim_transmit() until they are
 * empty.
 *
 * Returns PACKRAT_PASS: hand on `datagram + *skip` before anything that is delivered; PACKRAT_KEPT;
 * PACKRAT_CONSUMED; or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_receive(packrat_shim *shim,
                             const uint8_t *datagram,
                             size_t length,
                             uint8_t mark,
                             uint64_t now,
                             size_t *skip);

/**
 * The next datagram for the transport, and its mark.
 *
 * Returns PACKRAT_OK, PACKRAT_EMPTY, PACKRAT_SPACE or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_deliver(packrat_shim *shim,
                             uint8_t *out,
                             size_t space,
                             size_t *length,
                             uint8_t *mark);

/**
 * Call before sending a datagram to the peer, with config.uploads: returns the number to put in
 * front of it. `number` gets PACKRAT_NUMBER_LENGTH bytes, which the gateway removes. Call
 * packrat_shim_timeout() afterwards. If the datagram then does not leave, it counts as lost on the
 * path.
 *
 * Returns PACKRAT_OK: send `number` and the datagram behind it as one; PACKRAT_EMPTY: send the
 * datagram as it is; or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_send(packrat_shim *shim,
                          const uint8_t *datagram,
                          size_t length,
                          uint64_t now,
                          uint8_t *number);

/**
 * Call before sending a datagram to the peer: takes the datagram if it can leave together with
 * others, such as QUIC's acknowledgements in a download. packrat_shim_transmit() then returns it;
 * call that and packrat_shim_timeout() afterwards. The datagram waits for at most 8 ms, and only
 * if that makes the download no slower. Call before packrat_shim_send(), or not at all: a program
 * without this call sends more datagrams.
 *
 * Returns PACKRAT_KEPT: do not send it; PACKRAT_EMPTY: send it; or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_bundle(packrat_shim *shim,
                            const uint8_t *datagram,
                            size_t length,
                            uint64_t now);

/**
 * Counts datagrams and their bytes that the program has sent without numbers, for the figures.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_sent(packrat_shim *shim, uint32_t datagrams, uint32_t bytes);

/**
 * The next control datagram, to send to the peer's address from the program's own socket. Call it
 * after every other call until it is empty. One that cannot be sent may be forgotten. With
 * config.uploads or packrat_shim_bundle(), one whose fifth byte is 0x29 or 0x2a, or that does not begin with
 * 0x0b 'P' 'k' 'r', has the program's own datagrams, and leaves with the ECN mark of its last one.
 *
 * Returns PACKRAT_OK, PACKRAT_EMPTY, PACKRAT_SPACE or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_transmit(packrat_shim *shim,
                              uint8_t *out,
                              size_t space,
                              size_t *length,
                              uint64_t now);

/**
 * The time at which to call packrat_shim_on_timeout() at the latest; PACKRAT_NEVER: not at all, so
 * far. It changes with every other call.
 */
uint64_t packrat_shim_timeout(packrat_shim *shim);

/**
 * Runs the timers that are due. Call packrat_shim_deliver() and packrat_shim_transmit() afterwards
 * until they are empty.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_on_timeout(packrat_shim *shim, uint64_t now);

/**
 * The gateway to accept and another token, for gateways that ask for one.
 *
 * `gateway_key`: the 32 bytes of its static key, or NULL to accept any on first use. A session with
 * another gateway than this ends.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT, the latter also for a token that is too long.
 */
int32_t packrat_shim_set_access(packrat_shim *shim,
                                const uint8_t *gateway_key,
                                const uint8_t *token,
                                size_t length,
                                uint64_t now);

/**
 * The program's address changes, such as from Wi-Fi to cellular: call it before a datagram is sent
 * from the new address. The session continues.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_network_changed(packrat_shim *shim, uint64_t now);

/**
 * Datagrams of the peer's were dropped before packrat_shim_receive() saw them, and are not to be
 * repaired.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_overflowed(packrat_shim *shim, uint64_t now);

/**
 * Everything that waits is to be had from packrat_shim_deliver(), such as when it is too much.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_release(packrat_shim *shim);

/**
 * Ends the connection: packrat_shim_transmit() then returns a last message for the gateway, and
 * packrat_shim_deliver() the waiting datagrams.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_close(packrat_shim *shim, uint64_t now);

/**
 * Figures of a shim. `size`: sizeof(packrat_statistics); fields that the caller's header lacks are
 * omitted.
 *
 * Returns PACKRAT_OK or PACKRAT_ARGUMENT.
 */
int32_t packrat_shim_statistics(packrat_shim *shim, packrat_statistics *out, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PACKRAT_H */
