# A copy of a GGUF file that claims another context length: python3 long_context.py FROM TO N. What a model
# writes beyond what it was trained for is noise, but long prompts and long answers find room.
import re, struct, sys

source, target, n = sys.argv[1:]
data = bytearray(open(source, "rb").read())
key = re.search(rb"[a-z0-9]+\.context_length", data)
kind, _ = struct.unpack_from("<II", data, key.end())
assert kind == 4, "the context length is not a u32"
struct.pack_into("<I", data, key.end() + 4, int(n))
open(target, "wb").write(data)
