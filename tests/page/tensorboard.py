#!/usr/bin/env python3
"""tensorboard.py FOLDER - prints what event files of TensorBoard hold: one line "step tag value" per scalar.

An independent reader: it checks the lengths and checksums of all records and parses the protocol buffers itself.
"""
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check(data, stored):
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked == struct.unpack("<I", stored)[0], "a checksum is wrong"


def fields(data):
    """Yields (number, value) of a message: integers, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        size = {0: None, 1: 8, 5: 4}.get(key & 7, -1)
        if size is None:
            yield key >> 3, varint()
            continue
        if size < 0:
            assert key & 7 == 2, "unknown wire type"
            size = varint()
        assert at + size <= len(data), "a field is longer than its message"
        yield key >> 3, data[at:at + size]
        at += size


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
for path in sorted(pathlib.Path(sys.argv[1]).glob("*tfevents*")):
    data, n = path.read_bytes(), 0
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        check(data[:8], data[8:12])
        body = data[12:12 + size]
        check(body, data[12 + size:16 + size])
        data = data[16 + size:]
        event = dict(fields(body))
        if n == 0:
            assert event[3] == b"brain.Event:2", "the file has no version"
        n += 1
        assert struct.unpack("<d", event[1])[0] > 1.6e9, "an event has no time"
        for _, value in fields(event.get(5, b"")):
            scalar = dict(fields(value))
            print(event[2], scalar[1].decode(), repr(struct.unpack("<f", scalar[2])[0]))
