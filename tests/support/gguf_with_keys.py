"""gguf_with_keys.py IN OUT KEY=NUMBER|true|false ...: the model IN with these keys, too, u32 or bool, at OUT."""
import struct
import sys

from gguf_keys import BOOL, U32, load, store


def main(source, target, *words):
    pairs, rest = load(source)
    for word in words:
        key, value = word.split("=")
        number = value not in ("true", "false")
        pairs[key.encode()] = (U32, struct.pack("<I", int(value))) if number else (BOOL, bytes([value == "true"]))
    store(target, pairs, rest)


main(*sys.argv[1:])
