"""Noise_NX_25519_ChaChaPoly_BLAKE2s, both roles (docs/PROTOCOL.md, section 6; noiseprotocol.org)."""

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NAME = b"Noise_NX_25519_ChaChaPoly_BLAKE2s"


class NoiseError(Exception):
    """A message that does not belong to this handshake."""


def public(private):
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def private_key(raw=None):
    return X25519PrivateKey.from_private_bytes(raw or os.urandom(32))


def _hkdf(chaining_key, material):
    def mac(key, data):
        return hmac.new(key, data, hashlib.blake2s).digest()

    secret = mac(chaining_key, material)
    first = mac(secret, b"\x01")
    return first, mac(secret, first + b"\x02")


class Symmetric:
    """Noise's SymmetricState."""

    def __init__(self, prologue):
        self.hash = hashlib.blake2s(NAME).digest()  # the name is longer than a hash
        self.chaining_key, self.key, self.nonce = self.hash, None, 0
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.hash = hashlib.blake2s(self.hash + data).digest()

    def mix_key(self, private, peer):
        secret = private.exchange(X25519PublicKey.from_public_bytes(peer))
        self.chaining_key, self.key = _hkdf(self.chaining_key, secret)
        self.nonce = 0

    def _nonce(self):
        self.nonce += 1
        return bytes(4) + (self.nonce - 1).to_bytes(8, "little")

    def encrypt_and_hash(self, plaintext):
        ciphertext = plaintext
        if self.key:
            ciphertext = ChaCha20Poly1305(self.key).encrypt(self._nonce(), plaintext, self.hash)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext):
        plaintext = ciphertext
        if self.key:
            try:
                plaintext = ChaCha20Poly1305(self.key).decrypt(self._nonce(), ciphertext, self.hash)
            except InvalidTag as error:
                raise NoiseError("a message of another handshake") from error
        self.mix_hash(ciphertext)
        return plaintext

    def split(self):
        """The keys of client to gateway, and of gateway to client."""
        return _hkdf(self.chaining_key, b"")


class Initiator:
    """The client. `finish` starts from message 1 each time: a forged answer has no effect."""

    def __init__(self, prologue, payload, ephemeral=None):
        self.prologue, self.payload = prologue, payload
        self.ephemeral = private_key(ephemeral)
        self.message = public(self.ephemeral) + payload

    def finish(self, answer):
        """Returns the gateway's payload, its static key, and the two keys of the session."""
        if len(answer) < 32 + 48 + 16:
            raise NoiseError("a message that is too short")
        state = Symmetric(self.prologue)
        state.mix_hash(public(self.ephemeral))
        state.encrypt_and_hash(self.payload)
        state.mix_hash(answer[:32])
        try:
            state.mix_key(self.ephemeral, answer[:32])
            static = state.decrypt_and_hash(answer[32:80])
            state.mix_key(self.ephemeral, static)
        except ValueError as error:  # a point of small order
            raise NoiseError("not a key") from error
        return state.decrypt_and_hash(answer[80:]), static, state.split()


def respond(prologue, message, payload, static, ephemeral):
    """The gateway: message 2 and the two keys of the session; the vectors need it."""
    static, ephemeral = private_key(static), private_key(ephemeral)
    state = Symmetric(prologue)
    state.mix_hash(message[:32])
    state.decrypt_and_hash(message[32:])
    answer = public(ephemeral)
    state.mix_hash(answer)
    state.mix_key(ephemeral, message[:32])
    answer += state.encrypt_and_hash(public(static))
    state.mix_key(static, message[:32])
    answer += state.encrypt_and_hash(payload)
    return answer, state.split()
