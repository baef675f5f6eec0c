"""The bytes of a request's body, however the client sends them: counted or in chunks, packed or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from io import BufferedIOBase

BODY_LIMIT = 10_000_000
_GZIP = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever it is."""


def read_body(headers: Mapping[str, str], stream: BufferedIOBase) -> bytes:
    """Everything the client sends; ValueError if it is too large or makes no sense."""
    headers = {name.lower(): value for name, value in headers.items()}
    if "chunked" in (headers.get("transfer-encoding") or "").lower():
        raw = b"".join(_chunks(stream))
    else:
        length = int(headers.get("content-length") or 0)
        if not 0 <= length <= BODY_LIMIT:
            raise ValueError("the body is too large")
        raw = stream.read(length)
    packed = (headers.get("content-encoding") or "identity").lower()
    if packed == "identity":
        return raw
    if packed not in ("gzip", "deflate"):
        raise ValueError(f"the body is packed with {packed}")
    return _unpacked(raw)


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    total = 0
    while size := int(stream.readline(64).partition(b";")[0], 16):
        total += size
        if size < 0 or total > BODY_LIMIT:
            raise ValueError("the body is too large")
        yield stream.read(size)
        stream.readline(64)
    stream.readline(64)


def _unpacked(raw: bytes) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        body = unpacking.decompress(raw, BODY_LIMIT)
    except zlib.error as error:
        raise ValueError(f"the body cannot be unpacked: {error}") from error
    if unpacking.unconsumed_tail:
        raise ValueError("the body is too large")
    return body
